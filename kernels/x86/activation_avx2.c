/* silu, sigmoid, softmax and log-sum-exp, eight at a time. A tail goes through the same vector instructions under a
 * mask: what an element becomes does not depend on where it stands. */
#include "avx2.h"

#include "exp_avx2.h"

#include <math.h>

static void silu_mul(float *out, const float *gate, const float *up, uint64_t n)
{
    uint64_t k = 0;
    for (; k + 8 <= n; k += 8) {
        __m256 g = _mm256_loadu_ps(gate + k);
        _mm256_storeu_ps(out + k, _mm256_mul_ps(_mm256_mul_ps(g, sigmoid8(g)), _mm256_loadu_ps(up + k)));
    }
    if (k == n) return;
    __m256i mask = tail_mask(n - k);
    __m256 g = _mm256_maskload_ps(gate + k, mask);
    __m256 v = _mm256_mul_ps(_mm256_mul_ps(g, sigmoid8(g)), _mm256_maskload_ps(up + k, mask));
    _mm256_maskstore_ps(out + k, mask, v);
}

static void sigmoid_gate(float *x, const float *gate, uint64_t n)
{
    uint64_t k = 0;
    for (; k + 8 <= n; k += 8)
        _mm256_storeu_ps(x + k, _mm256_mul_ps(_mm256_loadu_ps(x + k), sigmoid8(_mm256_loadu_ps(gate + k))));
    if (k == n) return;
    __m256i mask = tail_mask(n - k);
    __m256 v = _mm256_mul_ps(_mm256_maskload_ps(x + k, mask), sigmoid8(_mm256_maskload_ps(gate + k, mask)));
    _mm256_maskstore_ps(x + k, mask, v);
}

static void sigmoid(float *out, const float *z, uint64_t n)
{
    uint64_t k = 0;
    for (; k + 8 <= n; k += 8) _mm256_storeu_ps(out + k, sigmoid8(_mm256_loadu_ps(z + k)));
    if (k == n) return;
    __m256i mask = tail_mask(n - k);
    _mm256_maskstore_ps(out + k, mask, sigmoid8(_mm256_maskload_ps(z + k, mask)));
}

/* The first n < 8 floats, -infinity after them. */
FORCE_INLINE __m256 load_tail_low(const float *x, __m256i mask)
{
    return _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), _mm256_maskload_ps(x, mask), _mm256_castsi256_ps(mask));
}

/* A NaN is passed over here and comes back through its own exponential. */
static float maximum(const float *x, uint64_t n)
{
    __m256 max = _mm256_set1_ps(-INFINITY);
    uint64_t k = 0;
    for (; k + 8 <= n; k += 8) max = _mm256_max_ps(_mm256_loadu_ps(x + k), max);
    if (k < n) max = _mm256_max_ps(load_tail_low(x + k, tail_mask(n - k)), max);
    return max8(max);
}

static void softmax(float *out, const float *z, uint64_t n)
{
    __m256 max = _mm256_set1_ps(maximum(z, n));
    __m256 sum = _mm256_setzero_ps();
    uint64_t k = 0;
    for (; k + 8 <= n; k += 8) {
        __m256 e = exp8(_mm256_sub_ps(_mm256_loadu_ps(z + k), max));
        _mm256_storeu_ps(out + k, e);
        sum = _mm256_add_ps(sum, e);
    }
    if (k < n) {
        __m256i mask = tail_mask(n - k);
        __m256 e = exp8(_mm256_sub_ps(_mm256_maskload_ps(z + k, mask), max));
        _mm256_maskstore_ps(out + k, mask, e);
        sum = _mm256_add_ps(sum, _mm256_and_ps(e, _mm256_castsi256_ps(mask)));
    }
    float total = sum8(sum);
    __m256 divisor = _mm256_set1_ps(total);
    for (k = 0; k + 8 <= n; k += 8) _mm256_storeu_ps(out + k, _mm256_div_ps(_mm256_loadu_ps(out + k), divisor));
    for (; k < n; k++) out[k] /= total;
}

static void log_sum_exp(const float *x, uint64_t n, float *out_max, double *out_sum)
{
    float largest = maximum(x, n);
    __m256 max = _mm256_set1_ps(largest);
    __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
    for (uint64_t k = 0; k < n; k += 8) {
        __m256 e;
        if (k + 8 <= n) {
            e = exp8(_mm256_sub_ps(_mm256_loadu_ps(x + k), max));
        } else {
            __m256i mask = tail_mask(n - k);
            e = exp8(_mm256_sub_ps(_mm256_maskload_ps(x + k, mask), max));
            e = _mm256_and_ps(e, _mm256_castsi256_ps(mask));
        }
        low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(e)));
        high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(e, 1)));
    }
    double lane[4];
    _mm256_storeu_pd(lane, _mm256_add_pd(low, high));
    *out_max = largest;
    *out_sum = (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

void afmoe__activation_avx2(struct kernels *k)
{
    k->silu_mul = silu_mul;
    k->sigmoid_gate = sigmoid_gate;
    k->sigmoid = sigmoid;
    k->softmax = softmax;
    k->log_sum_exp = log_sum_exp;
}
