/* Rotary positions, eight pairs (i, i + n/2) at a time. Products and sums are rounded one by one, so the bits are
 * those of the reference. */
#include "avx2.h"

#include "vector_avx2.h"

static void rope(float *x, const float *cos, const float *sin, uint64_t n)
{
    uint64_t half = n / 2;
    float *y = x + half;
    uint64_t i = 0;
    for (; i + 8 <= half; i += 8) {
        __m256 x1 = _mm256_loadu_ps(x + i), x2 = _mm256_loadu_ps(y + i);
        __m256 c = _mm256_loadu_ps(cos + i), s = _mm256_loadu_ps(sin + i);
        _mm256_storeu_ps(x + i, _mm256_sub_ps(_mm256_mul_ps(x1, c), _mm256_mul_ps(x2, s)));
        _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_mul_ps(x2, c), _mm256_mul_ps(x1, s)));
    }
    for (; i < half; i++) {
        float x1 = x[i], x2 = y[i];
        x[i] = x1 * cos[i] - x2 * sin[i];
        y[i] = x2 * cos[i] + x1 * sin[i];
    }
}

void afmoe__rope_avx2(struct kernels *k)
{
    k->rope = rope;
}
