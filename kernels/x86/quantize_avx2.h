/* Floats to whole numbers of 8 bits, AVX2. Static only: it is compiled with the flags of its level. */
#ifndef AFMOE_KERNELS_QUANTIZE_AVX2_H
#define AFMOE_KERNELS_QUANTIZE_AVX2_H

#include "vector_avx2.h"

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

#endif
