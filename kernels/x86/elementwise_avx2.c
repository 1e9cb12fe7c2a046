/* x += y, x *= factor, x += w y, eight at a time. */
#include "avx2.h"

#include "vector_avx2.h"

static void add(float *x, const float *y, uint64_t n)
{
    uint64_t k = 0;
    for (; k + 8 <= n; k += 8)
        _mm256_storeu_ps(x + k, _mm256_add_ps(_mm256_loadu_ps(x + k), _mm256_loadu_ps(y + k)));
    for (; k < n; k++) x[k] += y[k];
}

static void scale(float *x, float factor, uint64_t n)
{
    __m256 f = _mm256_set1_ps(factor);
    uint64_t k = 0;
    for (; k + 8 <= n; k += 8) _mm256_storeu_ps(x + k, _mm256_mul_ps(_mm256_loadu_ps(x + k), f));
    for (; k < n; k++) x[k] *= factor;
}

static void add_scaled(float *x, const float *y, float w, uint64_t n)
{
    __m256 f = _mm256_set1_ps(w);
    uint64_t k = 0;
    for (; k + 8 <= n; k += 8)
        _mm256_storeu_ps(x + k, _mm256_fmadd_ps(f, _mm256_loadu_ps(y + k), _mm256_loadu_ps(x + k)));
    if (k == n) return;
    __m256i mask = tail_mask(n - k);
    __m256 sum = _mm256_fmadd_ps(f, _mm256_maskload_ps(y + k, mask), _mm256_maskload_ps(x + k, mask));
    _mm256_maskstore_ps(x + k, mask, sum);
}

void afmoe__elementwise_avx2(struct kernels *k)
{
    k->add = add;
    k->scale = scale;
    k->add_scaled = add_scaled;
}
