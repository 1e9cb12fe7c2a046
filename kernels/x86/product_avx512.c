/* Products of weight rows with activations at AVX-512, in the order of kernels.h: sixteen lanes. The shape is that of
 * product_avx2.c, with register tiles of 4 rows x 6 tokens. */
#include "avx512.h"

#include "panel_x86.h"
#include "tile_avx512.h"

enum { ROWS = PANEL_TILE_ROWS };

/* ---- One token ---- */

enum { AHEAD_BYTES = 8 << 10, SHORT_ROW_BYTES = 4 << 10 };

FORCE_INLINE void multiply(const int R, const int T, enum stored s, const uint64_t ahead, float *out,
                           uint64_t out_stride, const float *const *x, const uint8_t *rows, uint64_t row_bytes,
                           uint64_t n_columns)
{
    tile16 acc;
    tile16_clear(R, T, acc);
    tile16_accumulate(R, T, s, ahead, acc, rows, row_bytes, x, n_columns);
    tile16_store(R, T, acc, out, out_stride);
}

FORCE_INLINE void one_token(enum stored s, float *out, const float *x, const uint8_t *rows, uint64_t row_bytes,
                            uint64_t n_rows, uint64_t n_columns)
{
    uint64_t r = 0;
    if (row_bytes < SHORT_ROW_BYTES)
        for (; r + ROWS <= n_rows; r += ROWS)
            multiply(ROWS, 1, s, AHEAD_BYTES, out + r, 0, &x, rows + r * row_bytes, row_bytes, n_columns);
    for (; r + ROWS <= n_rows; r += ROWS)
        multiply(ROWS, 1, s, 0, out + r, 0, &x, rows + r * row_bytes, row_bytes, n_columns);
    for (; r < n_rows; r++) multiply(1, 1, s, 0, out + r, 0, &x, rows + r * row_bytes, row_bytes, n_columns);
}

static void one_token_f32(float *out, const void *x, const void *rows, uint64_t row_bytes, uint64_t n_rows,
                          uint64_t n_columns, const void *next)
{
    (void)next;
    one_token(STORED_F32, out, x, rows, row_bytes, n_rows, n_columns);
}

static void one_token_f16(float *out, const void *x, const void *rows, uint64_t row_bytes, uint64_t n_rows,
                          uint64_t n_columns, const void *next)
{
    (void)next;
    one_token(STORED_F16, out, x, rows, row_bytes, n_rows, n_columns);
}

static void one_token_bf16(float *out, const void *x, const void *rows, uint64_t row_bytes, uint64_t n_rows,
                           uint64_t n_columns, const void *next)
{
    (void)next;
    one_token(STORED_BF16, out, x, rows, row_bytes, n_rows, n_columns);
}

/* Q8_0 blocks: f16 scale d, 32 signed bytes. */
enum { Q8_0_ROWS = 8, Q8_0_VALUES = 32, Q8_0_BYTES = 34, Q8_0_AHEAD_BYTES = 16 << 10 };

/* Values 16i..16i+15 of a block. */
FORCE_INLINE __m512 q8_0_values(const uint8_t *block, __m512 d, int i)
{
    __m128i q = _mm_loadu_si128((const __m128i *)(const void *)(block + 2 + 16 * i));
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)));
}

FORCE_INLINE void multiply_q8_0(const int R, float *out, const float *x, const uint8_t *rows, uint64_t row_bytes,
                                uint64_t n_columns, struct hints hints)
{
    __m512 acc[Q8_0_ROWS];
    for (int r = 0; r < R; r++) acc[r] = _mm512_setzero_ps();
    uintptr_t at = (uintptr_t)rows;
    for (uint64_t k = 0; k < n_columns; k += Q8_0_VALUES, rows += Q8_0_BYTES, at += Q8_0_BYTES * R) {
        prefetch_hinted(hints, at, Q8_0_BYTES * R);
        __m512 xs[2] = {_mm512_loadu_ps(x + k), _mm512_loadu_ps(x + k + 16)};
        for (int r = 0; r < R; r++) {
            const uint8_t *block = rows + r * row_bytes;
            __m512 d = _mm512_set1_ps(_cvtsh_ss(u16_at(block)));
            for (int i = 0; i < 2; i++) acc[r] = _mm512_fmadd_ps(q8_0_values(block, d, i), xs[i], acc[r]);
        }
    }
    for (int r = 0; r < R; r++) out[r] = sum16(acc[r]);
}

static void one_token_q8_0(float *out, const void *x, const void *rows, uint64_t row_bytes, uint64_t n_rows,
                           uint64_t n_columns, const void *next)
{
    const uint8_t *row = rows;
    const struct hints hints = hints_of(rows, n_rows * row_bytes, next, Q8_0_AHEAD_BYTES);
    uint64_t r = 0;
    for (; r + Q8_0_ROWS <= n_rows; r += Q8_0_ROWS)
        multiply_q8_0(Q8_0_ROWS, out + r, x, row + r * row_bytes, row_bytes, n_columns, hints);
    for (; r < n_rows; r++) multiply_q8_0(1, out + r, x, row + r * row_bytes, row_bytes, n_columns, hints);
}

/* ---- Panel ---- */

static void decode_f32(float *out, const void *row, uint64_t n)
{
    if (n) memcpy(out, row, n * sizeof *out);
}

FORCE_INLINE void decode_stored(enum stored s, float *out, const uint8_t *row, uint64_t n)
{
    uint64_t k = 0;
    for (; k + 16 <= n; k += 16) _mm512_storeu_ps(out + k, load16(row + k * stored_bytes(s), s));
    if (k < n) _mm512_mask_storeu_ps(out + k, tail_lanes(n - k), load_tail16(row + k * stored_bytes(s), n - k, s));
}

static void decode_f16(float *out, const void *row, uint64_t n)
{
    decode_stored(STORED_F16, out, row, n);
}

static void decode_bf16(float *out, const void *row, uint64_t n)
{
    decode_stored(STORED_BF16, out, row, n);
}

static void decode_q8_0(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += Q8_0_VALUES, block += Q8_0_BYTES) {
        __m512 d = _mm512_set1_ps(_cvtsh_ss(u16_at(block)));
        for (int i = 0; i < 2; i++) _mm512_storeu_ps(out + k + 16 * i, q8_0_values(block, d, i));
    }
}

FORCE_INLINE void multiply_tile(const int R, const int T, float *out, uint64_t out_stride, const float *const *x,
                                const uint8_t *rows, uint64_t row_bytes, uint64_t n_columns)
{
    multiply(R, T, STORED_F32, 0, out, out_stride, x, rows, row_bytes, n_columns);
}

#include "panel_tokens_avx512.h"

#define DEFINE_PANEL(name, decode)                                                                                     \
    static void panel_##name(float *out, uint64_t out_stride, const void *const *x, uint64_t n_tokens,                 \
                             const void *rows, uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns,                \
                             const void *next, void *scratch)                                                          \
    {                                                                                                                  \
        (void)next;                                                                                                    \
        run_panel(decode, all_tokens, out, out_stride, x, n_tokens, rows, row_bytes, n_rows, n_columns, scratch);      \
    }

DEFINE_PANEL(f32, n_tokens < COPY_TOKENS ? NULL : decode_f32)
DEFINE_PANEL(f16, decode_f16)
DEFINE_PANEL(bf16, decode_bf16)
DEFINE_PANEL(q8_0, decode_q8_0)

void afmoe__product_avx512(struct kernels *k)
{
#define SET_PRODUCT(name, format)                                                                                      \
    set_float_product(k, format, decode_##name,                                                                        \
                      (struct product_kernels){.one_token = one_token_##name,                                          \
                                               .panel = panel_##name,                                                  \
                                               .panel_scratch_bytes = panel_bytes})
    SET_PRODUCT(f32, FORMAT_F32);
    SET_PRODUCT(f16, FORMAT_F16);
    SET_PRODUCT(bf16, FORMAT_BF16);
    SET_PRODUCT(q8_0, FORMAT_Q8_0);
}
