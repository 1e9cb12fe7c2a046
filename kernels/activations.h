/* Activations as the products of precision FAST read them. As whole numbers, x[k] is about d * q[k]:
 *
 *   d = max |x| / 127 over a group, q = x * (127 / max) rounded to the nearest, ties to even: -127..127
 *
 * A group has 32 values (kinds ..._32, for formats of blocks of 32 and 64) or 256 (..._256). Where max is below
 * ACTIVATION_MIN, d and q are 0; where x holds a NaN or infinity, d is NaN and q is 0, so that it shows in every
 * product.
 *
 * Bytes of n prepared values, n a multiple of the group, each part aligned to its element:
 *     q      int8 or int16 [n]        the same numbers; a level asks for the width that it multiplies
 *     d      float [n / group]
 *     sum32  int16 [n / 32]           sums of q
 *     sum16  int16 [n / 16]
 *     bytes  int8 [n]                where q is int16, the same once more
 * rounded up to whole cache lines.
 *
 * ACTIVATION_BF16: bfloat16 [n] alone, rounded to the nearest, ties to even (half.h); any n. */
#ifndef AFMOE_KERNELS_ACTIVATIONS_H
#define AFMOE_KERNELS_ACTIVATIONS_H

#include <stdint.h>

enum activation_kind {
    ACTIVATION_F32, /* the floats themselves */
    ACTIVATION_INT8_32,
    ACTIVATION_INT16_32,
    ACTIVATION_INT8_256,
    ACTIVATION_INT16_256,
    ACTIVATION_BF16,
    N_ACTIVATION_KINDS
};

enum { ACTIVATION_ALIGN = 64 };

/* 127 / max is finite from here on, and so are its products. */
#define ACTIVATION_MIN 0x1p-119f

/* Of kinds in whole numbers, as are the parts below. */
static inline uint64_t activation_group(enum activation_kind kind)
{
    return kind == ACTIVATION_INT8_32 || kind == ACTIVATION_INT16_32 ? 32 : 256;
}

static inline uint64_t activation_q_bytes(enum activation_kind kind)
{
    return kind == ACTIVATION_INT16_32 || kind == ACTIVATION_INT16_256 ? 2 : 1;
}

/* Where the parts begin, in bytes. */
static inline uint64_t activation_d(enum activation_kind kind, uint64_t n)
{
    return n * activation_q_bytes(kind);
}

static inline uint64_t activation_sum32(enum activation_kind kind, uint64_t n)
{
    return activation_d(kind, n) + n / activation_group(kind) * sizeof(float);
}

static inline uint64_t activation_sum16(enum activation_kind kind, uint64_t n)
{
    return activation_sum32(kind, n) + n / 32 * sizeof(int16_t);
}

static inline uint64_t activation_sums_end(enum activation_kind kind, uint64_t n)
{
    return activation_sum16(kind, n) + n / 16 * sizeof(int16_t);
}

/* The int8, which are q itself or its copy. */
static inline uint64_t activation_int8(enum activation_kind kind, uint64_t n)
{
    return activation_q_bytes(kind) == 1 ? 0 : activation_sums_end(kind, n);
}

static inline uint64_t activation_bytes(enum activation_kind kind, uint64_t n)
{
    uint64_t copy = activation_q_bytes(kind) == 1 ? 0 : n;
    uint64_t bytes = kind == ACTIVATION_F32    ? n * sizeof(float)
                     : kind == ACTIVATION_BF16 ? n * sizeof(uint16_t)
                                               : activation_sums_end(kind, n) + copy;
    return (bytes + ACTIVATION_ALIGN - 1) / ACTIVATION_ALIGN * ACTIVATION_ALIGN;
}

#endif
