/* One token, or a few, times rows of block formats in whole numbers at every x86 level (formula:
 * ref/whole_product_ref.c); whole_lanes_x86.h says which formats and how many tokens. The file that includes this one
 * says whether there is a dot product of bytes (whole_avx2.c). Vectors of 32 bytes at every level: streaming the
 * weights takes the time.
 *
 * Four rows side by side, a block of each at a time: bytes of weights times bytes of activations in pairs (16 bits are
 * enough: 128 * 127 * 2), times the scales of their sub-blocks, summed to one number a row. Side by side they share the
 * activations: one after the other they would be read in the order of the memory, but load more, and loads from the
 * first-level cache bound this (a fifth slower, Zen 3). Prefetch hints follow the order of the memory, one a line:
 * four streams are too many for the hardware's. */
#ifndef AFMOE_KERNELS_WHOLE_ROW_X86_H
#define AFMOE_KERNELS_WHOLE_ROW_X86_H

#include "prefetch_x86.h"
#include "whole_vectors_avx2.h"

enum { AHEAD_BYTES = 4 << 10 }; /* 2 KB and 8 KB were slower (Zen 3, two threads) */

enum { GROUP = 4, FEW_TOKENS = 4 }; /* rows side by side, and tokens at most */

FORCE_INLINE enum activation_kind level_kind(enum tensor_format f, enum activation_kind kind)
{
    if (!HAS_DOT || !is_signed(f)) return kind;
    return kind == ACTIVATION_INT16_32 ? ACTIVATION_INT8_32 : ACTIVATION_INT8_256;
}

/* ---- Activations ---- */

struct activations {
    const int8_t *bytes;
    const int16_t *words; /* of kinds that have them */
    const float *d;
    const int16_t *sum32, *sum16;
};

FORCE_INLINE struct activations activations_at(enum activation_kind kind, const void *x, uint64_t n)
{
    const uint8_t *base = x;
    return (struct activations){(const int8_t *)base + activation_int8(kind, n), x,
                                (const float *)(const void *)(base + activation_d(kind, n)),
                                (const int16_t *)(const void *)(base + activation_sum32(kind, n)),
                                (const int16_t *)(const void *)(base + activation_sum16(kind, n))};
}

/* ---- Hints ---- */

/* For rows taken n_together at a time, a block of each in a step. The first step needs a line of each row. Whole steps,
 * so that the hints end where the rows do. */
FORCE_INLINE struct hints hints_of_few(const uint8_t *rows, uint64_t row_bytes, uint64_t n_rows, const void *next,
                                       uint64_t block_bytes, uint64_t n_together)
{
    const uint64_t step = block_bytes * n_together;
    return hints_of(rows, n_rows * row_bytes, next, AHEAD_BYTES / step * step + n_together * row_bytes - step);
}

/* ---- Groups of blocks ---- */

/* A block of each of GROUP rows. */
struct group {
    const uint8_t *first;
    uint64_t row_bytes;
    uint64_t k; /* the first column */
};

/* What is computed of a group: each block's I for each token, spread over eight lanes, and M, in one lane each like d
 * and dmin. */
struct group_sums {
    __m256i whole[FEW_TOKENS][GROUP];
    __m128i min[FEW_TOKENS];
    __m128 d, dmin;
};

FORCE_INLINE const uint8_t *block_of(const struct group *g, int row)
{
    return g->first + (uint64_t)row * g->row_bytes;
}

FORCE_INLINE __m256i two_of_16_bytes(const void *low, const void *high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load_16_bytes(low)), load_16_bytes(high), 1);
}

/* sum += products of pairs of words */
FORCE_INLINE __m256i add_pairs(__m256i sum, __m256i a, __m256i b)
{
#if HAS_DOT
    return DOT_WORDS(sum, a, b);
#else
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
    KEEP_IN_ORDER(sum);
    return sum;
#endif
}

/* Products of signed bytes, in pairs: the signs of the weights go to the activations. The sum of two pairs does not fit
 * 16 bits. */
FORCE_INLINE __m256i signed_products(__m256i numbers, __m256i q)
{
    return _mm256_maddubs_epi16(_mm256_abs_epi8(numbers), _mm256_sign_epi8(q, numbers));
}

/* Bytes of weights times those of the activations from k on, in pairs. */
FORCE_INLINE __m256i times_bytes(enum tensor_format f, __m256i numbers, const struct activations *x, uint64_t k)
{
    __m256i q = load_32_bytes(x->bytes + k);
    if (!is_signed(f)) return _mm256_maddubs_epi16(numbers, q);
    return signed_products(numbers, q);
}

/* unit_numbers as bytes from which level_zero is to be taken. */
FORCE_INLINE __m256i level_numbers(enum tensor_format f, const uint8_t *block, int u, const uint32_t signs[8])
{
    __m256i q = f == FORMAT_Q8_0 ? load_32_bytes(block + 2) : unit_numbers(f, block, u, signs);
    return HAS_DOT && is_signed(f) ? _mm256_xor_si256(q, _mm256_set1_epi8(-128)) : q;
}

FORCE_INLINE __m128i sum4x4_epi32(const __m128i v[4])
{
    return _mm_hadd_epi32(_mm_hadd_epi32(v[0], v[1]), _mm_hadd_epi32(v[2], v[3]));
}

/* ---- Q4_K, Q5_K ---- */

FORCE_INLINE bool is_k4(enum tensor_format f)
{
    return f == FORMAT_Q4_K || f == FORMAT_Q5_K;
}

/* [two rows][half][row][unit of the half]: a unit's scale twice. Loaded from there to all lanes; taken from a register
 * it is a shuffle more for each unit. */
typedef int32_t k4_scales[GROUP / 2][2][2][4];

/* Scales and minima of two blocks, one in each half (k4_bytes): scales of units 4-7 and 0-3, minima of 0-3 and 4-7. */
FORCE_INLINE __m256i two_k4_bytes(__m256i headers)
{
    __m256i low6 = _mm256_and_si256(headers, _mm256_set1_epi8(63)); /* of dwords 1 and 2 */
    __m256i last = _mm256_shuffle_epi32(headers, 3 | 3 << 2 | 3 << 4 | 3 << 6);
    __m256i low4 = _mm256_and_si256(_mm256_srlv_epi32(last, _mm256_setr_epi32(0, 0, 0, 4, 0, 0, 0, 4)),
                                    _mm256_set1_epi8(15));
    __m256i outer = _mm256_shuffle_epi32(headers, 1 | 2 << 6);
    __m256i high2 = _mm256_and_si256(_mm256_srli_epi32(outer, 2), _mm256_set1_epi8(48));
    return _mm256_blend_epi32(_mm256_or_si256(low4, high2), low6, 0x66);
}

/* Two at a time, as the header of a block (d, dmin, 12 bytes of scales and minima) fills half a vector: taken apart one
 * by one they cost half as much as the weights. */
FORCE_INLINE void begin_k4(const int T, struct group_sums *sums, k4_scales scales, const struct group *g,
                           const struct activations *x)
{
    const __m256i first = IN_BOTH_HALVES(4, -1, 4, -1, 5, -1, 5, -1, 6, -1, 6, -1, 7, -1, 7, -1);
    const __m256i last = IN_BOTH_HALVES(0, -1, 0, -1, 1, -1, 1, -1, 2, -1, 2, -1, 3, -1, 3, -1);
    const __m256i min = IN_BOTH_HALVES(8, -1, 9, -1, 10, -1, 11, -1, 12, -1, 13, -1, 14, -1, 15, -1);
    __m256i headers[2], mins[2];
    for (int i = 0; i < 2; i++) {
        headers[i] = two_of_16_bytes(block_of(g, 2 * i), block_of(g, 2 * i + 1));
        __m256i bytes = two_k4_bytes(headers[i]);
        _mm256_storeu_si256((__m256i *)(void *)scales[i][0], _mm256_shuffle_epi8(bytes, first));
        _mm256_storeu_si256((__m256i *)(void *)scales[i][1], _mm256_shuffle_epi8(bytes, last));
        mins[i] = _mm256_shuffle_epi8(bytes, min);
    }
    for (int t = 0; t < T; t++) {
        __m256i x_sums = _mm256_broadcastsi128_si256(load_16_bytes(x[t].sum32 + g->k / 32));
        __m256i pairs = _mm256_hadd_epi32(_mm256_madd_epi16(mins[0], x_sums), _mm256_madd_epi16(mins[1], x_sums));
        __m256i apart = _mm256_hadd_epi32(pairs, pairs); /* 0 2, 1 3 */
        sums->min[t] = _mm_unpacklo_epi32(_mm256_castsi256_si128(apart), _mm256_extracti128_si256(apart, 1));
    }
    __m256i both = _mm256_unpacklo_epi32(headers[0], headers[1]); /* d and dmin of 0 2, 1 3 */
    __m128i four = _mm_unpacklo_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    __m256 eight = _mm256_cvtph_ps(
        _mm_shuffle_epi8(four, _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15)));
    sums->d = _mm256_castps256_ps128(eight);
    sums->dmin = _mm256_extractf128_ps(eight, 1);
}

/* Units 2j and 2j + 1 of a block. Loaded once: gcc makes a memory operand of every use. */
FORCE_INLINE void two_units(enum tensor_format f, __m256i out[2], const uint8_t *block, __m256i fifth, int j)
{
    __m256i nibbles = load_32_bytes(block + (f == FORMAT_Q5_K ? 48 : 16) + 32 * j);
    KEEP_IN_ORDER(nibbles);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        out[i] = shifted_bytes(nibbles, 4 * i, 15);
        if (f == FORMAT_Q5_K) out[i] = _mm256_or_si256(out[i], moved_bits(fifth, 2 * j + i, 4, 1));
    }
}

FORCE_INLINE void sum_k4(enum tensor_format f, const int T, struct group_sums *sums, const struct group *g,
                         const struct activations *x)
{
    k4_scales scales;
    begin_k4(T, sums, scales, g, x);
    for (int r = 0; r < GROUP; r++) {
        KEEP_INSIDE(); /* gcc loads the activations before the loop and has no registers for them */
        __m256i whole[FEW_TOKENS], fifth = load_32_bytes(block_of(g, r) + 16), numbers[2];
        for (int t = 0; t < T; t++) whole[t] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int u = 0; u < 8; u++) {
            if (u % 2 == 0) two_units(f, numbers, block_of(g, r), fifth, u / 2);
            __m256i scale = _mm256_set1_epi32(scales[r / 2][u / 4][r % 2][u % 4]);
            for (int t = 0; t < T; t++)
                whole[t] = add_pairs(whole[t], times_bytes(f, numbers[u % 2], &x[t], g->k + 32 * (uint64_t)u), scale);
        }
        for (int t = 0; t < T; t++) sums->whole[t][r] = whole[t];
    }
}

/* ---- Other formats of 256 ---- */

/* The words of `scales` that unit u needs: its one scale everywhere, or its two in one half each. scales: both halves
 * all eight, or the even ones and the odd ones. */
FORCE_INLINE __m256i unit_scales(__m256i scales, int u)
{
    return _mm256_shuffle_epi8(scales, _mm256_set1_epi16((short)(2 * u | (2 * u + 1) << 8)));
}

FORCE_INLINE __m256i spread_scales(enum tensor_format f, __m256i scales)
{
    if (values_of_scale(f) == 32) return _mm256_broadcastsi128_si256(_mm256_castsi256_si128(scales));
    const __m256i apart = IN_BOTH_HALVES(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(scales, apart), 0 | 2 << 2 | 1 << 4 | 3 << 6);
}

/* sum[t] += unit u of a block times the activations of each token at k */
FORCE_INLINE void add_unit(enum tensor_format f, const int T, __m256i sum[FEW_TOKENS], __m256i scale,
                           const uint8_t *block, int u, const uint32_t signs[8], const struct activations *x,
                           uint64_t k)
{
    __m256i q = level_numbers(f, block, u, signs);
    for (int t = 0; t < T; t++) {
#if HAS_DOT
        if (is_signed(f)) {
            __m256i products = DOT_BYTES(_mm256_setzero_si256(), q, load_32_bytes(x[t].bytes + k));
            sum[t] = _mm256_add_epi32(sum[t], _mm256_mullo_epi32(products, _mm256_srai_epi32(scale, 16)));
            continue;
        }
#endif
        sum[t] = add_pairs(sum[t], times_bytes(f, q, &x[t], k), scale);
    }
}

/* The TQ formats, without scales: 16 bits hold all eight units. */
FORCE_INLINE void add_ternary(enum tensor_format f, const int T, __m256i sum[FEW_TOKENS], __m256i ones,
                              const uint8_t *block, const struct activations *x, uint64_t k)
{
    __m256i words[FEW_TOKENS];
    for (int t = 0; t < T; t++) words[t] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (uint64_t u = 0; u < 8; u++) {
        __m256i q = unit_numbers(f, block, (int)u, NULL);
        for (int t = 0; t < T; t++) words[t] = _mm256_add_epi16(words[t], times_bytes(f, q, &x[t], k + 32 * u));
    }
    for (int t = 0; t < T; t++) sum[t] = add_pairs(sum[t], words[t], ones);
}

/* What level_zero adds to I of one block, to be taken from it. */
FORCE_INLINE __m256i zero_sums(enum tensor_format f, __m256i scales, const struct activations *x, uint64_t k)
{
    __m256i sums = values_of_scale(f) == 16 || is_ternary(f)
                       ? load_32_bytes(x->sum16 + k / 16)
                       : _mm256_zextsi128_si256(load_16_bytes(x->sum32 + k / 32));
    return _mm256_mullo_epi32(_mm256_madd_epi16(scales, sums), _mm256_set1_epi32(level_zero(f)));
}

/* I of one block for each token, spread over eight lanes, and M over four. */
FORCE_INLINE void block_sums(enum tensor_format f, const int T, const uint8_t *block, const struct activations *x,
                             uint64_t k, __m256i sum[FEW_TOKENS], __m128i m[FEW_TOKENS])
{
    __m256i scales, mins;
    scale_words(f, block, &scales, &mins);
    for (int t = 0; t < T; t++) {
        sum[t] = _mm256_setzero_si256(), m[t] = _mm_setzero_si128();
        if (level_zero(f)) sum[t] = _mm256_sub_epi32(sum[t], zero_sums(f, scales, &x[t], k));
        if (f != FORMAT_Q2_K) continue;
        __m256i all = _mm256_madd_epi16(mins, load_32_bytes(x[t].sum16 + k / 16));
        m[t] = _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    }
    if (is_ternary(f)) {
        add_ternary(f, T, sum, scales, block, x, k);
        return;
    }
    __m256i spread = spread_scales(f, scales);
    uint32_t signs[8];
    if (is_grid(f)) grid_signs(f, signs, block);
#pragma GCC unroll 8
    for (int u = 0; u < 8; u++)
        add_unit(f, T, sum, unit_scales(spread, u), block, u, signs, x, k + 32 * (uint64_t)u);
}

FORCE_INLINE void sum_blocks(enum tensor_format f, const int T, struct group_sums *sums, const struct group *g,
                             const struct activations *x)
{
    __m128i min[GROUP][FEW_TOKENS];
    for (int r = 0; r < GROUP; r++) {
        __m256i whole[FEW_TOKENS];
        block_sums(f, T, block_of(g, r), x, g->k, whole, min[r]);
        for (int t = 0; t < T; t++) sums->whole[t][r] = whole[t];
    }
    sums->d = four_d(f, g->first, g->row_bytes);
    if (!has_min(f)) return;
    for (int t = 0; t < T; t++)
        sums->min[t] = sum4x4_epi32((const __m128i[]){min[0][t], min[1][t], min[2][t], min[3][t]});
    sums->dmin = four_halves(g->first + min_at(f), g->row_bytes);
}

FORCE_INLINE void multiply_256(enum tensor_format f, const int T, const int bytes, __m128 acc[FEW_TOKENS],
                               const struct activations *x, const uint8_t *rows, uint64_t row_bytes,
                               uint64_t n_columns, struct hints hints)
{
    uintptr_t at = (uintptr_t)rows;
    for (uint64_t k = 0; k < n_columns; k += 256, rows += bytes, at += (uint64_t)bytes * GROUP) {
        struct group group = {rows, row_bytes, k};
        struct group_sums s;
        prefetch_hinted(hints, at, (uint64_t)bytes * GROUP);
        if (is_k4(f)) sum_k4(f, T, &s, &group, x);
        else sum_blocks(f, T, &s, &group, x);
        for (int t = 0; t < T; t++) {
            __m128i whole = sum8x4_epi32(s.whole[t][0], s.whole[t][1], s.whole[t][2], s.whole[t][3]);
            __m128 v = _mm_mul_ps(s.d, _mm_cvtepi32_ps(whole));
            if (has_min(f)) v = _mm_fnmadd_ps(s.dmin, _mm_cvtepi32_ps(s.min[t]), v);
            acc[t] = _mm_fmadd_ps(_mm_set1_ps(x[t].d[k / 256]), v, acc[t]);
        }
    }
}

/* ---- Blocks of 32 and 64 ---- */

/* I of one row's unit for each token, with level_zero in it, spread over eight lanes: four for each half of the
 * unit. */
FORCE_INLINE void unit_sums(enum tensor_format f, const int T, const uint8_t *block, int u,
                            const struct activations *x, uint64_t k, __m256i sum[FEW_TOKENS])
{
    __m256i q = level_numbers(f, block, u, NULL);
    for (int t = 0; t < T; t++) {
#if HAS_DOT
        sum[t] = DOT_BYTES(_mm256_setzero_si256(), q, load_32_bytes(x[t].bytes + k));
#else
        sum[t] = _mm256_madd_epi16(times_bytes(f, q, &x[t], k), _mm256_set1_epi16(1));
#endif
    }
}

FORCE_INLINE __m128i subtract_zero(enum tensor_format f, __m128i whole, int sum)
{
    return level_zero(f) ? _mm_sub_epi32(whole, _mm_set1_epi32(level_zero(f) * sum)) : whole;
}

/* acc += unit u of a block of each of GROUP rows times one token; sum: unit_sums of each row. */
FORCE_INLINE __m128 add_units(enum tensor_format f, __m128 acc, const __m256i sum[GROUP], const uint8_t *rows,
                              uint64_t row_bytes, int u, const struct activations *x, uint64_t k)
{
    if (f == FORMAT_NVFP4) {
        __m256i halves = _mm256_hadd_epi32(_mm256_hadd_epi32(sum[0], sum[1]), _mm256_hadd_epi32(sum[2], sum[3]));
        __m128i low = subtract_zero(f, _mm256_castsi256_si128(halves), x->sum16[k / 16]);
        __m128i high = subtract_zero(f, _mm256_extracti128_si256(halves, 1), x->sum16[k / 16 + 1]);
        __m256 d = _mm256_mul_ps(four_d_of_unit(rows, row_bytes, u), _mm256_set1_ps(x->d[k / 32]));
        acc = _mm_fmadd_ps(_mm256_castps256_ps128(d), _mm_cvtepi32_ps(low), acc);
        return _mm_fmadd_ps(_mm256_extractf128_ps(d, 1), _mm_cvtepi32_ps(high), acc);
    }
    __m128 dx = _mm_set1_ps(x->d[k / 32]);
    __m128i whole = subtract_zero(f, sum8x4_epi32(sum[0], sum[1], sum[2], sum[3]), x->sum32[k / 32]);
    acc = _mm_fmadd_ps(_mm_mul_ps(four_d(f, rows, row_bytes), dx), _mm_cvtepi32_ps(whole), acc);
    if (!has_min(f)) return acc;
    __m128 m = _mm_mul_ps(four_halves(rows + min_at(f), row_bytes), dx);
    return _mm_fmadd_ps(m, _mm_set1_ps((float)x->sum32[k / 32]), acc);
}

FORCE_INLINE void multiply_32(enum tensor_format f, const int T, const int elements, const int bytes,
                              __m128 acc[FEW_TOKENS], const struct activations *x, const uint8_t *rows,
                              uint64_t row_bytes, uint64_t n_columns, struct hints hints)
{
    uintptr_t at = (uintptr_t)rows;
    for (uint64_t k = 0; k < n_columns; k += 32) {
        int u = (int)(k % (uint64_t)elements) / 32;
        __m256i sum[FEW_TOKENS][GROUP];
        if (u == 0) {
            prefetch_hinted(hints, at, (uint64_t)bytes * GROUP);
            at += (uint64_t)bytes * GROUP;
        }
        for (int r = 0; r < GROUP; r++) {
            __m256i one[FEW_TOKENS];
            unit_sums(f, T, rows + (uint64_t)r * row_bytes, u, x, k, one);
            for (int t = 0; t < T; t++) sum[t][r] = one[t];
        }
        for (int t = 0; t < T; t++) acc[t] = add_units(f, acc[t], sum[t], rows, row_bytes, u, &x[t], k);
        if (u == elements / 32 - 1) rows += bytes;
    }
}

/* ---- All rows ---- */

/* out[t * out_stride + r], t < T. Rows left over are taken GROUP times each: they are rare, and a body of their own
 * would double the code. */
FORCE_INLINE void few_in_rows(enum tensor_format f, const int T, const int elements, const int bytes, float *out,
                              uint64_t out_stride, const struct activations *x, const uint8_t *rows,
                              uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns, const void *next)
{
    const struct hints hints = hints_of_few(rows, row_bytes, n_rows, next, (uint64_t)bytes, GROUP);
#pragma GCC unroll 1
    for (uint64_t r = 0; r < n_rows;) {
        bool whole = n_rows - r >= GROUP;
        const uint8_t *first = rows + r * row_bytes;
        uint64_t stride = whole ? row_bytes : 0;
        __m128 sums[FEW_TOKENS];
        for (int t = 0; t < T; t++) sums[t] = _mm_setzero_ps();
        if (elements == 256) multiply_256(f, T, bytes, sums, x, first, stride, n_columns, hints);
        else multiply_32(f, T, elements, bytes, sums, x, first, stride, n_columns, hints);
        for (int t = 0; t < T; t++) {
            float *first_out = out + (uint64_t)t * out_stride + r;
            if (whole) _mm_storeu_ps(first_out, sums[t]);
            else _mm_store_ss(first_out, sums[t]);
        }
        r += whole ? GROUP : 1;
    }
}

#endif
