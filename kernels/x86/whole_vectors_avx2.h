/* Scales and minima of a block as whole numbers, and sums of integer vectors: what the products of
 * ref/whole_product_ref.c are made of at AVX2. Every function is folded for a constant format. Static only: it is
 * compiled with the flags of its level. */
#ifndef AFMOE_KERNELS_WHOLE_VECTORS_AVX2_H
#define AFMOE_KERNELS_WHOLE_VECTORS_AVX2_H

#include "block_vectors_avx2.h"
#include "ref/whole_blocks.h"

/* gcc makes trees of long integer sums, whose leaves do not fit the registers, unless it is kept from it after each: a
 * third of the speed of panels. */
#ifndef KEEP_IN_ORDER
#define KEEP_IN_ORDER(v) __asm__("" : "+x"(v))
#endif

/* Sixteen bytes, the same in both halves. */
#define IN_BOTH_HALVES(...) _mm256_setr_epi8(__VA_ARGS__, __VA_ARGS__)

/* Bytes under one scale inside a block of 256. */
FORCE_INLINE int values_of_scale(enum tensor_format f)
{
    return f == FORMAT_Q2_K || f == FORMAT_Q3_K || f == FORMAT_Q6_K ? 16 : 32;
}

FORCE_INLINE bool is_signed(enum tensor_format f)
{
    return f == FORMAT_IQ4_NL || f == FORMAT_IQ4_XS || f == FORMAT_Q8_0;
}

FORCE_INLINE __m128i load_16_bytes(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

FORCE_INLINE __m256i load_32_bytes(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* 16-bit scales of a block of 256, natural order: 8 of them in the low half, or 16; and minima alike. Not of Q4_K and
 * Q5_K, whose blocks are taken two at a time. */
FORCE_INLINE void scale_words(enum tensor_format f, const uint8_t *block, __m256i *scales, __m256i *mins)
{
    uint64_t a, b;
    const __m128i low4 = _mm_set1_epi8(15);
    __m128i bytes;
    *mins = _mm256_setzero_si256();
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
        *scales = _mm256_castsi128_si256(
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

/* d of part `part` of four blocks `stride` bytes apart (whole_d of whole_blocks.h). */
FORCE_INLINE __m128 four_d(enum tensor_format f, const uint8_t *block, uint64_t stride, int part)
{
    if (f == FORMAT_MXFP4 || f == FORMAT_NVFP4 || whole_unit(f) != 1) {
        float d[4];
        for (int r = 0; r < 4; r++) d[r] = whole_d(f, block + (uint64_t)r * stride, part);
        return _mm_loadu_ps(d);
    }
    return four_halves(block + scale_at(f), stride);
}

#endif
