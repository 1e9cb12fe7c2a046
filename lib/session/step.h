/* Several sessions of one context grow together, pass by pass.
 *
 * A pass has room for chunk_tokens rows. Who needs least gets all of it, the others the same share each; when there are
 * more sessions than rows, those left out come first in the next pass. A session that fails or is stopped leaves, the
 * others go on: a pass that was broken off is made again without it. The turn on the context is taken for a pass, not
 * for the whole. */
#ifndef AFMOE_SESSION_STEP_H
#define AFMOE_SESSION_STEP_H

#include "session.h"

struct step {
    struct context *context;
    const afmoe_cancel *cancel; /* stops all; may be NULL */
    /* A session is done, well or not. It is out of the list and may be used again. `item` as given. NULL: nobody is
     * told. */
    void (*on_done)(void *user, void *item, afmoe_status status, const afmoe_append_result *result);
    void *user;
    struct session *first, *last;
};

/* An append joins the step. What can be refused is refused here, and what is empty is done: on_done is called then. */
void afmoe__step_append(struct step *step, struct session *session, void *item, const afmoe_token *tokens,
                        uint64_t n_tokens, const afmoe_append_options *options, afmoe_error *error);
/* The same for one token with drafts, see session.h. */
void afmoe__step_append_drafted(struct step *step, struct session *session, void *item, afmoe_token token,
                                const afmoe_token *draft, uint64_t n_draft, const afmoe_cancel *cancel,
                                afmoe_error *error);
/* Make one pass of at most max_rows, as even as it goes. */
void afmoe__step_pass(struct step *step, uint64_t max_rows);
/* Passes until all are done. */
void afmoe__step_run(struct step *step);
/* All leave as CANCELLED, with what they have. */
void afmoe__step_cancel(struct step *step);

/* A step of one session whose growing has begun (growth.h); its status. */
afmoe_status afmoe__step_alone(struct session *session);

#endif
