/* Cells of a page in the order of positions, see page_rows.h. Formats are told apart outside of the loops: megabytes
 * pass here. */
#include "page_rows.h"

static inline uint64_t offset_of(const struct page_rows *rows, enum cell_format format, uint64_t position, uint64_t dim)
{
    return rows->is_value ? value_offset(format, position, dim) : key_offset(format, rows->head_dim, position, dim);
}

static inline void read_rows(uint8_t *out, const uint8_t *head_page, const struct page_rows *rows,
                             enum cell_format format)
{
    for (uint64_t position = rows->begin; position < rows->end; position++)
        for (uint64_t dim = 0; dim < rows->head_dim; dim++, out += cell_bytes(format))
            memcpy(out, head_page + offset_of(rows, format, position, dim), cell_bytes(format));
}

static inline void write_rows(uint8_t *head_page, const uint8_t *cells, const struct page_rows *rows,
                              enum cell_format format)
{
    for (uint64_t position = rows->begin; position < rows->end; position++)
        for (uint64_t dim = 0; dim < rows->head_dim; dim++, cells += cell_bytes(format))
            memcpy(head_page + offset_of(rows, format, position, dim), cells, cell_bytes(format));
}

void afmoe__page_rows_read(uint8_t *out, const uint8_t *head_page, const struct page_rows *rows)
{
    if (rows->format == CELLS_F32)
        read_rows(out, head_page, rows, CELLS_F32);
    else if (rows->format == CELLS_F16)
        read_rows(out, head_page, rows, CELLS_F16);
    else
        read_rows(out, head_page, rows, CELLS_BF16);
}

void afmoe__page_rows_write(uint8_t *head_page, const uint8_t *cells, const struct page_rows *rows)
{
    if (rows->format == CELLS_F32)
        write_rows(head_page, cells, rows, CELLS_F32);
    else if (rows->format == CELLS_F16)
        write_rows(head_page, cells, rows, CELLS_F16);
    else
        write_rows(head_page, cells, rows, CELLS_BF16);
}
