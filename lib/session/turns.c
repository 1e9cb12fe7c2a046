/* A fair lock whose waiters can give up, see turns.h. A queue of waiters instead of ticket numbers, since a ticket that
 * is given up would have to be skipped. */
#include "turns.h"

#include "cancel.h"
#include "error.h"

#include <time.h>

enum { POLL_NS = 5 * 1000 * 1000 };

afmoe_status afmoe__turns_init(struct turns *turns, afmoe_error *error)
{
    turns->first = turns->last = NULL;
    turns->taken = false;
    pthread_condattr_t attributes;
    int failed = pthread_condattr_init(&attributes);
    if (!failed) {
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        failed = pthread_cond_init(&turns->changed, &attributes);
        pthread_condattr_destroy(&attributes);
        if (!failed && (failed = pthread_mutex_init(&turns->lock, NULL))) pthread_cond_destroy(&turns->changed);
    }
    return failed ? afmoe__fail_errno(error, AFMOE_NO_MEMORY, failed, "cannot make a lock") : AFMOE_OK;
}

void afmoe__turns_destroy(struct turns *turns)
{
    pthread_mutex_destroy(&turns->lock);
    pthread_cond_destroy(&turns->changed);
}

static void leave_queue(struct turns *turns, struct turn_waiter *waiter)
{
    struct turn_waiter **link = &turns->first, *previous = NULL;
    while (*link != waiter) {
        previous = *link;
        link = &(*link)->next;
    }
    *link = waiter->next;
    if (turns->last == waiter) turns->last = previous;
}

static void wait_a_little(struct turns *turns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += POLL_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&turns->changed, &turns->lock, &until);
}

afmoe_status afmoe__turns_begin(struct turns *turns, const afmoe_cancel *cancel, afmoe_error *error)
{
    struct turn_waiter waiter = {NULL};
    bool stopped = false;
    pthread_mutex_lock(&turns->lock);
    if (turns->last)
        turns->last->next = &waiter;
    else
        turns->first = &waiter;
    turns->last = &waiter;
    while (!stopped && (turns->taken || turns->first != &waiter)) {
        stopped = cancel_requested(cancel);
        if (stopped) break;
        if (cancel)
            wait_a_little(turns);
        else
            pthread_cond_wait(&turns->changed, &turns->lock);
    }
    leave_queue(turns, &waiter);
    if (!stopped) turns->taken = true;
    if (stopped) pthread_cond_broadcast(&turns->changed); /* the next in line may be first now */
    pthread_mutex_unlock(&turns->lock);
    return stopped ? afmoe__fail(error, AFMOE_CANCELLED, "cancelled while waiting for another session") : AFMOE_OK;
}

void afmoe__turns_end(struct turns *turns)
{
    pthread_mutex_lock(&turns->lock);
    turns->taken = false;
    pthread_cond_broadcast(&turns->changed);
    pthread_mutex_unlock(&turns->lock);
}
