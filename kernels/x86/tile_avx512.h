/* The register tile of the float products at AVX-512: R rows times T tokens, one accumulator each, sixteen lanes of k.
 *
 * 24 accumulators, 6 activations and 1 weight fit the 32 registers (4 rows x 6 tokens). R and T are constants, so every
 * loop over them unrolls. An output's bits do not depend on R, T or its place in the tile. */
#ifndef AFMOE_KERNELS_TILE_AVX512_H
#define AFMOE_KERNELS_TILE_AVX512_H

#include "prefetch_x86.h"
#include "vector_avx512.h"

enum { TILE16_MAX_ROWS = 4, TILE16_MAX_TOKENS = 6 };

typedef __m512 tile16[TILE16_MAX_ROWS][TILE16_MAX_TOKENS];

FORCE_INLINE void tile16_clear(const int R, const int T, tile16 acc)
{
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++) acc[r][t] = _mm512_setzero_ps();
}

/* As tile_accumulate of tile_avx2.h. */
FORCE_INLINE void tile16_accumulate(const int R, const int T, enum stored s, const uint64_t ahead, tile16 acc,
                                    const uint8_t *rows, uint64_t row_bytes, const float *const *x, uint64_t n)
{
    __m512 xs[TILE16_MAX_TOKENS];
    uint64_t k = 0;
    for (; k + 16 <= n; k += 16) {
        if (ahead) prefetch_bytes(rows, ahead + k * R * stored_bytes(s), 16 * R * stored_bytes(s));
        for (int t = 0; t < T; t++) xs[t] = _mm512_loadu_ps(x[t] + k);
        for (int r = 0; r < R; r++) {
            __m512 w = load16(rows + r * row_bytes + k * stored_bytes(s), s);
            for (int t = 0; t < T; t++) acc[r][t] = _mm512_fmadd_ps(w, xs[t], acc[r][t]);
        }
    }
    if (k == n) return;
    for (int t = 0; t < T; t++) xs[t] = _mm512_maskz_loadu_ps(tail_lanes(n - k), x[t] + k);
    for (int r = 0; r < R; r++) {
        __m512 w = load_tail16(rows + r * row_bytes + k * stored_bytes(s), n - k, s);
        for (int t = 0; t < T; t++) acc[r][t] = _mm512_fmadd_ps(w, xs[t], acc[r][t]);
    }
}

/* out[t * out_stride + r] = sum of acc[r][t] */
FORCE_INLINE void tile16_store(const int R, const int T, tile16 acc, float *out, uint64_t out_stride)
{
    for (int t = 0; t < T; t++) {
        float *o = out + t * out_stride;
        if (R == 4)
            _mm_storeu_ps(o, sum8x4(fold16(acc[0][t]), fold16(acc[1][t]), fold16(acc[2][t]), fold16(acc[3][t])));
        else
            for (int r = 0; r < R; r++) o[r] = sum16(acc[r][t]);
    }
}

#endif
