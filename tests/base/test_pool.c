/* The worker pool: every unit exactly once, at any number of threads, shape and pace; idle costs nothing. */
#define _GNU_SOURCE /* sched_getcpu */
#include "pool.h"

#include "sanitizer.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
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
    struct pool_options options = {.n_threads = n_threads};
    if (afmoe__pool_create(&pool, &options, &error) != AFMOE_OK) fail_msg("%s", error.message);
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

/* ---- A host's parallel-for ---- */

struct host {
    enum { FORWARDS, BACKWARDS, TWICE, NOTHING, ONE_ONLY, ON_THREADS, REFUSES } way;
    afmoe_task_fn task;
    void *task_data;
    _Atomic uint32_t n_calls;
};

struct host_call {
    struct host *host;
    uint32_t worker;
};

static void *call_one(void *arg)
{
    struct host_call *call = arg;
    call->host->task(call->host->task_data, call->worker);
    return NULL;
}

static void call_on_threads(struct host *host, uint32_t n_workers)
{
    pthread_t threads[MAX_THREADS];
    struct host_call calls[MAX_THREADS];
    for (uint32_t w = 0; w < n_workers; w++) {
        calls[w] = (struct host_call){host, w};
        assert_int_equal(pthread_create(&threads[w], NULL, call_one, &calls[w]), 0);
    }
    for (uint32_t w = 0; w < n_workers; w++) pthread_join(threads[w], NULL);
}

static int32_t host_parallel(void *user_data, uint32_t n_workers, afmoe_task_fn task, void *task_data)
{
    struct host *host = user_data;
    host->task = task;
    host->task_data = task_data;
    host->n_calls++;
    assert_true(n_workers >= 2 && n_workers <= MAX_THREADS);
    for (uint32_t i = 0; i < n_workers; i++) {
        if (host->way == FORWARDS || host->way == TWICE) task(task_data, i);
        if (host->way == BACKWARDS || host->way == TWICE) task(task_data, n_workers - 1 - i);
    }
    if (host->way == ONE_ONLY) task(task_data, n_workers - 1);
    if (host->way == TWICE) task(task_data, MAX_THREADS); /* no such worker */
    if (host->way == ON_THREADS) call_on_threads(host, n_workers);
    return host->way == REFUSES;
}

static struct pool *make_hosted(struct host *host, uint32_t n_threads)
{
    struct pool *pool = NULL;
    struct pool_options options = {.n_threads = n_threads, .parallel = host_parallel, .parallel_data = host};
    assert_int_equal(afmoe__pool_create(&pool, &options, NULL), AFMOE_OK);
    return pool;
}

/* Right or wrong, one after another or side by side: every unit once, and no harm from a task called when all is over. */
static void test_host_parallel(void **state)
{
    (void)state;
    for (int way = FORWARDS; way < REFUSES; way++)
        for (uint32_t n_threads = 1; n_threads <= MAX_THREADS; n_threads++) {
            struct host host = {.way = way};
            struct pool *pool = make_hosted(&host, n_threads);
            uint64_t most = way == ON_THREADS ? 9 : 40;
            for (uint64_t n_units = 0; n_units <= most; n_units++)
                for (uint64_t grain = 1; grain <= 9; grain += 2) check_run(pool, n_units, grain);
            check_run(pool, MAX_UNITS, 7);
            assert_int_equal(host.n_calls == 0, n_threads == 1);
            if (host.task) host.task(host.task_data, 0); /* late: the gate is closed */
            check_run(pool, MAX_UNITS, 1);
            afmoe__pool_free(pool);
        }
}

static void test_host_refuses(void **state)
{
    (void)state;
    static struct counts c;
    struct host host = {.way = REFUSES};
    struct pool *pool = make_hosted(&host, 2);
    c = (struct counts){.n_units = 100, .grain = 1, .n_threads = 2};
    afmoe__pool_run(pool, count, &c, c.n_units, 1);
    assert_true(afmoe__pool_stopped(pool));
    assert_int_equal(c.sum, 0);
    afmoe__pool_run(pool, count, &c, 1, 1); /* nothing runs any more, */
    assert_int_equal(c.sum, 0);
    assert_int_equal(host.n_calls, 1);
    host.way = FORWARDS;
    afmoe__pool_watch(pool, NULL); /* until it is told that a new pass begins */
    assert_false(afmoe__pool_stopped(pool));
    check_run(pool, 100, 1);
    afmoe__pool_free(pool);
}

/* ---- Cancel ---- */

struct stopping {
    afmoe_cancel *cancel;
    uint64_t stop_at;
    _Atomic uint64_t n_done;
};

static void stop_amid(void *arg, uint64_t begin, uint64_t end, uint32_t worker)
{
    struct stopping *s = arg;
    (void)worker;
    s->n_done += end - begin;
    if (s->n_done >= s->stop_at) afmoe_cancel_set(s->cancel);
}

static void test_cancel_leaves_the_rest(void **state)
{
    (void)state;
    for (uint32_t n_threads = 1; n_threads <= MAX_THREADS; n_threads++) {
        struct pool *pool = make(n_threads);
        struct stopping s = {.stop_at = 20};
        assert_int_equal(afmoe_cancel_create(&s.cancel, NULL), AFMOE_OK);
        afmoe__pool_watch(pool, s.cancel);
        afmoe__pool_run(pool, stop_amid, &s, 10, 1);
        assert_int_equal(s.n_done, 10);
        assert_false(afmoe__pool_stopped(pool));
        afmoe__pool_run(pool, stop_amid, &s, 1000, 1);
        assert_true(s.n_done >= 20 && s.n_done < 20 + n_threads); /* one piece of each that was at it */
        afmoe_cancel_clear(s.cancel);
        assert_true(afmoe__pool_stopped(pool)); /* work is missing, whatever the flag says now */
        afmoe__pool_watch(pool, s.cancel);
        check_run(pool, 1000, 3);
        afmoe_cancel_free(s.cancel);
        afmoe__pool_free(pool);
    }
}

/* ---- Own affinity ---- */

static void note_cpu(void *arg, uint64_t begin, uint64_t end, uint32_t worker)
{
    _Atomic int *cpu_of = arg;
    (void)begin, (void)end;
    cpu_of[worker] = sched_getcpu();
    sleep_milliseconds(2); /* so that every worker gets some */
}

static void test_pinned(void **state)
{
    (void)state;
    cpu_set_t mine, after;
    int32_t cpus[2] = {-1, -1};
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    for (int cpu = 0, n = 0; cpu < CPU_SETSIZE && n < 2; cpu++)
        if (CPU_ISSET(cpu, &mine)) cpus[n++] = cpu;
    uint64_t n_cpus = cpus[1] < 0 ? 1 : 2;
    struct pool *pool = NULL;
    struct pool_options options = {.n_threads = MAX_THREADS, .cpus = cpus, .n_cpus = n_cpus};
    assert_int_equal(afmoe__pool_create(&pool, &options, NULL), AFMOE_OK);
    for (int round = 0; round < 20; round++) {
        _Atomic int cpu_of[MAX_THREADS] = {-1, -1, -1, -1};
        afmoe__pool_run(pool, note_cpu, cpu_of, 8, 1);
        for (int w = 1; w < MAX_THREADS; w++)
            assert_true(cpu_of[w] == -1 || cpu_of[w] == cpus[(uint64_t)w % n_cpus]);
    }
    sched_getaffinity(0, sizeof after, &after);
    assert_memory_equal(&mine, &after, sizeof mine); /* the caller's thread is left alone */
    afmoe__pool_free(pool);
}

static void test_bad_cpus(void **state)
{
    (void)state;
    static const int32_t bad[] = {-1, 65536, INT32_MAX, 65535};
    afmoe_error error = {.size = sizeof error};
    struct host host = {.way = FORWARDS};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct pool *pool = NULL;
        struct pool_options options = {.n_threads = 3, .cpus = &bad[i], .n_cpus = 1};
        assert_int_equal(afmoe__pool_create(&pool, &options, &error), AFMOE_INVALID);
        assert_non_null(strstr(error.message, "cpus"));
        assert_null(pool);
    }
    struct pool *pool = NULL;
    struct pool_options options = {.n_threads = 2, .n_cpus = 1};
    assert_int_equal(afmoe__pool_create(&pool, &options, &error), AFMOE_INVALID);
    options = (struct pool_options){.n_threads = 2, .cpus = bad, .n_cpus = 1, .parallel = host_parallel,
                                    .parallel_data = &host};
    assert_int_equal(afmoe__pool_create(&pool, &options, &error), AFMOE_INVALID);
}

/* ---- Fork ---- */

/* In the child the threads are gone: freeing neither waits for them nor crashes. */
static void test_free_after_fork(void **state)
{
    (void)state;
    for (int spinning = 0; spinning < 2; spinning++) {
        struct pool *pool = make(MAX_THREADS);
        check_run(pool, 1000, 1);
        if (!spinning) sleep_milliseconds(20);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            alarm(20);
            afmoe__pool_free(pool);
            _exit(0);
        }
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
        check_run(pool, 1000, 1); /* and the parent's goes on */
        afmoe__pool_free(pool);
    }
}

static void test_bad_counts(void **state)
{
    (void)state;
    struct pool *pool = NULL;
    afmoe_error error = {.size = sizeof error};
    struct pool_options options = {.n_threads = 0};
    assert_int_equal(afmoe__pool_create(&pool, &options, &error), AFMOE_INVALID);
    assert_string_equal(error.message, "n_threads is 0, allowed are 1..4096");
    options.n_threads = 5000;
    assert_int_equal(afmoe__pool_create(&pool, &options, NULL), AFMOE_INVALID);
    assert_null(pool);
    afmoe__pool_free(NULL);
}

/* No room for more threads: a status, and those already started are gone. Address space is what a limit without
 * privilege can take away; the sanitizers need it for themselves. */
static void test_threads_refused(void **state)
{
    (void)state;
#if UNDER_SANITIZER
    print_message("skipped: sanitizer test_threads_refused (sanitizers need the address space)\n");
#else
    struct rlimit old, tight;
    struct pool *pool = NULL;
    afmoe_error error = {.size = sizeof error};
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    tight = old;
    tight.rlim_cur = 256 << 20; /* stacks are 8 MB: about 30 threads */
    assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
    struct pool_options options = {.n_threads = 200};
    afmoe_status status = afmoe__pool_create(&pool, &options, &error);
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
        cmocka_unit_test(test_host_parallel),      cmocka_unit_test(test_host_refuses),
        cmocka_unit_test(test_cancel_leaves_the_rest),
        cmocka_unit_test(test_pinned),             cmocka_unit_test(test_bad_cpus),
        cmocka_unit_test(test_free_after_fork),
        cmocka_unit_test(test_bad_counts),         cmocka_unit_test(test_threads_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
