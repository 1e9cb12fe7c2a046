/* Block formats in whole numbers with rows in lanes: tiles for the panels of whole_panel_x86.h, and what
 * whole_lanes_x86.h shares with them. Rows are decoded eight at a time with AVX2 at every level; ROWS, a multiple of
 * that, and HAS_DOT are those of the file that includes this one.
 *
 * Families of formats by what a tile holds:
 *   bytes 256   numbers of one byte, 16-bit scales and minima of sub-blocks, d and dmin: the K, IQ and TQ formats
 *   words 256   numbers of 16 bits with their scales inside, d: IQ4_XS
 *   bytes 32    numbers of one byte, one or two d and a minimum: four- and five-bit formats
 *   words 32    numbers of 16 bits, d: Q8_0, IQ4_NL
 * Signed numbers of eight bits are words where there is no dot product of bytes: 128 larger, as bytes without a sign,
 * their pairs would overflow 16 bits. Where there is (HAS_DOT), they are such bytes. */
#ifndef AFMOE_KERNELS_WHOLE_TILE_X86_H
#define AFMOE_KERNELS_WHOLE_TILE_X86_H

#include "whole_vectors_avx2.h"

enum { HALF = 8 };

enum family { BYTES_256, WORDS_256, BYTES_32, WORDS_32 };

FORCE_INLINE enum family family_of(enum activation_kind kind)
{
    return kind == ACTIVATION_INT8_256    ? BYTES_256
           : kind == ACTIVATION_INT16_256 ? WORDS_256
           : kind == ACTIVATION_INT8_32   ? BYTES_32
                                          : WORDS_32;
}

struct tile_bytes_256 {
    uint8_t numbers[64][ROWS][4];
    int16_t scales[16][ROWS][2]; /* twice the same */
    int16_t mins[8][ROWS][2];    /* of two neighbours; level_zero times the scales for formats without minima */
    float d[ROWS], dmin[ROWS];
};

struct tile_words_256 {
    int16_t numbers[128][ROWS][2];
    float d[ROWS];
};

struct tile_bytes_32 {
    uint8_t numbers[8][ROWS][4];
    float d[2][ROWS], min[ROWS];
};

struct tile_words_32 {
    int16_t numbers[16][ROWS][2];
    float d[ROWS];
};

/* ---- Transposing ---- */

/* Four dwords at `offset` of eight rows: out[j] holds dword j of each. */
FORCE_INLINE void transpose4(__m256i out[4], const uint8_t *const rows[HALF], int offset)
{
    __m256i v[4];
    for (int r = 0; r < 4; r++)
        v[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(load_16_bytes(rows[r] + offset)),
                                       load_16_bytes(rows[r + 4] + offset), 1);
    __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
    __m256i c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
    out[0] = _mm256_unpacklo_epi64(a, c);
    out[1] = _mm256_unpackhi_epi64(a, c);
    out[2] = _mm256_unpacklo_epi64(b, d);
    out[3] = _mm256_unpackhi_epi64(b, d);
}

FORCE_INLINE void store_32_bytes(void *p, __m256i v)
{
    _mm256_store_si256((__m256i *)p, v);
}

FORCE_INLINE __m256i eight_dwords(const uint8_t *const rows[HALF], int offset)
{
    uint32_t x[HALF];
    for (int r = 0; r < HALF; r++) x[r] = u32_at(rows[r] + offset);
    return load_32_bytes(x);
}

FORCE_INLINE __m256 eight_d(enum tensor_format f, const uint8_t *const rows[HALF], int part)
{
    if (has_byte_d(f)) {
        uint8_t bytes[HALF];
        for (int r = 0; r < HALF; r++) bytes[r] = rows[r][part];
        return d_of_bytes(f, _mm256_cvtepu8_epi32(load_8_bytes(bytes)));
    }
    uint16_t h[HALF];
    for (int r = 0; r < HALF; r++) h[r] = scale_bits(f, rows[r]);
    __m256 stored = _mm256_cvtph_ps(load_16_bytes(h));
    return whole_unit(f) == 1 ? stored : _mm256_mul_ps(stored, _mm256_set1_ps(1 / whole_unit(f)));
}

FORCE_INLINE __m256 eight_min(enum tensor_format f, const uint8_t *const rows[HALF])
{
    uint16_t h[HALF];
    for (int r = 0; r < HALF; r++) h[r] = u16_at(rows[r] + min_at(f));
    return _mm256_cvtph_ps(load_16_bytes(h));
}

/* ---- Bytes, 256 ---- */

enum { MAX_DWORDS = 48 };

/* The dwords that hold the numbers, transposed: those of unit_numbers in the order of their first use. Not of grid
 * formats. */
FORCE_INLINE void transpose_bytes(enum tensor_format f, __m256i out[MAX_DWORDS], const uint8_t *const rows[HALF])
{
    int low = 0, n_low = 32, high = 0, n_high = 0;
    switch (f) {
    case FORMAT_Q2_K: low = 16, n_low = 16; break;
    case FORMAT_Q3_K: low = 32, n_low = 16, high = 0, n_high = 8; break;
    case FORMAT_Q4_K: low = 16, n_low = 32; break;
    case FORMAT_Q5_K: low = 48, n_low = 32, high = 16, n_high = 8; break;
    case FORMAT_Q6_K: low = 0, n_low = 32, high = 128, n_high = 16; break;
    case FORMAT_IQ4_XS: low = 8, n_low = 32; break;
    default: low = 0, n_low = 16; break; /* TQ2_0 */
    }
    for (int j = 0; j < n_low; j += 4) transpose4(out + j, rows, low + 4 * j);
    for (int j = 0; j < n_high; j += 4) transpose4(out + n_low + j, rows, high + 4 * j);
}

/* Values 4g..4g+3 of unit u, eight rows, as unit_numbers has them for one row. */
FORCE_INLINE __m256i group_numbers(enum tensor_format f, const __m256i dwords[MAX_DWORDS], int u, int g)
{
    int half = u / 4, quarter = u % 4;
    switch (f) {
    case FORMAT_Q3_K:
        return _mm256_or_si256(moved_bits(dwords[16 + g], u, 2, 1),
                               shifted_bytes(dwords[8 * half + g], 2 * quarter, 3));
    case FORMAT_Q4_K: return shifted_bytes(dwords[8 * (u / 2) + g], 4 * (u % 2), 15);
    case FORMAT_Q5_K:
        return _mm256_or_si256(moved_bits(dwords[32 + g], u, 4, 1),
                               shifted_bytes(dwords[8 * (u / 2) + g], 4 * (u % 2), 15));
    case FORMAT_Q6_K:
        return _mm256_or_si256(moved_bits(dwords[32 + 8 * half + g], 2 * quarter, 4, 3),
                               shifted_bytes(dwords[16 * half + 8 * (quarter % 2) + g], 4 * (quarter / 2), 15));
    case FORMAT_IQ4_XS: return look_up(iq4_from_zero, shifted_bytes(dwords[4 * u + g % 4], g / 4 * 4, 15));
    default: return shifted_bytes(dwords[8 * half + g], 2 * quarter, 3); /* Q2_K, TQ2_0 */
    }
}

/* Bytes i and j of every dword as two words: as they are, or signed. */
FORCE_INLINE __m256i two_words(__m256i dwords, int i, int j)
{
    return _mm256_shuffle_epi8(dwords, IN_BOTH_HALVES((char)i, -1, (char)j, -1, (char)(i + 4), -1, (char)(j + 4), -1,
                                                      (char)(i + 8), -1, (char)(j + 8), -1, (char)(i + 12), -1,
                                                      (char)(j + 12), -1));
}

FORCE_INLINE __m256i two_signed_words(__m256i dwords, int i, int j)
{
    return _mm256_srai_epi16(_mm256_slli_epi16(two_words(dwords, i, j), 8), 8);
}

/* The scales of eight rows as bytes, four in every dword: as scale_words has them for one row. And the minima. */
FORCE_INLINE void scale_bytes(enum tensor_format f, __m256i scales[4], __m256i mins[4], const uint8_t *const rows[HALF])
{
    const __m256i low4 = _mm256_set1_epi8(15), low6 = _mm256_set1_epi8(63), high2 = _mm256_set1_epi8(48);
    __m256i v[4];
    if (is_grid(f)) {
        uint8_t bytes[HALF][16];
        const uint8_t *lines[HALF];
        for (int r = 0; r < HALF; r++) {
            _mm_storeu_si128((__m128i *)(void *)bytes[r], grid_scales(f, rows[r]));
            lines[r] = bytes[r];
        }
        transpose4(scales, lines, 0);
        return;
    }
    switch (f) {
    case FORMAT_Q2_K:
        transpose4(v, rows, 0);
        for (int i = 0; i < 4; i++) scales[i] = _mm256_and_si256(v[i], low4), mins[i] = shifted_bytes(v[i], 4, 15);
        break;
    case FORMAT_Q3_K:
        for (int i = 0; i < 3; i++) v[i] = eight_dwords(rows, 96 + 4 * i);
        for (int i = 0; i < 4; i++) {
            __m256i low = shifted_bytes(v[i % 2], 4 * (i / 2), 15);
            __m256i high = moved_bits(v[2], 2 * i, 4, 3);
            scales[i] = _mm256_sub_epi8(_mm256_or_si256(low, high), _mm256_set1_epi8(32));
        }
        break;
    case FORMAT_Q6_K: transpose4(scales, rows, 192); break;
    case FORMAT_IQ4_XS:
        for (int j = 0; j < 8; j++) {
            uint32_t bytes[HALF];
            for (int r = 0; r < HALF; r++)
                bytes[r] = (uint8_t)iq4_xs_scale(u16_at(rows[r] + 2), rows[r] + 4, j);
            __m256i part = _mm256_slli_epi32(load_32_bytes(bytes), 8 * (j % 4));
            scales[j / 4] = j % 4 ? _mm256_or_si256(scales[j / 4], part) : part;
        }
        break;
    default: /* Q4_K, Q5_K: d and dmin, then three dwords; k4_bytes */
        transpose4(v, rows, 0);
        scales[0] = _mm256_and_si256(v[1], low6);
        scales[1] = _mm256_or_si256(_mm256_and_si256(v[3], low4), _mm256_and_si256(_mm256_srli_epi32(v[1], 2), high2));
        mins[0] = _mm256_and_si256(v[2], low6);
        mins[1] = _mm256_or_si256(shifted_bytes(v[3], 4, 15), _mm256_and_si256(_mm256_srli_epi32(v[2], 2), high2));
    }
}

FORCE_INLINE void put_scales(enum tensor_format f, struct tile_bytes_256 *tile, int h, const uint8_t *const rows[HALF])
{
    const int n = 256 / values_of_scale(f);
    const __m256i zero = _mm256_set1_epi16((short)level_zero(f));
    __m256i scales[4], mins[4];
    if (is_ternary(f)) { /* one, and so is level_zero */
        for (int j = 0; j < n; j++) store_32_bytes(tile->scales[j][h], _mm256_set1_epi16(1));
        for (int j = 0; j < n / 2; j++) store_32_bytes(tile->mins[j][h], _mm256_set1_epi16(1));
        return;
    }
    scale_bytes(f, scales, mins, rows);
    for (int j = 0; j < n; j++)
        store_32_bytes(tile->scales[j][h], has_min(f) ? two_words(scales[j / 4], j % 4, j % 4)
                                               : two_signed_words(scales[j / 4], j % 4, j % 4));
    for (int j = 0; j < n; j += 2) {
        __m256i two = has_min(f) ? two_words(mins[j / 4], j % 4, j % 4 + 1)
                                 : _mm256_mullo_epi16(two_signed_words(scales[j / 4], j % 4, j % 4 + 1), zero);
        store_32_bytes(tile->mins[j / 2][h], two);
    }
}

/* Numbers of eight rows from row h of the tile on, row by row before they are transposed. */
FORCE_INLINE void put_grid_numbers(enum tensor_format f, struct tile_bytes_256 *tile, int h,
                                   const uint8_t *const rows[HALF])
{
    uint8_t numbers[HALF][256];
    const uint8_t *lines[HALF];
    for (int r = 0; r < HALF; r++) {
        uint32_t signs[8];
        grid_signs(f, signs, rows[r]);
        lines[r] = numbers[r];
#pragma GCC unroll 8
        for (int u = 0; u < 8; u++)
            _mm256_storeu_si256((__m256i *)(void *)(numbers[r] + 32 * u), unit_numbers(f, rows[r], u, signs));
    }
    for (int j = 0; j < 64; j += 4) {
        __m256i dwords[4];
        transpose4(dwords, lines, 4 * j);
        for (int i = 0; i < 4; i++) store_32_bytes(tile->numbers[j + i][h], dwords[i]);
    }
}

FORCE_INLINE void put_numbers(enum tensor_format f, struct tile_bytes_256 *tile, int h, const uint8_t *const rows[HALF])
{
    __m256i dwords[MAX_DWORDS];
    transpose_bytes(f, dwords, rows);
#pragma GCC unroll 8
    for (int u = 0; u < 8; u++)
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) store_32_bytes(tile->numbers[8 * u + g][h], group_numbers(f, dwords, u, g));
}

FORCE_INLINE void decode_bytes_256(enum tensor_format f, struct tile_bytes_256 *tile, const uint8_t *const rows[ROWS])
{
#pragma GCC unroll 1
    for (int h = 0; h < ROWS; h += HALF) {
        if (is_grid(f)) put_grid_numbers(f, tile, h, rows + h);
        else put_numbers(f, tile, h, rows + h);
        put_scales(f, tile, h, rows + h);
        _mm256_store_ps(tile->d + h, eight_d(f, rows + h, 0));
        if (has_min(f)) _mm256_store_ps(tile->dmin + h, eight_min(f, rows + h));
    }
}

/* ---- Words, 256 ---- */

/* Whole numbers of 16 bits of one block, its scales inside. */
FORCE_INLINE void block_words(enum tensor_format f, int16_t out[256], const uint8_t *block)
{
    int16_t scales[16];
    __m256i s, unused;
    scale_words(f, block, &s, &unused);
    _mm256_storeu_si256((__m256i *)(void *)scales, s);
    for (int u = 0; u < 8; u++) {
        __m256i q = unit_numbers(f, block, u, NULL), scale = _mm256_set1_epi16(scales[u]);
        __m256i low = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(q));
        __m256i high = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(q, 1));
        _mm256_storeu_si256((__m256i *)(void *)(out + 32 * u), _mm256_mullo_epi16(low, scale));
        _mm256_storeu_si256((__m256i *)(void *)(out + 32 * u + 16), _mm256_mullo_epi16(high, scale));
    }
}

FORCE_INLINE void decode_words_256(enum tensor_format f, struct tile_words_256 *tile, const uint8_t *const rows[ROWS])
{
#pragma GCC unroll 1
    for (int h = 0; h < ROWS; h += HALF) {
        int16_t words[HALF][256];
        const uint8_t *lines[HALF];
        for (int r = 0; r < HALF; r++) {
            block_words(f, words[r], rows[h + r]);
            lines[r] = (const uint8_t *)words[r];
        }
        for (int j = 0; j < 128; j += 4) {
            __m256i dwords[4];
            transpose4(dwords, lines, 4 * j);
            for (int i = 0; i < 4; i++) store_32_bytes(tile->numbers[j + i][h], dwords[i]);
        }
        _mm256_store_ps(tile->d + h, eight_d(f, rows + h, 0));
    }
}

/* ---- Bytes, 32 ---- */

/* Bits 4g..4g+3 of every dword to its bytes: 16 or 0. */
FORCE_INLINE __m256i fifth_bits_of(__m256i high, int g)
{
    const char i = (char)(g / 2);
    const __m256i eight = IN_BOTH_HALVES(i, i, i, i, i + 4, i + 4, i + 4, i + 4, i + 8, i + 8, i + 8, i + 8, i + 12,
                                         i + 12, i + 12, i + 12);
    const __m256i mine = _mm256_set1_epi32(g % 2 ? (int)0x80402010 : 0x08040201);
    __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(high, eight), mine), mine);
    return _mm256_and_si256(is_set, _mm256_set1_epi8(16));
}

FORCE_INLINE bool has_fifth_bits(enum tensor_format f)
{
    return f == FORMAT_Q5_0 || f == FORMAT_Q5_1;
}

FORCE_INLINE int nibbles_at(enum tensor_format f)
{
    switch (f) {
    case FORMAT_MXFP4: return 1;
    case FORMAT_Q4_1:
    case FORMAT_NVFP4: return 4;
    case FORMAT_Q5_0: return 6;
    case FORMAT_Q5_1: return 8;
    default: return 2;
    }
}

/* The numbers of a unit of eight rows as they lie in the blocks: dwords, transposed, and fifth bits. */
struct eight_units {
    __m256i dwords[8], high;
};

/* Unit u of the blocks at rows[r]. */
FORCE_INLINE struct eight_units take_units(enum tensor_format f, const uint8_t *const rows[HALF], int u)
{
    struct eight_units units;
    transpose4(units.dwords, rows, nibbles_at(f) + 16 * u);
    if (f == FORMAT_Q8_0) transpose4(units.dwords + 4, rows, nibbles_at(f) + 16);
    units.high = has_fifth_bits(f) ? eight_dwords(rows, nibbles_at(f) - 4) : _mm256_setzero_si256();
    return units;
}

/* Group g < 8 of four values of each row, as bytes from which level_zero is to be taken. */
FORCE_INLINE __m256i unit_group(enum tensor_format f, const struct eight_units *units, int g)
{
    const __m256i *dwords = units->dwords;
    __m256i q;
    if (f == FORMAT_Q8_0) return _mm256_xor_si256(dwords[g], _mm256_set1_epi8(-128));
    if (f == FORMAT_NVFP4) q = shifted_bytes(dwords[g / 4 * 2 + g % 2], g / 2 % 2 * 4, 15);
    else q = shifted_bytes(dwords[g % 4], g / 4 * 4, 15);
    if (has_fifth_bits(f)) q = _mm256_or_si256(q, fifth_bits_of(units->high, g));
    if (f == FORMAT_MXFP4 || f == FORMAT_NVFP4) q = look_up(e2m1_from_zero, q);
    if (f == FORMAT_IQ4_NL) q = look_up(iq4_from_zero, q);
    return q;
}

/* The same of Q8_0 and IQ4_NL as signed bytes. */
FORCE_INLINE __m256i signed_group(enum tensor_format f, const struct eight_units *units, int g)
{
    if (f == FORMAT_Q8_0) return units->dwords[g];
    return look_up(iq4_values, shifted_bytes(units->dwords[g % 4], g / 4 * 4, 15));
}

FORCE_INLINE void decode_bytes_32(enum tensor_format f, struct tile_bytes_32 *tile, const uint8_t *const rows[ROWS],
                                  int u)
{
#pragma GCC unroll 1
    for (int h = 0; h < ROWS; h += HALF) {
        struct eight_units units = take_units(f, rows + h, u);
        for (int g = 0; g < 8; g++) store_32_bytes(tile->numbers[g][h], unit_group(f, &units, g));
        _mm256_store_ps(tile->d[0] + h, eight_d(f, rows + h, 2 * u));
        if (f == FORMAT_NVFP4) _mm256_store_ps(tile->d[1] + h, eight_d(f, rows + h, 2 * u + 1));
        if (has_min(f)) _mm256_store_ps(tile->min + h, eight_min(f, rows + h));
    }
}

/* ---- Words, 32 ---- */

FORCE_INLINE void decode_words_32(enum tensor_format f, struct tile_words_32 *tile, const uint8_t *const rows[ROWS])
{
#pragma GCC unroll 1
    for (int h = 0; h < ROWS; h += HALF) {
        struct eight_units units = take_units(f, rows + h, 0);
        for (int g = 0; g < 8; g++) {
            __m256i q = signed_group(f, &units, g);
            store_32_bytes(tile->numbers[2 * g][h], two_signed_words(q, 0, 1));
            store_32_bytes(tile->numbers[2 * g + 1][h], two_signed_words(q, 2, 3));
        }
        _mm256_store_ps(tile->d + h, eight_d(f, rows + h, 0));
    }
}

#endif
