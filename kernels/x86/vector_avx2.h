/* Eight floats at a time: tails, stored numbers, sums. Static only: it is compiled with the flags of its level. */
#ifndef AFMOE_KERNELS_VECTOR_AVX2_H
#define AFMOE_KERNELS_VECTOR_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define FORCE_INLINE static inline __attribute__((always_inline))

/* The other half is zero. */
FORCE_INLINE __m128i load_8_bytes(const void *p)
{
    return _mm_loadl_epi64((const __m128i *)p);
}

FORCE_INLINE __m128i load_16_bytes(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

FORCE_INLINE __m256i load_32_bytes(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* All ones in the first n < 8 lanes. Masked loads and stores touch no other memory. */
FORCE_INLINE __m256i tail_mask(uint64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* How numbers are stored; always a constant at the call. */
enum stored { STORED_F32, STORED_F16, STORED_BF16 };

FORCE_INLINE uint64_t stored_bytes(enum stored s)
{
    return s == STORED_F32 ? 4 : 2;
}

FORCE_INLINE __m256 widen8(__m128i h, enum stored s)
{
    if (s == STORED_F16) return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

FORCE_INLINE __m256 load8(const uint8_t *p, enum stored s)
{
    if (s == STORED_F32) return _mm256_loadu_ps((const float *)(const void *)p);
    return widen8(_mm_loadu_si128((const __m128i *)(const void *)p), s);
}

/* The first n < 8 numbers, zeros after them. */
FORCE_INLINE __m256 load_tail(const uint8_t *p, uint64_t n, enum stored s)
{
    if (s == STORED_F32) return _mm256_maskload_ps((const float *)(const void *)p, tail_mask(n));
    uint16_t h[8] = {0};
    for (uint64_t i = 0; i < n; i++) memcpy(&h[i], p + 2 * i, 2);
    return widen8(_mm_loadu_si128((const __m128i *)(const void *)h), s);
}

/* l0+l4, l1+l5, l2+l6, l3+l7 */
FORCE_INLINE __m128 fold(__m256 v)
{
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}

/* ((l0+l4)+(l2+l6)) + ((l1+l5)+(l3+l7)), the order of kernels.h. */
FORCE_INLINE float sum8(__m256 v)
{
    __m128 s = fold(v);
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* The sums of four vectors, in the same order. */
FORCE_INLINE __m128 sum8x4(__m256 a, __m256 b, __m256 c, __m256 d)
{
    __m128 s0 = fold(a), s1 = fold(b), s2 = fold(c), s3 = fold(d);
    _MM_TRANSPOSE4_PS(s0, s1, s2, s3);
    return _mm_add_ps(_mm_add_ps(s0, s2), _mm_add_ps(s1, s3));
}

FORCE_INLINE float max8(__m256 v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

#endif
