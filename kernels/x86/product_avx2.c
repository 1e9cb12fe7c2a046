/* Products of weight rows with activations, AVX2 and FMA, in the order of kernels.h: lanes of a vector are the lanes
 * of the sum.
 *
 * One token: the time is that of streaming the rows from memory. Four rows run side by side to hide the latency of
 * the multiply-add (eight for Q8_0, whose decoding makes a step longer). Rows of 4 KB and more are found by the
 * hardware prefetcher, and hints only cost (-10 %, Zen 3); shorter ones and Q8_0 gain 35-80 % from one hint a line in
 * the order of the memory.
 * Panel: panel_x86.h, in register tiles of 4 rows x 3 tokens. */
#include "avx2.h"

#include "panel_x86.h"
#include "tile_avx2.h"

enum { ROWS = PANEL_TILE_ROWS, TOKENS = 3 };

/* ---- Decoding ---- */

FORCE_INLINE void decode_stored(enum stored s, float *out, const uint8_t *row, uint64_t n)
{
    uint64_t k = 0;
    for (; k + 8 <= n; k += 8) _mm256_storeu_ps(out + k, load8(row + k * stored_bytes(s), s));
    if (k < n) _mm256_maskstore_ps(out + k, tail_mask(n - k), load_tail(row + k * stored_bytes(s), n - k, s));
}

static void decode_f32(float *out, const void *row, uint64_t n)
{
    if (n) memcpy(out, row, n * sizeof *out);
}

static void decode_f16(float *out, const void *row, uint64_t n)
{
    decode_stored(STORED_F16, out, row, n);
}

static void decode_bf16(float *out, const void *row, uint64_t n)
{
    decode_stored(STORED_BF16, out, row, n);
}

/* Q8_0 blocks: f16 scale d, 32 signed bytes. */
enum { Q8_0_VALUES = 32, Q8_0_BYTES = 34 };

FORCE_INLINE __m256 q8_0_scale(const uint8_t *block)
{
    short d;
    memcpy(&d, block, sizeof d);
    return _mm256_cvtph_ps(_mm_set1_epi16(d));
}

/* Values 8i..8i+7 of a block. */
FORCE_INLINE __m256 q8_0_values(const uint8_t *block, __m256 d, int i)
{
    __m128i q = load_8_bytes(block + 2 + 8 * i);
    return _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)));
}

static void decode_q8_0(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += Q8_0_VALUES, block += Q8_0_BYTES) {
        __m256 d = q8_0_scale(block);
        for (int i = 0; i < 4; i++) _mm256_storeu_ps(out + k + 8 * i, q8_0_values(block, d, i));
    }
}

/* ---- One token ---- */

enum { AHEAD_BYTES = 8 << 10, SHORT_ROW_BYTES = 4 << 10 };

FORCE_INLINE void multiply(const int R, const int T, enum stored s, const uint64_t ahead, float *out,
                           uint64_t out_stride, const float *const *x, const uint8_t *rows, uint64_t row_bytes,
                           uint64_t n_columns)
{
    __m256 acc[TILE_MAX_ROWS][TILE_MAX_TOKENS];
    tile_clear(R, T, acc);
    tile_accumulate(R, T, s, ahead, acc, rows, row_bytes, x, n_columns);
    tile_store(R, T, acc, out, out_stride);
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

enum { Q8_0_ROWS = 8, Q8_0_AHEAD_BYTES = 16 << 10 };

FORCE_INLINE void multiply_q8_0(const int R, float *out, const float *x, const uint8_t *rows, uint64_t row_bytes,
                                uint64_t n_columns, struct hints hints)
{
    __m256 acc[Q8_0_ROWS];
    for (int r = 0; r < R; r++) acc[r] = _mm256_setzero_ps();
    uintptr_t at = (uintptr_t)rows;
    for (uint64_t k = 0; k < n_columns; k += Q8_0_VALUES, rows += Q8_0_BYTES, at += Q8_0_BYTES * R) {
        prefetch_hinted(hints, at, Q8_0_BYTES * R);
        __m256 xs[4];
        for (int i = 0; i < 4; i++) xs[i] = _mm256_loadu_ps(x + k + 8 * i);
        for (int r = 0; r < R; r++) {
            const uint8_t *block = rows + r * row_bytes;
            __m256 d = q8_0_scale(block);
            for (int i = 0; i < 4; i++) acc[r] = _mm256_fmadd_ps(q8_0_values(block, d, i), xs[i], acc[r]);
        }
    }
    for (int r = 0; r < R; r++) out[r] = sum8(acc[r]);
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

/* n_rows float rows with T tokens */
FORCE_INLINE void multiply_panel(const int T, float *out, uint64_t out_stride, const float *const *x,
                                 const uint8_t *rows, uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns)
{
    uint64_t r = 0;
    for (; r + ROWS <= n_rows; r += ROWS)
        multiply(ROWS, T, STORED_F32, 0, out + r, out_stride, x, rows + r * row_bytes, row_bytes, n_columns);
    for (; r < n_rows; r++)
        multiply(1, T, STORED_F32, 0, out + r, out_stride, x, rows + r * row_bytes, row_bytes, n_columns);
}

static void all_tokens(float *out, uint64_t out_stride, const float *const *x, uint64_t n_tokens, const uint8_t *rows,
                       uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns)
{
    while (n_tokens > 0) {
        /* 4 left are better taken as 2 and 2 than as 3 and 1 */
        uint64_t n = n_tokens == 4 ? 2 : n_tokens < TOKENS ? n_tokens : TOKENS;
        if (n == 3) multiply_panel(3, out, out_stride, x, rows, row_bytes, n_rows, n_columns);
        if (n == 2) multiply_panel(2, out, out_stride, x, rows, row_bytes, n_rows, n_columns);
        if (n == 1) multiply_panel(1, out, out_stride, x, rows, row_bytes, n_rows, n_columns);
        out += n * out_stride;
        x += n;
        n_tokens -= n;
    }
}

void afmoe__panel_avx2(decode_fn decode, float *out, uint64_t out_stride, const void *const *x, uint64_t n_tokens,
                       const uint8_t *rows, uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns, float *scratch)
{
    run_panel(decode, all_tokens, out, out_stride, x, n_tokens, rows, row_bytes, n_rows, n_columns, scratch);
}

uint64_t afmoe__panel_scratch_bytes_avx2(uint64_t n_columns)
{
    return panel_bytes(n_columns);
}

#define DEFINE_PANEL(name, decode)                                                                                     \
    static void panel_##name(float *out, uint64_t out_stride, const void *const *x, uint64_t n_tokens,                 \
                             const void *rows, uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns,                \
                             const void *next, void *scratch)                                                          \
    {                                                                                                                  \
        (void)next;                                                                                                    \
        afmoe__panel_avx2(decode, out, out_stride, x, n_tokens, rows, row_bytes, n_rows, n_columns, scratch);          \
    }

/* Rows at a power of two from each other meet in one set of the cache: from some tokens on a copy pays (+15 % at 32
 * tokens of 1024 columns). */
enum { COPY_TOKENS = 16 };

DEFINE_PANEL(f32, n_tokens < COPY_TOKENS ? NULL : decode_f32)
DEFINE_PANEL(f16, decode_f16)
DEFINE_PANEL(bf16, decode_bf16)
DEFINE_PANEL(q8_0, decode_q8_0)

void afmoe__product_avx2(struct kernels *k)
{
#define SET_PRODUCT(name, format)                                                                                      \
    set_float_product(k, format, decode_##name,                                                                        \
                      (struct product_kernels){.one_token = one_token_##name,                                          \
                                               .panel = panel_##name,                                                  \
                                               .panel_scratch_bytes = afmoe__panel_scratch_bytes_avx2})
    SET_PRODUCT(f32, FORMAT_F32);
    SET_PRODUCT(f16, FORMAT_F16);
    SET_PRODUCT(bf16, FORMAT_BF16);
    SET_PRODUCT(q8_0, FORMAT_Q8_0);
}
