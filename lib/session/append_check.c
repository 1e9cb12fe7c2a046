/* What an append may ask for, see append_check.h. */
#include "append_check.h"

#include "context_private.h"
#include "error.h"

afmoe_status afmoe__append_check_tokens(const struct timeline *timeline, const afmoe_token *tokens, uint64_t n_tokens,
                                        afmoe_error *error)
{
    uint64_t vocab = timeline->context->config->vocab_size;
    if (n_tokens && !tokens) return afmoe__fail(error, AFMOE_INVALID, "tokens is NULL");
    for (uint64_t i = 0; i < n_tokens; i++)
        if (tokens[i] < 0 || (uint64_t)tokens[i] >= vocab)
            return afmoe__fail(error, AFMOE_INVALID, "token %llu is %d, allowed are 0..%llu", (unsigned long long)i,
                               tokens[i], (unsigned long long)(vocab - 1));
    return AFMOE_OK;
}

static afmoe_status check_positions(const struct timeline *timeline, uint64_t begin, uint64_t end,
                                    const afmoe_append_options *options, afmoe_error *error)
{
    const struct model_config *config = timeline->context->config;
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

static afmoe_status check_experts(const struct timeline *timeline, uint64_t n_computed,
                                  const afmoe_append_options *options, afmoe_error *error)
{
    const struct model_config *config = timeline->context->config;
    uint64_t each = (uint64_t)(config->n_layers - config->n_dense_layers) * config->n_experts_per_token;
    if (!options->out_expert_ids && !options->out_expert_weights) return AFMOE_OK;
    if (each == 0 || n_computed <= options->expert_capacity / each) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_CAPACITY,
                       "the expert trace of %llu tokens needs %llu entries, expert_capacity is %llu",
                       (unsigned long long)n_computed, (unsigned long long)(n_computed * each),
                       (unsigned long long)options->expert_capacity);
}

afmoe_status afmoe__append_check_options(const struct timeline *timeline, uint64_t begin, uint64_t end,
                                         bool has_logits, const afmoe_append_options *options, afmoe_error *error)
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
    afmoe_status status = check_positions(timeline, begin, end, options, error);
    return status ? status : check_experts(timeline, end - begin, options, error);
}

afmoe_status afmoe__append_check_room(const struct timeline *timeline, uint64_t keep, uint64_t begin, uint64_t n_more,
                                      afmoe_error *error)
{
    const struct context *context = timeline->context;
    uint64_t max = afmoe__timeline_limit(timeline, keep), n_dropped = timeline_n_dropped(timeline, keep);
    if (begin <= max && n_more <= max - begin) return AFMOE_OK;
    if (max < context->max_tokens + n_dropped)
        return afmoe__fail(error, AFMOE_CONTEXT_FULL,
                           "%llu tokens and %llu more; with dynamic rope a timeline ends at max_position_embeddings "
                           "(%llu), shifted or not",
                           (unsigned long long)begin, (unsigned long long)n_more, (unsigned long long)max);
    if (n_dropped)
        return afmoe__fail(error, AFMOE_CONTEXT_FULL,
                           "%llu tokens and %llu more, %llu of them dropped; a session holds %llu",
                           (unsigned long long)begin, (unsigned long long)n_more, (unsigned long long)n_dropped,
                           (unsigned long long)context->max_tokens);
    return afmoe__fail(error, AFMOE_CONTEXT_FULL, "%llu tokens and %llu more; a session holds %llu",
                       (unsigned long long)begin, (unsigned long long)n_more, (unsigned long long)max);
}
