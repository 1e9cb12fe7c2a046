/* One answer being made, piece by piece.
 *
 *   begin -> (next -> append, by whoever -> given) until it is over -> finish -> end
 *
 *   next    logits -> token -> in the stop set?
 *   given   the token is in the timeline: text -> stop strings -> piece
 *   finish  what was held back -> a last piece
 *   give    a piece to on_piece
 *
 * A token is in the timeline before its piece is given out, also the one whose piece the callback refuses and the one
 * that completes a stop string; only a stop token is not. Text held back for stop strings or for an unfinished
 * character comes in a last piece, unless a stop string or the callback ended the answer. Memory is taken at the start
 * only. */
#ifndef AFMOE_GENERATE_GENERATION_H
#define AFMOE_GENERATE_GENERATION_H

#include "draft.h"
#include "sampler.h"
#include "session.h"
#include "tokenizer.h"

#include <stdbool.h>

/* What an answer is made with; all borrowed until it ends. */
struct generation_source {
    struct session *session;
    struct sampler *sampler;           /* of the session's vocabulary */
    const struct tokenizer *tokenizer; /* NULL: pieces have no text, and stop strings are UNSUPPORTED */
    const afmoe_token *model_stop_tokens; /* the set that ignore_eos ignores */
    uint64_t n_model_stop_tokens;
    bool is_pulled; /* pieces are asked for, not given to options->on_piece */
};

struct generation {
    struct generation_source from;
    const afmoe_generate_options *options; /* a full struct */
    afmoe_generate_result *result;
    uint64_t n_prompt, start_ns;
    bool wants_pieces;
    struct stream_decoder *decoder; /* NULL: nobody wants text */
    struct stop_strings *stops;     /* NULL: none */
    afmoe_token *top_tokens;
    float *top_logprobs;
    afmoe_piece piece; /* of the token at hand; in a last one of the text held back */
    struct draft draft;
    uint64_t session_drafted, session_accepted; /* of the session, before */
    bool has_ended;
    afmoe_status status; /* then: OK for max_tokens */
};

/* Check the options of an answer for which there may be no logits yet. */
afmoe_status afmoe__generation_check(const struct generation_source *from, const afmoe_generate_options *options,
                                     afmoe_error *error);
/* Take memory and begin at the session's logits (STATE without). On failure it has ended. */
afmoe_status afmoe__generation_begin(struct generation *g, const struct generation_source *from,
                                     const afmoe_generate_options *options, afmoe_generate_result *result,
                                     afmoe_error *error);
/* The next token, and as many as draft.h guesses after it (borrowed until the next call; none with an answer of one
 * more token). END: a stop token. */
afmoe_status afmoe__generation_next(struct generation *g, afmoe_token *out_token, const afmoe_token **out_draft,
                                    uint64_t *out_n_draft, afmoe_error *error);
/* It is in the timeline: make its piece. */
afmoe_status afmoe__generation_given(struct generation *g, afmoe_error *error);
/* max_tokens are there, or a stop string. */
bool afmoe__generation_is_over(const struct generation *g);
/* It ends with `status` (OK: it is over). True: text was held back, and is the piece now. */
bool afmoe__generation_finish(struct generation *g, afmoe_status status, afmoe_error *error);
/* The piece to the callback. False: no more of them; it has ended. */
bool afmoe__generation_give(struct generation *g, afmoe_error *error);
/* Others have changed the session: it has ended with STATE, and does not touch the session any more. */
void afmoe__generation_lose(struct generation *g, afmoe_error *error);
/* The result's time, while it goes on. */
void afmoe__generation_measure(struct generation *g);
/* Memory back. The status of the answer. */
afmoe_status afmoe__generation_end(struct generation *g);
/* The same without a last piece or a result: it is not to go on. */
void afmoe__generation_drop(struct generation *g);
int32_t afmoe__generation_finish_reason(const afmoe_generate_result *result, afmoe_status status);

#endif
