/* Cells of a page in the order of positions, as states have them: [positions][head_dim]. States outlive the order in
 * which a kernel reads (kernels/page.h). */
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

void afmoe__page_rows_read(uint8_t *out, const uint8_t *head_page, const struct page_rows *rows);
void afmoe__page_rows_write(uint8_t *head_page, const uint8_t *cells, const struct page_rows *rows);

#endif
