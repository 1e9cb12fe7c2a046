/* AVX-512 and VNNI on a machine without them: included before the files kernels/x86/..._avx512.c and others when the
 * tests compile them a second time, with AVX2 flags. SIMDe (https://github.com/simd-everywhere/simde) has most of the functions; what its
 * release 0.7.4 lacks is made here of two AVX2 halves. Names that cross files get another ending, since the library
 * has the real ones. */
#ifndef AFMOE_TESTS_SIMDE_AVX512_H
#define AFMOE_TESTS_SIMDE_AVX512_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* its vectors are structs */
#define KEEP_IN_ORDER(v) (void)(v)

#define afmoe__kernels_avx512    afmoe__kernels_avx512_by_simde
#define afmoe__product_avx512    afmoe__product_avx512_by_simde
#define afmoe__whole_avx512      afmoe__whole_avx512_by_simde
#define afmoe__kernels_avxvnni   afmoe__kernels_avxvnni_by_simde
#define afmoe__kernels_avx512icl afmoe__kernels_avx512icl_by_simde
#define afmoe__kernels_avx512bf16 afmoe__kernels_avx512bf16_by_simde
#define afmoe__norm_avx512       afmoe__norm_avx512_by_simde
#define afmoe__activation_avx512 afmoe__activation_avx512_by_simde
#define afmoe__attention_avx512  afmoe__attention_avx512_by_simde

static inline __m512 simde_extra_halves(__m256 low, __m256 high)
{
    simde__m512_private r;
    r.m256[0] = low;
    r.m256[1] = high;
    return simde__m512_from_private(r);
}

static inline __m512i simde_extra_halves_i(__m256i low, __m256i high)
{
    simde__m512i_private r;
    r.m256i[0] = low;
    r.m256i[1] = high;
    return simde__m512i_from_private(r);
}

static inline __m512 simde_extra_fmadd(__m512 a, __m512 b, __m512 c)
{
    simde__m512_private x = simde__m512_to_private(a), y = simde__m512_to_private(b), z = simde__m512_to_private(c);
    return simde_extra_halves(_mm256_fmadd_ps(x.m256[0], y.m256[0], z.m256[0]),
                            _mm256_fmadd_ps(x.m256[1], y.m256[1], z.m256[1]));
}

static inline __m512 simde_extra_fnmadd(__m512 a, __m512 b, __m512 c)
{
    simde__m512_private x = simde__m512_to_private(a), y = simde__m512_to_private(b), z = simde__m512_to_private(c);
    return simde_extra_halves(_mm256_fnmadd_ps(x.m256[0], y.m256[0], z.m256[0]),
                            _mm256_fnmadd_ps(x.m256[1], y.m256[1], z.m256[1]));
}

/* SIMDe's own answers with another operand where one is NaN. */
static inline __m512 simde_extra_max(__m512 a, __m512 b)
{
    simde__m512_private x = simde__m512_to_private(a), y = simde__m512_to_private(b);
    return simde_extra_halves(_mm256_max_ps(x.m256[0], y.m256[0]), _mm256_max_ps(x.m256[1], y.m256[1]));
}

static inline __m512 simde_extra_min(__m512 a, __m512 b)
{
    simde__m512_private x = simde__m512_to_private(a), y = simde__m512_to_private(b);
    return simde_extra_halves(_mm256_min_ps(x.m256[0], y.m256[0]), _mm256_min_ps(x.m256[1], y.m256[1]));
}

static inline __m512 simde_extra_cvtph(__m256i h)
{
    return simde_extra_halves(_mm256_cvtph_ps(_mm256_castsi256_si128(h)),
                            _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1)));
}

static inline __m512i simde_extra_cvtepu16(__m256i h)
{
    return simde_extra_halves_i(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(h)),
                              _mm256_cvtepu16_epi32(_mm256_extracti128_si256(h, 1)));
}

static inline __m512i simde_extra_cvtepi8(__m128i q)
{
    return simde_extra_halves_i(_mm256_cvtepi8_epi32(q), _mm256_cvtepi8_epi32(_mm_srli_si128(q, 8)));
}

static inline __m512 simde_extra_cvtepi32(__m512i q)
{
    simde__m512i_private x = simde__m512i_to_private(q);
    return simde_extra_halves(_mm256_cvtepi32_ps(x.m256i[0]), _mm256_cvtepi32_ps(x.m256i[1]));
}

static inline __m512d simde_extra_cvtps_pd(__m256 a)
{
    simde__m512d_private r;
    r.m256d[0] = _mm256_cvtps_pd(_mm256_castps256_ps128(a));
    r.m256d[1] = _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
    return simde__m512d_from_private(r);
}

static inline __m512i simde_extra_srai(__m512i a, int n)
{
    simde__m512i_private x = simde__m512i_to_private(a);
    return simde_extra_halves_i(_mm256_srai_epi32(x.m256i[0], n), _mm256_srai_epi32(x.m256i[1], n));
}

static inline __m256 simde_extra_half(__m512 a, int i)
{
    return simde__m512_to_private(a).m256[i];
}

/* VNNI of AVX2 parts: four products of an unsigned and a signed byte, or two of words, added to each lane. Bytes as
 * words of the even and the odd ones, so that no pair saturates. */
static inline __m256i simde_extra_dot_words8(__m256i sum, __m256i a, __m256i b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

static inline __m256i simde_extra_dot_bytes8(__m256i sum, __m256i a, __m256i b)
{
    __m256i even = _mm256_and_si256(a, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(a, 8);
    sum = simde_extra_dot_words8(sum, even, _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
    return simde_extra_dot_words8(sum, odd, _mm256_srai_epi16(b, 8));
}

#define SIMDE_EXTRA_TWO(name, half)                                                                                    \
    static inline __m512i simde_extra_##name(__m512i a, __m512i b)                                                     \
    {                                                                                                                  \
        simde__m512i_private x = simde__m512i_to_private(a), y = simde__m512i_to_private(b);                           \
        return simde_extra_halves_i(half(x.m256i[0], y.m256i[0]), half(x.m256i[1], y.m256i[1]));                       \
    }
SIMDE_EXTRA_TWO(madd_words, _mm256_madd_epi16)
SIMDE_EXTRA_TWO(madd_bytes, _mm256_maddubs_epi16)
SIMDE_EXTRA_TWO(mul, _mm256_mullo_epi32)

#define SIMDE_EXTRA_DOT(name, half)                                                                                    \
    static inline __m512i simde_extra_##name(__m512i sum, __m512i a, __m512i b)                                        \
    {                                                                                                                  \
        simde__m512i_private s = simde__m512i_to_private(sum), x = simde__m512i_to_private(a);                         \
        simde__m512i_private y = simde__m512i_to_private(b);                                                           \
        return simde_extra_halves_i(half(s.m256i[0], x.m256i[0], y.m256i[0]),                                          \
                                    half(s.m256i[1], x.m256i[1], y.m256i[1]));                                         \
    }
SIMDE_EXTRA_DOT(dot_words, simde_extra_dot_words8)
SIMDE_EXTRA_DOT(dot_bytes, simde_extra_dot_bytes8)

/* Lane by lane, as the real ones: no other memory is touched. */
static inline __m512 simde_extra_maskz_loadu(uint16_t lanes, const void *p)
{
    float x[16] = {0};
    for (int i = 0; i < 16; i++)
        if (lanes >> i & 1) memcpy(&x[i], (const uint8_t *)p + 4 * i, 4);
    return simde_mm512_loadu_ps(x);
}

static inline void simde_extra_mask_storeu(void *p, uint16_t lanes, __m512 a)
{
    float x[16];
    simde_mm512_storeu_ps(x, a);
    for (int i = 0; i < 16; i++)
        if (lanes >> i & 1) memcpy((uint8_t *)p + 4 * i, &x[i], 4);
}

/* Pairs of bfloat16, the second of each first, as Intel's manual has them (its subnormal numbers are not made zero). */
static inline __m256 simde_extra_dot_bf16_8(__m256 sum, __m256i a, __m256i b)
{
    const __m256i second = _mm256_set1_epi32((int)0xffff0000);
    __m256 a1 = _mm256_castsi256_ps(_mm256_and_si256(a, second)), b1 = _mm256_castsi256_ps(_mm256_and_si256(b, second));
    __m256 a0 = _mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), b0 = _mm256_castsi256_ps(_mm256_slli_epi32(b, 16));
    return _mm256_fmadd_ps(a0, b0, _mm256_fmadd_ps(a1, b1, sum));
}

static inline __m512 simde_extra_dot_bf16(__m512 sum, __m512i a, __m512i b)
{
    simde__m512_private s = simde__m512_to_private(sum);
    simde__m512i_private x = simde__m512i_to_private(a), y = simde__m512i_to_private(b);
    return simde_extra_halves(simde_extra_dot_bf16_8(s.m256[0], x.m256i[0], y.m256i[0]),
                              simde_extra_dot_bf16_8(s.m256[1], x.m256i[1], y.m256i[1]));
}
#define DOT_BF16(sum, a, b) simde_extra_dot_bf16(sum, a, b)

static inline __m512i simde_extra_maskz_loadu16(uint32_t lanes, const void *p)
{
    uint16_t x[32] = {0};
    for (int i = 0; i < 32; i++)
        if (lanes >> i & 1) memcpy(&x[i], (const uint8_t *)p + 2 * i, 2);
    return simde_mm512_loadu_si512(x);
}

#undef _mm512_maskz_loadu_epi16
#define _mm512_maskz_loadu_epi16(m, p)    simde_extra_maskz_loadu16(m, p)

#undef _mm512_fmadd_ps
#undef _mm512_fnmadd_ps
#undef _mm512_max_ps
#undef _mm512_min_ps
#undef _mm512_cvtph_ps
#undef _mm512_cvtepu16_epi32
#undef _mm512_cvtepi8_epi32
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtps_pd
#undef _mm512_srai_epi32
#undef _mm512_extractf32x8_ps
#undef _mm512_maskz_loadu_ps
#undef _mm512_mask_storeu_ps
#undef _mm512_cvtss_f32
#define _mm512_fmadd_ps(a, b, c)          simde_extra_fmadd(a, b, c)
#define _mm512_fnmadd_ps(a, b, c)         simde_extra_fnmadd(a, b, c)
#define _mm512_max_ps(a, b)               simde_extra_max(a, b)
#define _mm512_min_ps(a, b)               simde_extra_min(a, b)
#define _mm512_cvtph_ps(h)                simde_extra_cvtph(h)
#define _mm512_cvtepu16_epi32(h)          simde_extra_cvtepu16(h)
#define _mm512_cvtepi8_epi32(q)           simde_extra_cvtepi8(q)
#define _mm512_cvtepi32_ps(q)             simde_extra_cvtepi32(q)
#define _mm512_cvtps_pd(a)                simde_extra_cvtps_pd(a)
#define _mm512_srai_epi32(a, n)           simde_extra_srai(a, n)
#define _mm512_extractf32x8_ps(a, i)      simde_extra_half(a, i)
#define _mm512_maskz_loadu_ps(m, p)       simde_extra_maskz_loadu(m, p)
#define _mm512_mask_storeu_ps(p, m, a)    simde_extra_mask_storeu(p, m, a)
#define _mm512_cvtss_f32(a)               _mm256_cvtss_f32(simde_extra_half(a, 0))

#undef _mm512_madd_epi16
#undef _mm512_maddubs_epi16
#undef _mm512_mullo_epi32
#undef _mm512_dpbusd_epi32
#undef _mm512_dpwssd_epi32
#undef _mm256_dpbusd_epi32
#define _mm512_madd_epi16(a, b)           simde_extra_madd_words(a, b)
#define _mm512_maddubs_epi16(a, b)        simde_extra_madd_bytes(a, b)
#define _mm512_mullo_epi32(a, b)          simde_extra_mul(a, b)
#define _mm512_dpbusd_epi32               simde_extra_dot_bytes
#define _mm512_dpwssd_epi32               simde_extra_dot_words
#define _mm256_dpbusd_epi32               simde_extra_dot_bytes8
#define _mm256_dpbusd_avx_epi32           simde_extra_dot_bytes8
#define _mm256_dpwssd_avx_epi32           simde_extra_dot_words8

#endif
