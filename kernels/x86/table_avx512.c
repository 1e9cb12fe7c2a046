/* The AVX-512 table (F, BW, VL, DQ): what gains from vectors of sixteen floats. Called on the AVX2 table, whose
 * remaining rows stay: what moves bytes only, and the float products of block formats other than Q8_0. */
#include "avx512.h"

#include "afmoe.h"

void afmoe__kernels_avx512(struct kernels *k)
{
    k->level = AFMOE_CPU_AVX512;
    afmoe__product_avx512(k);
    afmoe__whole_avx512(k);
    afmoe__norm_avx512(k);
    afmoe__activation_avx512(k);
    afmoe__attention_avx512(k);
}
