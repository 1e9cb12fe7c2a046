/* One caller at a time, and references: a second caller gets BUSY. A call holds a reference of its own, so a free
 * during it (from a callback, or another thread) takes effect when it ends. */
#ifndef AFMOE_API_GUARD_H
#define AFMOE_API_GUARD_H

#include "error.h"

#include <stdatomic.h>
#include <stdbool.h>

struct guard {
    atomic_int n_references;
    atomic_bool is_busy;
};

/* With the reference of who made it. */
static inline void guard_init(struct guard *guard)
{
    atomic_init(&guard->n_references, 1);
    atomic_init(&guard->is_busy, false);
}

static inline void guard_retain(struct guard *guard)
{
    atomic_fetch_add(&guard->n_references, 1);
}

/* True: that was the last reference, destroy it now. */
static inline bool guard_release(struct guard *guard)
{
    return atomic_fetch_sub(&guard->n_references, 1) == 1;
}

static inline afmoe_status guard_enter(struct guard *guard, const char *what, afmoe_error *error)
{
    if (atomic_exchange(&guard->is_busy, true))
        return afmoe__fail(error, AFMOE_BUSY, "this %s is in another call", what);
    guard_retain(guard);
    return AFMOE_OK;
}

/* As guard_release. */
static inline bool guard_leave(struct guard *guard)
{
    atomic_store(&guard->is_busy, false);
    return guard_release(guard);
}

/* For who is in a call: is its reference the only one left? */
static inline bool guard_is_freed(struct guard *guard)
{
    return atomic_load(&guard->n_references) == 1;
}

#endif
