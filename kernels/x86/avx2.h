/* The parts of the AVX2 table, one function for each file *_avx2.c of this folder. */
#ifndef AFMOE_KERNELS_AVX2_H
#define AFMOE_KERNELS_AVX2_H

#include "kernels.h"
#include "ref/decode.h"

void afmoe__product_avx2(struct kernels *k);
void afmoe__block_product_avx2(struct kernels *k);
void afmoe__elementwise_avx2(struct kernels *k);
void afmoe__norm_avx2(struct kernels *k);
void afmoe__rope_avx2(struct kernels *k);
void afmoe__activation_avx2(struct kernels *k);
void afmoe__cells_avx2(struct kernels *k);
void afmoe__attention_avx2(struct kernels *k);

/* The panel of product_kernels over rows decoded by `decode`; NULL: the rows are floats, used where they lie. */
void afmoe__panel_avx2(decode_fn decode, float *out, uint64_t out_stride, const float *x, uint64_t x_stride,
                       uint64_t n_tokens, const uint8_t *rows, uint64_t row_bytes, uint64_t n_rows,
                       uint64_t n_columns, float *scratch);
uint64_t afmoe__panel_scratch_bytes_avx2(uint64_t n_columns);

#endif
