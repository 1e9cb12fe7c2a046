/* Key/value cells as whole numbers, Q8_0: up to CELL_GROUP numbers x of a position share a scale d.
 *
 *   d = max |x| / 127 as f16, rounded up; c = x * (1 / d) rounded to the nearest, ties to even: -127..127; x is c d
 *
 * As d is rounded up and c is made with the d that is stored, a number is off by d / 2 (and the rounding of x / d), at
 * the smallest d by 2^-25. Where max / 127 is 0, d and c are 0. Where x holds a NaN or infinity, or max / 127 is beyond
 * f16, d is NaN and c is 0: it shows in all that sees the position. */
#ifndef AFMOE_KERNELS_Q8_CELLS_H
#define AFMOE_KERNELS_Q8_CELLS_H

#include "half.h"

/* d of a group, from its max |x|, or NaN. */
static inline uint16_t q8_scale(float max)
{
    float d = max / 127.0f;
    uint16_t h = f16_from_f32(d);
    if (f16_to_f32(h) < d) h++;
    return h < 0x7c00 ? h : 0x7e00;
}

/* 1 / d; 0: the cells are. */
static inline float q8_factor(uint16_t scale)
{
    float d = f16_to_f32(scale);
    return d > 0 ? 1.0f / d : 0;
}

#endif
