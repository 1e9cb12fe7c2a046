/* Scales and minima of a block as whole numbers, and sums of integer vectors: what the products of
 * ref/whole_product_ref.c are made of at AVX2; the file that includes it first says HAS_DOT (whole_avx2.c). Every
 * function is folded for a constant format. Static only: it is compiled with the flags of its level. */
#ifndef AFMOE_KERNELS_WHOLE_VECTORS_AVX2_H
#define AFMOE_KERNELS_WHOLE_VECTORS_AVX2_H

#include "block_vectors_avx2.h"

/* gcc makes trees of long integer sums, whose leaves do not fit the registers, unless it is kept from it after each: a
 * third of the speed of panels. */
#ifndef KEEP_IN_ORDER
#define KEEP_IN_ORDER(v) __asm__("" : "+x"(v))
#endif

/* What is loaded after this is not loaded before it. */
#define KEEP_INSIDE() __asm__ volatile("" ::: "memory")

/* Sixteen bytes, the same in both halves. */
#define IN_BOTH_HALVES(...) _mm256_setr_epi8(__VA_ARGS__, __VA_ARGS__)

/* Bytes under one scale inside a block of 256. */
FORCE_INLINE int values_of_scale(enum tensor_format f)
{
    return UNIT / scales_in_unit(f);
}

FORCE_INLINE bool is_ternary(enum tensor_format f)
{
    return f == FORMAT_TQ1_0 || f == FORMAT_TQ2_0;
}

FORCE_INLINE bool is_signed(enum tensor_format f)
{
    return f == FORMAT_IQ4_NL || f == FORMAT_IQ4_XS || f == FORMAT_Q8_0;
}

/* What is to be taken from the numbers of a format at this level; signed numbers are made bytes for the dot product. */
FORCE_INLINE int level_zero(enum tensor_format f)
{
    return HAS_DOT && is_signed(f) ? 128 : zero_of(f);
}

/* 16-bit scales of a block of 256, natural order: 8 of them in the low half, or 16; and minima alike. Not of Q4_K and
 * Q5_K, whose blocks are taken two at a time. */
FORCE_INLINE void scale_words(enum tensor_format f, const uint8_t *block, __m256i *scales, __m256i *mins)
{
    uint64_t a, b;
    const __m128i low4 = _mm_set1_epi8(15);
    __m128i bytes;
    *mins = _mm256_setzero_si256();
    if (is_grid(f)) {
        *scales = _mm256_cvtepu8_epi16(grid_scales(f, block));
        return;
    }
    switch (f) {
    case FORMAT_Q2_K:
        bytes = load_16_bytes(block);
        *scales = _mm256_cvtepu8_epi16(_mm_and_si128(bytes, low4));
        *mins = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(bytes, 4), low4));
        break;
    case FORMAT_Q3_K:
        q3_k_bytes(block, &a, &b);
        bytes = _mm_set_epi64x((long long)b, (long long)a);
        *scales = _mm256_cvtepi8_epi16(_mm_sub_epi8(bytes, _mm_set1_epi8(32)));
        break;
    case FORMAT_Q6_K: *scales = _mm256_cvtepi8_epi16(load_16_bytes(block + 192)); break;
    case FORMAT_IQ4_XS: {
        __m256i eight = iq4_xs_scales(block);
        *scales = _mm256_zextsi128_si256(
            _mm_packs_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1)));
        break;
    }
    default: *scales = _mm256_set1_epi16(1);
    }
}

/* iq4_values + 128 */
static const uint8_t iq4_from_zero[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};

/* Sums of the eight lanes of four vectors. */
FORCE_INLINE __m128i sum8x4_epi32(__m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    return _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
}

/* Four halves `stride` bytes apart as floats. */
FORCE_INLINE __m128 four_halves(const uint8_t *p, uint64_t stride)
{
    uint64_t bits = 0;
    for (int r = 0; r < 4; r++) bits |= (uint64_t)u16_at(p + (uint64_t)r * stride) << 16 * r;
    return _mm_cvtph_ps(_mm_cvtsi64_si128((long long)bits));
}

/* d of the formats that store it as a byte, in every lane: e8m0_half and ue4m3_half of ref/decode.h. */
FORCE_INLINE __m256 d_of_bytes(enum tensor_format f, __m256i bytes)
{
    if (f == FORMAT_MXFP4) {
        __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(bytes, _mm256_set1_epi32(1)), 23);
        __m256i low = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), bytes);
        __m256i is_low = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), bytes);
        return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, low, is_low));
    }
    const __m256i least_normal = _mm256_set1_epi32(8), seven_bits = _mm256_set1_epi32(0x7f);
    __m256i number = _mm256_and_si256(bytes, seven_bits);
    __m256i normal = _mm256_add_epi32(_mm256_slli_epi32(number, 20), _mm256_set1_epi32((127 - 8) << 23));
    __m256 low = _mm256_mul_ps(_mm256_cvtepi32_ps(number), _mm256_set1_ps(0x1p-10f));
    __m256 is_low = _mm256_castsi256_ps(_mm256_cmpgt_epi32(least_normal, number));
    __m256 d = _mm256_blendv_ps(_mm256_castsi256_ps(normal), low, is_low);
    return _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(bytes, seven_bits)), d);
}

FORCE_INLINE bool has_byte_d(enum tensor_format f)
{
    return f == FORMAT_MXFP4 || f == FORMAT_NVFP4;
}

/* d of four blocks `stride` bytes apart. Not of NVFP4. */
FORCE_INLINE __m128 four_d(enum tensor_format f, const uint8_t *block, uint64_t stride)
{
    if (f == FORMAT_MXFP4) {
        uint32_t bytes = 0;
        for (int r = 0; r < 4; r++) bytes |= (uint32_t)block[(uint64_t)r * stride] << 8 * r;
        return _mm256_castps256_ps128(d_of_bytes(f, _mm256_cvtepu8_epi32(_mm_cvtsi32_si128((int)bytes))));
    }
    uint64_t bits = 0;
    for (int r = 0; r < 4; r++) bits |= (uint64_t)scale_bits(f, block + (uint64_t)r * stride) << 16 * r;
    __m128 stored = _mm_cvtph_ps(_mm_cvtsi64_si128((long long)bits));
    return whole_unit(f) == 1 ? stored : _mm_mul_ps(stored, _mm_set1_ps(1 / whole_unit(f)));
}

/* d of parts 2u and 2u + 1 of four blocks of NVFP4, the four of a part in a half. */
FORCE_INLINE __m256 four_d_of_unit(const uint8_t *block, uint64_t stride, int u)
{
    uint64_t bytes = 0;
    for (int r = 0; r < 4; r++) bytes |= (uint64_t)u16_at(block + (uint64_t)r * stride + 2 * u) << 16 * r;
    const __m128i by_part = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, -1, -1, -1, -1, -1, -1, -1, -1);
    __m128i sorted = _mm_shuffle_epi8(_mm_cvtsi64_si128((long long)bytes), by_part);
    return d_of_bytes(FORMAT_NVFP4, _mm256_cvtepu8_epi32(sorted));
}

#endif
