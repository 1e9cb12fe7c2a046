/* Prefix store of a context: what finished sessions leave, so that a new one with the same beginning starts from there.
 *
 * A prefix is a timeline without logits; it holds pages by reference, as a fork does. All prefixes together hold at
 * most a budget of pages, of which each counts once, whoever else has it; those used longest ago go first, also when a
 * session needs room under the cap of the context or memory is out. Thread safe. */
#ifndef AFMOE_SESSION_PREFIXES_H
#define AFMOE_SESSION_PREFIXES_H

#include "timeline.h"

struct prefixes;

/* budget_bytes of pages; 0: nothing is ever left. */
afmoe_status afmoe__prefixes_create(struct prefixes **out, struct context *context, uint64_t budget_bytes,
                                    afmoe_error *error);
/* NULL is fine. */
void afmoe__prefixes_free(struct prefixes *prefixes);

/* Leave what `timeline` holds, which is empty then. When that is too short or does not fit, nothing is left. */
void afmoe__prefixes_leave(struct prefixes *prefixes, struct timeline *timeline);
/* Make `timeline`, which is empty, the longest known beginning of tokens[0, n_tokens) that it can go on from; the
 * number of its tokens, 0 when none is known. */
uint64_t afmoe__prefixes_take(struct prefixes *prefixes, struct timeline *timeline, const afmoe_token *tokens,
                              uint64_t n_tokens);
/* Drop the one used longest ago; false when there is none. */
bool afmoe__prefixes_drop_oldest(struct prefixes *prefixes);

/* Memory of all prefixes, their pages left out. */
uint64_t afmoe__prefixes_memory(struct prefixes *prefixes);

#endif
