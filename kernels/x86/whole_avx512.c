/* Products of block formats in whole numbers, AVX-512 without VNNI: 16 rows in a vector, 2 vectors x 6 tokens, products
 * of bytes in pairs. */
#include "avx512.h"

#include "lanes_avx512.h"

#define HAS_DOT 0
#define TOKENS  6
#define LANES   16
enum { ROWS = 2 * LANES };

FORCE_INLINE ints ints_dot_words(ints sum, ints a, ints b)
{
    return ints_add_32(sum, ints_madd_words(a, b));
}

#include "whole_panel_x86.h"

void afmoe__whole_avx512(struct kernels *k)
{
    set_whole_products(k);
}
