/* The eight-lane order of kernels.h, and stored numbers read as floats. */
#ifndef AFMOE_KERNELS_LANES_H
#define AFMOE_KERNELS_LANES_H

#include "decode.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 8 };

/* lane i += a[k] * b[k] for k % 8 == i; the arrays begin at a multiple of 8. Two roundings a step: plain C has no
 * fused multiply-add that is fast everywhere. */
static inline void lanes_add(float lane[LANES], const float *a, const float *b, uint64_t n)
{
    uint64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int i = 0; i < LANES; i++) lane[i] += a[k + i] * b[k + i];
    for (int i = 0; k + i < n; i++) lane[i] += a[k + i] * b[k + i];
}

static inline float lanes_sum(const float lane[LANES])
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* Stored numbers at any address to floats; cells are decoded with them as well. */
static inline void decode_f32(float *out, const void *in, uint64_t n)
{
    if (n) memcpy(out, in, n * sizeof *out);
}

static inline void decode_f16(float *out, const void *in, uint64_t n)
{
    const uint8_t *p = in;
    for (uint64_t k = 0; k < n; k++) {
        uint16_t h;
        memcpy(&h, p + k * sizeof h, sizeof h);
        out[k] = f16_to_f32(h);
    }
}

static inline void decode_bf16(float *out, const void *in, uint64_t n)
{
    const uint8_t *p = in;
    for (uint64_t k = 0; k < n; k++) {
        uint16_t h;
        memcpy(&h, p + k * sizeof h, sizeof h);
        out[k] = bf16_to_f32(h);
    }
}

/* sum_k row[k] * x[k], the row decoded piece by piece. A piece of CHUNK values takes chunk_bytes bytes. */
enum { CHUNK = MAX_BLOCK_ELEMENTS }; /* a multiple of LANES and of every block */

static inline float dot_decoded(decode_fn decode, uint64_t chunk_bytes, const void *row, const float *x, uint64_t n)
{
    const uint8_t *p = row;
    float lane[LANES] = {0};
    float chunk[CHUNK];
    for (uint64_t k = 0; k < n; k += CHUNK, p += chunk_bytes) {
        uint64_t m = n - k < CHUNK ? n - k : CHUNK;
        decode(chunk, p, m);
        lanes_add(lane, chunk, x + k, m);
    }
    return lanes_sum(lane);
}

#endif
