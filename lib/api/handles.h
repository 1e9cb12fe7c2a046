/* The public handles: reference counts and guards around the objects of the floors below. */
#ifndef AFMOE_API_HANDLES_H
#define AFMOE_API_HANDLES_H

#include "checkpoint.h"
#include "generation.h"
#include "guard.h"
#include "sampler.h"
#include "session.h"
#include "tokenizer.h"

struct afmoe_model {
    atomic_int n_references;
    struct checkpoint checkpoint;
    struct tokenizer *tokenizer; /* NULL: none, text calls answer UNSUPPORTED */
    char no_tokenizer[504];      /* and why */
    uint64_t vocab_size;         /* rows of the output; without weights: ids of the tokenizer */
    uint8_t *usable;             /* [vocab_size], 0 for rows without a token; NULL: all usable */
    afmoe_token *stop_tokens;
    uint64_t n_stop_tokens;
    afmoe_release_fn release; /* of memory it was opened from; NULL: none */
    void *release_data;
};

struct afmoe_context {
    atomic_int n_references; /* the caller's and one for each session */
    afmoe_model *model;
    struct context *core;
};

struct afmoe_session {
    struct guard guard;
    afmoe_context *context;
    struct session *core;
    uint64_t n_changes; /* calls that may have changed it */
};

struct afmoe_sampler {
    struct guard guard;
    afmoe_model *model;
    struct sampler *core;
};

/* Check and complete the options, then open. `headers_only`: to be measured, not used. */
afmoe_status afmoe__model_open(afmoe_model **out, const struct checkpoint_source *source,
                               const afmoe_model_options *options, bool headers_only, afmoe_error *error);
/* As the fields of afmoe_memory. */
void afmoe__model_memory(const afmoe_model *model, uint64_t *out_mapped, uint64_t *out_private);

/* Of its files, see weights/fingerprint.h; 0 in a build without state. */
uint64_t afmoe__model_fingerprint(const afmoe_model *model);

/* OK, or UNSUPPORTED when the model has no tokenizer. */
afmoe_status afmoe__model_need_tokenizer(const afmoe_model *model, afmoe_error *error);

/* Enter and leave a session or sampler; leave destroys it when it was freed meanwhile. Who may change the session says
 * so: a generation that is open on it has lost it then (api_generation.c). */
afmoe_status afmoe__session_enter(afmoe_session *session, afmoe_error *error);
afmoe_status afmoe__session_enter_to_change(afmoe_session *session, afmoe_error *error);
void afmoe__session_leave(afmoe_session *session);
afmoe_status afmoe__sampler_enter(afmoe_sampler *sampler, afmoe_error *error);
void afmoe__sampler_leave(afmoe_sampler *sampler);

/* What an answer of this session is made with, see lib/generate/generation.h. */
struct generation_source afmoe__session_source(afmoe_session *session, struct sampler *sampler);
afmoe_status afmoe__sampler_create_greedy(struct sampler **out, const afmoe_model *model, afmoe_error *error);

/* OK, or STATE when the two are of different models. Both must have been entered. */
afmoe_status afmoe__sampler_check_model(const afmoe_sampler *sampler, const afmoe_session *session, afmoe_error *error);

#endif
