/* Cells of a page in the order of positions, see page_rows.h. Formats are told apart outside of the loops: megabytes
 * pass here. */
#include "page_rows.h"

/* Bytes of a page to where states have them, or back. */
static inline void move(bool out, uint8_t *row, uint8_t *page, uint64_t n)
{
    if (out) memcpy(row, page, n);
    else memcpy(page, row, n);
}

static inline void move_rows(bool out, uint8_t *row, uint8_t *head_page, const struct page_rows *rows,
                             enum cell_format format)
{
    const uint64_t cell = cell_bytes(format), scale = cell_scale_bytes(format), d = rows->head_dim;
    for (uint64_t position = rows->begin; position < rows->end; position++)
        for (uint64_t dim = 0; dim < d; dim++, row += cell) {
            if (scale && dim % CELL_GROUP == 0) {
                uint64_t at = cell_scale_offset(format, rows->is_value, d, position, dim / CELL_GROUP);
                move(out, row, head_page + at, scale);
                row += scale;
            }
            move(out, row, head_page + cell_offset(format, rows->is_value, d, position, dim), cell);
        }
}

/* A loop for each format, whose sizes the compiler knows there. */
static inline void move_all(bool out, uint8_t *row, uint8_t *head_page, const struct page_rows *rows)
{
    switch (rows->format) {
    case CELLS_F32: move_rows(out, row, head_page, rows, CELLS_F32); break;
    case CELLS_F16: move_rows(out, row, head_page, rows, CELLS_F16); break;
    case CELLS_BF16: move_rows(out, row, head_page, rows, CELLS_BF16); break;
    default: move_rows(out, row, head_page, rows, CELLS_Q8_0);
    }
}

void afmoe__page_rows_read(uint8_t *out, const uint8_t *head_page, const struct page_rows *rows)
{
    move_all(true, out, (uint8_t *)head_page, rows);
}

void afmoe__page_rows_write(uint8_t *head_page, const uint8_t *cells, const struct page_rows *rows)
{
    move_all(false, (uint8_t *)cells, head_page, rows);
}
