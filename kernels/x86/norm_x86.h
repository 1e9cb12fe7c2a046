/* rms norm: out[k] = x[k] / sqrt(mean(x^2) + eps) * weight[k], the body of all x86 levels, included after the vectors
 * of a level. Four vectors take the squares in turn, so that the chain of additions does not bound the speed; the order
 * depends on n alone. */
#ifndef AFMOE_KERNELS_NORM_X86_H
#define AFMOE_KERNELS_NORM_X86_H

#include <math.h>

FORCE_INLINE float sum_of_squares(const float *x, uint64_t n)
{
    wide acc[4] = {wide_zero(), wide_zero(), wide_zero(), wide_zero()};
    uint64_t k = 0;
    for (; k + 4 * WIDE <= n; k += 4 * WIDE)
        for (int i = 0; i < 4; i++) {
            wide v = wide_load(x + k + WIDE * i);
            acc[i] = wide_fma(v, v, acc[i]);
        }
    for (; k + WIDE <= n; k += WIDE) {
        wide v = wide_load(x + k);
        acc[0] = wide_fma(v, v, acc[0]);
    }
    if (k < n) {
        wide v = wide_load_first(x + k, n - k);
        acc[1] = wide_fma(v, v, acc[1]);
    }
    return wide_sum(wide_add(wide_add(acc[0], acc[2]), wide_add(acc[1], acc[3])));
}

static void rms_norm(float *out, const float *x, const float *weight, uint64_t n, float eps)
{
    wide factor = wide_all(1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps));
    uint64_t k = 0;
    for (; k + WIDE <= n; k += WIDE)
        wide_store(out + k, wide_mul(wide_mul(wide_load(x + k), factor), wide_load(weight + k)));
    if (k == n) return;
    wide v = wide_mul(wide_mul(wide_load_first(x + k, n - k), factor), wide_load_first(weight + k, n - k));
    wide_store_first(out + k, n - k, v);
}

#endif
