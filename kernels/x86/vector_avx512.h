/* Sixteen floats at a time: tails, stored numbers, sums. Static only: it is compiled with the flags of its level. */
#ifndef AFMOE_KERNELS_VECTOR_AVX512_H
#define AFMOE_KERNELS_VECTOR_AVX512_H

#include "vector_avx2.h"

/* The first n < 16 lanes. Masked loads and stores touch no other memory. */
FORCE_INLINE __mmask16 tail_lanes(uint64_t n)
{
    return (__mmask16)((1u << n) - 1);
}

FORCE_INLINE __m512 widen16(__m256i h, enum stored s)
{
    if (s == STORED_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

FORCE_INLINE __m512 load16(const uint8_t *p, enum stored s)
{
    if (s == STORED_F32) return _mm512_loadu_ps((const float *)(const void *)p);
    return widen16(_mm256_loadu_si256((const __m256i *)(const void *)p), s);
}

/* The first n < 16 numbers, zeros after them. */
FORCE_INLINE __m512 load_tail16(const uint8_t *p, uint64_t n, enum stored s)
{
    if (s == STORED_F32) return _mm512_maskz_loadu_ps(tail_lanes(n), (const float *)(const void *)p);
    uint16_t h[16] = {0};
    for (uint64_t i = 0; i < n; i++) memcpy(&h[i], p + 2 * i, 2);
    return widen16(_mm256_loadu_si256((const __m256i *)(const void *)h), s);
}

/* l0+l8 .. l7+l15 */
FORCE_INLINE __m256 fold16(__m512 v)
{
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

/* The order of kernels.h. */
FORCE_INLINE float sum16(__m512 v)
{
    return sum8(fold16(v));
}

FORCE_INLINE float max16(__m512 v)
{
    return max8(_mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
}

#endif
