/* A timeline: tokens, and the pages that hold their keys and values; which pages those are: page_plan.h.
 *
 * Pages are promised before a change begins (afmoe__timeline_promise), taken as tokens are computed, given back as they
 * leave the windows that may still be asked for, and what is left of the promise is returned at the end (settle). Pages
 * may be shared with other timelines: a page is written only by the one timeline that holds it, so the page in which a
 * timeline goes on is copied first when it is shared.
 *
 * Full layers may have a hole: pages that were dropped from them on demand. A timeline goes on behind it, or from
 * before it, and then it is gone. What full layers have lost has no slots in their tables: those behind move up. */
#ifndef AFMOE_SESSION_TIMELINE_H
#define AFMOE_SESSION_TIMELINE_H

#include "cells.h"
#include "context.h"

#include <stdbool.h>

/* What full layers have dropped: n_tokens of the positions [begin, end), all of them or in several places, whole pages.
 * All 0: nothing. */
struct hole {
    uint64_t begin, end, n_tokens;
};

struct timeline {
    struct context *context;
    afmoe_token *tokens;
    uint64_t n_tokens;
    uint64_t capacity; /* of the arrays, in tokens */
    struct cells cells;
    struct hole hole;
    uint64_t first_sliding_page; /* sliding layers hold all pages from here on */
    uint64_t n_behind;           /* and so many before, each of them: those of snapshots */
    uint64_t interval;           /* of the snapshots when pages were given back last */
    uint64_t n_slots_used;       /* later ones are empty; drafts (ahead.h) use some behind the end */
    uint64_t n_promised;         /* pages that may still be taken */
    bool may_share;              /* false: no page is shared */
};

/* Place the arrays of a timeline of at most n_tokens at `base` (a multiple of a cache line); with base NULL only count.
 * The bytes they take; what lies in them is not set. */
uint64_t afmoe__timeline_layout(struct timeline *timeline, const struct context *context, uint64_t n_tokens,
                                uint8_t *base);
/* Empty the table of pages, whatever lies in it. */
void afmoe__timeline_clear(struct timeline *timeline);

/* Tokens dropped where the timeline is at n_tokens, of those there: before the hole none. */
static inline uint64_t timeline_n_dropped(const struct timeline *timeline, uint64_t n_tokens)
{
    return n_tokens >= timeline->hole.end ? timeline->hole.n_tokens : 0;
}
/* The most tokens that the timeline may grow to when it goes on from `keep`. */
uint64_t afmoe__timeline_limit(const struct timeline *timeline, uint64_t keep);

/* Shared pages are counted here, too. */
uint64_t afmoe__timeline_pages_held(const struct timeline *timeline);
/* This timeline is (`keep` false: was) that of a prefix: see afmoe__pages_keep. */
void afmoe__timeline_keep(struct timeline *timeline, bool keep);
/* Have all pages promised that are taken while the timeline goes back to `keep` tokens and grows to `end`, in whole
 * chunks or (`whole_chunks` false) any. Nothing is held behind the end. Prefixes (prefixes.h) make room where it is
 * needed. CONTEXT_FULL changes nothing. */
afmoe_status afmoe__timeline_promise(struct timeline *timeline, uint64_t keep, uint64_t end, bool whole_chunks,
                                     afmoe_error *error);
/* Return what is left of the promise. */
void afmoe__timeline_settle(struct timeline *timeline);

/* Make `out`, which is empty, the first n_tokens of `timeline`, which can go back there; takes no pages. */
void afmoe__timeline_share(struct timeline *out, struct timeline *timeline, uint64_t n_tokens);

/* Have an empty timeline hold the pages of n_tokens tokens, what lies in them not yet written; sliding layers begin at
 * page `first_sliding`, full layers have this hole. CONTEXT_FULL or NO_MEMORY leave some of them: truncate to 0. */
afmoe_status afmoe__timeline_fill(struct timeline *timeline, uint64_t first_sliding, uint64_t n_tokens,
                                  const struct hole *hole, afmoe_error *error);
/* Make `out`, whose arrays are long enough, what `timeline`, of the same context, is, and `timeline` empty. Cannot
 * fail. */
void afmoe__timeline_move(struct timeline *out, struct timeline *timeline);

/* Take the pages that positions up to n_tokens need, out of the promise, for this timeline alone. */
afmoe_status afmoe__timeline_take(struct timeline *timeline, uint64_t n_tokens, afmoe_error *error);
/* Give back the sliding pages that no window reaches any more and no snapshot has. */
void afmoe__timeline_give_back(struct timeline *timeline);
/* Shorten the timeline (or drop pages taken behind it) to what afmoe__timeline_restart has answered. The promise
 * stays. */
void afmoe__timeline_truncate(struct timeline *timeline, uint64_t n_tokens);

/* Whole pages that the full layers have. */
uint64_t afmoe__timeline_whole_pages(const struct timeline *timeline);
/* Drop n_pages whole pages of the full layers, from the first_page-th of those they have on. Nothing is held behind the
 * end. */
void afmoe__timeline_drop(struct timeline *timeline, uint64_t first_page, uint64_t n_pages);

/* The most tokens, at most n_tokens of those there, to which the timeline can go back and go on from with what is held:
 * n_tokens itself where its window is there, else the end of a snapshot, or 0; never in a hole. */
uint64_t afmoe__timeline_restart(const struct timeline *timeline, uint64_t n_tokens);
uint64_t afmoe__timeline_common_prefix(const struct timeline *timeline, const afmoe_token *tokens, uint64_t n_tokens);

#endif
