/* Blocks of weights as vectors of floats, 32 values (a unit) at a time. Codes come out by shifts, masks and one look-up
 * in a table of 16 bytes, or as grid_vectors_avx2.h says.
 *
 * A value is scale * q + offset with q a whole number of one byte. scale * q is exact, so the one rounding of the
 * fused multiply-add is that of the sum: the bits are those of the reference. Every function is folded for a constant
 * format. Static only: it is compiled with the flags of its level. */
#ifndef AFMOE_KERNELS_BLOCK_VECTORS_AVX2_H
#define AFMOE_KERNELS_BLOCK_VECTORS_AVX2_H

#include "grid_vectors_avx2.h"
#include "ref/whole_blocks.h"

#include <stdbool.h>

enum { UNIT = 32, UNIT_VECTORS = 4 };

/* One for every 16 or 32 values of a block, see scales_in_unit. */
struct block_scales {
    float scale[16], offset[16];
    uint32_t signs[8]; /* grid_signs */
};

FORCE_INLINE int scales_in_unit(enum tensor_format f)
{
    switch (f) {
    case FORMAT_Q2_K:
    case FORMAT_Q3_K:
    case FORMAT_Q6_K:
    case FORMAT_IQ1_M:
    case FORMAT_IQ2_XS:
    case FORMAT_IQ2_S:
    case FORMAT_NVFP4: return 2;
    default: return 1;
    }
}

FORCE_INLINE float half_at(const uint8_t *p)
{
    return _cvtsh_ss(u16_at(p));
}

FORCE_INLINE uint64_t two_u32(uint32_t low, uint32_t high)
{
    return (uint64_t)high << 32 | low;
}

/* out[0..7] = d * eight whole numbers */
FORCE_INLINE void scale_eight(float *out, float d, __m256i numbers)
{
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(numbers)));
}

FORCE_INLINE __m256i eight_unsigned(uint64_t bytes)
{
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
}

FORCE_INLINE __m256i eight_signed(const uint8_t *p)
{
    return _mm256_cvtepi8_epi32(load_8_bytes(p));
}

/* scale_and_min of decode.h for all eight sub-blocks, one byte each */
FORCE_INLINE void k4_bytes(const uint8_t *block, uint64_t *scales, uint64_t *mins)
{
    uint32_t a = u32_at(block + 4), b = u32_at(block + 8), c = u32_at(block + 12);
    *scales = two_u32(a & 0x3f3f3f3f, (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030));
    *mins = two_u32(b & 0x3f3f3f3f, (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030));
}

FORCE_INLINE void prepare_k4(struct block_scales *s, const uint8_t *block)
{
    uint64_t scales, mins;
    k4_bytes(block, &scales, &mins);
    scale_eight(s->scale, half_at(block), eight_unsigned(scales));
    scale_eight(s->offset, -half_at(block + 2), eight_unsigned(mins));
}

FORCE_INLINE void prepare_q2_k(struct block_scales *s, const uint8_t *block)
{
    float d = half_at(block + 80), dmin = half_at(block + 82);
    for (int i = 0; i < 2; i++) {
        uint64_t packed;
        memcpy(&packed, block + 8 * i, sizeof packed);
        scale_eight(s->scale + 8 * i, d, eight_unsigned(packed & 0x0f0f0f0f0f0f0f0f));
        scale_eight(s->offset + 8 * i, -dmin, eight_unsigned(packed >> 4 & 0x0f0f0f0f0f0f0f0f));
    }
}

/* q3_k_scale of decode.h for all sixteen sub-blocks, one byte each, before 32 is taken away */
FORCE_INLINE void q3_k_bytes(const uint8_t *block, uint64_t *first, uint64_t *second)
{
    uint32_t a = u32_at(block + 96), b = u32_at(block + 100), c = u32_at(block + 104);
    uint32_t j0 = (a & 0x0f0f0f0f) | (c << 4 & 0x30303030), j4 = (b & 0x0f0f0f0f) | (c << 2 & 0x30303030);
    uint32_t j8 = (a >> 4 & 0x0f0f0f0f) | (c & 0x30303030), j12 = (b >> 4 & 0x0f0f0f0f) | (c >> 2 & 0x30303030);
    *first = two_u32(j0, j4);
    *second = two_u32(j8, j12);
}

FORCE_INLINE void prepare_q3_k(struct block_scales *s, const uint8_t *block)
{
    float d = half_at(block + 108);
    uint64_t first, second;
    q3_k_bytes(block, &first, &second);
    __m256i bias = _mm256_set1_epi32(32);
    scale_eight(s->scale, d, _mm256_sub_epi32(eight_unsigned(first), bias));
    scale_eight(s->scale + 8, d, _mm256_sub_epi32(eight_unsigned(second), bias));
}

/* iq4_xs_scale of decode.h for all eight sub-blocks */
FORCE_INLINE __m256i iq4_xs_scales(const uint8_t *block)
{
    __m256i low = _mm256_set1_epi32((int)u32_at(block + 4)), high = _mm256_set1_epi32(u16_at(block + 2));
    low = _mm256_srlv_epi32(low, _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    high = _mm256_srlv_epi32(high, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
    low = _mm256_and_si256(low, _mm256_set1_epi32(15));
    high = _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4);
    return _mm256_sub_epi32(_mm256_or_si256(low, high), _mm256_set1_epi32(32));
}

FORCE_INLINE void prepare_grid(enum tensor_format f, struct block_scales *s, const uint8_t *block)
{
    uint8_t scales[16];
    float d = whole_d(f, block, 0);
    _mm_storeu_si128((__m128i *)(void *)scales, grid_scales(f, block));
    scale_eight(s->scale, d, eight_signed(scales));
    if (scales_in_unit(f) == 2) scale_eight(s->scale + 8, d, eight_signed(scales + 8));
    grid_signs(f, s->signs, block);
}

FORCE_INLINE void prepare_scales(enum tensor_format f, struct block_scales *s, const uint8_t *block)
{
    if (is_grid(f)) {
        prepare_grid(f, s, block);
        return;
    }
    switch (f) {
    case FORMAT_Q4_1:
    case FORMAT_Q5_1: s->offset[0] = half_at(block + 2); /* fall through */
    case FORMAT_Q4_0:
    case FORMAT_Q5_0:
    case FORMAT_IQ4_NL: s->scale[0] = half_at(block); break;
    case FORMAT_MXFP4: s->scale[0] = e8m0_half(block[0]); break;
    case FORMAT_NVFP4:
        for (int j = 0; j < 4; j++) s->scale[j] = ue4m3_half(block[j]);
        break;
    case FORMAT_Q2_K: prepare_q2_k(s, block); break;
    case FORMAT_Q3_K: prepare_q3_k(s, block); break;
    case FORMAT_Q4_K:
    case FORMAT_Q5_K: prepare_k4(s, block); break;
    case FORMAT_Q6_K:
        scale_eight(s->scale, half_at(block + 208), eight_signed(block + 192));
        scale_eight(s->scale + 8, half_at(block + 208), eight_signed(block + 200));
        break;
    case FORMAT_IQ4_XS: scale_eight(s->scale, half_at(block), iq4_xs_scales(block)); break;
    case FORMAT_TQ2_0:
        for (int j = 0; j < 8; j++) s->scale[j] = half_at(block + 64);
        break;
    default: break;
    }
}

/* `mask` of every byte shifted right by `shift`; no bit of a neighbour passes the mask */
FORCE_INLINE __m256i shifted_bytes(__m256i bytes, int shift, uint8_t mask)
{
    return _mm256_and_si256(_mm256_srl_epi32(bytes, _mm_cvtsi32_si128(shift)), _mm256_set1_epi8((char)mask));
}

/* the same, then shifted left to bit `to`, by one shift in all */
FORCE_INLINE __m256i moved_bits(__m256i bytes, int from, int to, uint8_t mask)
{
    if (from >= to) return shifted_bytes(bytes, from - to, (uint8_t)(mask << to));
    __m256i moved = _mm256_sll_epi32(bytes, _mm_cvtsi32_si128(to - from));
    return _mm256_and_si256(moved, _mm256_set1_epi8((char)(mask << to)));
}

/* low nibbles of 16 bytes, then their high nibbles */
FORCE_INLINE __m256i nibbles_of(const uint8_t *p)
{
    __m256i twice = _mm256_broadcastsi128_si256(load_16_bytes(p));
    return _mm256_and_si256(_mm256_srlv_epi32(twice, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4)),
                            _mm256_set1_epi8(15));
}

/* the same for each 8 bytes */
FORCE_INLINE __m256i nibbles_of_halves(const uint8_t *p)
{
    __m256i twice = _mm256_broadcastsi128_si256(load_16_bytes(p));
    __m256i spread = _mm256_permute4x64_epi64(twice, 0 | 0 << 2 | 1 << 4 | 1 << 6);
    return _mm256_and_si256(_mm256_srlv_epi64(spread, _mm256_setr_epi64x(0, 4, 0, 4)), _mm256_set1_epi8(15));
}

/* bit i of 32 to byte i: 16 or 0 */
FORCE_INLINE __m256i fifth_bits(const uint8_t *p)
{
    return _mm256_and_si256(bits_to_bytes(u32_at(p)), _mm256_set1_epi8(16));
}

FORCE_INLINE __m256i look_up(const void *table, __m256i codes)
{
    __m128i t = _mm_loadu_si128((const __m128i *)table);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), codes);
}

/* e2m1_values + 12: never negative */
static const int8_t e2m1_from_zero[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

/* What is to be taken from unit_numbers to get q. */
FORCE_INLINE int zero_of(enum tensor_format f)
{
    if (is_grid(f)) return grid_zero(f);
    switch (f) {
    case FORMAT_Q4_0: return 8;
    case FORMAT_Q5_0: return 16;
    case FORMAT_Q3_K: return 4;
    case FORMAT_Q6_K: return 32;
    case FORMAT_TQ2_0: return 1;
    case FORMAT_MXFP4:
    case FORMAT_NVFP4: return 12;
    default: return 0;
    }
}

/* Bytes of unit u from which zero_of leaves q: at most 126, but for the tables of IQ4, which are signed. signs: those
 * of the block where the format has any. */
FORCE_INLINE __m256i unit_numbers(enum tensor_format f, const uint8_t *block, int u, const uint32_t signs[8])
{
    int half = u / 4, quarter = u % 4;
    if (is_grid(f)) return grid_numbers(f, block, u, signs);
    switch (f) {
    case FORMAT_Q4_0: return nibbles_of(block + 2);
    case FORMAT_Q4_1: return nibbles_of(block + 4);
    case FORMAT_Q5_0: return _mm256_or_si256(nibbles_of(block + 6), fifth_bits(block + 2));
    case FORMAT_Q5_1: return _mm256_or_si256(nibbles_of(block + 8), fifth_bits(block + 4));
    case FORMAT_IQ4_NL: return look_up(iq4_values, nibbles_of(block + 2));
    case FORMAT_IQ4_XS: return look_up(iq4_values, nibbles_of(block + 8 + 16 * u));
    case FORMAT_MXFP4: return look_up(e2m1_from_zero, nibbles_of(block + 1));
    case FORMAT_NVFP4: return look_up(e2m1_from_zero, nibbles_of_halves(block + 4 + 16 * u));
    case FORMAT_Q2_K: return shifted_bytes(load_32_bytes(block + 16 + 32 * half), 2 * quarter, 3);
    case FORMAT_Q3_K:
        return _mm256_or_si256(moved_bits(load_32_bytes(block), u, 2, 1),
                               shifted_bytes(load_32_bytes(block + 32 + 32 * half), 2 * quarter, 3));
    case FORMAT_Q4_K: return shifted_bytes(load_32_bytes(block + 16 + 32 * (u / 2)), 4 * (u % 2), 15);
    case FORMAT_Q5_K:
        return _mm256_or_si256(moved_bits(load_32_bytes(block + 16), u, 4, 1),
                               shifted_bytes(load_32_bytes(block + 48 + 32 * (u / 2)), 4 * (u % 2), 15));
    case FORMAT_Q6_K:
        return _mm256_or_si256(moved_bits(load_32_bytes(block + 128 + 32 * half), 2 * quarter, 4, 3),
                               shifted_bytes(load_32_bytes(block + 64 * half + 32 * (quarter % 2)), 4 * (quarter / 2),
                                             15));
    case FORMAT_TQ2_0: return shifted_bytes(load_32_bytes(block + 32 * half), 2 * quarter, 3);
    default: return _mm256_setzero_si256();
    }
}

/* The 32 numbers q of unit u as signed bytes. */
FORCE_INLINE __m256i unit_codes(enum tensor_format f, const uint8_t *block, int u, const uint32_t signs[8])
{
    __m256i numbers = unit_numbers(f, block, u, signs);
    return zero_of(f) ? _mm256_sub_epi8(numbers, _mm256_set1_epi8((char)zero_of(f))) : numbers;
}

/* The floats of unit u: v[0] the first eight. */
FORCE_INLINE void unit_values(enum tensor_format f, __m256 v[UNIT_VECTORS], const uint8_t *block,
                              const struct block_scales *s, int u)
{
    __m256i codes = unit_codes(f, block, u, s->signs);
    __m128i low = _mm256_castsi256_si128(codes), high = _mm256_extracti128_si256(codes, 1);
    __m128i eight[UNIT_VECTORS] = {low, _mm_srli_si128(low, 8), high, _mm_srli_si128(high, 8)};
    for (int i = 0; i < UNIT_VECTORS; i++) {
        int j = scales_in_unit(f) * u + (scales_in_unit(f) == 2 ? i / 2 : 0);
        __m256 q = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight[i]));
        __m256 scale = _mm256_broadcast_ss(&s->scale[j]);
        v[i] = has_min(f) ? _mm256_fmadd_ps(scale, q, _mm256_broadcast_ss(&s->offset[j])) : _mm256_mul_ps(scale, q);
    }
}

#endif
