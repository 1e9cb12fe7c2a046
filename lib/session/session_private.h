/* Inside of a session, for this floor only. */
#ifndef AFMOE_SESSION_SESSION_PRIVATE_H
#define AFMOE_SESSION_SESSION_PRIVATE_H

#include "session.h"
#include "timeline.h"

struct session {
    struct timeline timeline;
    uint8_t *block; /* what the buffers lie in */
    bool has_logits;
    float *logits, *hidden; /* of the last position */
    uint64_t *wanted;       /* [chunk_tokens] */
    afmoe_session_stats stats;
};

#endif
