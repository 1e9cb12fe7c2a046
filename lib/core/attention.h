/* Attention of one layer: q, k, v and gate to the gated output, before the output projection. */
#ifndef AFMOE_CORE_ATTENTION_H
#define AFMOE_CORE_ATTENTION_H

#include "batch.h"
#include "engine.h"

struct attention_tile;

struct attention_buffers {
    float *q;          /* [rows][n_heads * head_dim], normed and rotated in place */
    float *k, *v;      /* [rows][n_kv_heads * head_dim] */
    float *gate;       /* [rows][n_heads * head_dim] */
    float *out;        /* [rows][n_heads * head_dim] */
    const float *cos, *sin; /* [rows][head_dim / 2] */
    struct attention_tile *tiles; /* [rows] */
    /* Of few rows, parts that several workers compute: */
    _Atomic uint32_t *n_left; /* [rows][n_kv_heads] */
    struct attention_query *part_queries;
    float *part_acc;
};

/* Place what attention alone uses, from `tiles` on, in one block of the size returned; with `base` NULL only count. */
uint64_t afmoe__attention_layout(struct attention_buffers *out, uint8_t *base, const struct model_config *config,
                                 uint64_t max_rows);

/* What attention computes in one layer, for which rows. */
struct attention_layer {
    const struct model_config *config;
    const struct layer_weights *weights;
    uint32_t layer;
    enum cell_format cell_format;
    const struct batch *batch;
    const struct attention_buffers *buffers;
};

/* The two halves of what comes before attending. */
enum attention_half { ATTENTION_QUERIES = 1, ATTENTION_CELLS = 2 };

/* Queries: norm and rotate q. Cells: norm and rotate k, store k and v. `halves`: either or both. */
void afmoe__attention_prepare(const struct engine *engine, const struct attention_layer *layer, int halves);

/* Attend with the queries of all rows of the batch, gate. The cells that they see must have been stored. */
void afmoe__attention_run(const struct engine *engine, const struct attention_layer *layer);

/* Scratch one worker needs. */
uint64_t afmoe__attention_scratch_bytes(const struct model_config *config);

#endif
