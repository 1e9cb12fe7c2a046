/* Session: one timeline of tokens and its pages, see session.h; which pages it holds: page_plan.h. */
#include "session.h"

#include "cancel.h"
#include "clock.h"
#include "context_private.h"
#include "error.h"
#include "memory.h"

#include <math.h>
#include <string.h>

struct session {
    struct context *context;
    uint8_t *block;      /* what the buffers lie in */
    afmoe_token *tokens; /* [max_tokens] */
    uint64_t n_tokens;
    struct cells cells;
    uint64_t first_sliding_page; /* lower ones were given back by the sliding layers */
    uint64_t n_promised;         /* pages */
    bool has_logits;
    float *logits, *hidden; /* of the last position */
    uint64_t *wanted;       /* [chunk_tokens] */
    afmoe_session_stats stats;
};

/* ---- Creation ---- */

/* Place all buffers in one block; with base NULL only count. The sizes fit: every factor has passed the config's
 * ranges, and max_tokens is at most max_positions. */
static uint64_t lay_out(struct session *session, const struct context *context, uint8_t *base)
{
    const struct model_config *config = context->config;
    uint64_t used = 0;
    session->cells.n_slots = page_count(context->max_tokens);
    session->cells.pages = carve(base, &used, config->n_layers * session->cells.n_slots, sizeof(uint8_t *));
    session->tokens = carve(base, &used, context->max_tokens, sizeof(afmoe_token));
    session->logits = carve(base, &used, config->vocab_size, sizeof(float));
    session->hidden = carve(base, &used, config->hidden_size, sizeof(float));
    session->wanted = carve(base, &used, context->plan.chunk_tokens, sizeof(uint64_t));
    return used;
}

uint64_t afmoe__session_bytes(const struct context *context)
{
    struct session session;
    return sizeof session + lay_out(&session, context, NULL);
}

afmoe_status afmoe__session_create(struct session **out, struct context *context, afmoe_error *error)
{
    *out = NULL;
    struct session *session = afmoe__alloc_zeroed(1, sizeof *session);
    if (!session) return afmoe__fail_memory(error, sizeof *session, "a session");
    uint64_t block_bytes = lay_out(session, context, NULL);
    session->block = afmoe__alloc_zeroed(block_bytes, 1);
    if (!session->block) {
        afmoe__free(session);
        return afmoe__fail_memory(error, block_bytes, "the buffers of a session");
    }
    lay_out(session, context, session->block);
    session->context = context;
    atomic_fetch_add(&context->n_sessions, 1);
    *out = session;
    return AFMOE_OK;
}

static uint8_t **page_slot(struct session *session, uint32_t layer, uint64_t page)
{
    return &session->cells.pages[layer * session->cells.n_slots + page];
}

/* Release pages [begin, end) of the full layers, the sliding layers, or both. */
static void release_pages(struct session *session, uint64_t begin, uint64_t end, bool full, bool sliding)
{
    const struct model_config *config = session->context->config;
    for (uint32_t layer = 0; layer < config->n_layers; layer++) {
        if (config->layer_is_full[layer] ? !full : !sliding) continue;
        for (uint64_t page = begin; page < end; page++) {
            uint8_t **slot = page_slot(session, layer, page);
            afmoe__pages_release(session->context->pages, *slot);
            *slot = NULL;
        }
    }
}

static uint64_t pages_held(const struct session *session)
{
    return afmoe__plan_pages_held(&session->context->plan, session->first_sliding_page, session->n_tokens);
}

/* Promise exactly what is held now; lowering a promise cannot fail. */
static void settle_promise(struct session *session)
{
    afmoe__pages_promise(session->context->pages, &session->n_promised, pages_held(session), NULL);
}

/* Shorten the timeline (or drop pages taken behind it); the caller has made sure that the sliding pages for what comes
 * next are there, or n is 0. The promise stays. */
static void truncate(struct session *session, uint64_t n_tokens)
{
    if (n_tokens == 0) session->first_sliding_page = 0;
    release_pages(session, page_count(n_tokens), session->cells.n_slots, true, true);
    session->n_tokens = n_tokens;
    session->has_logits = false;
}

void afmoe__session_free(struct session *session)
{
    if (!session) return;
    truncate(session, 0);
    settle_promise(session);
    atomic_fetch_sub(&session->context->n_sessions, 1);
    afmoe__free(session->block);
    afmoe__free(session);
}

/* ---- Which pages are needed ---- */

/* Can the timeline go back to n tokens and go on from there with what is held? */
static bool can_go_back(const struct session *session, uint64_t n_tokens)
{
    return session->first_sliding_page <= afmoe__plan_window_page(&session->context->plan, n_tokens);
}

static void give_back_sliding_pages(struct session *session)
{
    uint64_t kept = afmoe__plan_first_kept(&session->context->plan, session->n_tokens);
    if (kept <= session->first_sliding_page) return;
    release_pages(session, session->first_sliding_page, kept, false, true);
    session->first_sliding_page = kept;
}

static afmoe_status take_pages(struct session *session, uint64_t n_tokens, afmoe_error *error)
{
    struct context *context = session->context;
    for (uint64_t page = session->n_tokens / PAGE_POSITIONS; page < page_count(n_tokens); page++)
        for (uint32_t layer = 0; layer < context->config->n_layers; layer++) {
            uint8_t **slot = page_slot(session, layer, page);
            if (!*slot) *slot = afmoe__pages_take(context->pages);
            if (!*slot) return afmoe__fail_memory(error, afmoe__pages_page_bytes(context->pages), "a key/value page");
        }
    return AFMOE_OK;
}

/* ---- Checks before anything changes ---- */

/* Comes after check_room, so that an absurd count does not make us read that far. */
static afmoe_status check_tokens(const struct session *session, const afmoe_token *tokens, uint64_t n_tokens,
                                 afmoe_error *error)
{
    uint64_t vocab = session->context->config->vocab_size;
    if (n_tokens && !tokens) return afmoe__fail(error, AFMOE_INVALID, "tokens is NULL");
    for (uint64_t i = 0; i < n_tokens; i++)
        if (tokens[i] < 0 || (uint64_t)tokens[i] >= vocab)
            return afmoe__fail(error, AFMOE_INVALID, "token %llu is %d, allowed are 0..%llu", (unsigned long long)i,
                               tokens[i], (unsigned long long)(vocab - 1));
    return AFMOE_OK;
}

static afmoe_status check_positions(const struct session *session, uint64_t begin, uint64_t end,
                                    const afmoe_append_options *options, afmoe_error *error)
{
    const struct model_config *config = session->context->config;
    if (options->n_positions && !options->positions) return afmoe__fail(error, AFMOE_INVALID, "positions is NULL");
    for (uint64_t i = 0; i < options->n_positions; i++) {
        uint64_t p = options->positions[i];
        if (p < begin || p >= end || (i && p <= options->positions[i - 1]))
            return begin == end ? afmoe__fail(error, AFMOE_INVALID, "positions are given, but no tokens are computed")
                                : afmoe__fail(error, AFMOE_INVALID,
                                              "positions[%llu] is %llu; they must rise and lie in %llu..%llu, the "
                                              "tokens computed",
                                              (unsigned long long)i, (unsigned long long)p, (unsigned long long)begin,
                                              (unsigned long long)(end - 1));
    }
    /* Divided rather than multiplied: n_positions <= end - begin, but the product with the vocabulary may wrap. */
    if (options->out_logits && options->n_positions > options->logits_capacity / config->vocab_size)
        return afmoe__fail(error, AFMOE_CAPACITY, "out_logits needs %llu floats",
                           (unsigned long long)(options->n_positions * config->vocab_size));
    if (options->out_hidden && options->n_positions > options->hidden_capacity / config->hidden_size)
        return afmoe__fail(error, AFMOE_CAPACITY, "out_hidden needs %llu floats",
                           (unsigned long long)(options->n_positions * config->hidden_size));
    return AFMOE_OK;
}

static afmoe_status check_experts(const struct session *session, uint64_t n_computed,
                                  const afmoe_append_options *options, afmoe_error *error)
{
    const struct model_config *config = session->context->config;
    uint64_t each = (uint64_t)(config->n_layers - config->n_dense_layers) * config->n_experts_per_token;
    if (!options->out_expert_ids && !options->out_expert_weights) return AFMOE_OK;
    if (each == 0 || n_computed <= options->expert_capacity / each) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_CAPACITY,
                       "the expert trace of %llu tokens needs %llu entries, expert_capacity is %llu",
                       (unsigned long long)n_computed, (unsigned long long)(n_computed * each),
                       (unsigned long long)options->expert_capacity);
}

/* The timeline will hold `begin` tokens, then grow to `end`. has_logits: those of position begin - 1 are there. */
static afmoe_status check_options(const struct session *session, uint64_t begin, uint64_t end, bool has_logits,
                                  const afmoe_append_options *options, afmoe_error *error)
{
    uint64_t first = options->logprob_begin, last = options->logprob_end;
    if (first > last)
        return afmoe__fail(error, AFMOE_INVALID, "log-probabilities of %llu..%llu: the range is reversed",
                           (unsigned long long)first, (unsigned long long)last);
    if (first < last) {
        if (!options->out_logprobs) return afmoe__fail(error, AFMOE_INVALID, "out_logprobs is NULL");
        if (first < 1 || first < begin || last > end)
            return afmoe__fail(error, AFMOE_INVALID,
                               "log-probabilities of %llu..%llu; the range must lie in %llu..%llu, the tokens computed",
                               (unsigned long long)first, (unsigned long long)last,
                               (unsigned long long)(begin ? begin : 1), (unsigned long long)end);
        if (first == begin && !has_logits)
            return afmoe__fail(error, AFMOE_STATE,
                               "the log-probability of position %llu needs the logits before it, which are gone",
                               (unsigned long long)first);
    }
    afmoe_status status = check_positions(session, begin, end, options, error);
    return status ? status : check_experts(session, end - begin, options, error);
}

static afmoe_status check_room(const struct session *session, uint64_t begin, uint64_t n_more, afmoe_error *error)
{
    uint64_t max = session->context->max_tokens;
    if (n_more <= max - begin) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_CONTEXT_FULL, "%llu tokens and %llu more; a session holds %llu",
                       (unsigned long long)begin, (unsigned long long)n_more, (unsigned long long)max);
}

/* ---- Growing, chunk by chunk ---- */

/* One growing of the timeline: what was asked, and how far it is. */
struct growth {
    struct session *session;
    const afmoe_append_options *options;
    struct pooling *pooling; /* NULL: logits are wanted, not an embedding */
    uint64_t begin, end;     /* length of the timeline before, and when done */
    uint64_t next_position;  /* index into options->positions */
};

/* Final hidden states on their way to one vector. */
struct pooling {
    int32_t kind;  /* AFMOE_POOL_* */
    double *total; /* [hidden_size]: their sum, in the order of positions; LAST: the last one */
};

static bool wants_logprob(const struct growth *growth, uint64_t position)
{
    return position >= growth->options->logprob_begin && position < growth->options->logprob_end;
}

/* log softmax of the logits at one token; NaN where the logits hold NaN. */
static float token_logprob(const struct session *session, const float *logits, afmoe_token token)
{
    float max;
    double sum;
    afmoe__decoder_kernels(session->context->decoder)
        ->log_sum_exp(logits, session->context->config->vocab_size, &max, &sum);
    return (float)((double)logits[token] - max - log(sum));
}

static void write_logprob(const struct growth *growth, uint64_t position, const float *logits)
{
    growth->options->out_logprobs[position - growth->options->logprob_begin] =
        token_logprob(growth->session, logits, growth->session->tokens[position]);
}

static void on_row(void *user, uint64_t item, uint64_t row, const float *hidden, const float *logits)
{
    struct growth *growth = user;
    struct session *session = growth->session;
    const struct model_config *config = session->context->config;
    const afmoe_append_options *options = growth->options;
    uint64_t position = session->n_tokens + row, i = growth->next_position;
    (void)item;
    if (growth->pooling) {
        for (uint64_t j = 0; j < config->hidden_size; j++) growth->pooling->total[j] += (double)hidden[j];
        return;
    }
    if (i < options->n_positions && options->positions[i] == position) {
        if (options->out_logits)
            memcpy(options->out_logits + i * config->vocab_size, logits, config->vocab_size * sizeof(float));
        if (options->out_hidden)
            memcpy(options->out_hidden + i * config->hidden_size, hidden, config->hidden_size * sizeof(float));
        growth->next_position++;
    }
    if (wants_logprob(growth, position + 1)) write_logprob(growth, position + 1, logits);
    if (position + 1 == growth->end) {
        memcpy(session->logits, logits, config->vocab_size * sizeof(float));
        memcpy(session->hidden, hidden, config->hidden_size * sizeof(float));
        session->has_logits = true;
    }
}

/* Experts of all rows of the chunk [n_tokens, n_tokens + n) in one layer. */
static void on_router(void *user, uint32_t layer, const float *logits, const uint32_t *ids, const float *weights,
                      uint64_t n_rows)
{
    const struct growth *growth = user;
    const struct model_config *config = growth->session->context->config;
    const afmoe_append_options *options = growth->options;
    uint64_t k = config->n_experts_per_token, n_mixtures = config->n_layers - config->n_dense_layers;
    (void)logits;
    for (uint64_t row = 0; row < n_rows; row++) {
        uint64_t token = growth->session->n_tokens - growth->begin + row;
        uint64_t at = (token * n_mixtures + layer - config->n_dense_layers) * k;
        for (uint64_t i = 0; i < k && options->out_expert_ids; i++)
            options->out_expert_ids[at + i] = (int32_t)ids[row * k + i];
        if (options->out_expert_weights)
            memcpy(options->out_expert_weights + at, weights + row * k, k * sizeof *weights);
    }
}

/* Rows of the chunk [n_tokens, n_tokens + n) that want the head. */
static uint64_t list_wanted(const struct growth *growth, uint64_t n)
{
    struct session *session = growth->session;
    uint64_t n_wanted = 0, next = growth->next_position;
    for (uint64_t row = 0; row < n; row++) {
        uint64_t position = session->n_tokens + row;
        bool chosen = next < growth->options->n_positions && growth->options->positions[next] == position;
        next += chosen;
        bool pooled = growth->pooling && growth->pooling->kind == AFMOE_POOL_MEAN;
        if (chosen || pooled || wants_logprob(growth, position + 1) || position + 1 == growth->end)
            session->wanted[n_wanted++] = row;
    }
    return n_wanted;
}

static afmoe_status run_pass(struct growth *growth, uint64_t n, afmoe_error *error)
{
    struct session *session = growth->session;
    struct context *context = session->context;
    struct batch_item item = {.cells = &session->cells, .tokens = session->tokens + session->n_tokens, .n_tokens = n,
                              .n_past = session->n_tokens, .wanted = session->wanted,
                              .n_wanted = list_wanted(growth, n), .hidden_only = growth->pooling != NULL};
    struct batch batch = {.items = &item, .n_items = 1};
    bool traced = growth->options->out_expert_ids || growth->options->out_expert_weights;
    const struct decoder_trace trace = {.user = growth, .router = traced ? on_router : NULL};
    afmoe_status status = afmoe__context_check_process(context, error); /* a progress callback may have forked */
    if (status == AFMOE_OK) status = afmoe__turns_begin(&context->turns, growth->options->cancel, error);
    if (status != AFMOE_OK) return status;
    status = take_pages(session, session->n_tokens + n, error);
    if (status == AFMOE_OK)
        status = afmoe__decoder_pass(context->decoder, &batch, on_row, growth, &trace, growth->options->cancel, error);
    afmoe__turns_end(&context->turns);
    return status;
}

static void count(struct session *session, uint64_t n, uint64_t elapsed_ns)
{
    if (n == 1) {
        session->stats.n_decode_computed++;
        session->stats.decode_ns += elapsed_ns;
    } else {
        session->stats.n_prompt_computed += n;
        session->stats.prompt_ns += elapsed_ns;
    }
}

static afmoe_status kept(const struct session *session, const char *why, afmoe_error *error)
{
    return afmoe__fail(error, AFMOE_CANCELLED, "%s, %llu tokens are kept", why,
                       (unsigned long long)session->n_tokens);
}

/* Compute the tokens already written behind the timeline, up to growth->end. */
static afmoe_status grow(struct growth *growth, afmoe_error *error)
{
    struct session *session = growth->session;
    const afmoe_append_options *options = growth->options;
    uint64_t begin = growth->begin;
    if (wants_logprob(growth, begin)) write_logprob(growth, begin, session->logits);
    session->has_logits = false;
    while (session->n_tokens < growth->end) {
        uint64_t left = growth->end - session->n_tokens;
        uint64_t n = left < session->context->plan.chunk_tokens ? left : session->context->plan.chunk_tokens;
        uint64_t start = clock_now_ns();
        afmoe_status status = run_pass(growth, n, error);
        if (status == AFMOE_CANCELLED)
            return kept(session, cancel_requested(options->cancel) ? "cancelled" : "stopped by parallel", error);
        if (status != AFMOE_OK) return status;
        session->n_tokens += n;
        count(session, n, clock_now_ns() - start);
        give_back_sliding_pages(session);
        if (options->progress &&
            options->progress(options->progress_data, session->n_tokens - begin, growth->end - begin) != 0)
            return kept(session, "stopped by the progress callback", error);
    }
    return AFMOE_OK;
}

/* Go back to `keep` tokens (all of them: stay) and append n more, with everything checked but the pages. CONTEXT_FULL
 * comes before anything has changed. */
static afmoe_status change(struct growth *growth, uint64_t keep, const afmoe_token *tokens, uint64_t n_tokens,
                           afmoe_append_result *result, afmoe_error *error)
{
    struct session *session = growth->session;
    uint64_t need = afmoe__plan_most_pages(&session->context->plan, keep ? session->first_sliding_page : 0, keep,
                                           keep + n_tokens);
    growth->begin = keep;
    growth->end = keep + n_tokens;
    afmoe_status status = AFMOE_OK;
    if (need > session->n_promised)
        status = afmoe__pages_promise(session->context->pages, &session->n_promised, need, error);
    if (status != AFMOE_OK) return status;

    if (keep < session->n_tokens) truncate(session, keep);
    if (n_tokens) {
        bool had_logits = session->has_logits; /* overwritten by the last row of all only */
        memmove(session->tokens + keep, tokens, n_tokens * sizeof *tokens); /* rewind passes our own tokens */
        status = grow(growth, error);
        if (status != AFMOE_OK) {
            bool complete = session->n_tokens == growth->end; /* stopped by the callback behind the last chunk */
            truncate(session, session->n_tokens);             /* drops pages of the broken chunk */
            session->has_logits = complete || (had_logits && session->n_tokens == keep);
        }
    }
    settle_promise(session);
    result->n_tokens = session->n_tokens;
    result->n_computed = session->n_tokens - keep;
    return status;
}

/* ---- The calls ---- */

static void begin_result(const struct session *session, afmoe_append_result *result)
{
    result->n_tokens = session->n_tokens;
    result->n_reused = result->n_computed = 0;
}

afmoe_status afmoe__session_append(struct session *session, const afmoe_token *tokens, uint64_t n_tokens,
                                   const afmoe_append_options *options, afmoe_append_result *result,
                                   afmoe_error *error)
{
    uint64_t begin = session->n_tokens;
    begin_result(session, result);
    afmoe_status status = check_room(session, begin, n_tokens, error);
    if (status == AFMOE_OK) status = check_tokens(session, tokens, n_tokens, error);
    if (status == AFMOE_OK)
        status = check_options(session, begin, begin + n_tokens, session->has_logits, options, error);
    if (status != AFMOE_OK) return status;
    struct growth growth = {.session = session, .options = options};
    return change(&growth, begin, tokens, n_tokens, result, error);
}

static uint64_t common_prefix(const struct session *session, const afmoe_token *tokens, uint64_t n_tokens)
{
    uint64_t n = 0;
    while (n < n_tokens && n < session->n_tokens && tokens[n] == session->tokens[n]) n++;
    return n;
}

/* Values that are asked for at kept tokens have to be made: keep less. */
static uint64_t keep_what_is_not_wanted(const struct session *session, uint64_t keep,
                                        const afmoe_append_options *options)
{
    uint64_t first = options->logprob_begin; /* needs the logits of the token before it */
    if (options->n_positions && options->positions && options->positions[0] < keep) keep = options->positions[0];
    if (first < options->logprob_end && first > 0 && first <= keep &&
        !(first == keep && keep == session->n_tokens && session->has_logits))
        keep = first - 1;
    return keep;
}

afmoe_status afmoe__session_sync(struct session *session, const afmoe_token *tokens, uint64_t n_tokens,
                                 const afmoe_append_options *options, afmoe_append_result *result,
                                 afmoe_error *error)
{
    begin_result(session, result);
    afmoe_status status = check_room(session, 0, n_tokens, error);
    if (status == AFMOE_OK) status = check_tokens(session, tokens, n_tokens, error);
    if (status != AFMOE_OK) return status;

    uint64_t keep = common_prefix(session, tokens, n_tokens);
    bool same = keep == n_tokens && keep == session->n_tokens && (session->has_logits || keep == 0);
    if (!same && keep == n_tokens && keep > 0) keep--; /* the logits of the last token have to be made */
    keep = keep_what_is_not_wanted(session, keep, options);
    if (!can_go_back(session, keep)) keep = 0;
    bool has_logits = session->has_logits && keep == session->n_tokens;
    status = check_options(session, keep, n_tokens, has_logits, options, error);
    if (status != AFMOE_OK) return status;

    struct growth growth = {.session = session, .options = options};
    status = change(&growth, keep, tokens ? tokens + keep : NULL, n_tokens - keep, result, error);
    if (status != AFMOE_CONTEXT_FULL) {
        session->stats.n_reused += keep;
        result->n_reused = keep;
    }
    return status;
}

afmoe_status afmoe__session_rewind(struct session *session, uint64_t n_tokens, const afmoe_append_options *options,
                                   afmoe_append_result *result, afmoe_error *error)
{
    begin_result(session, result);
    if (n_tokens > session->n_tokens)
        return afmoe__fail(error, AFMOE_INVALID, "rewind to %llu, allowed are 0..%llu, the tokens there",
                           (unsigned long long)n_tokens, (unsigned long long)session->n_tokens);
    uint64_t keep = can_go_back(session, n_tokens) ? n_tokens : 0;
    afmoe_status status = check_options(session, keep, n_tokens, false, options, error);
    if (status != AFMOE_OK) return status;
    if (n_tokens == session->n_tokens) {
        result->n_reused = keep;
        return AFMOE_OK;
    }
    struct growth growth = {.session = session, .options = options};
    status = change(&growth, keep, session->tokens, n_tokens - keep, result, error);
    if (status == AFMOE_CONTEXT_FULL) return status; /* nothing was changed, the logits are still there */
    result->n_reused = keep;
    session->has_logits = false;
    return status;
}

/* ---- Embeddings ---- */

/* The total over n positions as one vector: divided, and scaled to length 1 where asked for. */
static afmoe_status finish_pooling(const struct pooling *pooling, uint64_t n, uint64_t hidden_size, bool normalize,
                                   float *out, afmoe_error *error)
{
    double scale = pooling->kind == AFMOE_POOL_MEAN ? 1.0 / (double)n : 1.0, squares = 0;
    for (uint64_t i = 0; i < hidden_size; i++) squares += pooling->total[i] * pooling->total[i];
    if (!isfinite(squares)) return afmoe__fail(error, AFMOE_NUMERIC, "the pooled hidden state is not finite");
    if (normalize) {
        if (squares == 0)
            return afmoe__fail(error, AFMOE_NUMERIC, "the pooled hidden state is zero and has no direction");
        scale = 1.0 / sqrt(squares);
    }
    for (uint64_t i = 0; i < hidden_size; i++) out[i] = (float)(pooling->total[i] * scale);
    return AFMOE_OK;
}

/* Hidden states of the positions kept are not kept: for a mean all are computed, for the last one as sync would. */
afmoe_status afmoe__session_embed(struct session *session, const afmoe_token *tokens, uint64_t n_tokens,
                                  int32_t pooling, bool normalize, const afmoe_cancel *cancel, float *out,
                                  afmoe_error *error)
{
    const afmoe_append_options options = {.size = sizeof options, .cancel = cancel};
    uint64_t hidden_size = session->context->config->hidden_size, keep = 0;
    afmoe_append_result result;
    afmoe_status status = check_room(session, 0, n_tokens, error);
    if (status == AFMOE_OK) status = check_tokens(session, tokens, n_tokens, error);
    if (status != AFMOE_OK) return status;
    if (pooling == AFMOE_POOL_LAST) keep = common_prefix(session, tokens, n_tokens);
    if (keep == n_tokens) keep--;
    if (!can_go_back(session, keep)) keep = 0;
    struct pooling pooled = {.kind = pooling, .total = afmoe__alloc_zeroed(hidden_size, sizeof(double))};
    if (!pooled.total) return afmoe__fail_memory(error, hidden_size * sizeof(double), "a pooled hidden state");
    struct growth growth = {.session = session, .options = &options, .pooling = &pooled};
    status = change(&growth, keep, tokens + keep, n_tokens - keep, &result, error);
    if (status != AFMOE_CONTEXT_FULL) session->stats.n_reused += keep;
    if (status == AFMOE_OK) status = finish_pooling(&pooled, n_tokens, hidden_size, normalize, out, error);
    afmoe__free(pooled.total);
    return status;
}

/* ---- Looking ---- */

uint64_t afmoe__session_n_tokens(const struct session *session)
{
    return session->n_tokens;
}

const afmoe_token *afmoe__session_tokens(const struct session *session)
{
    return session->tokens;
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
    out->n_tokens = session->n_tokens;
    out->page_bytes = pages_held(session) * afmoe__pages_page_bytes(session->context->pages);
}
