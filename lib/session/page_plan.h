/* Which key/value pages a timeline holds: counted, for sessions that are there and for those only estimated.
 *
 * A layer's page p holds positions [64 p, 64 p + 64). Full layers keep all pages. Sliding layers give a page back once
 * every position in it has left the window of every position that may still be computed: the next one is n_tokens, and
 * by rewinding n_tokens - rewind_tokens; its window begins W - 1 positions earlier.
 *
 * Snapshots keep some of those behind. One at position s, a multiple of the interval, is the sliding pages that the
 * window of s reaches into and that end before s: with them a timeline can go back to s. There are at most
 * max_snapshots, evenly spread: where n_tokens has more multiples of the interval, it doubles. So which pages are kept
 * follows from n_tokens alone, and a snapshot costs nothing but memory. */
#ifndef AFMOE_SESSION_PAGE_PLAN_H
#define AFMOE_SESSION_PAGE_PLAN_H

#include "cells.h"
#include "config.h"

struct page_plan {
    uint64_t n_full, n_sliding; /* layers */
    uint32_t sliding_layer;     /* one of them, where there are any: all hold the same pages */
    uint64_t window, rewind_tokens, chunk_tokens;
    uint64_t snapshot_tokens; /* the least interval, a multiple of PAGE_POSITIONS */
    uint64_t max_snapshots;   /* 0: none */
};

/* Without snapshots. */
void afmoe__page_plan_init(struct page_plan *out, const struct model_config *config, uint64_t rewind_tokens,
                           uint64_t chunk_tokens);
/* Take a snapshot every snapshot_tokens, which are rounded up to whole pages, as many as `max_pages` hold. */
void afmoe__plan_snapshots(struct page_plan *plan, uint64_t snapshot_tokens, uint64_t max_pages);

static inline uint64_t page_count(uint64_t n_tokens)
{
    return (n_tokens + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
}

/* First page the window of `position` reaches into; 0 where no layer slides: full layers keep everything. */
uint64_t afmoe__plan_window_page(const struct page_plan *plan, uint64_t position);

/* First sliding page to keep when the timeline has n_tokens. */
uint64_t afmoe__plan_first_kept(const struct page_plan *plan, uint64_t n_tokens);

/* Pages of all sliding layers that one snapshot holds at most. */
uint64_t afmoe__plan_snapshot_pages(const struct page_plan *plan);
/* Between the snapshots of a timeline of n_tokens; 0: there are none. */
uint64_t afmoe__plan_interval(const struct page_plan *plan, uint64_t n_tokens);
/* Is the sliding page part of a snapshot of a timeline of n_tokens? */
bool afmoe__plan_in_snapshot(const struct page_plan *plan, uint64_t page, uint64_t n_tokens);
/* How many pages below `first_sliding` are, in each sliding layer. */
uint64_t afmoe__plan_pages_behind(const struct page_plan *plan, uint64_t first_sliding, uint64_t n_tokens);

/* The pages held when sliding layers begin at page `first_sliding` and the timeline has n_tokens, but those behind. */
uint64_t afmoe__plan_pages_held(const struct page_plan *plan, uint64_t first_sliding, uint64_t n_tokens);

/* Most pages held at any time while the timeline grows from `begin` to `end`, chunk by chunk; sliding layers begin at
 * `first_sliding` before, and each has n_behind pages behind that. */
uint64_t afmoe__plan_most_pages(const struct page_plan *plan, uint64_t first_sliding, uint64_t n_behind, uint64_t begin,
                                uint64_t end);

/* The same for whatever chunks of at most chunk_tokens it is cut into; with snapshots it may be more than the most. */
uint64_t afmoe__plan_most_pages_any_cut(const struct page_plan *plan, uint64_t first_sliding, uint64_t n_behind,
                                        uint64_t begin, uint64_t end);

#endif
