/* Grouped attention with normed q and k and a gated output, for one layer and all rows of a pass:
 *
 *   q = rms(q, q_norm), k = rms(k, k_norm) per head; sliding layers only: q, k = rot(q), rot(k)
 *   s_ij = q_i . k_j / sqrt(D); key j is seen by i if j <= i and, in sliding layers, j > i - W
 *   o = softmax(s) v; o = o * sigmoid(gate)
 *
 * Query head h uses kv head floor(h / (A/K)). The softmax runs over absolute pages of 64 positions in rising order
 * with a running maximum, so a row's result depends on its position alone: not on what else is in the pass. */
#include "attention.h"

#include <math.h>

/* Rows that one unit takes through the pages together, so that a page read from memory serves all of them. */
enum { TILE_ROWS = 8 };

struct attention_stage {
    const struct engine *engine;
    const struct model_config *config;
    const struct layer_weights *weights;
    uint32_t layer;
    bool sliding;
    enum cell_format cell_format;
    const struct batch *batch;
    const struct attention_buffers *buffers;
};

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
    uint64_t position = batch_position(item, row), d = stage->config->head_dim;
    uint64_t half = head_page_bytes(stage->cell_format, d);
    uint64_t cell_offset = position % PAGE_POSITIONS * d * cell_bytes(stage->cell_format);
    uint8_t *page = cells_page(item->cells, stage->layer, position);
    for (uint32_t j = 0; j < stage->config->n_kv_heads; j++) {
        uint64_t x = (row * stage->config->n_kv_heads + j) * d;
        uint8_t *head = page + 2 * j * half;
        stage->engine->kernels.store_cells[stage->cell_format](head + cell_offset, stage->buffers->k + x, d);
        stage->engine->kernels.store_cells[stage->cell_format](head + half + cell_offset, stage->buffers->v + x, d);
    }
}

static void prepare_rows(void *arg, uint64_t begin, uint64_t end, uint32_t worker)
{
    const struct attention_stage *stage = arg;
    const struct model_config *config = stage->config;
    (void)worker;
    for (uint64_t row = begin; row < end; row++) {
        for (uint32_t h = 0; h < config->n_heads; h++)
            prepare_head(stage, stage->buffers->q + (row * config->n_heads + h) * config->head_dim,
                         stage->weights->q_norm, row);
        for (uint32_t j = 0; j < config->n_kv_heads; j++)
            prepare_head(stage, stage->buffers->k + (row * config->n_kv_heads + j) * config->head_dim,
                         stage->weights->k_norm, row);
        store_row(stage, row);
    }
}

/* ---- Stage 2: attend and gate ---- */

static uint64_t first_seen(const struct attention_stage *stage, uint64_t position)
{
    uint64_t window = stage->config->sliding_window;
    return stage->sliding && position >= window ? position - window + 1 : 0;
}

/* One row against one page, for the query heads of kv head j. */
static void attend_page(const struct attention_stage *stage, const struct batch_item *item, uint64_t row, uint32_t j,
                        uint64_t page_index, struct attention_state *state)
{
    const struct model_config *config = stage->config;
    uint64_t d = config->head_dim, n_group = config->n_heads / config->n_kv_heads;
    uint64_t position = batch_position(item, row), base = page_index * PAGE_POSITIONS;
    uint64_t first = first_seen(stage, position);
    if (base > position || base + PAGE_POSITIONS <= first) return;
    uint32_t begin = first > base ? (uint32_t)(first - base) : 0;
    uint32_t end = position - base < PAGE_POSITIONS ? (uint32_t)(position - base) + 1 : PAGE_POSITIONS;

    uint64_t half = head_page_bytes(stage->cell_format, d);
    const uint8_t *keys = cells_page(item->cells, stage->layer, base) + 2 * j * half;
    uint64_t x = (row * config->n_heads + j * n_group) * d;
    stage->engine->kernels.attention_page[stage->cell_format](stage->buffers->out + x, d, state, stage->buffers->q + x,
                                                              d, n_group, keys, keys + half, d, begin, end,
                                                              1.0f / sqrtf((float)d));
}

/* Divide by the sums and gate, for the query heads of kv head j. */
static void finish_row(const struct attention_stage *stage, uint64_t row, uint32_t j,
                       const struct attention_state *state)
{
    const struct kernels *kernels = &stage->engine->kernels;
    const struct model_config *config = stage->config;
    uint64_t d = config->head_dim, n_group = config->n_heads / config->n_kv_heads;
    uint64_t x = (row * config->n_heads + j * n_group) * d;
    for (uint64_t h = 0; h < n_group; h++) kernels->scale(stage->buffers->out + x + h * d, 1.0f / state[h].sum, d);
    kernels->sigmoid_gate(stage->buffers->out + x, stage->buffers->gate + x, n_group * d);
}

/* Rows [begin, end) of one item, one kv head: pages outside, rows inside. */
static void attend_tile(const struct attention_stage *stage, const struct batch_item *item, uint64_t begin,
                        uint64_t end, uint32_t j, struct attention_state *states)
{
    const struct model_config *config = stage->config;
    uint64_t n_group = config->n_heads / config->n_kv_heads;
    for (uint64_t i = 0; i < (end - begin) * n_group; i++) states[i] = (struct attention_state){-INFINITY, 0};
    for (uint64_t row = begin; row < end; row++)
        for (uint64_t i = 0; i < n_group * config->head_dim; i++)
            stage->buffers->out[(row * config->n_heads + j * n_group) * config->head_dim + i] = 0;

    uint64_t first_page = first_seen(stage, batch_position(item, begin)) / PAGE_POSITIONS;
    uint64_t last_page = batch_position(item, end - 1) / PAGE_POSITIONS;
    for (uint64_t page = first_page; page <= last_page; page++)
        for (uint64_t row = begin; row < end; row++)
            attend_page(stage, item, row, j, page, states + (row - begin) * n_group);
    for (uint64_t row = begin; row < end; row++) finish_row(stage, row, j, states + (row - begin) * n_group);
}

/* Unit u: kv head u / n_tiles, tile u % n_tiles of TILE_ROWS rows. A tile that spans items is cut at their borders. */
static void attend_units(void *arg, uint64_t begin, uint64_t end, uint32_t worker)
{
    const struct attention_stage *stage = arg;
    uint64_t n_rows = stage->batch->n_rows, n_tiles = (n_rows + TILE_ROWS - 1) / TILE_ROWS;
    struct attention_state *states = engine_scratch(stage->engine, worker);
    for (uint64_t u = begin; u < end; u++) {
        uint64_t row = u % n_tiles * TILE_ROWS;
        uint64_t tile_end = row + TILE_ROWS < n_rows ? row + TILE_ROWS : n_rows;
        while (row < tile_end) {
            const struct batch_item *item = batch_item_of(stage->batch, row);
            uint64_t item_end = item->first_row + item->n_tokens;
            uint64_t stop = item_end < tile_end ? item_end : tile_end;
            attend_tile(stage, item, row, stop, (uint32_t)(u / n_tiles), states);
            row = stop;
        }
    }
}

void afmoe__attention_run(const struct engine *engine, const struct model_config *config,
                          const struct layer_weights *weights, uint32_t layer, enum cell_format cell_format,
                          const struct batch *batch, const struct attention_buffers *buffers)
{
    struct attention_stage stage = {engine, config, weights, layer, !config->layer_is_full[layer],
                                    cell_format, batch, buffers};
    engine_run(engine, prepare_rows, &stage, batch->n_rows, 4);
    uint64_t n_tiles = (batch->n_rows + TILE_ROWS - 1) / TILE_ROWS;
    engine_run(engine, attend_units, &stage, n_tiles * config->n_kv_heads, 1);
}

uint64_t afmoe__attention_scratch_bytes(const struct model_config *config)
{
    return TILE_ROWS * (config->n_heads / config->n_kv_heads) * sizeof(struct attention_state);
}
