/* exp and sigmoid of sixteen floats: the steps of exp_avx2.h, with the same bits. */
#ifndef AFMOE_KERNELS_EXP_AVX512_H
#define AFMOE_KERNELS_EXP_AVX512_H

#include "exp.h"
#include "vector_avx512.h"

FORCE_INLINE __m512 exp16(__m512 x)
{
    x = _mm512_max_ps(_mm512_set1_ps(EXP_LOW), x); /* the second operand where either is NaN */
    x = _mm512_min_ps(_mm512_set1_ps(EXP_HIGH), x);
    __m512 round = _mm512_set1_ps(EXP_ROUND);
    __m512 shifted = _mm512_fmadd_ps(x, _mm512_set1_ps(EXP_LOG2E), round);
    __m512 whole = _mm512_sub_ps(shifted, round);
    __m512i n = _mm512_sub_epi32(_mm512_castps_si512(shifted), _mm512_castps_si512(round));
    __m512 r = _mm512_fnmadd_ps(whole, _mm512_set1_ps(EXP_LN2_HI), x);
    r = _mm512_fnmadd_ps(whole, _mm512_set1_ps(EXP_LN2_LO), r);
    __m512 q = _mm512_set1_ps(EXP_C6);
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(EXP_C5));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(EXP_C4));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(EXP_C3));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(EXP_C2));
    __m512 p = _mm512_add_ps(_mm512_set1_ps(1.0f), _mm512_fmadd_ps(_mm512_mul_ps(r, r), q, r));
    __m512i first = _mm512_srai_epi32(n, 1);
    __m512i second = _mm512_sub_epi32(n, first);
    __m512i bias = _mm512_set1_epi32(127);
    __m512 scale1 = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(first, bias), 23));
    __m512 scale2 = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(second, bias), 23));
    return _mm512_mul_ps(_mm512_mul_ps(p, scale1), scale2);
}

FORCE_INLINE __m512 sigmoid16(__m512 x)
{
    __m512 one = _mm512_set1_ps(1.0f);
    __m512 e = exp16(_mm512_or_ps(x, _mm512_set1_ps(-0.0f)));
    __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(x));
    return _mm512_div_ps(_mm512_mask_blend_ps(negative, one, e), _mm512_add_ps(one, e));
}

#endif
