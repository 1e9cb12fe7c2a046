/* One row of floats stored as key/value cells of 16 bits, rounded eight at a time to the bits of half.h, or of 8
 * (q8_cells.h), then put where page.h wants them. Float cells stay with the reference, which only moves them. */
#include "avx2.h"

#include "half.h"
#include "q8_cells.h"
#include "quantize_avx2.h"

enum { PIECE = 128 }; /* cells rounded before they are put in place; a multiple of PAGE_LANES */

FORCE_INLINE __m128i narrow_bf16(__m256 x)
{
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

FORCE_INLINE void narrow(uint16_t out[PIECE], const float *x, uint64_t n, enum cell_format format)
{
    uint64_t k = 0;
    for (; k + 8 <= n; k += 8) {
        __m256 v = _mm256_loadu_ps(x + k);
        __m128i h = format == CELLS_BF16 ? narrow_bf16(v)
                                         : _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm_storeu_si128((__m128i *)(void *)(out + k), h);
    }
    for (; k < n; k++) out[k] = format == CELLS_BF16 ? bf16_from_f32(x[k]) : f16_from_f32(x[k]);
}

FORCE_INLINE void store_key(uint8_t *keys, const float *x, uint64_t head_dim, uint32_t position,
                            enum cell_format format)
{
    uint16_t cells[PIECE];
    for (uint64_t first = 0; first < head_dim; first += PIECE) {
        uint64_t n = head_dim - first < PIECE ? head_dim - first : PIECE;
        narrow(cells, x + first, n, format);
        uint8_t *p = keys + key_offset(format, head_dim, position, first);
        for (uint64_t i = 0; i < n; i++) memcpy(p + 2 * cell_in_tile(format, i, 0), &cells[i], 2);
    }
}

FORCE_INLINE void store_value(uint8_t *values, const float *x, uint64_t head_dim, uint32_t position,
                              enum cell_format format)
{
    uint16_t cells[PIECE];
    for (uint64_t first = 0; first < head_dim; first += PIECE) {
        uint64_t n = head_dim - first < PIECE ? head_dim - first : PIECE;
        narrow(cells, x + first, n, format);
        for (uint64_t i = 0; i < n; i++) memcpy(values + value_offset(format, position, first + i), &cells[i], 2);
    }
}

#define DEFINE_STORE(name, format)                                                                                     \
    static void store_key_##name(void *keys, const float *x, uint64_t head_dim, uint32_t position)                     \
    {                                                                                                                  \
        store_key(keys, x, head_dim, position, format);                                                                \
    }                                                                                                                  \
    static void store_value_##name(void *values, const float *x, uint64_t head_dim, uint32_t position)                 \
    {                                                                                                                  \
        store_value(values, x, head_dim, position, format);                                                            \
    }

DEFINE_STORE(f16, CELLS_F16)
DEFINE_STORE(bf16, CELLS_BF16)

/* The cells of a group, zeros after the first n; returns the scale. */
FORCE_INLINE uint16_t narrow_group(int8_t c[CELL_GROUP], const float *x, uint64_t n)
{
    float padded[CELL_GROUP] = {0};
    if (n < CELL_GROUP) x = memcpy(padded, x, n * sizeof *x);
    uint16_t scale = q8_scale(float_from_bits(largest_bits(x, CELL_GROUP)));
    float factor = q8_factor(scale);
    __m256i whole = factor > 0 ? quantize32(x, _mm256_set1_ps(factor)) : _mm256_setzero_si256();
    _mm256_storeu_si256((__m256i *)(void *)c, whole);
    return scale;
}

static void store_key_q8_0(void *keys, const float *x, uint64_t head_dim, uint32_t position)
{
    uint8_t *p = (uint8_t *)keys + key_offset(CELLS_Q8_0, head_dim, position, 0);
    uint8_t *scales = keys;
    for (uint64_t g = 0; g < cell_groups(head_dim); g++, p += cell_group_bytes(CELLS_Q8_0, PAGE_LANES, CELL_GROUP)) {
        uint64_t left = head_dim - g * CELL_GROUP, n = left < CELL_GROUP ? left : CELL_GROUP;
        int8_t c[CELL_GROUP];
        uint16_t scale = narrow_group(c, x + g * CELL_GROUP, n);
        for (uint64_t i = 0; i < n; i++) memcpy(p + cell_in_tile(CELLS_Q8_0, i, 0), &c[i], 1);
        memcpy(scales + key_scale_offset(CELLS_Q8_0, head_dim, position, g), &scale, sizeof scale);
    }
}

static void store_value_q8_0(void *values, const float *x, uint64_t head_dim, uint32_t position)
{
    uint8_t *p = values;
    for (uint64_t g = 0; g < cell_groups(head_dim); g++) {
        uint64_t first = g * CELL_GROUP, left = head_dim - first, n = left < CELL_GROUP ? left : CELL_GROUP;
        int8_t c[CELL_GROUP];
        uint16_t scale = narrow_group(c, x + first, n);
        memcpy(p + value_scale_offset(CELLS_Q8_0, position, g), &scale, sizeof scale);
        for (uint64_t i = 0; i < n; i += PAGE_LANES)
            memcpy(p + value_offset(CELLS_Q8_0, position, first + i), c + i, n - i < PAGE_LANES ? n - i : PAGE_LANES);
    }
}

void afmoe__cells_avx2(struct kernels *k)
{
    k->store_key[CELLS_F16] = store_key_f16;
    k->store_key[CELLS_BF16] = store_key_bf16;
    k->store_key[CELLS_Q8_0] = store_key_q8_0;
    k->store_value[CELLS_F16] = store_value_f16;
    k->store_value[CELLS_BF16] = store_value_bf16;
    k->store_value[CELLS_Q8_0] = store_value_q8_0;
}
