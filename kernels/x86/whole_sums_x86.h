/* Sums of whole numbers with rows in lanes, for whole_lanes_x86.h and whole_panel_x86.h; the file that includes them
 * says by macros what its vectors are (whole_avx2.c). Without a dot product of bytes their products are summed in 16
 * bits as long as they fit, then multiplied with the scale (or one) into 32 bits. */
#ifndef AFMOE_KERNELS_WHOLE_SUMS_X86_H
#define AFMOE_KERNELS_WHOLE_SUMS_X86_H

#include "whole_row_x86.h"

/* gcc loads weights again for every token rather than keep them (a sixth of the speed); clang spills others for
 * them. */
#ifdef __clang__
#define KEEP_LOADED(v) (void)(v)
#else
#define KEEP_LOADED(v) KEEP_IN_ORDER(v)
#endif

/* The first product of a sum, or one more: four bytes of a row with four of a token in each lane. */
FORCE_INLINE ints add_products(ints sum, bool first, ints numbers, ints q)
{
#if HAS_DOT
    return ints_dot_bytes(first ? ints_set1_32(0) : sum, numbers, q);
#else
    ints products = ints_madd_bytes(numbers, q);
    if (first) return products;
    sum = ints_add_16(sum, products);
    KEEP_IN_ORDER(sum);
    return sum;
#endif
}

/* whole + sum times the scales, which lie twice in each lane */
FORCE_INLINE ints add_scaled(ints whole, ints sum, ints scales)
{
#if HAS_DOT
    return ints_add_32(whole, ints_mul_32(sum, ints_shift_right_32(scales, 16)));
#else
    whole = ints_add_32(whole, ints_madd_words(sum, scales));
    KEEP_IN_ORDER(whole);
    return whole;
#endif
}

FORCE_INLINE ints widened(ints sum)
{
    return HAS_DOT ? sum : ints_madd_words(sum, ints_set1_16(1));
}

FORCE_INLINE ints add_words(ints whole, ints numbers, ints q)
{
    whole = ints_dot_words(whole, numbers, q);
    KEEP_IN_ORDER(whole);
    return whole;
}

FORCE_INLINE ints broadcast4(const void *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return ints_set1_32(x);
}

/* ---- Blocks of 32 and 64 ---- */

/* Of a unit of 32: how many groups of four numbers share a scale, and how many groups of products fit a sum. */
FORCE_INLINE int groups_of_d(enum tensor_format f)
{
    return f == FORMAT_NVFP4 ? 4 : 8;
}

FORCE_INLINE int groups_of_sum_32(enum tensor_format f)
{
    return groups_of_d(f) == 8 && (HAS_DOT || f == FORMAT_Q4_0 || f == FORMAT_Q4_1) ? 8 : 4;
}

/* acc += d dx (whole - zero sum) + min dx sum, for the groups under one d of the unit at k, from `first` on */
FORCE_INLINE floats add_part(enum tensor_format f, floats acc, floats d, floats min, ints whole,
                             const struct activations *x, uint64_t k, int first)
{
    floats dx = floats_set1(x->d[k / 32]);
    int sum = f == FORMAT_NVFP4 ? x->sum16[k / 16 + (uint64_t)first / 4] : x->sum32[k / 32];
    if (level_zero(f)) whole = ints_sub_32(whole, ints_set1_32(level_zero(f) * sum));
    acc = floats_fmadd(floats_mul(d, dx), floats_from(whole), acc);
    return has_min(f) ? floats_fmadd(floats_mul(min, dx), floats_set1((float)sum), acc) : acc;
}

#endif
