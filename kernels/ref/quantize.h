/* Floats to whole numbers of 8 bits. */
#ifndef AFMOE_KERNELS_QUANTIZE_H
#define AFMOE_KERNELS_QUANTIZE_H

#include <math.h>
#include <stdint.h>

/* Largest |x|; NaN where there is one (a comparison with it is false). */
static inline float largest(const float *x, uint64_t n)
{
    float max = 0;
    for (uint64_t k = 0; k < n; k++) {
        float size = fabsf(x[k]);
        if (!(size <= max)) max = size;
        if (isnan(max)) return max;
    }
    return max;
}

/* q = x * factor rounded to the nearest, ties to even; all 0 where the factor is. */
static inline void quantize(int8_t *q, const float *x, uint64_t n, float factor)
{
    for (uint64_t k = 0; k < n; k++) q[k] = factor > 0 ? (int8_t)rintf(x[k] * factor) : 0;
}

#endif
