/* Public calls of the sampler. */
#include "handles.h"
#include "memory.h"
#include "structs.h"

afmoe_status afmoe_sampler_create(afmoe_sampler **out, afmoe_model *model, const afmoe_sampler_options *options,
                                  afmoe_error *error)
{
    afmoe_sampler_options full;
    afmoe_sampler_options_init(&full, sizeof full);
    afmoe_status status = afmoe__check_argument(out, "out", error);
    if (status != AFMOE_OK) return status;
    *out = NULL;
    status = afmoe__check_argument(model, "model", error);
    if (status == AFMOE_OK) status = STRUCT_READ(&full, options, afmoe_sampler_options, error);
    if (status != AFMOE_OK) return status;
    afmoe_sampler *sampler = afmoe__alloc_zeroed(1, sizeof *sampler);
    if (!sampler) return afmoe__fail_memory(error, sizeof *sampler, "a sampler");
    status = afmoe__sampler_create(&sampler->core, model->vocab_size, model->usable, &full, error);
    if (status != AFMOE_OK) {
        afmoe__free(sampler);
        return status;
    }
    guard_init(&sampler->guard);
    afmoe_model_retain(model);
    sampler->model = model;
    *out = sampler;
    return AFMOE_OK;
}

static void destroy(afmoe_sampler *sampler)
{
    afmoe__sampler_free(sampler->core);
    afmoe_model_free(sampler->model);
    afmoe__free(sampler);
}

void afmoe_sampler_free(afmoe_sampler *sampler)
{
    if (sampler && guard_release(&sampler->guard)) destroy(sampler);
}

afmoe_status afmoe__sampler_enter(afmoe_sampler *sampler, afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(sampler, "sampler", error);
    return status == AFMOE_OK ? guard_enter(&sampler->guard, "sampler", error) : status;
}

void afmoe__sampler_leave(afmoe_sampler *sampler)
{
    if (guard_leave(&sampler->guard)) destroy(sampler);
}

afmoe_status afmoe_sampler_sample_logits(afmoe_sampler *sampler, const float *logits, uint64_t n_logits,
                                         const afmoe_token *history, uint64_t n_history, uint64_t n_prompt,
                                         afmoe_token *out_token, float *out_logprob, afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(logits, "logits", error);
    if (status == AFMOE_OK && n_history) status = afmoe__check_argument(history, "history", error);
    if (status == AFMOE_OK) status = afmoe__check_argument(out_token, "out_token", error);
    if (status == AFMOE_OK) status = afmoe__sampler_enter(sampler, error);
    if (status != AFMOE_OK) return status;
    if (n_logits == sampler->model->vocab_size)
        status = afmoe__sampler_sample(sampler->core, logits, history, n_history, n_prompt, out_token, out_logprob,
                                       error);
    else
        status = afmoe__fail(error, AFMOE_INVALID, "%llu logits, the sampler's model has %llu",
                             (unsigned long long)n_logits, (unsigned long long)sampler->model->vocab_size);
    afmoe__sampler_leave(sampler);
    return status;
}

afmoe_status afmoe__sampler_check_model(const afmoe_sampler *sampler, const afmoe_session *session, afmoe_error *error)
{
    if (sampler->model == session->context->model) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_STATE, "the sampler was made for another model than the session");
}

afmoe_status afmoe_sampler_sample(afmoe_sampler *sampler, afmoe_session *session, uint64_t n_prompt,
                                  afmoe_token *out_token, float *out_logprob, afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(out_token, "out_token", error);
    if (status == AFMOE_OK) status = afmoe__session_enter(session, error);
    if (status != AFMOE_OK) return status;
    status = afmoe__sampler_enter(sampler, error);
    if (status == AFMOE_OK) {
        const float *logits = afmoe__session_logits(session->core);
        status = afmoe__sampler_check_model(sampler, session, error);
        if (status == AFMOE_OK && !logits)
            status = afmoe__fail(error, AFMOE_STATE, "the session has no logits to sample from");
        if (status == AFMOE_OK)
            status = afmoe__sampler_sample(sampler->core, logits, afmoe__session_tokens(session->core),
                                           afmoe__session_n_tokens(session->core), n_prompt, out_token, out_logprob,
                                           error);
        afmoe__sampler_leave(sampler);
    }
    afmoe__session_leave(session);
    return status;
}
