/* The kernel table: every piece of arithmetic on bare pointers and shapes.
 *
 * Kernels know no models, files, threads or allocation, and cannot fail. `afmoe__kernels_select` fills a table with
 * the plain C reference (ref/) and lets each architecture overwrite what it has up to a level (x86/), so every
 * pointer is valid at every level.
 *
 * Contracts shared by all kernels
 *   alignment   none unless said: weights and cells (void pointers) lie at any byte; float pointers are aligned as C
 *               wants a float, no more; strides of activations are multiples of it.
 *   tails       every size >= 0 works; nothing is read or written past the sizes given.
 *   aliasing    outputs do not overlap inputs unless said.
 *   arithmetic  float32, no contraction but explicit fused multiply-add, no fast-math. Where "multiply-add" is said,
 *               the reference rounds twice and the x86 levels once (fused).
 *   order       the value of an output element depends on its own inputs and shapes alone: not on how many rows,
 *               tokens or heads the call has. One-token and panel products of a format sum in the same order, so
 *               they give the same bits (within one level; levels differ from each other by rounding).
 *
 * Order of summation of a product with floats over k = 0..n-1: eight lanes, lane i takes the k with k % 8 == i in
 * rising k, each step one multiply-add; then ((l0+l4)+(l2+l6)) + ((l1+l5)+(l3+l7)). At level avx512 the formats F32,
 * F16, BF16 and Q8_0 take sixteen lanes, k % 16, of which l0+l8 .. l7+l15 are then summed as the eight. Attention has
 * orders of its own, the same at every level, see attention_page. FAST of BF16 at level avx512bf16 rounds activations
 * to bfloat16 and sums pairs in sixteen lanes; how a pair is rounded differs between CPUs (product_avx512bf16.c).
 *
 * Products with whole numbers (precision FAST, block formats): the sums inside a group of 32 or 256 are whole and
 * exact, so their order is free; groups follow each other in rising k, one value of the accumulator at a time, with
 * fused multiply-adds in the reference too (formula: ref/whole_product_ref.c). Every level gives the same bits. */
#ifndef AFMOE_KERNELS_KERNELS_H
#define AFMOE_KERNELS_KERNELS_H

#include "activations.h"
#include "format.h"
#include "page.h"

#include <stddef.h>
#include <stdint.h>

enum precision { PRECISION_EXACT, PRECISION_FAST, N_PRECISIONS };

/* What a product needs to know of one weight format at one precision. */
struct product_kernels {
    /* How both products read their activations: floats, or what `prepare` of that kind has made of them. */
    enum activation_kind activation;

    /* One token: out[r] = sum_k rows[r][k] * x[k], r < n_rows; rows `row_bytes` apart. `next`: what will be read after
     * them: a hint, any address. */
    void (*one_token)(float *out, const void *x, const void *rows, uint64_t row_bytes, uint64_t n_rows,
                      uint64_t n_columns, const void *next);

    /* Many tokens: out[t * out_stride + r] = sum_k rows[r][k] * x[t][k], t < n_tokens; x[t] may lie anywhere.
     * scratch: panel_scratch_bytes(n_columns) bytes, 64-byte aligned, where a panel of rows is decoded once for all
     * tokens. `next` as for one token. Same bits as one_token for every row and token. */
    void (*panel)(float *out, uint64_t out_stride, const void *const *x, uint64_t n_tokens, const void *rows,
                  uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns, const void *next, void *scratch);
    uint64_t (*panel_scratch_bytes)(uint64_t n_columns);
};

/* One query (a row's query head): what it sees of the page at hand, and its softmax so far. */
struct attention_query {
    uint32_t begin, end; /* positions of the page, end <= PAGE_POSITIONS; begin >= end: none */
    float max;           /* of the scores so far, starts at -INFINITY */
    float sum;           /* of exp(score - max), starts at 0: nothing seen */
};

/* What the queries of one kv head read of one page. */
struct attention_page {
    const void *keys, *values; /* head_page_bytes each, laid out as page.h says */
    const void *next;          /* what will be read after them: a hint, any address */
    uint64_t head_dim;
    float scale;
};

struct kernels {
    int32_t level;           /* AFMOE_CPU_* actually used */
    struct product_kernels product[N_PRECISIONS][N_FORMATS];

    /* Exact float values of one row: out[n_columns]. */
    void (*decode_row[N_FORMATS])(float *out, const void *row, uint64_t n_columns);

    /* Activations as the products of one kind read them (activations.h), from n floats; n is a multiple of the kind's
     * group, any of ACTIVATION_BF16. out: activation_bytes(kind, n) bytes, 64-byte aligned. NULL for ACTIVATION_F32. */
    void (*prepare[N_ACTIVATION_KINDS])(void *out, const float *x, uint64_t n);

    /* out[k] = x[k] / sqrt(mean(x^2) + eps) * weight[k], k < n. out may equal x. */
    void (*rms_norm)(float *out, const float *x, const float *weight, uint64_t n, float eps);

    /* x[k] += y[k] */
    void (*add)(float *x, const float *y, uint64_t n);

    /* x[k] *= factor */
    void (*scale)(float *x, float factor, uint64_t n);

    /* x[k] += w * y[k], one multiply-add each */
    void (*add_scaled)(float *x, const float *y, float w, uint64_t n);

    /* Rotate pairs (i, i + n/2) of one head in place:
     * [x1*c - x2*s | x2*c + x1*s], c = cos[i], s = sin[i], i < n/2. n even. */
    void (*rope)(float *x, const float *cos, const float *sin, uint64_t n);

    /* out[k] = silu(gate[k]) * up[k]. out may equal gate. */
    void (*silu_mul)(float *out, const float *gate, const float *up, uint64_t n);

    /* x[k] *= sigmoid(gate[k]) */
    void (*sigmoid_gate)(float *x, const float *gate, uint64_t n);

    /* Scores of a router: out[e] = sigmoid(z[e]), or softmax over all n. out may equal z. */
    void (*sigmoid)(float *out, const float *z, uint64_t n);
    void (*softmax)(float *out, const float *z, uint64_t n);

    /* max and sum exp(x - max) of n values: for log-probabilities. sum accumulates in double. NaN anywhere gives a
     * NaN max or sum. n >= 1. */
    void (*log_sum_exp)(const float *x, uint64_t n, float *out_max, double *out_sum);

    /* Store the key or value of one position of a page, head_dim floats, as cells (round to nearest even; Q8_0:
     * q8_cells.h). Other positions' bytes are not touched, so that threads may store different positions of a page. */
    void (*store_key[N_CELL_FORMATS])(void *keys, const float *x, uint64_t head_dim, uint32_t position);
    void (*store_value[N_CELL_FORMATS])(void *values, const float *x, uint64_t head_dim, uint32_t position);

    /* n queries of one kv head over one page: q[i * head_dim ..], acc[i * page_dims(head_dim) ..], acc starting at 0
     * (its floats past head_dim hold anything). For each query, over the positions j that it sees:
     *   s_j = scale * (q . k_j)            a chain of multiply-adds from 0, dims rising
     *   m' = max(m, max_j s_j); w_j = exp(s_j - m'), 0 where j is not seen; factor = exp(m - m')
     *   sum = sum * factor + (sum of w)    sixteen lanes, j % 16, j rising; then l0+l8 .. l7+l15 as the eight above
     *   acc = acc * factor, then a chain of multiply-adds w_j v_j, j rising over what is seen
     * Of Q8_0 a cell is c d, and q . k_j a chain of multiply-adds p d over the groups of dims, rising, from 0, where p
     * is that of the group's q_i c_i, from 0; w_j v_j is (w_j d) c, with w_j d rounded.
     * A query's bits depend on itself and on what it sees: not on the other queries, nor on bytes of the page that it
     * does not see, whatever they hold. The levels above the reference agree in all bits. */
    void (*attention_page[N_CELL_FORMATS])(struct attention_query *queries, uint64_t n, float *acc, const float *q,
                                           const struct attention_page *page);

    /* Join to each query what `part` has of it over later positions:
     *   m' = max(m, part m); sum = sum * exp(m - m') + part sum * exp(part m - m'), one multiply-add; acc likewise.
     * Where one of the two has seen nothing the other is the result, bit for bit. */
    void (*attention_merge)(struct attention_query *queries, float *acc, const struct attention_query *part,
                            const float *part_acc, uint64_t n, uint64_t head_dim);
};

/* Fill the table for a level the CPU has (AFMOE_CPU_* of afmoe.h); variants above it are not used. The table's
 * `level` is the highest level <= `level` that this build has variants for. */
void afmoe__kernels_select(struct kernels *out, int32_t level);

/* Enter a product with floats: the one of EXACT and, for formats that store floats, of FAST as well. */
static inline void set_float_product(struct kernels *k, enum tensor_format format,
                                     void (*decode_row)(float *, const void *, uint64_t),
                                     struct product_kernels product)
{
    product.activation = ACTIVATION_F32;
    k->decode_row[format] = decode_row;
    k->product[PRECISION_EXACT][format] = product;
    if (format <= FORMAT_BF16) k->product[PRECISION_FAST][format] = product;
}

/* Rows of each floor's own file, called by afmoe__kernels_select in rising order of level. */
void afmoe__kernels_ref(struct kernels *k);
void afmoe__kernels_avx2(struct kernels *k);
void afmoe__kernels_avxvnni(struct kernels *k);    /* on the AVX2 table */
void afmoe__kernels_avx512(struct kernels *k);     /* on the AVX2 table */
void afmoe__kernels_avx512icl(struct kernels *k);  /* on the AVX-512 table */
void afmoe__kernels_avx512bf16(struct kernels *k); /* on the AVX-512 ICL table */

#endif
