/* exp and sigmoid of eight floats. */
#ifndef AFMOE_KERNELS_EXP_AVX2_H
#define AFMOE_KERNELS_EXP_AVX2_H

#include "wide_avx2.h"

#include "exp_x86.h"

FORCE_INLINE __m256 exp8(__m256 x)
{
    return wide_exp(x);
}

FORCE_INLINE __m256 sigmoid8(__m256 x)
{
    __m256 one = _mm256_set1_ps(1.0f);
    __m256 e = exp8(_mm256_or_ps(x, _mm256_set1_ps(-0.0f)));
    return _mm256_div_ps(_mm256_blendv_ps(one, e, x), _mm256_add_ps(one, e));
}

#endif
