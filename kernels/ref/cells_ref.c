/* One row of floats stored as key/value cells where page.h wants them, plain C. */
#include "ref.h"

#include "half.h"
#include "q8_cells.h"
#include "quantize.h"

static inline void put(uint8_t *p, float x, enum cell_format format)
{
    uint16_t h = format == CELLS_F16 ? f16_from_f32(x) : bf16_from_f32(x);
    if (format == CELLS_F32) memcpy(p, &x, sizeof x);
    else memcpy(p, &h, sizeof h);
}

static inline void store_key(uint8_t *keys, const float *x, uint64_t head_dim, uint32_t position,
                             enum cell_format format)
{
    for (uint64_t i = 0; i < head_dim; i++) put(keys + key_offset(format, head_dim, position, i), x[i], format);
}

static inline void store_value(uint8_t *values, const float *x, uint64_t head_dim, uint32_t position,
                               enum cell_format format)
{
    for (uint64_t i = 0; i < head_dim; i++) put(values + value_offset(format, position, i), x[i], format);
}

#define DEFINE_STORE(name, format)                                                                                     \
    static void store_key_##name(void *keys, const float *x, uint64_t head_dim, uint32_t position)                     \
    {                                                                                                                  \
        store_key(keys, x, head_dim, position, format);                                                                \
    }                                                                                                                  \
    static void store_value_##name(void *values, const float *x, uint64_t head_dim, uint32_t position)                 \
    {                                                                                                                  \
        store_value(values, x, head_dim, position, format);                                                            \
    }

DEFINE_STORE(f32, CELLS_F32)
DEFINE_STORE(f16, CELLS_F16)
DEFINE_STORE(bf16, CELLS_BF16)

static void store_q8_0(uint8_t *page, const float *x, uint64_t head_dim, uint32_t position, bool is_value)
{
    for (uint64_t first = 0; first < head_dim; first += CELL_GROUP) {
        uint64_t n = head_dim - first < CELL_GROUP ? head_dim - first : CELL_GROUP, group = first / CELL_GROUP;
        uint16_t scale = q8_scale(largest(x + first, n));
        int8_t c[CELL_GROUP];
        quantize(c, x + first, n, q8_factor(scale));
        memcpy(page + cell_scale_offset(CELLS_Q8_0, is_value, head_dim, position, group), &scale, sizeof scale);
        for (uint64_t i = 0; i < n; i++)
            memcpy(page + cell_offset(CELLS_Q8_0, is_value, head_dim, position, first + i), &c[i], sizeof c[i]);
    }
}

static void store_key_q8_0(void *keys, const float *x, uint64_t head_dim, uint32_t position)
{
    store_q8_0(keys, x, head_dim, position, false);
}

static void store_value_q8_0(void *values, const float *x, uint64_t head_dim, uint32_t position)
{
    store_q8_0(values, x, head_dim, position, true);
}

void afmoe__cells_ref(struct kernels *k)
{
    k->store_key[CELLS_F32] = store_key_f32;
    k->store_key[CELLS_F16] = store_key_f16;
    k->store_key[CELLS_BF16] = store_key_bf16;
    k->store_key[CELLS_Q8_0] = store_key_q8_0;
    k->store_value[CELLS_F32] = store_value_f32;
    k->store_value[CELLS_F16] = store_value_f16;
    k->store_value[CELLS_BF16] = store_value_bf16;
    k->store_value[CELLS_Q8_0] = store_value_q8_0;
}
