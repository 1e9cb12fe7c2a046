/* Public call of the generate loop. */
#include "generate.h"

#include "handles.h"
#include "structs.h"

static afmoe_status generate(afmoe_session *session, struct sampler *sampler, const afmoe_generate_options *options,
                             afmoe_generate_result *result, afmoe_error *error)
{
    const struct generation_source from = afmoe__session_source(session, sampler);
    return afmoe__generate(&from, options, result, error);
}

/* Without a sampler of the caller's: greedy, made for this call. */
static afmoe_status generate_greedy(afmoe_session *session, const afmoe_generate_options *options,
                                    afmoe_generate_result *result, afmoe_error *error)
{
    struct sampler *sampler;
    afmoe_status status = afmoe__sampler_create_greedy(&sampler, session->context->model, error);
    if (status != AFMOE_OK) return status;
    status = generate(session, sampler, options, result, error);
    afmoe__sampler_free(sampler);
    return status;
}

struct generation_source afmoe__session_source(afmoe_session *session, struct sampler *sampler)
{
    const afmoe_model *model = session->context->model;
    return (struct generation_source){.session = session->core, .sampler = sampler, .tokenizer = model->tokenizer,
                                      .model_stop_tokens = model->stop_tokens,
                                      .n_model_stop_tokens = model->n_stop_tokens};
}

afmoe_status afmoe__sampler_create_greedy(struct sampler **out, const afmoe_model *model, afmoe_error *error)
{
    afmoe_sampler_options greedy;
    afmoe_sampler_options_init(&greedy, sizeof greedy);
    return afmoe__sampler_create(out, model->vocab_size, model->usable, &greedy, error);
}

afmoe_status afmoe_generate(afmoe_session *session, afmoe_sampler *sampler, const afmoe_generate_options *options,
                            afmoe_generate_result *result, afmoe_error *error)
{
    afmoe_generate_options full;
    afmoe_generate_result full_result;
    afmoe_generate_options_init(&full, sizeof full);
    afmoe_generate_result_init(&full_result, sizeof full_result);
    afmoe_status status = STRUCT_READ(&full, options, afmoe_generate_options, error);
    if (status == AFMOE_OK) status = STRUCT_CHECK_OUT(result, afmoe_generate_result, error);
    if (status == AFMOE_OK) status = afmoe__session_enter_to_change(session, error);
    if (status != AFMOE_OK) return status;
    if (!sampler) {
        status = generate_greedy(session, &full, &full_result, error);
    } else if ((status = afmoe__sampler_enter(sampler, error)) == AFMOE_OK) {
        status = afmoe__sampler_check_model(sampler, session, error);
        if (status == AFMOE_OK) status = generate(session, sampler->core, &full, &full_result, error);
        afmoe__sampler_leave(sampler);
    }
    afmoe__session_leave(session);
    afmoe__struct_write(result, &full_result, sizeof full_result);
    return status;
}
