/* Taking turns: callers of one context compute one after the other, in the order they came. */
#ifndef AFMOE_SESSION_TURNS_H
#define AFMOE_SESSION_TURNS_H

#include "afmoe.h"

#include <pthread.h>
#include <stdbool.h>

struct turn_waiter {
    struct turn_waiter *next;
};

struct turns {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct turn_waiter *first, *last; /* waiting callers, on their own stacks */
    bool taken;
};

afmoe_status afmoe__turns_init(struct turns *turns, afmoe_error *error);
void afmoe__turns_destroy(struct turns *turns);

/* Wait for one's turn; CANCELLED when `cancel` is set meanwhile (looked at every few milliseconds). */
afmoe_status afmoe__turns_begin(struct turns *turns, const afmoe_cancel *cancel, afmoe_error *error);
void afmoe__turns_end(struct turns *turns);

#endif
