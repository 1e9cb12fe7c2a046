/* Where key/value cells lie in a page: PAGE_POSITIONS consecutive positions of one layer and one kv head.
 *
 * The layout belongs to the format of the cells and is the same at every CPU level. Both halves are tiles of
 * PAGE_LANES lanes, read from front to back; a tile's rows are what a product runs along:
 *     keys    [PAGE_POSITIONS / 16 tiles][dims]          [16 positions]   a score is one lane's sum over dims
 *     values  [dims / 16 tiles]          [PAGE_POSITIONS][16 dims]        an output is one lane's sum over positions
 * where dims is head_dim rounded up to a multiple of 16. Of F32 and F16 a row is 16 cells side by side; of BF16 two
 * rows are interleaved, [row / 2][16 lanes][2], so that one load brings both and a product of pairs has them as it
 * needs them. What stands for dims past head_dim is never written and never matters. */
#ifndef AFMOE_KERNELS_PAGE_H
#define AFMOE_KERNELS_PAGE_H

#include <stdint.h>
#include <string.h>

/* Formats of the key/value cells. */
enum cell_format { CELLS_F32, CELLS_F16, CELLS_BF16, N_CELL_FORMATS };

enum { PAGE_POSITIONS = 64, PAGE_LANES = 16 };

static inline uint64_t cell_bytes(enum cell_format format)
{
    return format == CELLS_F32 ? 4 : 2;
}

static inline uint64_t page_dims(uint64_t head_dim)
{
    return (head_dim + PAGE_LANES - 1) / PAGE_LANES * PAGE_LANES;
}

/* Bytes of the keys (or values) of one kv head in one page. */
static inline uint64_t head_page_bytes(enum cell_format format, uint64_t head_dim)
{
    return PAGE_POSITIONS * page_dims(head_dim) * cell_bytes(format);
}

/* Bytes from one tile of n_rows rows to the next. */
static inline uint64_t page_tile_bytes(enum cell_format format, uint64_t n_rows)
{
    return n_rows * PAGE_LANES * cell_bytes(format);
}

/* Cells before (row, lane) of a tile. */
static inline uint64_t cell_in_tile(enum cell_format format, uint64_t row, uint64_t lane)
{
    if (format == CELLS_BF16) return row / 2 * (2 * PAGE_LANES) + lane * 2 + row % 2;
    return row * PAGE_LANES + lane;
}

/* Byte of a cell in the keys, or the values, of one kv head. */
static inline uint64_t key_offset(enum cell_format format, uint64_t head_dim, uint64_t position, uint64_t dim)
{
    return position / PAGE_LANES * page_tile_bytes(format, page_dims(head_dim)) +
           cell_in_tile(format, dim, position % PAGE_LANES) * cell_bytes(format);
}

static inline uint64_t value_offset(enum cell_format format, uint64_t position, uint64_t dim)
{
    return dim / PAGE_LANES * page_tile_bytes(format, PAGE_POSITIONS) +
           cell_in_tile(format, position, dim % PAGE_LANES) * cell_bytes(format);
}

#endif
