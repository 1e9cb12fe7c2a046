/* What is made of exponentials, plain C: silu(x) = x sigmoid(x), sigmoid, softmax and log-sum-exp with the maximum
 * taken out. */
#include "ref.h"

#include "exp.h"
#include "exp_block.h"

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

/* Terms are float32, the sum is a double in eight lanes (lane i takes the j with j % 8 == i, rising), added as
 * ((0+4)+(2+6)) + ((1+5)+(3+7)). */
static void log_sum_exp(const float *x, uint64_t n, float *out_max, double *out_sum)
{
    enum { N_LANES = 8 /* divides EXP_BLOCK */ };
    double lane[N_LANES] = {0};
    float terms[EXP_BLOCK], max = maximum(x, n);
    for (uint64_t begin = 0; begin < n; begin += EXP_BLOCK) {
        uint64_t count = n - begin < EXP_BLOCK ? n - begin : EXP_BLOCK;
        for (uint64_t i = 0; i < count; i++) terms[i] = x[begin + i] - max;
        exp_block(terms, count);
        uint64_t i = 0;
        for (; i + N_LANES <= count; i += N_LANES)
            for (int l = 0; l < N_LANES; l++) lane[l] += (double)terms[i + l];
        for (int l = 0; i < count; i++, l++) lane[l] += (double)terms[i];
    }
    *out_max = max;
    *out_sum = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

void afmoe__activation_ref(struct kernels *k)
{
    k->silu_mul = silu_mul;
    k->sigmoid_gate = sigmoid_gate;
    k->sigmoid = sigmoid;
    k->softmax = softmax;
    k->log_sum_exp = log_sum_exp;
}
