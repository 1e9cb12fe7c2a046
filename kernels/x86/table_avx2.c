/* The AVX2 table: everything the reference has. */
#include "avx2.h"

#include "afmoe.h"

void afmoe__kernels_avx2(struct kernels *k)
{
    k->level = AFMOE_CPU_AVX2;
    afmoe__product_avx2(k);
    afmoe__block_product_avx2(k);
    afmoe__prepare_avx2(k);
    afmoe__whole_avx2(k);
    afmoe__elementwise_avx2(k);
    afmoe__norm_avx2(k);
    afmoe__rope_avx2(k);
    afmoe__activation_avx2(k);
    afmoe__cells_avx2(k);
    afmoe__attention_avx2(k);
}
