/* Where key/value cells lie in a page: PAGE_POSITIONS consecutive positions of one layer and one kv head.
 *
 * The layout belongs to the format of the cells and is the same at every CPU level. Both halves are tiles of
 * PAGE_LANES lanes, read from front to back; a tile's rows are what a product runs along:
 *     keys    [PAGE_POSITIONS / 16 tiles][dims]          [16 positions]   a score is one lane's sum over dims
 *     values  [dims / 16 tiles]          [PAGE_POSITIONS][16 dims]        an output is one lane's sum over positions
 * where dims is head_dim rounded up to a multiple of 16. Of F32 and F16 a row is 16 cells side by side; of BF16 two
 * rows are interleaved, [row / 2][16 lanes][2], so that one load brings both and a product of pairs has them as it
 * needs them.
 *
 * Of Q8_0 (q8_cells.h) cells are bytes, and CELL_GROUP dims of a position share a scale; the last group has what is
 * left of dims. Scales lie where the kernel gets to them:
 *     keys    [4 tiles][groups]  cells [dims of the group][16 positions], then scales [16 positions]
 *     values  [groups]           scales [PAGE_POSITIONS], then cells [2 tiles][PAGE_POSITIONS][16 dims]
 * What stands for dims past head_dim is never written and never matters. */
#ifndef AFMOE_KERNELS_PAGE_H
#define AFMOE_KERNELS_PAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Formats of the key/value cells. */
enum cell_format { CELLS_F32, CELLS_F16, CELLS_BF16, CELLS_Q8_0, N_CELL_FORMATS };

enum { PAGE_POSITIONS = 64, PAGE_LANES = 16, CELL_GROUP = 32 };

static inline uint64_t cell_bytes(enum cell_format format)
{
    return format == CELLS_F32 ? 4 : format == CELLS_Q8_0 ? 1 : 2;
}

/* Bytes of the scale of a group; 0: the format has none. */
static inline uint64_t cell_scale_bytes(enum cell_format format)
{
    return format == CELLS_Q8_0 ? 2 : 0;
}

static inline uint64_t page_dims(uint64_t head_dim)
{
    return (head_dim + PAGE_LANES - 1) / PAGE_LANES * PAGE_LANES;
}

static inline uint64_t cell_groups(uint64_t head_dim)
{
    return (head_dim + CELL_GROUP - 1) / CELL_GROUP;
}

/* Bytes of a group of n dims at n_positions positions. */
static inline uint64_t cell_group_bytes(enum cell_format format, uint64_t n_positions, uint64_t n)
{
    return n_positions * (n * cell_bytes(format) + cell_scale_bytes(format));
}

/* Bytes from one tile to the next: of the keys, and of the values of a group. */
static inline uint64_t key_tile_bytes(enum cell_format format, uint64_t head_dim)
{
    return PAGE_LANES * (page_dims(head_dim) * cell_bytes(format) + cell_groups(head_dim) * cell_scale_bytes(format));
}

static inline uint64_t value_tile_bytes(enum cell_format format)
{
    return PAGE_POSITIONS * PAGE_LANES * cell_bytes(format);
}

/* Bytes of the keys (or values) of one kv head in one page. */
static inline uint64_t head_page_bytes(enum cell_format format, uint64_t head_dim)
{
    return PAGE_POSITIONS / PAGE_LANES * key_tile_bytes(format, head_dim);
}

/* Cells before (row, lane) of a tile, or of the rows of a group. */
static inline uint64_t cell_in_tile(enum cell_format format, uint64_t row, uint64_t lane)
{
    if (format == CELLS_BF16) return row / 2 * (2 * PAGE_LANES) + lane * 2 + row % 2;
    return row * PAGE_LANES + lane;
}

/* Byte of a cell in the keys, or the values, of one kv head. */
static inline uint64_t key_offset(enum cell_format format, uint64_t head_dim, uint64_t position, uint64_t dim)
{
    return position / PAGE_LANES * key_tile_bytes(format, head_dim) +
           dim / CELL_GROUP * cell_group_bytes(format, PAGE_LANES, CELL_GROUP) +
           cell_in_tile(format, dim % CELL_GROUP, position % PAGE_LANES) * cell_bytes(format);
}

static inline uint64_t value_offset(enum cell_format format, uint64_t position, uint64_t dim)
{
    return dim / CELL_GROUP * cell_group_bytes(format, PAGE_POSITIONS, CELL_GROUP) +
           PAGE_POSITIONS * cell_scale_bytes(format) + dim % CELL_GROUP / PAGE_LANES * value_tile_bytes(format) +
           cell_in_tile(format, position, dim % PAGE_LANES) * cell_bytes(format);
}

/* Byte of the scale of a group. */
static inline uint64_t key_scale_offset(enum cell_format format, uint64_t head_dim, uint64_t position, uint64_t group)
{
    uint64_t left = page_dims(head_dim) - group * CELL_GROUP, n = left < CELL_GROUP ? left : CELL_GROUP;
    return position / PAGE_LANES * key_tile_bytes(format, head_dim) +
           group * cell_group_bytes(format, PAGE_LANES, CELL_GROUP) + n * PAGE_LANES * cell_bytes(format) +
           position % PAGE_LANES * cell_scale_bytes(format);
}

static inline uint64_t value_scale_offset(enum cell_format format, uint64_t position, uint64_t group)
{
    return group * cell_group_bytes(format, PAGE_POSITIONS, CELL_GROUP) + position * cell_scale_bytes(format);
}

/* In the values, or the keys. */
static inline uint64_t cell_offset(enum cell_format format, bool is_value, uint64_t head_dim, uint64_t position,
                                   uint64_t dim)
{
    return is_value ? value_offset(format, position, dim) : key_offset(format, head_dim, position, dim);
}

static inline uint64_t cell_scale_offset(enum cell_format format, bool is_value, uint64_t head_dim, uint64_t position,
                                    uint64_t group)
{
    return is_value ? value_scale_offset(format, position, group)
                    : key_scale_offset(format, head_dim, position, group);
}

#endif
