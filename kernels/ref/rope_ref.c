/* Rotary positions, plain C: pairs (i, i + n/2) of one head turn by the angle whose cosine and sine are given. */
#include "ref.h"

static void rope(float *x, const float *cos, const float *sin, uint64_t n)
{
    uint64_t half = n / 2;
    for (uint64_t i = 0; i < half; i++) {
        float x1 = x[i], x2 = x[i + half];
        x[i] = x1 * cos[i] - x2 * sin[i];
        x[i + half] = x2 * cos[i] + x1 * sin[i];
    }
}

void afmoe__rope_ref(struct kernels *k)
{
    k->rope = rope;
}
