/* Cells of a page in the order of positions, see page_rows.h. Formats are told apart outside of the loops: megabytes
 * pass here. */
#include "page_rows.h"

static inline void read_rows(uint8_t *out, const uint8_t *head_page, const struct page_rows *rows,
                             enum cell_format format)
{
    const uint64_t cell = cell_bytes(format), scale = cell_scale_bytes(format), d = rows->head_dim;
    for (uint64_t position = rows->begin; position < rows->end; position++)
        for (uint64_t dim = 0; dim < d; dim++, out += cell) {
            if (scale && dim % CELL_GROUP == 0) {
                uint64_t group = dim / CELL_GROUP;
                memcpy(out, head_page + cell_scale_offset(format, rows->is_value, d, position, group), scale);
                out += scale;
            }
            memcpy(out, head_page + cell_offset(format, rows->is_value, d, position, dim), cell);
        }
}

static inline void write_rows(uint8_t *head_page, const uint8_t *cells, const struct page_rows *rows,
                              enum cell_format format)
{
    const uint64_t cell = cell_bytes(format), scale = cell_scale_bytes(format), d = rows->head_dim;
    for (uint64_t position = rows->begin; position < rows->end; position++)
        for (uint64_t dim = 0; dim < d; dim++, cells += cell) {
            if (scale && dim % CELL_GROUP == 0) {
                uint64_t group = dim / CELL_GROUP;
                memcpy(head_page + cell_scale_offset(format, rows->is_value, d, position, group), cells, scale);
                cells += scale;
            }
            memcpy(head_page + cell_offset(format, rows->is_value, d, position, dim), cells, cell);
        }
}

void afmoe__page_rows_read(uint8_t *out, const uint8_t *head_page, const struct page_rows *rows)
{
    switch (rows->format) {
    case CELLS_F32: read_rows(out, head_page, rows, CELLS_F32); break;
    case CELLS_F16: read_rows(out, head_page, rows, CELLS_F16); break;
    case CELLS_BF16: read_rows(out, head_page, rows, CELLS_BF16); break;
    default: read_rows(out, head_page, rows, CELLS_Q8_0);
    }
}

void afmoe__page_rows_write(uint8_t *head_page, const uint8_t *cells, const struct page_rows *rows)
{
    switch (rows->format) {
    case CELLS_F32: write_rows(head_page, cells, rows, CELLS_F32); break;
    case CELLS_F16: write_rows(head_page, cells, rows, CELLS_F16); break;
    case CELLS_BF16: write_rows(head_page, cells, rows, CELLS_BF16); break;
    default: write_rows(head_page, cells, rows, CELLS_Q8_0);
    }
}
