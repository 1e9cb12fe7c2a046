/* One growing of a timeline: in passes, made by step.h, with what was asked for gathered on the way - logits, hidden
 * states, log-probabilities, experts.
 *
 *   begin -> (rows of a pass -> gather -> advance) until done, failed or stopped -> end
 *
 * A growing may compute draft tokens ahead of its last one (ahead.h). They do not belong to the timeline. */
#ifndef AFMOE_SESSION_GROWTH_H
#define AFMOE_SESSION_GROWTH_H

#include "afmoe.h"
#include "cancel.h"

#include <stdbool.h>

struct session;

/* Final hidden states on their way to one vector. */
struct pooling {
    int32_t kind;  /* AFMOE_POOL_* */
    double *total; /* [hidden_size]: their sum, in the order of positions; LAST: the last one */
};

/* What was asked, and how far it is. */
struct growth {
    afmoe_append_options options;
    struct pooling *pooling; /* NULL: logits are wanted, not an embedding */
    uint64_t n_ahead;        /* draft tokens to compute as well, after the one token of this growing */
    afmoe_append_result result;
    afmoe_error *error;
    void *user; /* of who made the step */

    uint64_t begin, end;    /* length of the timeline before, and when done */
    uint64_t next_position; /* index into options.positions */
    uint64_t pass_position; /* the same where the pass began: it may be made again */
    bool had_logits;

    uint64_t n_rows;  /* in the pass now being made */
    bool is_complete; /* its last row was gathered */
    afmoe_status status;
    struct cancel_link cancel;
    struct session *next; /* in the list of a step */
};

/* What the next growing is asked for; before begin. */
void afmoe__growth_ask(struct session *session, const afmoe_append_options *options, struct pooling *pooling);
/* Go back to `keep` tokens (all of them: stay) and prepare to append n more, with everything checked but the pages.
 * CONTEXT_FULL comes before anything has changed. `alone`: chunks will be whole. */
afmoe_status afmoe__growth_begin(struct session *session, uint64_t keep, const afmoe_token *tokens, uint64_t n_tokens,
                                 bool alone, afmoe_error *error);
/* It succeeded or failed with `status`: settle what is kept and fill growth->result. */
void afmoe__growth_end(struct session *session, afmoe_status status);

/* Rows still to compute, those ahead included. */
uint64_t afmoe__growth_rows_left(const struct session *session);
/* Of the growth->n_rows of a pass: list those that want the head in session->wanted. */
uint64_t afmoe__growth_list_wanted(struct session *session);
void afmoe__growth_gather_row(struct session *session, uint64_t row, const float *hidden, const float *logits);
/* Experts of the growth->n_rows of a pass in one layer: [n_rows][k]. */
void afmoe__growth_gather_experts(struct session *session, uint32_t layer, const uint32_t *ids, const float *weights);
/* The pass was made; `elapsed_ns` is this growing's part of its time. */
void afmoe__growth_advance(struct session *session, uint64_t elapsed_ns);

#endif
