/* Session: a timeline and the logits of its last position, see session.h. */
#include "append_check.h"
#include "context_private.h"
#include "error.h"
#include "memory.h"
#include "session_private.h"
#include "step.h"

#include <string.h>

/* Place all buffers in one block, for a timeline of `capacity` tokens; with base NULL only count. The sizes fit: every
 * factor has passed the config's ranges, max_tokens is at most max_positions, and what is more were tokens once. */
static uint64_t lay_out(struct session *session, const struct context *context, uint64_t capacity, uint8_t *base)
{
    const struct model_config *config = context->config;
    uint64_t used = afmoe__timeline_layout(&session->timeline, context, capacity, base);
    session->logits = carve(base, &used, config->vocab_size, sizeof(float));
    session->hidden = carve(base, &used, config->hidden_size, sizeof(float));
    session->wanted = carve(base, &used, context->plan.chunk_tokens, sizeof(uint64_t));
    return used;
}

uint64_t afmoe__session_bytes(const struct context *context)
{
    struct session session;
    return sizeof session + lay_out(&session, context, context->max_tokens, NULL);
}

afmoe_status afmoe__session_create(struct session **out, struct context *context, afmoe_error *error)
{
    *out = NULL;
    struct session *session = afmoe__alloc_zeroed(1, sizeof *session);
    if (!session) return afmoe__fail_memory(error, sizeof *session, "a session");
    session->block_bytes = lay_out(session, context, context->max_tokens, NULL);
    session->block = afmoe__alloc_zeroed(session->block_bytes, 1);
    if (!session->block) {
        afmoe_status status = afmoe__fail_memory(error, session->block_bytes, "the buffers of a session");
        afmoe__free(session);
        return status;
    }
    lay_out(session, context, context->max_tokens, session->block);
    session->timeline.context = context;
    atomic_fetch_add(&context->n_sessions, 1);
    atomic_fetch_add(&context->session_bytes, sizeof *session + session->block_bytes);
    *out = session;
    return AFMOE_OK;
}

/* What the buffers of `from` hold, into those of `to`, which are as long or longer. */
static void copy_buffers(struct session *to, const struct session *from)
{
    const struct timeline *timeline = &from->timeline;
    const struct model_config *config = timeline->context->config;
    for (uint32_t layer = 0; layer < config->n_layers; layer++)
        memcpy(to->timeline.cells.pages + layer * to->timeline.cells.n_slots,
               timeline->cells.pages + layer * timeline->cells.n_slots, timeline->n_slots_used * sizeof(uint8_t *));
    memcpy(to->timeline.tokens, timeline->tokens, timeline->n_tokens * sizeof *timeline->tokens);
    memcpy(to->logits, from->logits, config->vocab_size * sizeof(float));
    memcpy(to->hidden, from->hidden, config->hidden_size * sizeof(float));
}

afmoe_status afmoe__session_reserve(struct session *session, uint64_t n_dropped, afmoe_error *error)
{
    struct context *context = session->timeline.context;
    uint64_t capacity = context->max_tokens + n_dropped;
    struct session old = *session;
    if (capacity <= session->timeline.capacity) return AFMOE_OK;
    uint64_t block_bytes = lay_out(&old, context, capacity, NULL);
    uint8_t *block = afmoe__alloc_zeroed(block_bytes, 1);
    if (!block) return afmoe__fail_memory(error, block_bytes, "the buffers of a session");
    old = *session;
    lay_out(session, context, capacity, block);
    copy_buffers(session, &old);
    session->block = block;
    session->block_bytes = block_bytes;
    atomic_fetch_add(&context->session_bytes, block_bytes - old.block_bytes);
    afmoe__free(old.block);
    return AFMOE_OK;
}

afmoe_status afmoe__session_fork(struct session **out, struct session *session, afmoe_error *error)
{
    const struct model_config *config = session->timeline.context->config;
    afmoe_status status = afmoe__session_create(out, session->timeline.context, error);
    if (status != AFMOE_OK) return status;
    struct session *fork = *out;
    status = afmoe__session_reserve(fork, session->timeline.hole.n_tokens, error);
    if (status != AFMOE_OK) {
        afmoe__session_free(fork);
        *out = NULL;
        return status;
    }
    afmoe__timeline_share(&fork->timeline, &session->timeline, session->timeline.n_tokens);
    fork->has_logits = session->has_logits;
    if (!fork->has_logits) return AFMOE_OK;
    memcpy(fork->logits, session->logits, config->vocab_size * sizeof(float));
    memcpy(fork->hidden, session->hidden, config->hidden_size * sizeof(float));
    return AFMOE_OK;
}

static void leave_prefix(struct session *session)
{
    struct context *context = session->timeline.context;
    struct timeline *timeline = &session->timeline;
    if (timeline->hole.n_tokens) /* what comes behind it is not what its tokens alone would give */
        afmoe__session_truncate(session, afmoe__timeline_restart(timeline, timeline->hole.begin));
    afmoe__prefix_folder_leave(context->prefix_folder, session);
    afmoe__prefixes_leave(context->prefixes, timeline);
}

void afmoe__session_free(struct session *session)
{
    if (!session) return;
    afmoe__session_end_drafts(session);
    if (afmoe__context_check_process(session->timeline.context, NULL) == AFMOE_OK) leave_prefix(session);
    afmoe__timeline_truncate(&session->timeline, 0);
    afmoe__timeline_settle(&session->timeline);
    atomic_fetch_sub(&session->timeline.context->session_bytes, sizeof *session + session->block_bytes);
    if (atomic_fetch_sub(&session->timeline.context->n_sessions, 1) == 1)
        afmoe__pages_trim(session->timeline.context->pages); /* prefixes alone take none */
    afmoe__free(session->block);
    afmoe__free(session);
}

void afmoe__session_truncate(struct session *session, uint64_t n_tokens)
{
    afmoe__timeline_truncate(&session->timeline, n_tokens);
    session->has_logits = false;
}

/* ---- The calls ---- */

static void begin_result(const struct session *session, afmoe_append_result *result)
{
    result->n_tokens = session->timeline.n_tokens;
    result->n_reused = result->n_computed = 0;
}

afmoe_status afmoe__session_grow(struct session *session, uint64_t keep, const afmoe_token *tokens, uint64_t n_tokens,
                                 const afmoe_append_options *options, struct pooling *pooling,
                                 afmoe_append_result *result, afmoe_error *error)
{
    afmoe__growth_ask(session, options, pooling);
    afmoe_status status = afmoe__growth_begin(session, keep, tokens, n_tokens, true, error);
    if (status != AFMOE_OK) return status;
    status = afmoe__step_alone(session);
    result->n_tokens = session->growth.result.n_tokens;
    result->n_computed = session->growth.result.n_computed;
    return status;
}

/* Values that are asked for at kept tokens have to be made: keep less. */
static uint64_t keep_what_is_not_wanted(const struct session *session, uint64_t keep,
                                        const afmoe_append_options *options)
{
    uint64_t first = options->logprob_begin; /* needs the logits of the token before it */
    if (options->n_positions && options->positions && options->positions[0] < keep) keep = options->positions[0];
    if (first < options->logprob_end && first > 0 && first <= keep &&
        !(first == keep && keep == session->timeline.n_tokens && session->has_logits))
        keep = first - 1;
    return keep;
}

/* A new session begins with what finished ones have left of these tokens: how many it has then. The last token is
 * computed in any case, for its logits. */
static uint64_t begin_with_prefix(struct session *session, const afmoe_token *tokens, uint64_t n_tokens,
                                  const afmoe_append_options *options)
{
    if (session->timeline.n_tokens > 0 || n_tokens < 2) return 0;
    uint64_t most = keep_what_is_not_wanted(session, n_tokens - 1, options);
    struct context *context = session->timeline.context;
    afmoe__prefixes_take(context->prefixes, &session->timeline, tokens, most);
    return afmoe__prefix_folder_take(context->prefix_folder, session, tokens, n_tokens, most);
}

/* The pages behind it were not to be had: the session is as empty as before. */
static void drop_prefix(struct session *session)
{
    afmoe__timeline_truncate(&session->timeline, 0);
    afmoe__timeline_settle(&session->timeline);
}

static void count_reused(struct session *session, uint64_t n, afmoe_append_result *result)
{
    session->stats.n_reused += n;
    result->n_reused = n;
}

afmoe_status afmoe__session_append_begin(struct session *session, const afmoe_token *tokens, uint64_t n_tokens,
                                         const afmoe_append_options *options, bool alone, afmoe_error *error)
{
    uint64_t begin = session->timeline.n_tokens;
    begin_result(session, &session->growth.result);
    afmoe_status status = afmoe__append_check_room(&session->timeline, begin, begin, n_tokens, error);
    if (status == AFMOE_OK) status = afmoe__append_check_tokens(&session->timeline, tokens, n_tokens, error);
    if (status == AFMOE_OK)
        status = afmoe__append_check_options(&session->timeline, begin, begin + n_tokens, session->has_logits, options,
                                             error);
    if (status != AFMOE_OK) return status;
    uint64_t known = begin_with_prefix(session, tokens, n_tokens, options);
    afmoe__growth_ask(session, options, NULL);
    status = afmoe__growth_begin(session, begin + known, tokens ? tokens + known : NULL, n_tokens - known, alone,
                                 error);
    if (status == AFMOE_OK)
        count_reused(session, known, &session->growth.result);
    else if (known)
        drop_prefix(session);
    return status;
}

afmoe_status afmoe__session_append(struct session *session, const afmoe_token *tokens, uint64_t n_tokens,
                                   const afmoe_append_options *options, afmoe_append_result *result,
                                   afmoe_error *error)
{
    afmoe_status status = afmoe__session_append_begin(session, tokens, n_tokens, options, true, error);
    if (status == AFMOE_OK) status = afmoe__step_alone(session);
    *result = session->growth.result;
    return status;
}

afmoe_status afmoe__session_sync(struct session *session, const afmoe_token *tokens, uint64_t n_tokens,
                                 const afmoe_append_options *options, afmoe_append_result *result,
                                 afmoe_error *error)
{
    begin_result(session, result);
    afmoe_status status =
        afmoe__append_check_room(&session->timeline, session->timeline.n_tokens, 0, n_tokens, error);
    if (status == AFMOE_OK) status = afmoe__append_check_tokens(&session->timeline, tokens, n_tokens, error);
    if (status != AFMOE_OK) return status;

    uint64_t keep = afmoe__timeline_common_prefix(&session->timeline, tokens, n_tokens);
    bool same = keep == n_tokens && keep == session->timeline.n_tokens && (session->has_logits || keep == 0);
    if (!same && keep == n_tokens && keep > 0) keep--; /* the logits of the last token have to be made */
    keep = keep_what_is_not_wanted(session, keep, options);
    keep = afmoe__timeline_restart(&session->timeline, keep);
    bool has_logits = session->has_logits && keep == session->timeline.n_tokens;
    status = afmoe__append_check_room(&session->timeline, keep, 0, n_tokens, error);
    if (status == AFMOE_OK)
        status = afmoe__append_check_options(&session->timeline, keep, n_tokens, has_logits, options, error);
    if (status != AFMOE_OK) return status;

    uint64_t known = begin_with_prefix(session, tokens, n_tokens, options);
    keep += known; /* one of the two is 0 */
    status = afmoe__session_grow(session, keep, tokens ? tokens + keep : NULL, n_tokens - keep, options, NULL, result,
                                 error);
    if (status != AFMOE_CONTEXT_FULL)
        count_reused(session, keep, result);
    else if (known)
        drop_prefix(session);
    return status;
}

afmoe_status afmoe__session_rewind(struct session *session, uint64_t n_tokens, const afmoe_append_options *options,
                                   afmoe_append_result *result, afmoe_error *error)
{
    begin_result(session, result);
    if (n_tokens > session->timeline.n_tokens)
        return afmoe__fail(error, AFMOE_INVALID, "rewind to %llu, allowed are 0..%llu, the tokens there",
                           (unsigned long long)n_tokens, (unsigned long long)session->timeline.n_tokens);
    uint64_t keep = afmoe__timeline_restart(&session->timeline, n_tokens);
    afmoe_status status = afmoe__append_check_room(&session->timeline, keep, 0, n_tokens, error);
    if (status == AFMOE_OK)
        status = afmoe__append_check_options(&session->timeline, keep, n_tokens, false, options, error);
    if (status != AFMOE_OK) return status;
    if (n_tokens == session->timeline.n_tokens) {
        result->n_reused = keep;
        return AFMOE_OK;
    }
    status = afmoe__session_grow(session, keep, session->timeline.tokens + keep, n_tokens - keep, options, NULL,
                                 result, error);
    if (status == AFMOE_CONTEXT_FULL) return status; /* nothing was changed, the logits are still there */
    result->n_reused = keep;
    session->has_logits = false;
    return status;
}

/* ---- Shift ---- */

static uint64_t pages_touched(uint64_t n)
{
    return n / PAGE_POSITIONS + (n % PAGE_POSITIONS > 0); /* any n: no sum that could wrap */
}

afmoe_status afmoe__session_shift(struct session *session, uint64_t n_keep, uint64_t n_drop, uint64_t *out_dropped,
                                  afmoe_error *error)
{
    struct timeline *timeline = &session->timeline;
    uint64_t first_page = pages_touched(n_keep), n_pages = pages_touched(n_drop);
    uint64_t n_there = afmoe__timeline_whole_pages(timeline);
    *out_dropped = 0;
    if (n_pages == 0) return AFMOE_OK;
    if (first_page > n_there || n_pages > n_there - first_page)
        return afmoe__fail(error, AFMOE_INVALID,
                           "shift: keep %llu and drop %llu tokens, %llu and %llu pages of %d; the full layers see %llu "
                           "tokens, of which %llu pages are whole",
                           (unsigned long long)n_keep, (unsigned long long)n_drop, (unsigned long long)first_page,
                           (unsigned long long)n_pages, PAGE_POSITIONS,
                           (unsigned long long)(timeline->n_tokens - timeline->hole.n_tokens),
                           (unsigned long long)n_there);
    uint64_t n_dropped = n_pages * PAGE_POSITIONS;
    afmoe__ahead_forget(session);
    afmoe__timeline_settle(timeline);
    afmoe_status status = afmoe__session_reserve(session, timeline->hole.n_tokens + n_dropped, error);
    if (status != AFMOE_OK) return status;
    afmoe__timeline_drop(timeline, first_page, n_pages);
    *out_dropped = n_dropped;
    return AFMOE_OK;
}

/* ---- Looking ---- */

bool afmoe__session_has_room(const struct session *session, uint64_t n_more)
{
    uint64_t n = session->timeline.n_tokens;
    return afmoe__append_check_room(&session->timeline, n, n, n_more, NULL) == AFMOE_OK;
}

uint64_t afmoe__session_n_tokens(const struct session *session)
{
    return session->timeline.n_tokens;
}

const afmoe_token *afmoe__session_tokens(const struct session *session)
{
    return session->timeline.tokens;
}

const float *afmoe__session_logits(const struct session *session)
{
    return session->has_logits ? session->logits : NULL;
}

const float *afmoe__session_hidden(const struct session *session)
{
    return session->has_logits ? session->hidden : NULL;
}

void afmoe__session_stats(const struct session *session, afmoe_session_stats *out)
{
    uint32_t size = out->size;
    *out = session->stats;
    out->size = size;
    out->n_tokens = session->timeline.n_tokens;
    out->n_dropped = session->timeline.hole.n_tokens;
    uint64_t page_bytes = afmoe__pages_page_bytes(session->timeline.context->pages);
    out->page_bytes = afmoe__timeline_pages_held(&session->timeline) * page_bytes;
}
