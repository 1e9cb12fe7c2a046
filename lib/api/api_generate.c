/* Public call of the generate loop. */
#include "generate.h"

#include "handles.h"
#include "structs.h"

/* Without a sampler of the caller's: greedy, made for this call. */
static afmoe_status generate_greedy(afmoe_session *session, const afmoe_generate_options *options,
                                    afmoe_generate_result *result, afmoe_error *error)
{
    const afmoe_model *model = session->context->model;
    afmoe_sampler_options greedy;
    struct sampler *sampler;
    afmoe_sampler_options_init(&greedy, sizeof greedy);
    afmoe_status status = afmoe__sampler_create(&sampler, model->vocab_size, model->usable, &greedy, error);
    if (status != AFMOE_OK) return status;
    status = afmoe__generate(session->core, sampler, model->tokenizer, model->stop_tokens, model->n_stop_tokens,
                             options, result, error);
    afmoe__sampler_free(sampler);
    return status;
}

static afmoe_status generate_sampled(afmoe_session *session, afmoe_sampler *sampler,
                                     const afmoe_generate_options *options, afmoe_generate_result *result,
                                     afmoe_error *error)
{
    const afmoe_model *model = session->context->model;
    afmoe_status status = afmoe__sampler_check_model(sampler, session, error);
    if (status != AFMOE_OK) return status;
    return afmoe__generate(session->core, sampler->core, model->tokenizer, model->stop_tokens, model->n_stop_tokens,
                           options, result, error);
}

afmoe_status afmoe_generate(afmoe_session *session, afmoe_sampler *sampler, const afmoe_generate_options *options,
                            afmoe_generate_result *result, afmoe_error *error)
{
    afmoe_generate_options full;
    afmoe_generate_result full_result;
    afmoe_generate_options_init(&full, sizeof full);
    afmoe_generate_result_init(&full_result, sizeof full_result);
    afmoe_status status = afmoe__struct_read(&full, sizeof full, options, "afmoe_generate_options", error);
    if (status == AFMOE_OK) status = afmoe__struct_check_out(result, "afmoe_generate_result", error);
    if (status == AFMOE_OK) status = afmoe__session_enter(session, error);
    if (status != AFMOE_OK) return status;
    if (!sampler) {
        status = generate_greedy(session, &full, &full_result, error);
    } else if ((status = afmoe__sampler_enter(sampler, error)) == AFMOE_OK) {
        status = generate_sampled(session, sampler, &full, &full_result, error);
        afmoe__sampler_leave(sampler);
    }
    afmoe__session_leave(session);
    afmoe__struct_write(result, &full_result, sizeof full_result);
    return status;
}
