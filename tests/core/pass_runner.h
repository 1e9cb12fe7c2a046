/* Runs the decoder directly on one sequence and records what happens inside: for tests and instruments that look below
 * the session floor. All pages are kept, so any position can be computed again. */
#ifndef AFMOE_TESTS_PASS_RUNNER_H
#define AFMOE_TESTS_PASS_RUNNER_H

#include "decoder.h"

struct runner_options {
    int32_t cpu_level;
    uint32_t n_threads;
    uint64_t chunk_tokens;
    enum cell_format cells;
    afmoe_parallel_fn parallel; /* NULL: own threads */
    void *parallel_data;
    enum precision precision;
};

struct runner {
    const struct model_config *config;
    struct decoder *decoder;
    struct cells cells;
    uint64_t chunk_tokens, max_tokens, n_tokens;
    uint64_t *wanted;
    /* Recorded for positions 0..n_tokens-1; layer-major where there is a layer. */
    float *logits;        /* [max_tokens][vocab] */
    float *residual;      /* [n_layers + 1][max_tokens][hidden]; the last is the final norm's output */
    float *router_logits; /* [n_layers][max_tokens][n_experts] */
    uint32_t *ids;        /* [n_layers][max_tokens][k] */
    float *route_weights; /* [n_layers][max_tokens][k] */
};

afmoe_status runner_create(struct runner *runner, const struct model_config *config,
                           const struct model_weights *weights, const struct runner_options *options,
                           uint64_t max_tokens, afmoe_error *error);
void runner_free(struct runner *runner);

/* Append tokens, chunk by chunk, recording. n_tokens may be set back by hand before. */
afmoe_status runner_feed(struct runner *runner, const afmoe_token *tokens, uint64_t n, afmoe_error *error);

const float *runner_logits(const struct runner *runner, uint64_t position);

#endif
