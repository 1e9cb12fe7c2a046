/* One token times block formats in whole numbers at every x86 level (formula: ref/whole_product_ref.c); the file that
 * includes this one says whether there is a dot product of bytes (whole_avx2.c). Vectors of 32 bytes at every level:
 * streaming the weights takes the time.
 *
 * Four rows side by side, a block of each at a time: bytes of weights times bytes of activations in pairs (16 bits are
 * enough: 63 * 127 * 2), times the scales of their sub-blocks, summed to one number a row. Prefetch hints follow the
 * order of the memory, one a line: rows side by side are four streams too many for the hardware's. */
#ifndef AFMOE_KERNELS_WHOLE_ROW_X86_H
#define AFMOE_KERNELS_WHOLE_ROW_X86_H

#include "tile_avx2.h"
#include "whole_vectors_avx2.h"

enum { ROW_TILE = 4, AHEAD_BYTES = 8 << 10 };

/* What is to be taken from the numbers of a format at this level; signed numbers are made bytes for the dot product. */
FORCE_INLINE int level_zero(enum tensor_format f)
{
    return HAS_DOT && is_signed(f) ? 128 : zero_of(f);
}

FORCE_INLINE enum activation_kind level_kind(enum tensor_format f, enum activation_kind kind)
{
    if (!HAS_DOT || !is_signed(f)) return kind;
    return kind == ACTIVATION_INT16_32 ? ACTIVATION_INT8_32 : ACTIVATION_INT8_256;
}

/* ---- Activations ---- */

struct activations {
    const int8_t *q;
    const float *d;
    const int16_t *sum32, *sum16;
};

FORCE_INLINE struct activations activations_at(enum activation_kind kind, const void *x, uint64_t n)
{
    const uint8_t *base = x;
    return (struct activations){(const int8_t *)base, (const float *)(const void *)(base + activation_d(kind, n)),
                                (const int16_t *)(const void *)(base + activation_sum32(kind, n)),
                                (const int16_t *)(const void *)(base + activation_sum16(kind, n))};
}

/* The numbers where they have 16 bits. */
FORCE_INLINE const int16_t *words_of(const struct activations *x)
{
    return (const int16_t *)(const void *)x->q;
}

/* unit_numbers as bytes from which level_zero is to be taken. */
FORCE_INLINE __m256i level_numbers(enum tensor_format f, const uint8_t *block, int u)
{
    __m256i q = f == FORMAT_Q8_0 ? load_32_bytes(block + 2) : unit_numbers(f, block, u);
    return HAS_DOT && is_signed(f) ? _mm256_xor_si256(q, _mm256_set1_epi8(-128)) : q;
}

/* Sums of four products, or of two and two. */
FORCE_INLINE __m256i products_of(__m256i numbers, __m256i x)
{
#if HAS_DOT
    return DOT_BYTES(_mm256_setzero_si256(), numbers, x);
#else
    return _mm256_maddubs_epi16(numbers, x);
#endif
}

/* ---- Blocks of 256 ---- */

/* The words of `scales` that unit u needs: its one scale everywhere, or its two in one half each. scales: both halves
 * all eight, or the even ones and the odd ones. */
FORCE_INLINE __m256i unit_scales(__m256i scales, int u)
{
    return _mm256_shuffle_epi8(scales, _mm256_set1_epi16((short)(2 * u | (2 * u + 1) << 8)));
}

FORCE_INLINE __m256i spread_scales(enum tensor_format f, __m256i scales)
{
    if (values_of_scale(f) == 32) return _mm256_broadcastsi128_si256(_mm256_castsi256_si128(scales));
    const __m256i apart = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, /**/
                                           0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(scales, apart), 0 | 2 << 2 | 1 << 4 | 3 << 6);
}

/* I of one block, spread over eight lanes, and M over four. */
FORCE_INLINE __m256i block_sums(enum tensor_format f, const uint8_t *block, const struct activations *x, uint64_t k,
                                __m128i *m)
{
    __m256i scales, mins, acc = _mm256_setzero_si256();
    scale_words(f, block, &scales, &mins);
    *m = _mm_setzero_si128();
    if (f == FORMAT_IQ4_XS && !HAS_DOT) {
        __m256i spread = spread_scales(f, scales);
        for (int u = 0; u < 8; u++) {
            __m256i q = unit_numbers(f, block, u), scale = unit_scales(spread, u);
            const int16_t *wide = words_of(x) + k + 32 * u;
            __m256i low = _mm256_mullo_epi16(_mm256_cvtepi8_epi16(_mm256_castsi256_si128(q)), scale);
            __m256i high = _mm256_mullo_epi16(_mm256_cvtepi8_epi16(_mm256_extracti128_si256(q, 1)), scale);
            acc = _mm256_add_epi32(acc, _mm256_madd_epi16(low, load_32_bytes(wide)));
            acc = _mm256_add_epi32(acc, _mm256_madd_epi16(high, load_32_bytes(wide + 16)));
        }
    } else if (f == FORMAT_TQ2_0) { /* no scales: 16 bits hold all eight units */
        __m256i sum = _mm256_setzero_si256();
        for (int u = 0; u < 8; u++)
            sum = _mm256_add_epi16(
                sum, _mm256_maddubs_epi16(unit_numbers(f, block, u), load_32_bytes(x->q + k + 32 * u)));
        acc = _mm256_madd_epi16(sum, scales);
    } else {
        __m256i spread = spread_scales(f, scales);
        for (int u = 0; u < 8; u++) {
            __m256i products = products_of(level_numbers(f, block, u), load_32_bytes(x->q + k + 32 * u));
            __m256i scale = unit_scales(spread, u);
            if (HAS_DOT) acc = _mm256_add_epi32(acc, _mm256_mullo_epi32(products, _mm256_srai_epi32(scale, 16)));
            else acc = _mm256_add_epi32(acc, _mm256_madd_epi16(products, scale));
        }
    }
    if (level_zero(f)) {
        __m256i sums = values_of_scale(f) == 16 ? load_32_bytes(x->sum16 + k / 16)
                                                : _mm256_castsi128_si256(load_16_bytes(x->sum32 + k / 32));
        if (f == FORMAT_TQ2_0) sums = load_32_bytes(x->sum16 + k / 16);
        __m256i zero = _mm256_madd_epi16(scales, sums);
        acc = _mm256_sub_epi32(acc, _mm256_mullo_epi32(zero, _mm256_set1_epi32(level_zero(f))));
    }
    if (f == FORMAT_Q2_K) {
        __m256i all = _mm256_madd_epi16(mins, load_32_bytes(x->sum16 + k / 16));
        *m = _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    } else if (has_min(f)) {
        *m = _mm_madd_epi16(_mm256_castsi256_si128(mins), load_16_bytes(x->sum32 + k / 32));
    }
    return acc;
}

/* The same for formats that the reference decodes. */
FORCE_INLINE __m256i decoded_sums(enum tensor_format f, decode_fn decode, const uint8_t *block,
                                  const struct activations *x, uint64_t k)
{
    int16_t q[256];
    __m256i acc = _mm256_setzero_si256();
    afmoe__whole_numbers(f, decode, q, NULL, block);
    for (int i = 0; i < 256; i += 16)
        acc = _mm256_add_epi32(acc, _mm256_madd_epi16(load_32_bytes(q + i), load_32_bytes(words_of(x) + k + i)));
    return acc;
}

FORCE_INLINE bool is_decoded(enum tensor_format f)
{
    return (f >= FORMAT_IQ1_S && f <= FORMAT_IQ3_S) || f == FORMAT_TQ1_0;
}

FORCE_INLINE __m128i sum4x4_epi32(const __m128i v[4])
{
    return _mm_hadd_epi32(_mm_hadd_epi32(v[0], v[1]), _mm_hadd_epi32(v[2], v[3]));
}

FORCE_INLINE __m128 multiply_256(enum tensor_format f, decode_fn decode, const int bytes, const struct activations *x,
                                 const uint8_t *rows, uint64_t row_bytes, uint64_t n_columns)
{
    __m128 acc = _mm_setzero_ps();
    const uint8_t *first = rows;
    for (uint64_t k = 0; k < n_columns; k += 256, rows += bytes) {
        __m256i sum[ROW_TILE];
        __m128i min[ROW_TILE];
        prefetch_bytes(first, AHEAD_BYTES + (uint64_t)(rows - first) * ROW_TILE, (uint64_t)bytes * ROW_TILE);
        for (int r = 0; r < ROW_TILE; r++) {
            min[r] = _mm_setzero_si128();
            const uint8_t *block = rows + (uint64_t)r * row_bytes;
            sum[r] = is_decoded(f) ? decoded_sums(f, decode, block, x, k) : block_sums(f, block, x, k, &min[r]);
        }
        __m128 whole = _mm_cvtepi32_ps(sum8x4_epi32(sum[0], sum[1], sum[2], sum[3]));
        __m128 t = _mm_mul_ps(four_d(f, rows, row_bytes, 0), whole);
        if (has_min(f))
            t = _mm_fnmadd_ps(four_halves(rows + min_at(f), row_bytes), _mm_cvtepi32_ps(sum4x4_epi32(min)), t);
        acc = _mm_fmadd_ps(_mm_set1_ps(x->d[k / 256]), t, acc);
    }
    return acc;
}

/* ---- Blocks of 32 and 64 ---- */

/* I of unit u of a block, spread over eight lanes: four for each half of the unit. */
FORCE_INLINE __m256i unit_sum(enum tensor_format f, const uint8_t *block, int u, const struct activations *x,
                              uint64_t k)
{
    __m256i q = level_numbers(f, block, u);
    if (is_signed(f) && !HAS_DOT) {
        __m256i low = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(q));
        __m256i high = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(q, 1));
        return _mm256_add_epi32(_mm256_madd_epi16(low, load_32_bytes(words_of(x) + k)),
                                _mm256_madd_epi16(high, load_32_bytes(words_of(x) + k + 16)));
    }
    __m256i products = products_of(q, load_32_bytes(x->q + k));
    return HAS_DOT ? products : _mm256_madd_epi16(products, _mm256_set1_epi16(1));
}

FORCE_INLINE __m128i subtract_zero(enum tensor_format f, __m128i whole, int sum)
{
    return level_zero(f) ? _mm_sub_epi32(whole, _mm_set1_epi32(level_zero(f) * sum)) : whole;
}

FORCE_INLINE __m128 multiply_32(enum tensor_format f, const int elements, const int bytes, const struct activations *x,
                                const uint8_t *rows, uint64_t row_bytes, uint64_t n_columns)
{
    __m128 acc = _mm_setzero_ps();
    const uint8_t *first = rows;
    for (uint64_t k = 0; k < n_columns; k += 32) {
        int u = (int)(k % (uint64_t)elements) / 32;
        __m256i sum[ROW_TILE];
        if (u == 0)
            prefetch_bytes(first, AHEAD_BYTES + (uint64_t)(rows - first) * ROW_TILE, (uint64_t)bytes * ROW_TILE);
        for (int r = 0; r < ROW_TILE; r++)
            sum[r] = unit_sum(f, rows + (uint64_t)r * row_bytes, u, x, k);
        __m128 dx = _mm_set1_ps(x->d[k / 32]);
        if (f == FORMAT_NVFP4) {
            __m256i halves = _mm256_hadd_epi32(_mm256_hadd_epi32(sum[0], sum[1]), _mm256_hadd_epi32(sum[2], sum[3]));
            __m128i low = subtract_zero(f, _mm256_castsi256_si128(halves), x->sum16[k / 16]);
            __m128i high = subtract_zero(f, _mm256_extracti128_si256(halves, 1), x->sum16[k / 16 + 1]);
            __m128 d = _mm_mul_ps(four_d(f, rows, row_bytes, 2 * u), dx);
            acc = _mm_fmadd_ps(d, _mm_cvtepi32_ps(low), acc);
            d = _mm_mul_ps(four_d(f, rows, row_bytes, 2 * u + 1), dx);
            acc = _mm_fmadd_ps(d, _mm_cvtepi32_ps(high), acc);
        } else {
            __m128i whole = subtract_zero(f, sum8x4_epi32(sum[0], sum[1], sum[2], sum[3]), x->sum32[k / 32]);
            acc = _mm_fmadd_ps(_mm_mul_ps(four_d(f, rows, row_bytes, 0), dx), _mm_cvtepi32_ps(whole), acc);
            if (has_min(f)) {
                __m128 m = _mm_mul_ps(four_halves(rows + min_at(f), row_bytes), dx);
                acc = _mm_fmadd_ps(m, _mm_set1_ps((float)x->sum32[k / 32]), acc);
            }
        }
        if (u == elements / 32 - 1) rows += bytes;
    }
    return acc;
}

/* ---- All rows ---- */

/* The products of ROW_TILE rows. */
FORCE_INLINE __m128 multiply_row_tile(enum tensor_format f, decode_fn decode, const int elements, const int bytes,
                                      const struct activations *x, const uint8_t *rows, uint64_t row_bytes,
                                      uint64_t n_columns)
{
    if (elements == 256) return multiply_256(f, decode, bytes, x, rows, row_bytes, n_columns);
    return multiply_32(f, elements, bytes, x, rows, row_bytes, n_columns);
}

/* A last row alone is taken ROW_TILE times: that is rare, and a body of its own would double the code. */
FORCE_INLINE void one_token(enum tensor_format f, enum activation_kind kind, decode_fn decode, const int elements,
                            const int bytes, float *out, const void *x, const uint8_t *rows, uint64_t row_bytes,
                            uint64_t n_rows, uint64_t n_columns)
{
    const struct activations activations = activations_at(kind, x, n_columns);
#pragma GCC unroll 1
    for (uint64_t r = 0; r < n_rows;) {
        bool whole = n_rows - r >= ROW_TILE;
        __m128 sums = multiply_row_tile(f, decode, elements, bytes, &activations, rows + r * row_bytes,
                                        whole ? row_bytes : 0, n_columns);
        if (whole) _mm_storeu_ps(out + r, sums);
        else _mm_store_ss(out + r, sums);
        r += whole ? ROW_TILE : 1;
    }
}

#define DEFINE_ONE_TOKEN(name, format, kind, elements, bytes)                                                          \
    static void one_token_##name(float *out, const void *x, const void *rows, uint64_t row_bytes, uint64_t n_rows,     \
                                 uint64_t n_columns)                                                                   \
    {                                                                                                                  \
        one_token(format, level_kind(format, kind), afmoe__decode_##name, elements, bytes, out, x, rows, row_bytes,    \
                  n_rows, n_columns);                                                                                  \
    }

FOR_EACH_WHOLE_FORMAT(DEFINE_ONE_TOKEN)

#endif
