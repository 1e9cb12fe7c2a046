/* The parts of the AVX-512 table, one function for each file *_avx512.c of this folder. */
#ifndef AFMOE_KERNELS_AVX512_H
#define AFMOE_KERNELS_AVX512_H

#include "avx2.h"

void afmoe__product_avx512(struct kernels *k);
void afmoe__whole_avx512(struct kernels *k);
void afmoe__norm_avx512(struct kernels *k);
void afmoe__activation_avx512(struct kernels *k);
void afmoe__attention_avx512(struct kernels *k);

#endif
