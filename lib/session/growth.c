/* A timeline grows, see growth.h. */
#include "growth.h"

#include "cancel.h"
#include "clock.h"
#include "context_private.h"
#include "error.h"

#include <math.h>
#include <string.h>

static bool wants_logprob(const struct growth *growth, uint64_t position)
{
    return position >= growth->options->logprob_begin && position < growth->options->logprob_end;
}

/* log softmax of the logits at one token; NaN where the logits hold NaN. */
static float token_logprob(const struct session *session, const float *logits, afmoe_token token)
{
    float max;
    double sum;
    afmoe__decoder_kernels(session->timeline.context->decoder)
        ->log_sum_exp(logits, session->timeline.context->config->vocab_size, &max, &sum);
    return (float)((double)logits[token] - max - log(sum));
}

static void write_logprob(const struct growth *growth, uint64_t position, const float *logits)
{
    growth->options->out_logprobs[position - growth->options->logprob_begin] =
        token_logprob(growth->session, logits, growth->session->timeline.tokens[position]);
}

static void on_row(void *user, uint64_t item, uint64_t row, const float *hidden, const float *logits)
{
    struct growth *growth = user;
    struct session *session = growth->session;
    const struct model_config *config = session->timeline.context->config;
    const afmoe_append_options *options = growth->options;
    uint64_t position = session->timeline.n_tokens + row, i = growth->next_position;
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
    const struct model_config *config = growth->session->timeline.context->config;
    const afmoe_append_options *options = growth->options;
    uint64_t k = config->n_experts_per_token, n_mixtures = config->n_layers - config->n_dense_layers;
    (void)logits;
    for (uint64_t row = 0; row < n_rows; row++) {
        uint64_t token = growth->session->timeline.n_tokens - growth->begin + row;
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
        uint64_t position = session->timeline.n_tokens + row;
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
    struct timeline *timeline = &session->timeline;
    struct context *context = timeline->context;
    struct batch_item item = {.cells = &timeline->cells, .tokens = timeline->tokens + timeline->n_tokens,
                              .n_tokens = n, .n_past = timeline->n_tokens, .wanted = session->wanted,
                              .n_wanted = list_wanted(growth, n), .hidden_only = growth->pooling != NULL};
    struct batch batch = {.items = &item, .n_items = 1};
    bool traced = growth->options->out_expert_ids || growth->options->out_expert_weights;
    const struct decoder_trace trace = {.user = growth, .router = traced ? on_router : NULL};
    afmoe_status status = afmoe__context_check_process(context, error); /* a progress callback may have forked */
    if (status == AFMOE_OK) status = afmoe__turns_begin(&context->turns, growth->options->cancel, error);
    if (status != AFMOE_OK) return status;
    status = afmoe__timeline_take(timeline, timeline->n_tokens + n, error);
    if (status == AFMOE_OK)
        status = afmoe__decoder_pass(context->decoder, &batch, on_row, growth, &trace, growth->options->cancel, error);
    afmoe__turns_end(&context->turns);
    return status;
}

/* Shorten the timeline; its logits go with it. */
static void truncate(struct session *session, uint64_t n_tokens)
{
    afmoe__timeline_truncate(&session->timeline, n_tokens);
    session->has_logits = false;
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
                       (unsigned long long)session->timeline.n_tokens);
}

/* Compute the tokens already written behind the timeline, up to growth->end. */
static afmoe_status grow(struct growth *growth, afmoe_error *error)
{
    struct session *session = growth->session;
    struct timeline *timeline = &session->timeline;
    const afmoe_append_options *options = growth->options;
    uint64_t begin = growth->begin;
    if (wants_logprob(growth, begin)) write_logprob(growth, begin, session->logits);
    session->has_logits = false;
    while (timeline->n_tokens < growth->end) {
        uint64_t left = growth->end - timeline->n_tokens, chunk = timeline->context->plan.chunk_tokens;
        uint64_t n = left < chunk ? left : chunk;
        uint64_t start = clock_now_ns();
        afmoe_status status = run_pass(growth, n, error);
        if (status == AFMOE_CANCELLED)
            return kept(session, cancel_requested(options->cancel) ? "cancelled" : "stopped by parallel", error);
        if (status != AFMOE_OK) return status;
        timeline->n_tokens += n;
        count(session, n, clock_now_ns() - start);
        afmoe__timeline_give_back(timeline);
        if (options->progress &&
            options->progress(options->progress_data, timeline->n_tokens - begin, growth->end - begin) != 0)
            return kept(session, "stopped by the progress callback", error);
    }
    return AFMOE_OK;
}

afmoe_status afmoe__growth_run(struct growth *growth, uint64_t keep, const afmoe_token *tokens, uint64_t n_tokens,
                               afmoe_append_result *result, afmoe_error *error)
{
    struct session *session = growth->session;
    struct timeline *timeline = &session->timeline;
    uint64_t first_sliding = keep ? timeline->first_sliding_page : 0;
    uint64_t need = afmoe__plan_most_pages(&timeline->context->plan, first_sliding, keep, keep + n_tokens);
    growth->begin = keep;
    growth->end = keep + n_tokens;
    afmoe_status status = afmoe__timeline_promise(timeline, need, error);
    if (status != AFMOE_OK) return status;

    if (keep < timeline->n_tokens) truncate(session, keep);
    if (n_tokens) {
        bool had_logits = session->has_logits; /* overwritten by the last row of all only */
        memmove(timeline->tokens + keep, tokens, n_tokens * sizeof *tokens); /* rewind passes our own tokens */
        status = grow(growth, error);
        if (status != AFMOE_OK) {
            bool complete = timeline->n_tokens == growth->end; /* stopped by the callback behind the last chunk */
            truncate(session, timeline->n_tokens);             /* drops pages of the broken chunk */
            session->has_logits = complete || (had_logits && timeline->n_tokens == keep);
        }
    }
    afmoe__timeline_settle(timeline);
    result->n_tokens = timeline->n_tokens;
    result->n_computed = timeline->n_tokens - keep;
    return status;
}
