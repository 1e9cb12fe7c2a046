/* Activations to whole numbers or bfloat16, AVX2; formula and layout: activations.h. */
#include "avx2.h"

#include "quantize_avx2.h"

#include <math.h>
#include <stdbool.h>

FORCE_INLINE void prepare(enum activation_kind kind, void *out, const float *x, uint64_t n)
{
    const int group = kind == ACTIVATION_INT8_32 || kind == ACTIVATION_INT16_32 ? 32 : 256;
    const bool wide = kind == ACTIVATION_INT16_32 || kind == ACTIVATION_INT16_256;
    uint8_t *base = out, *bytes = base + activation_int8(kind, n);
    float *d = (float *)(void *)(base + activation_d(kind, n));
    int16_t *sum32 = (int16_t *)(void *)(base + activation_sum32(kind, n));
    int16_t *sum16 = (int16_t *)(void *)(base + activation_sum16(kind, n));
    for (uint64_t k = 0; k < n; k += (uint64_t)group) {
        uint32_t bits = largest_bits(x + k, group);
        float max = float_from_bits(bits);
        bool usable = bits < 0x7f800000u && max >= ACTIVATION_MIN;
        *d++ = usable ? max / 127.0f : bits < 0x7f800000u ? 0 : NAN;
        __m256 factor = _mm256_set1_ps(usable ? 127.0f / max : 0);
        for (int i = 0; i < group; i += 32) {
            __m256i q = usable ? quantize32(x + k + i, factor) : _mm256_setzero_si256();
            __m256i low = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(q));
            __m256i high = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(q, 1));
            if (wide) {
                _mm256_store_si256((__m256i *)(void *)(base + 2 * (k + (uint64_t)i)), low);
                _mm256_store_si256((__m256i *)(void *)(base + 2 * (k + (uint64_t)i) + 32), high);
            }
            _mm256_storeu_si256((__m256i *)(void *)(bytes + k + (uint64_t)i), q);
            /* in each half of the vector: 4 words of low, 4 of high; 2 and 2; 1 and 1 */
            __m256i folded = _mm256_hadd_epi16(low, high);
            folded = _mm256_hadd_epi16(folded, folded);
            folded = _mm256_hadd_epi16(folded, folded);
            int first = (int16_t)_mm256_extract_epi16(folded, 0) + (int16_t)_mm256_extract_epi16(folded, 8);
            int second = (int16_t)_mm256_extract_epi16(folded, 1) + (int16_t)_mm256_extract_epi16(folded, 9);
            *sum16++ = (int16_t)first;
            *sum16++ = (int16_t)second;
            *sum32++ = (int16_t)(first + second);
        }
    }
}

#define DEFINE_PREPARE(name, kind)                                                                                     \
    static void prepare_##name(void *out, const float *x, uint64_t n)                                                  \
    {                                                                                                                  \
        prepare(kind, out, x, n);                                                                                      \
    }

DEFINE_PREPARE(int8_32, ACTIVATION_INT8_32)
DEFINE_PREPARE(int16_32, ACTIVATION_INT16_32)
DEFINE_PREPARE(int8_256, ACTIVATION_INT8_256)
DEFINE_PREPARE(int16_256, ACTIVATION_INT16_256)

/* Eight of them in dwords: bf16_from_f32. */
FORCE_INLINE __m256i bf16_of(__m256 x)
{
    __m256i bits = _mm256_castps_si256(x), top = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
    __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
    return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}

static void prepare_bf16(void *out, const float *x, uint64_t n)
{
    uint16_t *h = out;
    uint64_t k = 0;
    for (; k + 16 <= n; k += 16) {
        __m256i mixed = _mm256_packus_epi32(bf16_of(_mm256_loadu_ps(x + k)), bf16_of(_mm256_loadu_ps(x + k + 8)));
        _mm256_storeu_si256((__m256i *)(void *)(h + k), _mm256_permute4x64_epi64(mixed, 0 | 2 << 2 | 1 << 4 | 3 << 6));
    }
    for (; k < n; k++) h[k] = bf16_from_f32(x[k]);
}

void afmoe__prepare_avx2(struct kernels *k)
{
    k->prepare[ACTIVATION_INT8_32] = prepare_int8_32;
    k->prepare[ACTIVATION_INT16_32] = prepare_int16_32;
    k->prepare[ACTIVATION_INT8_256] = prepare_int8_256;
    k->prepare[ACTIVATION_INT16_256] = prepare_int16_256;
    k->prepare[ACTIVATION_BF16] = prepare_bf16;
}
