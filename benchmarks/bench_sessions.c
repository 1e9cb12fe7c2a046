/* What keeping costs: a timeline of so many random tokens is read, with the speed in each eighth of it, then
 *
 *   same     synced to the same tokens again            fork     forked
 *   save     written to FILE (fsync included)           load     loaded from it
 *
 * and what the context says it takes is set beside the growth of RssAnon and the estimate made before. Prints one JSON
 * object a line. Times are the least of N_RUNS.
 *
 * Usage: bench_sessions MODEL [TOKENS [FILE]] */
#include "measuring.h"

enum { N_RUNS = 5, N_PARTS = 8 };

struct bench {
    const char *model_path, *file;
    uint64_t n_tokens;
    afmoe_token *tokens;
    afmoe_model *model;
    afmoe_context *context;
    afmoe_session *session;
    afmoe_memory estimate;
    afmoe_error error;
};

static uint64_t rss_anon(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "RssAnon: %llu", &kib) == 1) break;
    if (file) fclose(file);
    return kib * 1024;
}

static int open_all(struct bench *b)
{
    afmoe_context_options options;
    afmoe_model_info info;
    uint32_t random = 1;
    afmoe_context_options_init(&options, sizeof options);
    afmoe_model_info_init(&info, sizeof info);
    afmoe_memory_init(&b->estimate, sizeof b->estimate);
    options.cells = AFMOE_CELLS_F16;
    options.max_tokens = b->n_tokens;
    if (afmoe_estimate(b->model_path, NULL, &options, 1, b->n_tokens, &b->estimate, &b->error) < 0 ||
        afmoe_model_open(&b->model, b->model_path, NULL, &b->error) < 0 ||
        afmoe_model_get_info(b->model, &info, &b->error) < 0 ||
        afmoe_context_create(&b->context, b->model, &options, &b->error) < 0 ||
        afmoe_session_create(&b->session, b->context, &b->error) < 0)
        return 1;
    b->tokens = malloc(b->n_tokens * sizeof *b->tokens);
    if (!b->tokens) return 1;
    for (uint64_t i = 0; i < b->n_tokens; i++) {
        random = random * 1664525u + 1013904223u;
        b->tokens[i] = (afmoe_token)((random >> 8) % info.vocab_size);
    }
    return 0;
}

static int read_tokens(struct bench *b)
{
    for (uint64_t i = 0, begin = 0; i < N_PARTS; i++) {
        uint64_t end = b->n_tokens * (i + 1) / N_PARTS;
        double start = bench_now();
        if (afmoe_session_append(b->session, b->tokens + begin, end - begin, NULL, NULL, &b->error) < 0) return 1;
        printf("{\"begin\": %llu, \"end\": %llu, \"tokens_per_s\": %.1f}\n", (unsigned long long)begin,
               (unsigned long long)end, (double)(end - begin) / (bench_now() - start));
        begin = end;
    }
    return 0;
}

/* The tokens' own array is the program's, not the library's. */
static int measure_memory(struct bench *b, uint64_t before)
{
    afmoe_memory memory;
    afmoe_memory_init(&memory, sizeof memory);
    uint64_t grown = rss_anon() - before - b->n_tokens * sizeof *b->tokens;
    if (afmoe_context_get_memory(b->context, &memory, &b->error) < 0) return 1;
    printf("{\"tokens\": %llu, \"rss_anon\": %llu, \"memory\": %llu, \"estimate\": %llu, \"pages\": %llu}\n",
           (unsigned long long)b->n_tokens, (unsigned long long)grown,
           (unsigned long long)(memory.weights_private + memory.scratch + memory.pages + memory.sessions),
           (unsigned long long)(b->estimate.weights_private + b->estimate.scratch + b->estimate.pages +
                                b->estimate.sessions),
           (unsigned long long)memory.pages);
    return 0;
}

static afmoe_status sync_again(struct bench *b)
{
    return afmoe_session_sync(b->session, b->tokens, b->n_tokens, NULL, NULL, &b->error);
}

static afmoe_session *fork_made;

static afmoe_status fork_it(struct bench *b)
{
    return afmoe_session_fork(&fork_made, b->session, &b->error);
}

static afmoe_status save(struct bench *b)
{
    return afmoe_session_save(b->session, b->file, &b->error);
}

static afmoe_status load(struct bench *b)
{
    return afmoe_session_load(b->session, b->file, &b->error);
}

static int time_it(struct bench *b, const char *name, afmoe_status (*what)(struct bench *), uint64_t n_bytes)
{
    double least = 1e30;
    for (int i = 0; i < N_RUNS; i++) {
        double start = bench_now();
        afmoe_status status = what(b);
        double took = bench_now() - start;
        if (status < 0) return 1;
        if (took < least) least = took;
        afmoe_session_free(fork_made);
        fork_made = NULL;
    }
    printf("{\"%s_ms\": %.3f", name, 1e3 * least);
    if (n_bytes)
        printf(", \"bytes\": %llu, \"gb_per_s\": %.2f", (unsigned long long)n_bytes, 1e-9 * (double)n_bytes / least);
    printf("}\n");
    return 0;
}

static int run(struct bench *b)
{
    uint64_t before = rss_anon(), n_bytes = 0;
    if (open_all(b) || read_tokens(b) || measure_memory(b, before) || time_it(b, "same", sync_again, 0) ||
        time_it(b, "fork", fork_it, 0))
        return 1;
    afmoe_session_save_memory(b->session, NULL, 0, &n_bytes, NULL); /* CAPACITY: the size */
    return b->file && (time_it(b, "save", save, n_bytes) || time_it(b, "load", load, n_bytes));
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s MODEL [TOKENS [FILE]]\n", argv[0]);
        return 2;
    }
    struct bench b = {.model_path = argv[1], .n_tokens = argc > 2 ? strtoull(argv[2], NULL, 10) : 1024,
                      .file = argc > 3 ? argv[3] : NULL};
    afmoe_error_init(&b.error, sizeof b.error);
    int failed = run(&b);
    if (failed) fprintf(stderr, "%s: %s\n", afmoe_status_name(b.error.code), b.error.message);
    free(b.tokens);
    afmoe_session_free(b.session);
    afmoe_context_free(b.context);
    afmoe_model_free(b.model);
    return failed;
}
