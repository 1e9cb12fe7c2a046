/* What the files of `afmoe eval` share. */
#ifndef AFMOE_CLI_EVAL_H
#define AFMOE_CLI_EVAL_H

#include "cli.h"

/* What windows of which tokens are scored: positions 0 .. window - 2 of each, in order. */
struct windows {
    const afmoe_token *ids;
    uint64_t window, n_windows, vocab;
};

/* A base file, see eval_base.c. */
struct base_file {
    const char *path;
    const struct windows *windows;
    struct out_file out; /* being written, or */
    FILE *in;            /* read */
    float *row;          /* one row read */
    uint64_t n_rows;     /* read so far */
};

/* Exit codes. */
int base_create(struct base_file *base, const char *path, const struct windows *windows);
int base_open(struct base_file *base, const char *path, const struct windows *windows);
/* Rows of `vocab` natural log-probabilities, in order. False after a message; the row read is borrowed. */
bool base_put(struct base_file *base, const float *logprobs);
bool base_get(struct base_file *base, const float **out);
/* With `keep` what was written stays. False after a message when it does not. */
bool base_close(struct base_file *base, bool keep);

/* How far distributions lie from those of the base. */
struct divergence {
    double *values; /* KL(base || this) of each position; free() it */
    uint64_t n, capacity, n_same_top;
};

bool divergence_init(struct divergence *divergence, uint64_t n_positions);
void divergence_add(struct divergence *divergence, const float *base, const float *other, uint64_t vocab);
void divergence_print(struct divergence *divergence, bool json);

/* Logits -> natural log-probabilities, in place; false when none is finite or one is NaN. */
bool to_logprobs(float *row, uint64_t vocab);

#endif
