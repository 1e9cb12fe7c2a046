/* rms norm, plain C: out[k] = x[k] / sqrt(mean(x^2) + eps) * weight[k]. The squares are summed in the lane order of
 * the products. */
#include "ref.h"

#include "lanes.h"

#include <math.h>

static void rms_norm(float *out, const float *x, const float *weight, uint64_t n, float eps)
{
    float lane[LANES] = {0};
    lanes_add(lane, x, x, n);
    float factor = 1.0f / sqrtf(lanes_sum(lane) / (float)n + eps);
    for (uint64_t k = 0; k < n; k++) out[k] = x[k] * factor * weight[k];
}

void afmoe__norm_ref(struct kernels *k)
{
    k->rms_norm = rms_norm;
}
