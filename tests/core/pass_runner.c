/* Runs the decoder on one sequence, see pass_runner.h. */
#include "pass_runner.h"

#include "error.h"
#include "memory.h"

#include <string.h>

static afmoe_status make_pages(struct runner *r, enum cell_format format)
{
    uint64_t page_bytes = 2 * r->config->n_kv_heads * head_page_bytes(format, r->config->head_dim);
    r->cells.n_slots = (r->max_tokens + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
    uint64_t n = r->cells.n_slots * r->config->n_layers;
    r->cells.pages = afmoe__alloc_zeroed(n, sizeof *r->cells.pages);
    for (uint64_t i = 0; r->cells.pages && i < n; i++) {
        r->cells.pages[i] = afmoe__alloc_aligned(page_bytes, 1);
        if (!r->cells.pages[i]) return AFMOE_NO_MEMORY;
        memset(r->cells.pages[i], 0xFF, page_bytes); /* NaN: a read of what was not written shows */
    }
    return r->cells.pages ? AFMOE_OK : AFMOE_NO_MEMORY;
}

afmoe_status runner_create(struct runner *r, const struct model_config *config, const struct model_weights *weights,
                           const struct runner_options *options, uint64_t max_tokens, afmoe_error *error)
{
    struct decoder_options decoder = {.cpu_level = options->cpu_level,
                                      .threads = {.n_threads = options->n_threads, .parallel = options->parallel,
                                                  .parallel_data = options->parallel_data},
                                      .precision = options->precision, .cells = options->cells,
                                      .max_rows = options->chunk_tokens};
    memset(r, 0, sizeof *r);
    r->config = config;
    r->chunk_tokens = options->chunk_tokens;
    r->max_tokens = max_tokens;
    r->wanted = afmoe__alloc_array(options->chunk_tokens, sizeof *r->wanted);
    r->logits = afmoe__alloc_array(max_tokens * config->vocab_size, sizeof(float));
    r->residual = afmoe__alloc_array((config->n_layers + 1) * max_tokens * config->hidden_size, sizeof(float));
    r->router_logits = afmoe__alloc_zeroed(config->n_layers * max_tokens * config->n_experts, sizeof(float));
    r->ids = afmoe__alloc_zeroed(config->n_layers * max_tokens * config->n_experts_per_token, sizeof(uint32_t));
    r->route_weights = afmoe__alloc_zeroed(config->n_layers * max_tokens * config->n_experts_per_token, sizeof(float));
    if (!r->wanted || !r->logits || !r->residual || !r->router_logits || !r->ids || !r->route_weights ||
        make_pages(r, options->cells) != AFMOE_OK)
        return afmoe__fail(error, AFMOE_NO_MEMORY, "no memory for the runner");
    return afmoe__decoder_create(&r->decoder, config, weights, &decoder, error);
}

void runner_free(struct runner *r)
{
    for (uint64_t i = 0; r->cells.pages && i < r->cells.n_slots * r->config->n_layers; i++)
        afmoe__free(r->cells.pages[i]);
    afmoe__decoder_free(r->decoder);
    afmoe__free(r->cells.pages);
    afmoe__free(r->wanted);
    afmoe__free(r->logits);
    afmoe__free(r->residual);
    afmoe__free(r->router_logits);
    afmoe__free(r->ids);
    afmoe__free(r->route_weights);
    memset(r, 0, sizeof *r);
}

static void on_residual(void *user, uint32_t layer, const float *h, uint64_t n_rows)
{
    struct runner *r = user;
    uint64_t n = r->config->hidden_size;
    memcpy(r->residual + (layer * r->max_tokens + r->n_tokens) * n, h, n_rows * n * sizeof *h);
}

static void on_router(void *user, uint32_t layer, const float *logits, const uint32_t *ids, const float *weights,
                      uint64_t n_rows)
{
    struct runner *r = user;
    uint64_t n = r->config->n_experts, k = r->config->n_experts_per_token;
    uint64_t at = layer * r->max_tokens + r->n_tokens;
    memcpy(r->router_logits + at * n, logits, n_rows * n * sizeof *logits);
    memcpy(r->ids + at * k, ids, n_rows * k * sizeof *ids);
    memcpy(r->route_weights + at * k, weights, n_rows * k * sizeof *weights);
}

static void on_row(void *user, uint64_t item, uint64_t row, const float *hidden, const float *logits)
{
    struct runner *r = user;
    uint64_t at = r->n_tokens + row, n = r->config->hidden_size, vocab = r->config->vocab_size;
    (void)item;
    memcpy(r->logits + at * vocab, logits, vocab * sizeof *logits);
    memcpy(r->residual + (r->config->n_layers * r->max_tokens + at) * n, hidden, n * sizeof *hidden);
}

afmoe_status runner_feed(struct runner *r, const afmoe_token *tokens, uint64_t n_tokens, afmoe_error *error)
{
    struct decoder_trace trace = {.user = r, .residual = on_residual, .router = on_router};
    for (uint64_t row = 0; row < r->chunk_tokens; row++) r->wanted[row] = row;
    while (n_tokens > 0) {
        uint64_t n = n_tokens < r->chunk_tokens ? n_tokens : r->chunk_tokens;
        struct batch_item item = {.cells = &r->cells, .tokens = tokens, .n_tokens = n, .n_past = r->n_tokens,
                                  .wanted = r->wanted, .n_wanted = n};
        struct batch batch = {.items = &item, .n_items = 1};
        if (n > r->max_tokens - r->n_tokens) return afmoe__fail(error, AFMOE_CONTEXT_FULL, "the runner is full");
        afmoe_status status = afmoe__decoder_pass(r->decoder, &batch, on_row, r, &trace, NULL, error);
        if (status != AFMOE_OK) return status;
        r->n_tokens += n;
        tokens += n;
        n_tokens -= n;
    }
    return AFMOE_OK;
}

const float *runner_logits(const struct runner *r, uint64_t position)
{
    return r->logits + position * r->config->vocab_size;
}
