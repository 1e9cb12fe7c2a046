/* Public calls about memory: before anything is made, and of what is there. Both ask the floors that make it. */
#include "handles.h"
#include "structs.h"

static afmoe_status estimate_context(const afmoe_model *model, const afmoe_context_options *options,
                                     uint64_t n_sessions, uint64_t n_tokens, afmoe_memory *out, afmoe_error *error)
{
    if (!model->checkpoint.has_weights)
        return afmoe__fail(error, AFMOE_STATE, "tokenizer_only or inspect_only: such a model has no context");
    afmoe__model_memory(model, &out->weights_mapped, &out->weights_private);
    return afmoe__context_estimate(&model->checkpoint.config, options, n_sessions, n_tokens, out, error);
}

afmoe_status afmoe_estimate(const char *path, const afmoe_model_options *model_options,
                            const afmoe_context_options *context_options, uint64_t n_sessions, uint64_t n_tokens,
                            afmoe_memory *out, afmoe_error *error)
{
    const struct checkpoint_source source = {.kind = SOURCE_PATH, .path = path};
    afmoe_context_options options;
    afmoe_memory full;
    afmoe_model *model;
    afmoe_context_options_init(&options, sizeof options);
    afmoe_memory_init(&full, sizeof full);
    afmoe_status status = afmoe__check_argument(path, "path", error);
    if (status == AFMOE_OK) status = afmoe__check_argument(out, "out", error);
    if (status == AFMOE_OK) status = STRUCT_CHECK_OUT(out, afmoe_memory, error);
    if (status == AFMOE_OK)
        status = STRUCT_READ(&options, context_options, afmoe_context_options, error);
    if (status == AFMOE_OK) status = afmoe__model_open(&model, &source, model_options, true, error);
    if (status != AFMOE_OK) return status;
    status = estimate_context(model, &options, n_sessions, n_tokens, &full, error);
    afmoe_model_free(model);
    if (status == AFMOE_OK) afmoe__struct_write(out, &full, sizeof full);
    return status;
}

afmoe_status afmoe_context_get_memory(afmoe_context *context, afmoe_memory *out, afmoe_error *error)
{
    afmoe_memory full;
    afmoe_memory_init(&full, sizeof full);
    afmoe_status status = afmoe__check_argument(context, "context", error);
    if (status == AFMOE_OK) status = afmoe__check_argument(out, "out", error);
    if (status == AFMOE_OK) status = STRUCT_CHECK_OUT(out, afmoe_memory, error);
    if (status != AFMOE_OK) return status;
    afmoe__model_memory(context->model, &full.weights_mapped, &full.weights_private);
    afmoe__context_memory(context->core, &full);
    afmoe__struct_write(out, &full, sizeof full);
    return AFMOE_OK;
}
