/* The walk of a panel product, the same at every x86 level: as many rows as fit into half of the smallest second-level
 * cache in use are decoded to floats once, then multiplied with all tokens. Static only: it is compiled with the flags
 * of its level. */
#ifndef AFMOE_KERNELS_PANEL_X86_H
#define AFMOE_KERNELS_PANEL_X86_H

#include "ref/decode.h"

enum { PANEL_BYTES = 256 << 10, PANEL_MAX_ROWS = 16, PANEL_TILE_ROWS = 4 };

/* Float rows with all tokens: out[t * out_stride + r], rows `row_bytes` apart. */
typedef void (*multiply_rows_fn)(float *out, uint64_t out_stride, const float *const *x, uint64_t n_tokens,
                                 const uint8_t *rows, uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns);

/* Floats from one decoded row to the next: one cache line more than a row, so that the rows of a tile do not meet in
 * one set of the cache. */
static inline uint64_t panel_stride(uint64_t n_columns)
{
    return (n_columns + 15) / 16 * 16 + 16;
}

static inline uint64_t rows_of_panel(uint64_t n_columns)
{
    uint64_t rows = PANEL_BYTES / (panel_stride(n_columns) * sizeof(float)) / PANEL_TILE_ROWS * PANEL_TILE_ROWS;
    return rows < PANEL_TILE_ROWS ? PANEL_TILE_ROWS : rows > PANEL_MAX_ROWS ? PANEL_MAX_ROWS : rows;
}

static inline uint64_t panel_bytes(uint64_t n_columns)
{
    return rows_of_panel(n_columns) * panel_stride(n_columns) * sizeof(float);
}

/* decode NULL: the rows are floats, used where they lie */
static inline void run_panel(decode_fn decode, multiply_rows_fn multiply_rows, float *out, uint64_t out_stride,
                             const void *const *x, uint64_t n_tokens, const uint8_t *rows, uint64_t row_bytes,
                             uint64_t n_rows, uint64_t n_columns, float *scratch)
{
    uint64_t step = rows_of_panel(n_columns), stride = panel_stride(n_columns);
    for (uint64_t r = 0; r < n_rows; r += step) {
        uint64_t n = n_rows - r < step ? n_rows - r : step;
        const uint8_t *first = rows + r * row_bytes;
        uint64_t first_row_bytes = row_bytes;
        if (decode) {
            for (uint64_t i = 0; i < n; i++) decode(scratch + i * stride, first + i * row_bytes, n_columns);
            first = (const uint8_t *)scratch;
            first_row_bytes = stride * sizeof *scratch;
        }
        multiply_rows(out + r, out_stride, (const float *const *)x, n_tokens, first, first_row_bytes, n, n_columns);
    }
}

#endif
