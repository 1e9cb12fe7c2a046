/* The vectors of the bodies that all x86 levels share, see wide_avx2.h: at AVX-512 sixteen floats. */
#ifndef AFMOE_KERNELS_WIDE_AVX512_H
#define AFMOE_KERNELS_WIDE_AVX512_H

#include "vector_avx512.h"

enum { WIDE = 16 };

typedef __m512 wide;
typedef __m512i wide_int;

FORCE_INLINE void wide_add_product(wide *sum, wide a, wide b)
{
    *sum = _mm512_fmadd_ps(a, b, *sum);
}

FORCE_INLINE void wide_forget_memory(void)
{
}

FORCE_INLINE wide wide_zero(void)
{
    return _mm512_setzero_ps();
}

FORCE_INLINE wide wide_all(float x)
{
    return _mm512_set1_ps(x);
}

FORCE_INLINE wide wide_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

FORCE_INLINE void wide_store(float *p, wide v)
{
    _mm512_storeu_ps(p, v);
}

FORCE_INLINE wide wide_load_first(const float *p, uint64_t n)
{
    return _mm512_maskz_loadu_ps(tail_lanes(n), p);
}

FORCE_INLINE void wide_store_first(float *p, uint64_t n, wide v)
{
    _mm512_mask_storeu_ps(p, tail_lanes(n), v);
}

FORCE_INLINE wide wide_add(wide a, wide b)
{
    return _mm512_add_ps(a, b);
}

FORCE_INLINE wide wide_sub(wide a, wide b)
{
    return _mm512_sub_ps(a, b);
}

FORCE_INLINE wide wide_mul(wide a, wide b)
{
    return _mm512_mul_ps(a, b);
}

FORCE_INLINE wide wide_fma(wide a, wide b, wide c)
{
    return _mm512_fmadd_ps(a, b, c);
}

FORCE_INLINE wide wide_fnma(wide a, wide b, wide c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

FORCE_INLINE wide wide_max(wide a, wide b)
{
    return _mm512_max_ps(a, b);
}

FORCE_INLINE wide wide_min(wide a, wide b)
{
    return _mm512_min_ps(a, b);
}

FORCE_INLINE float wide_first(wide v)
{
    return _mm512_cvtss_f32(v);
}

FORCE_INLINE float wide_sum(wide v)
{
    return sum16(v);
}

FORCE_INLINE float wide_largest(wide v)
{
    return max16(v);
}

FORCE_INLINE uint32_t lanes_below(int n)
{
    return n <= 0 ? 0 : n >= WIDE ? 0xffffu : (1u << n) - 1;
}

FORCE_INLINE wide wide_between(int begin, int end, wide v, wide other)
{
    return _mm512_mask_blend_ps((__mmask16)(lanes_below(end) & ~lanes_below(begin)), other, v);
}

FORCE_INLINE wide_int wide_bits_less(wide v, wide other)
{
    return _mm512_sub_epi32(_mm512_castps_si512(v), _mm512_castps_si512(other));
}

FORCE_INLINE wide_int wide_int_sub(wide_int a, wide_int b)
{
    return _mm512_sub_epi32(a, b);
}

FORCE_INLINE wide_int wide_int_half(wide_int n)
{
    return _mm512_srai_epi32(n, 1);
}

FORCE_INLINE wide wide_power_of_2(wide_int n)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}

FORCE_INLINE wide wide_load_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

FORCE_INLINE wide wide_load_even_bf16(const uint8_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}

FORCE_INLINE wide wide_load_odd_bf16(const uint8_t *p)
{
    __m512i high = _mm512_set1_epi32((int)0xffff0000u);
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), high));
}

FORCE_INLINE wide wide_load_int8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

#endif
