/* Floats stored as key/value cells, plain C. */
#include "ref.h"

#include "half.h"

static void store_f32(void *out, const float *x, uint64_t n)
{
    if (n) memcpy(out, x, n * sizeof *x);
}

static void store_f16(void *out, const float *x, uint64_t n)
{
    uint8_t *p = out;
    for (uint64_t k = 0; k < n; k++) {
        uint16_t h = f16_from_f32(x[k]);
        memcpy(p + k * sizeof h, &h, sizeof h);
    }
}

static void store_bf16(void *out, const float *x, uint64_t n)
{
    uint8_t *p = out;
    for (uint64_t k = 0; k < n; k++) {
        uint16_t h = bf16_from_f32(x[k]);
        memcpy(p + k * sizeof h, &h, sizeof h);
    }
}

void afmoe__cells_ref(struct kernels *k)
{
    k->store_cells[CELLS_F32] = store_f32;
    k->store_cells[CELLS_F16] = store_f16;
    k->store_cells[CELLS_BF16] = store_bf16;
}
