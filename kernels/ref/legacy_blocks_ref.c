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

/* out[i] = d * (q - zero); high 0: four bits */
static void decode_nibbles(float out[32], const uint8_t nibbles[16], uint32_t high, int zero, float d)
{
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)((int)((nibbles[i] & 15u) | (high >> i & 1) << 4) - zero);
        out[16 + i] = d * (float)((int)(nibbles[i] >> 4u | (high >> (16 + i) & 1) << 4) - zero);
    }
}

static void add_to_all(float out[32], float m)
{
    for (int i = 0; i < 32; i++) out[i] += m;
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
    for (uint64_t k = 0; k < n; k += 32, block += 18)
        decode_nibbles(out + k, block + 2, 0, 8, f16_at(block));
}

void afmoe__decode_q4_1(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 32, block += 20) {
        decode_nibbles(out + k, block + 4, 0, 0, f16_at(block));
        add_to_all(out + k, f16_at(block + 2));
    }
}

void afmoe__decode_q5_0(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 32, block += 22)
        decode_nibbles(out + k, block + 6, u32_at(block + 2), 16, f16_at(block));
}

void afmoe__decode_q5_1(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 32, block += 24) {
        decode_nibbles(out + k, block + 8, u32_at(block + 4), 0, f16_at(block));
        add_to_all(out + k, f16_at(block + 2));
    }
}
