/* One page of attention with a running softmax (formula: ref/attention_ref.c), as at AVX2 with vectors of sixteen: up
 * to four heads at a time, scores in tiles of 4 keys x 4 heads, weighted values in 2 vectors x 4 heads. A head's bits
 * do not depend on the heads beside it. */
#include "avx512.h"

#include "exp_avx512.h"
#include "tile_avx512.h"

#include <math.h>

enum { HEADS = 4, KEYS = 4 };

struct page {
    const uint8_t *keys, *values;
    uint64_t head_dim, cell_row_bytes;
    uint32_t begin, end;
};

/* weight[t][j] = scale * (q_t . k_j), j < R from `first` on */
FORCE_INLINE void score(const int R, const int T, enum stored s, float weight[HEADS][PAGE_POSITIONS],
                        const struct page *p, const float *q, uint64_t q_stride, uint32_t first, float scale)
{
    tile16 acc;
    tile16_clear(R, T, acc);
    const float *heads[HEADS];
    for (int t = 0; t < T; t++) heads[t] = q + t * q_stride;
    tile16_accumulate(R, T, s, 0, acc, p->keys + first * p->cell_row_bytes, p->cell_row_bytes, heads, p->head_dim);
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++) weight[t][first + (uint32_t)r] = scale * sum16(acc[r][t]);
}

/* Turns the scores of one head into weights; returns what the sums so far are to be scaled by. Positions not seen
 * score -infinity and weigh 0. */
static float weigh(float weight[PAGE_POSITIONS], struct attention_state *state)
{
    __m512 max = _mm512_set1_ps(state->max);
    for (int j = 0; j < PAGE_POSITIONS; j += 16) max = _mm512_max_ps(_mm512_loadu_ps(weight + j), max);
    float largest = max16(max);
    max = _mm512_set1_ps(largest);
    __m512 sum = _mm512_setzero_ps();
    for (int j = 0; j < PAGE_POSITIONS; j += 16) {
        __m512 e = exp16(_mm512_sub_ps(_mm512_loadu_ps(weight + j), max));
        _mm512_storeu_ps(weight + j, e);
        sum = _mm512_add_ps(sum, e);
    }
    float factor = _mm512_cvtss_f32(exp16(_mm512_sub_ps(_mm512_set1_ps(state->max), max)));
    state->max = largest;
    state->sum = state->sum * factor + sum16(sum);
    return factor;
}

/* acc[t][i..] = acc * factor[t] + sum_j weight[t][j] v_j, V vectors of acc at a time */
FORCE_INLINE void gather(const int V, const int T, enum stored s, float *acc, uint64_t acc_stride,
                         const float factor[HEADS], float weight[HEADS][PAGE_POSITIONS], const struct page *p,
                         uint64_t i)
{
    __m512 sum[HEADS][2];
    for (int t = 0; t < T; t++)
        for (int v = 0; v < V; v++)
            sum[t][v] = _mm512_mul_ps(_mm512_loadu_ps(acc + t * acc_stride + i + 16 * v), _mm512_set1_ps(factor[t]));
    const uint8_t *value = p->values + p->begin * p->cell_row_bytes + i * stored_bytes(s);
    for (uint32_t j = p->begin; j < p->end; j++, value += p->cell_row_bytes) {
        __m512 row[2];
        for (int v = 0; v < V; v++) row[v] = load16(value + 16 * v * stored_bytes(s), s);
        for (int t = 0; t < T; t++) {
            __m512 w = _mm512_set1_ps(weight[t][j]);
            for (int v = 0; v < V; v++) sum[t][v] = _mm512_fmadd_ps(w, row[v], sum[t][v]);
        }
    }
    for (int t = 0; t < T; t++)
        for (int v = 0; v < V; v++) _mm512_storeu_ps(acc + t * acc_stride + i + 16 * v, sum[t][v]);
}

FORCE_INLINE void gather_tail(const int T, enum stored s, float *acc, uint64_t acc_stride, const float factor[HEADS],
                              float weight[HEADS][PAGE_POSITIONS], const struct page *p, uint64_t i)
{
    __mmask16 lanes = tail_lanes(p->head_dim - i);
    for (int t = 0; t < T; t++) {
        __m512 sum = _mm512_maskz_loadu_ps(lanes, acc + t * acc_stride + i);
        sum = _mm512_mul_ps(sum, _mm512_set1_ps(factor[t]));
        for (uint32_t j = p->begin; j < p->end; j++) {
            __m512 row = load_tail16(p->values + j * p->cell_row_bytes + i * stored_bytes(s), p->head_dim - i, s);
            sum = _mm512_fmadd_ps(_mm512_set1_ps(weight[t][j]), row, sum);
        }
        _mm512_mask_storeu_ps(acc + t * acc_stride + i, lanes, sum);
    }
}

FORCE_INLINE void attend_heads(const int T, enum stored s, float *acc, uint64_t acc_stride,
                               struct attention_state *state, const float *q, uint64_t q_stride,
                               const struct page *p, float scale)
{
    float weight[HEADS][PAGE_POSITIONS];
    float factor[HEADS];
    for (int t = 0; t < T; t++)
        for (int j = 0; j < PAGE_POSITIONS; j++) weight[t][j] = -INFINITY;
    uint32_t j = p->begin;
    for (; j + KEYS <= p->end; j += KEYS) {
        prefetch_bytes(p->values, j * p->cell_row_bytes, KEYS * p->cell_row_bytes);
        score(KEYS, T, s, weight, p, q, q_stride, j, scale);
    }
    for (; j < p->end; j++) score(1, T, s, weight, p, q, q_stride, j, scale);
    for (int t = 0; t < T; t++) factor[t] = weigh(weight[t], &state[t]);
    uint64_t i = 0;
    for (; i + 32 <= p->head_dim; i += 32) gather(2, T, s, acc, acc_stride, factor, weight, p, i);
    if (i + 16 <= p->head_dim) {
        gather(1, T, s, acc, acc_stride, factor, weight, p, i);
        i += 16;
    }
    if (i < p->head_dim) gather_tail(T, s, acc, acc_stride, factor, weight, p, i);
}

FORCE_INLINE void attend(enum stored s, float *acc, uint64_t acc_stride, struct attention_state *state, const float *q,
                         uint64_t q_stride, uint64_t n_heads, const void *keys, const void *values, uint64_t head_dim,
                         uint32_t begin, uint32_t end, float scale)
{
    const struct page p = {keys, values, head_dim, head_dim * stored_bytes(s), begin, end};
    uint64_t h = 0;
    for (; h + HEADS <= n_heads; h += HEADS)
        attend_heads(HEADS, s, acc + h * acc_stride, acc_stride, state + h, q + h * q_stride, q_stride, &p, scale);
    acc += h * acc_stride;
    q += h * q_stride;
    switch (n_heads - h) {
    case 1: attend_heads(1, s, acc, acc_stride, state + h, q, q_stride, &p, scale); break;
    case 2: attend_heads(2, s, acc, acc_stride, state + h, q, q_stride, &p, scale); break;
    case 3: attend_heads(3, s, acc, acc_stride, state + h, q, q_stride, &p, scale); break;
    default: break;
    }
}

#define DEFINE_ATTENTION(name, s)                                                                                      \
    static void attention_##name(float *acc, uint64_t acc_stride, struct attention_state *state, const float *q,       \
                                 uint64_t q_stride, uint64_t n_heads, const void *keys, const void *values,            \
                                 uint64_t head_dim, uint32_t begin, uint32_t end, float scale)                         \
    {                                                                                                                  \
        attend(s, acc, acc_stride, state, q, q_stride, n_heads, keys, values, head_dim, begin, end, scale);            \
    }

DEFINE_ATTENTION(f32, STORED_F32)
DEFINE_ATTENTION(f16, STORED_F16)
DEFINE_ATTENTION(bf16, STORED_BF16)

void afmoe__attention_avx512(struct kernels *k)
{
    k->attention_page[CELLS_F32] = attention_f32;
    k->attention_page[CELLS_F16] = attention_f16;
    k->attention_page[CELLS_BF16] = attention_bf16;
}
