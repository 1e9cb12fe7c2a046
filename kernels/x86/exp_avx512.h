/* exp and sigmoid of sixteen floats, with the bits of exp_avx2.h. */
#ifndef AFMOE_KERNELS_EXP_AVX512_H
#define AFMOE_KERNELS_EXP_AVX512_H

#include "wide_avx512.h"

#include "exp_x86.h"

FORCE_INLINE __m512 exp16(__m512 x)
{
    return wide_exp(x);
}

FORCE_INLINE __m512 sigmoid16(__m512 x)
{
    __m512 one = _mm512_set1_ps(1.0f);
    __m512 e = exp16(_mm512_or_ps(x, _mm512_set1_ps(-0.0f)));
    __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(x));
    return _mm512_div_ps(_mm512_mask_blend_ps(negative, one, e), _mm512_add_ps(one, e));
}

#endif
