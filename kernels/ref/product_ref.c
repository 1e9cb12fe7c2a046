/* Products of weight rows with activations, plain C: out[r] = sum_k w[r][k] x[k], in the order of kernels.h.
 *
 * One routine for all formats; a format is its decoding to floats. One token decodes CHUNK values at a time into a
 * local array, so that it needs no scratch; the lanes run on through the chunks, as they do over a whole row. */
#include "ref.h"

#include "lanes.h"

static inline void one_token(decode_fn decode, enum tensor_format format, float *out, const float *x,
                             const uint8_t *rows, uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns)
{
    uint64_t chunk_bytes = format_row_bytes(format, CHUNK);
    for (uint64_t r = 0; r < n_rows; r++)
        out[r] = dot_decoded(decode, chunk_bytes, rows + r * row_bytes, x, n_columns);
}

/* Each row is decoded once into scratch and multiplied with all tokens. */
static inline void panel(decode_fn decode, float *out, uint64_t out_stride, const void *const *x, uint64_t n_tokens,
                         const uint8_t *rows, uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns, float *scratch)
{
    for (uint64_t r = 0; r < n_rows; r++) {
        decode(scratch, rows + r * row_bytes, n_columns);
        for (uint64_t t = 0; t < n_tokens; t++) {
            float lane[LANES] = {0};
            lanes_add(lane, scratch, x[t], n_columns);
            out[t * out_stride + r] = lanes_sum(lane);
        }
    }
}

static uint64_t scratch_bytes(uint64_t n_columns)
{
    return n_columns * sizeof(float);
}

#define DEFINE_PRODUCT(name, format, decode)                                                                           \
    static void one_token_##name(float *out, const void *x, const void *rows, uint64_t row_bytes, uint64_t n_rows,     \
                                 uint64_t n_columns, const void *next)                                                 \
    {                                                                                                                  \
        (void)next;                                                                                                    \
        one_token(decode, format, out, x, rows, row_bytes, n_rows, n_columns);                                  \
    }                                                                                                                  \
    static void panel_##name(float *out, uint64_t out_stride, const void *const *x, uint64_t n_tokens,                 \
                             const void *rows, uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns,                \
                             const void *next, void *scratch)                                                          \
    {                                                                                                                  \
        (void)next;                                                                                                    \
        panel(decode, out, out_stride, x, n_tokens, rows, row_bytes, n_rows, n_columns, scratch);                      \
    }

DEFINE_PRODUCT(f32, FORMAT_F32, decode_f32)
DEFINE_PRODUCT(f16, FORMAT_F16, decode_f16)
DEFINE_PRODUCT(bf16, FORMAT_BF16, decode_bf16)
#define DEFINE_BLOCK_PRODUCT(name, format) DEFINE_PRODUCT(name, format, afmoe__decode_##name)
FOR_EACH_BLOCK_FORMAT(DEFINE_BLOCK_PRODUCT)

void afmoe__product_ref(struct kernels *k)
{
#define SET_PRODUCT(name, format, decode)                                                                              \
    set_float_product(k, format, decode,                                                                               \
                      (struct product_kernels){.one_token = one_token_##name,                                          \
                                               .panel = panel_##name,                                                  \
                                               .panel_scratch_bytes = scratch_bytes});
#define SET_BLOCK_PRODUCT(name, format) SET_PRODUCT(name, format, afmoe__decode_##name)
    SET_PRODUCT(f32, FORMAT_F32, decode_f32)
    SET_PRODUCT(f16, FORMAT_F16, decode_f16)
    SET_PRODUCT(bf16, FORMAT_BF16, decode_bf16)
    FOR_EACH_BLOCK_FORMAT(SET_BLOCK_PRODUCT)
}
