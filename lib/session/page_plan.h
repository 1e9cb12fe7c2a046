/* Which key/value pages a timeline holds: counted, for sessions that are there and for those only estimated.
 *
 * A layer's page p holds positions [64 p, 64 p + 64). Full layers keep all pages. Sliding layers give a page back once
 * every position in it has left the window of every position that may still be computed: the next one is n_tokens, and
 * by rewinding n_tokens - rewind_tokens; its window begins W - 1 positions earlier. */
#ifndef AFMOE_SESSION_PAGE_PLAN_H
#define AFMOE_SESSION_PAGE_PLAN_H

#include "cells.h"
#include "config.h"

struct page_plan {
    uint64_t n_full, n_sliding; /* layers */
    uint64_t window, rewind_tokens, chunk_tokens;
};

void afmoe__page_plan_init(struct page_plan *out, const struct model_config *config, uint64_t rewind_tokens,
                           uint64_t chunk_tokens);

static inline uint64_t page_count(uint64_t n_tokens)
{
    return (n_tokens + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
}

/* First page the window of `position` reaches into; 0 where no layer slides: full layers keep everything. */
uint64_t afmoe__plan_window_page(const struct page_plan *plan, uint64_t position);

/* First sliding page to keep when the timeline has n_tokens. */
uint64_t afmoe__plan_first_kept(const struct page_plan *plan, uint64_t n_tokens);

/* The pages held when sliding layers begin at page `first_sliding` and the timeline has n_tokens. */
uint64_t afmoe__plan_pages_held(const struct page_plan *plan, uint64_t first_sliding, uint64_t n_tokens);

/* Most pages held at any time while the timeline grows from `begin` to `end`, chunk by chunk; sliding layers begin at
 * `first_sliding` before. */
uint64_t afmoe__plan_most_pages(const struct page_plan *plan, uint64_t first_sliding, uint64_t begin, uint64_t end);

/* The same for whatever chunks of at most chunk_tokens it is cut into. */
uint64_t afmoe__plan_most_pages_any_cut(const struct page_plan *plan, uint64_t first_sliding, uint64_t begin,
                                        uint64_t end);

#endif
