/* rms norm at AVX-512. */
#include "avx512.h"

#include "wide_avx512.h"

#include "norm_x86.h"

void afmoe__norm_avx512(struct kernels *k)
{
    k->rms_norm = rms_norm;
}
