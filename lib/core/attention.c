/* Grouped attention with normed q and k and a gated output, for one layer and the rows of a batch:
 *
 *   q = rms(q, q_norm), k = rms(k, k_norm) per head; sliding layers only: q, k = rot(q), rot(k)
 *   s_ij = q_i . k_j / sqrt(D); key j is seen by i if j <= i and, in sliding layers, j > i - W
 *   o = softmax(s) v; o = o * sigmoid(gate)
 *
 * Query head h uses kv head floor(h / (A/K)). The softmax runs over absolute pages of 64 positions in rising order
 * with a running maximum. Pages are taken in spans, fixed ranges of absolute pages: each span begins anew, and spans
 * are joined in rising order. So a row's result depends on its position alone, not on what else is in the pass, and the
 * spans of one row can be computed by several workers.
 *
 * Where full layers have lost pages, a row's position there is counted without them (cells.h): so it sees what is left
 * as it would see a shorter timeline, in the same spans.
 *
 * A tile is some rows of one item; with the heads of one kv head they are the queries that read a page together. */
#include "attention.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum {
    TILE_QUERIES = 48,     /* read a page once for so many, where rows are many */
    UNITS_PER_THREAD = 4,  /* rather fewer rows a tile than fewer units */
    SPLIT_ROWS = 4,        /* passes of up to so many rows are split by spans too */
    FULL_SPAN_PAGES = 8,   /* a span of full layers, doubled with the position: eight to each doubling */
    SLIDING_SPAN_PAGES = 4 /* the least span of sliding layers; the window has about eight */
};

struct attention_stage {
    const struct engine *engine;
    const struct model_config *config;
    const struct layer_weights *weights;
    uint32_t layer;
    bool sliding;
    enum cell_format cell_format;
    const struct batch *batch;
    const struct attention_buffers *buffers;
    int halves; /* that are prepared */
    uint64_t n_tiles;
    uint64_t n_parts; /* of the work of a tile and a kv head: 1, or the most spans of any tile */
};

struct attention_tile {
    const struct batch_item *item;
    uint64_t begin, end; /* rows */
};

/* What a worker has of a tile's queries. */
struct tile_state {
    struct attention_query *queries;
    float *acc;
};

/* ---- Spans ---- */

/* Full layers: eight spans of 8 pages, then eight of 8, of 16, of 32 pages and so on, so that a row has at least eight
 * and their number grows with the logarithm of the position. */
static uint64_t full_span_of(uint64_t page)
{
    uint64_t group = page / FULL_SPAN_PAGES, shift = 0;
    while (group >> shift >= 16) shift++;
    return 8 * shift + (group >> shift);
}

static uint64_t full_span_begin(uint64_t span)
{
    uint64_t shift = span < 8 ? 0 : span / 8 - 1;
    return (span - 8 * shift) << shift;
}

static uint64_t sliding_span_pages(const struct model_config *config)
{
    uint64_t eighth = 8 * PAGE_POSITIONS, window = config->sliding_window;
    uint64_t pages = window / eighth + (window % eighth > 0);
    return pages > SLIDING_SPAN_PAGES ? pages : SLIDING_SPAN_PAGES;
}

static uint64_t span_of(const struct attention_stage *stage, uint64_t page)
{
    return stage->sliding ? page / sliding_span_pages(stage->config) : full_span_of(page);
}

/* First page of a span. */
static uint64_t span_begin(const struct attention_stage *stage, uint64_t span)
{
    return stage->sliding ? span * sliding_span_pages(stage->config) : full_span_begin(span) * FULL_SPAN_PAGES;
}

/* Spans that a tile of up to SPLIT_ROWS rows may see. */
static uint64_t most_spans(const struct model_config *config)
{
    uint64_t window_pages = (config->sliding_window + SPLIT_ROWS) / PAGE_POSITIONS + 2;
    uint64_t sliding = window_pages / sliding_span_pages(config) + 2;
    uint64_t full = full_span_of(config->max_positions / PAGE_POSITIONS) + 1;
    return full > sliding ? full : sliding;
}

/* Among the positions that the layer still has. */
static uint64_t position_of(const struct attention_stage *stage, const struct batch_item *item, uint64_t row)
{
    return batch_position(item, row) - (stage->sliding ? 0 : item->n_dropped);
}

/* ---- Stage 1: norm, rotate, store ---- */

static void prepare_head(const struct attention_stage *stage, float *x, const float *norm, uint64_t row)
{
    const struct kernels *kernels = &stage->engine->kernels;
    uint64_t d = stage->config->head_dim;
    kernels->rms_norm(x, x, norm, d, (float)stage->config->rms_norm_eps);
    if (stage->sliding) kernels->rope(x, stage->buffers->cos + row * d / 2, stage->buffers->sin + row * d / 2, d);
}

static void store_row(const struct attention_stage *stage, uint64_t row)
{
    const struct batch_item *item = batch_item_of(stage->batch, row);
    uint64_t position = position_of(stage, item, row), d = stage->config->head_dim;
    uint64_t half = head_page_bytes(stage->cell_format, d);
    uint8_t *page = cells_page(item->cells, stage->layer, position / PAGE_POSITIONS);
    const struct kernels *kernels = &stage->engine->kernels;
    for (uint32_t j = 0; j < stage->config->n_kv_heads; j++) {
        uint64_t x = (row * stage->config->n_kv_heads + j) * d;
        uint8_t *keys = page + 2 * j * half;
        uint32_t at = position % PAGE_POSITIONS;
        kernels->store_key[stage->cell_format](keys, stage->buffers->k + x, d, at);
        kernels->store_value[stage->cell_format](keys + half, stage->buffers->v + x, d, at);
    }
}

static void prepare_queries(const struct attention_stage *stage, uint64_t row)
{
    const struct model_config *config = stage->config;
    for (uint32_t h = 0; h < config->n_heads; h++)
        prepare_head(stage, stage->buffers->q + (row * config->n_heads + h) * config->head_dim, stage->weights->q_norm,
                     row);
}

static void prepare_cells(const struct attention_stage *stage, uint64_t row)
{
    const struct model_config *config = stage->config;
    for (uint32_t j = 0; j < config->n_kv_heads; j++)
        prepare_head(stage, stage->buffers->k + (row * config->n_kv_heads + j) * config->head_dim,
                     stage->weights->k_norm, row);
    store_row(stage, row);
}

static void prepare_rows(void *arg, uint64_t begin, uint64_t end, uint32_t worker)
{
    const struct attention_stage *stage = arg;
    (void)worker;
    for (uint64_t row = begin; row < end; row++) {
        if (stage->halves & ATTENTION_QUERIES) prepare_queries(stage, row);
        if (stage->halves & ATTENTION_CELLS) prepare_cells(stage, row);
    }
}

/* ---- Stage 2: attend and gate ---- */

static uint64_t first_seen(const struct attention_stage *stage, uint64_t position)
{
    uint64_t window = stage->config->sliding_window;
    return stage->sliding && position >= window ? position - window + 1 : 0;
}

static uint64_t group_size(const struct attention_stage *stage)
{
    return stage->config->n_heads / stage->config->n_kv_heads;
}

static uint64_t n_queries(const struct attention_stage *stage, const struct attention_tile *tile)
{
    return (tile->end - tile->begin) * group_size(stage);
}

static uint64_t first_page(const struct attention_stage *stage, const struct attention_tile *tile)
{
    return first_seen(stage, position_of(stage, tile->item, tile->begin)) / PAGE_POSITIONS;
}

static uint64_t last_page(const struct attention_stage *stage, const struct attention_tile *tile)
{
    return position_of(stage, tile->item, tile->end - 1) / PAGE_POSITIONS;
}

/* What each query of a tile sees of a page. */
static void set_seen(const struct attention_stage *stage, const struct attention_tile *tile, uint64_t page,
                     struct attention_query *queries)
{
    uint64_t base = page * PAGE_POSITIONS, n_group = group_size(stage);
    for (uint64_t row = tile->begin; row < tile->end; row++) {
        uint64_t position = position_of(stage, tile->item, row), first = first_seen(stage, position);
        uint64_t begin = first > base ? first - base : 0, end = position + 1 > base ? position + 1 - base : 0;
        for (uint64_t h = 0; h < n_group; h++, queries++) {
            queries->begin = (uint32_t)(begin < PAGE_POSITIONS ? begin : PAGE_POSITIONS);
            queries->end = (uint32_t)(end < PAGE_POSITIONS ? end : PAGE_POSITIONS);
        }
    }
}

/* The queries of a tile and kv head j, side by side. */
static void copy_queries(const struct attention_stage *stage, const struct attention_tile *tile, uint32_t j, float *q)
{
    uint64_t n = group_size(stage) * stage->config->head_dim, stride = stage->config->n_kv_heads * n;
    for (uint64_t row = tile->begin; row < tile->end; row++, q += n)
        memcpy(q, stage->buffers->q + row * stride + j * n, n * sizeof *q);
}

/* The pages of one span, from nothing. */
static void attend_span(const struct attention_stage *stage, const struct attention_tile *tile, uint32_t j,
                        uint64_t span, const float *q, const struct tile_state *out)
{
    uint64_t d = stage->config->head_dim, n = n_queries(stage, tile), half = head_page_bytes(stage->cell_format, d);
    for (uint64_t i = 0; i < n; i++) out->queries[i] = (struct attention_query){.max = -INFINITY};
    memset(out->acc, 0, n * page_dims(d) * sizeof *out->acc);
    uint64_t page = span_begin(stage, span), end = span_begin(stage, span + 1), last = last_page(stage, tile);
    if (page < first_page(stage, tile)) page = first_page(stage, tile);
    for (; page < end && page <= last; page++) {
        uint64_t next = page < last ? page + 1 : page;
        const uint8_t *keys = cells_page(tile->item->cells, stage->layer, page) + 2 * j * half;
        const uint8_t *after = cells_page(tile->item->cells, stage->layer, next) + 2 * j * half;
        struct attention_page p = {keys, keys + half, after, d, 1.0f / sqrtf((float)d)};
        set_seen(stage, tile, page, out->queries);
        stage->engine->kernels.attention_page[stage->cell_format](out->queries, n, out->acc, q, &p);
    }
}

static void merge(const struct attention_stage *stage, const struct attention_tile *tile, const struct tile_state *all,
                  const struct tile_state *part)
{
    stage->engine->kernels.attention_merge(all->queries, all->acc, part->queries, part->acc, n_queries(stage, tile),
                                           stage->config->head_dim);
}

/* Divide by the sums and gate. */
static void finish(const struct attention_stage *stage, const struct attention_tile *tile, uint32_t j,
                   const struct tile_state *all)
{
    const struct kernels *kernels = &stage->engine->kernels;
    uint64_t d = stage->config->head_dim, n_group = group_size(stage), i = 0;
    for (uint64_t row = tile->begin; row < tile->end; row++) {
        uint64_t x = (row * stage->config->n_heads + j * n_group) * d;
        for (uint64_t h = 0; h < n_group; h++, i++) {
            float *out = stage->buffers->out + x + h * d;
            memcpy(out, all->acc + i * page_dims(d), d * sizeof *out);
            kernels->scale(out, 1.0f / all->queries[i].sum, d);
        }
        kernels->sigmoid_gate(stage->buffers->out + x, stage->buffers->gate + x, n_group * d);
    }
}

/* Scratch of one worker. */
struct tile_scratch {
    float *q;
    struct tile_state all, part;
};

static uint64_t tile_rows_at_most(const struct model_config *config)
{
    uint64_t rows = TILE_QUERIES / (config->n_heads / config->n_kv_heads);
    return rows > SPLIT_ROWS ? rows : SPLIT_ROWS;
}

static uint64_t lay_out_state(struct tile_state *out, uint8_t *base, uint64_t used, uint64_t n, uint64_t head_dim)
{
    out->acc = carve(base, &used, n * page_dims(head_dim), sizeof *out->acc);
    out->queries = carve(base, &used, n, sizeof *out->queries);
    return used;
}

static uint64_t lay_out_scratch(struct tile_scratch *out, uint8_t *base, const struct model_config *config)
{
    uint64_t n = tile_rows_at_most(config) * (config->n_heads / config->n_kv_heads), used = 0;
    out->q = carve(base, &used, n * config->head_dim, sizeof *out->q);
    used = lay_out_state(&out->all, base, used, n, config->head_dim);
    return lay_out_state(&out->part, base, used, n, config->head_dim);
}

static void attend_tile(const struct attention_stage *stage, const struct attention_tile *tile, uint32_t j,
                        const struct tile_scratch *scratch)
{
    uint64_t span = span_of(stage, first_page(stage, tile)), last = span_of(stage, last_page(stage, tile));
    attend_span(stage, tile, j, span, scratch->q, &scratch->all);
    while (span < last) {
        attend_span(stage, tile, j, ++span, scratch->q, &scratch->part);
        merge(stage, tile, &scratch->all, &scratch->part);
    }
    finish(stage, tile, j, &scratch->all);
}

/* Where the state of a part of a tile is kept: those of a tile and kv head lie one after the other. */
static struct tile_state part_state(const struct attention_stage *stage, const struct attention_tile *tile, uint32_t j,
                                    uint64_t part)
{
    uint64_t before = tile->begin * stage->config->n_heads + j * n_queries(stage, tile);
    uint64_t i = before * stage->n_parts + part * n_queries(stage, tile);
    return (struct tile_state){stage->buffers->part_queries + i,
                               stage->buffers->part_acc + i * page_dims(stage->config->head_dim)};
}

/* One span; whoever does the last one of a tile and kv head joins them all. */
static void attend_part(const struct attention_stage *stage, const struct attention_tile *tile, uint32_t j,
                        uint64_t part, _Atomic uint32_t *n_left, const float *q)
{
    uint64_t first = span_of(stage, first_page(stage, tile)), n = span_of(stage, last_page(stage, tile)) - first + 1;
    struct tile_state state = part_state(stage, tile, j, part);
    if (part < n) attend_span(stage, tile, j, first + part, q, &state);
    if (atomic_fetch_sub(n_left, 1) != 1) return;
    struct tile_state all = part_state(stage, tile, j, 0);
    for (uint64_t i = 1; i < n; i++) {
        state = part_state(stage, tile, j, i);
        merge(stage, tile, &all, &state);
    }
    finish(stage, tile, j, &all);
}

/* Unit u: part u % n_parts of kv head u / n_parts % n_kv_heads of tile u / n_parts / n_kv_heads. */
static void attend_units(void *arg, uint64_t begin, uint64_t end, uint32_t worker)
{
    const struct attention_stage *stage = arg;
    uint64_t n_kv = stage->config->n_kv_heads;
    struct tile_scratch scratch;
    lay_out_scratch(&scratch, engine_scratch(stage->engine, worker), stage->config);
    for (uint64_t u = begin; u < end; u++) {
        uint64_t pair = u / stage->n_parts;
        const struct attention_tile *tile = &stage->buffers->tiles[pair / n_kv];
        uint32_t j = (uint32_t)(pair % n_kv);
        copy_queries(stage, tile, j, scratch.q);
        if (stage->n_parts > 1)
            attend_part(stage, tile, j, u % stage->n_parts, &stage->buffers->n_left[pair], scratch.q);
        else
            attend_tile(stage, tile, j, &scratch);
    }
}

/* ---- What is attended ---- */

static void cut_tiles(struct attention_stage *stage)
{
    const struct batch *batch = stage->batch;
    uint64_t rows = tile_rows_at_most(stage->config), n_kv = stage->config->n_kv_heads;
    uint64_t even = batch->n_rows * n_kv / (UNITS_PER_THREAD * afmoe__pool_n_threads(stage->engine->pool));
    if (batch->n_rows > SPLIT_ROWS && even < rows) rows = even ? even : 1;
    for (uint64_t i = 0; i < batch->n_items; i++) {
        const struct batch_item *item = &batch->items[i];
        for (uint64_t row = 0; row < item->n_tokens; row += rows) {
            uint64_t end = item->n_tokens - row < rows ? item->n_tokens : row + rows;
            stage->buffers->tiles[stage->n_tiles++] =
                (struct attention_tile){item, item->first_row + row, item->first_row + end};
        }
    }
}

/* Few rows: the work is cut by spans too. Not past the positions of the model, for which there is no place. */
static void cut_parts(struct attention_stage *stage)
{
    uint64_t most = 1;
    stage->n_parts = 1;
    if (stage->batch->n_rows > SPLIT_ROWS || afmoe__pool_n_threads(stage->engine->pool) == 1) return;
    for (uint64_t i = 0; i < stage->n_tiles; i++) {
        const struct attention_tile *tile = &stage->buffers->tiles[i];
        uint64_t n = span_of(stage, last_page(stage, tile)) - span_of(stage, first_page(stage, tile)) + 1;
        if (n > most) most = n;
    }
    if (most > most_spans(stage->config)) return;
    stage->n_parts = most;
    for (uint64_t i = 0; i < stage->n_tiles * stage->config->n_kv_heads; i++)
        atomic_store_explicit(&stage->buffers->n_left[i], (uint32_t)most, memory_order_relaxed);
}

static struct attention_stage stage_of(const struct engine *engine, const struct attention_layer *layer)
{
    return (struct attention_stage){.engine = engine, .config = layer->config, .weights = layer->weights,
                                    .layer = layer->layer, .sliding = !layer->config->layer_is_full[layer->layer],
                                    .cell_format = layer->cell_format, .batch = layer->batch,
                                    .buffers = layer->buffers, .n_parts = 1};
}

void afmoe__attention_prepare(const struct engine *engine, const struct attention_layer *layer, int halves)
{
    struct attention_stage stage = stage_of(engine, layer);
    stage.halves = halves;
    engine_run(engine, prepare_rows, &stage, layer->batch->n_rows, 4);
}

void afmoe__attention_run(const struct engine *engine, const struct attention_layer *layer)
{
    struct attention_stage stage = stage_of(engine, layer);
    cut_tiles(&stage);
    cut_parts(&stage);
    engine_run(engine, attend_units, &stage, stage.n_tiles * stage.config->n_kv_heads * stage.n_parts, 1);
}

uint64_t afmoe__attention_layout(struct attention_buffers *out, uint8_t *base, const struct model_config *config,
                                 uint64_t max_rows)
{
    uint64_t used = 0, rows = max_rows < SPLIT_ROWS ? max_rows : SPLIT_ROWS, heads = config->n_heads;
    uint64_t n = rows * heads * most_spans(config);
    out->tiles = carve(base, &used, max_rows, sizeof *out->tiles);
    out->n_left = carve(base, &used, rows * config->n_kv_heads, sizeof *out->n_left);
    out->part_queries = carve(base, &used, n, sizeof *out->part_queries);
    out->part_acc = carve(base, &used, n * page_dims(config->head_dim), sizeof *out->part_acc);
    return used;
}

uint64_t afmoe__attention_scratch_bytes(const struct model_config *config)
{
    struct tile_scratch scratch;
    return lay_out_scratch(&scratch, NULL, config);
}
