/* rms norm at AVX2. */
#include "avx2.h"

#include "wide_avx2.h"

#include "norm_x86.h"

void afmoe__norm_avx2(struct kernels *k)
{
    k->rms_norm = rms_norm;
}
