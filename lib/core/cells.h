/* The key/value cells of one session as the decoder sees them; the session floor owns and fills them.
 *
 * A page holds PAGE_POSITIONS consecutive absolute positions of one layer. Its bytes, for kv head j of n_kv_heads:
 *     keys   at j * 2 * head_page_bytes
 *     values at j * 2 * head_page_bytes + head_page_bytes
 * each laid out as kernels/page.h says, so that one kv head's page is contiguous for the kernel that reads it. */
#ifndef AFMOE_CORE_CELLS_H
#define AFMOE_CORE_CELLS_H

#include "kernels.h"

struct cells {
    /* pages[layer * n_slots + position / PAGE_POSITIONS]; a page that no query of this pass may see can be NULL */
    uint8_t **pages;
    uint64_t n_slots;
};

static inline uint8_t *cells_page(const struct cells *cells, uint32_t layer, uint64_t position)
{
    return cells->pages[layer * cells->n_slots + position / PAGE_POSITIONS];
}

#endif
