/* State of a session in a file or in memory: its timeline, with keys and values, and the logits of its last position.
 * What is loaded goes on to the bits of what was saved. The format is at the top of state.c. */
#ifndef AFMOE_SESSION_STATE_H
#define AFMOE_SESSION_STATE_H

#include "file.h"
#include "session.h"

/* Bytes it takes. */
uint64_t afmoe__session_state_bytes(const struct session *session);

/* `fingerprint` is that of the model; `durable` as in replace_file.h. Into `out` go afmoe__session_state_bytes. */
afmoe_status afmoe__session_save(const struct session *session, uint64_t fingerprint, const char *path, bool durable,
                                 afmoe_error *error);
afmoe_status afmoe__session_save_memory(const struct session *session, uint64_t fingerprint, uint8_t *out,
                                        afmoe_error *error);

/* Everything is read and checked before the session changes, so that pages for both are needed for a moment. As
 * afmoe_session_load; `file` is PEEKED at or lies in memory. */
afmoe_status afmoe__session_load(struct session *session, uint64_t fingerprint, const struct mapped_file *file,
                                 afmoe_error *error);
/* The same into a session that is empty. On failure there may be some of it: truncate to 0. */
afmoe_status afmoe__session_fill(struct session *session, uint64_t fingerprint, const struct mapped_file *file,
                                 afmoe_error *error);

/* What the states that this context can load have in common, as one number. */
uint64_t afmoe__state_kind(const struct context *context, uint64_t fingerprint);
/* Of a state that this context can load: its tokens, for afmoe__free, and the first page of its sliding layers. */
afmoe_status afmoe__state_tokens(afmoe_token **out, uint64_t *out_n, uint64_t *out_first_page,
                                 const struct context *context, uint64_t fingerprint, const struct mapped_file *file,
                                 afmoe_error *error);

#endif
