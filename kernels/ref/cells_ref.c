/* One row of floats stored as key/value cells where page.h wants them, plain C. */
#include "ref.h"

#include "half.h"

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

void afmoe__cells_ref(struct kernels *k)
{
    k->store_key[CELLS_F32] = store_key_f32;
    k->store_key[CELLS_F16] = store_key_f16;
    k->store_key[CELLS_BF16] = store_key_bf16;
    k->store_value[CELLS_F32] = store_value_f32;
    k->store_value[CELLS_F16] = store_value_f16;
    k->store_value[CELLS_BF16] = store_value_bf16;
}
