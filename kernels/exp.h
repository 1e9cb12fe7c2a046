/* The one scalar exponential: float32, no table, the same bits on every machine.
 *
 * n = round(x / ln 2), r = x - n ln 2 (ln 2 in two parts, the first of 9 bits, so that n times it is exact),
 * exp(x) = 2^n (1 + r + r^2 q(r)), q of degree 4: minimax in relative error on |r| <= ln 2 / 2, fitted by Lawson's
 * iteration, 3.1e-9. 2^n is applied as two factors, so results below 2^-126 are rounded once.
 *
 * Error: at most EXP_MAX_ULP over all floats (measured: 0.989; 1.006 with fused multiply-adds; test_kernels
 * --exhaustive repeats it). Overflow gives infinity (from 88.7229 up), underflow goes through the denormals to 0 (below
 * -103.973), NaN gives NaN, exp(0) = 1 exactly. Needs round to nearest, as everything here. */
#ifndef AFMOE_KERNELS_EXP_H
#define AFMOE_KERNELS_EXP_H

#include "half.h"

#define EXP_MAX_ULP 1.01

/* Shared with the vector forms. Inputs are first clamped to [EXP_LOW, EXP_HIGH], which changes no result. */
#define EXP_LOW    -104.0f
#define EXP_HIGH   89.0f
#define EXP_LOG2E  0x1.715476p+0f
#define EXP_ROUND  0x1.8p+23f /* adding it leaves round(x) in the low bits */
#define EXP_LN2_HI 0x1.63p-1f
#define EXP_LN2_LO -0x1.bd0106p-13f
#define EXP_C2     0x1.fffffcp-2f
#define EXP_C3     0x1.55549p-3f
#define EXP_C4     0x1.5558f8p-5f
#define EXP_C5     0x1.123b02p-7f
#define EXP_C6     0x1.6a2256p-10f

/* For EXP_LOW <= x <= EXP_HIGH or NaN. Without a branch, so that a loop over it becomes vector code; with the limits
 * inside, gcc makes branches of them. */
static inline float exp_f32_in_range(float x)
{
    float shifted = x * EXP_LOG2E + EXP_ROUND;
    float whole = shifted - EXP_ROUND;
    int32_t n = (int32_t)(float_bits(shifted) - float_bits(EXP_ROUND)); /* -150..129; any value for NaN */
    float r = x - whole * EXP_LN2_HI;
    r -= whole * EXP_LN2_LO;
    float q = EXP_C6;
    q = q * r + EXP_C5;
    q = q * r + EXP_C4;
    q = q * r + EXP_C3;
    q = q * r + EXP_C2;
    float p = 1.0f + (r + r * r * q);
    int32_t first = n / 2;
    int32_t second = n - first;
    float scale1 = float_from_bits((uint32_t)(first + 127) << 23);
    float scale2 = float_from_bits((uint32_t)(second + 127) << 23);
    return p * scale1 * scale2;
}

static inline float exp_f32(float x)
{
    if (x < EXP_LOW) x = EXP_LOW; /* false for NaN, which runs through */
    if (x > EXP_HIGH) x = EXP_HIGH;
    return exp_f32_in_range(x);
}

/* 1 / (1 + exp(-x)), from exp(-|x|) so that neither side overflows or cancels. */
static inline float sigmoid_f32(float x)
{
    float e = exp_f32(x < 0 ? x : -x);
    return (x < 0 ? e : 1.0f) / (1.0f + e);
}

#endif
