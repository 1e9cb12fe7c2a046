/* Weights of -1, 0 and 1 times one f16 d, blocks of 256:
 *
 *   TQ1_0  54 bytes: five[48], four[4], d   digits to the base 3
 *   TQ2_0  66 bytes: two[64], d             two bits each: d * (q - 1)
 *
 * A byte b of TQ1_0 is the fraction b / 256 in base 3, rounded up; the digit after p others is that of (b * 3^p) mod
 * 256: floor(3 * that / 256). Bytes 0..31 of `five` hold values 0..159 (digit p of byte i: value 32 p + i), bytes
 * 32..47 values 160..239 (160 + 16 p + i), `four` values 240..255 (240 + 4 p + i). In TQ2_0 pair p of byte 32 h + i is
 * value 128 h + 32 p + i. */
#include "decode.h"

static void decode_digits(float *out, const uint8_t *bytes, int n_bytes, int n_digits, float d)
{
    for (int i = 0; i < n_bytes; i++) {
        uint8_t rest = bytes[i];
        for (int p = 0; p < n_digits; p++) {
            out[n_bytes * p + i] = d * (float)((rest * 3 >> 8) - 1);
            rest = (uint8_t)(rest * 3);
        }
    }
}

void afmoe__decode_tq1_0(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 256, block += 54) {
        float d = f16_at(block + 52);
        decode_digits(out + k, block, 32, 5, d);
        decode_digits(out + k + 160, block + 32, 16, 5, d);
        decode_digits(out + k + 240, block + 48, 4, 4, d);
    }
}

void afmoe__decode_tq2_0(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 256, block += 66) {
        float d = f16_at(block + 64);
        for (int j = 0; j < 8; j++)
            for (int i = 0; i < 32; i++)
                out[k + 32 * j + i] = d * (float)((block[32 * (j / 4) + i] >> j % 4 * 2 & 3) - 1);
    }
}
