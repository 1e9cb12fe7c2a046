/* Public calls of a generation that is asked for piece by piece.
 *
 * It is open on a session as long as nobody else changes that: each call that may counts in session->n_changes and
 * drops the drafts (afmoe__session_enter_to_change), and a generation that finds another count than its own has lost
 * it. */
#include "generate.h"

#include "handles.h"
#include "memory.h"
#include "structs.h"

#include <string.h>

struct afmoe_generation {
    struct guard guard;
    afmoe_session *session;
    afmoe_sampler *sampler; /* NULL: greedy */
    struct sampler *greedy;
    afmoe_cancel *cancel;
    afmoe_token *stop_tokens;
    afmoe_generate_options options;
    afmoe_generate_result result;
    struct generation core;
    uint64_t n_changes; /* of the session, while it is ours */
    afmoe_error error;  /* how it ended */
};

/* ---- Create and free ---- */

static afmoe_status read_options(afmoe_generation *generation, const afmoe_generate_options *options,
                                 afmoe_error *error)
{
    afmoe_generate_options *full = &generation->options;
    afmoe_generate_options_init(full, sizeof *full);
    afmoe_generate_result_init(&generation->result, sizeof generation->result);
    afmoe_error_init(&generation->error, sizeof generation->error);
    afmoe_status status = STRUCT_READ(full, options, afmoe_generate_options, error);
    if (status == AFMOE_OK && full->on_piece)
        return afmoe__fail(error, AFMOE_INVALID, "on_piece is set, but the pieces of a generation are asked for");
    return status;
}

/* What begin has checked and does not copy itself. */
static afmoe_status keep_options(afmoe_generation *generation, afmoe_error *error)
{
    afmoe_generate_options *options = &generation->options;
    uint64_t n = options->n_stop_tokens;
    if (n > 0) {
        generation->stop_tokens = afmoe__alloc_array(n, sizeof *generation->stop_tokens);
        if (!generation->stop_tokens) return afmoe__fail_memory(error, n * sizeof(afmoe_token), "stop_tokens");
        memcpy(generation->stop_tokens, options->stop_tokens, n * sizeof(afmoe_token));
        options->stop_tokens = generation->stop_tokens;
    }
    generation->cancel = (afmoe_cancel *)options->cancel;
    afmoe_cancel_retain(generation->cancel);
    return AFMOE_OK;
}

/* The session is entered; so is the sampler, which may be NULL. */
static afmoe_status begin(afmoe_generation *generation, afmoe_session *session, afmoe_sampler *sampler,
                          afmoe_error *error)
{
    afmoe_status status = AFMOE_OK;
    if (sampler)
        status = afmoe__sampler_check_model(sampler, session, error);
    else
        status = afmoe__sampler_create_greedy(&generation->greedy, session->context->model, error);
    if (status != AFMOE_OK) return status;
    struct generation_source from = afmoe__session_source(session, sampler ? sampler->core : generation->greedy);
    from.is_pulled = true;
    status = afmoe__generation_begin(&generation->core, &from, &generation->options, &generation->result, error);
    if (status == AFMOE_OK) status = keep_options(generation, error);
    if (status != AFMOE_OK) {
        afmoe__session_end_drafts(session->core);
        return status;
    }
    guard_retain(&session->guard);
    generation->session = session;
    generation->n_changes = session->n_changes;
    if (sampler) guard_retain(&sampler->guard);
    generation->sampler = sampler;
    return AFMOE_OK;
}

/* Nothing more to do with the session: drafts of ours go. */
static void let_go(afmoe_generation *generation)
{
    afmoe_session *session = generation->session;
    if (!generation->core.has_ended && afmoe__session_enter(session, NULL) == AFMOE_OK) {
        if (session->n_changes == generation->n_changes) afmoe__session_end_drafts(session->core);
        afmoe__session_leave(session);
    } /* else who changes the session next drops them */
    afmoe_session_free(session);
}

static void destroy(afmoe_generation *generation)
{
    if (generation->session) let_go(generation);
    afmoe__generation_end(&generation->core);
    afmoe_sampler_free(generation->sampler);
    afmoe__sampler_free(generation->greedy);
    afmoe_cancel_free(generation->cancel);
    afmoe__free(generation->stop_tokens);
    afmoe__free(generation);
}

afmoe_status afmoe_generation_create(afmoe_generation **out, afmoe_session *session, afmoe_sampler *sampler,
                                     const afmoe_generate_options *options, afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(out, "out", error);
    if (status != AFMOE_OK) return status;
    *out = NULL;
    if ((status = afmoe__check_argument(session, "session", error)) != AFMOE_OK) return status;
    afmoe_generation *generation = afmoe__alloc_zeroed(1, sizeof *generation);
    if (!generation) return afmoe__fail_memory(error, sizeof *generation, "a generation");
    guard_init(&generation->guard);
    status = read_options(generation, options, error);
    if (status == AFMOE_OK && (status = afmoe__session_enter_to_change(session, error)) == AFMOE_OK) {
        if (sampler) status = afmoe__sampler_enter(sampler, error);
        if (status == AFMOE_OK) {
            status = begin(generation, session, sampler, error);
            if (sampler) afmoe__sampler_leave(sampler);
        }
        afmoe__session_leave(session);
    }
    if (status == AFMOE_OK)
        *out = generation;
    else
        destroy(generation);
    return status;
}

void afmoe_generation_free(afmoe_generation *generation)
{
    if (generation && guard_release(&generation->guard)) destroy(generation);
}

/* ---- Next ---- */

static afmoe_status enter(afmoe_generation *generation, afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(generation, "generation", error);
    return status == AFMOE_OK ? guard_enter(&generation->guard, "generation", error) : status;
}

static void leave(afmoe_generation *generation)
{
    if (guard_leave(&generation->guard)) destroy(generation);
}

/* The session is entered. True: there is a piece. */
static bool pull(afmoe_generation *generation)
{
    if (generation->session->n_changes == generation->n_changes)
        return afmoe__generation_pull(&generation->core, &generation->error);
    afmoe__generation_lose(&generation->core, &generation->error);
    return false;
}

static afmoe_status next(afmoe_generation *generation, afmoe_piece *piece, afmoe_error *error)
{
    struct generation *core = &generation->core;
    if (!core->has_ended) {
        bool has_piece = false;
        afmoe_status status = afmoe__session_enter(generation->session, error);
        if (status != AFMOE_OK) return status;
        if (generation->sampler) status = afmoe__sampler_enter(generation->sampler, error);
        if (status == AFMOE_OK) has_piece = pull(generation);
        if (status == AFMOE_OK && generation->sampler) afmoe__sampler_leave(generation->sampler);
        afmoe__session_leave(generation->session);
        if (has_piece) afmoe__struct_write(piece, &core->piece, sizeof core->piece);
        if (has_piece || status != AFMOE_OK) return status;
    }
    return core->status < 0 ? afmoe__fail(error, core->status, "%s", generation->error.message) : AFMOE_END;
}

afmoe_status afmoe_generation_next(afmoe_generation *generation, afmoe_piece *piece, afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(piece, "piece", error);
    if (status == AFMOE_OK) status = STRUCT_CHECK_OUT(piece, afmoe_piece, error);
    if (status == AFMOE_OK) status = enter(generation, error);
    if (status != AFMOE_OK) return status;
    status = next(generation, piece, error);
    leave(generation);
    return status;
}

afmoe_status afmoe_generation_get_result(afmoe_generation *generation, afmoe_generate_result *result,
                                         afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(result, "result", error);
    if (status == AFMOE_OK) status = STRUCT_CHECK_OUT(result, afmoe_generate_result, error);
    if (status == AFMOE_OK) status = enter(generation, error);
    if (status != AFMOE_OK) return status;
    afmoe__generation_measure(&generation->core);
    afmoe__struct_write(result, &generation->result, sizeof generation->result);
    leave(generation);
    return AFMOE_OK;
}
