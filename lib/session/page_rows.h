/* Cells of a page in the order of positions, as states have them: [positions][head_dim], of Q8_0 for each group of dims
 * its scale, then its cells. States outlive the order in which a kernel reads (kernels/page.h). */
#ifndef AFMOE_SESSION_PAGE_ROWS_H
#define AFMOE_SESSION_PAGE_ROWS_H

#include "page.h"

#include <stdbool.h>

/* Positions [begin, end) in the keys (or values) of one head in a page. */
struct page_rows {
    enum cell_format format;
    bool is_value;
    uint64_t head_dim, begin, end;
};

/* Bytes of one position. */
static inline uint64_t page_row_bytes(enum cell_format format, uint64_t head_dim)
{
    return head_dim * cell_bytes(format) + cell_groups(head_dim) * cell_scale_bytes(format);
}

void afmoe__page_rows_read(uint8_t *out, const uint8_t *head_page, const struct page_rows *rows);
void afmoe__page_rows_write(uint8_t *head_page, const uint8_t *cells, const struct page_rows *rows);

#endif
