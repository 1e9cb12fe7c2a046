/* The parts of the AVX2 table, one function for each file *_avx2.c of this folder. */
#ifndef AFMOE_KERNELS_AVX2_H
#define AFMOE_KERNELS_AVX2_H

#include "kernels.h"

void afmoe__product_avx2(struct kernels *k);
void afmoe__elementwise_avx2(struct kernels *k);
void afmoe__norm_avx2(struct kernels *k);
void afmoe__rope_avx2(struct kernels *k);
void afmoe__activation_avx2(struct kernels *k);
void afmoe__cells_avx2(struct kernels *k);
void afmoe__attention_avx2(struct kernels *k);

#endif
