/* Products of weight rows with activations, plain C: out[r] = sum_k w[r][k] x[k], in the order of kernels.h.
 *
 * One routine for all formats; a format is its decoding to floats. Q8_0 (GGUF): blocks of 32 values in 34 bytes, an
 * f16 scale d and 32 signed bytes q; the value d * q has at most 19 bits and is exact in float32. */
#include "ref.h"

#include "lanes.h"

static void decode_q8_0(float *out, const void *in, uint64_t n)
{
    const uint8_t *block = in;
    for (uint64_t k = 0; k < n; k += 32, block += 34) {
        uint16_t d_bits;
        memcpy(&d_bits, block, sizeof d_bits);
        float d = f16_to_f32(d_bits);
        for (int i = 0; i < 32; i++) out[k + i] = d * (float)(int8_t)block[2 + i];
    }
}

static inline void one_token(decode_fn decode, enum tensor_format format, float *out, const float *x,
                             const uint8_t *rows, uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns)
{
    uint64_t chunk_bytes = format_row_bytes(format, CHUNK);
    for (uint64_t r = 0; r < n_rows; r++)
        out[r] = dot_decoded(decode, chunk_bytes, rows + r * row_bytes, x, n_columns);
}

/* Each row is decoded once into scratch and multiplied with all tokens. */
static inline void panel(decode_fn decode, float *out, uint64_t out_stride, const uint8_t *x, uint64_t x_stride_bytes,
                         uint64_t n_tokens, const uint8_t *rows, uint64_t row_bytes, uint64_t n_rows,
                         uint64_t n_columns, float *scratch)
{
    for (uint64_t r = 0; r < n_rows; r++) {
        decode(scratch, rows + r * row_bytes, n_columns);
        for (uint64_t t = 0; t < n_tokens; t++) {
            float lane[LANES] = {0};
            lanes_add(lane, scratch, (const float *)(const void *)(x + t * x_stride_bytes), n_columns);
            out[t * out_stride + r] = lanes_sum(lane);
        }
    }
}

static uint64_t scratch_bytes(uint64_t n_columns)
{
    return n_columns * sizeof(float);
}

#define DEFINE_PRODUCT(name, format)                                                                                   \
    static void one_token_##name(float *out, const void *x, const void *rows, uint64_t row_bytes, uint64_t n_rows,     \
                                 uint64_t n_columns)                                                                   \
    {                                                                                                                  \
        one_token(decode_##name, format, out, x, rows, row_bytes, n_rows, n_columns);                                  \
    }                                                                                                                  \
    static void panel_##name(float *out, uint64_t out_stride, const void *x, uint64_t x_stride_bytes,                  \
                             uint64_t n_tokens, const void *rows, uint64_t row_bytes, uint64_t n_rows,                 \
                             uint64_t n_columns, void *scratch)                                                        \
    {                                                                                                                  \
        panel(decode_##name, out, out_stride, x, x_stride_bytes, n_tokens, rows, row_bytes, n_rows, n_columns,         \
              scratch);                                                                                                \
    }

DEFINE_PRODUCT(f32, FORMAT_F32)
DEFINE_PRODUCT(f16, FORMAT_F16)
DEFINE_PRODUCT(bf16, FORMAT_BF16)
DEFINE_PRODUCT(q8_0, FORMAT_Q8_0)

void afmoe__product_ref(struct kernels *k)
{
    k->panel_rows = 1;
#define ROW_OF_TABLE(name)                                                                                             \
    {                                                                                                                  \
        .decode_row = decode_##name, .one_token = one_token_##name, .panel = panel_##name,                             \
        .panel_scratch_bytes = scratch_bytes                                                                           \
    }
    k->product[FORMAT_F32] = (struct product_kernels)ROW_OF_TABLE(f32);
    k->product[FORMAT_F16] = (struct product_kernels)ROW_OF_TABLE(f16);
    k->product[FORMAT_BF16] = (struct product_kernels)ROW_OF_TABLE(bf16);
    k->product[FORMAT_Q8_0] = (struct product_kernels)ROW_OF_TABLE(q8_0);
}
