/* A panel's rows times all tokens at AVX-512, as many tokens at a time as the register tile takes. The file that
 * includes this one has defined ROWS, the rows of a tile, and multiply_tile(R, T, ...), R rows with T tokens. Static
 * only: it is compiled with the flags of its level. */
#ifndef AFMOE_KERNELS_PANEL_TOKENS_AVX512_H
#define AFMOE_KERNELS_PANEL_TOKENS_AVX512_H

#include "tile_avx512.h"

/* As at AVX2: from some tokens on a copy keeps the rows from meeting in one set of the cache. */
enum { TOKENS = TILE16_MAX_TOKENS, COPY_TOKENS = 16 };

/* n_rows rows with T tokens */
FORCE_INLINE void multiply_panel(const int T, float *out, uint64_t out_stride, const float *const *x,
                                 const uint8_t *rows, uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns)
{
    uint64_t r = 0;
    for (; r + ROWS <= n_rows; r += ROWS)
        multiply_tile(ROWS, T, out + r, out_stride, x, rows + r * row_bytes, row_bytes, n_columns);
    for (; r < n_rows; r++)
        multiply_tile(1, T, out + r, out_stride, x, rows + r * row_bytes, row_bytes, n_columns);
}

static void all_tokens(float *out, uint64_t out_stride, const float *const *x, uint64_t n_tokens, const uint8_t *rows,
                       uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns)
{
    while (n_tokens > 0) {
        uint64_t n = n_tokens == TOKENS + 1 ? TOKENS - 2 : n_tokens < TOKENS ? n_tokens : TOKENS; /* no 1 at the end */
        switch (n) {
        case 1: multiply_panel(1, out, out_stride, x, rows, row_bytes, n_rows, n_columns); break;
        case 2: multiply_panel(2, out, out_stride, x, rows, row_bytes, n_rows, n_columns); break;
        case 3: multiply_panel(3, out, out_stride, x, rows, row_bytes, n_rows, n_columns); break;
        case 4: multiply_panel(4, out, out_stride, x, rows, row_bytes, n_rows, n_columns); break;
        case 5: multiply_panel(5, out, out_stride, x, rows, row_bytes, n_rows, n_columns); break;
        default: multiply_panel(6, out, out_stride, x, rows, row_bytes, n_rows, n_columns); break;
        }
        out += n * out_stride;
        x += n;
        n_tokens -= n;
    }
}

#endif
