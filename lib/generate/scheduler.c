/* The scheduler, see scheduler.h. */
#include "scheduler.h"

#include "cancel.h"
#include "error.h"

static void on_computed(void *user, void *item, afmoe_status status, const afmoe_append_result *result)
{
    struct request *request = item;
    (void)user;
    (void)result;
    request->is_computing = false;
    request->status = status;
}

afmoe_status afmoe__scheduler_init(struct scheduler *scheduler, struct context *context, afmoe_error *error)
{
    int failed = pthread_mutex_init(&scheduler->lock, NULL);
    scheduler->step = (struct step){.context = context, .on_done = on_computed};
    return failed ? afmoe__fail_errno(error, AFMOE_NO_MEMORY, failed, "cannot make a lock") : AFMOE_OK;
}

void afmoe__scheduler_destroy(struct scheduler *scheduler)
{
    pthread_mutex_destroy(&scheduler->lock);
}

/* ---- Waiting ---- */

afmoe_status afmoe__scheduler_submit(struct scheduler *scheduler, struct request *request, afmoe_error *error)
{
    struct request **link = &scheduler->waiting;
    pthread_mutex_lock(&scheduler->lock);
    bool fits = scheduler->n_waiting < scheduler->max_waiting;
    if (fits) {
        while (*link && (*link)->priority >= request->priority) link = &(*link)->next;
        request->next = *link;
        *link = request;
        scheduler->n_waiting++;
    }
    pthread_mutex_unlock(&scheduler->lock);
    return fits ? AFMOE_OK
                : afmoe__fail(error, AFMOE_LIMIT, "%llu requests are waiting, which is max_waiting",
                              (unsigned long long)scheduler->max_waiting);
}

/* The first waiting request, or the first whose flag is set, moves to the running ones; NULL: none may. */
static struct request *take_waiting(struct scheduler *scheduler, bool cancelled)
{
    pthread_mutex_lock(&scheduler->lock);
    struct request **link = &scheduler->waiting;
    while (*link && cancelled && !cancel_requested((*link)->options.cancel)) link = &(*link)->next;
    struct request *request = *link;
    if (request && !cancelled && scheduler->n_running >= scheduler->max_running) request = NULL;
    if (request) {
        *link = request->next;
        scheduler->n_waiting--;
        scheduler->n_running++;
        request->next = scheduler->running;
        scheduler->running = request;
    }
    pthread_mutex_unlock(&scheduler->lock);
    return request;
}

static void leave_running(struct scheduler *scheduler, struct request *request)
{
    struct request **link = &scheduler->running;
    while (*link != request) link = &(*link)->next;
    *link = request->next;
    pthread_mutex_lock(&scheduler->lock);
    scheduler->n_running--;
    pthread_mutex_unlock(&scheduler->lock);
}

/* It came first and stays so: those of its priority were submitted later. */
static void put_back(struct scheduler *scheduler, struct request *request)
{
    struct request **link = &scheduler->waiting;
    leave_running(scheduler, request);
    pthread_mutex_lock(&scheduler->lock);
    while (*link && (*link)->priority > request->priority) link = &(*link)->next;
    request->next = *link;
    *link = request;
    scheduler->n_waiting++;
    pthread_mutex_unlock(&scheduler->lock);
}

/* ---- Running ---- */

static void finish(struct scheduler *scheduler, struct request *request, afmoe_status status)
{
    struct generation *g = &request->generation;
    if (request->is_answering) {
        if (!g->has_ended && afmoe__generation_finish(g, status, &request->error))
            afmoe__generation_give(g, &request->error);
        status = afmoe__generation_end(g);
    } else {
        request->result.finish_reason = afmoe__generation_finish_reason(&request->result, status);
    }
    leave_running(scheduler, request);
    pthread_mutex_lock(&scheduler->lock);
    scheduler->n_done++;
    pthread_mutex_unlock(&scheduler->lock);
    request->on_done(request, status, &request->error);
}

/* The token of the answer is in the timeline. */
static afmoe_status give(struct request *request)
{
    struct generation *g = &request->generation;
    afmoe_status status = afmoe__generation_given(g, &request->error);
    if (status == AFMOE_OK && !afmoe__generation_give(g, &request->error)) status = g->status;
    return status;
}

/* Tokens one after the other, until one has to be computed: then it is in the step. Else: how it ended. */
static afmoe_status next_tokens(struct scheduler *scheduler, struct request *request)
{
    struct generation *g = &request->generation;
    const afmoe_token *draft;
    afmoe_token token;
    uint64_t n_draft;
    while (!afmoe__generation_is_over(g)) {
        afmoe_status status = afmoe__generation_next(g, &token, &draft, &n_draft, &request->error);
        if (status != AFMOE_OK) return status;
        request->is_computing = true;
        request->n_rows = 1 + n_draft;
        afmoe__step_append_drafted(&scheduler->step, g->from.session, request, token, draft, n_draft,
                                   request->options.cancel, &request->error);
        if (request->is_computing) return AFMOE_OK;
        if (request->status == AFMOE_OK) request->status = give(request);
        if (request->status != AFMOE_OK) return request->status;
    }
    return AFMOE_OK;
}

/* What it had in the step is computed, with request->status: go on. */
static void go_on(struct scheduler *scheduler, struct request *request)
{
    afmoe_status status = request->status;
    if (status == AFMOE_OK && request->is_answering) {
        status = give(request);
    } else if (status == AFMOE_OK) {
        request->is_answering = true;
        status = afmoe__generation_begin(&request->generation, &request->from, &request->options, &request->result,
                                         &request->error);
    }
    if (status == AFMOE_OK) status = next_tokens(scheduler, request);
    if (!request->is_computing) finish(scheduler, request, status);
}

/* False: it has to wait for pages, which running requests will give back. */
static bool start(struct scheduler *scheduler, struct request *request)
{
    const afmoe_append_options options = {.size = sizeof options, .cancel = request->options.cancel};
    bool others = scheduler->n_running > 1; /* nobody else changes it */
    request->error.code = AFMOE_OK;
    request->error.message[0] = '\0';
    request->is_computing = true;
    afmoe__step_append(&scheduler->step, request->from.session, request, request->tokens, request->n_tokens, &options,
                       &request->error);
    if (request->is_computing) return true;
    if (request->status == AFMOE_CONTEXT_FULL && others &&
        afmoe__session_has_room(request->from.session, request->n_tokens)) {
        put_back(scheduler, request);
        return false;
    }
    go_on(scheduler, request);
    return true;
}

static void admit(struct scheduler *scheduler)
{
    struct request *request;
    while ((request = take_waiting(scheduler, true))) {
        afmoe__fail(&request->error, AFMOE_CANCELLED, "cancelled while waiting");
        finish(scheduler, request, AFMOE_CANCELLED);
    }
    while ((request = take_waiting(scheduler, false)) && start(scheduler, request)) {}
}

/* Rows that answers need, and those for the prompts beside them: at least one for each, so that no answer waits. */
static uint64_t rows_of_pass(const struct scheduler *scheduler)
{
    uint64_t n_rows = 0, n_reading = 0;
    for (const struct request *request = scheduler->running; request; request = request->next) {
        n_rows += request->is_answering ? request->n_rows : 0;
        n_reading += !request->is_answering;
    }
    if (n_rows == 0) return UINT64_MAX;
    return n_rows + (n_reading > scheduler->max_prompt_tokens ? n_reading : scheduler->max_prompt_tokens);
}

static struct request *find_computed(const struct scheduler *scheduler)
{
    struct request *request = scheduler->running;
    while (request && request->is_computing) request = request->next;
    return request;
}

afmoe_status afmoe__scheduler_step(struct scheduler *scheduler)
{
    struct request *request;
    admit(scheduler);
    if (!scheduler->running) return AFMOE_END;
    afmoe__step_pass(&scheduler->step, rows_of_pass(scheduler));
    while ((request = find_computed(scheduler))) go_on(scheduler, request);
    pthread_mutex_lock(&scheduler->lock);
    bool left = scheduler->running || scheduler->waiting;
    pthread_mutex_unlock(&scheduler->lock);
    return left ? AFMOE_OK : AFMOE_END;
}

void afmoe__scheduler_counts(struct scheduler *scheduler, uint64_t *out_waiting, uint64_t *out_running,
                             uint64_t *out_done)
{
    pthread_mutex_lock(&scheduler->lock);
    *out_waiting = scheduler->n_waiting;
    *out_running = scheduler->n_running;
    *out_done = scheduler->n_done;
    pthread_mutex_unlock(&scheduler->lock);
}

void afmoe__scheduler_cancel_all(struct scheduler *scheduler)
{
    struct request *request;
    pthread_mutex_lock(&scheduler->lock);
    scheduler->max_waiting = 0; /* a callback may try to submit */
    scheduler->max_running = UINT64_MAX;
    pthread_mutex_unlock(&scheduler->lock);
    while (take_waiting(scheduler, false)) {}
    afmoe__step_cancel(&scheduler->step);
    while ((request = scheduler->running)) {
        afmoe__fail(&request->error, AFMOE_CANCELLED, "the scheduler was freed");
        finish(scheduler, request, AFMOE_CANCELLED);
    }
}

static void drop_list(struct request *request, void (*drop)(struct request *request))
{
    while (request) {
        struct request *next = request->next;
        if (request->is_answering) afmoe__generation_drop(&request->generation);
        drop(request);
        request = next;
    }
}

void afmoe__scheduler_drop_all(struct scheduler *scheduler, void (*drop)(struct request *request))
{
    bool is_whole = pthread_mutex_trylock(&scheduler->lock) == 0;
    afmoe__step_cancel(&scheduler->step);
    drop_list(scheduler->running, drop);
    if (!is_whole) return;
    drop_list(scheduler->waiting, drop);
    pthread_mutex_unlock(&scheduler->lock);
    afmoe__scheduler_destroy(scheduler);
}
