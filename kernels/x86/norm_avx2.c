/* rms norm, eight at a time: out[k] = x[k] / sqrt(mean(x^2) + eps) * weight[k]. Four vectors take the squares in
 * turn, so that the chain of additions does not bound the speed; the order depends on n alone. */
#include "avx2.h"

#include "vector_avx2.h"

#include <math.h>

static float sum_of_squares(const float *x, uint64_t n)
{
    __m256 acc[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    uint64_t k = 0;
    for (; k + 32 <= n; k += 32)
        for (int i = 0; i < 4; i++) {
            __m256 v = _mm256_loadu_ps(x + k + 8 * i);
            acc[i] = _mm256_fmadd_ps(v, v, acc[i]);
        }
    for (; k + 8 <= n; k += 8) {
        __m256 v = _mm256_loadu_ps(x + k);
        acc[0] = _mm256_fmadd_ps(v, v, acc[0]);
    }
    if (k < n) {
        __m256 v = _mm256_maskload_ps(x + k, tail_mask(n - k));
        acc[1] = _mm256_fmadd_ps(v, v, acc[1]);
    }
    return sum8(_mm256_add_ps(_mm256_add_ps(acc[0], acc[2]), _mm256_add_ps(acc[1], acc[3])));
}

static void rms_norm(float *out, const float *x, const float *weight, uint64_t n, float eps)
{
    float factor = 1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps);
    __m256 f = _mm256_set1_ps(factor);
    uint64_t k = 0;
    for (; k + 8 <= n; k += 8)
        _mm256_storeu_ps(out + k,
                         _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + k), f), _mm256_loadu_ps(weight + k)));
    for (; k < n; k++) out[k] = x[k] * factor * weight[k];
}

void afmoe__norm_avx2(struct kernels *k)
{
    k->rms_norm = rms_norm;
}
