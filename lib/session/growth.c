/* A timeline grows, see growth.h. */
#include "growth.h"

#include "context_private.h"
#include "session_private.h"

#include <math.h>
#include <string.h>

static bool wants_logprob(const struct growth *growth, uint64_t position)
{
    return position >= growth->options.logprob_begin && position < growth->options.logprob_end;
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

static void write_logprob(struct session *session, uint64_t position, const float *logits)
{
    const afmoe_append_options *options = &session->growth.options;
    options->out_logprobs[position - options->logprob_begin] =
        token_logprob(session, logits, session->timeline.tokens[position]);
}

void afmoe__growth_gather_row(struct session *session, uint64_t row, const float *hidden, const float *logits)
{
    struct growth *growth = &session->growth;
    const struct model_config *config = session->timeline.context->config;
    const afmoe_append_options *options = &growth->options;
    uint64_t position = session->timeline.n_tokens + row, i = growth->next_position;
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
    if (wants_logprob(growth, position + 1)) write_logprob(session, position + 1, logits);
    if (position + 1 == growth->end) {
        memcpy(session->logits, logits, config->vocab_size * sizeof(float));
        memcpy(session->hidden, hidden, config->hidden_size * sizeof(float));
        session->has_logits = growth->is_complete = true;
    }
    if (position >= growth->end) afmoe__ahead_gather(session, position - growth->end, hidden, logits);
}

void afmoe__growth_gather_experts(struct session *session, uint32_t layer, const uint32_t *ids, const float *weights)
{
    const struct growth *growth = &session->growth;
    const struct model_config *config = session->timeline.context->config;
    const afmoe_append_options *options = &growth->options;
    uint64_t k = config->n_experts_per_token, n_mixtures = config->n_layers - config->n_dense_layers;
    for (uint64_t row = 0; row < growth->n_rows; row++) {
        uint64_t token = session->timeline.n_tokens - growth->begin + row;
        uint64_t at = (token * n_mixtures + layer - config->n_dense_layers) * k;
        for (uint64_t i = 0; i < k && options->out_expert_ids; i++)
            options->out_expert_ids[at + i] = (int32_t)ids[row * k + i];
        if (options->out_expert_weights)
            memcpy(options->out_expert_weights + at, weights + row * k, k * sizeof *weights);
    }
}

uint64_t afmoe__growth_list_wanted(struct session *session)
{
    const struct growth *growth = &session->growth;
    const afmoe_append_options *options = &growth->options;
    uint64_t n_wanted = 0, next = growth->next_position;
    bool pooled = growth->pooling && growth->pooling->kind == AFMOE_POOL_MEAN;
    for (uint64_t row = 0; row < growth->n_rows; row++) {
        uint64_t position = session->timeline.n_tokens + row;
        bool chosen = next < options->n_positions && options->positions[next] == position;
        next += chosen;
        if (chosen || pooled || wants_logprob(growth, position + 1) || position + 1 >= growth->end)
            session->wanted[n_wanted++] = row;
    }
    return n_wanted;
}

uint64_t afmoe__growth_rows_left(const struct session *session)
{
    return session->growth.end - session->timeline.n_tokens + session->growth.n_ahead;
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

void afmoe__growth_advance(struct session *session, uint64_t elapsed_ns)
{
    struct growth *growth = &session->growth;
    uint64_t n = growth->n_rows - growth->n_ahead;
    count(session, n, elapsed_ns);
    session->timeline.n_tokens += n;
    afmoe__timeline_give_back(&session->timeline);
    afmoe__ahead_begin(session, growth->n_ahead);
    growth->n_ahead = 0;
}

void afmoe__growth_ask(struct session *session, const afmoe_append_options *options, struct pooling *pooling)
{
    session->growth.options = *options;
    session->growth.pooling = pooling;
}

afmoe_status afmoe__growth_begin(struct session *session, uint64_t keep, const afmoe_token *tokens, uint64_t n_tokens,
                                 bool alone, afmoe_error *error)
{
    struct growth *growth = &session->growth;
    struct timeline *timeline = &session->timeline;
    afmoe_status status = afmoe__timeline_promise(timeline, keep, keep + n_tokens, alone, error);
    if (status != AFMOE_OK) return status;
    growth->begin = keep;
    growth->end = keep + n_tokens;
    growth->next_position = growth->n_rows = growth->n_ahead = 0;
    growth->status = AFMOE_OK;
    growth->error = error;
    growth->cancel.cancel = growth->options.cancel;
    if (keep < timeline->n_tokens) afmoe__session_truncate(session, keep);
    growth->had_logits = session->has_logits;
    if (n_tokens == 0) return AFMOE_OK;
    memmove(timeline->tokens + keep, tokens, n_tokens * sizeof *tokens); /* rewind passes our own tokens */
    if (wants_logprob(growth, keep)) write_logprob(session, keep, session->logits);
    session->has_logits = false; /* they are overwritten by the last row of all only */
    return AFMOE_OK;
}

void afmoe__growth_end(struct session *session, afmoe_status status)
{
    struct growth *growth = &session->growth;
    struct timeline *timeline = &session->timeline;
    if (status != AFMOE_OK) {
        bool complete = timeline->n_tokens == growth->end; /* stopped by the callback behind the last chunk */
        afmoe__session_truncate(session, timeline->n_tokens); /* drops pages of the broken chunk */
        session->has_logits = complete || (growth->had_logits && timeline->n_tokens == growth->begin);
    }
    afmoe__timeline_settle(timeline);
    growth->result.n_tokens = timeline->n_tokens;
    growth->result.n_computed = timeline->n_tokens - growth->begin;
}
