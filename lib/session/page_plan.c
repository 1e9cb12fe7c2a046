/* Which pages a timeline holds, see page_plan.h. */
#include "page_plan.h"

void afmoe__page_plan_init(struct page_plan *out, const struct model_config *config, uint64_t rewind_tokens,
                           uint64_t chunk_tokens)
{
    *out = (struct page_plan){.window = config->sliding_window, .rewind_tokens = rewind_tokens,
                              .chunk_tokens = chunk_tokens};
    for (uint32_t layer = 0; layer < config->n_layers; layer++) out->n_full += config->layer_is_full[layer];
    out->n_sliding = config->n_layers - out->n_full;
}

uint64_t afmoe__plan_window_page(const struct page_plan *plan, uint64_t position)
{
    if (plan->n_sliding == 0) return 0;
    return position >= plan->window ? (position - plan->window + 1) / PAGE_POSITIONS : 0;
}

uint64_t afmoe__plan_first_kept(const struct page_plan *plan, uint64_t n_tokens)
{
    return afmoe__plan_window_page(plan, n_tokens > plan->rewind_tokens ? n_tokens - plan->rewind_tokens : 0);
}

uint64_t afmoe__plan_pages_held(const struct page_plan *plan, uint64_t first_sliding, uint64_t n_tokens)
{
    uint64_t pages = page_count(n_tokens), sliding = pages > first_sliding ? pages - first_sliding : 0;
    return plan->n_full * pages + plan->n_sliding * sliding;
}

/* PAGE_POSITIONS chunks later a chunk lies at the same place of a page; it holds no fewer pages then, as the last page
 * moves on by chunk_tokens and the first by at most that. So the last such period tells, and the part chunk at the end
 * holds no more than a whole one. */
uint64_t afmoe__plan_most_pages(const struct page_plan *plan, uint64_t first_sliding, uint64_t begin, uint64_t end)
{
    uint64_t chunk = plan->chunk_tokens, most = 0, n_chunks = (end - begin + chunk - 1) / chunk;
    uint64_t first_chunk = n_chunks > PAGE_POSITIONS + 1 ? n_chunks - PAGE_POSITIONS - 1 : 0;
    for (uint64_t i = first_chunk; i < n_chunks; i++) {
        uint64_t at = begin + i * chunk, kept = afmoe__plan_first_kept(plan, at);
        uint64_t first = i > 0 && kept > first_sliding ? kept : first_sliding;
        uint64_t held = afmoe__plan_pages_held(plan, first, end - at < chunk ? end : at + chunk);
        if (held > most) most = held;
    }
    return most;
}

/* A chunk may begin anywhere; PAGE_POSITIONS further on it holds no fewer pages. */
uint64_t afmoe__plan_most_pages_any_cut(const struct page_plan *plan, uint64_t first_sliding, uint64_t begin,
                                        uint64_t end)
{
    uint64_t chunk = plan->chunk_tokens, most = 0;
    uint64_t last_period = end - begin > chunk + PAGE_POSITIONS ? end - chunk - PAGE_POSITIONS : begin;
    for (uint64_t at = begin; at < end; at = at == begin && last_period > begin ? last_period : at + 1) {
        uint64_t kept = afmoe__plan_first_kept(plan, at);
        uint64_t first = at > begin && kept > first_sliding ? kept : first_sliding;
        uint64_t held = afmoe__plan_pages_held(plan, first, end - at < chunk ? end : at + chunk);
        if (held > most) most = held;
    }
    return most;
}
