/* Activations to whole numbers, AVX2; formula and layout: activations.h. */
#include "avx2.h"

#include "vector_avx2.h"

#include <math.h>
#include <stdbool.h>

/* Largest |x| of n (a multiple of 32) as bits: in the order of the bits a NaN is above infinity, and that above all
 * numbers. */
FORCE_INLINE uint32_t largest_bits(const float *x, const int n)
{
    const __m256i size = _mm256_set1_epi32(0x7fffffff);
    __m256i max[4];
    for (int i = 0; i < 4; i++) max[i] = _mm256_setzero_si256();
    for (int k = 0; k < n; k += 32)
        for (int i = 0; i < 4; i++) {
            __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + k + 8 * i));
            max[i] = _mm256_max_epi32(max[i], _mm256_and_si256(bits, size));
        }
    __m256i m = _mm256_max_epi32(_mm256_max_epi32(max[0], max[1]), _mm256_max_epi32(max[2], max[3]));
    __m128i h = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(h);
}

/* 32 numbers as bytes. */
FORCE_INLINE __m256i quantize32(const float *x, __m256 factor)
{
    __m256i q[4];
    for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), factor));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

FORCE_INLINE void prepare(enum activation_kind kind, void *out, const float *x, uint64_t n)
{
    const int group = kind == ACTIVATION_INT8_32 || kind == ACTIVATION_INT16_32 ? 32 : 256;
    const bool wide = kind == ACTIVATION_INT16_32 || kind == ACTIVATION_INT16_256;
    uint8_t *base = out;
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
            } else {
                _mm256_store_si256((__m256i *)(void *)(base + k + (uint64_t)i), q);
            }
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

void afmoe__prepare_avx2(struct kernels *k)
{
    k->prepare[ACTIVATION_INT8_32] = prepare_int8_32;
    k->prepare[ACTIVATION_INT16_32] = prepare_int16_32;
    k->prepare[ACTIVATION_INT8_256] = prepare_int8_256;
    k->prepare[ACTIVATION_INT16_256] = prepare_int16_256;
}
