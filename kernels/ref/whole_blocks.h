/* Block formats as whole numbers: value i of a block is d * q[i], or d * q[i] + dmin * min[i], with q and min whole.
 *
 * Where d itself has steps below 1 (the IQ formats count scales in halves), it is taken 4 or 8 times smaller here and q
 * as much larger; all of that is exact. Bounds: |q| <= 4096, so that 256 products with activations of 127 fit 32 bits.
 *
 * A part is the run of values under one d: 256 in the K, IQ and TQ formats, 32 in the others, 16 in NVFP4. */
#ifndef AFMOE_KERNELS_WHOLE_BLOCKS_H
#define AFMOE_KERNELS_WHOLE_BLOCKS_H

#include "decode.h"

#include <stdbool.h>

static inline bool has_min(enum tensor_format f)
{
    return f == FORMAT_Q4_1 || f == FORMAT_Q5_1 || f == FORMAT_Q2_K || f == FORMAT_Q4_K || f == FORMAT_Q5_K;
}

/* How many times smaller d is than the scale stored. */
static inline float whole_unit(enum tensor_format f)
{
    switch (f) {
    case FORMAT_IQ1_S:
    case FORMAT_IQ1_M:
    case FORMAT_IQ2_XXS:
    case FORMAT_IQ2_XS:
    case FORMAT_IQ2_S: return 8;
    case FORMAT_IQ3_XXS: return 4;
    default: return 1;
    }
}

static inline int values_of_part(enum tensor_format f)
{
    int block = (int)afmoe__format_traits[f].block_elements;
    return f == FORMAT_NVFP4 ? 16 : block;
}

/* Where the f16 scale lies in a block; and the f16 minimum, where there is one. */
static inline int scale_at(enum tensor_format f)
{
    switch (f) {
    case FORMAT_Q2_K: return 80;
    case FORMAT_Q3_K: return 108;
    case FORMAT_Q6_K: return 208;
    case FORMAT_TQ1_0: return 52;
    case FORMAT_TQ2_0: return 64;
    default: return 0;
    }
}

static inline int min_at(enum tensor_format f)
{
    return f == FORMAT_Q2_K ? 82 : 2;
}

/* The f16 that d is made of. */
static inline uint16_t scale_bits(enum tensor_format f, const uint8_t *block)
{
    return f == FORMAT_IQ1_M ? iq1_m_scale(block) : u16_at(block + scale_at(f));
}

/* d of part `part` of a block. */
static inline float whole_d(enum tensor_format f, const uint8_t *block, int part)
{
    switch (f) {
    case FORMAT_MXFP4: return e8m0_half(block[0]);
    case FORMAT_NVFP4: return ue4m3_half(block[part]);
    default: return f16_to_f32(scale_bits(f, block)) * (1 / whole_unit(f));
    }
}

/* Factor of min: the K formats subtract. */
static inline float whole_dmin(enum tensor_format f, const uint8_t *block)
{
    float stored = f16_at(block + min_at(f));
    return f == FORMAT_Q4_1 || f == FORMAT_Q5_1 ? stored : -stored;
}

#endif
