/* Inside of a session, for this floor only. */
#ifndef AFMOE_SESSION_SESSION_PRIVATE_H
#define AFMOE_SESSION_SESSION_PRIVATE_H

#include "ahead.h"
#include "growth.h"
#include "session.h"
#include "timeline.h"

struct session {
    struct timeline timeline;
    uint8_t *block; /* what the buffers lie in */
    uint64_t block_bytes;
    bool has_logits;
    float *logits, *hidden; /* of the last position */
    uint64_t *wanted;       /* [chunk_tokens] */
    struct growth growth;   /* the one in progress */
    struct ahead ahead;
    afmoe_session_stats stats;
};

/* Make room for a timeline of which n_dropped tokens were dropped. On failure nothing has changed. */
afmoe_status afmoe__session_reserve(struct session *session, uint64_t n_dropped, afmoe_error *error);
/* Begin the growing of an append, everything checked; the caller runs it in a step. `alone` as in growth.h. */
afmoe_status afmoe__session_append_begin(struct session *session, const afmoe_token *tokens, uint64_t n_tokens,
                                         const afmoe_append_options *options, bool alone, afmoe_error *error);
/* A growing from begin to end. */
afmoe_status afmoe__session_grow(struct session *session, uint64_t keep, const afmoe_token *tokens, uint64_t n_tokens,
                                 const afmoe_append_options *options, struct pooling *pooling,
                                 afmoe_append_result *result, afmoe_error *error);
/* Shorten the timeline; its logits go with it. */
void afmoe__session_truncate(struct session *session, uint64_t n_tokens);

#endif
