/* Public calls of the context. */
#include "handles.h"
#include "memory.h"
#include "structs.h"

afmoe_status afmoe_context_create(afmoe_context **out, afmoe_model *model, const afmoe_context_options *options,
                                  afmoe_error *error)
{
    afmoe_context_options full;
    afmoe_context_options_init(&full, sizeof full);
    afmoe_status status = afmoe__check_argument(out, "out", error);
    if (status != AFMOE_OK) return status;
    *out = NULL;
    if ((status = afmoe__check_argument(model, "model", error)) != AFMOE_OK) return status;
    status = STRUCT_READ(&full, options, afmoe_context_options, error);
    if (status != AFMOE_OK) return status;
    if (!model->checkpoint.has_weights)
        return afmoe__fail(error, AFMOE_STATE, "the model was opened without weights (tokenizer_only or inspect_only)");

    afmoe_context *context = afmoe__alloc_zeroed(1, sizeof *context);
    if (!context) return afmoe__fail_memory(error, sizeof *context, "a context");
    status = afmoe__context_create(&context->core, &model->checkpoint.config, &model->checkpoint.weights, &full,
                                    full.prefix_folder ? afmoe__model_fingerprint(model) : 0, error);
    if (status != AFMOE_OK) {
        afmoe__free(context);
        return status;
    }
    atomic_init(&context->n_references, 1);
    afmoe_model_retain(model);
    context->model = model;
    *out = context;
    return AFMOE_OK;
}

void afmoe_context_free(afmoe_context *context)
{
    if (!context || atomic_fetch_sub(&context->n_references, 1) != 1) return;
    afmoe__context_free(context->core);
    afmoe_model_free(context->model);
    afmoe__free(context);
}

afmoe_status afmoe_context_get_info(afmoe_context *context, afmoe_context_info *info, afmoe_error *error)
{
    afmoe_context_info full;
    afmoe_context_info_init(&full, sizeof full);
    afmoe_status status = afmoe__check_argument(context, "context", error);
    if (status == AFMOE_OK) status = afmoe__check_argument(info, "info", error);
    if (status == AFMOE_OK) status = STRUCT_CHECK_OUT(info, afmoe_context_info, error);
    if (status == AFMOE_OK) status = afmoe__context_check_process(context->core, error);
    if (status != AFMOE_OK) return status;
    afmoe__context_info(context->core, &full);
    afmoe__struct_write(info, &full, sizeof full);
    return AFMOE_OK;
}
