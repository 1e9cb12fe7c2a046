/* The K formats: blocks of 256 values, cut into sub-blocks with scales of their own. d and dmin are f16.
 *
 *   Q2_K   84 bytes: scales[16], low[64], d, dmin         d * (scales[j] & 15) * q - dmin * (scales[j] >> 4),
 *                                                       j = i / 16
 *   Q3_K  110 bytes: high[32], low[64], scales[12], d     d * scale(j) * q, j = i / 16, q = low + 4 high - 4
 *   Q4_K  144 bytes: d, dmin, scales[12], low[128]        d * scale(j) * q - dmin * min(j), j = i / 32
 *   Q5_K  176 bytes: d, dmin, scales[12], high[32], low[128]  the same
 *   Q6_K  210 bytes: low[128], high[64], int8 scales[16], d   d * scales[j] * (q - 32), j = i / 16
 *
 * j is the sub-block of value i. The packed scales of Q3_K, Q4_K and Q5_K: decode.h. Where the bits of a value lie is
 * said at each loop. Products are exact in float32; a difference is rounded once. */
#include "decode.h"

#include <stddef.h>

void afmoe__decode_q2_k(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 256, block += 84) {
        const uint8_t *scales = block, *low = block + 16;
        float d = f16_at(block + 80), dmin = f16_at(block + 82);
        for (int j = 0; j < 16; j++) { /* 128 values share 32 bytes, two bits each */
            const uint8_t *p = low + 32 * (j / 8) + 16 * (j % 2);
            int shift = j / 2 % 4 * 2;
            float dj = d * (float)(scales[j] & 15), mj = dmin * (float)(scales[j] >> 4);
            for (int i = 0; i < 16; i++) out[k + 16 * j + i] = dj * (float)(p[i] >> shift & 3) - mj;
        }
    }
}

void afmoe__decode_q3_k(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 256, block += 110) {
        const uint8_t *high = block, *low = block + 32;
        float d = f16_at(block + 108);
        for (int j = 0; j < 16; j++) { /* low bits as in Q2_K; bit i / 32 of high[i % 32] is bit 2 of value i */
            const uint8_t *p = low + 32 * (j / 8) + 16 * (j % 2), *h = high + 16 * (j % 2);
            int shift = j / 2 % 4 * 2, bit = j / 2;
            float dj = d * (float)q3_k_scale(block + 96, j);
            for (int i = 0; i < 16; i++)
                out[k + 16 * j + i] = dj * (float)((p[i] >> shift & 3) + 4 * (h[i] >> bit & 1) - 4);
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
        for (int j = 0; j < 16; j++) { /* 64 bytes of nibbles and 32 of pairs for 128 values */
            const uint8_t *p = low + 64 * (j / 8) + 16 * (j % 4), *h = high + 32 * (j / 8) + 16 * (j % 2);
            int shift = j / 4 % 2 * 4, pair = j / 2 % 4 * 2;
            float dj = d * (float)(int8_t)scales[j];
            for (int i = 0; i < 16; i++)
                out[k + 16 * j + i] = dj * (float)(((p[i] >> shift & 15) | (h[i] >> pair & 3) << 4) - 32);
        }
    }
}
