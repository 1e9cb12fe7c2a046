/* bench_blis: our panel product of float32 rows against BLIS, one thread, interleaved, and whether the bits of BLIS hold:
 * docs/performance.md has the figures. Built only where BLIS is installed; the library does not use it.
 *
 * BLIS is called as a library that keeps bits would have to: the expert interface with a thread count of one, and
 * without its small-matrix path, which sums in an order that depends on the number of rows. */
#include "afmoe.h"
#include "cpu.h"
#include "kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <blis.h>

enum { N_ROUNDS = 9, MAX_TOKENS = 256, UNIT_ROWS = 32, N_SHAPES = 4, N_COUNTS = 7 };

static const uint64_t shapes[N_SHAPES][2] = {{1024, 1024}, {256, 1024}, {1024, 256}, {3072, 1024}}; /* rows, columns */
static const uint64_t counts[N_COUNTS] = {1, 2, 4, 8, 32, 128, 256};

struct product {
    const struct kernels *kernels;
    uint64_t n_rows, n_columns, n_tokens;
    float *w, *x, *y;
    void *scratch;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* other load on the machine counts less */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *need(uint64_t bytes)
{
    void *p;
    if (posix_memalign(&p, 64, bytes) == 0) return p;
    fprintf(stderr, "bench_blis: out of memory\n");
    exit(1);
}

static float *make(uint64_t n)
{
    float *p = need(n * sizeof *p);
    for (uint64_t i = 0; i < n; i++) p[i] = (float)((uint32_t)(i * 2654435761u) >> 8) / (1 << 23) - 1;
    return p;
}

/* In units of rows, as the library cuts its work. */
static void ours(const struct product *p)
{
    const struct product_kernels *f32 = &p->kernels->product[PRECISION_EXACT][FORMAT_F32];
    uint64_t row_bytes = p->n_columns * sizeof(float);
    const void *x[MAX_TOKENS];
    for (uint64_t t = 0; t < p->n_tokens; t++) x[t] = p->x + t * p->n_columns;
    for (uint64_t r = 0; r < p->n_rows; r += UNIT_ROWS) {
        uint64_t n = p->n_rows - r < UNIT_ROWS ? p->n_rows - r : UNIT_ROWS;
        if (p->n_tokens == 1)
            f32->one_token(p->y + r, p->x, p->w + r * p->n_columns, row_bytes, n, p->n_columns, NULL);
        else
            f32->panel(p->y + r, p->n_rows, x, p->n_tokens, p->w + r * p->n_columns, row_bytes, n, p->n_columns,
                       NULL, p->scratch);
    }
}

static void blis(const struct product *p)
{
    float one = 1, zero = 0;
    rntm_t runtime;
    bli_rntm_init(&runtime);
    bli_rntm_set_num_threads(1, &runtime);
    bli_rntm_disable_l3_sup(&runtime);
    bli_sgemm_ex(BLIS_NO_TRANSPOSE, BLIS_TRANSPOSE, (dim_t)p->n_tokens, (dim_t)p->n_rows, (dim_t)p->n_columns, &one,
                 p->x, (inc_t)p->n_columns, 1, p->w, (inc_t)p->n_columns, 1, &zero, p->y, (inc_t)p->n_rows, 1, NULL,
                 &runtime);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void compare(struct product *p)
{
    double flops = 2.0 * (double)(p->n_rows * p->n_columns * p->n_tokens), rates[2][N_ROUNDS];
    int n_repeats = (int)(4e8 / flops) + 1;
    for (int round = 0; round < N_ROUNDS; round++)
        for (int who = 0; who < 2; who++) {
            double start = now();
            for (int i = 0; i < n_repeats; i++) (who ? blis : ours)(p);
            rates[who][round] = flops * n_repeats / (now() - start) * 1e-9;
        }
    for (int who = 0; who < 2; who++) qsort(rates[who], N_ROUNDS, sizeof rates[who][0], by_value);
    printf("%4llu x %4llu, %3llu tokens: ours %5.1f, BLIS %5.1f Gflop/s\n", (unsigned long long)p->n_rows,
           (unsigned long long)p->n_columns, (unsigned long long)p->n_tokens, rates[0][N_ROUNDS / 2],
           rates[1][N_ROUNDS / 2]);
}

/* Calls of 1..n_tokens tokens against the first rows of one call with all. */
static uint64_t count_differing(struct product *p)
{
    uint64_t n_differing = 0, n_tokens = p->n_tokens;
    float *all = p->y;
    blis(p);
    p->y = need(n_tokens * p->n_rows * sizeof *p->y);
    for (p->n_tokens = 1; p->n_tokens <= n_tokens; p->n_tokens++) {
        blis(p);
        n_differing += memcmp(p->y, all, p->n_tokens * p->n_rows * sizeof *p->y) != 0;
    }
    free(p->y);
    p->y = all;
    return n_differing;
}

int main(void)
{
    struct kernels kernels;
    bli_init();
    afmoe__kernels_select(&kernels, afmoe__cpu_level());
    printf("ours: level %s; BLIS: %s\n", afmoe__cpu_level_name(kernels.level), bli_arch_string(bli_arch_query_id()));
    for (int s = 0; s < N_SHAPES; s++) {
        struct product p = {&kernels, shapes[s][0], shapes[s][1], 0, NULL, NULL, NULL, NULL};
        p.w = make(p.n_rows * p.n_columns);
        p.x = make(MAX_TOKENS * p.n_columns);
        p.y = make(MAX_TOKENS * p.n_rows);
        p.scratch = need(kernels.product[PRECISION_EXACT][FORMAT_F32].panel_scratch_bytes(p.n_columns));
        for (int c = 0; c < N_COUNTS; c++) {
            p.n_tokens = counts[c];
            compare(&p);
        }
        p.n_tokens = 40;
        printf("%4llu x %4llu: %llu of 40 calls differ in bits\n", (unsigned long long)p.n_rows,
               (unsigned long long)p.n_columns, (unsigned long long)count_differing(&p));
        free(p.w), free(p.x), free(p.y), free(p.scratch);
    }
    return 0;
}
