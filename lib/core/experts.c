/* Feed-forward of a layer:
 *
 *   ffn(x; g, u, d) = (silu(x g') * (x u')) d'
 *   dense:    y = ffn(m; mlp)
 *   mixture:  y = ffn(m; shared) + sum over chosen e of w_e * ffn(m; e)     (router.h chooses)
 *
 * Rows are sorted by expert, so each expert is read once for all its rows. The sum over a row's experts runs in the
 * order they were chosen, whatever else is in the pass. */
#include "experts.h"

#include "memory.h"
#include "router.h"

#include <string.h>

uint64_t afmoe__experts_layout(struct experts_buffers *out, uint8_t *base, const struct model_config *config,
                               uint64_t max_rows)
{
    bool dense = config->n_dense_layers > 0, mixture = config->n_dense_layers < config->n_layers;
    uint64_t n_experts = mixture ? config->n_experts : 0;
    uint64_t n_sorted = mixture ? max_rows * config->n_experts_per_token : 0;
    uint64_t wide = dense ? config->intermediate_size : 0;
    uint64_t shared = mixture ? config->n_shared_experts * config->moe_intermediate_size : 0;
    uint64_t used = 0;
    if (shared > wide) wide = shared;
    out->router_logits = carve(base, &used, max_rows * n_experts, sizeof(float));
    out->ids = carve(base, &used, n_sorted, sizeof(uint32_t));
    out->route_weights = carve(base, &used, n_sorted, sizeof(float));
    out->slots = carve(base, &used, n_sorted, sizeof(uint32_t));
    out->counts = carve(base, &used, n_experts + 1, sizeof(uint64_t));
    out->sorted_rows = carve(base, &used, n_sorted, sizeof(uint32_t));
    out->activations = carve(base, &used, n_sorted * config->moe_intermediate_size, sizeof(float));
    out->expert_out = carve(base, &used, n_sorted * config->hidden_size, sizeof(float));
    out->wide = carve(base, &used, max_rows * wide, sizeof(float));
    out->choose_scratch = carve(base, &used, max_rows * 3 * n_experts, sizeof(float));
    out->jobs = carve(base, &used, n_experts + 1, sizeof(struct linear_job));
    return used;
}

static struct linear_job gated_job(const struct ffn_weights *weights, const struct linear_input *input,
                                   uint64_t n_tokens, float *y)
{
    return (struct linear_job){.weights = &weights->gate, .up = &weights->up, .input = input, .n_tokens = n_tokens,
                               .y = y, .y_stride = weights->gate.n_rows};
}

static struct linear_job plain_job(const struct matrix *weights, const struct linear_input *input, uint64_t n_tokens,
                                   float *y)
{
    return (struct linear_job){.weights = weights, .input = input, .n_tokens = n_tokens, .y = y,
                               .y_stride = weights->n_rows};
}

void afmoe__experts_dense(const struct engine *engine, const struct ffn_weights *weights, const float *m,
                          uint64_t n_rows, float *y, struct experts_buffers *buffers)
{
    struct linear_input input = {.x = m, .n_rows = n_rows, .n_columns = weights->gate.n_columns};
    struct linear_job job = gated_job(weights, &input, n_rows, buffers->wide);
    afmoe__linear_run(engine, &input, 1, &job, 1);
    input = (struct linear_input){.x = buffers->wide, .n_rows = n_rows, .n_columns = weights->down.n_columns};
    job = plain_job(&weights->down, &input, n_rows, y);
    afmoe__linear_run(engine, &input, 1, &job, 1);
}

struct mixture {
    const struct engine *engine;
    const struct model_config *config;
    const struct layer_weights *weights;
    float *y;
    struct experts_buffers *buffers;
};

static void choose_rows(void *arg, uint64_t begin, uint64_t end, uint32_t worker)
{
    const struct mixture *mixture = arg;
    const struct model_config *config = mixture->config;
    struct experts_buffers *b = mixture->buffers;
    (void)worker;
    for (uint64_t row = begin; row < end; row++)
        afmoe__router_choose(b->ids + row * config->n_experts_per_token,
                             b->route_weights + row * config->n_experts_per_token,
                             b->router_logits + row * config->n_experts, mixture->weights->expert_bias, config,
                             &mixture->engine->kernels, b->choose_scratch + row * 3 * config->n_experts);
}

/* Counting sort of all (row, choice) by expert. Afterwards counts[e] is the end of expert e's slots, which is where
 * those of expert e + 1 begin. */
static void sort_by_expert(const struct mixture *mixture, uint64_t n_rows)
{
    const struct model_config *config = mixture->config;
    struct experts_buffers *b = mixture->buffers;
    uint64_t n_sorted = n_rows * config->n_experts_per_token;
    memset(b->counts, 0, (config->n_experts + 1) * sizeof *b->counts);
    for (uint64_t i = 0; i < n_sorted; i++) b->counts[b->ids[i] + 1]++;
    for (uint32_t e = 0; e < config->n_experts; e++) b->counts[e + 1] += b->counts[e];
    for (uint64_t i = 0; i < n_sorted; i++) {
        b->slots[i] = (uint32_t)b->counts[b->ids[i]]++;
        b->sorted_rows[b->slots[i]] = (uint32_t)(i / config->n_experts_per_token);
    }
}

/* y = shared + sum of w * expert, for rows; without a shared expert y starts at zero. */
static void combine_rows(void *arg, uint64_t begin, uint64_t end, uint32_t worker)
{
    const struct mixture *mixture = arg;
    const struct model_config *config = mixture->config;
    uint64_t k = config->n_experts_per_token, hidden = config->hidden_size;
    (void)worker;
    for (uint64_t row = begin; row < end; row++) {
        float *y = mixture->y + row * hidden;
        if (!mixture->weights->shared.gate.data) memset(y, 0, hidden * sizeof(float));
        for (uint64_t i = row * k; i < (row + 1) * k; i++)
            mixture->engine->kernels.add_scaled(y, mixture->buffers->expert_out + mixture->buffers->slots[i] * hidden,
                                                mixture->buffers->route_weights[i], hidden);
    }
}

/* One job for each expert that has rows. Returns their number. */
static uint64_t list_gated(const struct mixture *mixture, const struct linear_input *m)
{
    const struct model_config *config = mixture->config;
    struct experts_buffers *b = mixture->buffers;
    uint64_t n_jobs = 0, begin = 0;
    if (mixture->weights->shared.gate.data)
        b->jobs[n_jobs++] = gated_job(&mixture->weights->shared, m, m->n_rows, b->wide);
    for (uint32_t e = 0; e < config->n_experts; begin = b->counts[e++]) {
        if (b->counts[e] == begin) continue;
        struct linear_job job = gated_job(&mixture->weights->experts[e], m, b->counts[e] - begin,
                                          b->activations + begin * config->moe_intermediate_size);
        job.rows = b->sorted_rows + begin;
        b->jobs[n_jobs++] = job;
    }
    return n_jobs;
}

/* The second half of the same jobs. */
static uint64_t list_down(const struct mixture *mixture, const struct linear_input *wide,
                          const struct linear_input *sorted)
{
    const struct model_config *config = mixture->config;
    struct experts_buffers *b = mixture->buffers;
    uint64_t n_jobs = 0, begin = 0;
    if (mixture->weights->shared.gate.data)
        b->jobs[n_jobs++] = plain_job(&mixture->weights->shared.down, wide, wide->n_rows, mixture->y);
    for (uint32_t e = 0; e < config->n_experts; begin = b->counts[e++]) {
        if (b->counts[e] == begin) continue;
        struct linear_job job = plain_job(&mixture->weights->experts[e].down, sorted, b->counts[e] - begin,
                                          b->expert_out + begin * config->hidden_size);
        job.first_row = begin;
        b->jobs[n_jobs++] = job;
    }
    return n_jobs;
}

void afmoe__experts_mixture(const struct engine *engine, const struct model_config *config,
                            const struct layer_weights *weights, const float *m, uint64_t n_rows, float *y,
                            struct experts_buffers *buffers)
{
    struct mixture mixture = {engine, config, weights, y, buffers};
    struct linear_input input = {.x = m, .n_rows = n_rows, .n_columns = config->hidden_size};
    struct linear_job router = plain_job(&weights->router, &input, n_rows, buffers->router_logits);
    router.exact = true; /* a small difference may choose another expert */
    afmoe__linear_run(engine, &input, 1, &router, 1);
    engine_run(engine, choose_rows, &mixture, n_rows, 4);
    if (engine_stopped(engine)) return; /* ids not chosen are no indices */
    sort_by_expert(&mixture, n_rows);
    afmoe__linear_run(engine, &input, 1, buffers->jobs, list_gated(&mixture, &input));

    struct linear_input halves[] = {
        {.x = buffers->wide, .n_rows = n_rows, .n_columns = weights->shared.down.n_columns},
        {.x = buffers->activations, .n_rows = n_rows * config->n_experts_per_token,
         .n_columns = config->moe_intermediate_size}};
    afmoe__linear_run(engine, halves, 2, buffers->jobs, list_down(&mixture, &halves[0], &halves[1]));
    engine_run(engine, combine_rows, &mixture, n_rows, 8);
}
