/* Many answers at once: requests wait in line, some run, each step of the scheduler is one pass for all that run.
 *
 *   submit -> waiting -> (reading its tokens -> answering) running -> done
 *
 * Waiting requests come in by priority, then in the order they were submitted, while fewer than max_running run and
 * there are pages for their tokens; one that has to wait for pages is not overtaken. In a step every answer computes
 * its next token (and its drafts), and the requests that still read share max_prompt_tokens evenly, at least one each;
 * when there is no answer, all the room of a pass.
 *
 * Submit is for any thread; the rest for one caller at a time. */
#ifndef AFMOE_GENERATE_SCHEDULER_H
#define AFMOE_GENERATE_SCHEDULER_H

#include "generation.h"
#include "step.h"

#include <pthread.h>

struct request {
    struct generation_source from;
    const afmoe_token *tokens; /* appended before the answer; borrowed until done, as is what the options point to */
    uint64_t n_tokens;
    afmoe_generate_options options;
    int32_t priority;
    void (*on_done)(struct request *request, afmoe_status status, const afmoe_error *error); /* may free it */

    /* The scheduler's own. */
    afmoe_generate_result result;
    afmoe_error error;
    struct generation generation;
    bool is_answering; /* else reading */
    bool is_computing; /* in the step */
    afmoe_status status;
    uint64_t n_rows; /* of the answer in the next pass */
    struct request *next;
};

struct scheduler {
    struct step step;
    uint64_t max_running, max_waiting, max_prompt_tokens;
    struct request *running;
    pthread_mutex_t lock; /* of what follows */
    struct request *waiting;
    uint64_t n_waiting, n_running, n_done;
};

afmoe_status afmoe__scheduler_init(struct scheduler *scheduler, struct context *context, afmoe_error *error);
/* All requests must be done. */
void afmoe__scheduler_destroy(struct scheduler *scheduler);

/* LIMIT: max_waiting are waiting. Options are checked by the caller (afmoe__generation_check). */
afmoe_status afmoe__scheduler_submit(struct scheduler *scheduler, struct request *request, afmoe_error *error);
/* One pass. END: nothing is left to do. */
afmoe_status afmoe__scheduler_step(struct scheduler *scheduler);
/* For any thread. */
void afmoe__scheduler_counts(struct scheduler *scheduler, uint64_t *out_waiting, uint64_t *out_running,
                             uint64_t *out_done);
/* End all requests as CANCELLED. */
void afmoe__scheduler_cancel_all(struct scheduler *scheduler);
/* Instead of cancel_all and destroy in a child of fork, where nobody is told: `drop` gets each request, to free it.
 * Where the lock was held by a thread that is not there, those that wait stay as they are. */
void afmoe__scheduler_drop_all(struct scheduler *scheduler, void (*drop)(struct request *request));

#endif
