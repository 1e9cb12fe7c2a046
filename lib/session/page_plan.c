/* Which pages a timeline holds, see page_plan.h. */
#include "page_plan.h"

void afmoe__page_plan_init(struct page_plan *out, const struct model_config *config, uint64_t rewind_tokens,
                           uint64_t chunk_tokens)
{
    *out = (struct page_plan){.window = config->sliding_window, .rewind_tokens = rewind_tokens,
                              .chunk_tokens = chunk_tokens};
    for (uint32_t layer = 0; layer < config->n_layers; layer++) {
        out->n_full += config->layer_is_full[layer];
        if (!config->layer_is_full[layer]) out->sliding_layer = layer;
    }
    out->n_sliding = config->n_layers - out->n_full;
}

uint64_t afmoe__plan_snapshot_pages(const struct page_plan *plan)
{
    return plan->n_sliding ? plan->n_sliding * page_count(plan->window - 1) : 0;
}

void afmoe__plan_snapshots(struct page_plan *plan, uint64_t snapshot_tokens, uint64_t max_pages)
{
    uint64_t each = afmoe__plan_snapshot_pages(plan);
    plan->snapshot_tokens = page_count(snapshot_tokens) * PAGE_POSITIONS;
    plan->max_snapshots = each ? max_pages / each : 0; /* a window of 1 needs no pages, and none are missed */
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

uint64_t afmoe__plan_interval(const struct page_plan *plan, uint64_t n_tokens)
{
    uint64_t interval = plan->snapshot_tokens;
    if (plan->max_snapshots == 0) return 0;
    while (n_tokens / interval > plan->max_snapshots) interval *= 2;
    return interval;
}

/* The first snapshot behind the page decides: the windows of later ones begin later. */
bool afmoe__plan_in_snapshot(const struct page_plan *plan, uint64_t page, uint64_t n_tokens)
{
    uint64_t interval = afmoe__plan_interval(plan, n_tokens), end = (page + 1) * PAGE_POSITIONS;
    if (interval == 0 || end > n_tokens) return false;
    uint64_t snapshot = (end + interval - 1) / interval * interval;
    return snapshot <= n_tokens && afmoe__plan_window_page(plan, snapshot) <= page;
}

uint64_t afmoe__plan_pages_behind(const struct page_plan *plan, uint64_t first_sliding, uint64_t n_tokens)
{
    uint64_t interval = afmoe__plan_interval(plan, n_tokens), n = 0, counted = 0; /* pages below that */
    for (uint64_t at = interval; at && at <= n_tokens; at += interval) {
        uint64_t begin = afmoe__plan_window_page(plan, at), end = at / PAGE_POSITIONS;
        if (begin < counted) begin = counted;
        if (end > first_sliding) end = first_sliding;
        if (begin >= end) continue;
        n += end - begin;
        counted = end;
    }
    return n;
}

uint64_t afmoe__plan_pages_held(const struct page_plan *plan, uint64_t first_sliding, uint64_t n_tokens)
{
    uint64_t pages = page_count(n_tokens), sliding = pages > first_sliding ? pages - first_sliding : 0;
    return plan->n_full * pages + plan->n_sliding * sliding;
}

/* Without snapshots, PAGE_POSITIONS chunks later a chunk lies at the same place of a page; it holds no fewer pages
 * then, as the last page moves on by chunk_tokens and the first by at most that. So the last such period tells, and the
 * part chunk at the end holds no more than a whole one. With snapshots, of which there are fewer when the interval
 * doubles, all chunks are looked at. */
uint64_t afmoe__plan_most_pages(const struct page_plan *plan, uint64_t first_sliding, uint64_t n_behind, uint64_t begin,
                                uint64_t end)
{
    uint64_t chunk = plan->chunk_tokens, most = 0, n_chunks = (end - begin + chunk - 1) / chunk;
    bool last_period = n_chunks > PAGE_POSITIONS + 1 && plan->max_snapshots == 0 && n_behind == 0;
    for (uint64_t i = last_period ? n_chunks - PAGE_POSITIONS - 1 : 0; i < n_chunks; i++) {
        uint64_t at = begin + i * chunk, kept = afmoe__plan_first_kept(plan, at);
        uint64_t first = i > 0 && kept > first_sliding ? kept : first_sliding;
        uint64_t behind = i > 0 ? afmoe__plan_pages_behind(plan, first, at) : n_behind;
        uint64_t held = afmoe__plan_pages_held(plan, first, end - at < chunk ? end : at + chunk);
        held += plan->n_sliding * behind;
        if (held > most) most = held;
    }
    return most;
}

/* A chunk may begin anywhere; PAGE_POSITIONS further on it holds no fewer pages. Snapshots are counted as many as there
 * may be, so that a growing asks once. */
uint64_t afmoe__plan_most_pages_any_cut(const struct page_plan *plan, uint64_t first_sliding, uint64_t n_behind,
                                        uint64_t begin, uint64_t end)
{
    uint64_t chunk = plan->chunk_tokens, most = 0;
    uint64_t last_period = end - begin > chunk + PAGE_POSITIONS ? end - chunk - PAGE_POSITIONS : begin;
    for (uint64_t at = begin; at < end; at = at == begin && last_period > begin ? last_period : at + 1) {
        uint64_t kept = afmoe__plan_first_kept(plan, at);
        uint64_t first = at > begin && kept > first_sliding ? kept : first_sliding;
        uint64_t held = afmoe__plan_pages_held(plan, first, end - at < chunk ? end : at + chunk);
        if (held > most) most = held;
    }
    uint64_t snapshots = plan->max_snapshots * afmoe__plan_snapshot_pages(plan), behind = plan->n_sliding * n_behind;
    return most + (behind > snapshots ? behind : snapshots);
}
