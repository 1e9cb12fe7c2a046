/* Linear layers: y[t][r] = sum_k W[r][k] * x[t][k] (+ bias[r]), several of them in one parallel stage.
 *
 * First the rows of x are made what the products read (kernels/activations.h), once for all matrices that share them;
 * then work is cut into blocks of rows of W. Every output element is one kernel call's own sum, so the cut does not
 * show in the result. With `up` a job is the first half of a gated feed-forward layer:
 *     y[t][r] = silu(W x)[r] * (U x)[r]
 * with both products and the gate done while the block is in cache. */
#ifndef AFMOE_CORE_LINEAR_H
#define AFMOE_CORE_LINEAR_H

#include "engine.h"

#include <stdbool.h>

/* Rows of activations that jobs multiply with. */
struct linear_input {
    const float *x; /* [n_rows][n_columns] */
    uint64_t n_rows, n_columns;
    uint8_t *prepared[N_ACTIVATION_KINDS]; /* set by linear_run: [n_rows][activation_bytes], or NULL: not needed */
};

struct linear_job {
    const struct matrix *weights;
    const struct matrix *up;   /* NULL, or same shape as weights */
    const float *bias;         /* NULL, or [n_rows]; not with `up` */
    const struct linear_input *input;
    const uint32_t *rows;      /* row of the input for each token; NULL: first_row and those that follow */
    uint64_t first_row;
    uint64_t n_tokens;         /* 0: the job is skipped */
    bool exact;                /* products of EXACT whatever the precision */
    float *y;                  /* [n_tokens], y_stride floats apart */
    uint64_t y_stride;
    uint64_t first_unit;       /* set by linear_run */
};

/* Scratch one worker needs for jobs of at most n_tokens tokens and of n_columns columns; of fewer it may be more. */
uint64_t afmoe__linear_scratch_bytes(const struct kernels *kernels, enum precision precision, uint64_t n_tokens,
                                     uint64_t n_columns);

/* Of engine->prepared, what an input may need. */
uint64_t afmoe__linear_prepared_bytes(const struct kernels *kernels, enum precision precision, uint64_t n_rows,
                                      uint64_t n_columns);

/* Run all jobs as one stage. They must not read what another of them writes. */
void afmoe__linear_run(const struct engine *engine, struct linear_input *inputs, uint64_t n_inputs,
                       struct linear_job *jobs, uint64_t n_jobs);

#endif
