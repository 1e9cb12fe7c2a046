/* Prefixes on disk: what finished sessions leave in a folder, so that a new one with the same beginning, of this
 * process or another, starts from there. The form of names is at the top of prefix_folder.c.
 *
 * Nothing but opening it fails: what cannot be written is left out, what is gone or damaged is not known. Thread safe;
 * any number of processes may use a folder at once. Not for a child of fork. */
#ifndef AFMOE_SESSION_PREFIX_FOLDER_H
#define AFMOE_SESSION_PREFIX_FOLDER_H

#include "session.h"

struct prefix_folder;

/* At most max_bytes of files of this context's kind; `path` NULL: *out is NULL, which is a folder where nothing is ever
 * left. Failures as afmoe_context_create says. */
afmoe_status afmoe__prefix_folder_open(struct prefix_folder **out, struct context *context, const char *path,
                                       uint64_t max_bytes, uint64_t fingerprint, afmoe_error *error);
void afmoe__prefix_folder_close(struct prefix_folder *folder);

/* Leave what `session` holds, whose logits go. It may be too short or too large, or there already. */
void afmoe__prefix_folder_leave(struct prefix_folder *folder, struct session *session);
/* Make the timeline of `session`, which has no logits, the longest beginning of tokens[0, n_tokens) that is there and
 * that it can go on from, if that is longer than the one it has; at most `most` tokens. How many it has then. */
uint64_t afmoe__prefix_folder_take(struct prefix_folder *folder, struct session *session, const afmoe_token *tokens,
                                   uint64_t n_tokens, uint64_t most);
void afmoe__prefix_folder_counts(struct prefix_folder *folder, afmoe_context_info *out);

#endif
