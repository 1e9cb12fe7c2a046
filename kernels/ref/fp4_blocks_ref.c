/* Four bits that choose one of 16 values (the tables: decode.h), times a scale.
 *
 *   IQ4_NL   32 values,  18 bytes: f16 d, nibbles[16]                      d * iq4_values[q]
 *   IQ4_XS  256 values, 136 bytes: f16 d, u16 high, low[4], nibbles[128]   d * scale(j) * iq4_values[q], j = i / 32
 *   MXFP4    32 values,  17 bytes: E8M0 e, nibbles[16]                     2^(e - 128) * e2m1_values[q]
 *   NVFP4    64 values,  36 bytes: UE4M3 d[4], nibbles[32]                 d[j] / 2 * e2m1_values[q], j = i / 16
 *
 * Of the m bytes of a sub-block of 2 m values, the low nibbles are the first m values and the high ones the rest. */
#include "decode.h"

static void decode_nibbles(float *out, const uint8_t *nibbles, int n_bytes, float scale, const int8_t values[16])
{
    for (int i = 0; i < n_bytes; i++) {
        out[i] = scale * (float)values[nibbles[i] & 15];
        out[n_bytes + i] = scale * (float)values[nibbles[i] >> 4];
    }
}

void afmoe__decode_iq4_nl(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 32, block += 18)
        decode_nibbles(out + k, block + 2, 16, f16_at(block), iq4_values);
}

void afmoe__decode_iq4_xs(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 256, block += 136)
        for (int j = 0; j < 8; j++) {
            float scale = f16_at(block) * (float)iq4_xs_scale(u16_at(block + 2), block + 4, j);
            decode_nibbles(out + k + 32 * j, block + 8 + 16 * j, 16, scale, iq4_values);
        }
}

void afmoe__decode_mxfp4(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 32, block += 17)
        decode_nibbles(out + k, block + 1, 16, e8m0_half(block[0]), e2m1_values);
}

void afmoe__decode_nvfp4(float *out, const void *row, uint64_t n)
{
    const uint8_t *block = row;
    for (uint64_t k = 0; k < n; k += 64, block += 36)
        for (int j = 0; j < 4; j++)
            decode_nibbles(out + k + 16 * j, block + 4 + 8 * j, 8, ue4m3_half(block[j]), e2m1_values);
}
