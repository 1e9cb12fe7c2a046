/* One to four tokens times block formats in whole numbers at every x86 level (formula: ref/whole_product_ref.c): row by
 * row (whole_row_x86.h) or, where vectors have eight lanes, eight rows of blocks of 32 or 64 in lanes; which of them at
 * the end of this file.
 *
 * In lanes no sum runs across a vector, which for blocks so short takes as long as the products. It is a panel of eight
 * rows, but for the tile: numbers are multiplied as soon as they are decoded. Blocks of 256 gained too little there
 * (docs/performance.md). */
#ifndef AFMOE_KERNELS_WHOLE_LANES_X86_H
#define AFMOE_KERNELS_WHOLE_LANES_X86_H

#include "whole_row_x86.h"
#include "whole_sums_x86.h"
#include "whole_tile_x86.h"

#if LANES == 8

/* whole[t] = groups [first, first + n) of a unit times the activations of each token at k */
FORCE_INLINE void sum_lanes(enum tensor_format f, const int T, ints whole[FEW_TOKENS], const struct eight_units *units,
                            int first, const int n, const struct activations *x, uint64_t k)
{
    const int fit = groups_of_sum_32(f);
#pragma GCC unroll 2
    for (int begin = first; begin < first + n; begin += fit) {
        ints sum[FEW_TOKENS];
#pragma GCC unroll 8
        for (int g = begin; g < begin + fit; g++) {
            ints numbers = unit_group(f, units, g);
            KEEP_LOADED(numbers); /* not decoded again for every token */
            for (int t = 0; t < T; t++)
                sum[t] = add_products(sum[t], g == begin, numbers, broadcast4(x[t].bytes + k + 4 * (uint64_t)g));
        }
        for (int t = 0; t < T; t++)
            whole[t] = begin == first ? widened(sum[t]) : ints_add_32(whole[t], widened(sum[t]));
    }
}

/* whole[t] = a unit of signed bytes times the activations of each token at k */
FORCE_INLINE void sum_signed_lanes(enum tensor_format f, const int T, ints whole[FEW_TOKENS],
                                   const struct eight_units *units, const struct activations *x, uint64_t k)
{
    for (int t = 0; t < T; t++) whole[t] = ints_set1_32(0);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        ints numbers = signed_group(f, units, g);
        for (int t = 0; t < T; t++) {
            ints products = signed_products(numbers, broadcast4(x[t].bytes + k + 4 * (uint64_t)g));
            whole[t] = add_words(whole[t], products, ints_set1_16(1));
        }
    }
}

/* acc[t] += unit u of the blocks at rows[r] times the activations of each token at k */
FORCE_INLINE void add_lanes(enum tensor_format f, const int T, floats acc[FEW_TOKENS], const uint8_t *const rows[HALF],
                            int u, const struct activations *x, uint64_t k)
{
    const int n = groups_of_d(f);
    KEEP_INSIDE(); /* gcc loads what the next units need first and has no registers for it */
    struct eight_units units = take_units(f, rows, u);
#pragma GCC unroll 2
    for (int first = 0; first < 8; first += n) {
        ints whole[FEW_TOKENS];
        if (is_signed(f)) sum_signed_lanes(f, T, whole, &units, x, k);
        else sum_lanes(f, T, whole, &units, first, n, x, k);
        floats d = eight_d(f, rows, 2 * u + first / 4), min = has_min(f) ? eight_min(f, rows) : d;
        for (int t = 0; t < T; t++) acc[t] = add_part(f, acc[t], d, min, whole[t], &x[t], k, first);
    }
}

/* out[t * out_stride + r], t < T. Rows that are not there are the last one again. */
FORCE_INLINE void few_in_lanes(enum tensor_format f, const int T, const int elements, const int bytes, float *out,
                               uint64_t out_stride, const struct activations *x, const uint8_t *rows,
                               uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns, const void *next)
{
    const struct hints hints = hints_of_few(rows, row_bytes, n_rows, next, (uint64_t)bytes, HALF);
    const uint64_t step = (uint64_t)bytes * HALF;
#pragma GCC unroll 1
    for (uint64_t r = 0; r < n_rows; r += HALF) {
        uint64_t n = n_rows - r < HALF ? n_rows - r : HALF;
        uintptr_t at = (uintptr_t)rows + r * row_bytes;
        const uint8_t *blocks[HALF];
        floats acc[FEW_TOKENS];
        for (uint64_t i = 0; i < HALF; i++) blocks[i] = rows + (r + (i < n ? i : n - 1)) * row_bytes;
        for (int t = 0; t < T; t++) acc[t] = floats_set1(0);
#pragma GCC unroll 1
        for (uint64_t k = 0; k < n_columns; k += (uint64_t)elements, at += step) {
            prefetch_hinted(hints, at, step);
            for (int u = 0; u < elements / UNIT; u++) add_lanes(f, T, acc, blocks, u, x, k + UNIT * (uint64_t)u);
            for (int i = 0; i < HALF; i++) blocks[i] += bytes;
        }
        for (int t = 0; t < T; t++) {
            float sums[HALF];
            _mm256_storeu_ps(sums, acc[t]);
            memcpy(out + (uint64_t)t * out_stride + r, sums, n * sizeof *sums);
        }
    }
}

#endif

/* ---- Either ---- */

/* Measured with AVX2 (Zen 3), where Q8_0 gains nothing for one or two tokens. With a dot product of bytes it is by
 * arithmetic: fewer instructions, but for signed bytes, which are then as quick in rows and panels. */
FORCE_INLINE bool goes_in_lanes(enum tensor_format f, const int T, const int elements)
{
    if (LANES > 8 || elements == 256 || (HAS_DOT && is_signed(f))) return false;
    return f != FORMAT_Q8_0 || T > 2;
}

/* Up to how many tokens rows or lanes are faster than a panel (measured with AVX2, Zen 3). Wider vectors and a dot
 * product of bytes help panels more: that is arithmetic, not measured. Grid formats would gain up to a quarter with
 * four tokens, for a quarter more of code. */
FORCE_INLINE uint64_t few_tokens_of(enum tensor_format f, enum activation_kind kind, const int elements)
{
    if (goes_in_lanes(f, FEW_TOKENS, elements)) return FEW_TOKENS;
    if (kind == ACTIVATION_INT8_32 || is_grid(f)) return 1;
    if (HAS_DOT || LANES > 8) return 2;
    return FEW_TOKENS;
}

FORCE_INLINE void few_tokens(enum tensor_format f, enum activation_kind kind, const int T, const int elements,
                             const int bytes, float *out, uint64_t out_stride, const void *const *tokens,
                             const uint8_t *rows, uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns,
                             const void *next)
{
    struct activations x[FEW_TOKENS];
    for (int t = 0; t < T; t++) x[t] = activations_at(kind, tokens[t], n_columns);
#if LANES == 8
    if (goes_in_lanes(f, T, elements)) {
        few_in_lanes(f, T, elements, bytes, out, out_stride, x, rows, row_bytes, n_rows, n_columns, next);
        return;
    }
#endif
    few_in_rows(f, T, elements, bytes, out, out_stride, x, rows, row_bytes, n_rows, n_columns, next);
}

#define FEW_OF(f, kind, elements, bytes, T)                                                                            \
    few_tokens(f, level_kind(f, kind), T, elements, bytes, out, out_stride, x, rows, row_bytes, n_rows, n_columns,     \
               next)

#define DEFINE_FEW_TOKENS(name, format, kind, elements, bytes)                                                         \
    static void one_token_##name(float *out, const void *one, const void *rows, uint64_t row_bytes, uint64_t n_rows,   \
                                 uint64_t n_columns, const void *next)                                                 \
    {                                                                                                                  \
        const void *const *x = &one;                                                                                   \
        const uint64_t out_stride = 0;                                                                                 \
        FEW_OF(format, kind, elements, bytes, 1);                                                                      \
    }                                                                                                                  \
    /* false: for a panel */                                                                                           \
    static bool few_tokens_##name(float *out, uint64_t out_stride, const void *const *x, uint64_t n_tokens,            \
                                  const void *rows, uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns,           \
                                  const void *next)                                                                    \
    {                                                                                                                  \
        const uint64_t most = few_tokens_of(format, level_kind(format, kind), elements);                               \
        if (n_tokens == 0) return true;                                                                                \
        if (n_tokens == 2 && most >= 2) return FEW_OF(format, kind, elements, bytes, 2), true;                         \
        if (n_tokens == 3 && most >= 3) return FEW_OF(format, kind, elements, bytes, 3), true;                         \
        if (n_tokens == 4 && most >= 4) return FEW_OF(format, kind, elements, bytes, 4), true;                         \
        return false;                                                                                                  \
    }

FOR_EACH_WHOLE_FORMAT(DEFINE_FEW_TOKENS)

#endif
