/* x += y, x *= factor, x += w y, plain C. */
#include "ref.h"

static void add(float *x, const float *y, uint64_t n)
{
    for (uint64_t k = 0; k < n; k++) x[k] += y[k];
}

static void scale(float *x, float factor, uint64_t n)
{
    for (uint64_t k = 0; k < n; k++) x[k] *= factor;
}

static void add_scaled(float *x, const float *y, float w, uint64_t n)
{
    for (uint64_t k = 0; k < n; k++) x[k] += w * y[k];
}

void afmoe__elementwise_ref(struct kernels *k)
{
    k->add = add;
    k->scale = scale;
    k->add_scaled = add_scaled;
}
