/* Session: one timeline of tokens and its pages, see session.h.
 *
 * A layer's page p holds positions [64 p, 64 p + 64). Full layers keep all pages. Sliding layers give a page back once
 * every position in it has left the window of every position that may still be computed: the next one is n_tokens, and
 * by rewinding n_tokens - rewind_tokens; its window begins W - 1 positions earlier. */
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

static uint64_t page_count(uint64_t n_tokens)
{
    return (n_tokens + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
}

/* ---- Creation ---- */

afmoe_status afmoe__session_create(struct session **out, struct context *context, afmoe_error *error)
{
    *out = NULL;
    const struct model_config *config = context->config;
    struct session *session = afmoe__alloc_zeroed(1, sizeof *session);
    if (!session) return afmoe__fail_memory(error, sizeof *session, "a session");
    session->context = context;
    session->cells.n_slots = page_count(context->max_tokens);
    session->cells.pages = afmoe__alloc_zeroed(config->n_layers * session->cells.n_slots, sizeof(uint8_t *));
    session->tokens = afmoe__alloc_array(context->max_tokens, sizeof(afmoe_token));
    session->logits = afmoe__alloc_array(config->vocab_size, sizeof(float));
    session->hidden = afmoe__alloc_array(config->hidden_size, sizeof(float));
    session->wanted = afmoe__alloc_array(context->chunk_tokens, sizeof(uint64_t));
    if (!session->cells.pages || !session->tokens || !session->logits || !session->hidden || !session->wanted) {
        afmoe__session_free(session);
        return afmoe__fail_memory(error, config->vocab_size * sizeof(float), "the buffers of a session");
    }
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

/* The pages held when sliding layers begin at page `first_sliding` and the timeline has n_tokens. */
static uint64_t pages_held(const struct session *session, uint64_t first_sliding, uint64_t n_tokens)
{
    const struct model_config *config = session->context->config;
    uint64_t pages = page_count(n_tokens), n_full = 0;
    for (uint32_t layer = 0; layer < config->n_layers; layer++) n_full += config->layer_is_full[layer];
    uint64_t sliding = pages > first_sliding ? pages - first_sliding : 0;
    return n_full * pages + (config->n_layers - n_full) * sliding;
}

/* Promise exactly what is held now; lowering a promise cannot fail. */
static void settle_promise(struct session *session)
{
    afmoe__pages_promise(session->context->pages, &session->n_promised,
                         pages_held(session, session->first_sliding_page, session->n_tokens), NULL);
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
    if (session->cells.pages) {
        truncate(session, 0);
        settle_promise(session);
    }
    afmoe__free(session->cells.pages);
    afmoe__free(session->tokens);
    afmoe__free(session->logits);
    afmoe__free(session->hidden);
    afmoe__free(session->wanted);
    afmoe__free(session);
}

/* ---- Which pages are needed ---- */

/* First page the window of `position` reaches into; 0 where no layer slides: full layers keep everything. */
static uint64_t window_page(const struct session *session, uint64_t position)
{
    uint64_t window = session->context->config->sliding_window;
    if (!session->context->has_sliding_layers) return 0;
    return position >= window ? (position - window + 1) / PAGE_POSITIONS : 0;
}

/* First sliding page to keep when the timeline has n_tokens. */
static uint64_t first_kept_page(const struct session *session, uint64_t n_tokens)
{
    uint64_t rewind = session->context->rewind_tokens;
    return window_page(session, n_tokens > rewind ? n_tokens - rewind : 0);
}

/* Can the timeline go back to n tokens and go on from there with what is held? */
static bool can_go_back(const struct session *session, uint64_t n_tokens)
{
    return session->first_sliding_page <= window_page(session, n_tokens);
}

/* Most pages held at any time while the timeline grows from `begin` to `end`, chunk by chunk. */
static uint64_t most_pages(const struct session *session, uint64_t begin, uint64_t end)
{
    uint64_t chunk = session->context->chunk_tokens, most = 0;
    uint64_t first = begin ? session->first_sliding_page : 0;
    for (uint64_t at = begin; at < end; at += chunk) {
        uint64_t kept = first_kept_page(session, at);
        if (at > begin && kept > first) first = kept;
        uint64_t held = pages_held(session, first, end - at < chunk ? end : at + chunk);
        if (held > most) most = held;
    }
    return most;
}

static void give_back_sliding_pages(struct session *session)
{
    uint64_t kept = first_kept_page(session, session->n_tokens);
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
    return check_positions(session, begin, end, options, error);
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
    uint64_t end;           /* length of the timeline when done */
    uint64_t next_position; /* index into options->positions */
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

/* Rows of the chunk [n_tokens, n_tokens + n) that want the head. */
static uint64_t list_wanted(const struct growth *growth, uint64_t n)
{
    struct session *session = growth->session;
    uint64_t n_wanted = 0, next = growth->next_position;
    for (uint64_t row = 0; row < n; row++) {
        uint64_t position = session->n_tokens + row;
        bool chosen = next < growth->options->n_positions && growth->options->positions[next] == position;
        next += chosen;
        if (chosen || wants_logprob(growth, position + 1) || position + 1 == growth->end)
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
                              .n_wanted = list_wanted(growth, n)};
    struct batch batch = {.items = &item, .n_items = 1};
    afmoe_status status = afmoe__context_check_process(context, error); /* a progress callback may have forked */
    if (status == AFMOE_OK) status = afmoe__turns_begin(&context->turns, growth->options->cancel, error);
    if (status != AFMOE_OK) return status;
    status = take_pages(session, session->n_tokens + n, error);
    if (status == AFMOE_OK)
        status = afmoe__decoder_pass(context->decoder, &batch, on_row, growth, NULL, growth->options->cancel, error);
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
    uint64_t begin = session->n_tokens;
    if (wants_logprob(growth, begin)) write_logprob(growth, begin, session->logits);
    session->has_logits = false;
    while (session->n_tokens < growth->end) {
        uint64_t left = growth->end - session->n_tokens;
        uint64_t n = left < session->context->chunk_tokens ? left : session->context->chunk_tokens;
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
static afmoe_status change(struct session *session, uint64_t keep, const afmoe_token *tokens, uint64_t n_tokens,
                           const afmoe_append_options *options, afmoe_append_result *result, afmoe_error *error)
{
    struct growth growth = {.session = session, .options = options, .end = keep + n_tokens};
    uint64_t need = most_pages(session, keep, growth.end);
    afmoe_status status = AFMOE_OK;
    if (need > session->n_promised)
        status = afmoe__pages_promise(session->context->pages, &session->n_promised, need, error);
    if (status != AFMOE_OK) return status;

    if (keep < session->n_tokens) truncate(session, keep);
    if (n_tokens) {
        bool had_logits = session->has_logits; /* overwritten by the last row of all only */
        memmove(session->tokens + keep, tokens, n_tokens * sizeof *tokens); /* rewind passes our own tokens */
        status = grow(&growth, error);
        if (status != AFMOE_OK) {
            bool complete = session->n_tokens == growth.end; /* stopped by the callback behind the last chunk */
            truncate(session, session->n_tokens);            /* drops pages of the broken chunk */
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
    return change(session, begin, tokens, n_tokens, options, result, error);
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

    status = change(session, keep, tokens ? tokens + keep : NULL, n_tokens - keep, options, result, error);
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
    status = change(session, keep, session->tokens, n_tokens - keep, options, result, error);
    if (status == AFMOE_CONTEXT_FULL) return status; /* nothing was changed, the logits are still there */
    result->n_reused = keep;
    session->has_logits = false;
    return status;
}

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

struct context *afmoe__session_context(const struct session *session)
{
    return session->context;
}

void afmoe__session_stats(const struct session *session, afmoe_session_stats *out)
{
    uint32_t size = out->size;
    *out = session->stats;
    out->size = size;
    out->n_tokens = session->n_tokens;
    out->page_bytes = pages_held(session, session->first_sliding_page, session->n_tokens) *
                      afmoe__pages_page_bytes(session->context->pages);
}
