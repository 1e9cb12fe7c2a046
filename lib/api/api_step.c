/* Public call of the step: every item enters its session's guard, grows with the others, leaves. */
#include "cancel.h"
#include "handles.h"
#include "step.h"
#include "structs.h"

struct step_call {
    struct step step;
    afmoe_context *context;
    uint8_t *items; /* the caller's, `item_bytes` apart */
    uint64_t item_bytes;
    afmoe_step_options options;
    afmoe_cancel stop; /* the caller's flag, or a callback that wants no more */
    struct cancel_link link;
    uint64_t first_failed; /* n_items: none yet */
    afmoe_error *error;    /* the caller's */
    afmoe_error text;      /* of the failure at hand */
};

static afmoe_step_item *item_at(const struct step_call *call, uint64_t i)
{
    return (afmoe_step_item *)(call->items + i * call->item_bytes);
}

static afmoe_status check_items(const struct step_call *call, uint64_t n_items, afmoe_error *error)
{
    for (uint64_t i = 0; i < n_items; i++) {
        afmoe_step_item full;
        afmoe_status status = STRUCT_READ(&full, item_at(call, i), afmoe_step_item, error);
        if (status != AFMOE_OK) return status;
        if (item_at(call, i)->size != call->item_bytes || call->item_bytes < sizeof full)
            return afmoe__fail(error, AFMOE_INVALID, "items[%llu].size is %u, items[0].size %llu, at least %zu",
                               (unsigned long long)i, item_at(call, i)->size, (unsigned long long)call->item_bytes,
                               sizeof full);
    }
    return AFMOE_OK;
}

/* The item is written, then the caller told. The first item in the list that is not OK speaks for the call. */
static void finish(struct step_call *call, afmoe_step_item *item, afmoe_status status)
{
    uint64_t i = (uint64_t)((uint8_t *)item - call->items) / call->item_bytes;
    item->status = status;
    if (status != AFMOE_OK) {
        afmoe__fail(item->error, status, "%s", call->text.message);
        if (i < call->first_failed)
            afmoe__fail(call->error, status, "items[%llu]: %s", (unsigned long long)i, call->text.message);
        if (i < call->first_failed) call->first_failed = i;
    }
    if (call->options.on_item && call->options.on_item(call->options.on_item_data, i) != 0)
        afmoe_cancel_set(&call->stop);
}

static void on_done(void *user, void *item_given, afmoe_status status, const afmoe_append_result *result)
{
    afmoe_step_item *item = item_given;
    afmoe__struct_write(item->result, result, sizeof *result);
    afmoe__session_leave(item->session);
    finish(user, item, status);
}

/* Check an item, enter its session, and let it join. */
static void begin_item(struct step_call *call, afmoe_step_item *item)
{
    afmoe_append_options full;
    afmoe_error *error = &call->text;
    afmoe_append_options_init(&full, sizeof full);
    afmoe_status status = STRUCT_READ(&full, item->options, afmoe_append_options, error);
    if (status == AFMOE_OK) status = afmoe__check_reserved(full.reserved, "afmoe_append_options", error);
    if (status == AFMOE_OK) status = STRUCT_CHECK_OUT(item->result, afmoe_append_result, error);
    if (status == AFMOE_OK) status = afmoe__check_argument(item->session, "session", error);
    if (status == AFMOE_OK && item->session->context != call->context)
        status = afmoe__fail(error, AFMOE_INVALID, "the session belongs to another context");
    if (status == AFMOE_OK) status = afmoe__session_enter_to_change(item->session, error);
    if (status != AFMOE_OK)
        finish(call, item, status);
    else
        afmoe__step_append(&call->step, item->session->core, item, item->tokens, item->n_tokens, &full, error);
}

static afmoe_status read_call(struct step_call *call, afmoe_step_item *items, uint64_t n_items,
                              const afmoe_step_options *options, afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(call->context, "context", error);
    if (status == AFMOE_OK && n_items) status = afmoe__check_argument(items, "items", error);
    if (status == AFMOE_OK)
        status = STRUCT_READ(&call->options, options, afmoe_step_options, error);
    if (status == AFMOE_OK) status = afmoe__check_reserved(call->options.reserved, "afmoe_step_options", error);
    if (status == AFMOE_OK) status = afmoe__context_check_process(call->context->core, error);
    if (status != AFMOE_OK || n_items == 0) return status;
    call->items = (uint8_t *)items;
    call->item_bytes = items[0].size;
    return check_items(call, n_items, error);
}

afmoe_status afmoe_context_step(afmoe_context *context, afmoe_step_item *items, uint64_t n_items,
                                const afmoe_step_options *options, afmoe_error *error)
{
    struct step_call call = {
        .context = context, .first_failed = n_items, .error = error, .text.size = sizeof call.text};
    afmoe_step_options_init(&call.options, sizeof call.options);
    afmoe_status status = read_call(&call, items, n_items, options, error);
    if (status != AFMOE_OK) return status;
    call.link.cancel = call.options.cancel;
    call.stop.links = &call.link;
    bool stoppable = call.options.cancel || call.options.on_item;
    call.step = (struct step){.context = context->core, .on_done = on_done, .user = &call,
                              .cancel = stoppable ? &call.stop : NULL};
    for (uint64_t i = 0; i < n_items; i++) begin_item(&call, item_at(&call, i));
    afmoe__step_run(&call.step);
    return call.first_failed < n_items ? item_at(&call, call.first_failed)->status : AFMOE_OK;
}
