/* Checks of what a call asks for, before it changes anything. */
#ifndef AFMOE_SESSION_APPEND_CHECK_H
#define AFMOE_SESSION_APPEND_CHECK_H

#include "timeline.h"

/* `begin` tokens and n_more, when the timeline goes on from `keep`: CONTEXT_FULL above the limit of a session. Comes
 * first, so that an absurd count does not make the next one read that far. */
afmoe_status afmoe__append_check_room(const struct timeline *timeline, uint64_t keep, uint64_t begin, uint64_t n_more,
                                      afmoe_error *error);
afmoe_status afmoe__append_check_tokens(const struct timeline *timeline, const afmoe_token *tokens, uint64_t n_tokens,
                                        afmoe_error *error);
/* The timeline will hold `begin` tokens, then grow to `end`. has_logits: those of position begin - 1 are there. */
afmoe_status afmoe__append_check_options(const struct timeline *timeline, uint64_t begin, uint64_t end,
                                         bool has_logits, const afmoe_append_options *options, afmoe_error *error);

#endif
