/* The decoder, in the order it runs:
 *
 *   h = embed[ids]; if mup_enabled h *= sqrt(hidden)
 *   for each layer:
 *     a = rms(h, input_norm); q, k, v, gate = a W'; o = attention(q, k, v, gate)
 *     h += rms(o Wo', post_attention_norm)
 *     m = rms(h, pre_mlp_norm); y = dense or mixture of experts of m
 *     h += rms(y, post_mlp_norm)
 *   hidden = rms(h, norm); logits = hidden head'
 *
 * Layers before n_dense_layers are dense, the others mixtures. No scale or cap on logits. Of the last layer, rows that
 * nobody wants need k and v alone. */
#include "decoder.h"

#include "attention.h"
#include "cancel.h"
#include "error.h"
#include "experts.h"
#include "linear.h"
#include "memory.h"
#include "rope.h"

#include <math.h>
#include <string.h>

/* Rows whose logits are computed together: the head is read once for all of them. */
enum { HEAD_ROWS = 8 };

struct decoder {
    const struct model_config *config;
    const struct model_weights *weights;
    struct engine engine;
    enum precision precision;
    enum cell_format cells;
    uint64_t max_rows;
    float *frequencies; /* [head_dim / 2] */
    float rope_factor;
    uint8_t *scratch; /* the block everything below lies in */
    uint64_t scratch_bytes;
    float *h, *normed, *y; /* [max_rows][hidden] */
    float *cos, *sin;      /* [max_rows][head_dim / 2] */
    struct attention_buffers attention;
    struct experts_buffers experts;
    float *hidden, *logits; /* [HEAD_ROWS][hidden], [HEAD_ROWS][vocab] */
    uint8_t *prepared;      /* activations of the linear stage that runs */
    uint64_t prepared_bytes;
};

/* ---- Creation ---- */

/* The most that the inputs of one linear stage take when prepared. */
static uint64_t prepared_bytes(const struct model_config *c, const struct kernels *kernels, enum precision precision,
                               uint64_t rows)
{
    uint64_t k = c->n_experts_per_token, shared = c->n_shared_experts * c->moe_intermediate_size;
    uint64_t stages[] = {
        afmoe__linear_prepared_bytes(kernels, precision, rows, c->hidden_size),
        afmoe__linear_prepared_bytes(kernels, precision, rows, (uint64_t)c->n_heads * c->head_dim),
        afmoe__linear_prepared_bytes(kernels, precision, rows, c->intermediate_size),
        afmoe__linear_prepared_bytes(kernels, precision, rows, shared) +
            afmoe__linear_prepared_bytes(kernels, precision, rows * k, c->moe_intermediate_size)};
    uint64_t most = 0;
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        if (stages[i] > most) most = stages[i];
    return most;
}

/* Place all buffers in one block; with base NULL only count. The sizes fit: every factor has passed the config's
 * ranges. */
static uint64_t lay_out(struct decoder *d, const struct kernels *kernels, uint8_t *base)
{
    const struct model_config *c = d->config;
    uint64_t used = 0, rows = d->max_rows, heads = (uint64_t)c->n_heads * c->head_dim;
    uint64_t kv_heads = (uint64_t)c->n_kv_heads * c->head_dim;
    d->h = carve(base, &used, rows * c->hidden_size, sizeof(float));
    d->normed = carve(base, &used, rows * c->hidden_size, sizeof(float));
    d->y = carve(base, &used, rows * c->hidden_size, sizeof(float));
    d->cos = carve(base, &used, rows * c->head_dim / 2, sizeof(float));
    d->sin = carve(base, &used, rows * c->head_dim / 2, sizeof(float));
    d->frequencies = carve(base, &used, c->head_dim / 2, sizeof(float));
    d->attention.q = carve(base, &used, rows * heads, sizeof(float));
    d->attention.k = carve(base, &used, rows * kv_heads, sizeof(float));
    d->attention.v = carve(base, &used, rows * kv_heads, sizeof(float));
    d->attention.gate = carve(base, &used, rows * heads, sizeof(float));
    d->attention.out = carve(base, &used, rows * heads, sizeof(float));
    d->hidden = carve(base, &used, HEAD_ROWS * c->hidden_size, sizeof(float));
    d->logits = carve(base, &used, HEAD_ROWS * c->vocab_size, sizeof(float));
    d->prepared_bytes = prepared_bytes(c, kernels, d->precision, rows > HEAD_ROWS ? rows : HEAD_ROWS);
    d->prepared = carve(base, &used, d->prepared_bytes, 1);
    d->attention.cos = d->cos;
    d->attention.sin = d->sin;
    used += afmoe__attention_layout(&d->attention, base ? base + used : NULL, c, rows);
    return used + afmoe__experts_layout(&d->experts, base ? base + used : NULL, c, rows);
}

/* The most of all matrices' columns: a panel of fewer columns has more rows, so the widest matrix is not the one that
 * needs most. */
static uint64_t linear_scratch_bytes(const struct model_config *c, const struct kernels *kernels,
                                     enum precision precision, uint64_t rows)
{
    uint64_t columns[] = {c->hidden_size, (uint64_t)c->n_heads * c->head_dim, c->intermediate_size,
                          c->moe_intermediate_size, c->n_shared_experts * c->moe_intermediate_size};
    uint64_t most = 0;
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        uint64_t bytes = afmoe__linear_scratch_bytes(kernels, precision, rows, columns[i]);
        if (bytes > most) most = bytes;
    }
    return most;
}

static uint64_t worker_scratch_bytes(const struct decoder *d, const struct kernels *kernels)
{
    uint64_t rows = d->max_rows > HEAD_ROWS ? d->max_rows : HEAD_ROWS;
    uint64_t linear = linear_scratch_bytes(d->config, kernels, d->precision, rows);
    uint64_t attention = afmoe__attention_scratch_bytes(d->config);
    return linear > attention ? linear : attention;
}

/* Touched at once: what scratch takes shows when it is made, and no pass waits for a page of it. */
static afmoe_status allocate(struct decoder *d, const struct decoder_options *options, afmoe_error *error)
{
    struct kernels kernels;
    afmoe__kernels_select(&kernels, options->cpu_level);
    d->scratch_bytes = lay_out(d, &kernels, NULL);
    d->scratch = afmoe__alloc_aligned(d->scratch_bytes, 1);
    if (!d->scratch) return afmoe__fail_memory(error, d->scratch_bytes, "scratch of the decoder");
    memset(d->scratch, 0, d->scratch_bytes);
    lay_out(d, &kernels, d->scratch);
    d->rope_factor = afmoe__rope_frequencies(d->frequencies, d->config);
    afmoe_status status = afmoe__engine_create(&d->engine, options->cpu_level, d->precision, &options->threads,
                                               worker_scratch_bytes(d, &kernels), error);
    d->engine.prepared = d->prepared;
    d->engine.prepared_bytes = d->prepared_bytes;
    return status;
}

afmoe_status afmoe__decoder_create(struct decoder **out, const struct model_config *config,
                                   const struct model_weights *weights, const struct decoder_options *options,
                                   afmoe_error *error)
{
    *out = NULL;
    struct decoder *d = afmoe__alloc_zeroed(1, sizeof *d);
    if (!d) return afmoe__fail_memory(error, sizeof *d, "the decoder");
    d->config = config;
    d->weights = weights;
    d->precision = options->precision;
    d->cells = options->cells;
    d->max_rows = options->max_rows;
    afmoe_status status = allocate(d, options, error);
    if (status != AFMOE_OK)
        afmoe__decoder_free(d);
    else
        *out = d;
    return status;
}

void afmoe__decoder_free(struct decoder *d)
{
    if (!d) return;
    afmoe__engine_destroy(&d->engine);
    afmoe__free(d->scratch);
    afmoe__free(d);
}

int32_t afmoe__decoder_cpu_level(const struct decoder *d)
{
    return d->engine.kernels.level;
}

const struct kernels *afmoe__decoder_kernels(const struct decoder *d)
{
    return &d->engine.kernels;
}

uint64_t afmoe__decoder_scratch_bytes(const struct decoder *d)
{
    return d->scratch_bytes + d->engine.worker_scratch_bytes * afmoe__pool_n_threads(d->engine.pool);
}

uint64_t afmoe__decoder_scratch_needed(const struct model_config *config, const struct decoder_options *options)
{
    struct decoder d = {.config = config, .precision = options->precision, .max_rows = options->max_rows};
    struct kernels kernels;
    afmoe__kernels_select(&kernels, options->cpu_level);
    uint64_t each = engine_scratch_piece(worker_scratch_bytes(&d, &kernels));
    return lay_out(&d, &kernels, NULL) + options->threads.n_threads * each;
}

/* ---- The pass ---- */

struct pass {
    struct decoder *d;
    struct batch *batch;
    const float *norm;  /* stage norm_rows */
    const float *post;  /* stage add_rows */
};

static void embed_rows(void *arg, uint64_t begin, uint64_t end, uint32_t worker)
{
    const struct pass *pass = arg;
    struct decoder *d = pass->d;
    const struct matrix *embedding = &d->weights->embedding;
    uint64_t hidden = d->config->hidden_size, half = d->config->head_dim / 2;
    (void)worker;
    for (uint64_t row = begin; row < end; row++) {
        const struct batch_item *item = batch_item_of(pass->batch, row);
        uint64_t token = (uint64_t)item->tokens[row - item->first_row];
        float *h = d->h + row * hidden;
        d->engine.kernels.decode_row[embedding->format](h, embedding->data + token * embedding->row_bytes, hidden);
        if (d->config->mup_enabled) d->engine.kernels.scale(h, (float)sqrt((double)hidden), hidden);
        afmoe__rope_row(d->cos + row * half, d->sin + row * half, d->frequencies, half, d->rope_factor,
                        d->config->max_positions, batch_position(item, row));
    }
}

/* normed = rms(h, norm) */
static void norm_rows(void *arg, uint64_t begin, uint64_t end, uint32_t worker)
{
    const struct pass *pass = arg;
    struct decoder *d = pass->d;
    uint64_t n = d->config->hidden_size;
    (void)worker;
    for (uint64_t row = begin; row < end; row++)
        d->engine.kernels.rms_norm(d->normed + row * n, d->h + row * n, pass->norm, n, (float)d->config->rms_norm_eps);
}

/* h += rms(y, post), then, where there is a next norm, normed = rms(h, norm) */
static void add_rows(void *arg, uint64_t begin, uint64_t end, uint32_t worker)
{
    const struct pass *pass = arg;
    struct decoder *d = pass->d;
    uint64_t n = d->config->hidden_size;
    for (uint64_t row = begin; row < end; row++) {
        float *y = d->y + row * n;
        d->engine.kernels.rms_norm(y, y, pass->post, n, (float)d->config->rms_norm_eps);
        d->engine.kernels.add(d->h + row * n, y, n);
    }
    if (pass->norm) norm_rows(arg, begin, end, worker);
}

/* What halves of attention need of the rows of `normed`: q and gate for queries, k and v for cells. */
static void project(struct decoder *d, const struct layer_weights *w, uint64_t n_rows, int halves)
{
    struct linear_input input = {.x = d->normed, .n_rows = n_rows, .n_columns = d->config->hidden_size};
    struct linear_job job = {.input = &input}, q = job, k = job, v = job, gate = job;
    uint64_t n_queries = halves & ATTENTION_QUERIES ? n_rows : 0, n_cells = halves & ATTENTION_CELLS ? n_rows : 0;
    q.weights = &w->q, q.bias = w->q_bias, q.y = d->attention.q, q.n_tokens = n_queries;
    k.weights = &w->k, k.bias = w->k_bias, k.y = d->attention.k, k.n_tokens = n_cells;
    v.weights = &w->v, v.bias = w->v_bias, v.y = d->attention.v, v.n_tokens = n_cells;
    gate.weights = &w->gate, gate.y = d->attention.gate, gate.n_tokens = n_queries;
    struct linear_job jobs[] = {q, k, v, gate};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) jobs[i].y_stride = jobs[i].weights->n_rows;
    afmoe__linear_run(&d->engine, &input, 1, jobs, sizeof jobs / sizeof *jobs);
}

static void project_out(struct decoder *d, const struct layer_weights *w, uint64_t n_rows)
{
    struct linear_input input = {.x = d->attention.out, .n_rows = n_rows, .n_columns = w->o.n_columns};
    struct linear_job job = {.weights = &w->o, .bias = w->o_bias, .input = &input, .n_tokens = n_rows, .y = d->y,
                             .y_stride = d->config->hidden_size};
    afmoe__linear_run(&d->engine, &input, 1, &job, 1);
}

/* The last layer goes on with the rows of an item from its first to its last wanted one; none without any. */
static uint64_t first_kept(const struct batch_item *item)
{
    return item->n_wanted ? item->wanted[0] : 0;
}

static uint64_t n_kept(const struct batch_item *item)
{
    return item->n_wanted ? item->wanted[item->n_wanted - 1] - item->wanted[0] + 1 : 0;
}

static bool keeps_all(const struct batch *batch)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < batch->n_items; i++) n += n_kept(&batch->items[i]);
    return n == batch->n_rows;
}

static void move_rows(float *rows, uint64_t width, uint64_t to, uint64_t from, uint64_t n)
{
    memmove(rows + to * width, rows + from * width, n * width * sizeof *rows);
}

/* Rows kept move to the front, in their order. */
static void keep_rows(struct decoder *d, struct batch *batch)
{
    uint64_t to = 0, hidden = d->config->hidden_size, half = d->config->head_dim / 2;
    for (struct batch_item *item = batch->items; item < batch->items + batch->n_items; item++) {
        uint64_t first = first_kept(item), n = n_kept(item), from = item->first_row + first;
        move_rows(d->h, hidden, to, from, n);
        move_rows(d->normed, hidden, to, from, n);
        move_rows(d->cos, half, to, from, n);
        move_rows(d->sin, half, to, from, n);
        to += n;
        item->n_skipped = first;
        item->n_past += first;
        item->tokens += first;
        item->n_tokens = n;
    }
    batch_number_rows(batch);
}

/* normed to y, for all rows or, with `narrow`, for those kept; cells are stored of all. */
static void run_attention(struct pass *pass, uint32_t layer, bool narrow)
{
    struct decoder *d = pass->d;
    const struct layer_weights *w = &d->weights->layers[layer];
    const struct attention_layer attention = {d->config, w, layer, d->cells, pass->batch, &d->attention};
    int halves = ATTENTION_QUERIES | ATTENTION_CELLS;
    if (narrow) {
        project(d, w, pass->batch->n_rows, ATTENTION_CELLS);
        afmoe__attention_prepare(&d->engine, &attention, ATTENTION_CELLS);
        keep_rows(d, pass->batch);
        if (pass->batch->n_rows == 0) return;
        halves = ATTENTION_QUERIES;
    }
    project(d, w, pass->batch->n_rows, halves);
    afmoe__attention_prepare(&d->engine, &attention, halves);
    afmoe__attention_run(&d->engine, &attention);
    project_out(d, w, pass->batch->n_rows);
}

static void run_layer(struct pass *pass, uint32_t layer, const struct decoder_trace *trace)
{
    struct decoder *d = pass->d;
    const struct layer_weights *w = &d->weights->layers[layer];
    bool dense = layer < d->config->n_dense_layers, last = layer + 1 == d->config->n_layers;
    bool traced = trace && trace->router; /* which is given all rows, in every layer */

    run_attention(pass, layer, last && !traced && !keeps_all(pass->batch));
    uint64_t n_rows = pass->batch->n_rows;
    if (n_rows == 0) return;
    pass->post = w->post_attention_norm;
    pass->norm = w->pre_mlp_norm;
    engine_run(&d->engine, add_rows, pass, n_rows, 8);

    if (dense)
        afmoe__experts_dense(&d->engine, &w->mlp, d->normed, n_rows, d->y, &d->experts);
    else
        afmoe__experts_mixture(&d->engine, d->config, w, d->normed, n_rows, d->y, &d->experts);
    if (engine_stopped(&d->engine)) return;
    if (!dense && traced)
        trace->router(trace->user, layer, d->experts.router_logits, d->experts.ids, d->experts.route_weights, n_rows);
    pass->post = w->post_mlp_norm;
    pass->norm = last ? NULL : d->weights->layers[layer + 1].input_norm;
    engine_run(&d->engine, add_rows, pass, n_rows, 8);
}

/* Wanted rows of any items that go through the head together. */
struct head {
    const struct batch_item *items[HEAD_ROWS];
    uint64_t rows[HEAD_ROWS]; /* of the item */
    uint64_t n;
    bool hidden_only;
};

/* Final norm and head of the rows gathered. False: stopped. */
static bool head_rows(struct decoder *d, const struct batch *batch, struct head *head, decoder_row_fn on_row,
                      void *user)
{
    uint64_t hidden = d->config->hidden_size, vocab = d->config->vocab_size, n = head->n;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t row = head->items[i]->first_row + head->rows[i] - head->items[i]->n_skipped;
        d->engine.kernels.rms_norm(d->hidden + i * hidden, d->h + row * hidden, d->weights->norm, hidden,
                                   (float)d->config->rms_norm_eps);
    }
    struct linear_input input = {.x = d->hidden, .n_rows = n, .n_columns = hidden};
    struct linear_job job = {.weights = &d->weights->head, .input = &input, .n_tokens = n, .y = d->logits,
                             .y_stride = vocab};
    if (!head->hidden_only) afmoe__linear_run(&d->engine, &input, 1, &job, 1);
    if (engine_stopped(&d->engine)) return false;
    for (uint64_t i = 0; i < n; i++)
        on_row(user, (uint64_t)(head->items[i] - batch->items), head->rows[i], d->hidden + i * hidden,
               head->hidden_only ? NULL : d->logits + i * vocab);
    head->n = 0;
    return true;
}

/* The head of all wanted rows. False: stopped. */
static bool run_head(struct decoder *d, const struct batch *batch, decoder_row_fn on_row, void *user)
{
    struct head head = {.n = 0};
    for (const struct batch_item *item = batch->items; item < batch->items + batch->n_items; item++) {
        if (head.n && item->hidden_only != head.hidden_only && !head_rows(d, batch, &head, on_row, user)) return false;
        head.hidden_only = item->hidden_only;
        for (uint64_t i = 0; i < item->n_wanted; i++) {
            head.items[head.n] = item;
            head.rows[head.n++] = item->wanted[i];
            if (head.n == HEAD_ROWS && !head_rows(d, batch, &head, on_row, user)) return false;
        }
    }
    return head.n == 0 || head_rows(d, batch, &head, on_row, user);
}

static afmoe_status stopped(const afmoe_cancel *cancel, afmoe_error *error)
{
    return afmoe__fail(error, AFMOE_CANCELLED, cancel_requested(cancel) ? "cancelled" : "stopped by parallel");
}

afmoe_status afmoe__decoder_pass(struct decoder *d, struct batch *batch, decoder_row_fn on_row, void *user,
                                 const struct decoder_trace *trace, const afmoe_cancel *cancel, afmoe_error *error)
{
    for (uint64_t i = 0; i < batch->n_items; i++) batch->items[i].n_skipped = 0;
    batch_number_rows(batch);
    if (batch->n_rows > d->max_rows)
        return afmoe__fail(error, AFMOE_INTERNAL, "a pass of %llu rows, scratch holds %llu",
                           (unsigned long long)batch->n_rows, (unsigned long long)d->max_rows);

    afmoe__pool_watch(d->engine.pool, cancel);
    struct pass pass = {.d = d, .batch = batch, .norm = d->weights->layers[0].input_norm};
    engine_run(&d->engine, embed_rows, &pass, batch->n_rows, 4);
    engine_run(&d->engine, norm_rows, &pass, batch->n_rows, 8);
    for (uint32_t layer = 0; layer < d->config->n_layers; layer++) {
        if (engine_stopped(&d->engine)) return stopped(cancel, error);
        if (trace && trace->residual) trace->residual(trace->user, layer, d->h, batch->n_rows);
        run_layer(&pass, layer, trace);
    }
    if (engine_stopped(&d->engine)) return stopped(cancel, error);
    return run_head(d, batch, on_row, user) ? AFMOE_OK : stopped(cancel, error);
}
