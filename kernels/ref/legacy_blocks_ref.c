/* Blocks of 32 values with one scale, GGUF's oldest formats. d and m are f16, q unsigned numbers; value i of a block:
 *
 *   Q8_0  34 bytes: d, int8 q[32]               d * q
 *   Q4_0  18 bytes: d, nibbles[16]              d * (q - 8)
 *   Q4_1  20 bytes: d, m, nibbles[16]           d * q + m
 *   Q5_0  22 bytes: d, high[4], nibbles[16]     d * (q - 16)
 *   Q5_1  24 bytes: d, m, high[4], nibbles[16]  d * q + m
 *
 * The low nibble of byte i belongs to value i, the high one to value i + 16; bit i of `high` is bit 4 of value i. All
 * products are exact in float32. */
#include "decode.h"

static int nibble(const uint8_t nibbles[16], int i)
{
    return nibbles[i % 16] >> 4 * (i / 16) & 15;
}

static int five_bits(uint32_t high, const uint8_t nibbles[16], int i)
{
    return nibble(nibbles, i) | (int)(high >> i & 1) << 4;
}

void afmoe__decode_q8_0(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 32, block += 34) {
        float d = f16_at(block);
        for (int i = 0; i < 32; i++) out[k + i] = d * (float)(int8_t)block[2 + i];
    }
}

void afmoe__decode_q4_0(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 32, block += 18) {
        float d = f16_at(block);
        for (int i = 0; i < 32; i++) out[k + i] = d * (float)(nibble(block + 2, i) - 8);
    }
}

void afmoe__decode_q4_1(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 32, block += 20) {
        float d = f16_at(block), m = f16_at(block + 2);
        for (int i = 0; i < 32; i++) out[k + i] = d * (float)nibble(block + 4, i) + m;
    }
}

void afmoe__decode_q5_0(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 32, block += 22) {
        float d = f16_at(block);
        uint32_t high = u32_at(block + 2);
        for (int i = 0; i < 32; i++) out[k + i] = d * (float)(five_bits(high, block + 6, i) - 16);
    }
}

void afmoe__decode_q5_1(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 32, block += 24) {
        float d = f16_at(block), m = f16_at(block + 2);
        uint32_t high = u32_at(block + 4);
        for (int i = 0; i < 32; i++) out[k + i] = d * (float)five_bits(high, block + 8, i) + m;
    }
}
