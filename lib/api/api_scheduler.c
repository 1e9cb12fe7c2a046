/* Public calls of the scheduler: a request holds its session and sampler from submit until it is done. */
#include "scheduler.h"

#include "handles.h"
#include "memory.h"
#include "stop_strings.h"
#include "structs.h"

struct afmoe_scheduler {
    struct guard guard; /* of step and run */
    afmoe_context *context;
    struct sampler *greedy; /* of requests without one */
    struct scheduler core;
};

/* A request with the handles it holds. */
struct held_request {
    struct request core;
    afmoe_session *session;
    afmoe_sampler *sampler; /* NULL: the scheduler's */
    afmoe_request_fn on_done;
    void *on_done_data;
};

static afmoe_status check_range(uint32_t value, uint32_t max, const char *name, afmoe_error *error)
{
    if (value >= 1 && value <= max) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_INVALID, "%s is %u, allowed are 1..%u", name, value, max);
}

static afmoe_status read_options(struct scheduler *out, const afmoe_scheduler_options *options, afmoe_error *error)
{
    afmoe_scheduler_options full;
    afmoe_scheduler_options_init(&full, sizeof full);
    afmoe_status status = STRUCT_READ(&full, options, afmoe_scheduler_options, error);
    if (status == AFMOE_OK) status = check_range(full.max_running, 4096, "max_running", error);
    if (status == AFMOE_OK) status = check_range(full.max_waiting, 1 << 20, "max_waiting", error);
    if (status == AFMOE_OK) status = check_range(full.max_prompt_tokens, 4096, "max_prompt_tokens", error);
    out->max_running = full.max_running;
    out->max_waiting = full.max_waiting;
    out->max_prompt_tokens = full.max_prompt_tokens;
    return status;
}

afmoe_status afmoe_scheduler_create(afmoe_scheduler **out, afmoe_context *context,
                                    const afmoe_scheduler_options *options, afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(out, "out", error);
    if (status != AFMOE_OK) return status;
    *out = NULL;
    status = afmoe__check_argument(context, "context", error);
    if (status == AFMOE_OK) status = afmoe__context_check_process(context->core, error);
    if (status != AFMOE_OK) return status;
    afmoe_scheduler *scheduler = afmoe__alloc_zeroed(1, sizeof *scheduler);
    if (!scheduler) return afmoe__fail_memory(error, sizeof *scheduler, "a scheduler");
    status = read_options(&scheduler->core, options, error);
    if (status == AFMOE_OK) status = afmoe__sampler_create_greedy(&scheduler->greedy, context->model, error);
    if (status == AFMOE_OK) status = afmoe__scheduler_init(&scheduler->core, context->core, error);
    if (status != AFMOE_OK) {
        afmoe__sampler_free(scheduler->greedy);
        afmoe__free(scheduler);
        return status;
    }
    guard_init(&scheduler->guard);
    atomic_fetch_add(&context->n_references, 1);
    scheduler->context = context;
    *out = scheduler;
    return AFMOE_OK;
}

static void let_go(struct held_request *held)
{
    if (held->sampler) afmoe__sampler_leave(held->sampler);
    if (held->session) afmoe__session_leave(held->session);
}

static void drop(struct request *request)
{
    struct held_request *held = (struct held_request *)request; /* its first member */
    let_go(held);
    afmoe__free(held);
}

/* In a child of fork the requests are the parent's. */
static void destroy(afmoe_scheduler *scheduler)
{
    if (afmoe__context_check_process(scheduler->context->core, NULL) == AFMOE_OK) {
        afmoe__scheduler_cancel_all(&scheduler->core);
        afmoe__scheduler_destroy(&scheduler->core);
    } else {
        afmoe__scheduler_drop_all(&scheduler->core, drop);
    }
    afmoe__sampler_free(scheduler->greedy);
    afmoe_context_free(scheduler->context);
    afmoe__free(scheduler);
}

void afmoe_scheduler_free(afmoe_scheduler *scheduler)
{
    if (scheduler && guard_release(&scheduler->guard)) destroy(scheduler);
}

/* ---- Submit ---- */

static void on_done(struct request *request, afmoe_status status, const afmoe_error *error)
{
    struct held_request *held = (struct held_request *)request; /* its first member */
    let_go(held);
    if (held->on_done) held->on_done(held->on_done_data, status, &request->result, error);
    afmoe__free(held);
}

/* Enter session and sampler. On failure what was entered is in `held`. */
static afmoe_status hold(struct held_request *held, afmoe_scheduler *scheduler, const afmoe_request *request,
                         afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(request->session, "session", error);
    if (status != AFMOE_OK) return status;
    if (request->session->context != scheduler->context)
        return afmoe__fail(error, AFMOE_INVALID, "the session belongs to another context");
    if (request->n_tokens && (status = afmoe__check_argument(request->tokens, "tokens", error)) != AFMOE_OK)
        return status;
    if ((status = afmoe__session_enter_to_change(request->session, error)) != AFMOE_OK) return status;
    held->session = request->session;
    if (request->sampler && (status = afmoe__sampler_enter(request->sampler, error)) != AFMOE_OK) return status;
    held->sampler = request->sampler;
    if (held->sampler) status = afmoe__sampler_check_model(held->sampler, held->session, error);
    return status;
}

/* What they are made into when the answer begins; here only whether that will do. */
static afmoe_status check_stop_strings(const afmoe_generate_options *options, afmoe_error *error)
{
    struct stop_strings *stops;
    if (options->n_stop_strings == 0) return AFMOE_OK;
    afmoe_status status = afmoe__stop_strings_create(&stops, options->stop_strings, options->stop_string_bytes,
                                                     options->n_stop_strings, error);
    if (status == AFMOE_OK) afmoe__stop_strings_free(stops);
    return status;
}

static afmoe_status fill(struct held_request *held, afmoe_scheduler *scheduler, const afmoe_request *request,
                         afmoe_error *error)
{
    struct request *core = &held->core;
    afmoe_generate_options_init(&core->options, sizeof core->options);
    afmoe_generate_result_init(&core->result, sizeof core->result);
    afmoe_error_init(&core->error, sizeof core->error);
    core->tokens = request->tokens;
    core->n_tokens = request->n_tokens;
    core->priority = request->priority;
    core->on_done = on_done;
    held->on_done = request->on_done;
    held->on_done_data = request->on_done_data;
    afmoe_status status =
        STRUCT_READ(&core->options, request->options, afmoe_generate_options, error);
    if (status == AFMOE_OK) status = hold(held, scheduler, request, error);
    if (status != AFMOE_OK) return status;
    core->from = afmoe__session_source(held->session, held->sampler ? held->sampler->core : scheduler->greedy);
    status = afmoe__generation_check(&core->from, &core->options, error);
    if (status == AFMOE_OK) status = check_stop_strings(&core->options, error);
    if (status == AFMOE_OK && core->n_tokens == 0 && !afmoe__session_logits(core->from.session))
        status = afmoe__fail(error, AFMOE_STATE, "the session has no logits to start from, and there are no tokens");
    return status;
}

afmoe_status afmoe_scheduler_submit(afmoe_scheduler *scheduler, const afmoe_request *request, afmoe_error *error)
{
    afmoe_request full;
    afmoe_request_init(&full, sizeof full);
    afmoe_status status = afmoe__check_argument(scheduler, "scheduler", error);
    if (status == AFMOE_OK) status = afmoe__check_argument(request, "request", error);
    if (status == AFMOE_OK) status = STRUCT_READ(&full, request, afmoe_request, error);
    if (status == AFMOE_OK) status = afmoe__context_check_process(scheduler->context->core, error);
    if (status != AFMOE_OK) return status;
    struct held_request *held = afmoe__alloc_zeroed(1, sizeof *held);
    if (!held) return afmoe__fail_memory(error, sizeof *held, "a request");
    status = fill(held, scheduler, &full, error);
    if (status == AFMOE_OK) status = afmoe__scheduler_submit(&scheduler->core, &held->core, error);
    if (status == AFMOE_OK) return AFMOE_OK;
    let_go(held);
    afmoe__free(held);
    return status;
}

/* ---- Step ---- */

static afmoe_status enter(afmoe_scheduler *scheduler, afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(scheduler, "scheduler", error);
    if (status == AFMOE_OK) status = afmoe__context_check_process(scheduler->context->core, error);
    return status == AFMOE_OK ? guard_enter(&scheduler->guard, "scheduler", error) : status;
}

static void leave(afmoe_scheduler *scheduler)
{
    if (guard_leave(&scheduler->guard)) destroy(scheduler);
}

afmoe_status afmoe_scheduler_step(afmoe_scheduler *scheduler, afmoe_error *error)
{
    afmoe_status status = enter(scheduler, error);
    if (status != AFMOE_OK) return status;
    status = afmoe__scheduler_step(&scheduler->core);
    leave(scheduler);
    return status;
}

/* Freed by a callback: the rest is not computed, but ended by leave. */
afmoe_status afmoe_scheduler_run(afmoe_scheduler *scheduler, afmoe_error *error)
{
    afmoe_status status = enter(scheduler, error);
    if (status != AFMOE_OK) return status;
    while (status == AFMOE_OK && !guard_is_freed(&scheduler->guard)) status = afmoe__scheduler_step(&scheduler->core);
    leave(scheduler);
    return AFMOE_OK;
}

afmoe_status afmoe_scheduler_get_info(afmoe_scheduler *scheduler, afmoe_scheduler_info *info, afmoe_error *error)
{
    afmoe_scheduler_info full;
    afmoe_scheduler_info_init(&full, sizeof full);
    afmoe_status status = afmoe__check_argument(scheduler, "scheduler", error);
    if (status == AFMOE_OK) status = afmoe__check_argument(info, "info", error);
    if (status == AFMOE_OK) status = STRUCT_CHECK_OUT(info, afmoe_scheduler_info, error);
    if (status == AFMOE_OK) status = afmoe__context_check_process(scheduler->context->core, error);
    if (status != AFMOE_OK) return status;
    afmoe__scheduler_counts(&scheduler->core, &full.n_waiting, &full.n_running, &full.n_done);
    afmoe__struct_write(info, &full, sizeof full);
    return AFMOE_OK;
}
