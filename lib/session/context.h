/* Context: what it takes to compute for one model - worker pool, kernels, scratch, the store of key/value pages - and
 * whose turn it is. Knows weights and config, not where they came from. */
#ifndef AFMOE_SESSION_CONTEXT_H
#define AFMOE_SESSION_CONTEXT_H

#include "afmoe.h"
#include "weights.h"

struct context;

/* `config` and `weights` must outlive the context. `options` is validated here; `fingerprint` of the model matters with
 * a prefix_folder only. */
afmoe_status afmoe__context_create(struct context **out, const struct model_config *config,
                                   const struct model_weights *weights, const afmoe_context_options *options,
                                   uint64_t fingerprint, afmoe_error *error);
/* OK, or STATE in a child of fork: its threads are not there, and its locks may be held by threads that are not. */
afmoe_status afmoe__context_check_process(const struct context *context, afmoe_error *error);
/* All sessions must be gone. */
void afmoe__context_free(struct context *context);
void afmoe__context_info(struct context *context, afmoe_context_info *out);
/* Scratch, pages and sessions: what they take now, and what a context with so many sessions, each grown to n_tokens one
 * after the other, would take. CONTEXT_FULL when the options do not allow that much. The other fields stay. */
void afmoe__context_memory(struct context *context, afmoe_memory *out);
afmoe_status afmoe__context_estimate(const struct model_config *config, const afmoe_context_options *options,
                                     uint64_t n_sessions, uint64_t n_tokens, afmoe_memory *out, afmoe_error *error);

#endif
