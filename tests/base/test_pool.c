/* The worker pool: every unit exactly once, at any number of threads, shape and pace; idle costs nothing. */
#include "pool.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <pthread.h>

enum { MAX_UNITS = 5000, MAX_THREADS = 4 };

struct counts {
    uint8_t seen[MAX_UNITS]; /* plain memory: two workers on one unit would be a race, and is one for TSan */
    uint64_t n_units, grain;
    uint32_t n_threads;
    _Atomic uint32_t n_bad;
    _Atomic uint64_t sum;
    uint64_t busy[MAX_THREADS][16]; /* written by its worker only */
};

static void count(void *arg, uint64_t begin, uint64_t end, uint32_t worker)
{
    struct counts *c = arg;
    if (begin >= end || end > c->n_units || end - begin > c->grain || begin % c->grain != 0 || worker >= c->n_threads) {
        c->n_bad++;
        return;
    }
    for (uint64_t i = begin; i < end; i++) {
        c->seen[i]++;
        c->busy[worker][0] += i;
    }
    c->sum += end - begin;
}

static struct pool *make(uint32_t n_threads)
{
    struct pool *pool = NULL;
    afmoe_error error = {.size = sizeof error};
    if (afmoe__pool_create(&pool, n_threads, &error) != AFMOE_OK) fail_msg("%s", error.message);
    assert_int_equal(afmoe__pool_n_threads(pool), n_threads);
    return pool;
}

static void check_run(struct pool *pool, uint64_t n_units, uint64_t grain)
{
    static struct counts c;
    c = (struct counts){.n_units = n_units, .grain = grain, .n_threads = afmoe__pool_n_threads(pool)};
    afmoe__pool_run(pool, count, &c, n_units, grain);
    assert_int_equal(c.n_bad, 0);
    assert_int_equal(c.sum, n_units);
    uint64_t total = 0;
    for (uint64_t i = 0; i < MAX_UNITS; i++) assert_int_equal(c.seen[i], i < n_units);
    for (int w = 0; w < MAX_THREADS; w++) total += c.busy[w][0];
    assert_int_equal(total, n_units ? n_units * (n_units - 1) / 2 : 0);
}

static void test_every_unit_once(void **state)
{
    (void)state;
    for (uint32_t n_threads = 1; n_threads <= MAX_THREADS; n_threads++) {
        struct pool *pool = make(n_threads);
        for (uint64_t n_units = 0; n_units <= 40; n_units++)
            for (uint64_t grain = 1; grain <= 9; grain++) check_run(pool, n_units, grain);
        check_run(pool, MAX_UNITS, 1);
        check_run(pool, MAX_UNITS, 7);
        check_run(pool, MAX_UNITS, MAX_UNITS);
        check_run(pool, MAX_UNITS, UINT64_MAX);
        afmoe__pool_free(pool);
    }
}

/* Each stage reads what the one before wrote in other units: the end of a run is a barrier. */
struct chain {
    uint32_t *from, *to;
    uint64_t n;
};

static void step(void *arg, uint64_t begin, uint64_t end, uint32_t worker)
{
    struct chain *c = arg;
    (void)worker;
    for (uint64_t i = begin; i < end; i++) c->to[i] = c->from[(i * 7 + 3) % c->n] + 1;
}

static void test_thousands_of_tiny_runs(void **state)
{
    (void)state;
    enum { N = 64, RUNS = 20000 };
    struct pool *pool = make(MAX_THREADS);
    uint32_t a[N] = {0}, b[N] = {0};
    for (int i = 0; i < RUNS; i++) {
        struct chain c = {i % 2 ? b : a, i % 2 ? a : b, N};
        afmoe__pool_run(pool, step, &c, N, 4);
    }
    for (int i = 0; i < N; i++) assert_int_equal(a[i], RUNS);
    afmoe__pool_free(pool);
}

static void sleep_milliseconds(long n)
{
    struct timespec t = {n / 1000, n % 1000 * 1000000};
    while (nanosleep(&t, &t) != 0) continue;
}

/* Runs that find the workers asleep, falling asleep, and spinning. */
static void test_runs_after_pauses(void **state)
{
    (void)state;
    struct pool *pool = make(MAX_THREADS);
    for (long microseconds = 0; microseconds < 200; microseconds++) {
        struct timespec t = {0, microseconds * 1000};
        nanosleep(&t, NULL);
        check_run(pool, 100, 3);
    }
    afmoe__pool_free(pool);
}

/* Unit 0 is not done before all others are, so whoever has it cannot do the rest of that share: without stealing, or
 * with it taken along, this would wait for its limit. */
static void slow_first(void *arg, uint64_t begin, uint64_t end, uint32_t worker)
{
    struct counts *c = arg;
    if (begin == 0)
        for (int ms = 0; c->sum != c->n_units - 1; ms++) {
            if (ms == 10000) {
                c->n_bad++;
                break;
            }
            sleep_milliseconds(1);
        }
    count(arg, begin, end, worker);
}

static void test_stealing(void **state)
{
    (void)state;
    for (uint32_t n_threads = 2; n_threads <= MAX_THREADS; n_threads++) {
        struct pool *pool = make(n_threads);
        static struct counts c;
        c = (struct counts){.n_units = 1000, .grain = 1, .n_threads = n_threads};
        afmoe__pool_run(pool, slow_first, &c, c.n_units, 1);
        assert_int_equal(c.n_bad, 0);
        for (uint64_t i = 0; i < c.n_units; i++) assert_int_equal(c.seen[i], 1);
        afmoe__pool_free(pool);
    }
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void test_idle_uses_no_cpu(void **state)
{
    (void)state;
    struct pool *pool = make(MAX_THREADS);
    check_run(pool, 1000, 1);
    sleep_milliseconds(20);
    double before = cpu_seconds();
    sleep_milliseconds(500);
    assert_true(cpu_seconds() - before < 0.02); /* one spinning worker would take 0.5 */
    check_run(pool, 1000, 1);
    afmoe__pool_free(pool);
}

/* A signal sent to the process while the one thread that takes it blocks it stays pending: no worker took it. */
static volatile sig_atomic_t n_handled;

static void on_signal(int number)
{
    (void)number;
    n_handled++;
}

static void test_workers_take_no_signals(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = on_signal}, old;
    sigset_t one, before, after;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    assert_int_equal(sigaction(SIGUSR1, &action, &old), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    struct pool *pool = make(MAX_THREADS);
    pthread_sigmask(SIG_SETMASK, NULL, &after); /* creation gives the caller's own mask back */
    for (int s = 1; s < 32; s++) assert_int_equal(sigismember(&before, s), sigismember(&after, s));
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    kill(getpid(), SIGUSR1);
    check_run(pool, 1000, 1);
    sleep_milliseconds(20);
    assert_int_equal(n_handled, 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    assert_int_equal(n_handled, 1);
    afmoe__pool_free(pool);
    sigaction(SIGUSR1, &old, NULL);
}

static void test_bad_counts(void **state)
{
    (void)state;
    struct pool *pool = NULL;
    afmoe_error error = {.size = sizeof error};
    assert_int_equal(afmoe__pool_create(&pool, 0, &error), AFMOE_INVALID);
    assert_string_equal(error.message, "n_threads is 0, allowed are 1..4096");
    assert_int_equal(afmoe__pool_create(&pool, 5000, NULL), AFMOE_INVALID);
    assert_null(pool);
    afmoe__pool_free(NULL);
}

/* No room for more threads: a status, and those already started are gone. Address space is what a limit without
 * privilege can take away; the sanitizers need it for themselves. */
static void test_threads_refused(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("skipped: sanitizer test_threads_refused (sanitizers need the address space)\n");
#else
    struct rlimit old, tight;
    struct pool *pool = NULL;
    afmoe_error error = {.size = sizeof error};
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    tight = old;
    tight.rlim_cur = 256 << 20; /* stacks are 8 MB: about 30 threads */
    assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
    afmoe_status status = afmoe__pool_create(&pool, 200, &error);
    setrlimit(RLIMIT_AS, &old);
    assert_true(status == AFMOE_IO || status == AFMOE_NO_MEMORY);
    assert_non_null(strstr(error.message, "of 199"));
    assert_null(pool);
    afmoe__pool_free(make(MAX_THREADS)); /* and all is well after it */
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_unit_once),    cmocka_unit_test(test_thousands_of_tiny_runs),
        cmocka_unit_test(test_runs_after_pauses),  cmocka_unit_test(test_stealing),
        cmocka_unit_test(test_idle_uses_no_cpu),   cmocka_unit_test(test_workers_take_no_signals),
        cmocka_unit_test(test_bad_counts),         cmocka_unit_test(test_threads_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
