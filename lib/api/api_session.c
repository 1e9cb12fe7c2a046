/* Public calls of the session. Each enters the guard, calls the session floor, leaves. */
#include "handles.h"
#include "logprob.h"
#include "memory.h"
#include "structs.h"

#include <string.h>

/* Wrap `core`, made by a call that answered `status`. */
static afmoe_status hand_out(afmoe_session **out, afmoe_context *context, afmoe_session *session, afmoe_status status)
{
    if (status != AFMOE_OK) {
        afmoe__free(session);
        return status;
    }
    guard_init(&session->guard);
    atomic_fetch_add(&context->n_references, 1);
    session->context = context;
    *out = session;
    return AFMOE_OK;
}

afmoe_status afmoe_session_create(afmoe_session **out, afmoe_context *context, afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(out, "out", error);
    if (status != AFMOE_OK) return status;
    *out = NULL;
    status = afmoe__check_argument(context, "context", error);
    if (status == AFMOE_OK) status = afmoe__context_check_process(context->core, error);
    if (status != AFMOE_OK) return status;
    afmoe_session *session = afmoe__alloc_zeroed(1, sizeof *session);
    if (!session) return afmoe__fail_memory(error, sizeof *session, "a session");
    return hand_out(out, context, session, afmoe__session_create(&session->core, context->core, error));
}

afmoe_status afmoe_session_fork(afmoe_session **out, afmoe_session *session, afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(out, "out", error);
    if (status != AFMOE_OK) return status;
    *out = NULL;
    status = afmoe__session_enter(session, error);
    if (status != AFMOE_OK) return status;
    afmoe_session *fork = afmoe__alloc_zeroed(1, sizeof *fork);
    if (fork)
        status = hand_out(out, session->context, fork, afmoe__session_fork(&fork->core, session->core, error));
    else
        status = afmoe__fail_memory(error, sizeof *fork, "a session");
    afmoe__session_leave(session);
    return status;
}

static void destroy(afmoe_session *session)
{
    afmoe__session_free(session->core);
    afmoe_context_free(session->context);
    afmoe__free(session);
}

void afmoe_session_free(afmoe_session *session)
{
    if (session && guard_release(&session->guard)) destroy(session);
}

afmoe_status afmoe__session_enter(afmoe_session *session, afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(session, "session", error);
    if (status == AFMOE_OK) status = afmoe__context_check_process(session->context->core, error);
    return status == AFMOE_OK ? guard_enter(&session->guard, "session", error) : status;
}

afmoe_status afmoe__session_enter_to_change(afmoe_session *session, afmoe_error *error)
{
    afmoe_status status = afmoe__session_enter(session, error);
    if (status != AFMOE_OK) return status;
    session->n_changes++;
    afmoe__session_end_drafts(session->core); /* of the generation that was open */
    return AFMOE_OK;
}

void afmoe__session_leave(afmoe_session *session)
{
    if (guard_leave(&session->guard)) destroy(session);
}

/* ---- Calls that compute ---- */

enum compute_call { CALL_APPEND, CALL_SYNC, CALL_REWIND };

static afmoe_status compute(enum compute_call call, afmoe_session *session, const afmoe_token *tokens,
                            uint64_t n_tokens, const afmoe_append_options *options, afmoe_append_result *result,
                            afmoe_error *error)
{
    afmoe_append_options full;
    afmoe_append_result full_result;
    afmoe_append_options_init(&full, sizeof full);
    afmoe_append_result_init(&full_result, sizeof full_result);
    afmoe_status status = STRUCT_READ(&full, options, afmoe_append_options, error);
    if (status == AFMOE_OK) status = afmoe__check_reserved(full.reserved, "afmoe_append_options", error);
    if (status == AFMOE_OK) status = STRUCT_CHECK_OUT(result, afmoe_append_result, error);
    if (status == AFMOE_OK) status = afmoe__session_enter_to_change(session, error);
    if (status != AFMOE_OK) return status;
    if (call == CALL_APPEND)
        status = afmoe__session_append(session->core, tokens, n_tokens, &full, &full_result, error);
    else if (call == CALL_SYNC)
        status = afmoe__session_sync(session->core, tokens, n_tokens, &full, &full_result, error);
    else
        status = afmoe__session_rewind(session->core, n_tokens, &full, &full_result, error);
    afmoe__session_leave(session);
    afmoe__struct_write(result, &full_result, sizeof full_result);
    return status;
}

afmoe_status afmoe_session_append(afmoe_session *session, const afmoe_token *tokens, uint64_t n_tokens,
                                  const afmoe_append_options *options, afmoe_append_result *result,
                                  afmoe_error *error)
{
    return compute(CALL_APPEND, session, tokens, n_tokens, options, result, error);
}

afmoe_status afmoe_session_sync(afmoe_session *session, const afmoe_token *tokens, uint64_t n_tokens,
                                const afmoe_append_options *options, afmoe_append_result *result, afmoe_error *error)
{
    return compute(CALL_SYNC, session, tokens, n_tokens, options, result, error);
}

afmoe_status afmoe_session_rewind(afmoe_session *session, uint64_t n_tokens, const afmoe_append_options *options,
                                  afmoe_append_result *result, afmoe_error *error)
{
    return compute(CALL_REWIND, session, NULL, n_tokens, options, result, error);
}

afmoe_status afmoe_session_embed(afmoe_session *session, const afmoe_token *tokens, uint64_t n_tokens, int32_t pooling,
                                 int32_t normalize, const afmoe_cancel *cancel, float *out, uint64_t capacity,
                                 uint64_t *out_n, afmoe_error *error)
{
    if (pooling != AFMOE_POOL_MEAN && pooling != AFMOE_POOL_LAST)
        return afmoe__fail(error, AFMOE_INVALID, "pooling is %d, allowed are %d..%d", pooling, AFMOE_POOL_MEAN,
                           AFMOE_POOL_LAST);
    afmoe_status status = afmoe__check_flag(normalize, "normalize", error);
    if (status == AFMOE_OK) status = afmoe__session_enter_to_change(session, error);
    if (status != AFMOE_OK) return status;
    uint64_t hidden_size = session->context->model->checkpoint.config.hidden_size;
    status = afmoe__check_capacity(out, capacity, hidden_size, out_n, error);
    if (status == AFMOE_OK && n_tokens == 0)
        status = afmoe__fail(error, AFMOE_INVALID, "n_tokens is 0, an embedding needs 1 or more");
    if (status == AFMOE_OK)
        status = afmoe__session_embed(session->core, tokens, n_tokens, pooling, normalize, cancel, out, error);
    afmoe__session_leave(session);
    return status;
}

afmoe_status afmoe_session_shift(afmoe_session *session, uint64_t n_keep, uint64_t n_drop, uint64_t *out_dropped,
                                 afmoe_error *error)
{
    uint64_t n_dropped = 0;
    if (out_dropped) *out_dropped = 0;
    afmoe_status status = afmoe__session_enter(session, error);
    if (status != AFMOE_OK) return status;
    status = afmoe__session_shift(session->core, n_keep, n_drop, &n_dropped, error);
    if (out_dropped) *out_dropped = n_dropped;
    afmoe__session_leave(session);
    return status;
}

/* ---- Calls that look ---- */

afmoe_status afmoe_session_tokens(afmoe_session *session, afmoe_token *out, uint64_t capacity, uint64_t *out_n,
                                  afmoe_error *error)
{
    afmoe_status status = afmoe__session_enter(session, error);
    if (status != AFMOE_OK) return status;
    uint64_t n = afmoe__session_n_tokens(session->core);
    status = afmoe__check_capacity(out, capacity, n, out_n, error);
    if (status == AFMOE_OK && n) memcpy(out, afmoe__session_tokens(session->core), n * sizeof *out);
    afmoe__session_leave(session);
    return status;
}

static afmoe_status need(const float *values, afmoe_error *error)
{
    return values ? AFMOE_OK
                  : afmoe__fail(error, AFMOE_STATE, "no logits: nothing was appended since the start, a rewind or a "
                                                    "call that stopped early");
}

static uint64_t vocab_size(const afmoe_session *session)
{
    return session->context->model->checkpoint.config.vocab_size;
}

/* Copy `n` floats that the session has or has not. */
static afmoe_status copy_out(afmoe_session *session, const float *(*values)(const struct session *), uint64_t n,
                             float *out, uint64_t capacity, uint64_t *out_n, afmoe_error *error)
{
    const float *from = values(session->core);
    afmoe_status status = need(from, error);
    if (status == AFMOE_OK) status = afmoe__check_capacity(out, capacity, n, out_n, error);
    if (status == AFMOE_OK) memcpy(out, from, n * sizeof *out);
    return status;
}

afmoe_status afmoe_session_logits(afmoe_session *session, float *out, uint64_t capacity, uint64_t *out_n,
                                  afmoe_error *error)
{
    afmoe_status status = afmoe__session_enter(session, error);
    if (status != AFMOE_OK) return status;
    status = copy_out(session, afmoe__session_logits, vocab_size(session), out, capacity, out_n, error);
    afmoe__session_leave(session);
    return status;
}

afmoe_status afmoe_session_hidden(afmoe_session *session, float *out, uint64_t capacity, uint64_t *out_n,
                                  afmoe_error *error)
{
    afmoe_status status = afmoe__session_enter(session, error);
    if (status != AFMOE_OK) return status;
    status = copy_out(session, afmoe__session_hidden, session->context->model->checkpoint.config.hidden_size, out,
                      capacity, out_n, error);
    afmoe__session_leave(session);
    return status;
}

afmoe_status afmoe_session_logits_view(afmoe_session *session, const float **out, uint64_t *out_n, afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(out, "out", error);
    if (status != AFMOE_OK) return status;
    *out = NULL;
    if ((status = afmoe__session_enter(session, error)) != AFMOE_OK) return status;
    status = need(afmoe__session_logits(session->core), error);
    if (status == AFMOE_OK) {
        *out = afmoe__session_logits(session->core);
        if (out_n) *out_n = vocab_size(session);
    }
    afmoe__session_leave(session);
    return status;
}

afmoe_status afmoe_session_logprobs(afmoe_session *session, float *out, uint64_t capacity, uint64_t *out_n,
                                    afmoe_error *error)
{
    afmoe_status status = afmoe__session_enter(session, error);
    if (status != AFMOE_OK) return status;
    const float *logits = afmoe__session_logits(session->core);
    status = need(logits, error);
    if (status == AFMOE_OK) status = afmoe__check_capacity(out, capacity, vocab_size(session), out_n, error);
    if (status == AFMOE_OK) status = afmoe__logprobs(out, logits, vocab_size(session), error);
    afmoe__session_leave(session);
    return status;
}

afmoe_status afmoe_session_top_logprobs(afmoe_session *session, afmoe_token *out_tokens, float *out_logprobs,
                                        uint64_t k, uint64_t *out_n, afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(out_n, "out_n", error);
    if (status == AFMOE_OK && k && (!out_tokens || !out_logprobs))
        status = afmoe__fail(error, AFMOE_INVALID, "out_tokens or out_logprobs is NULL");
    if (status == AFMOE_OK) status = afmoe__session_enter(session, error);
    if (status != AFMOE_OK) return status;
    const float *logits = afmoe__session_logits(session->core);
    struct log_normaliser normaliser;
    status = need(logits, error);
    if (status == AFMOE_OK) status = afmoe__log_normaliser(&normaliser, logits, vocab_size(session), error);
    if (status == AFMOE_OK)
        *out_n = afmoe__top_logprobs(&normaliser, logits, session->context->model->usable, vocab_size(session), k,
                                     out_tokens, out_logprobs);
    afmoe__session_leave(session);
    return status;
}

afmoe_status afmoe_session_get_stats(afmoe_session *session, afmoe_session_stats *stats, afmoe_error *error)
{
    afmoe_session_stats full;
    afmoe_session_stats_init(&full, sizeof full);
    afmoe_status status = afmoe__check_argument(stats, "stats", error);
    if (status == AFMOE_OK) status = STRUCT_CHECK_OUT(stats, afmoe_session_stats, error);
    if (status == AFMOE_OK) status = afmoe__session_enter(session, error);
    if (status != AFMOE_OK) return status;
    afmoe__session_stats(session->core, &full);
    afmoe__session_leave(session);
    afmoe__struct_write(stats, &full, sizeof full);
    return AFMOE_OK;
}
