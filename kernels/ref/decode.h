/* Rows of weights to floats, plain C: one function for each block format, the exact values bit for bit as gguf-py's
 * gguf.quants gives them. n is a multiple of the format's block. */
#ifndef AFMOE_KERNELS_DECODE_H
#define AFMOE_KERNELS_DECODE_H

#include "format.h"
#include "half.h"

/* X(name, FORMAT): every format that comes in blocks. */
#define FOR_EACH_BLOCK_FORMAT(X)                                                                                       \
    X(q8_0, FORMAT_Q8_0)                                                                                               \
    X(q4_0, FORMAT_Q4_0)                                                                                               \
    X(q4_1, FORMAT_Q4_1)                                                                                               \
    X(q5_0, FORMAT_Q5_0)                                                                                               \
    X(q5_1, FORMAT_Q5_1)                                                                                               \
    X(q2_k, FORMAT_Q2_K)                                                                                               \
    X(q3_k, FORMAT_Q3_K)                                                                                               \
    X(q4_k, FORMAT_Q4_K)                                                                                               \
    X(q5_k, FORMAT_Q5_K)                                                                                               \
    X(q6_k, FORMAT_Q6_K)                                                                                               \
    X(iq1_s, FORMAT_IQ1_S)                                                                                             \
    X(iq1_m, FORMAT_IQ1_M)                                                                                             \
    X(iq2_xxs, FORMAT_IQ2_XXS)                                                                                         \
    X(iq2_xs, FORMAT_IQ2_XS)                                                                                           \
    X(iq2_s, FORMAT_IQ2_S)                                                                                             \
    X(iq3_xxs, FORMAT_IQ3_XXS)                                                                                         \
    X(iq3_s, FORMAT_IQ3_S)                                                                                             \
    X(iq4_nl, FORMAT_IQ4_NL)                                                                                           \
    X(iq4_xs, FORMAT_IQ4_XS)                                                                                           \
    X(tq1_0, FORMAT_TQ1_0)                                                                                             \
    X(tq2_0, FORMAT_TQ2_0)                                                                                             \
    X(mxfp4, FORMAT_MXFP4)                                                                                             \
    X(nvfp4, FORMAT_NVFP4)

typedef void (*decode_fn)(float *out, const void *row, uint64_t n);

#define DECLARE_DECODE(name, format) void afmoe__decode_##name(float *out, const void *row, uint64_t n);
FOR_EACH_BLOCK_FORMAT(DECLARE_DECODE)
#undef DECLARE_DECODE

static inline uint16_t u16_at(const uint8_t *p)
{
    uint16_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline uint32_t u32_at(const uint8_t *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline float f16_at(const uint8_t *p)
{
    return f16_to_f32(u16_at(p));
}

/* 6-bit scale and minimum of sub-block j < 8 of Q4_K and Q5_K, packed in 12 bytes:
 *   0..3: low 6 bits scale j, high 2 bits of scale j + 4;  4..7: the same for minima;
 *   8..11: low 4 bits of scale j + 4, low 4 bits of minimum j + 4. */
static inline void scale_and_min(const uint8_t packed[12], int j, uint8_t *scale, uint8_t *min)
{
    if (j < 4) {
        *scale = packed[j] & 63;
        *min = packed[j + 4] & 63;
    } else {
        *scale = (uint8_t)((packed[j + 4] & 15) | packed[j - 4] >> 6 << 4);
        *min = (uint8_t)(packed[j + 4] >> 4 | packed[j] >> 6 << 4);
    }
}

/* 6-bit scale of sub-block j < 16 of Q3_K less 32, packed in 12 bytes: 0..7 hold the low 4 bits of scales j and j + 8,
 * 8..11 the high 2 bits of scales j, j + 4, j + 8 and j + 12. */
static inline int q3_k_scale(const uint8_t packed[12], int j)
{
    int low = packed[j % 8] >> 4 * (j / 8) & 15;
    int high = packed[8 + j % 4] >> 2 * (j / 4) & 3;
    return (low | high << 4) - 32;
}

/* The f16 of IQ1_M is spread over the top nibbles of its four 16-bit scales. */
static inline uint16_t iq1_m_scale(const uint8_t *block)
{
    uint16_t bits = 0;
    for (int i = 0; i < 4; i++) bits |= (uint16_t)(u16_at(block + 48 + 2 * i) >> 12 << 4 * i);
    return bits;
}

/* 6-bit scale of sub-block j < 8 of IQ4_XS less 32. */
static inline int iq4_xs_scale(uint16_t high, const uint8_t low[4], int j)
{
    return ((low[j / 2] >> 4 * (j % 2) & 15) | (high >> 2 * j & 3) << 4) - 32;
}

/* Power of two of an MXFP4 block, 2^(e - 128): half of E8M0's, since the table of values is doubled. 255, which E8M0
 * calls NaN, is taken as the number it would be. */
static inline float e8m0_half(uint8_t e)
{
    return float_from_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* Scale of NVFP4: half of an unsigned E4M3 number, bias 7. Bit 7 is looked at for NaN alone: 0x7f gives 0, 0xff the
 * number it would be. */
static inline float ue4m3_half(uint8_t x)
{
    int exponent = x >> 3 & 15, mantissa = x & 7;
    if (x == 0x7f) return 0;
    if (exponent == 0) return (float)mantissa * 0x1p-10f;
    return (float)(8 + mantissa) * float_from_bits((uint32_t)(exponent + 127 - 11) << 23);
}

/* IQ4_NL and IQ4_XS: 16 values, denser at 0; fitted to normally distributed weights. */
static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* E2M1 (OCP Microscaling Formats v1.0), doubled. */
static const int8_t e2m1_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

#endif
