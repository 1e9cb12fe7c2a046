/* One growing of a timeline: computed chunk by chunk, with what was asked for gathered on the way - logits, hidden
 * states, log-probabilities, experts. */
#ifndef AFMOE_SESSION_GROWTH_H
#define AFMOE_SESSION_GROWTH_H

#include "session_private.h"

/* Final hidden states on their way to one vector. */
struct pooling {
    int32_t kind;  /* AFMOE_POOL_* */
    double *total; /* [hidden_size]: their sum, in the order of positions; LAST: the last one */
};

/* What was asked, and how far it is. */
struct growth {
    struct session *session;
    const afmoe_append_options *options;
    struct pooling *pooling; /* NULL: logits are wanted, not an embedding */
    uint64_t begin, end;     /* length of the timeline before, and when done */
    uint64_t next_position;  /* index into options->positions */
};

/* Go back to `keep` tokens (all of them: stay) and append n more, with everything checked but the pages. CONTEXT_FULL
 * comes before anything has changed. begin, end and next_position are set here. */
afmoe_status afmoe__growth_run(struct growth *growth, uint64_t keep, const afmoe_token *tokens, uint64_t n_tokens,
                               afmoe_append_result *result, afmoe_error *error);

#endif
