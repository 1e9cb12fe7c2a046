/* silu, sigmoid, softmax and log-sum-exp, sixteen at a time. A tail goes through the same vector instructions under a
 * mask: what an element becomes does not depend on where it stands. */
#include "avx512.h"

#include "exp_avx512.h"

#include <math.h>

/* The lanes of a vector that begins n numbers before the end. */
FORCE_INLINE __mmask16 lanes_left(uint64_t n)
{
    return n < 16 ? tail_lanes(n) : (__mmask16)0xffff;
}

static void silu_mul(float *out, const float *gate, const float *up, uint64_t n)
{
    for (uint64_t k = 0; k < n; k += 16) {
        __mmask16 lanes = lanes_left(n - k);
        __m512 g = _mm512_maskz_loadu_ps(lanes, gate + k);
        __m512 v = _mm512_mul_ps(_mm512_mul_ps(g, sigmoid16(g)), _mm512_maskz_loadu_ps(lanes, up + k));
        _mm512_mask_storeu_ps(out + k, lanes, v);
    }
}

static void sigmoid_gate(float *x, const float *gate, uint64_t n)
{
    for (uint64_t k = 0; k < n; k += 16) {
        __mmask16 lanes = lanes_left(n - k);
        __m512 s = sigmoid16(_mm512_maskz_loadu_ps(lanes, gate + k));
        _mm512_mask_storeu_ps(x + k, lanes, _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, x + k), s));
    }
}

static void sigmoid(float *out, const float *z, uint64_t n)
{
    for (uint64_t k = 0; k < n; k += 16) {
        __mmask16 lanes = lanes_left(n - k);
        _mm512_mask_storeu_ps(out + k, lanes, sigmoid16(_mm512_maskz_loadu_ps(lanes, z + k)));
    }
}

/* A NaN is passed over here and comes back through its own exponential. */
static float maximum(const float *x, uint64_t n)
{
    const __m512 lowest = _mm512_set1_ps(-INFINITY);
    __m512 max = lowest;
    for (uint64_t k = 0; k < n; k += 16) {
        __mmask16 lanes = lanes_left(n - k);
        __m512 v = _mm512_mask_blend_ps(lanes, lowest, _mm512_maskz_loadu_ps(lanes, x + k));
        max = _mm512_max_ps(v, max); /* the second operand where either is NaN */
    }
    return max16(max);
}

static void softmax(float *out, const float *z, uint64_t n)
{
    __m512 max = _mm512_set1_ps(maximum(z, n));
    __m512 sum = _mm512_setzero_ps();
    for (uint64_t k = 0; k < n; k += 16) {
        __mmask16 lanes = lanes_left(n - k);
        __m512 e = exp16(_mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, z + k), max));
        _mm512_mask_storeu_ps(out + k, lanes, e);
        sum = _mm512_add_ps(sum, _mm512_maskz_mov_ps(lanes, e));
    }
    __m512 total = _mm512_set1_ps(sum16(sum));
    for (uint64_t k = 0; k < n; k += 16) {
        __mmask16 lanes = lanes_left(n - k);
        _mm512_mask_storeu_ps(out + k, lanes, _mm512_div_ps(_mm512_maskz_loadu_ps(lanes, out + k), total));
    }
}

static void log_sum_exp(const float *x, uint64_t n, float *out_max, double *out_sum)
{
    float largest = maximum(x, n);
    __m512 max = _mm512_set1_ps(largest);
    __m512d low = _mm512_setzero_pd(), high = _mm512_setzero_pd();
    for (uint64_t k = 0; k < n; k += 16) {
        __mmask16 lanes = lanes_left(n - k);
        __m512 e = _mm512_maskz_mov_ps(lanes, exp16(_mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, x + k), max)));
        low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(e)));
        high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(e, 1)));
    }
    double lane[8];
    _mm512_storeu_pd(lane, _mm512_add_pd(low, high));
    for (int i = 0; i < 4; i++) lane[i] += lane[i + 4];
    *out_max = largest;
    *out_sum = (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

void afmoe__activation_avx512(struct kernels *k)
{
    k->silu_mul = silu_mul;
    k->sigmoid_gate = sigmoid_gate;
    k->sigmoid = sigmoid;
    k->softmax = softmax;
    k->log_sum_exp = log_sum_exp;
}
