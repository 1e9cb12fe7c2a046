/* Whole numbers and floats of sixteen lanes, by the names that whole_sums_x86.h and whole_panel_x86.h use. Static only:
 * it is compiled with the flags of its level. */
#ifndef AFMOE_KERNELS_LANES_AVX512_H
#define AFMOE_KERNELS_LANES_AVX512_H

#include "vector_avx2.h"

typedef __m512i ints;
typedef __m512 floats;

#define ints_set1_16(x)           _mm512_set1_epi16(x)
#define ints_set1_32(x)           _mm512_set1_epi32(x)
#define ints_load(p)              _mm512_load_si512((const __m512i *)(const void *)(p))
#define ints_add_16(a, b)         _mm512_add_epi16(a, b)
#define ints_add_32(a, b)         _mm512_add_epi32(a, b)
#define ints_sub_32(a, b)         _mm512_sub_epi32(a, b)
#define ints_mul_32(a, b)         _mm512_mullo_epi32(a, b)
#define ints_shift_right_32(a, n) _mm512_srai_epi32(a, n)
#define ints_madd_bytes(a, b)     _mm512_maddubs_epi16(a, b)
#define ints_madd_words(a, b)     _mm512_madd_epi16(a, b)

#define floats_set1(x)            _mm512_set1_ps(x)
#define floats_load(p)            _mm512_load_ps(p)
#define floats_store(p, v)        _mm512_store_ps(p, v)
#define floats_from(i)            _mm512_cvtepi32_ps(i)
#define floats_mul(a, b)          _mm512_mul_ps(a, b)
#define floats_fmadd(a, b, c)     _mm512_fmadd_ps(a, b, c)
#define floats_fnmadd(a, b, c)    _mm512_fnmadd_ps(a, b, c)

#endif
