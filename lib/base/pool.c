/* The worker pool, see pool.h.
 *
 * A run cuts its units into pieces of `grain`. Each worker owns a share, a range [begin, end) of pieces in one 64-bit
 * word: its owner takes from the front, thieves from the far end, both by compare-and-swap, so a piece is taken once.
 *
 * `gate` is the state of the run: number of the run, an open bit and the count of workers inside. A worker enters by
 * raising the count of an open gate; the caller, when no piece is left to take, closes it and waits until nobody is
 * inside. A worker that the system never woke in time is simply not waited for, and whoever is inside sees a job that
 * cannot change under it.
 *
 * A host's parallel-for takes the place of the threads: each of its tasks enters the same gate as one worker. So it may
 * run its tasks one after the other, and what it does wrong does no harm: a task called twice is turned away by its
 * claim, one called too late by the gate, and the calling thread does those that were left out.
 *
 * Sleeping is a mutex and a condition variable instead of a futex: it is reached only after SPIN_NANOSECONDS of
 * waiting, where a few hundred nanoseconds do not count, it is portable, and thread checkers understand it. */
#define _GNU_SOURCE /* pthread_setaffinity_np */
#include "pool.h"

#include "cancel.h"
#include "clock.h"
#include "error.h"
#include "memory.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum { SPIN_NANOSECONDS = 20000, PAUSES_PER_LOOK = 32, MAX_THREADS = 4096, MAX_CPUS = 1 << 16 };

struct share {
    _Alignas(CACHE_LINE_BYTES) _Atomic uint64_t range; /* begin in the low half, end in the high */
    _Atomic uint64_t claim;                            /* the last run in which a task of the host took this share */
};

struct worker {
    struct pool *pool;
    pthread_t thread;
    uint32_t index;
};

struct job {
    pool_stage_fn stage;
    void *arg;
    uint64_t n_units, grain, first_piece; /* piece i of the run is piece first_piece + i of the job */
};

/* gate: run number << 16 | open << 15 | workers inside */
enum { GATE_OPEN = 1 << 15, GATE_INSIDE = GATE_OPEN - 1 };
static const uint64_t gate_run = 1u << 16;

struct pool {
    _Alignas(CACHE_LINE_BYTES) _Atomic uint64_t gate;
    _Alignas(CACHE_LINE_BYTES) struct job job; /* written while the gate is closed and empty */
    const afmoe_cancel *cancel; /* written likewise */
    _Atomic bool stopped;       /* units of this run or one before it were left out */
    uint32_t n_threads, n_started;
    pid_t owner; /* the process the threads are in */
    afmoe_parallel_fn parallel;
    void *parallel_data;
    pthread_mutex_t mutex;
    pthread_cond_t opened, emptied;
    _Atomic uint32_t n_sleeping; /* workers, changed under the mutex */
    _Atomic bool caller_sleeping, quit;
    struct worker *workers; /* [n_threads - 1], index 1.. */
    struct share *shares;   /* [n_threads] */
};

/* ---- Pieces ---- */

static uint64_t pack(uint64_t begin, uint64_t end)
{
    return end << 32 | begin;
}

/* One piece of a share, from the front or from the far end; false when there is none. */
static bool take(struct share *share, bool front, uint64_t *out_piece)
{
    uint64_t range = atomic_load_explicit(&share->range, memory_order_relaxed);
    for (;;) {
        uint64_t begin = range & UINT32_MAX, end = range >> 32;
        if (begin == end) return false;
        uint64_t rest = front ? pack(begin + 1, end) : pack(begin, end - 1);
        *out_piece = front ? begin : end - 1;
        if (atomic_compare_exchange_weak_explicit(&share->range, &range, rest, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    }
}

static void run_piece(const struct job *job, uint64_t piece, uint32_t worker)
{
    uint64_t begin = (job->first_piece + piece) * job->grain;
    uint64_t left = job->n_units - begin;
    job->stage(job->arg, begin, begin + (left < job->grain ? left : job->grain), worker);
}

/* Whoever leaves a piece out has seen this first. */
bool afmoe__pool_stopped(struct pool *pool)
{
    if (atomic_load_explicit(&pool->stopped, memory_order_relaxed)) return true;
    if (!cancel_requested(pool->cancel)) return false;
    atomic_store_explicit(&pool->stopped, true, memory_order_relaxed); /* the flag may be taken down, this stays */
    return true;
}

/* Own share first, then the others', the next worker's first. */
static void work(struct pool *pool, uint32_t worker)
{
    const struct job *job = &pool->job;
    uint64_t piece;
    while (!afmoe__pool_stopped(pool) && take(&pool->shares[worker], true, &piece)) run_piece(job, piece, worker);
    for (uint32_t i = 1; i < pool->n_threads; i++) {
        struct share *victim = &pool->shares[(worker + i) % pool->n_threads];
        while (!afmoe__pool_stopped(pool) && take(victim, false, &piece)) run_piece(job, piece, worker);
    }
}

/* ---- Waiting ---- */

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Is there an open gate of a run other than `last`, or the end of the pool? */
static bool may_go(struct pool *pool, uint64_t last)
{
    uint64_t gate = atomic_load(&pool->gate);
    return ((gate & GATE_OPEN) && gate / gate_run != last) || atomic_load(&pool->quit);
}

static bool is_empty(struct pool *pool, uint64_t unused)
{
    (void)unused;
    return (atomic_load(&pool->gate) & GATE_INSIDE) == 0;
}

static bool spin_until(bool (*done)(struct pool *pool, uint64_t last), struct pool *pool, uint64_t last)
{
    uint64_t start = clock_now_ns();
    do {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if (done(pool, last)) return true;
            pause_cpu();
        }
    } while (clock_now_ns() - start < SPIN_NANOSECONDS);
    return false;
}

/* The count of sleepers is raised before the last look at the gate, and the caller opens the gate before its look at
 * the count, both sequentially consistent: one of the two sees the other. */
static void wait_for_run(struct pool *pool, uint64_t last)
{
    if (spin_until(may_go, pool, last)) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->n_sleeping, 1);
    while (!may_go(pool, last)) pthread_cond_wait(&pool->opened, &pool->mutex);
    atomic_fetch_sub(&pool->n_sleeping, 1);
    pthread_mutex_unlock(&pool->mutex);
}

/* ---- Workers ---- */

/* Raise the count of an open gate of a new run. */
static bool enter(struct pool *pool, uint64_t *last)
{
    uint64_t gate = atomic_load(&pool->gate);
    while ((gate & GATE_OPEN) && gate / gate_run != *last)
        if (atomic_compare_exchange_weak(&pool->gate, &gate, gate + 1)) {
            *last = gate / gate_run;
            return true;
        }
    return false;
}

/* The caller sleeps only behind a closed gate, so only the last one out of a closed gate wakes it. */
static void leave(struct pool *pool)
{
    uint64_t gate = atomic_fetch_sub(&pool->gate, 1) - 1;
    if ((gate & (GATE_OPEN | GATE_INSIDE)) != 0 || !atomic_load(&pool->caller_sleeping)) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_signal(&pool->emptied);
    pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct pool *pool = worker->pool;
    uint64_t last = 0;
    while (!atomic_load(&pool->quit)) {
        wait_for_run(pool, last);
        if (!enter(pool, &last)) continue;
        work(pool, worker->index);
        leave(pool);
    }
    return NULL;
}

/* ---- Running ---- */

static void open_gate(struct pool *pool)
{
    uint64_t run = atomic_load(&pool->gate) / gate_run + 1;
    atomic_store(&pool->gate, run * gate_run | GATE_OPEN);
    if (atomic_load(&pool->n_sleeping) == 0) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->opened);
    pthread_mutex_unlock(&pool->mutex);
}

static void close_gate(struct pool *pool)
{
    uint64_t gate = atomic_fetch_sub(&pool->gate, GATE_OPEN);
    if ((gate & GATE_INSIDE) == 0 || spin_until(is_empty, pool, 0)) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->caller_sleeping, true);
    while (!is_empty(pool, 0)) pthread_cond_wait(&pool->emptied, &pool->mutex);
    atomic_store(&pool->caller_sleeping, false);
    pthread_mutex_unlock(&pool->mutex);
}

/* What the host's parallel-for calls. */
static void host_task(void *task_data, uint32_t worker)
{
    struct pool *pool = task_data;
    uint64_t run = 0;
    if (worker >= pool->n_threads || !enter(pool, &run)) return;
    if (atomic_exchange(&pool->shares[worker].claim, run) != run) work(pool, worker);
    leave(pool);
}

static void ask_host(struct pool *pool, uint32_t n_workers)
{
    if (pool->parallel(pool->parallel_data, n_workers, host_task, pool) != 0) atomic_store(&pool->stopped, true);
    for (uint32_t i = 0; i < n_workers; i++) host_task(pool, i);
}

static void run_pieces(struct pool *pool, uint64_t n_pieces)
{
    for (uint64_t i = 0; i < pool->n_threads; i++) {
        uint64_t begin = n_pieces * i / pool->n_threads, end = n_pieces * (i + 1) / pool->n_threads;
        atomic_store_explicit(&pool->shares[i].range, pack(begin, end), memory_order_relaxed);
    }
    open_gate(pool);
    if (pool->parallel)
        ask_host(pool, n_pieces < pool->n_threads ? (uint32_t)n_pieces : pool->n_threads);
    else
        work(pool, 0);
    close_gate(pool);
}

void afmoe__pool_run(struct pool *pool, pool_stage_fn stage, void *arg, uint64_t n_units, uint64_t grain)
{
    assert(grain >= 1 && (atomic_load(&pool->gate) & GATE_OPEN) == 0);
    uint64_t n_pieces = n_units / grain + (n_units % grain != 0);
    pool->job = (struct job){stage, arg, n_units, grain, 0};
    if (pool->n_threads == 1 || n_pieces <= 1) {
        for (uint64_t i = 0; i < n_pieces && !afmoe__pool_stopped(pool); i++) run_piece(&pool->job, i, 0);
        return;
    }
    for (uint64_t first = 0; first < n_pieces && !afmoe__pool_stopped(pool); first += UINT32_MAX) {
        /* as many as a share can count */
        pool->job.first_piece = first;
        run_pieces(pool, n_pieces - first < UINT32_MAX ? n_pieces - first : UINT32_MAX);
    }
}

void afmoe__pool_watch(struct pool *pool, const afmoe_cancel *cancel)
{
    pool->cancel = cancel;
    atomic_store(&pool->stopped, false);
}

/* ---- Life ---- */

static afmoe_status pin(const struct worker *worker, int32_t cpu, afmoe_error *error)
{
    size_t bytes = CPU_ALLOC_SIZE(MAX_CPUS);
    cpu_set_t *set = afmoe__alloc_zeroed(bytes, 1);
    if (!set) return afmoe__fail_memory(error, bytes, "a set of CPUs");
    CPU_SET_S((size_t)cpu, bytes, set);
    int failure = pthread_setaffinity_np(worker->thread, bytes, set);
    afmoe__free(set);
    if (!failure) return AFMOE_OK;
    if (failure == EINVAL)
        return afmoe__fail(error, AFMOE_INVALID, "cpus: %d is not a CPU that this process may use", (int)cpu);
    return afmoe__fail_errno(error, AFMOE_IO, failure, "cannot pin a worker thread to CPU %d", (int)cpu);
}

/* Signals of the host are none of the workers' business: its handlers run on its own threads. */
static afmoe_status start_workers(struct pool *pool, const struct pool_options *options, afmoe_error *error)
{
    afmoe_status status = AFMOE_OK;
    sigset_t all, before;
    sigfillset(&all);
    int failure = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (failure) return afmoe__fail_errno(error, AFMOE_IO, failure, "cannot block signals for worker threads");
    for (uint32_t i = 1; i < pool->n_threads && !failure && status == AFMOE_OK; i++) {
        struct worker *worker = &pool->workers[i - 1];
        *worker = (struct worker){.pool = pool, .index = i};
        failure = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (failure) break;
        pool->n_started++;
        if (options->n_cpus) status = pin(worker, options->cpus[i % options->n_cpus], error);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failure) return status;
    return afmoe__fail_errno(error, failure == ENOMEM ? AFMOE_NO_MEMORY : AFMOE_IO, failure,
                             "cannot start worker thread %u of %u", pool->n_started + 1, pool->n_threads - 1);
}

static afmoe_status init_waiting(struct pool *pool, afmoe_error *error)
{
    int failure = pthread_mutex_init(&pool->mutex, NULL);
    if (!failure && (failure = pthread_cond_init(&pool->opened, NULL)) != 0) pthread_mutex_destroy(&pool->mutex);
    if (!failure && (failure = pthread_cond_init(&pool->emptied, NULL)) != 0) {
        pthread_cond_destroy(&pool->opened);
        pthread_mutex_destroy(&pool->mutex);
    }
    if (!failure) return AFMOE_OK;
    return afmoe__fail_errno(error, failure == ENOMEM ? AFMOE_NO_MEMORY : AFMOE_IO, failure,
                             "cannot create the worker pool's locks");
}

static void free_memory(struct pool *pool)
{
    afmoe__free(pool->shares);
    afmoe__free(pool->workers);
    afmoe__free(pool);
}

static afmoe_status check_options(const struct pool_options *options, afmoe_error *error)
{
    if (options->n_threads < 1 || options->n_threads > MAX_THREADS)
        return afmoe__fail(error, AFMOE_INVALID, "n_threads is %u, allowed are 1..%d", options->n_threads, MAX_THREADS);
    if (options->n_cpus && !options->cpus) return afmoe__fail(error, AFMOE_INVALID, "cpus is NULL");
    if (options->n_cpus && options->parallel)
        return afmoe__fail(error, AFMOE_INVALID, "cpus pins threads of our own, with parallel there are none");
    for (uint64_t i = 0; i < options->n_cpus; i++)
        if (options->cpus[i] < 0 || options->cpus[i] >= MAX_CPUS)
            return afmoe__fail(error, AFMOE_INVALID, "cpus[%llu] is %d, allowed are 0..%d", (unsigned long long)i,
                               (int)options->cpus[i], MAX_CPUS - 1);
    return AFMOE_OK;
}

afmoe_status afmoe__pool_create(struct pool **out, const struct pool_options *options, afmoe_error *error)
{
    uint32_t n_threads = options->n_threads;
    afmoe_status status = check_options(options, error);
    if (status != AFMOE_OK) return status;
    struct pool *pool = afmoe__alloc_aligned(1, sizeof *pool);
    if (!pool) return afmoe__fail_memory(error, sizeof *pool, "the worker pool");
    *pool = (struct pool){.n_threads = n_threads, .owner = getpid(), .parallel = options->parallel,
                          .parallel_data = options->parallel_data};
    pool->workers = afmoe__alloc_array(n_threads - 1, sizeof *pool->workers);
    pool->shares = afmoe__alloc_aligned(n_threads, sizeof *pool->shares);
    if (!pool->workers || !pool->shares) {
        free_memory(pool);
        return afmoe__fail_memory(error, n_threads * (sizeof *pool->workers + sizeof *pool->shares),
                                  "the shares of worker threads");
    }
    for (uint32_t i = 0; i < n_threads; i++) {
        atomic_init(&pool->shares[i].range, 0);
        atomic_init(&pool->shares[i].claim, 0);
    }
    status = init_waiting(pool, error);
    if (status < 0) {
        free_memory(pool);
        return status;
    }
    if (!pool->parallel) status = start_workers(pool, options, error);
    if (status < 0) {
        afmoe__pool_free(pool);
        return status;
    }
    *out = pool;
    return AFMOE_OK;
}

void afmoe__pool_free(struct pool *pool)
{
    if (!pool) return;
    if (getpid() != pool->owner) { /* locks may be held, and waited for, by threads that are not here */
        free_memory(pool);
        return;
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->quit, true);
    pthread_cond_broadcast(&pool->opened);
    pthread_mutex_unlock(&pool->mutex);
    for (uint32_t i = 0; i < pool->n_started; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->opened);
    pthread_cond_destroy(&pool->emptied);
    pthread_mutex_destroy(&pool->mutex);
    free_memory(pool);
}

uint32_t afmoe__pool_n_threads(const struct pool *pool)
{
    return pool->n_threads;
}
