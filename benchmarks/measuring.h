/* What the benchmarks share: a clock, random tokens, and pairs of figures that were measured by turns. */
#ifndef AFMOE_BENCHMARKS_MEASURING_H
#define AFMOE_BENCHMARKS_MEASURING_H

#include <afmoe.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Seconds. */
static inline double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* End the program, with the call's own message, when it failed. */
static inline void bench_check(afmoe_status status, const afmoe_error *error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s: %s\n", afmoe_status_name(status), error->message);
    exit(1);
}

/* The same every time, of those that have a text where there are such. */
static inline void bench_random_tokens(afmoe_token *out, uint64_t n, const afmoe_model_info *info)
{
    uint64_t random = 1;
    for (uint64_t i = 0; i < n; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        out[i] = (afmoe_token)((random >> 33) % (info->n_tokens ? info->n_tokens : info->vocab_size));
    }
}

/* For qsort of doubles. */
static inline int bench_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { BENCH_MAX_PAIRS = 99 };

struct bench_pairs {
    uint64_t n;
    double one[BENCH_MAX_PAIRS], other[BENCH_MAX_PAIRS], ratio[BENCH_MAX_PAIRS];
};

static inline void bench_pairs_add(struct bench_pairs *pairs, double one, double other)
{
    pairs->one[pairs->n] = one;
    pairs->other[pairs->n] = other;
    pairs->ratio[pairs->n++] = other / one;
}

/* Medians of both and of their ratio, with its least and most. Sorts them. */
static inline void bench_pairs_print(struct bench_pairs *pairs, const char *one, const char *other)
{
    uint64_t n = pairs->n;
    qsort(pairs->one, n, sizeof(double), bench_by_value);
    qsort(pairs->other, n, sizeof(double), bench_by_value);
    qsort(pairs->ratio, n, sizeof(double), bench_by_value);
    printf("%s %.1f, %s %.1f tokens/s, ratio %.2f (%.2f..%.2f)", one, pairs->one[n / 2], other, pairs->other[n / 2],
           pairs->ratio[n / 2], pairs->ratio[0], pairs->ratio[n - 1]);
}

#endif
