/* Floats stored as 16-bit key/value cells, eight at a time: the bits of half.h. Float cells stay with the reference,
 * which is a copy. */
#include "avx2.h"

#include "half.h"
#include "vector_avx2.h"

static void store_f16(void *out, const float *x, uint64_t n)
{
    uint8_t *p = out;
    uint64_t k = 0;
    for (; k + 8 <= n; k += 8) {
        __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(x + k), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm_storeu_si128((__m128i *)(void *)(p + 2 * k), h);
    }
    for (; k < n; k++) {
        uint16_t h = f16_from_f32(x[k]);
        memcpy(p + 2 * k, &h, sizeof h);
    }
}

FORCE_INLINE __m128i narrow_bf16(__m256 x)
{
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

static void store_bf16(void *out, const float *x, uint64_t n)
{
    uint8_t *p = out;
    uint64_t k = 0;
    for (; k + 8 <= n; k += 8)
        _mm_storeu_si128((__m128i *)(void *)(p + 2 * k), narrow_bf16(_mm256_loadu_ps(x + k)));
    for (; k < n; k++) {
        uint16_t h = bf16_from_f32(x[k]);
        memcpy(p + 2 * k, &h, sizeof h);
    }
}

void afmoe__cells_avx2(struct kernels *k)
{
    k->store_cells[CELLS_F16] = store_f16;
    k->store_cells[CELLS_BF16] = store_bf16;
}
