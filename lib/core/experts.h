/* The feed-forward half of a layer: dense SwiGLU, or shared expert plus mixture of experts. */
#ifndef AFMOE_CORE_EXPERTS_H
#define AFMOE_CORE_EXPERTS_H

#include "engine.h"
#include "linear.h"

/* Row-major scratch for at most `max_rows` rows. */
struct experts_buffers {
    float *router_logits;  /* [rows][n_experts] */
    uint32_t *ids;         /* [rows][k] */
    float *route_weights;  /* [rows][k] */
    uint32_t *slots;       /* [rows][k]: place of that (row, choice) among the tokens sorted by expert */
    uint64_t *counts;      /* [n_experts + 1] */
    uint32_t *sorted_rows; /* [rows * k]: the row of each slot */
    float *activations;    /* [rows * k][moe width] */
    float *expert_out;     /* [rows * k][hidden] */
    float *wide;           /* [rows][dense or shared width] */
    float *choose_scratch; /* [rows][3 * n_experts] */
    struct linear_job *jobs; /* [n_experts + 1] */
};

/* Allocates nothing: `out` lies in one block of the size given by the first call with `base` NULL. */
uint64_t afmoe__experts_layout(struct experts_buffers *out, uint8_t *base, const struct model_config *config,
                                   uint64_t max_rows);

/* y[rows][hidden] = ffn(m). y does not overlap m. */
void afmoe__experts_dense(const struct engine *engine, const struct ffn_weights *weights, const float *m,
                              uint64_t n_rows, float *y, struct experts_buffers *buffers);
void afmoe__experts_mixture(const struct engine *engine, const struct model_config *config,
                            const struct layer_weights *weights, const float *m, uint64_t n_rows, float *y,
                            struct experts_buffers *buffers);

#endif
