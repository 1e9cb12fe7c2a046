/* Attention with a running softmax, plain C (Milakov and Gimelshein, "Online normalizer calculation for softmax",
 * 2018): for each query, over the positions j of a page that it sees,
 *   s_j = scale (q . k_j); m' = max(m, max_j s_j); w_j = e^(s_j - m');
 *   sum = sum e^(m - m') + sum_j w_j; acc = acc e^(m - m') + sum_j w_j v_j.
 * Of Q8_0 the sum of a key's group of dims takes its scale once, and w_j that of a value's group. */
#include "ref.h"

#include "exp.h"
#include "lanes.h"

static inline float cell(const void *p, enum cell_format format)
{
    float x;
    if (format == CELLS_F32) decode_f32(&x, p, 1);
    else if (format == CELLS_F16) decode_f16(&x, p, 1);
    else if (format == CELLS_BF16) decode_bf16(&x, p, 1);
    else x = *(const int8_t *)p;
    return x;
}

/* 1 where the format has none. */
static inline float scale_of(const uint8_t *page, enum cell_format format, bool is_value, uint64_t head_dim,
                             uint32_t position, uint64_t group)
{
    float d = 1;
    if (format == CELLS_Q8_0) decode_f16(&d, page + cell_scale_offset(format, is_value, head_dim, position, group), 1);
    return d;
}

/* q . k_j */
static inline float product(const float *q, const uint8_t *keys, enum cell_format format, uint64_t head_dim,
                            uint32_t position)
{
    uint64_t step = format == CELLS_Q8_0 ? CELL_GROUP : head_dim;
    float sum = 0;
    for (uint64_t first = 0; first < head_dim; first += step) {
        float part = 0;
        for (uint64_t i = first; i < head_dim && i < first + step; i++)
            part += q[i] * cell(keys + key_offset(format, head_dim, position, i), format);
        sum += part * scale_of(keys, format, false, head_dim, position, first / CELL_GROUP);
    }
    return sum;
}

static inline void score(float weight[PAGE_POSITIONS], const struct attention_query *query, const float *q,
                         const struct attention_page *page, enum cell_format format)
{
    for (uint32_t j = query->begin; j < query->end; j++)
        weight[j] = page->scale * product(q, page->keys, format, page->head_dim, j);
}

/* The order of kernels.h. */
static float sum_of_weights(const float weight[PAGE_POSITIONS])
{
    float lane[PAGE_LANES] = {0}, eight[LANES];
    for (int j = 0; j < PAGE_POSITIONS; j++) lane[j % PAGE_LANES] += weight[j];
    for (int i = 0; i < LANES; i++) eight[i] = lane[i] + lane[i + LANES];
    return lanes_sum(eight);
}

/* Turns scores into weights; returns what acc is to be scaled by. */
static float weigh(float weight[PAGE_POSITIONS], struct attention_query *query)
{
    float max = query->max;
    for (uint32_t j = query->begin; j < query->end; j++) max = weight[j] > max ? weight[j] : max;
    for (uint32_t j = 0; j < PAGE_POSITIONS; j++)
        weight[j] = j >= query->begin && j < query->end ? exp_f32(weight[j] - max) : 0;
    float factor = exp_f32(query->max - max);
    query->max = max;
    query->sum = query->sum * factor + sum_of_weights(weight);
    return factor;
}

static inline void accumulate(float *acc, const struct attention_query *query, const float weight[PAGE_POSITIONS],
                              float factor, const struct attention_page *page, enum cell_format format)
{
    const uint8_t *values = page->values;
    for (uint64_t i = 0; i < page->head_dim; i++) {
        acc[i] *= factor;
        for (uint32_t j = query->begin; j < query->end; j++) {
            float w = weight[j] * scale_of(values, format, true, page->head_dim, j, i / CELL_GROUP);
            acc[i] += w * cell(values + value_offset(format, j, i), format);
        }
    }
}

static inline void attend(struct attention_query *queries, uint64_t n, float *acc, const float *q,
                          const struct attention_page *page, enum cell_format format)
{
    for (uint64_t i = 0; i < n; i++, q += page->head_dim, acc += page_dims(page->head_dim)) {
        float weight[PAGE_POSITIONS];
        if (queries[i].begin >= queries[i].end) continue;
        score(weight, &queries[i], q, page, format);
        float factor = weigh(weight, &queries[i]);
        accumulate(acc, &queries[i], weight, factor, page, format);
    }
}

static void attention_f32(struct attention_query *queries, uint64_t n, float *acc, const float *q,
                          const struct attention_page *page)
{
    attend(queries, n, acc, q, page, CELLS_F32);
}

static void attention_f16(struct attention_query *queries, uint64_t n, float *acc, const float *q,
                          const struct attention_page *page)
{
    attend(queries, n, acc, q, page, CELLS_F16);
}

static void attention_bf16(struct attention_query *queries, uint64_t n, float *acc, const float *q,
                           const struct attention_page *page)
{
    attend(queries, n, acc, q, page, CELLS_BF16);
}

static void attention_q8_0(struct attention_query *queries, uint64_t n, float *acc, const float *q,
                           const struct attention_page *page)
{
    attend(queries, n, acc, q, page, CELLS_Q8_0);
}

static void attention_merge(struct attention_query *queries, float *acc, const struct attention_query *part,
                            const float *part_acc, uint64_t n, uint64_t head_dim)
{
    uint64_t dims = page_dims(head_dim);
    for (uint64_t i = 0; i < n; i++, acc += dims, part_acc += dims) {
        if (part[i].sum == 0) continue;
        if (queries[i].sum == 0) {
            queries[i] = part[i];
            memcpy(acc, part_acc, head_dim * sizeof *acc);
            continue;
        }
        float max = queries[i].max > part[i].max ? queries[i].max : part[i].max;
        float factor = exp_f32(queries[i].max - max), part_factor = exp_f32(part[i].max - max);
        queries[i].max = max;
        queries[i].sum = queries[i].sum * factor + part[i].sum * part_factor;
        for (uint64_t k = 0; k < head_dim; k++) acc[k] = acc[k] * factor + part_acc[k] * part_factor;
    }
}

void afmoe__attention_ref(struct kernels *k)
{
    k->attention_page[CELLS_F32] = attention_f32;
    k->attention_page[CELLS_F16] = attention_f16;
    k->attention_page[CELLS_BF16] = attention_bf16;
    k->attention_page[CELLS_Q8_0] = attention_q8_0;
    k->attention_merge = attention_merge;
}
