/* The IQ formats of 1 to 3 bits: blocks of 256 values, eight or four at a time from a grid (iq_grids.h), with signs.
 *
 *   IQ2_XXS  66 bytes: f16 d, 8 x (index[4], u32 signs and scale)      d * (s + 1/2) / 4 * grid * sign, s: bits 28..31
 *   IQ2_XS   74 bytes: f16 d, u16 index and signs[32], scales[8]       the same, a nibble s for 16 values
 *   IQ2_S    82 bytes: f16 d, index[32], signs[32], high[8], scales[8] the same
 *   IQ3_XXS  98 bytes: f16 d, index[64], u32 signs and scale[8]        d * (s + 1/2) / 2 * grid * sign
 *   IQ3_S   110 bytes: f16 d, index[64], high[8], signs[32], scales[4] d * (2 s + 1) * grid * sign, a nibble s for 32
 *   IQ1_S    50 bytes: f16 d, index[32], u16 high[8]                   d * (2 s + 1) * (grid +- 1/8), for 32 values:
 *                     9 bits of indices, 3 of s, 1 that says minus
 *   IQ1_M    56 bytes: index[32], high[16], u16 scales[4]              the same, s for 16 values and +- for 8; d is
 *                     spread over the top nibbles of the scales
 *
 * Seven bits of signs stand for eight: the number of minus signs is even. */
#include "decode.h"

#include "iq_grids.h"

#include <stdbool.h>

static uint8_t eight_signs(uint32_t seven)
{
    uint32_t s = seven & 127, parity = s ^ s >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return (uint8_t)(s | (parity & 1) << 7);
}

/* Eight values of one row of a 2-bit grid. */
static void put_eight(float *out, uint64_t row, float scale, uint8_t signs)
{
    for (int i = 0; i < 8; i++) {
        float x = scale * (float)(row >> 8 * i & 255);
        out[i] = signs >> i & 1 ? -x : x;
    }
}

/* Eight values of two rows of a 3-bit grid. */
static void put_twice_four(float *out, uint32_t first, uint32_t second, float scale, uint8_t signs)
{
    put_eight(out, first | (uint64_t)second << 32, scale, signs);
}

static float quarter_scale(float d, uint32_t s)
{
    return d * (0.5f + (float)s) * 0.25f;
}

void afmoe__decode_iq2_xxs(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 256, block += 66) {
        float d = f16_at(block);
        for (int j = 0; j < 8; j++) {
            const uint8_t *index = block + 2 + 8 * j;
            uint32_t signs = u32_at(index + 4);
            float scale = quarter_scale(d, signs >> 28);
            for (int i = 0; i < 4; i++)
                put_eight(out + k + 32 * j + 8 * i, afmoe__iq2_xxs_grid[index[i]], scale, eight_signs(signs >> 7 * i));
        }
    }
}

void afmoe__decode_iq2_xs(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 256, block += 74) {
        float d = f16_at(block);
        for (int i = 0; i < 32; i++) {
            uint16_t index = u16_at(block + 2 + 2 * i);
            uint32_t s = block[66 + i / 4] >> 4 * (i / 2 % 2) & 15;
            put_eight(out + k + 8 * i, afmoe__iq2_xs_grid[index & 511], quarter_scale(d, s), eight_signs(index >> 9));
        }
    }
}

void afmoe__decode_iq2_s(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 256, block += 82) {
        const uint8_t *low = block + 2, *signs = block + 34, *high = block + 66, *scales = block + 74;
        float d = f16_at(block);
        for (int i = 0; i < 32; i++) {
            int index = low[i] | (high[i / 4] >> 2 * (i % 4) & 3) << 8;
            uint32_t s = scales[i / 4] >> 4 * (i / 2 % 2) & 15;
            put_eight(out + k + 8 * i, afmoe__iq2_s_grid[index], quarter_scale(d, s), signs[i]);
        }
    }
}

void afmoe__decode_iq3_xxs(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 256, block += 98) {
        float d = f16_at(block);
        for (int j = 0; j < 8; j++) {
            const uint8_t *index = block + 2 + 8 * j;
            uint32_t signs = u32_at(block + 66 + 4 * j);
            float scale = d * (0.5f + (float)(signs >> 28)) * 0.5f;
            for (int i = 0; i < 4; i++)
                put_twice_four(out + k + 32 * j + 8 * i, afmoe__iq3_xxs_grid[index[2 * i]],
                               afmoe__iq3_xxs_grid[index[2 * i + 1]], scale, eight_signs(signs >> 7 * i));
        }
    }
}

static uint32_t iq3_s_row(const uint8_t *low, const uint8_t *high, int i)
{
    return afmoe__iq3_s_grid[low[i] | (high[i / 8] >> i % 8 & 1) << 8];
}

void afmoe__decode_iq3_s(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 256, block += 110) {
        const uint8_t *low = block + 2, *high = block + 66, *signs = block + 74, *scales = block + 106;
        float d = f16_at(block);
        for (int i = 0; i < 32; i++) {
            int s = scales[i / 8] >> 4 * (i / 4 % 2) & 15;
            put_twice_four(out + k + 8 * i, iq3_s_row(low, high, 2 * i), iq3_s_row(low, high, 2 * i + 1),
                           d * (float)(2 * s + 1), signs[i]);
        }
    }
}

/* Eight values of the 1-bit grid. */
static void put_ternary(float *out, uint64_t row, float scale, bool minus)
{
    int delta = minus ? -1 : 1;
    for (int i = 0; i < 8; i++) out[i] = scale * 0.125f * (float)((int)(row >> 8 * i & 255) - 15 + delta);
}

void afmoe__decode_iq1_s(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 256, block += 50) {
        float d = f16_at(block);
        for (int j = 0; j < 8; j++) {
            uint16_t high = u16_at(block + 34 + 2 * j);
            float scale = d * (float)(2 * (high >> 12 & 7) + 1);
            for (int i = 0; i < 4; i++) {
                int index = block[2 + 4 * j + i] | (high >> 3 * i & 7) << 8;
                put_ternary(out + k + 32 * j + 8 * i, afmoe__iq1_grid[index], scale, high >> 15);
            }
        }
    }
}

void afmoe__decode_iq1_m(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 256, block += 56) {
        const uint8_t *low = block, *high = block + 32, *scales = block + 48;
        float d = f16_to_f32(iq1_m_scale(block));
        for (int i = 0; i < 32; i++) {
            int h = high[i / 2] >> 4 * (i % 2);
            int s = u16_at(scales + i / 8 * 2) >> i / 2 % 4 * 3 & 7;
            put_ternary(out + k + 8 * i, afmoe__iq1_grid[low[i] | (h & 7) << 8], d * (float)(2 * s + 1), h & 8);
        }
    }
}
