/* One page of attention with a running softmax, plain C (Milakov and Gimelshein, "Online normalizer calculation for
 * softmax", 2018): for each head, over the positions j seen,
 *   s_j = scale (q . k_j); m' = max(m, max_j s_j); sum = sum e^(m - m') + sum_j e^(s_j - m');
 *   acc = acc e^(m - m') + sum_j e^(s_j - m') v_j, j rising. */
#include "ref.h"

#include "exp.h"
#include "lanes.h"

#include <math.h>

struct page {
    decode_fn decode;
    uint64_t cell_bytes;
    const uint8_t *keys, *values;
    uint64_t head_dim;
    uint32_t begin, end;
};

/* Turns the scores of one head into weights; returns what the sums so far are to be scaled by. */
static float weigh(float weight[PAGE_POSITIONS], struct attention_state *state, uint32_t begin, uint32_t end)
{
    float max = state->max;
    for (uint32_t j = begin; j < end; j++) max = weight[j] > max ? weight[j] : max;
    float sum = 0;
    for (uint32_t j = begin; j < end; j++) {
        weight[j] = exp_f32(weight[j] - max);
        sum += weight[j];
    }
    float factor = exp_f32(state->max - max);
    state->max = max;
    state->sum = state->sum * factor + sum;
    return factor;
}

static void accumulate(float *acc, const struct page *p, const float weight[PAGE_POSITIONS], float factor)
{
    for (uint64_t i = 0; i < p->head_dim; i++) acc[i] *= factor;
    for (uint32_t j = p->begin; j < p->end; j++) {
        const uint8_t *value = p->values + j * p->head_dim * p->cell_bytes;
        float chunk[CHUNK];
        for (uint64_t i = 0; i < p->head_dim; i += CHUNK) {
            uint64_t m = p->head_dim - i < CHUNK ? p->head_dim - i : CHUNK;
            p->decode(chunk, value + i * p->cell_bytes, m);
            for (uint64_t c = 0; c < m; c++) acc[i + c] += weight[j] * chunk[c];
        }
    }
}

static inline void attend(const struct page *p, float *acc, uint64_t acc_stride, struct attention_state *state,
                          const float *q, uint64_t q_stride, uint64_t n_heads, float scale)
{
    for (uint64_t h = 0; h < n_heads; h++) {
        float weight[PAGE_POSITIONS];
        for (uint32_t j = p->begin; j < p->end; j++)
            weight[j] = scale * dot_decoded(p->decode, CHUNK * p->cell_bytes,
                                            p->keys + j * p->head_dim * p->cell_bytes, q + h * q_stride, p->head_dim);
        float factor = weigh(weight, &state[h], p->begin, p->end);
        accumulate(acc + h * acc_stride, p, weight, factor);
    }
}

#define DEFINE_ATTENTION(name, bytes)                                                                                  \
    static void attention_##name(float *acc, uint64_t acc_stride, struct attention_state *state, const float *q,       \
                                 uint64_t q_stride, uint64_t n_heads, const void *keys, const void *values,            \
                                 uint64_t head_dim, uint32_t begin, uint32_t end, float scale)                         \
    {                                                                                                                  \
        attend(&(struct page){decode_##name, bytes, keys, values, head_dim, begin, end}, acc, acc_stride, state, q,    \
               q_stride, n_heads, scale);                                                                              \
    }

DEFINE_ATTENTION(f32, 4)
DEFINE_ATTENTION(f16, 2)
DEFINE_ATTENTION(bf16, 2)

void afmoe__attention_ref(struct kernels *k)
{
    k->attention_page[CELLS_F32] = attention_f32;
    k->attention_page[CELLS_F16] = attention_f16;
    k->attention_page[CELLS_BF16] = attention_bf16;
}
