/* The weights of a model as a view: for each tensor a pointer into the mapped file, a format and a shape.
 *
 * Matrices are never copied. The small vectors (norms, biases) are float32: where the file stores them otherwise or
 * unaligned they are converted once into memory this view owns. */
#ifndef AFMOE_WEIGHTS_WEIGHTS_H
#define AFMOE_WEIGHTS_WEIGHTS_H

#include "config.h"
#include "format.h"

/* A weight matrix: n_rows outputs of n_columns inputs, y[r] = sum_c row_r[c] * x[c]. */
struct matrix {
    const uint8_t *data; /* row r at data + r * row_bytes; any alignment */
    enum tensor_format format;
    uint64_t n_rows, n_columns, row_bytes;
};

struct ffn_weights {
    struct matrix gate, up; /* [width, hidden] */
    struct matrix down;     /* [hidden, width] */
};

struct layer_weights {
    const float *input_norm, *post_attention_norm, *pre_mlp_norm, *post_mlp_norm; /* [hidden] */
    const float *q_norm, *k_norm;                                                 /* [head_dim] */
    struct matrix q, k, v, gate, o;
    const float *q_bias, *k_bias, *v_bias, *o_bias; /* NULL without attention_bias */
    /* dense layers */
    struct ffn_weights mlp;
    /* mixture layers */
    struct matrix router;          /* [n_experts, hidden] */
    const float *expert_bias;      /* [n_experts] */
    struct ffn_weights shared;     /* width n_shared_experts * moe_intermediate_size; data NULL when there are none */
    struct ffn_weights *experts;   /* [n_experts] */
};

struct model_weights {
    struct matrix embedding; /* [vocab, hidden] */
    struct matrix head;      /* [vocab, hidden]; the embedding when tied */
    const float *norm;       /* [hidden], the final one */
    struct layer_weights *layers;
    uint64_t n_parameters, weight_bytes;
};

#endif
