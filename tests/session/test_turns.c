/* Turns: one at a time, in the order of arrival, and who gives up is no longer in the way. */
#include "turns.h"

#include "error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { N_WAITERS = 6 };

struct desk {
    struct turns turns;
    int order[N_WAITERS], n_served; /* written by whoever has the turn */
    bool inside;
};

struct waiter {
    struct desk *desk;
    int number;
    afmoe_cancel *cancel; /* NULL: waits for ever */
    afmoe_status status;
    pthread_t thread;
};

static void nap(void)
{
    struct timespec pause = {0, 200000};
    nanosleep(&pause, NULL);
}

static void *wait_and_serve(void *user)
{
    struct waiter *waiter = user;
    struct desk *desk = waiter->desk;
    waiter->status = afmoe__turns_begin(&desk->turns, waiter->cancel, NULL);
    if (waiter->status != AFMOE_OK) return NULL;
    if (desk->inside) waiter->status = AFMOE_INTERNAL;
    desk->inside = true;
    desk->order[desk->n_served++] = waiter->number;
    nap();
    desk->inside = false;
    afmoe__turns_end(&desk->turns);
    return NULL;
}

static int queue_length(struct turns *turns)
{
    int n = 0;
    pthread_mutex_lock(&turns->lock);
    for (struct turn_waiter *waiter = turns->first; waiter; waiter = waiter->next) n++;
    pthread_mutex_unlock(&turns->lock);
    return n;
}

/* Start the waiters one by one while the turn is taken: waiter i is the i-th in the queue. */
static void line_up(struct desk *desk, struct waiter *waiters, bool with_cancel)
{
    memset(desk, 0, sizeof *desk);
    assert_int_equal(afmoe__turns_init(&desk->turns, NULL), AFMOE_OK);
    assert_int_equal(afmoe__turns_begin(&desk->turns, NULL, NULL), AFMOE_OK);
    for (int i = 0; i < N_WAITERS; i++) {
        waiters[i] = (struct waiter){.desk = desk, .number = i};
        if (with_cancel) assert_int_equal(afmoe_cancel_create(&waiters[i].cancel, NULL), AFMOE_OK);
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_and_serve, &waiters[i]), 0);
        while (queue_length(&desk->turns) != i + 1) nap();
    }
}

static void finish(struct desk *desk, struct waiter *waiters)
{
    for (int i = 0; i < N_WAITERS; i++) afmoe_cancel_free(waiters[i].cancel);
    assert_false(desk->turns.taken);
    assert_null(desk->turns.first);
    assert_null(desk->turns.last);
    afmoe__turns_destroy(&desk->turns);
}

static void served_in_order(void **state)
{
    (void)state;
    for (int with_cancel = 0; with_cancel < 2; with_cancel++) {
        struct desk desk;
        struct waiter waiters[N_WAITERS];
        line_up(&desk, waiters, with_cancel);
        afmoe__turns_end(&desk.turns);
        for (int i = 0; i < N_WAITERS; i++) pthread_join(waiters[i].thread, NULL);
        for (int i = 0; i < N_WAITERS; i++) {
            assert_int_equal(waiters[i].status, AFMOE_OK);
            assert_int_equal(desk.order[i], i);
        }
        finish(&desk, waiters);
    }
}

/* Whoever is in `leaving` gives up, the first, one amid the queue, the last; the others keep their order. */
static void check_leaving(unsigned leaving)
{
    struct desk desk;
    struct waiter waiters[N_WAITERS];
    int n_left = 0, next = 0;
    line_up(&desk, waiters, true);
    for (int i = 0; i < N_WAITERS; i++)
        if (leaving >> i & 1) {
            afmoe_cancel_set(waiters[i].cancel);
            pthread_join(waiters[i].thread, NULL); /* while the turn is still taken */
            assert_int_equal(waiters[i].status, AFMOE_CANCELLED);
            n_left++;
        }
    assert_int_equal(queue_length(&desk.turns), N_WAITERS - n_left);
    afmoe__turns_end(&desk.turns);
    for (int i = 0; i < N_WAITERS; i++)
        if (!(leaving >> i & 1)) pthread_join(waiters[i].thread, NULL);
    for (int i = 0; i < N_WAITERS; i++)
        if (!(leaving >> i & 1)) assert_int_equal(desk.order[next++], i);
    assert_int_equal(desk.n_served, N_WAITERS - n_left);
    finish(&desk, waiters);
}

static void who_gives_up_is_not_in_the_way(void **state)
{
    static const unsigned leaving[] = {0x01, 0x20, 0x04, 0x21, 0x0e, 0x3f, 0x1f, 0x3e};
    (void)state;
    for (size_t i = 0; i < sizeof leaving / sizeof *leaving; i++) check_leaving(leaving[i]);
}

static void many_rounds_exclude_each_other(void **state)
{
    struct desk desk;
    struct waiter waiters[N_WAITERS];
    (void)state;
    for (int round = 0; round < 20; round++) {
        memset(&desk, 0, sizeof desk);
        assert_int_equal(afmoe__turns_init(&desk.turns, NULL), AFMOE_OK);
        for (int i = 0; i < N_WAITERS; i++) {
            waiters[i] = (struct waiter){.desk = &desk, .number = i};
            assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_and_serve, &waiters[i]), 0);
        }
        for (int i = 0; i < N_WAITERS; i++) {
            pthread_join(waiters[i].thread, NULL);
            assert_int_equal(waiters[i].status, AFMOE_OK);
        }
        assert_int_equal(desk.n_served, N_WAITERS);
        finish(&desk, waiters);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(served_in_order),
                                       cmocka_unit_test(who_gives_up_is_not_in_the_way),
                                       cmocka_unit_test(many_rounds_exclude_each_other)};
    return cmocka_run_group_tests_name("turns", tests, NULL, NULL);
}
