/* A timeline: tokens, and the pages that hold their keys and values; which pages those are: page_plan.h.
 *
 * Pages are promised before a change begins (afmoe__timeline_promise), taken as tokens are computed, given back as they
 * leave the windows that may still be asked for, and what is promised but not held is returned at the end (settle). */
#ifndef AFMOE_SESSION_TIMELINE_H
#define AFMOE_SESSION_TIMELINE_H

#include "cells.h"
#include "context.h"

#include <stdbool.h>

struct timeline {
    struct context *context;
    afmoe_token *tokens; /* [max_tokens] */
    uint64_t n_tokens;
    struct cells cells;
    uint64_t first_sliding_page; /* lower ones were given back by the sliding layers */
    uint64_t n_promised;         /* pages */
};

/* Place the arrays at `base` (a multiple of a cache line); with base NULL only count. The bytes they take. */
uint64_t afmoe__timeline_layout(struct timeline *timeline, const struct context *context, uint8_t *base);

uint64_t afmoe__timeline_pages_held(const struct timeline *timeline);
/* Have at least n_pages promised; CONTEXT_FULL changes nothing. */
afmoe_status afmoe__timeline_promise(struct timeline *timeline, uint64_t n_pages, afmoe_error *error);
/* Promise exactly what is held now; lowering a promise cannot fail. */
void afmoe__timeline_settle(struct timeline *timeline);

/* Take the pages that positions up to n_tokens need, within the promise. */
afmoe_status afmoe__timeline_take(struct timeline *timeline, uint64_t n_tokens, afmoe_error *error);
/* Give back the sliding pages that no window reaches any more. */
void afmoe__timeline_give_back(struct timeline *timeline);
/* Shorten the timeline (or drop pages taken behind it); the caller has made sure that the sliding pages for what comes
 * next are there, or n is 0. The promise stays. */
void afmoe__timeline_truncate(struct timeline *timeline, uint64_t n_tokens);

/* Can the timeline go back to n tokens and go on from there with what is held? */
bool afmoe__timeline_can_go_back(const struct timeline *timeline, uint64_t n_tokens);
uint64_t afmoe__timeline_common_prefix(const struct timeline *timeline, const afmoe_token *tokens, uint64_t n_tokens);

#endif
