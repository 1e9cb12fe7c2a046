/* Figures of the kernels: best of several runs of a few milliseconds each, one thread.
 *
 * One-token products stream their rows from memory (a buffer well over any cache) and are given in GB/s of weights,
 * beside a plain read of the same buffer; panels in Gflop/s (2 a weight and token). */
#include "bench_kernels.h"

#include "afmoe.h"
#include "cpu.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STREAM_BYTES = 128 << 20, N_COLUMNS = 1024, MAX_TOKENS = 128, N_RUNS = 4 };

struct bench {
    const struct kernels *k;
    uint8_t *weights;
    enum precision precision;
    float *x, *out, *y;
    uint8_t *prepared;
    void *scratch;
    volatile float sink;
};

/* The reference is far slower than memory. */
static uint64_t stream_bytes(const struct bench *b)
{
    return b->k->level == AFMOE_CPU_C ? STREAM_BYTES / 32 : STREAM_BYTES / 2;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of the fastest of N_RUNS calls. */
static double best(void (*run)(struct bench *b, uint64_t a, uint64_t c), struct bench *b, uint64_t a, uint64_t c)
{
    double least = 1e9;
    for (int i = 0; i < N_RUNS; i++) {
        double start = now();
        run(b, a, c);
        double took = now() - start;
        if (took < least) least = took;
    }
    return least;
}

static void run_read(struct bench *b, uint64_t a, uint64_t c)
{
    (void)a, (void)c;
    enum { STREAMS = 4, PART = STREAM_BYTES / STREAMS };
    uint64_t sum[STREAMS] = {0};
    for (uint64_t i = 0; i < PART; i += 32)
        for (int l = 0; l < STREAMS; l++) {
            uint64_t v[4];
            memcpy(v, b->weights + l * PART + i, sizeof v);
            sum[l] += v[0] + v[1] + v[2] + v[3];
        }
    for (int l = 1; l < STREAMS; l++) sum[0] += sum[l];
    b->sink = (float)sum[0];
}

/* Token t of those that prepare_tokens has made. */
static const void *prepared(const struct bench *b, enum activation_kind kind, uint64_t t, uint64_t n_columns)
{
    if (kind == ACTIVATION_F32) return b->x + t * n_columns;
    return b->prepared + t * activation_bytes(kind, n_columns);
}

static void prepare_tokens(struct bench *b, enum activation_kind kind, uint64_t n_tokens, uint64_t n_columns)
{
    uint64_t bytes = activation_bytes(kind, n_columns);
    for (uint64_t t = 0; t < n_tokens && kind != ACTIVATION_F32; t++)
        b->k->prepare[kind](b->prepared + t * bytes, b->x + t * n_columns, n_columns);
}

static void run_one_token(struct bench *b, uint64_t format, uint64_t n_columns)
{
    uint64_t row_bytes = format_row_bytes((enum tensor_format)format, n_columns);
    const struct product_kernels *p = &b->k->product[b->precision][format];
    p->one_token(b->out, prepared(b, p->activation, 0, n_columns), b->weights, row_bytes, stream_bytes(b) / row_bytes,
                 n_columns, b->weights);
}

enum { PANEL_ROWS = 512 };

static void run_panel(struct bench *b, uint64_t format, uint64_t n_tokens)
{
    const struct product_kernels *p = &b->k->product[b->precision][format];
    const void *x[MAX_TOKENS];
    for (uint64_t t = 0; t < n_tokens; t++) x[t] = prepared(b, p->activation, t, N_COLUMNS);
    p->panel(b->out, PANEL_ROWS, x, n_tokens, b->weights, format_row_bytes((enum tensor_format)format, N_COLUMNS),
             PANEL_ROWS, N_COLUMNS, b->weights, b->scratch);
}

enum { VECTOR = 3072, REPEATS = 200 };

static void run_vector(struct bench *b, uint64_t which, uint64_t c)
{
    (void)c;
    float max;
    double sum;
    for (int i = 0; i < REPEATS; i++) switch (which) {
        case 0: b->k->rms_norm(b->out, b->x, b->y, VECTOR, 1e-5f); break;
        case 1: b->k->silu_mul(b->out, b->x, b->y, VECTOR); break;
        case 2: b->k->softmax(b->out, b->x, VECTOR); break;
        case 3: b->k->log_sum_exp(b->x, VECTOR, &max, &sum); break;
        case 4: b->k->add_scaled(b->out, b->x, 0.5f, VECTOR); break;
        case 5: b->k->store_key[CELLS_BF16](b->weights, b->x, VECTOR, 1); break;
        default: b->k->store_value[CELLS_BF16](b->weights, b->x, VECTOR, 1);
        }
}

/* Pages of one kv head one after the other in the weights' buffer, n queries of 128. */
enum { HEAD_DIM = 128, MAX_QUERIES = 512, CACHED_PAGES = 2 };

static void run_attention(struct bench *b, uint64_t cells, uint64_t n_queries, uint64_t n_pages)
{
    uint64_t half = head_page_bytes((enum cell_format)cells, HEAD_DIM);
    struct attention_query queries[MAX_QUERIES];
    for (uint64_t i = 0; i < n_queries; i++) queries[i] = (struct attention_query){0, PAGE_POSITIONS, -1e30f, 0};
    memset(b->out, 0, n_queries * HEAD_DIM * sizeof(float));
    for (uint64_t p = 0; p < n_pages; p++) {
        const uint8_t *keys = b->weights + 2 * p * half;
        struct attention_page page = {keys, keys + half, keys + 2 * half, HEAD_DIM, 0.088f};
        b->k->attention_page[cells](queries, n_queries, b->out, b->x, &page);
    }
}

static void run_attention_stream(struct bench *b, uint64_t cells, uint64_t n_pages)
{
    run_attention(b, cells, 4, n_pages);
}

static void run_attention_tile(struct bench *b, uint64_t cells, uint64_t n_queries)
{
    run_attention(b, cells, n_queries, CACHED_PAGES);
}

static void bench_attention(struct bench *b)
{
    static const char *cell_names[] = {"f32", "f16", "bf16", "q8_0"};
    static const uint64_t counts[] = {4, 32, 48, 128, MAX_QUERIES};
    for (uint64_t c = 0; c < N_CELL_FORMATS; c++) {
        uint64_t page = 2 * head_page_bytes((enum cell_format)c, HEAD_DIM), n_pages = STREAM_BYTES / 4 / page;
        printf("  attention %-4s 4 queries from memory, GB/s: %.1f   from cache, Gflop/s:", cell_names[c],
               (double)(n_pages * page) / best(run_attention_stream, b, c, n_pages) * 1e-9);
        for (int i = 0; i < 5; i++) {
            double least = 1e9, start = now();
            do { /* short windows: some of them meet an idle core */
                double took = best(run_attention_tile, b, c, counts[i]);
                if (took < least) least = took;
            } while (now() - start < 0.3);
            printf("  %llu queries %.1f", (unsigned long long)counts[i],
                   4.0 * HEAD_DIM * PAGE_POSITIONS * CACHED_PAGES * (double)counts[i] / least * 1e-9);
        }
        printf("\n");
    }
}

static void bench_product(struct bench *b, uint64_t f)
{
    static const uint64_t columns[] = {256, 1024, 3072}, tokens[] = {1, 3, 8, 32, MAX_TOKENS};
    const char *name = afmoe__format_traits[f].name;
    enum activation_kind kind = b->k->product[b->precision][f].activation;
    if (b->precision == PRECISION_FAST && kind == ACTIVATION_F32) return; /* the same as exact */
    printf("  %-7s %s one token, GB/s:", name, b->precision == PRECISION_FAST ? "fast " : "exact");
    for (int i = 0; i < 3; i++) {
        prepare_tokens(b, kind, 1, columns[i]);
        printf("  K=%llu %.1f", (unsigned long long)columns[i],
               (double)stream_bytes(b) / best(run_one_token, b, f, columns[i]) * 1e-9);
    }
    prepare_tokens(b, kind, MAX_TOKENS, N_COLUMNS);
    printf("   panel K=%d, Gflop/s:", N_COLUMNS);
    for (int i = 0; i < 5; i++)
        printf("  T=%llu %.1f", (unsigned long long)tokens[i],
               2.0 * PANEL_ROWS * N_COLUMNS * (double)tokens[i] / best(run_panel, b, f, tokens[i]) * 1e-9);
    printf("\n");
}

static void bench_level(struct bench *b, const char *format)
{
    static const char *vector_names[] = {"rms_norm", "silu_mul", "softmax", "log_sum_exp", "add_scaled",
                                         "store_key bf16", "store_value bf16"};
    printf("level %s, plain read %.1f GB/s\n", afmoe__cpu_level_name(b->k->level),
           STREAM_BYTES / best(run_read, b, 0, 0) * 1e-9);
    for (uint64_t f = 0; f < N_FORMATS; f++)
        if (!format || strcmp(format, afmoe__format_traits[f].name) == 0)
            for (int p = 0; p < N_PRECISIONS; p++) {
                b->precision = (enum precision)p;
                bench_product(b, f);
            }
    if (!format || strcmp(format, "attention") == 0) bench_attention(b);
    if (format) return;
    printf("  ns a float, %d floats:", VECTOR);
    for (uint64_t v = 0; v < 7; v++)
        printf("  %s %.3f", vector_names[v], best(run_vector, b, v, 0) / REPEATS / VECTOR * 1e9);
    printf("\n");
}

int bench_kernels(const struct kernels *levels, int n_levels, const char *format)
{
    struct bench b = {0};
    uint64_t n_out = STREAM_BYTES / 2 / 50; /* rows of 256 IQ1_S are the smallest */
    b.weights = malloc(STREAM_BYTES);
    b.x = malloc(MAX_TOKENS * N_COLUMNS * sizeof *b.x);
    b.y = malloc(VECTOR * sizeof *b.y);
    uint64_t prepared_bytes = MAX_TOKENS * activation_bytes(ACTIVATION_INT16_32, N_COLUMNS);
    bool ok = posix_memalign((void **)&b.prepared, 64, prepared_bytes) == 0;
    b.out = malloc(n_out * sizeof *b.out);
    ok = ok && b.weights && b.x && b.y && b.out;
    if (ok) {
        memset(b.weights, 0x11, STREAM_BYTES); /* small normal numbers in every format */
        for (int i = 0; i < MAX_TOKENS * N_COLUMNS; i++) b.x[i] = (float)(i % 17) * 0.1f;
        for (int i = 0; i < VECTOR; i++) b.y[i] = (float)(i % 13) * 0.1f;
        memset(b.out, 0, n_out * sizeof *b.out);
    }
    for (int l = 0; ok && l < n_levels; l++) {
        b.k = &levels[l];
        uint64_t bytes = 64;
        for (int f = 0; f < N_FORMATS; f++)
            for (int p = 0; p < N_PRECISIONS; p++) {
                uint64_t needed = b.k->product[p][f].panel_scratch_bytes(3072);
                if (needed > bytes) bytes = needed;
            }
        if (posix_memalign(&b.scratch, 64, bytes) != 0) {
            ok = false;
            break;
        }
        bench_level(&b, format);
        free(b.scratch);
    }
    free(b.weights), free(b.x), free(b.y), free(b.out), free(b.prepared);
    return ok ? 0 : 1;
}
