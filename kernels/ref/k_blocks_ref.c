/* The K formats: blocks of 256 values, cut into sub-blocks with scales of their own. d and dmin are f16.
 *
 *   Q2_K   84 bytes: scales[16], low[64], d, dmin         d * (scales[j] & 15) * q - dmin * (scales[j] >> 4), j = i / 16
 *   Q3_K  110 bytes: high[32], low[64], scales[12], d     d * scale(j) * q, j = i / 16, q = low + 4 high - 4
 *   Q4_K  144 bytes: d, dmin, scales[12], low[128]        d * scale(j) * q - dmin * min(j), j = i / 32
 *   Q5_K  176 bytes: d, dmin, scales[12], high[32], low[128]  the same
 *   Q6_K  210 bytes: low[128], high[64], int8 scales[16], d   d * scales[j] * (q - 32), j = i / 16
 *
 * The packed scales of Q3_K, Q4_K and Q5_K: decode.h. Where the bits of value i lie is said at each loop. Products are
 * exact in float32; a difference is rounded once. */
#include "decode.h"

#include <stddef.h>

void afmoe__decode_q2_k(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 256, block += 84) {
        const uint8_t *scales = block, *low = block + 16;
        float d = f16_at(block + 80), dmin = f16_at(block + 82);
        for (int i = 0; i < 256; i++) {
            int half = i / 128, shift = i % 128 / 32 * 2; /* 128 values share 32 bytes, two bits each */
            int q = low[32 * half + i % 32] >> shift & 3;
            uint8_t s = scales[i / 16];
            out[k + i] = d * (float)(s & 15) * (float)q - dmin * (float)(s >> 4);
        }
    }
}

void afmoe__decode_q3_k(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 256, block += 110) {
        const uint8_t *high = block, *low = block + 32;
        float d = f16_at(block + 108);
        for (int i = 0; i < 256; i++) {
            int half = i / 128, shift = i % 128 / 32 * 2;
            int q = low[32 * half + i % 32] >> shift & 3;
            int h = high[i % 32] >> i / 32 & 1; /* bit i / 32 of byte i % 32 */
            out[k + i] = d * (float)q3_k_scale(block + 96, i / 16) * (float)(q + 4 * h - 4);
        }
    }
}

/* Values 64 c + i, i < 32, are the low nibbles of low[32 c + i], values 64 c + 32 + i the high ones; bit i / 32 of
 * high[i % 32] is bit 4 of value i, where there are high bits. */
static void decode_scaled_nibbles(float *out, const uint8_t *block, const uint8_t *high, const uint8_t *low)
{
    float d = f16_at(block), dmin = f16_at(block + 2);
    for (int j = 0; j < 8; j++) {
        uint8_t scale, min;
        scale_and_min(block + 4, j, &scale, &min);
        float dj = d * (float)scale, mj = dmin * (float)min;
        for (int i = 0; i < 32; i++) {
            int q = low[32 * (j / 2) + i] >> 4 * (j % 2) & 15;
            if (high) q |= (high[i] >> j & 1) << 4;
            out[32 * j + i] = dj * (float)q - mj;
        }
    }
}

void afmoe__decode_q4_k(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 256, block += 144) decode_scaled_nibbles(out + k, block, NULL, block + 16);
}

void afmoe__decode_q5_k(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 256, block += 176) decode_scaled_nibbles(out + k, block, block + 16, block + 48);
}

void afmoe__decode_q6_k(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 256, block += 210) {
        const uint8_t *low = block, *high = block + 128, *scales = block + 192;
        float d = f16_at(block + 208);
        for (int i = 0; i < 256; i++) {
            int half = i / 128, within = i % 128; /* 64 bytes of nibbles and 32 of pairs for 128 values */
            int q = low[64 * half + within % 64] >> 4 * (within / 64) & 15;
            q |= (high[32 * half + i % 32] >> 2 * (within / 32) & 3) << 4;
            out[k + i] = d * (float)(int8_t)scales[i / 16] * (float)(q - 32);
        }
    }
}
