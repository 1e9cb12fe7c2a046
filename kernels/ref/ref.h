/* The parts of the reference table, one function for each file of this folder. */
#ifndef AFMOE_KERNELS_REF_H
#define AFMOE_KERNELS_REF_H

#include "kernels.h"

void afmoe__product_ref(struct kernels *k);
void afmoe__prepare_ref(struct kernels *k);
void afmoe__whole_product_ref(struct kernels *k);
void afmoe__elementwise_ref(struct kernels *k);
void afmoe__norm_ref(struct kernels *k);
void afmoe__rope_ref(struct kernels *k);
void afmoe__activation_ref(struct kernels *k);
void afmoe__cells_ref(struct kernels *k);
void afmoe__attention_ref(struct kernels *k);

#endif
