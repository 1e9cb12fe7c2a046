/* exp of a block of values that are 0 or less, by the portable exponential: the same bits on every machine, whatever CPU
 * level the model runs at. */
#ifndef AFMOE_KERNELS_EXP_BLOCK_H
#define AFMOE_KERNELS_EXP_BLOCK_H

#include "exp.h"

enum { EXP_BLOCK = 512 }; /* values callers put on the stack at a time */

/* x[i] = exp(max(x[i], -87)), x[i] <= 0, -infinity too; NaN stays NaN. The limit keeps results above the denormals, which
 * are slow; next to exp(0) = 1 in the same sum, 1.6e-38 is nothing. */
static inline void exp_block(float *x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) x[i] = x[i] < -87.0f ? -87.0f : x[i];
    for (uint64_t i = 0; i < n; i++) x[i] = exp_f32_in_range(x[i]);
}

#endif
