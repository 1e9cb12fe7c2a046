/* A timeline: tokens and the pages that hold their keys and values, see timeline.h. */
#include "timeline.h"

#include "context_private.h"
#include "error.h"
#include "memory.h"
#include "prefixes.h"

#include <string.h>

uint64_t afmoe__timeline_layout(struct timeline *timeline, const struct context *context, uint64_t n_tokens,
                                uint8_t *base)
{
    uint64_t used = 0;
    timeline->capacity = n_tokens;
    timeline->cells.n_slots = page_count(n_tokens);
    timeline->cells.pages = carve(base, &used, context->config->n_layers * timeline->cells.n_slots, sizeof(uint8_t *));
    timeline->tokens = carve(base, &used, n_tokens, sizeof(afmoe_token));
    return used;
}

void afmoe__timeline_clear(struct timeline *timeline)
{
    uint64_t n = timeline->context->config->n_layers * timeline->cells.n_slots;
    memset(timeline->cells.pages, 0, n * sizeof *timeline->cells.pages);
}

uint64_t afmoe__timeline_limit(const struct timeline *timeline, uint64_t keep)
{
    const struct context *context = timeline->context;
    uint64_t limit = context->max_tokens + timeline_n_dropped(timeline, keep);
    if (context->config->rope.kind == ROPE_DYNAMIC && limit > context->config->max_positions)
        return context->config->max_positions; /* further on keys depend on the final length */
    return limit;
}

/* ---- Slots ---- */

/* Where a page, which is there or behind the end, lies in the table of a layer. */
static uint64_t slot_of(const struct timeline *timeline, uint32_t layer, uint64_t page)
{
    if (!timeline->context->config->layer_is_full[layer]) return page;
    return page - timeline_n_dropped(timeline, page * PAGE_POSITIONS) / PAGE_POSITIONS;
}

static uint8_t **page_slot(struct timeline *timeline, uint32_t layer, uint64_t page)
{
    return &timeline->cells.pages[layer * timeline->cells.n_slots + slot_of(timeline, layer, page)];
}

/* How many slots the pages [begin, end) of a layer have; neither of the two is in the hole. */
static uint64_t n_slots_of(const struct timeline *timeline, uint32_t layer, uint64_t begin, uint64_t end)
{
    return slot_of(timeline, layer, end) - slot_of(timeline, layer, begin);
}

/* Release pages [begin, end) of the full layers, the sliding layers, or both. */
static void release_pages(struct timeline *timeline, uint64_t begin, uint64_t end, bool full, bool sliding)
{
    const struct model_config *config = timeline->context->config;
    for (uint32_t layer = 0; layer < config->n_layers && begin < end; layer++)
        if (config->layer_is_full[layer] ? full : sliding)
            afmoe__pages_release(timeline->context->pages, page_slot(timeline, layer, begin),
                                 n_slots_of(timeline, layer, begin, end), &timeline->n_promised);
}

/* Pages that full layers together have less than the plan says, at n_tokens. */
static uint64_t pages_dropped(const struct timeline *timeline, uint64_t n_tokens)
{
    return timeline->context->plan.n_full * timeline_n_dropped(timeline, n_tokens) / PAGE_POSITIONS;
}

uint64_t afmoe__timeline_pages_held(const struct timeline *timeline)
{
    const struct page_plan *plan = &timeline->context->plan;
    return afmoe__plan_pages_held(plan, timeline->first_sliding_page, timeline->n_tokens) +
           plan->n_sliding * timeline->n_behind - pages_dropped(timeline, timeline->n_tokens);
}

/* ---- Going back ---- */

static bool has_sliding_page(const struct timeline *timeline, uint64_t page)
{
    return timeline->cells.pages[timeline->context->plan.sliding_layer * timeline->cells.n_slots + page] != NULL;
}

/* Of n_tokens: where the sliding pages begin that are there up to their end, and how many are before that. */
static void find_sliding(const struct timeline *timeline, uint64_t n_tokens, uint64_t *out_first, uint64_t *out_behind)
{
    uint64_t first = page_count(n_tokens);
    *out_first = timeline->first_sliding_page;
    *out_behind = timeline->n_behind;
    if (first > timeline->first_sliding_page || timeline->context->plan.n_sliding == 0) return;
    while (first > 0 && has_sliding_page(timeline, first - 1)) first--;
    *out_first = first;
    *out_behind = 0;
    for (uint64_t page = 0; page < first; page++) *out_behind += has_sliding_page(timeline, page);
}

/* As restart, as far as sliding layers go. */
static uint64_t sliding_restart(const struct timeline *timeline, uint64_t n_tokens)
{
    const struct page_plan *plan = &timeline->context->plan;
    if (timeline->first_sliding_page <= afmoe__plan_window_page(plan, n_tokens)) return n_tokens;
    for (uint64_t page = page_count(n_tokens); page > 0;) { /* runs of pages, the last one first */
        if (!has_sliding_page(timeline, page - 1)) {
            page--;
            continue;
        }
        uint64_t end = page * PAGE_POSITIONS < n_tokens ? page * PAGE_POSITIONS : n_tokens;
        while (page > 0 && has_sliding_page(timeline, page - 1)) page--;
        if (page <= afmoe__plan_window_page(plan, end)) return end;
    }
    return 0;
}

uint64_t afmoe__timeline_restart(const struct timeline *timeline, uint64_t n_tokens)
{
    uint64_t n = sliding_restart(timeline, n_tokens), before = timeline->hole.begin;
    if (n >= timeline->hole.end) return n;
    return sliding_restart(timeline, n < before ? n : before);
}

/* ---- Promises ---- */

/* Of pages [begin, end), of full layers only or of all. */
static uint64_t count_shared(struct timeline *timeline, uint64_t begin, uint64_t end, bool full_only)
{
    const struct model_config *config = timeline->context->config;
    uint64_t n = 0;
    for (uint32_t layer = 0; layer < config->n_layers && begin < end && timeline->may_share; layer++)
        if (!full_only || config->layer_is_full[layer])
            n += afmoe__pages_n_shared(timeline->context->pages, page_slot(timeline, layer, begin),
                                       n_slots_of(timeline, layer, begin, end));
    return n;
}

/* Two bounds. No more are taken than there are empty slots to fill and shared pages to copy. And: at no time more are
 * held than the plan says, of which those shared in full layers stay shared, as they are behind the end; what this
 * timeline alone holds now comes back to the promise before anything is taken in its place. */
static uint64_t pages_to_take(struct timeline *timeline, uint64_t keep, uint64_t end, bool whole_chunks)
{
    const struct page_plan *plan = &timeline->context->plan;
    uint64_t n_layers = plan->n_full + plan->n_sliding, page = keep / PAGE_POSITIONS;
    uint64_t taken = n_layers * (page_count(end) - page_count(keep));
    if (end > keep && keep % PAGE_POSITIONS) taken += count_shared(timeline, page, page + 1, false);
    if (taken == 0) return 0;
    uint64_t first, n_behind;
    find_sliding(timeline, keep, &first, &n_behind);
    uint64_t most = whole_chunks ? afmoe__plan_most_pages(plan, first, n_behind, keep, end)
                                 : afmoe__plan_most_pages_any_cut(plan, first, n_behind, keep, end);
    most -= pages_dropped(timeline, keep);
    uint64_t there = afmoe__timeline_pages_held(timeline) - count_shared(timeline, 0, timeline->n_slots_used, false) +
                     count_shared(timeline, 0, page, true);
    uint64_t more = most > there ? most - there : 0;
    return more < taken ? more : taken;
}

/* Counted anew each time: what prefixes shared with this timeline may be its own now. */
afmoe_status afmoe__timeline_promise(struct timeline *timeline, uint64_t keep, uint64_t end, bool whole_chunks,
                                     afmoe_error *error)
{
    struct context *context = timeline->context;
    afmoe_status status;
    do {
        uint64_t n = pages_to_take(timeline, keep, end, whole_chunks);
        status = n ? afmoe__pages_promise(context->pages, &timeline->n_promised, n, error) : AFMOE_OK;
    } while (status == AFMOE_CONTEXT_FULL && afmoe__prefixes_drop_oldest(context->prefixes));
    return status;
}

void afmoe__timeline_settle(struct timeline *timeline)
{
    if (timeline->n_promised) afmoe__pages_promise(timeline->context->pages, &timeline->n_promised, 0, NULL);
}

/* ---- Growing and shrinking ---- */

void afmoe__timeline_truncate(struct timeline *timeline, uint64_t n_tokens)
{
    find_sliding(timeline, n_tokens, &timeline->first_sliding_page, &timeline->n_behind);
    release_pages(timeline, page_count(n_tokens), timeline->n_slots_used, true, true);
    timeline->n_slots_used = page_count(n_tokens);
    timeline->n_tokens = n_tokens;
    timeline->may_share = timeline->may_share && n_tokens > 0;
    if (n_tokens < timeline->hole.end) timeline->hole = (struct hole){.n_tokens = 0};
}

void afmoe__timeline_keep(struct timeline *timeline, bool keep)
{
    const struct context *context = timeline->context;
    for (uint32_t layer = 0; layer < context->config->n_layers; layer++)
        afmoe__pages_keep(context->pages, page_slot(timeline, layer, 0),
                          n_slots_of(timeline, layer, 0, timeline->n_slots_used), keep);
}

void afmoe__timeline_share(struct timeline *out, struct timeline *timeline, uint64_t n_tokens)
{
    struct context *context = timeline->context;
    uint64_t n_pages = page_count(n_tokens);
    for (uint32_t layer = 0; layer < context->config->n_layers; layer++) {
        uint64_t n = n_slots_of(timeline, layer, 0, n_pages);
        memcpy(page_slot(out, layer, 0), page_slot(timeline, layer, 0), n * sizeof(uint8_t *));
        afmoe__pages_retain(context->pages, page_slot(out, layer, 0), n);
    }
    memcpy(out->tokens, timeline->tokens, n_tokens * sizeof *out->tokens);
    out->n_tokens = n_tokens;
    out->n_slots_used = n_pages;
    out->interval = timeline->interval;
    if (n_tokens >= timeline->hole.end) out->hole = timeline->hole;
    find_sliding(timeline, n_tokens, &out->first_sliding_page, &out->n_behind);
    out->may_share = timeline->may_share = n_tokens > 0 || timeline->may_share;
}

/* Give back those sliding pages of [begin, end) that are in no snapshot; how many of them are left. */
static uint64_t give_back(struct timeline *timeline, uint64_t begin, uint64_t end)
{
    const struct page_plan *plan = &timeline->context->plan;
    uint64_t n_left = 0;
    while (begin < end) {
        uint64_t page = begin;
        while (page < end && !afmoe__plan_in_snapshot(plan, page, timeline->n_tokens)) page++;
        release_pages(timeline, begin, page, false, true);
        for (; page < end && afmoe__plan_in_snapshot(plan, page, timeline->n_tokens); page++)
            n_left += has_sliding_page(timeline, page);
        begin = page;
    }
    return n_left;
}

void afmoe__timeline_give_back(struct timeline *timeline)
{
    const struct page_plan *plan = &timeline->context->plan;
    uint64_t kept = afmoe__plan_first_kept(plan, timeline->n_tokens), first = timeline->first_sliding_page;
    uint64_t interval = afmoe__plan_interval(plan, timeline->n_tokens);
    if (timeline->n_behind && interval != timeline->interval) timeline->n_behind = give_back(timeline, 0, first);
    timeline->interval = interval;
    if (kept <= first) return;
    timeline->n_behind += give_back(timeline, first, kept);
    timeline->first_sliding_page = kept;
}

void afmoe__timeline_move(struct timeline *out, struct timeline *timeline)
{
    const struct context *context = timeline->context;
    afmoe__timeline_truncate(out, 0);
    for (uint32_t layer = 0; layer < context->config->n_layers; layer++) {
        uint64_t n_bytes = timeline->n_slots_used * sizeof(uint8_t *);
        memcpy(page_slot(out, layer, 0), page_slot(timeline, layer, 0), n_bytes);
        memset(page_slot(timeline, layer, 0), 0, n_bytes);
    }
    memcpy(out->tokens, timeline->tokens, timeline->n_tokens * sizeof *out->tokens);
    out->n_tokens = timeline->n_tokens;
    out->n_slots_used = timeline->n_slots_used;
    out->hole = timeline->hole;
    out->first_sliding_page = timeline->first_sliding_page;
    out->n_behind = timeline->n_behind;
    out->interval = timeline->interval;
    out->may_share = timeline->may_share;
    timeline->n_slots_used = 0;
    timeline->hole = (struct hole){.n_tokens = 0};
    afmoe__timeline_truncate(timeline, 0);
    afmoe__timeline_settle(out);
}

/* When memory is out, prefixes make room. */
static uint8_t *take_new_page(struct timeline *timeline)
{
    struct context *context = timeline->context;
    uint8_t *page;
    do {
        page = afmoe__pages_take(context->pages, &timeline->n_promised);
    } while (!page && afmoe__prefixes_drop_oldest(context->prefixes));
    return page;
}

/* An empty slot gets a page; one that others read gets a copy of its own. */
static bool take_page(struct timeline *timeline, uint8_t **slot)
{
    struct page_store *pages = timeline->context->pages;
    if (*slot && !(timeline->may_share && afmoe__pages_n_shared(pages, slot, 1))) return true;
    uint8_t *page = take_new_page(timeline);
    if (!page) return false;
    if (*slot) memcpy(page, *slot, afmoe__pages_page_bytes(pages));
    afmoe__pages_release(pages, slot, 1, &timeline->n_promised);
    *slot = page;
    return true;
}

afmoe_status afmoe__timeline_fill(struct timeline *timeline, uint64_t first_sliding, uint64_t n_tokens,
                                  const struct hole *hole, afmoe_error *error)
{
    struct context *context = timeline->context;
    timeline->hole = *hole;
    uint64_t n_pages = page_count(n_tokens), n_full_pages = n_pages - hole->n_tokens / PAGE_POSITIONS;
    uint64_t n = afmoe__plan_pages_held(&context->plan, first_sliding, n_tokens) - pages_dropped(timeline, n_tokens);
    afmoe_status status;
    do {
        status = afmoe__pages_promise(context->pages, &timeline->n_promised, n, error);
    } while (status == AFMOE_CONTEXT_FULL && afmoe__prefixes_drop_oldest(context->prefixes));
    if (status != AFMOE_OK) return status;
    timeline->n_slots_used = n_pages;
    timeline->first_sliding_page = first_sliding;
    for (uint32_t layer = 0; layer < context->config->n_layers; layer++) {
        bool full = context->config->layer_is_full[layer];
        uint8_t **slots = page_slot(timeline, layer, 0);
        for (uint64_t slot = full ? 0 : first_sliding; slot < (full ? n_full_pages : n_pages); slot++)
            if (!take_page(timeline, &slots[slot]))
                return afmoe__fail_memory(error, afmoe__pages_page_bytes(context->pages), "a key/value page");
    }
    timeline->n_tokens = n_tokens;
    return AFMOE_OK;
}

afmoe_status afmoe__timeline_take(struct timeline *timeline, uint64_t n_tokens, afmoe_error *error)
{
    const struct context *context = timeline->context;
    /* A pass that is made again may have fewer rows than before. */
    if (page_count(n_tokens) > timeline->n_slots_used) timeline->n_slots_used = page_count(n_tokens);
    for (uint64_t page = timeline->n_tokens / PAGE_POSITIONS; page < page_count(n_tokens); page++)
        for (uint32_t layer = 0; layer < context->config->n_layers; layer++)
            if (!take_page(timeline, page_slot(timeline, layer, page)))
                return afmoe__fail_memory(error, afmoe__pages_page_bytes(context->pages), "a key/value page");
    return AFMOE_OK;
}

/* ---- Dropping ---- */

uint64_t afmoe__timeline_whole_pages(const struct timeline *timeline)
{
    return (timeline->n_tokens - timeline->hole.n_tokens) / PAGE_POSITIONS;
}

/* The new hole goes from the first to the last page that is missing. */
static void widen_hole(struct hole *hole, uint64_t first_page, uint64_t n_pages)
{
    uint64_t begin = first_page * PAGE_POSITIONS, end = (first_page + n_pages) * PAGE_POSITIONS;
    if (hole->n_tokens == 0 || begin < hole->begin) hole->begin = begin;
    if (end + hole->n_tokens > hole->end) hole->end = end + hole->n_tokens;
    hole->n_tokens += n_pages * PAGE_POSITIONS;
}

void afmoe__timeline_drop(struct timeline *timeline, uint64_t first_page, uint64_t n_pages)
{
    const struct context *context = timeline->context;
    uint64_t n_slots = timeline->n_slots_used - timeline->hole.n_tokens / PAGE_POSITIONS;
    uint64_t n_behind = n_slots - first_page - n_pages;
    for (uint32_t layer = 0; layer < context->config->n_layers; layer++) {
        if (!context->config->layer_is_full[layer]) continue;
        uint8_t **slots = page_slot(timeline, layer, 0) + first_page;
        afmoe__pages_release(context->pages, slots, n_pages, &timeline->n_promised);
        memmove(slots, slots + n_pages, n_behind * sizeof *slots);
        memset(slots + n_behind, 0, n_pages * sizeof *slots);
    }
    widen_hole(&timeline->hole, first_page, n_pages);
    afmoe__timeline_settle(timeline);
}

uint64_t afmoe__timeline_common_prefix(const struct timeline *timeline, const afmoe_token *tokens, uint64_t n_tokens)
{
    uint64_t n = 0;
    while (n < n_tokens && n < timeline->n_tokens && tokens[n] == timeline->tokens[n]) n++;
    return n;
}
