/* Attention over a page (formula: ref/attention_ref.c), the body of all x86 levels, included after the vectors of a
 * level and TILES. GROUP queries are taken through the page together, TILES tiles of it at a time.
 *
 * Scores and weighted values are the same product along the rows of tiles: the numbers of a row lie in lanes, a
 * query's factor is the same for all of them. GROUP * TILES * 16 sums stay in registers. While the keys are read the
 * values are prefetched, and while those are read, what comes next. */
#ifndef AFMOE_KERNELS_ATTENTION_X86_H
#define AFMOE_KERNELS_ATTENTION_X86_H

#include "exp_x86.h"

#include <math.h>
#include <stdbool.h>

enum {
    GROUP = 6,
    PARTS = PAGE_LANES / WIDE /* vectors of a tile's row */
};

typedef wide sums[GROUP][TILES * PARTS];

/* Rows of tiles: tile m at `first` + m * bytes; `ahead` from there is what will be read after them. */
struct tiles {
    const uint8_t *first;
    uint64_t bytes;
    ptrdiff_t ahead;
};

FORCE_INLINE wide load_part(enum cell_format format, const uint8_t *tile, uint64_t row, bool odd, int part)
{
    if (format == CELLS_BF16) {
        const uint8_t *pairs = tile + cell_in_tile(format, row - odd, WIDE * (uint64_t)part) * cell_bytes(format);
        return odd ? wide_load_odd_bf16(pairs) : wide_load_even_bf16(pairs);
    }
    const uint8_t *cells = tile + cell_in_tile(format, row, WIDE * (uint64_t)part) * cell_bytes(format);
    if (format == CELLS_Q8_0) return wide_load_int8(cells);
    return format == CELLS_F16 ? wide_load_f16(cells) : wide_load((const float *)(const void *)cells);
}

/* sum[t] += a[t][row] * row of each tile, for those t that see it; `odd`: of BF16, whether the row is. */
FORCE_INLINE void add_row(const int T, const int M, enum cell_format format, sums sum, const float *a,
                          uint64_t a_stride, const struct tiles *tiles, uint64_t row, bool odd,
                          const struct attention_query *seen)
{
    wide x[TILES * PARTS];
    for (int i = 0; i < M * PARTS; i++)
        x[i] = load_part(format, tiles->first + (uint64_t)(i / PARTS) * tiles->bytes, row, odd, i % PARTS);
    for (int t = 0; t < T; t++) {
        if (seen && (row < seen[t].begin || row >= seen[t].end)) continue;
        wide factor = wide_all(a[(uint64_t)t * a_stride + row]);
        for (int i = 0; i < M * PARTS; i++) wide_add_product(&sum[t][i], factor, x[i]);
    }
}

/* What is ahead of p, which is in the first tile, and of the same place in the others. */
FORCE_INLINE void prefetch_from(const int M, const struct tiles *tiles, const uint8_t *p)
{
    for (int m = 0; m < M; m++, p += tiles->bytes)
        _mm_prefetch((const char *)((uintptr_t)p + (uintptr_t)tiles->ahead), _MM_HINT_T0);
}

FORCE_INLINE void prefetch_rows(const int M, enum cell_format format, const struct tiles *tiles, uint64_t row)
{
    prefetch_from(M, tiles, tiles->first + cell_in_tile(format, row, 0) * cell_bytes(format));
}

/* add_row of the rows begin <= row < end, two at a time: of Q8_0 half a cache line of each tile, else one at least. */
FORCE_INLINE void add_rows(const int T, const int M, enum cell_format format, sums sum, const float *a,
                           uint64_t a_stride, const struct tiles *tiles, uint64_t begin, uint64_t end)
{
    uint64_t first = (begin + 1) / 2, last = end / 2; /* pairs */
    if (begin < end && begin % 2) add_row(T, M, format, sum, a, a_stride, tiles, begin, true, NULL);
    for (uint64_t pair = first; pair < last; pair++) {
        if (format != CELLS_Q8_0 || pair % 2 == 0) prefetch_rows(M, format, tiles, 2 * pair);
        if (format == CELLS_F32) prefetch_rows(M, format, tiles, 2 * pair + 1);
        add_row(T, M, format, sum, a, a_stride, tiles, 2 * pair, false, NULL);
        wide_forget_memory(); /* both rows of a pair come from one load; there is no register to keep it */
        add_row(T, M, format, sum, a, a_stride, tiles, 2 * pair + 1, true, NULL);
    }
    if (begin < end && end % 2) add_row(T, M, format, sum, a, a_stride, tiles, end - 1, false, NULL);
}

/* The same for rows that not all queries see. */
FORCE_INLINE void add_edge(const int T, const int M, enum cell_format format, sums sum, const float *a,
                           uint64_t a_stride, const struct tiles *tiles, uint64_t begin, uint64_t end,
                           const struct attention_query *seen)
{
    for (uint64_t row = begin; row < end; row++) add_row(T, M, format, sum, a, a_stride, tiles, row, row % 2, seen);
}

/* What the queries of a group see: all of them `common`, some of them [begin, end). */
struct group_range {
    uint32_t begin, end, common_begin, common_end;
};

static struct group_range range_of_group(const struct attention_query *queries, uint64_t n)
{
    struct group_range r = {PAGE_POSITIONS, 0, 0, PAGE_POSITIONS};
    for (uint64_t t = 0; t < n; t++) {
        uint32_t begin = queries[t].begin, end = queries[t].end;
        if (begin > r.common_begin) r.common_begin = begin;
        if (end < r.common_end) r.common_end = end;
        if (begin >= end) continue;
        if (begin < r.begin) r.begin = begin;
        if (end > r.end) r.end = end;
    }
    if (r.common_begin >= r.common_end) r.common_begin = r.common_end = r.end;
    return r;
}

/* weight[t][j] = scale * (q_t . k_j) for the positions of M tiles from tile m on */
FORCE_INLINE void score(const int T, const int M, enum cell_format format, float weight[GROUP][PAGE_POSITIONS],
                        const float *q, const struct attention_page *page, uint64_t m)
{
    sums sum;
    uint64_t bytes = key_tile_bytes(format, page->head_dim);
    const uint8_t *keys = page->keys, *values = page->values;
    struct tiles tiles = {keys + m * bytes, bytes, values - keys};
    for (int t = 0; t < T; t++)
        for (int i = 0; i < M * PARTS; i++) sum[t][i] = wide_zero();
    add_rows(T, M, format, sum, q, page->head_dim, &tiles, 0, page->head_dim);
    wide scale = wide_all(page->scale);
    for (int t = 0; t < T; t++)
        for (int i = 0; i < M * PARTS; i++)
            wide_store(&weight[t][m * PAGE_LANES + (uint64_t)(i * WIDE)], wide_mul(scale, sum[t][i]));
}

/* The same where dims share a scale: the sum of a group takes that of each lane. */
FORCE_INLINE void score_groups(const int T, const int M, enum cell_format format, float weight[GROUP][PAGE_POSITIONS],
                               const float *q, const struct attention_page *page, uint64_t m)
{
    uint64_t bytes = key_tile_bytes(format, page->head_dim), n_groups = cell_groups(page->head_dim);
    const uint8_t *keys = page->keys, *values = page->values;
    struct tiles tiles = {keys + m * bytes, bytes, values - keys};
    wide scale = wide_all(page->scale);
    sums all; /* in memory: the registers are taken by the sums of a group */
    for (int t = 0; t < T; t++)
        for (int i = 0; i < M * PARTS; i++) all[t][i] = wide_zero();
    for (uint64_t g = 0; g < n_groups; g++, q += CELL_GROUP) {
        sums sum;
        uint64_t left = page->head_dim - g * CELL_GROUP, n = left < CELL_GROUP ? left : CELL_GROUP;
        for (int t = 0; t < T; t++)
            for (int i = 0; i < M * PARTS; i++) sum[t][i] = wide_zero();
        add_rows(T, M, format, sum, q, page->head_dim, &tiles, 0, n);
        const uint8_t *scales = keys + key_scale_offset(format, page->head_dim, m * PAGE_LANES, g);
        prefetch_from(M, &tiles, scales);
        for (int i = 0; i < M * PARTS; i++) {
            wide d = wide_load_f16(scales + (uint64_t)(i / PARTS) * bytes + (uint64_t)(i % PARTS * WIDE) * 2);
            for (int t = 0; t < T; t++) all[t][i] = wide_fma(sum[t][i], d, all[t][i]);
        }
        tiles.first += cell_group_bytes(format, PAGE_LANES, CELL_GROUP);
    }
    for (int t = 0; t < T; t++)
        for (int i = 0; i < M * PARTS; i++)
            wide_store(&weight[t][m * PAGE_LANES + (uint64_t)(i * WIDE)], wide_mul(scale, all[t][i]));
}

/* Turns the scores of one query into weights; returns what acc is to be scaled by. */
FORCE_INLINE float weigh(float weight[PAGE_POSITIONS], struct attention_query *query)
{
    const wide lowest = wide_all(-INFINITY);
    wide s[PAGE_POSITIONS / WIDE], max = wide_all(query->max), sum[PARTS];
    bool all = query->begin == 0 && query->end == PAGE_POSITIONS;
    for (int i = 0; i < PAGE_POSITIONS / WIDE; i++) {
        s[i] = wide_load(weight + i * WIDE);
        if (!all) s[i] = wide_between((int)query->begin - i * WIDE, (int)query->end - i * WIDE, s[i], lowest);
        max = wide_max(s[i], max);
    }
    float largest = wide_largest(max);
    max = wide_all(largest);
    for (int i = 0; i < PARTS; i++) sum[i] = wide_zero();
    for (int i = 0; i < PAGE_POSITIONS / WIDE; i++) {
        s[i] = wide_exp(wide_sub(s[i], max));
        if (!all) s[i] = wide_between((int)query->begin - i * WIDE, (int)query->end - i * WIDE, s[i], wide_zero());
        wide_store(weight + i * WIDE, s[i]);
        sum[i % PARTS] = wide_add(sum[i % PARTS], s[i]);
    }
    for (int i = 1; i < PARTS; i++) sum[0] = wide_add(sum[0], sum[i]);
    float factor = query->max == largest ? 1.0f : wide_first(wide_exp(wide_sub(wide_all(query->max), max)));
    query->max = largest;
    query->sum = query->sum * factor + wide_sum(sum[0]);
    return factor;
}

/* out[t][j] = weight[t][j] times the scale of position j, for the dims of a group. */
FORCE_INLINE void scale_weights(const int T, enum cell_format format, float out[GROUP][PAGE_POSITIONS],
                                float weight[GROUP][PAGE_POSITIONS], const struct attention_page *page, uint64_t group)
{
    const uint8_t *values = page->values, *next = page->next, *scales = values + value_scale_offset(format, 0, group);
    const struct tiles halves = {scales, PAGE_POSITIONS / 2 * cell_scale_bytes(format),
                                 (ptrdiff_t)((uintptr_t)next - (uintptr_t)values)};
    prefetch_from(2, &halves, scales);
    for (uint64_t j = 0; j < PAGE_POSITIONS; j += WIDE) {
        wide d = wide_load_f16(scales + j * cell_scale_bytes(format));
        for (int t = 0; t < T; t++) wide_store(&out[t][j], wide_mul(wide_load(&weight[t][j]), d));
    }
}

/* acc[t] = acc[t] * factor[t] + sum_j weight[t][j] v_j for the dims of M tiles from tile m on */
FORCE_INLINE void gather(const int T, const int M, enum cell_format format, float *acc, const float factor[GROUP],
                         float weight[GROUP][PAGE_POSITIONS], const struct attention_query *queries,
                         const struct group_range *r, const struct attention_page *page, uint64_t m)
{
    sums sum;
    uint64_t dims = page_dims(page->head_dim);
    const uint8_t *values = page->values, *next = page->next;
    struct tiles tiles = {values + value_offset(format, 0, m * PAGE_LANES), value_tile_bytes(format),
                          (ptrdiff_t)((uintptr_t)next - (uintptr_t)values)};
    acc += m * PAGE_LANES;
    for (int t = 0; t < T; t++)
        for (int i = 0; i < M * PARTS; i++)
            sum[t][i] = wide_mul(wide_load(acc + (uint64_t)t * dims + i * WIDE), wide_all(factor[t]));
    for (int side = 0; side < 2; side++) {
        uint64_t begin = side ? r->common_end : r->begin, end = side ? r->end : r->common_begin;
        if (side) add_rows(T, M, format, sum, weight[0], PAGE_POSITIONS, &tiles, r->common_begin, r->common_end);
        add_edge(T, M, format, sum, weight[0], PAGE_POSITIONS, &tiles, begin, end, queries);
    }
    for (int t = 0; t < T; t++)
        for (int i = 0; i < M * PARTS; i++) wide_store(acc + (uint64_t)t * dims + i * WIDE, sum[t][i]);
}

FORCE_INLINE void attend_group(const int T, enum cell_format format, struct attention_query *queries, float *acc,
                               const float *q, const struct attention_page *page)
{
    float weight[GROUP][PAGE_POSITIONS], scaled[GROUP][PAGE_POSITIONS], factor[GROUP];
    const bool has_scales = cell_scale_bytes(format) != 0;
    struct group_range r = range_of_group(queries, (uint64_t)T);
    if (r.begin >= r.end) return;
    uint64_t m = r.begin / PAGE_LANES / TILES * TILES, end = (r.end + PAGE_LANES - 1) / PAGE_LANES;
    for (; m < end; m += TILES)
        if (has_scales) score_groups(T, TILES, format, weight, q, page, m);
        else score(T, TILES, format, weight, q, page, m);
    for (int t = 0; t < T; t++) factor[t] = queries[t].begin < queries[t].end ? weigh(weight[t], &queries[t]) : 1.0f;
    uint64_t n_tiles = page_dims(page->head_dim) / PAGE_LANES;
    for (m = 0; m < n_tiles; m += TILES) {
        if (has_scales && m * PAGE_LANES % CELL_GROUP == 0)
            scale_weights(T, format, scaled, weight, page, m * PAGE_LANES / CELL_GROUP);
        if (TILES == 1 || m + TILES <= n_tiles)
            gather(T, TILES, format, acc, factor, has_scales ? scaled : weight, queries, &r, page, m);
        else /* of two the last */
            gather(T, 1, format, acc, factor, has_scales ? scaled : weight, queries, &r, page, m);
    }
}

/* Groups as even as can be. */
FORCE_INLINE void attend(enum cell_format format, struct attention_query *queries, uint64_t n, float *acc,
                         const float *q, const struct attention_page *page)
{
    uint64_t n_groups = (n + GROUP - 1) / GROUP;
    for (uint64_t g = 0, i = 0; g < n_groups; g++) {
        uint64_t end = n * (g + 1) / n_groups;
        float *group_acc = acc + i * page_dims(page->head_dim);
        const float *group_q = q + i * page->head_dim;
        switch (end - i) {
        case 1: attend_group(1, format, queries + i, group_acc, group_q, page); break;
        case 2: attend_group(2, format, queries + i, group_acc, group_q, page); break;
        case 3: attend_group(3, format, queries + i, group_acc, group_q, page); break;
        case 4: attend_group(4, format, queries + i, group_acc, group_q, page); break;
        case 5: attend_group(5, format, queries + i, group_acc, group_q, page); break;
        default: attend_group(6, format, queries + i, group_acc, group_q, page); break;
        }
        i = end;
    }
}

static void attention_f32(struct attention_query *queries, uint64_t n, float *acc, const float *q,
                          const struct attention_page *page)
{
    attend(CELLS_F32, queries, n, acc, q, page);
}

static void attention_f16(struct attention_query *queries, uint64_t n, float *acc, const float *q,
                          const struct attention_page *page)
{
    attend(CELLS_F16, queries, n, acc, q, page);
}

static void attention_bf16(struct attention_query *queries, uint64_t n, float *acc, const float *q,
                           const struct attention_page *page)
{
    attend(CELLS_BF16, queries, n, acc, q, page);
}

static void attention_q8_0(struct attention_query *queries, uint64_t n, float *acc, const float *q,
                           const struct attention_page *page)
{
    attend(CELLS_Q8_0, queries, n, acc, q, page);
}

static void attention_merge(struct attention_query *queries, float *acc, const struct attention_query *part,
                            const float *part_acc, uint64_t n, uint64_t head_dim)
{
    uint64_t dims = page_dims(head_dim);
    for (uint64_t i = 0; i < n; i++, acc += dims, part_acc += dims) {
        if (part[i].sum == 0) continue;
        if (queries[i].sum == 0) {
            queries[i] = part[i];
            memcpy(acc, part_acc, dims * sizeof *acc);
            continue;
        }
        float max = queries[i].max > part[i].max ? queries[i].max : part[i].max;
        wide factor = wide_exp(wide_all(queries[i].max - max)), part_factor = wide_exp(wide_all(part[i].max - max));
        wide sum = wide_mul(wide_all(queries[i].sum), factor);
        queries[i].max = max;
        queries[i].sum = wide_first(wide_fma(wide_all(part[i].sum), part_factor, sum));
        for (uint64_t k = 0; k < dims; k += WIDE)
            wide_store(acc + k, wide_fma(wide_load(part_acc + k), part_factor, wide_mul(wide_load(acc + k), factor)));
    }
}

static void set_attention(struct kernels *k)
{
    k->attention_page[CELLS_F32] = attention_f32;
    k->attention_page[CELLS_F16] = attention_f16;
    k->attention_page[CELLS_BF16] = attention_bf16;
    k->attention_page[CELLS_Q8_0] = attention_q8_0;
    k->attention_merge = attention_merge;
}

#endif
