/* Tokens computed ahead of a timeline: drafts of what may come, in the same pass as the token before them.
 *
 *   timeline ... t | d_1 d_2 ... d_k        rows t, d_1 .. d_k go through the layers together
 *
 * The cells of d_i lie behind the timeline's end, its logits here. Appending d_1 then costs nothing: it has the bits it
 * would get from a pass of its own (batch.h), and so on. Appending anything else drops the rest, which costs nothing
 * either: no page of the window was given back for a token that is not in the timeline. */
#ifndef AFMOE_SESSION_AHEAD_H
#define AFMOE_SESSION_AHEAD_H

#include "afmoe.h"

#include <stdbool.h>

struct context;
struct session;

struct ahead {
    float *logits, *hidden; /* [max_draft][vocab_size], [max_draft][hidden_size]; NULL: no drafts */
    uint64_t max_draft;
    uint64_t n_held, first; /* computed in the last pass; those before `first` were accepted */
};

/* Memory of so many drafts. */
uint64_t afmoe__ahead_bytes(const struct context *context, uint64_t max_draft);

/* Begin the growing by one token, followed by as many of the drafts as have room. out_done: it was computed ahead and
 * is in the timeline now, with its logits; no step is needed. */
afmoe_status afmoe__ahead_append(struct session *session, afmoe_token token, const afmoe_token *draft,
                                 uint64_t n_draft, const afmoe_cancel *cancel, bool *out_done, afmoe_error *error);

/* Drop those that were computed and not accepted. */
void afmoe__ahead_forget(struct session *session);

/* For growth.h: n drafts were computed; row i of them. */
void afmoe__ahead_begin(struct session *session, uint64_t n);
void afmoe__ahead_gather(struct session *session, uint64_t i, const float *hidden, const float *logits);

#endif
