/* Products of block formats with whole activations (activations.h), plain C. Weights are d q + dmin min with whole q
 * and min (whole_blocks.h), activations dx x with whole x. For each part of a row, in rising order,
 *
 *   I = sum q x,  M = sum min x        exact in 32 bits
 *   parts of 256:       acc = fma(dx, fma(dmin, M, d I), acc)     without minima: acc = fma(dx, d I, acc)
 *   parts of 32 or 16:  acc = fma(d dx, I, acc), then with minima  acc = fma(dmin dx, M, acc)
 *
 * from acc = 0. q and min of a block are what decode.h makes of it with the scales set to one. */
#include "ref.h"

#include "whole_blocks.h"

#include <math.h>

static void set_scale(enum tensor_format f, uint8_t *block, float scale)
{
    uint16_t h = f16_from_f32(scale);
    switch (f) {
    case FORMAT_MXFP4: block[0] = 128; break;           /* 2^(128 - 128) */
    case FORMAT_NVFP4: memset(block, 0x40, 4); break;   /* half of 2 */
    case FORMAT_IQ1_M:
        for (int i = 0; i < 4; i++) {
            uint8_t *top = block + 49 + 2 * i;
            *top = (uint8_t)((*top & 15) | (h >> 4 * i & 15) << 4);
        }
        break;
    default: memcpy(block + scale_at(f), &h, sizeof h);
    }
}

static void decode_whole(decode_fn decode, int16_t *out, const uint8_t *block, uint64_t n)
{
    float values[MAX_BLOCK_ELEMENTS];
    decode(values, block, n);
    for (uint64_t i = 0; i < n; i++) out[i] = (int16_t)values[i];
}

/* q and, where the format has minima, min of one block: what `decode` makes of it with its scales set to one. */
static void whole_numbers(enum tensor_format f, decode_fn decode, int16_t *q, int16_t *min, const uint8_t *block)
{
    const struct format_traits *t = &afmoe__format_traits[f];
    uint8_t copy[256];
    memcpy(copy, block, t->block_bytes);
    set_scale(f, copy, whole_unit(f));
    if (has_min(f)) memset(copy + min_at(f), 0, 2);
    decode_whole(decode, q, copy, t->block_elements);
    if (!has_min(f)) return;
    uint16_t one = f16_from_f32(f == FORMAT_Q4_1 || f == FORMAT_Q5_1 ? 1.0f : -1.0f);
    set_scale(f, copy, 0);
    memcpy(copy + min_at(f), &one, sizeof one);
    decode_whole(decode, min, copy, t->block_elements);
}

static int32_t dot(const int16_t *q, const int8_t *x, int n)
{
    int32_t sum = 0;
    for (int i = 0; i < n; i++) sum += q[i] * x[i];
    return sum;
}

/* One block, whose values are q and min, with its values of x; dx[0] is that of the first group of them. */
static float add_block(float acc, enum tensor_format f, const int16_t *q, const int16_t *min, const uint8_t *block,
                       const int8_t *x, const float *dx)
{
    int n = values_of_part(f), n_parts = (int)afmoe__format_traits[f].block_elements / n;
    for (int part = 0; part < n_parts; part++) {
        int at = part * n;
        float d = whole_d(f, block, part), i = (float)dot(q + at, x + at, n);
        float dmin = has_min(f) ? whole_dmin(f, block) : 0, m = has_min(f) ? (float)dot(min + at, x + at, n) : 0;
        if (n == 256) {
            acc = fmaf(dx[0], has_min(f) ? fmaf(dmin, m, d * i) : d * i, acc);
        } else {
            acc = fmaf(d * dx[at / 32], i, acc);
            if (has_min(f)) acc = fmaf(dmin * dx[at / 32], m, acc);
        }
    }
    return acc;
}

static void panel(enum tensor_format f, decode_fn decode, float *out, uint64_t out_stride, const void *const *x,
                  uint64_t n_tokens, const uint8_t *rows, uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns)
{
    enum activation_kind kind = values_of_part(f) == 256 ? ACTIVATION_INT8_256 : ACTIVATION_INT8_32;
    uint64_t n = afmoe__format_traits[f].block_elements, group = activation_group(kind);
    for (uint64_t r = 0; r < n_rows; r++) {
        for (uint64_t t = 0; t < n_tokens; t++) out[t * out_stride + r] = 0;
        const uint8_t *block = rows + r * row_bytes;
        for (uint64_t k = 0; k < n_columns; k += n, block += afmoe__format_traits[f].block_bytes) {
            int16_t values[MAX_BLOCK_ELEMENTS], mins[MAX_BLOCK_ELEMENTS];
            whole_numbers(f, decode, values, mins, block);
            for (uint64_t t = 0; t < n_tokens; t++) {
                const uint8_t *q = x[t];
                const float *dx = (const float *)(const void *)(q + activation_d(kind, n_columns)) + k / group;
                float *acc = &out[t * out_stride + r];
                *acc = add_block(*acc, f, values, mins, block, (const int8_t *)q + k, dx);
            }
        }
    }
}

static uint64_t no_scratch(uint64_t n_columns)
{
    (void)n_columns;
    return 0;
}

#define DEFINE_PRODUCT(name, format)                                                                                   \
    static void panel_##name(float *out, uint64_t out_stride, const void *const *x, uint64_t n_tokens,                 \
                             const void *rows, uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns,                \
                             const void *next, void *scratch)                                                          \
    {                                                                                                                  \
        (void)next;                                                                                                    \
        (void)scratch;                                                                                                 \
        panel(format, afmoe__decode_##name, out, out_stride, x, n_tokens, rows, row_bytes, n_rows, n_columns);         \
    }                                                                                                                  \
    static void one_token_##name(float *out, const void *x, const void *rows, uint64_t row_bytes, uint64_t n_rows,     \
                                 uint64_t n_columns, const void *next)                                                 \
    {                                                                                                                  \
        (void)next;                                                                                                    \
        panel(format, afmoe__decode_##name, out, 0, &x, 1, rows, row_bytes, n_rows, n_columns);                        \
    }

FOR_EACH_BLOCK_FORMAT(DEFINE_PRODUCT)

void afmoe__whole_product_ref(struct kernels *k)
{
#define SET_PRODUCT(name, format)                                                                                      \
    k->product[PRECISION_FAST][format] = (struct product_kernels){                                                     \
        .activation = values_of_part(format) == 256 ? ACTIVATION_INT8_256 : ACTIVATION_INT8_32,                        \
        .one_token = one_token_##name,                                                                                 \
        .panel = panel_##name,                                                                                         \
        .panel_scratch_bytes = no_scratch};
    FOR_EACH_BLOCK_FORMAT(SET_PRODUCT)
}
