/* One caller at a time: a second gets BUSY, and a free during a call (from a callback, or another thread) takes effect
 * when the call ends. */
#ifndef AFMOE_API_GUARD_H
#define AFMOE_API_GUARD_H

#include "error.h"

#include <stdatomic.h>
#include <stdbool.h>

enum { GUARD_IDLE, GUARD_BUSY, GUARD_BUSY_AND_FREED, GUARD_FREED };

struct guard {
    atomic_int state;
};

static inline afmoe_status guard_enter(struct guard *guard, const char *what, afmoe_error *error)
{
    int idle = GUARD_IDLE;
    if (atomic_compare_exchange_strong(&guard->state, &idle, GUARD_BUSY)) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_BUSY, "this %s is in another call", what);
}

/* True: it was freed meanwhile, and the caller of leave must destroy it now. */
static inline bool guard_leave(struct guard *guard)
{
    int busy = GUARD_BUSY;
    return !atomic_compare_exchange_strong(&guard->state, &busy, GUARD_IDLE);
}

/* For who is in a call: was it freed meanwhile? */
static inline bool guard_is_freed(struct guard *guard)
{
    return atomic_load(&guard->state) == GUARD_BUSY_AND_FREED;
}

/* True: nobody is in a call, destroy it now. False: the call in progress will. */
static inline bool guard_free(struct guard *guard)
{
    int idle = GUARD_IDLE;
    while (!atomic_compare_exchange_weak(&guard->state, &idle, GUARD_FREED)) {
        int busy = GUARD_BUSY;
        if (atomic_compare_exchange_strong(&guard->state, &busy, GUARD_BUSY_AND_FREED) ||
            busy == GUARD_BUSY_AND_FREED)
            return false;
        idle = GUARD_IDLE;
    }
    return true;
}

#endif
