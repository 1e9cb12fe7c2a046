/* rms norm, sixteen at a time: out[k] = x[k] / sqrt(mean(x^2) + eps) * weight[k]. Four vectors take the squares
 * in turn, as at AVX2; the order depends on n alone. */
#include "avx512.h"

#include "vector_avx512.h"

#include <math.h>

static float sum_of_squares(const float *x, uint64_t n)
{
    __m512 acc[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
    uint64_t k = 0;
    for (; k + 64 <= n; k += 64)
        for (int i = 0; i < 4; i++) {
            __m512 v = _mm512_loadu_ps(x + k + 16 * i);
            acc[i] = _mm512_fmadd_ps(v, v, acc[i]);
        }
    for (; k + 16 <= n; k += 16) {
        __m512 v = _mm512_loadu_ps(x + k);
        acc[0] = _mm512_fmadd_ps(v, v, acc[0]);
    }
    if (k < n) {
        __m512 v = _mm512_maskz_loadu_ps(tail_lanes(n - k), x + k);
        acc[1] = _mm512_fmadd_ps(v, v, acc[1]);
    }
    return sum16(_mm512_add_ps(_mm512_add_ps(acc[0], acc[2]), _mm512_add_ps(acc[1], acc[3])));
}

static void rms_norm(float *out, const float *x, const float *weight, uint64_t n, float eps)
{
    float factor = 1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps);
    __m512 f = _mm512_set1_ps(factor);
    uint64_t k = 0;
    for (; k + 16 <= n; k += 16)
        _mm512_storeu_ps(out + k,
                         _mm512_mul_ps(_mm512_mul_ps(_mm512_loadu_ps(x + k), f), _mm512_loadu_ps(weight + k)));
    for (; k < n; k++) out[k] = x[k] * factor * weight[k];
}

void afmoe__norm_avx512(struct kernels *k)
{
    k->rms_norm = rms_norm;
}
