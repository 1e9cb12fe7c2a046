/* Session: one timeline of tokens with its key/value pages, in a context that must outlive it.
 *
 * One caller at a time (the floor above answers BUSY to a second); sessions of one context may be called from
 * different threads and take turns, chunk by chunk, in arrival order. */
#ifndef AFMOE_SESSION_SESSION_H
#define AFMOE_SESSION_SESSION_H

#include "context.h"

#include <stdbool.h>

struct session;

afmoe_status afmoe__session_create(struct session **out, struct context *context, afmoe_error *error);
void afmoe__session_free(struct session *session);
/* A second session with the same timeline and logits; pages are shared until one of the two writes. */
afmoe_status afmoe__session_fork(struct session **out, struct session *session, afmoe_error *error);

/* As the public calls of the same names; `options` and `result` are full structs, not NULL. */
afmoe_status afmoe__session_append(struct session *session, const afmoe_token *tokens, uint64_t n_tokens,
                                   const afmoe_append_options *options, afmoe_append_result *result,
                                   afmoe_error *error);
afmoe_status afmoe__session_sync(struct session *session, const afmoe_token *tokens, uint64_t n_tokens,
                                 const afmoe_append_options *options, afmoe_append_result *result,
                                 afmoe_error *error);
afmoe_status afmoe__session_rewind(struct session *session, uint64_t n_tokens, const afmoe_append_options *options,
                                   afmoe_append_result *result, afmoe_error *error);

/* As afmoe_session_embed: `out` gets hidden_size floats. n_tokens >= 1. */
afmoe_status afmoe__session_embed(struct session *session, const afmoe_token *tokens, uint64_t n_tokens,
                                  int32_t pooling, bool normalize, const afmoe_cancel *cancel, float *out,
                                  afmoe_error *error);

/* As afmoe_session_shift. */
afmoe_status afmoe__session_shift(struct session *session, uint64_t n_keep, uint64_t n_drop, uint64_t *out_dropped,
                                  afmoe_error *error);

/* Do n more tokens fit, as far as max_tokens goes? */
bool afmoe__session_has_room(const struct session *session, uint64_t n_more);

/* Drafts: tokens computed ahead, see ahead.h. Between begin (room for max_draft of them) and end only these calls
 * change the session. */
afmoe_status afmoe__session_begin_drafts(struct session *session, uint64_t max_draft, afmoe_error *error);
void afmoe__session_end_drafts(struct session *session);
/* Is this token computed already? Then to append it costs nothing. */
bool afmoe__session_has_draft(const struct session *session, afmoe_token token);
/* Append a token, and compute as many of the drafts as have room in the same pass; without begin: none. */
afmoe_status afmoe__session_append_drafted(struct session *session, afmoe_token token, const afmoe_token *draft,
                                           uint64_t n_draft, const afmoe_cancel *cancel, afmoe_error *error);

/* Memory of one session of this context, its pages and what shifts add left out. Reads no more than config, max_tokens
 * and plan. */
uint64_t afmoe__session_bytes(const struct context *context);
uint64_t afmoe__session_n_tokens(const struct session *session);
const afmoe_token *afmoe__session_tokens(const struct session *session);
/* Of the last position: vocab_size and hidden_size floats, valid until the next call; NULL when there are none. */
const float *afmoe__session_logits(const struct session *session);
const float *afmoe__session_hidden(const struct session *session);
void afmoe__session_stats(const struct session *session, afmoe_session_stats *out);

#endif
