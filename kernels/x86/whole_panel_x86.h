/* The panel product of block formats in whole numbers (formula: ref/whole_product_ref.c) at every x86 level; the file
 * that includes this one says by macros what its vectors are (whole_avx2.c).
 *
 * For ROWS rows, and 256 columns of them at a time: the weights are decoded once into a tile (whole_tile_x86.h), then
 * multiplied with up to 128 tokens, TOKENS at a time, whose values are broadcast; no sum ever runs across lanes. The
 * tile (6 to 9 KB for 16 rows) and what streams past it fit the first-level cache. 2 vectors of rows x 4 tokens are 8
 * sums, 2 weights and 1 broadcast. */
#ifndef AFMOE_KERNELS_WHOLE_PANEL_X86_H
#define AFMOE_KERNELS_WHOLE_PANEL_X86_H

#include "whole_lanes_x86.h"
#include "whole_sums_x86.h"
#include "whole_tile_x86.h"

/* Groups [first, first + n) of four numbers with those of each token, whose column k is the tile's first. */
FORCE_INLINE void sum_groups(const int T, ints sum[TOKENS][2], const uint8_t (*numbers)[ROWS][4], int first,
                             const int n, const struct activations *x, uint64_t k)
{
#pragma GCC unroll 8
    for (int g = 0; g < n; g++) {
        ints w0 = ints_load(numbers[first + g]), w1 = ints_load(numbers[first + g][LANES]);
        KEEP_LOADED(w0);
        KEEP_LOADED(w1);
        for (int t = 0; t < T; t++) {
            ints q = broadcast4(x[t].bytes + k + 4 * (uint64_t)(first + g));
            sum[t][0] = add_products(sum[t][0], g == 0, w0, q);
            sum[t][1] = add_products(sum[t][1], g == 0, w1, q);
        }
    }
}

/* ---- Bytes, 256 ---- */

/* How many groups of four products fit the sum. */
FORCE_INLINE int groups_of_sum(enum tensor_format f)
{
    int groups = values_of_scale(f) / 4;
    if (HAS_DOT) return groups;
    if (is_iq2(f) || f == FORMAT_IQ3_XXS) return 1;
    return f == FORMAT_Q6_K ? 2 : f == FORMAT_Q5_K || is_iq1(f) || f == FORMAT_IQ3_S ? 4 : groups;
}

FORCE_INLINE void multiply_bytes_256(enum tensor_format f, const int T, floats acc[TOKENS][2],
                                     const struct tile_bytes_256 *tile, const struct activations *x, uint64_t k)
{
    const int groups = values_of_scale(f) / 4, n_scales = 64 / groups, fit = groups_of_sum(f);
    ints whole[TOKENS][2], min[TOKENS][2];
    for (int t = 0; t < T; t++) whole[t][0] = whole[t][1] = min[t][0] = min[t][1] = ints_set1_32(0);
#pragma GCC unroll 1
    for (int s = 0; s < n_scales; s++)
        for (int first = s * groups; first < (s + 1) * groups; first += fit) {
            ints sum[TOKENS][2];
            sum_groups(T, sum, tile->numbers, first, fit, x, k);
            ints s0 = ints_load(tile->scales[s]), s1 = ints_load(tile->scales[s][LANES]);
            for (int t = 0; t < T; t++) {
                whole[t][0] = add_scaled(whole[t][0], sum[t][0], s0);
                whole[t][1] = add_scaled(whole[t][1], sum[t][1], s1);
            }
        }
    for (int j = 0; j < n_scales / 2; j++) {
        ints m0 = ints_load(tile->mins[j]), m1 = ints_load(tile->mins[j][LANES]);
        for (int t = 0; t < T; t++) {
            const int16_t *sums = n_scales == 16 ? x[t].sum16 + k / 16 : x[t].sum32 + k / 32;
            ints pair = broadcast4(sums + 2 * j);
            min[t][0] = add_words(min[t][0], m0, pair);
            min[t][1] = add_words(min[t][1], m1, pair);
        }
    }
    for (int t = 0; t < T; t++)
        for (int h = 0; h < 2; h++) {
            ints i = has_min(f) ? whole[t][h] : ints_sub_32(whole[t][h], min[t][h]);
            floats v = floats_mul(floats_load(tile->d + LANES * h), floats_from(i));
            if (has_min(f)) v = floats_fnmadd(floats_load(tile->dmin + LANES * h), floats_from(min[t][h]), v);
            acc[t][h] = floats_fmadd(floats_set1(x[t].d[k / 256]), v, acc[t][h]);
        }
}

/* ---- Words ---- */

/* whole[t] = the sums of n pairs of tile numbers and activations */
FORCE_INLINE void multiply_words(const int T, const int n, ints whole[TOKENS][2], const int16_t (*numbers)[ROWS][2],
                                 const struct activations *x, uint64_t k)
{
    for (int t = 0; t < T; t++) whole[t][0] = whole[t][1] = ints_set1_32(0);
#pragma GCC unroll 16
    for (int j = 0; j < n; j++) {
        ints w0 = ints_load(numbers[j]), w1 = ints_load(numbers[j][LANES]);
        KEEP_LOADED(w0);
        KEEP_LOADED(w1);
        for (int t = 0; t < T; t++) {
            ints q = broadcast4(x[t].words + k + 2 * (uint64_t)j);
            whole[t][0] = add_words(whole[t][0], w0, q);
            whole[t][1] = add_words(whole[t][1], w1, q);
        }
    }
}

FORCE_INLINE void multiply_words_256(const int T, floats acc[TOKENS][2], const struct tile_words_256 *tile,
                                     const struct activations *x, uint64_t k)
{
    ints whole[TOKENS][2];
    multiply_words(T, 128, whole, tile->numbers, x, k);
    for (int t = 0; t < T; t++)
        for (int h = 0; h < 2; h++) {
            floats v = floats_mul(floats_load(tile->d + LANES * h), floats_from(whole[t][h]));
            acc[t][h] = floats_fmadd(floats_set1(x[t].d[k / 256]), v, acc[t][h]);
        }
}

FORCE_INLINE void multiply_words_32(const int T, floats acc[TOKENS][2], const struct tile_words_32 *tile,
                                    const struct activations *x, uint64_t k)
{
    ints whole[TOKENS][2];
    multiply_words(T, 16, whole, tile->numbers, x, k);
    for (int t = 0; t < T; t++)
        for (int h = 0; h < 2; h++) {
            floats d = floats_mul(floats_load(tile->d + LANES * h), floats_set1(x[t].d[k / 32]));
            acc[t][h] = floats_fmadd(d, floats_from(whole[t][h]), acc[t][h]);
        }
}

/* ---- Bytes, 32 ---- */

FORCE_INLINE void multiply_bytes_32(enum tensor_format f, const int T, floats acc[TOKENS][2],
                                    const struct tile_bytes_32 *tile, const struct activations *x, uint64_t k)
{
    const int part = groups_of_d(f), fit = groups_of_sum_32(f);
    for (int first = 0; first < 8; first += part) {
        ints whole[TOKENS][2];
        for (int half = first; half < first + part; half += fit) {
            ints sum[TOKENS][2];
            sum_groups(T, sum, tile->numbers, half, fit, x, k);
            for (int t = 0; t < T; t++)
                for (int h = 0; h < 2; h++)
                    whole[t][h] = half == first ? widened(sum[t][h]) : ints_add_32(whole[t][h], widened(sum[t][h]));
        }
        for (int t = 0; t < T; t++)
            for (int h = 0; h < 2; h++)
                acc[t][h] = add_part(f, acc[t][h], floats_load(tile->d[first / 4] + LANES * h),
                                     floats_load(tile->min + LANES * h), whole[t][h], &x[t], k, first);
    }
}

/* ---- Panels ---- */

enum { STEP = 256, UNITS = STEP / UNIT, CHUNK_TOKENS = 128 };

/* STEP columns of ROWS rows, decoded; fewer at the end of rows of a 32-wide format. */
union tile {
    struct tile_bytes_256 bytes_256;
    struct tile_words_256 words_256;
    struct tile_bytes_32 bytes_32[UNITS];
    struct tile_words_32 words_32[UNITS];
};

/* What a panel needs besides registers. */
struct panel_scratch {
    union tile tile;
    float acc[CHUNK_TOKENS + 1][ROWS];
};

static uint64_t panel_scratch_bytes(uint64_t n_columns)
{
    (void)n_columns;
    return sizeof(struct panel_scratch);
}

/* The blocks at blocks[r]: n_units units of 32 columns, at most STEP columns in all. */
FORCE_INLINE void decode_tile(enum tensor_format f, enum family family, const int elements, const int bytes,
                              union tile *tile, const uint8_t *blocks[ROWS], int n_units)
{
    if (family == BYTES_256) decode_bytes_256(f, &tile->bytes_256, blocks);
    if (family == WORDS_256) decode_words_256(f, &tile->words_256, blocks);
    for (int u = 0; u < n_units; u++) {
        if (family == BYTES_32) decode_bytes_32(f, &tile->bytes_32[u], blocks, u % (elements / UNIT));
        if (family == WORDS_32) decode_words_32(f, &tile->words_32[u], blocks);
        if ((u + 1) % (elements / UNIT) == 0)
            for (int r = 0; r < ROWS; r++) blocks[r] += bytes;
    }
}

/* acc[t] += tile times T tokens from column k on */
FORCE_INLINE void multiply_tile(enum tensor_format f, enum family family, const int T, float acc[][ROWS],
                                const union tile *tile, const struct activations *x, uint64_t k, int n_units)
{
    floats sum[TOKENS][2];
    for (int t = 0; t < T; t++)
        for (int h = 0; h < 2; h++) sum[t][h] = floats_load(acc[t] + LANES * h);
    if (family == BYTES_256) multiply_bytes_256(f, T, sum, &tile->bytes_256, x, k);
    if (family == WORDS_256) multiply_words_256(T, sum, &tile->words_256, x, k);
#pragma GCC unroll 1
    for (int u = 0; u < n_units; u++) {
        if (family == BYTES_32) multiply_bytes_32(f, T, sum, &tile->bytes_32[u], x, k + UNIT * (uint64_t)u);
        if (family == WORDS_32) multiply_words_32(T, sum, &tile->words_32[u], x, k + UNIT * (uint64_t)u);
    }
    for (int t = 0; t < T; t++)
        for (int h = 0; h < 2; h++) floats_store(acc[t] + LANES * h, sum[t][h]);
}

/* What a step reads of one token. */
FORCE_INLINE void prefetch_activations(enum family family, const struct activations *x, uint64_t k)
{
    if (family == BYTES_256 || family == BYTES_32) prefetch_bytes(x->bytes, k, STEP);
    else prefetch_bytes(x->words, 2 * k, 2 * STEP);
}

/* One step for n_tokens tokens, TOKENS at a time; a rest is made even, which is why one token, whatever it is, and one
 * row of acc follow the last. n_next bytes from `next` on are asked for, a part with each group of tokens. */
FORCE_INLINE void multiply_tokens(enum tensor_format f, enum family family, float acc[][ROWS], const union tile *tile,
                                  const struct activations *x, uint64_t n_tokens, uint64_t k, int n_units,
                                  const void *next, uint64_t n_next)
{
    uint64_t n_groups = (n_tokens + TOKENS - 1) / TOKENS, part = (n_next / 64 / n_groups + 1) * 64, asked = 0;
    for (uint64_t t = 0; t < n_tokens; t += TOKENS) {
        uint64_t left = n_tokens - t;
        /* The activations of a chunk do not fit the caches near the core. */
        for (uint64_t i = t + TOKENS; i < t + 2 * TOKENS && i < n_tokens; i++) prefetch_activations(family, &x[i], k);
        if (asked < n_next) prefetch_bytes(next, asked, n_next - asked < part ? n_next - asked : part);
        asked += part;
        if (TOKENS > 4 && left > 4) multiply_tile(f, family, TOKENS, acc + t, tile, x + t, k, n_units);
        else if (left > 2) multiply_tile(f, family, 4, acc + t, tile, x + t, k, n_units);
        else multiply_tile(f, family, 2, acc + t, tile, x + t, k, n_units);
    }
}

typedef void (*multiply_tokens_fn)(float acc[][ROWS], const union tile *tile, const struct activations *x,
                                   uint64_t n_tokens, uint64_t k, int n_units, const void *next, uint64_t n_next);

#define DEFINE_MULTIPLY(name, format, kind)                                                                            \
    static __attribute__((noinline)) void multiply_tokens_##name(                                                      \
        float acc[][ROWS], const union tile *tile, const struct activations *x, uint64_t n_tokens, uint64_t k,         \
        int n_units, const void *next, uint64_t n_next)                                                                \
    {                                                                                                                  \
        multiply_tokens(format, family_of(kind), acc, tile, x, n_tokens, k, n_units, next, n_next);                    \
    }

/* Tiles of words are alike for all their formats; those of bytes differ in how much fits a sum. */
DEFINE_MULTIPLY(q2_k, FORMAT_Q2_K, ACTIVATION_INT8_256)
DEFINE_MULTIPLY(q3_k, FORMAT_Q3_K, ACTIVATION_INT8_256)
DEFINE_MULTIPLY(q4_k, FORMAT_Q4_K, ACTIVATION_INT8_256)
DEFINE_MULTIPLY(q5_k, FORMAT_Q5_K, ACTIVATION_INT8_256)
DEFINE_MULTIPLY(q6_k, FORMAT_Q6_K, ACTIVATION_INT8_256)
DEFINE_MULTIPLY(iq1_s, FORMAT_IQ1_S, ACTIVATION_INT8_256)
DEFINE_MULTIPLY(iq1_m, FORMAT_IQ1_M, ACTIVATION_INT8_256)
DEFINE_MULTIPLY(iq2_xxs, FORMAT_IQ2_XXS, ACTIVATION_INT8_256)
DEFINE_MULTIPLY(iq2_xs, FORMAT_IQ2_XS, ACTIVATION_INT8_256)
DEFINE_MULTIPLY(iq3_s, FORMAT_IQ3_S, ACTIVATION_INT8_256)
DEFINE_MULTIPLY(tq2_0, FORMAT_TQ2_0, ACTIVATION_INT8_256)
DEFINE_MULTIPLY(q4_0, FORMAT_Q4_0, ACTIVATION_INT8_32)
DEFINE_MULTIPLY(q4_1, FORMAT_Q4_1, ACTIVATION_INT8_32)
DEFINE_MULTIPLY(q5_0, FORMAT_Q5_0, ACTIVATION_INT8_32)
DEFINE_MULTIPLY(q5_1, FORMAT_Q5_1, ACTIVATION_INT8_32)
DEFINE_MULTIPLY(mxfp4, FORMAT_MXFP4, ACTIVATION_INT8_32)
DEFINE_MULTIPLY(nvfp4, FORMAT_NVFP4, ACTIVATION_INT8_32)
#if HAS_DOT
DEFINE_MULTIPLY(q8_0, FORMAT_Q8_0, ACTIVATION_INT8_32)
DEFINE_MULTIPLY(iq4_xs, FORMAT_IQ4_XS, ACTIVATION_INT8_256)
#define multiply_tokens_iq4_nl multiply_tokens_q8_0
#else
DEFINE_MULTIPLY(words_32, FORMAT_Q8_0, ACTIVATION_INT16_32)
DEFINE_MULTIPLY(words_256, FORMAT_IQ4_XS, ACTIVATION_INT16_256)
#define multiply_tokens_q8_0    multiply_tokens_words_32
#define multiply_tokens_iq4_nl  multiply_tokens_words_32
#define multiply_tokens_iq4_xs  multiply_tokens_words_256
#endif
#define multiply_tokens_iq2_s   multiply_tokens_iq2_xs
#define multiply_tokens_iq3_xxs multiply_tokens_iq2_xxs
#define multiply_tokens_tq1_0   multiply_tokens_tq2_0

/* ROWS rows (n of them there, the last one again for the others) with at most CHUNK_TOKENS tokens. */
FORCE_INLINE void multiply_rows(enum tensor_format f, enum family family, multiply_tokens_fn multiply,
                                const int elements, const int bytes, float *out, uint64_t out_stride,
                                const struct activations *x, uint64_t n_tokens, const uint8_t *rows,
                                uint64_t row_bytes, uint64_t n, uint64_t n_columns, struct hints hints,
                                struct panel_scratch *scratch)
{
    const uint8_t *blocks[ROWS];
    for (uint64_t r = 0; r < ROWS; r++) blocks[r] = rows + (r < n ? r : n - 1) * row_bytes;
    memset(scratch->acc, 0, (n_tokens + 1) * sizeof scratch->acc[0]);
    /* While a step is computed, as many bytes are asked for of what is read later: a whole group of rows ahead, since
     * the order of the memory is not that of the steps; and half of them before the tile is made, as a core waits when
     * it has asked for some 20 lines. */
    const uint64_t step = (uint64_t)bytes * STEP / (uint64_t)elements * ROWS, half = step / 128 * 64;
    uintptr_t at = (uintptr_t)rows;
    for (uint64_t k = 0; k < n_columns; k += STEP, at += step) {
        int n_units = n_columns - k < STEP ? (int)(n_columns - k) / UNIT : UNITS;
        const uintptr_t next = hinted(hints, at);
        prefetch_bytes((const void *)next, 0, half);
        decode_tile(f, family, elements, bytes, &scratch->tile, blocks, n_units);
        multiply(scratch->acc, &scratch->tile, x, n_tokens, k, n_units, (const void *)(next + half), step - half);
    }
    if (n == ROWS) /* a size that the compiler knows: four times as fast */
        for (uint64_t t = 0; t < n_tokens; t++) memcpy(out + t * out_stride, scratch->acc[t], sizeof scratch->acc[t]);
    else
        for (uint64_t t = 0; t < n_tokens; t++) memcpy(out + t * out_stride, scratch->acc[t], n * sizeof *out);
}

FORCE_INLINE void panel(enum tensor_format f, enum activation_kind kind, multiply_tokens_fn multiply,
                        const int elements, const int bytes, float *out, uint64_t out_stride, const void *const *x,
                        uint64_t n_tokens, const uint8_t *rows, uint64_t row_bytes, uint64_t n_rows,
                        uint64_t n_columns, const void *next, void *scratch)
{
    const struct hints hints = hints_of(rows, n_rows * row_bytes, next, ROWS * row_bytes);
    for (uint64_t t = 0; t < n_tokens; t += CHUNK_TOKENS) {
        uint64_t n = n_tokens - t < CHUNK_TOKENS ? n_tokens - t : CHUNK_TOKENS;
        struct activations tokens[CHUNK_TOKENS + 1];
        for (uint64_t i = 0; i <= n; i++) tokens[i] = activations_at(kind, x[t + (i < n ? i : n - 1)], n_columns);
        for (uint64_t r = 0; r < n_rows; r += ROWS)
            multiply_rows(f, family_of(kind), multiply, elements, bytes, out + t * out_stride + r, out_stride,
                          tokens, n, rows + r * row_bytes, row_bytes, n_rows - r < ROWS ? n_rows - r : ROWS, n_columns,
                          hints, scratch);
    }
}

#define DEFINE_PANEL(name, format, kind, elements, bytes)                                                              \
    static void panel_##name(float *out, uint64_t out_stride, const void *const *x, uint64_t n_tokens,                 \
                             const void *rows, uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns,                \
                             const void *next, void *scratch)                                                          \
    {                                                                                                                  \
        if (few_tokens_##name(out, out_stride, x, n_tokens, rows, row_bytes, n_rows, n_columns, next)) return;         \
        panel(format, level_kind(format, kind), multiply_tokens_##name, elements, bytes, out, out_stride, x, n_tokens, \
              rows, row_bytes, n_rows, n_columns, next, scratch);                                                      \
    }

FOR_EACH_WHOLE_FORMAT(DEFINE_PANEL)

#define SET_WHOLE(name, format, kind, elements, bytes)                                                                 \
    k->product[PRECISION_FAST][format] =                                                                               \
        (struct product_kernels){.activation = level_kind(format, kind),                                               \
                                 .one_token = one_token_##name,                                                        \
                                 .panel = panel_##name,                                                                \
                                 .panel_scratch_bytes = panel_scratch_bytes};

static void set_whole_products(struct kernels *k)
{
    FOR_EACH_WHOLE_FORMAT(SET_WHOLE)
}

#endif
