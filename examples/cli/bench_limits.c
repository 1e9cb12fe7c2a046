/* How fast this machine reads memory and multiplies at this moment: what the rates of `afmoe bench` are to be compared
 * with. Shared machines change from minute to minute.
 *
 * Reading: every thread sums the words of its own part of a buffer again and again, which is larger than caches are:
 * 256 MiB, or 16 MiB for each thread. Multiplying: every thread runs twelve independent chains acc = acc * a + b,
 * enough to hide the latency of the units, in the widest vectors that both the compiler and the CPU have. Both stop at
 * the first look at the clock after 100 ms. */
#include "bench.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAVE_X86 1
#endif

enum { MIN_BUFFER_MIB = 256, MIB_PER_THREAD = 16, STRIP_BYTES = 4 << 20, N_CHAINS = 12, N_STEPS = 100000 };
static const double RUN_SECONDS = 0.1;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- One thread's work; the results are kept, so that none of it can be left out --------------------------------- */

static uint64_t sum_words(const uint64_t *words, size_t n)
{
    uint64_t sums[8] = {0};
    for (size_t i = 0; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) sums[k] += words[i + (size_t)k];
    uint64_t sum = 0;
    for (int k = 0; k < 8; k++) sum += sums[k];
    return sum;
}

static float multiply_c(float a, float b)
{
    float acc[N_CHAINS] = {0};
    for (int step = 0; step < N_STEPS; step++)
        for (int k = 0; k < N_CHAINS; k++) acc[k] = acc[k] * a + b;
    float sum = 0;
    for (int k = 0; k < N_CHAINS; k++) sum += acc[k];
    return sum;
}

#ifdef HAVE_X86
#define MULTIPLY(name, features, vector, set1, fmadd) \
    __attribute__((target(features))) static float name(float a, float b) \
    { \
        vector acc[N_CHAINS], va = set1(a), vb = set1(b); \
        for (int k = 0; k < N_CHAINS; k++) acc[k] = set1((float)k); \
        for (int step = 0; step < N_STEPS; step++) \
            for (int k = 0; k < N_CHAINS; k++) acc[k] = fmadd(acc[k], va, vb); \
        float lanes[sizeof(vector) / sizeof(float)], sum = 0; \
        for (int k = 0; k < N_CHAINS; k++) { \
            memcpy(lanes, &acc[k], sizeof lanes); \
            sum += lanes[0]; \
        } \
        return sum; \
    }
MULTIPLY(multiply_avx2, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps)
MULTIPLY(multiply_avx512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps)
#endif

struct multiply {
    float (*run)(float a, float b);
    unsigned n_lanes;
};

static struct multiply choose_multiply(void)
{
#ifdef HAVE_X86
    if (__builtin_cpu_supports("avx512f")) return (struct multiply){multiply_avx512, 16};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return (struct multiply){multiply_avx2, 8};
#endif
    return (struct multiply){multiply_c, 1};
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

struct shared {
    pthread_mutex_t lock;
    pthread_cond_t decided;
    enum { WAIT, GO, GO_HOME } decision; /* are all threads there? */
    pthread_barrier_t barrier;
    struct multiply multiply;
};

struct worker {
    pthread_t thread;
    struct shared *shared;
    uint64_t *words;
    size_t n_words;
    double read_rate, dot_rate; /* bytes and operations a second */
    volatile double kept;
};

static void run_reads(struct worker *w)
{
    size_t strip = STRIP_BYTES / sizeof *w->words, at = 0;
    uint64_t sum = 0, n_bytes = 0;
    double begin = now(), end;
    do {
        size_t n = strip < w->n_words - at ? strip : w->n_words - at;
        sum += sum_words(w->words + at, n);
        n_bytes += n * sizeof *w->words;
        at = at + n < w->n_words ? at + n : 0;
        end = now();
    } while (end - begin < RUN_SECONDS);
    w->kept += (double)sum;
    w->read_rate = (double)n_bytes / (end - begin);
}

static void run_dots(struct worker *w)
{
    double begin = now(), end, n = 0;
    do {
        w->kept += (double)w->shared->multiply.run(0.5f, 0.25f);
        n += 2.0 * N_CHAINS * N_STEPS * w->shared->multiply.n_lanes;
        end = now();
    } while (end - begin < RUN_SECONDS);
    w->dot_rate = n / (end - begin);
}

static bool wait_for_decision(struct shared *shared)
{
    pthread_mutex_lock(&shared->lock);
    while (shared->decision == WAIT) pthread_cond_wait(&shared->decided, &shared->lock);
    bool go = shared->decision == GO;
    pthread_mutex_unlock(&shared->lock);
    return go;
}

static void decide(struct shared *shared, bool go)
{
    pthread_mutex_lock(&shared->lock);
    shared->decision = go ? GO : GO_HOME;
    pthread_cond_broadcast(&shared->decided);
    pthread_mutex_unlock(&shared->lock);
}

/* The thread that reads a part touches it first, so it lies in memory near. */
static void *work(void *argument)
{
    struct worker *w = argument;
    if (!wait_for_decision(w->shared)) return NULL;
    memset(w->words, 1, w->n_words * sizeof *w->words);
    pthread_barrier_wait(&w->shared->barrier);
    run_reads(w);
    pthread_barrier_wait(&w->shared->barrier);
    run_dots(w);
    return NULL;
}

/* The caller is one of them. False after a message. */
static bool run_workers(struct shared *shared, struct worker *workers, int n_threads)
{
    int n = 1;
    while (n < n_threads && pthread_create(&workers[n].thread, NULL, work, &workers[n]) == 0) n++;
    decide(shared, n == n_threads);
    work(&workers[0]);
    for (int i = 1; i < n; i++) pthread_join(workers[i].thread, NULL);
    if (n < n_threads) complain("cannot start %d threads", n_threads);
    return n == n_threads;
}

static void add_up(struct limits *out, const struct worker *workers, int n_threads)
{
    *out = (struct limits){0, 0};
    for (int i = 0; i < n_threads; i++) {
        out->read_gb_s += workers[i].read_rate / 1e9;
        out->dot_gflops += workers[i].dot_rate / 1e9;
    }
}

bool measure_limits(struct limits *out, int n_threads)
{
    struct shared shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .decided = PTHREAD_COND_INITIALIZER,
                            .multiply = choose_multiply()};
    struct worker *workers = calloc((size_t)n_threads, sizeof *workers);
    size_t mib = (size_t)n_threads * MIB_PER_THREAD;
    if (mib < MIN_BUFFER_MIB) mib = MIN_BUFFER_MIB;
    uint64_t *words = malloc(mib << 20);
    size_t n_words = (mib << 20) / sizeof *words / (size_t)n_threads;
    bool good = workers && words && pthread_barrier_init(&shared.barrier, NULL, (unsigned)n_threads) == 0;
    if (good) {
        for (int i = 0; i < n_threads; i++)
            workers[i] = (struct worker){.shared = &shared, .words = words + (size_t)i * n_words, .n_words = n_words};
        good = run_workers(&shared, workers, n_threads);
        add_up(out, workers, n_threads);
        pthread_barrier_destroy(&shared.barrier);
    } else {
        complain("out of memory: %zu MiB to read", mib);
    }
    free(workers);
    free(words);
    return good;
}
