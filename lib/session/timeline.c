/* A timeline: tokens and the pages that hold their keys and values, see timeline.h. */
#include "timeline.h"

#include "context_private.h"
#include "error.h"
#include "memory.h"

uint64_t afmoe__timeline_layout(struct timeline *timeline, const struct context *context, uint8_t *base)
{
    uint64_t used = 0;
    timeline->cells.n_slots = page_count(context->max_tokens);
    timeline->cells.pages = carve(base, &used, context->config->n_layers * timeline->cells.n_slots, sizeof(uint8_t *));
    timeline->tokens = carve(base, &used, context->max_tokens, sizeof(afmoe_token));
    return used;
}

static uint8_t **page_slot(struct timeline *timeline, uint32_t layer, uint64_t page)
{
    return &timeline->cells.pages[layer * timeline->cells.n_slots + page];
}

/* Release pages [begin, end) of the full layers, the sliding layers, or both. */
static void release_pages(struct timeline *timeline, uint64_t begin, uint64_t end, bool full, bool sliding)
{
    const struct model_config *config = timeline->context->config;
    for (uint32_t layer = 0; layer < config->n_layers; layer++) {
        if (config->layer_is_full[layer] ? !full : !sliding) continue;
        for (uint64_t page = begin; page < end; page++) {
            uint8_t **slot = page_slot(timeline, layer, page);
            afmoe__pages_release(timeline->context->pages, *slot);
            *slot = NULL;
        }
    }
}

uint64_t afmoe__timeline_pages_held(const struct timeline *timeline)
{
    return afmoe__plan_pages_held(&timeline->context->plan, timeline->first_sliding_page, timeline->n_tokens);
}

afmoe_status afmoe__timeline_promise(struct timeline *timeline, uint64_t n_pages, afmoe_error *error)
{
    if (n_pages <= timeline->n_promised) return AFMOE_OK;
    return afmoe__pages_promise(timeline->context->pages, &timeline->n_promised, n_pages, error);
}

void afmoe__timeline_settle(struct timeline *timeline)
{
    afmoe__pages_promise(timeline->context->pages, &timeline->n_promised, afmoe__timeline_pages_held(timeline), NULL);
}

void afmoe__timeline_truncate(struct timeline *timeline, uint64_t n_tokens)
{
    if (n_tokens == 0) timeline->first_sliding_page = 0;
    release_pages(timeline, page_count(n_tokens), timeline->cells.n_slots, true, true);
    timeline->n_tokens = n_tokens;
}

bool afmoe__timeline_can_go_back(const struct timeline *timeline, uint64_t n_tokens)
{
    return timeline->first_sliding_page <= afmoe__plan_window_page(&timeline->context->plan, n_tokens);
}

void afmoe__timeline_give_back(struct timeline *timeline)
{
    uint64_t kept = afmoe__plan_first_kept(&timeline->context->plan, timeline->n_tokens);
    if (kept <= timeline->first_sliding_page) return;
    release_pages(timeline, timeline->first_sliding_page, kept, false, true);
    timeline->first_sliding_page = kept;
}

afmoe_status afmoe__timeline_take(struct timeline *timeline, uint64_t n_tokens, afmoe_error *error)
{
    struct context *context = timeline->context;
    for (uint64_t page = timeline->n_tokens / PAGE_POSITIONS; page < page_count(n_tokens); page++)
        for (uint32_t layer = 0; layer < context->config->n_layers; layer++) {
            uint8_t **slot = page_slot(timeline, layer, page);
            if (!*slot) *slot = afmoe__pages_take(context->pages);
            if (!*slot) return afmoe__fail_memory(error, afmoe__pages_page_bytes(context->pages), "a key/value page");
        }
    return AFMOE_OK;
}

uint64_t afmoe__timeline_common_prefix(const struct timeline *timeline, const afmoe_token *tokens, uint64_t n_tokens)
{
    uint64_t n = 0;
    while (n < n_tokens && n < timeline->n_tokens && tokens[n] == timeline->tokens[n]) n++;
    return n;
}
