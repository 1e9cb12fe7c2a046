/* FAST products of bfloat16 rows at AVX-512 BF16, with activations rounded to bfloat16 (ACTIVATION_BF16).
 *
 * Lane i of sixteen sums elements 2i and 2i + 1 of every 32, in the order of the row, then as sum16 does. Products of
 * two bfloat16 are exact; in what order a pair is added and rounded is the CPU's affair (Intel SDM, VDPBF16PS;
 * subnormal numbers count as zero), so bits may differ from one CPU to another, but not within one. F16 stays with
 * floats: its weights have three bits more than bfloat16 keeps. */
#include "avx512.h"

#include "afmoe.h"
#include "panel_x86.h"
#include "tile_avx512.h"

#ifndef DOT_BF16
#define DOT_BF16(sum, a, b) _mm512_dpbf16_ps(sum, (__m512bh)(a), (__m512bh)(b))
#endif

enum { ROWS = PANEL_TILE_ROWS, STEP = 32, AHEAD_BYTES = 4 << 10 }; /* no CPU was there to measure hints on */

static const struct hints no_hints;

/* acc[r][t] += rows[r] * x[t]; rows `row_bytes` apart. Where there is no hint, hints.ahead is 0. */
FORCE_INLINE void accumulate(const int R, const int T, tile16 acc, const uint8_t *rows, uint64_t row_bytes,
                             const uint16_t *const *x, uint64_t n, struct hints hints)
{
    __m512i xs[TILE16_MAX_TOKENS];
    uintptr_t at = (uintptr_t)rows;
    uint64_t k = 0;
    for (; k + STEP <= n; k += STEP) {
        if (hints.ahead) prefetch_hinted(hints, at, 2 * STEP * R);
        at += 2 * STEP * R;
        for (int t = 0; t < T; t++) xs[t] = _mm512_loadu_si512(x[t] + k);
        for (int r = 0; r < R; r++) {
            __m512i w = _mm512_loadu_si512(rows + (uint64_t)r * row_bytes + 2 * k);
            for (int t = 0; t < T; t++) acc[r][t] = DOT_BF16(acc[r][t], w, xs[t]);
        }
    }
    if (k == n) return;
    const __mmask32 rest = (1u << (n - k)) - 1;
    for (int t = 0; t < T; t++) xs[t] = _mm512_maskz_loadu_epi16(rest, x[t] + k);
    for (int r = 0; r < R; r++) {
        __m512i w = _mm512_maskz_loadu_epi16(rest, rows + (uint64_t)r * row_bytes + 2 * k);
        for (int t = 0; t < T; t++) acc[r][t] = DOT_BF16(acc[r][t], w, xs[t]);
    }
}

FORCE_INLINE void multiply(const int R, const int T, float *out, uint64_t out_stride, const uint16_t *const *x,
                           const uint8_t *rows, uint64_t row_bytes, uint64_t n_columns, struct hints hints)
{
    tile16 acc;
    tile16_clear(R, T, acc);
    accumulate(R, T, acc, rows, row_bytes, x, n_columns, hints);
    tile16_store(R, T, acc, out, out_stride);
}

static void one_token(float *out, const void *x, const void *rows, uint64_t row_bytes, uint64_t n_rows,
                      uint64_t n_columns, const void *next)
{
    const uint16_t *token = x;
    const uint8_t *row = rows;
    const struct hints hints = hints_of(rows, n_rows * row_bytes, next, AHEAD_BYTES);
    uint64_t r = 0;
    for (; r + ROWS <= n_rows; r += ROWS)
        multiply(ROWS, 1, out + r, 0, &token, row + r * row_bytes, row_bytes, n_columns, hints);
    for (; r < n_rows; r++) multiply(1, 1, out + r, 0, &token, row + r * row_bytes, row_bytes, n_columns, hints);
}

/* ---- Panel ---- */

/* x: tokens of bfloat16, behind the type that run_panel knows. */
FORCE_INLINE void multiply_tile(const int R, const int T, float *out, uint64_t out_stride, const float *const *x,
                                const uint8_t *rows, uint64_t row_bytes, uint64_t n_columns)
{
    const uint16_t *tokens[TILE16_MAX_TOKENS];
    for (int t = 0; t < T; t++) tokens[t] = (const uint16_t *)(const void *)x[t];
    multiply(R, T, out, out_stride, tokens, rows, row_bytes, n_columns, no_hints);
}

#include "panel_tokens_avx512.h"

/* A row as it is: what is multiplied are no floats. */
static void copy_row(float *out, const void *row, uint64_t n)
{
    if (n) memcpy(out, row, 2 * n);
}

static void panel(float *out, uint64_t out_stride, const void *const *x, uint64_t n_tokens, const void *rows,
                  uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns, const void *next, void *scratch)
{
    (void)next;
    run_panel(n_tokens < COPY_TOKENS ? NULL : copy_row, all_tokens, out, out_stride, x, n_tokens, rows, row_bytes,
              n_rows, n_columns, scratch);
}

void afmoe__kernels_avx512bf16(struct kernels *k)
{
    k->level = AFMOE_CPU_AVX512BF16;
    k->product[PRECISION_FAST][FORMAT_BF16] = (struct product_kernels){.activation = ACTIVATION_BF16,
                                                                       .one_token = one_token,
                                                                       .panel = panel,
                                                                       .panel_scratch_bytes = panel_bytes};
}
