/* The 16-bit floats: IEEE 754 binary16 (f16) and bfloat16 (bf16), to and from float32 by bit arithmetic.
 *
 * To 16 bits rounds to nearest, ties to even, whatever the rounding mode of the host; too large becomes infinity; a
 * NaN stays one: quiet, with its sign and the payload bits that fit. The results are those of x86's F16C. */
#ifndef AFMOE_KERNELS_HALF_H
#define AFMOE_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = (h >> 10) & 31;
    uint32_t mantissa = h & 0x3ff;
    if (exponent == 31) return float_from_bits(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0));
    if (exponent == 0) return float_from_bits(sign | float_bits((float)mantissa * 0x1p-24f));
    return float_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline uint16_t f16_from_f32(float x)
{
    uint32_t bits = float_bits(x);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t size = bits & 0x7fffffff;
    if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x3ff));
    if (size >= 0x477ff000) return sign | 0x7c00; /* 65520, halfway between the largest and the next, goes up */
    if (size >= 0x38800000)                       /* 2^-14: normal */
        return (uint16_t)(sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
    if (size <= 0x33000000) return sign; /* 2^-25, half the smallest, ties to 0 */
    uint32_t mantissa = (size & 0x7fffff) | 0x800000;
    uint32_t shift = 126 - (size >> 23); /* 14..24 */
    uint32_t kept = mantissa >> shift;
    uint32_t rest = mantissa & ((1u << shift) - 1);
    uint32_t half = 1u << (shift - 1);
    return (uint16_t)(sign | (kept + (rest > half || (rest == half && (kept & 1)))));
}

static inline float bf16_to_f32(uint16_t h)
{
    return float_from_bits((uint32_t)h << 16);
}

static inline uint16_t bf16_from_f32(float x)
{
    uint32_t bits = float_bits(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
