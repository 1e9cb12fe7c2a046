/* Numbers of the IQ formats of 1 to 3 bits and of TQ1_0 (ref/iq_blocks_ref.c and ref/ternary_blocks_ref.c say what they
 * are), 32 values (a unit) at a time, as bytes from which grid_zero is to be taken: rows of grids are looked up, signs
 * spread from bits to bytes. Every function is folded for a constant format. Static only: it is compiled with the flags
 * of its level. */
#ifndef AFMOE_KERNELS_GRID_VECTORS_AVX2_H
#define AFMOE_KERNELS_GRID_VECTORS_AVX2_H

#include "ref/decode.h"
#include "ref/iq_grids.h"
#include "vector_avx2.h"

#include <stdbool.h>

FORCE_INLINE bool is_iq1(enum tensor_format f)
{
    return f == FORMAT_IQ1_S || f == FORMAT_IQ1_M;
}

FORCE_INLINE bool is_iq2(enum tensor_format f)
{
    return f == FORMAT_IQ2_XXS || f == FORMAT_IQ2_XS || f == FORMAT_IQ2_S;
}

FORCE_INLINE bool is_iq3(enum tensor_format f)
{
    return f == FORMAT_IQ3_XXS || f == FORMAT_IQ3_S;
}

/* Formats whose numbers come from this file. */
FORCE_INLINE bool is_grid(enum tensor_format f)
{
    return is_iq1(f) || is_iq2(f) || is_iq3(f) || f == FORMAT_TQ1_0;
}

/* Large enough that no byte is negative. */
FORCE_INLINE int grid_zero(enum tensor_format f)
{
    return f == FORMAT_TQ1_0 ? 1 : is_iq1(f) || f == FORMAT_IQ3_S ? 16 : 64;
}

/* ---- Signs of a block ---- */

/* 32 bytes of seven bits each, in whose eighth bit goes the parity. */
FORCE_INLINE __m256i with_parity(__m256i sevens)
{
    const __m128i odd = _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0);
    const __m256i table = _mm256_broadcastsi128_si256(odd), low4 = _mm256_set1_epi8(15);
    __m256i low = _mm256_shuffle_epi8(table, _mm256_and_si256(sevens, low4));
    __m256i high = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(sevens, 4), low4));
    return _mm256_or_si256(sevens, _mm256_xor_si256(low, high));
}

/* The lowest 28 bits of every dword, seven to a byte. */
FORCE_INLINE __m256i four_sevens(__m256i v)
{
    __m256i first = _mm256_and_si256(v, _mm256_set1_epi32(0x7f));
    __m256i second = _mm256_and_si256(_mm256_slli_epi32(v, 1), _mm256_set1_epi32(0x7f00));
    __m256i third = _mm256_and_si256(_mm256_slli_epi32(v, 2), _mm256_set1_epi32(0x7f0000));
    __m256i fourth = _mm256_and_si256(_mm256_slli_epi32(v, 3), _mm256_set1_epi32(0x7f000000));
    return _mm256_or_si256(_mm256_or_si256(first, second), _mm256_or_si256(third, fourth));
}

/* The dwords of signs and scale, which are every second one of IQ2_XXS. */
FORCE_INLINE __m256i signs_and_scales(enum tensor_format f, const uint8_t *block)
{
    if (f == FORMAT_IQ3_XXS) return load_32_bytes(block + 66);
    __m256 low = _mm256_castsi256_ps(load_32_bytes(block + 2)), high = _mm256_castsi256_ps(load_32_bytes(block + 34));
    __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(low, high, 1 | 3 << 2 | 1 << 4 | 3 << 6));
    return _mm256_permute4x64_epi64(odd, 0 | 2 << 2 | 1 << 4 | 3 << 6);
}

/* Signs of a block, made once: bit i of signs[u] is that of value 32 u + i. */
FORCE_INLINE void grid_signs(enum tensor_format f, uint32_t out[8], const uint8_t *block)
{
    __m256i signs;
    switch (f) {
    case FORMAT_IQ2_XXS:
    case FORMAT_IQ3_XXS: signs = with_parity(four_sevens(signs_and_scales(f, block))); break;
    case FORMAT_IQ2_XS: {
        __m256i low = _mm256_srli_epi16(load_32_bytes(block + 2), 9);
        __m256i high = _mm256_srli_epi16(load_32_bytes(block + 34), 9);
        signs = with_parity(_mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), 0 | 2 << 2 | 1 << 4 | 3 << 6));
        break;
    }
    case FORMAT_IQ2_S: signs = load_32_bytes(block + 34); break;
    case FORMAT_IQ3_S: signs = load_32_bytes(block + 74); break;
    default: return;
    }
    _mm256_storeu_si256((__m256i *)(void *)out, signs);
}

/* Bits to bytes: -1 where bit i is set. */
FORCE_INLINE __m256i bits_to_bytes(uint32_t bits)
{
    const __m256i bytes = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), bytes);
    return _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
}

/* ---- Scales ---- */

FORCE_INLINE __m128i twice_and_one(__m128i s)
{
    return _mm_or_si128(_mm_add_epi8(s, s), _mm_set1_epi8(1));
}

/* Nibbles of eight bytes, the low one of each first. */
FORCE_INLINE __m128i nibbles_in_order(__m128i bytes)
{
    __m128i wide = _mm_cvtepu8_epi16(bytes);
    return _mm_and_si128(_mm_or_si128(wide, _mm_slli_epi16(wide, 4)), _mm_set1_epi8(15));
}

/* Eight dwords below 256 as bytes. */
FORCE_INLINE __m128i eight_bytes(__m256i dwords)
{
    __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(dwords), _mm256_extracti128_si256(dwords, 1));
    return _mm_packus_epi16(words, words);
}

/* s of sub-block j of IQ1_M: three bits, four of them to a word. */
FORCE_INLINE __m128i iq1_m_scales(const uint8_t *block)
{
    uint64_t words, bytes[2];
    memcpy(&words, block + 48, sizeof words);
    for (int i = 0; i < 2; i++) {
        uint64_t a = words >> 32 * i & 0xffff, b = words >> (32 * i + 16) & 0xffff;
        bytes[i] = (a & 7) | (a << 5 & 0x700) | (a << 10 & 0x70000) | (a << 15 & 0x7000000) |
                   ((b & 7) | (b << 5 & 0x700) | (b << 10 & 0x70000) | (b << 15 & 0x7000000)) << 32;
    }
    return load_16_bytes(bytes);
}

/* The scales of a block as bytes: eight, or sixteen. Ones of TQ1_0. */
FORCE_INLINE __m128i grid_scales(enum tensor_format f, const uint8_t *block)
{
    __m128i s;
    switch (f) {
    case FORMAT_IQ1_S: {
        __m128i high = _mm_and_si128(_mm_srli_epi16(load_16_bytes(block + 34), 12), _mm_set1_epi16(7));
        s = _mm_packus_epi16(high, high);
        break;
    }
    case FORMAT_IQ1_M: s = iq1_m_scales(block); break;
    case FORMAT_IQ2_XS: s = nibbles_in_order(load_8_bytes(block + 66)); break;
    case FORMAT_IQ2_S: s = nibbles_in_order(load_8_bytes(block + 74)); break;
    case FORMAT_IQ3_S: s = nibbles_in_order(_mm_cvtsi32_si128((int)u32_at(block + 106))); break;
    case FORMAT_TQ1_0: return _mm_set1_epi8(1);
    default: s = eight_bytes(_mm256_srli_epi32(signs_and_scales(f, block), 28));
    }
    return twice_and_one(s);
}

/* ---- Numbers ---- */

FORCE_INLINE __m256i four_rows(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return _mm256_set_epi64x((long long)d, (long long)c, (long long)b, (long long)a);
}

FORCE_INLINE __m256i eight_rows(const uint32_t *grid, const uint32_t i[8])
{
    return _mm256_setr_epi32((int)grid[i[0]], (int)grid[i[1]], (int)grid[i[2]], (int)grid[i[3]], (int)grid[i[4]],
                             (int)grid[i[5]], (int)grid[i[6]], (int)grid[i[7]]);
}

/* Rows of unit u. Indices are below the number of rows by the bits that they have. */
FORCE_INLINE __m256i rows_of_unit(enum tensor_format f, const uint8_t *block, int u)
{
    uint64_t row[4];
    uint32_t i3[8];
    for (int i = 0; i < 4; i++) {
        const uint8_t *at = block + 2 + 4 * u + i;
        switch (f) {
        case FORMAT_IQ1_S: row[i] = afmoe__iq1_grid[*at | (u16_at(block + 34 + 2 * u) >> 3 * i & 7) << 8]; break;
        case FORMAT_IQ1_M:
            row[i] = afmoe__iq1_grid[at[-2] | (block[32 + 2 * u + i / 2] >> 4 * (i % 2) & 7) << 8];
            break;
        case FORMAT_IQ2_XXS: row[i] = afmoe__iq2_xxs_grid[block[2 + 8 * u + i]]; break;
        case FORMAT_IQ2_XS: row[i] = afmoe__iq2_xs_grid[u16_at(block + 2 + 8 * u + 2 * i) & 511]; break;
        case FORMAT_IQ2_S: row[i] = afmoe__iq2_s_grid[*at | (block[66 + u] >> 2 * i & 3) << 8]; break;
        default: row[i] = 0;
        }
    }
    if (!is_iq3(f)) return four_rows(row[0], row[1], row[2], row[3]);
    for (int i = 0; i < 8; i++) {
        i3[i] = block[2 + 8 * u + i];
        if (f == FORMAT_IQ3_S) i3[i] |= (uint32_t)(block[66 + u] >> i & 1) << 8;
    }
    return eight_rows(f == FORMAT_IQ3_S ? afmoe__iq3_s_grid : afmoe__iq3_xxs_grid, i3);
}

/* 2 where an eighth is added, 0 where it is taken away. */
FORCE_INLINE __m256i two_eighths(enum tensor_format f, const uint8_t *block, int u)
{
    if (f == FORMAT_IQ1_S) return _mm256_set1_epi8(u16_at(block + 34 + 2 * u) >> 15 ? 0 : 2);
    const __m256i spread = _mm256_setr_epi64x(0, 0, 0x0101010101010101, 0x0101010101010101);
    const __m256i bit = _mm256_setr_epi64x(0x0808080808080808, (long long)0x8080808080808080, 0x0808080808080808,
                                           (long long)0x8080808080808080);
    __m256i high = _mm256_shuffle_epi8(_mm256_set1_epi16((short)u16_at(block + 32 + 2 * u)), spread);
    __m256i is_plus = _mm256_cmpeq_epi8(_mm256_and_si256(high, bit), _mm256_setzero_si256());
    return _mm256_and_si256(is_plus, _mm256_set1_epi8(2));
}

/* The digit of each byte: floor(3 b / 256) */
FORCE_INLINE __m256i digits_of(__m256i b)
{
    __m256i one = _mm256_cmpeq_epi8(_mm256_max_epu8(b, _mm256_set1_epi8(86)), b);
    __m256i two = _mm256_cmpeq_epi8(_mm256_max_epu8(b, _mm256_set1_epi8((char)171)), b);
    return _mm256_sub_epi8(_mm256_setzero_si256(), _mm256_add_epi8(one, two));
}

FORCE_INLINE __m256i three_times(__m256i b, int n_times)
{
    for (int i = 0; i < n_times; i++) b = _mm256_add_epi8(_mm256_add_epi8(b, b), b);
    return b;
}

/* Units 0..4 are the digits of 32 bytes; 5, 6 and the first half of 7 those of 16 bytes, two at a time; the last half
 * is the digits of four bytes. */
FORCE_INLINE __m256i ternary_digits(const uint8_t *block, int u)
{
    if (u < 5) return digits_of(three_times(load_32_bytes(block), u));
    __m256i twice = _mm256_broadcastsi128_si256(load_16_bytes(block + 32));
    if (u < 7) {
        __m256i first = three_times(twice, 2 * (u - 5));
        return digits_of(_mm256_blend_epi32(first, three_times(first, 1), 0xf0));
    }
    __m256i four = _mm256_set1_epi32((int)u32_at(block + 48)), three = three_times(four, 1);
    __m256i nine = three_times(three, 1), last = three_times(nine, 1);
    __m256i first = _mm256_blend_epi32(four, three, 0x20);
    __m256i both = _mm256_blend_epi32(first, _mm256_blend_epi32(nine, last, 0x80), 0xc0);
    return digits_of(_mm256_blend_epi32(three_times(twice, 4), both, 0xf0));
}

FORCE_INLINE __m256i grid_numbers(enum tensor_format f, const uint8_t *block, int u, const uint32_t signs[8])
{
    if (f == FORMAT_TQ1_0) return ternary_digits(block, u);
    __m256i rows = rows_of_unit(f, block, u);
    if (is_iq1(f)) return _mm256_add_epi8(rows, two_eighths(f, block, u));
    __m256i minus = bits_to_bytes(signs[u]); /* -x is ~x + 1 */
    __m256i zero = _mm256_sub_epi8(_mm256_set1_epi8((char)grid_zero(f)), minus);
    return _mm256_add_epi8(_mm256_xor_si256(rows, minus), zero);
}

#endif
