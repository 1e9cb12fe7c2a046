/* Linear layers: y[t][r] = sum_k W[r][k] * x[t][k] (+ bias[r]), several of them in one parallel stage.
 *
 * Work is cut into blocks of rows; every output element is one kernel call's own sum, so the cut does not show in
 * the result. With `up` a job is the first half of a gated feed-forward layer:
 *     y[t][r] = silu(W x)[r] * (U x)[r]
 * with both products and the gate done while the block is in cache. */
#ifndef AFMOE_CORE_LINEAR_H
#define AFMOE_CORE_LINEAR_H

#include "engine.h"

struct linear_job {
    const struct matrix *weights;
    const struct matrix *up;   /* NULL, or same shape as weights */
    const float *bias;         /* NULL, or [n_rows]; not with `up` */
    const float *x;            /* [n_tokens], x_stride floats apart */
    uint64_t x_stride;
    uint64_t n_tokens;         /* 0: the job is skipped */
    float *y;                  /* [n_tokens], y_stride floats apart */
    uint64_t y_stride;
    uint64_t first_unit;       /* set by linear_run */
};

/* Scratch one worker needs for jobs of at most n_tokens tokens and of n_columns columns; of fewer it may be more. */
uint64_t afmoe__linear_scratch_bytes(const struct kernels *kernels, uint64_t n_tokens, uint64_t n_columns);

/* Run all jobs as one stage. They must not read what another of them writes. */
void afmoe__linear_run(const struct engine *engine, struct linear_job *jobs, uint64_t n_jobs);

#endif
