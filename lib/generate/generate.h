/* The loop: sample, append, decode text, stop.
 *
 *   logits -> token -> in the stop set? -> append to the timeline -> text -> stop strings -> on_piece
 *
 * A token is in the timeline before its piece is given out, also the one whose piece the callback refuses and the one
 * that completes a stop string; only a stop token is not. Text held back for stop strings or for an unfinished
 * character comes in a last piece, unless a stop string or the callback ended the call. Memory is taken at the start
 * only. */
#ifndef AFMOE_GENERATE_GENERATE_H
#define AFMOE_GENERATE_GENERATE_H

#include "sampler.h"
#include "session.h"
#include "tokenizer.h"

/* As afmoe_generate; options and result are full structs, options are validated here. sampler: of the session's
 * vocabulary, not NULL. tokenizer NULL: pieces have no text, and stop strings are UNSUPPORTED. model_stop_tokens: the
 * set that ignore_eos ignores.
 *
 * A cancel object that is set while a token goes through the layers leaves the timeline without it; whether the
 * logits before it are still there is the session's affair. */
afmoe_status afmoe__generate(struct session *session, struct sampler *sampler, const struct tokenizer *tokenizer,
                             const afmoe_token *model_stop_tokens, uint64_t n_model_stop_tokens,
                             const afmoe_generate_options *options, afmoe_generate_result *result,
                             afmoe_error *error);

#endif
