/* The vectors of the bodies that all x86 levels share, the headers ..._x86.h: at AVX2 eight floats. A file includes the
 * header of its own level, then the bodies. Static only: it is compiled with the flags of its level. */
#ifndef AFMOE_KERNELS_WIDE_AVX2_H
#define AFMOE_KERNELS_WIDE_AVX2_H

#include "vector_avx2.h"

enum { WIDE = 8 };

typedef __m256 wide;
typedef __m256i wide_int;

/* *sum += a * b, rounded once. Not an intrinsic: with 12 sums and 16 registers gcc 12 writes the sum over a factor and
 * moves loads forward until sums go through the stack in every turn, which halves the speed. */
FORCE_INLINE void wide_add_product(wide *sum, wide a, wide b)
{
    __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(*sum) : "x"(a), "x"(b));
}

/* What was loaded is loaded again when it is needed, rather than kept in a register. */
FORCE_INLINE void wide_forget_memory(void)
{
    __asm__ volatile("" ::: "memory");
}

FORCE_INLINE wide wide_zero(void)
{
    return _mm256_setzero_ps();
}

FORCE_INLINE wide wide_all(float x)
{
    return _mm256_set1_ps(x);
}

FORCE_INLINE wide wide_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

FORCE_INLINE void wide_store(float *p, wide v)
{
    _mm256_storeu_ps(p, v);
}

/* The first n < WIDE floats, zeros after them. */
FORCE_INLINE wide wide_load_first(const float *p, uint64_t n)
{
    return _mm256_maskload_ps(p, tail_mask(n));
}

FORCE_INLINE void wide_store_first(float *p, uint64_t n, wide v)
{
    _mm256_maskstore_ps(p, tail_mask(n), v);
}

FORCE_INLINE wide wide_add(wide a, wide b)
{
    return _mm256_add_ps(a, b);
}

FORCE_INLINE wide wide_sub(wide a, wide b)
{
    return _mm256_sub_ps(a, b);
}

FORCE_INLINE wide wide_mul(wide a, wide b)
{
    return _mm256_mul_ps(a, b);
}

/* a * b + c and c - a * b, rounded once */
FORCE_INLINE wide wide_fma(wide a, wide b, wide c)
{
    return _mm256_fmadd_ps(a, b, c);
}

FORCE_INLINE wide wide_fnma(wide a, wide b, wide c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

/* The second operand where either is NaN. */
FORCE_INLINE wide wide_max(wide a, wide b)
{
    return _mm256_max_ps(a, b);
}

FORCE_INLINE wide wide_min(wide a, wide b)
{
    return _mm256_min_ps(a, b);
}

FORCE_INLINE float wide_first(wide v)
{
    return _mm256_cvtss_f32(v);
}

/* The order of kernels.h. */
FORCE_INLINE float wide_sum(wide v)
{
    return sum8(v);
}

FORCE_INLINE float wide_largest(wide v)
{
    return max8(v);
}

/* v in the lanes begin <= i < end, other in the others */
FORCE_INLINE wide wide_between(int begin, int end, wide v, wide other)
{
    __m256i i = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i low = _mm256_cmpgt_epi32(_mm256_set1_epi32(begin), i), high = _mm256_cmpgt_epi32(_mm256_set1_epi32(end), i);
    return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(_mm256_andnot_si256(low, high)));
}

/* For exp_x86.h: the bits of v less those of other, n / 2 rounded down, 2^n. */
FORCE_INLINE wide_int wide_bits_less(wide v, wide other)
{
    return _mm256_sub_epi32(_mm256_castps_si256(v), _mm256_castps_si256(other));
}

FORCE_INLINE wide_int wide_int_sub(wide_int a, wide_int b)
{
    return _mm256_sub_epi32(a, b);
}

FORCE_INLINE wide_int wide_int_half(wide_int n)
{
    return _mm256_srai_epi32(n, 1);
}

FORCE_INLINE wide wide_power_of_2(wide_int n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* WIDE halves as floats */
FORCE_INLINE wide wide_load_f16(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* The first, or second, bfloat16 of each of WIDE pairs */
FORCE_INLINE wide wide_load_even_bf16(const uint8_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p), 16));
}

FORCE_INLINE wide wide_load_odd_bf16(const uint8_t *p)
{
    __m256i pairs = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_srli_epi32(pairs, 16), 16));
}

/* WIDE whole numbers of 8 bits as floats */
FORCE_INLINE wide wide_load_int8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8_bytes(p)));
}

#endif
