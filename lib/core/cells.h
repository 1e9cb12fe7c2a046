/* The key/value cells of one session as the decoder sees them; the session floor owns and fills them.
 *
 * A page holds PAGE_POSITIONS consecutive absolute positions of one layer. Its bytes, for kv head j of n_kv_heads:
 *     keys   at j * 2 * head_page_bytes
 *     values at j * 2 * head_page_bytes + head_page_bytes
 * each laid out as kernels/page.h says, so that one kv head's page is contiguous for the kernel that reads it.
 *
 * Full layers know no positions, only an order: where pages were dropped from them, those behind have moved up, and
 * position p is that of slot (p - n_dropped) / PAGE_POSITIONS, for every token that is still computed. */
#ifndef AFMOE_CORE_CELLS_H
#define AFMOE_CORE_CELLS_H

#include "kernels.h"

struct cells {
    /* pages[layer * n_slots + slot]; a page that no query of this pass may see can be NULL */
    uint8_t **pages;
    uint64_t n_slots;
};

/* The page in the slot; without pages dropped it is page `slot` of the layer. */
static inline uint8_t *cells_page(const struct cells *cells, uint32_t layer, uint64_t slot)
{
    return cells->pages[layer * cells->n_slots + slot];
}

#endif
