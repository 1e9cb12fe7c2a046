/* exp and sigmoid of eight floats: the steps of exp.h with fused multiply-adds. Error at most EXP_MAX_ULP too. */
#ifndef AFMOE_KERNELS_EXP_AVX2_H
#define AFMOE_KERNELS_EXP_AVX2_H

#include "exp.h"
#include "vector_avx2.h"

FORCE_INLINE __m256 exp8(__m256 x)
{
    x = _mm256_max_ps(_mm256_set1_ps(EXP_LOW), x); /* the second operand where either is NaN */
    x = _mm256_min_ps(_mm256_set1_ps(EXP_HIGH), x);
    __m256 round = _mm256_set1_ps(EXP_ROUND);
    __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(EXP_LOG2E), round);
    __m256 whole = _mm256_sub_ps(shifted, round);
    __m256i n = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(round));
    __m256 r = _mm256_fnmadd_ps(whole, _mm256_set1_ps(EXP_LN2_HI), x);
    r = _mm256_fnmadd_ps(whole, _mm256_set1_ps(EXP_LN2_LO), r);
    __m256 q = _mm256_set1_ps(EXP_C6);
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(EXP_C5));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(EXP_C4));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(EXP_C3));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(EXP_C2));
    __m256 p = _mm256_add_ps(_mm256_set1_ps(1.0f), _mm256_fmadd_ps(_mm256_mul_ps(r, r), q, r));
    __m256i first = _mm256_srai_epi32(n, 1);
    __m256i second = _mm256_sub_epi32(n, first);
    __m256i bias = _mm256_set1_epi32(127);
    __m256 scale1 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, bias), 23));
    __m256 scale2 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(second, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(p, scale1), scale2);
}

FORCE_INLINE __m256 sigmoid8(__m256 x)
{
    __m256 one = _mm256_set1_ps(1.0f);
    __m256 e = exp8(_mm256_or_ps(x, _mm256_set1_ps(-0.0f)));
    return _mm256_div_ps(_mm256_blendv_ps(one, e, x), _mm256_add_ps(one, e));
}

#endif
