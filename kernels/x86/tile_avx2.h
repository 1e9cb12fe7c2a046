/* The register tile of all float products: R rows times T tokens, one accumulator each, eight lanes of k.
 *
 * 12 accumulators, 3 activations and 1 weight fill the 16 registers (4 rows x 3 tokens, or 2 x 4 with room for
 * decoding); R and T are constants, so every loop over them unrolls. An output's bits do not depend on R, T or its
 * place in the tile. */
#ifndef AFMOE_KERNELS_TILE_AVX2_H
#define AFMOE_KERNELS_TILE_AVX2_H

#include "prefetch_x86.h"
#include "vector_avx2.h"

enum { TILE_MAX_ROWS = 4, TILE_MAX_TOKENS = 4 };

/* acc[r][t] += rows[r][k] * x[t][k] over k < n; rows `row_bytes` apart. `ahead`, if
 * not 0, prefetches so many bytes ahead in the order of the memory, taking the R rows as one range. */
FORCE_INLINE void tile_accumulate(const int R, const int T, enum stored s, const uint64_t ahead,
                                  __m256 acc[TILE_MAX_ROWS][TILE_MAX_TOKENS], const uint8_t *rows, uint64_t row_bytes,
                                  const float *const *x, uint64_t n)
{
    __m256 xs[TILE_MAX_TOKENS];
    uint64_t k = 0;
    for (; k + 8 <= n; k += 8) {
        if (ahead) prefetch_bytes(rows, ahead + k * R * stored_bytes(s), 8 * R * stored_bytes(s));
        for (int t = 0; t < T; t++) xs[t] = _mm256_loadu_ps(x[t] + k);
        for (int r = 0; r < R; r++) {
            __m256 w = load8(rows + r * row_bytes + k * stored_bytes(s), s);
            for (int t = 0; t < T; t++) acc[r][t] = _mm256_fmadd_ps(w, xs[t], acc[r][t]);
        }
    }
    if (k == n) return;
    __m256i mask = tail_mask(n - k);
    for (int t = 0; t < T; t++) xs[t] = _mm256_maskload_ps(x[t] + k, mask);
    for (int r = 0; r < R; r++) {
        __m256 w = load_tail(rows + r * row_bytes + k * stored_bytes(s), n - k, s);
        for (int t = 0; t < T; t++) acc[r][t] = _mm256_fmadd_ps(w, xs[t], acc[r][t]);
    }
}

FORCE_INLINE void tile_clear(const int R, const int T, __m256 acc[TILE_MAX_ROWS][TILE_MAX_TOKENS])
{
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++) acc[r][t] = _mm256_setzero_ps();
}

/* out[t * out_stride + r] = sum of acc[r][t] */
FORCE_INLINE void tile_store(const int R, const int T, __m256 acc[TILE_MAX_ROWS][TILE_MAX_TOKENS], float *out,
                             uint64_t out_stride)
{
    for (int t = 0; t < T; t++) {
        float *o = out + t * out_stride;
        if (R == 4)
            _mm_storeu_ps(o, sum8x4(acc[0][t], acc[1][t], acc[2][t], acc[3][t]));
        else
            for (int r = 0; r < R; r++) o[r] = sum8(acc[r][t]);
    }
}

#endif
