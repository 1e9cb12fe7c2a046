/* Products of block formats (ref/..._blocks_ref.c say what they are), AVX2 and FMA, in the order of kernels.h.
 *
 * One token: four rows side by side; the values of a unit go from the block through registers into the accumulators.
 * Panel: as for all formats. */
#include "avx2.h"

#include "block_vectors_avx2.h"
#include "prefetch_x86.h"

enum { ROWS = 4, AHEAD_BYTES = 8 << 10 };

FORCE_INLINE void decode_units(enum tensor_format f, const int block_elements, const int block_bytes, float *out,
                               const uint8_t *block, uint64_t n)
{
    struct block_scales s;
    for (uint64_t k = 0; k < n; k += (uint64_t)block_elements, block += block_bytes) {
        prepare_scales(f, &s, block);
        for (int u = 0; u < block_elements / UNIT; u++) {
            __m256 v[UNIT_VECTORS];
            unit_values(f, v, block, &s, u);
            for (int i = 0; i < UNIT_VECTORS; i++) _mm256_storeu_ps(out + k + UNIT * u + 8 * i, v[i]);
        }
    }
}

FORCE_INLINE void multiply_units(enum tensor_format f, const int block_elements, const int block_bytes, const int R,
                                 float *out, const float *x, const uint8_t *rows, uint64_t row_bytes,
                                 uint64_t n_columns, struct hints hints)
{
    __m256 acc[ROWS];
    struct block_scales s[ROWS];
    for (int r = 0; r < R; r++) acc[r] = _mm256_setzero_ps();
    uintptr_t at = (uintptr_t)rows;
    for (uint64_t k = 0; k < n_columns; k += (uint64_t)block_elements, rows += block_bytes) {
        prefetch_hinted(hints, at, (uint64_t)block_bytes * R);
        at += (uint64_t)block_bytes * R;
        for (int r = 0; r < R; r++) prepare_scales(f, &s[r], rows + r * row_bytes);
        for (int u = 0; u < block_elements / UNIT; u++) {
            const float *xu = x + k + UNIT * u;
            for (int r = 0; r < R; r++) {
                __m256 v[UNIT_VECTORS];
                unit_values(f, v, rows + r * row_bytes, &s[r], u);
                for (int i = 0; i < UNIT_VECTORS; i++)
                    acc[r] = _mm256_fmadd_ps(v[i], _mm256_loadu_ps(xu + 8 * i), acc[r]);
            }
        }
    }
    for (int r = 0; r < R; r++) out[r] = sum8(acc[r]);
}

FORCE_INLINE void one_token_units(enum tensor_format f, const int block_elements, const int block_bytes, float *out,
                                  const float *x, const uint8_t *rows, uint64_t row_bytes, uint64_t n_rows,
                                  uint64_t n_columns, const void *next)
{
    const struct hints hints = hints_of(rows, n_rows * row_bytes, next, AHEAD_BYTES);
    uint64_t r = 0;
    for (; r + ROWS <= n_rows; r += ROWS)
        multiply_units(f, block_elements, block_bytes, ROWS, out + r, x, rows + r * row_bytes, row_bytes, n_columns,
                       hints);
    for (; r < n_rows; r++)
        multiply_units(f, block_elements, block_bytes, 1, out + r, x, rows + r * row_bytes, row_bytes, n_columns,
                       hints);
}

/* ---- Table ---- */

#define DEFINE_PRODUCTS(name, format, kind, elements, bytes)                                                           \
    static void decode_##name(float *out, const void *row, uint64_t n)                                                 \
    {                                                                                                                  \
        decode_units(format, elements, bytes, out, row, n);                                                            \
    }                                                                                                                  \
    static void one_token_##name(float *out, const void *x, const void *rows, uint64_t row_bytes, uint64_t n_rows,     \
                                 uint64_t n_columns, const void *next)                                                 \
    {                                                                                                                  \
        one_token_units(format, elements, bytes, out, x, rows, row_bytes, n_rows, n_columns, next);                    \
    }                                                                                                                  \
    static void panel_##name(float *out, uint64_t out_stride, const void *const *x, uint64_t n_tokens,                 \
                             const void *rows, uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns,                \
                             const void *next, void *scratch)                                                          \
    {                                                                                                                  \
        (void)next;                                                                                                    \
        afmoe__panel_avx2(decode_##name, out, out_stride, x, n_tokens, rows, row_bytes, n_rows, n_columns, scratch);   \
    }

#define SET_PRODUCTS(name, format, kind, elements, bytes)                                                              \
    set_float_product(k, format, decode_##name,                                                                        \
                      (struct product_kernels){.one_token = one_token_##name,                                          \
                                               .panel = panel_##name,                                                  \
                                               .panel_scratch_bytes = afmoe__panel_scratch_bytes_avx2});

FOR_EACH_VECTOR_FORMAT(DEFINE_PRODUCTS)

void afmoe__block_product_avx2(struct kernels *k)
{
    FOR_EACH_VECTOR_FORMAT(SET_PRODUCTS)
}
