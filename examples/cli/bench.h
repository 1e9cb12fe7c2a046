/* What the files of `afmoe bench` share. */
#ifndef AFMOE_CLI_BENCH_H
#define AFMOE_CLI_BENCH_H

#include "cli.h"

/* What bounds speed on this machine, measured right before a row: memory bandwidth bounds decoding, multiply-adds
 * bound reading a prompt. */
struct limits {
    double read_gb_s;  /* all threads reading memory that no cache holds */
    double dot_gflops; /* all threads in float32 multiply-adds on registers, two operations each */
};

/* False after a message. */
bool measure_limits(struct limits *out, int n_threads);

enum { MAX_REPETITIONS = 1000 };

struct bench_row {
    const char *model_path;
    const afmoe_model_info *model;
    afmoe_context_info context;
    uint64_t n_prompt, n_gen, n_depth, n_sessions; /* one of the first two is 0 */
    char time[32];                                 /* when it began, ISO 8601 UTC */
    struct limits limits;
    uint64_t n_samples;
    const uint64_t *samples_ns;
};

enum bench_form { BENCH_MD, BENCH_CSV, BENCH_JSON };

/* Each false after a message. `index` counts printed rows from 0. */
bool bench_print_row(enum bench_form form, const struct bench_row *row, uint64_t index);
bool bench_print_end(enum bench_form form, uint64_t n_rows);

#endif
