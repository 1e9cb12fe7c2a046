/* exp for x <= 0 in float32 multiplications and additions only, so that every compiler and CPU gives the same bits:
 * x = n ln 2 + r, |r| <= ln 2 / 2, exp(x) = 2^n p(r). Coefficients are those of the Cephes library's expf; the
 * error is below 2 units in the last place. A fused multiply-add would be a call to libm where the CPU level has
 * none, and other bits elsewhere. */
#ifndef AFMOE_SAMPLER_EXP_PORTABLE_H
#define AFMOE_SAMPLER_EXP_PORTABLE_H

#include <stdint.h>
#include <string.h>

enum { EXP_BLOCK = 512 }; /* callers work in blocks of so many values on the stack */

/* -87 <= x <= 0. exp(0) is exactly 1. */
static inline float exp_portable(float x)
{
    const float round_magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer kept in the low bits */
    float shifted = x * 1.44269504f + round_magic;
    float n = shifted - round_magic;
    float r = x - n * 0.693359375f; /* ln 2 in two parts; the first product is exact */
    r = r - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * (r * r) + r) + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits - 0x4b400000u + 127u) << 23; /* n >= -126: a normal power of two */
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

/* x[i] = exp(x[i]), all x[i] <= 0, none NaN. Everything below -87, -infinity too, gives exp(-87), about 1.6e-38.
 * The two loops are vector code; as one, gcc makes a branch of the limit. */
static inline void exp_portable_block(float *x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) x[i] = x[i] > -87.0f ? x[i] : -87.0f;
    for (uint64_t i = 0; i < n; i++) x[i] = exp_portable(x[i]);
}

#endif
