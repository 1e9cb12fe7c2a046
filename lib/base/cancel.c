/* The cancel flag, see cancel.h. The public functions live here because nothing stands between them and the flag. */
#include "cancel.h"

#include "error.h"
#include "memory.h"

afmoe_status afmoe_cancel_create(afmoe_cancel **out, afmoe_error *error)
{
    if (!out) return afmoe__fail(error, AFMOE_INVALID, "out is NULL");
    *out = NULL;
    afmoe_cancel *cancel = afmoe__alloc_zeroed(1, sizeof *cancel);
    if (!cancel) return afmoe__fail_memory(error, sizeof *cancel, "a cancel object");
    atomic_init(&cancel->set, 0);
    atomic_init(&cancel->n_references, 1);
    *out = cancel;
    return AFMOE_OK;
}

void afmoe_cancel_retain(afmoe_cancel *cancel)
{
    if (cancel) atomic_fetch_add_explicit(&cancel->n_references, 1, memory_order_relaxed);
}

void afmoe_cancel_free(afmoe_cancel *cancel)
{
    if (cancel && atomic_fetch_sub_explicit(&cancel->n_references, 1, memory_order_acq_rel) == 1) afmoe__free(cancel);
}

void afmoe_cancel_set(afmoe_cancel *cancel)
{
    if (cancel) atomic_store_explicit(&cancel->set, 1, memory_order_release);
}

void afmoe_cancel_clear(afmoe_cancel *cancel)
{
    if (cancel) atomic_store_explicit(&cancel->set, 0, memory_order_release);
}

int32_t afmoe_cancel_is_set(const afmoe_cancel *cancel)
{
    if (!cancel) return 0;
    if (atomic_load_explicit(&cancel->set, memory_order_acquire)) return 1;
    for (struct cancel_link *link = cancel->links; link; link = link->next)
        if (afmoe_cancel_is_set(link->cancel)) {
            atomic_store_explicit(&link->seen, 1, memory_order_relaxed);
            return 1;
        }
    return 0;
}
