/* exp of a vector: the steps of exp.h with fused multiply-adds, the same bits at every level. Error at most EXP_MAX_ULP
 * too. Included after the vectors of a level. */
#ifndef AFMOE_KERNELS_EXP_X86_H
#define AFMOE_KERNELS_EXP_X86_H

#include "exp.h"

FORCE_INLINE wide wide_exp(wide x)
{
    x = wide_max(wide_all(EXP_LOW), x);
    x = wide_min(wide_all(EXP_HIGH), x);
    wide round = wide_all(EXP_ROUND);
    wide shifted = wide_fma(x, wide_all(EXP_LOG2E), round);
    wide whole = wide_sub(shifted, round);
    wide_int n = wide_bits_less(shifted, round);
    wide r = wide_fnma(whole, wide_all(EXP_LN2_HI), x);
    r = wide_fnma(whole, wide_all(EXP_LN2_LO), r);
    wide q = wide_all(EXP_C6);
    q = wide_fma(q, r, wide_all(EXP_C5));
    q = wide_fma(q, r, wide_all(EXP_C4));
    q = wide_fma(q, r, wide_all(EXP_C3));
    q = wide_fma(q, r, wide_all(EXP_C2));
    wide p = wide_add(wide_all(1.0f), wide_fma(wide_mul(r, r), q, r));
    wide_int first = wide_int_half(n);
    return wide_mul(wide_mul(p, wide_power_of_2(first)), wide_power_of_2(wide_int_sub(n, first)));
}

#endif
