/* Log-probabilities: log softmax of raw logits, the same bits on every machine.
 *
 *   logprob_i = z_i - max - log(sum_j exp(z_j - max))
 *
 * over all rows, also those without a token: they are part of what the model computes. */
#ifndef AFMOE_SAMPLER_LOGPROB_H
#define AFMOE_SAMPLER_LOGPROB_H

#include "afmoe.h"

struct log_normaliser {
    float max;
    double log_sum; /* log(sum_j exp(z_j - max)) */
};

/* NUMERIC when a logit is NaN or +infinity (its token is named), or none is finite. */
afmoe_status afmoe__log_normaliser(struct log_normaliser *out, const float *logits, uint64_t n, afmoe_error *error);

static inline float log_probability(const struct log_normaliser *normaliser, float logit)
{
    return (float)((double)logit - (double)normaliser->max - normaliser->log_sum);
}

/* All n of them; out may equal logits. */
afmoe_status afmoe__logprobs(float *out, const float *logits, uint64_t n, afmoe_error *error);

/* The k most likely tokens, falling, ties by lower id; returns how many there are (less than k when fewer rows are
 * usable and finite). usable: as in sampler.h. Both buffers hold k. O(n + hits log k), no memory. */
uint64_t afmoe__top_logprobs(const struct log_normaliser *normaliser, const float *logits, const uint8_t *usable,
                             uint64_t n, uint64_t k, afmoe_token *out_tokens, float *out_logprobs);

/* The largest of n values, none of them NaN; -infinity for n = 0. */
float afmoe__max_logit(const float *logits, uint64_t n);

#endif
