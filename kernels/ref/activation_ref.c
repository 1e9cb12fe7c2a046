/* What is made of exponentials, plain C: silu(x) = x sigmoid(x), sigmoid, softmax and log-sum-exp with the maximum
 * taken out. */
#include "ref.h"

#include "exp.h"

#include <math.h>

static void silu_mul(float *out, const float *gate, const float *up, uint64_t n)
{
    for (uint64_t k = 0; k < n; k++) out[k] = gate[k] * sigmoid_f32(gate[k]) * up[k];
}

static void sigmoid_gate(float *x, const float *gate, uint64_t n)
{
    for (uint64_t k = 0; k < n; k++) x[k] *= sigmoid_f32(gate[k]);
}

static void sigmoid(float *out, const float *z, uint64_t n)
{
    for (uint64_t k = 0; k < n; k++) out[k] = sigmoid_f32(z[k]);
}

/* A NaN is passed over here and comes back through its own exponential. */
static float maximum(const float *x, uint64_t n)
{
    float max = -INFINITY;
    for (uint64_t k = 0; k < n; k++) max = x[k] > max ? x[k] : max;
    return max;
}

static void softmax(float *out, const float *z, uint64_t n)
{
    float max = maximum(z, n), sum = 0;
    for (uint64_t k = 0; k < n; k++) {
        out[k] = exp_f32(z[k] - max);
        sum += out[k];
    }
    for (uint64_t k = 0; k < n; k++) out[k] /= sum;
}

static void log_sum_exp(const float *x, uint64_t n, float *out_max, double *out_sum)
{
    float max = maximum(x, n);
    double sum = 0;
    for (uint64_t k = 0; k < n; k++) sum += exp_f32(x[k] - max);
    *out_max = max;
    *out_sum = sum;
}

void afmoe__activation_ref(struct kernels *k)
{
    k->silu_mul = silu_mul;
    k->sigmoid_gate = sigmoid_gate;
    k->sigmoid = sigmoid;
    k->softmax = softmax;
    k->log_sum_exp = log_sum_exp;
}
