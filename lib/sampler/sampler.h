/* Sampler: the next token from logits, by the options of afmoe.h.
 *
 *   z = logits, rows without a token at -infinity
 *   z += bias
 *   z /= repetition_penalty where z > 0, else z *= it      tokens of the whole history
 *   z -= presence_penalty, z -= frequency_penalty * count  tokens generated (from n_prompt on)
 *   temperature 0: the largest z, lowest id on a tie; else a draw, see draw.h
 *
 * in float32. The same logits, history and options give the same token on every machine. One caller at a time; all
 * memory is taken at create. */
#ifndef AFMOE_SAMPLER_SAMPLER_H
#define AFMOE_SAMPLER_SAMPLER_H

#include "afmoe.h"

struct sampler;

/* usable: vocab_size bytes, 0 for a row without a token, borrowed for the sampler's life; NULL: every row has one.
 * `options` is a full struct; it is validated here and copied. */
afmoe_status afmoe__sampler_create(struct sampler **out, uint64_t vocab_size, const uint8_t *usable,
                                   const afmoe_sampler_options *options, afmoe_error *error);
void afmoe__sampler_free(struct sampler *sampler);

/* The draw is that of position n_history; n_prompt above n_history counts as n_history. `logits` is not changed;
 * out_logprob may be NULL.
 * INVALID: a token of the history outside the vocabulary. NUMERIC: a usable logit is NaN or +infinity (also through
 * the options), or none is left; with out_logprob, also a logit of a row without a token. */
afmoe_status afmoe__sampler_sample(struct sampler *sampler, const float *logits, const afmoe_token *history,
                                   uint64_t n_history, uint64_t n_prompt, afmoe_token *out_token, float *out_logprob,
                                   afmoe_error *error);

/* As given at create, or all ones. */
const uint8_t *afmoe__sampler_usable(const struct sampler *sampler);
uint64_t afmoe__sampler_vocab_size(const struct sampler *sampler);

#endif
