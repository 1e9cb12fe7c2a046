/* Products of block formats in whole numbers, AVX2: 8 rows in a vector, 2 vectors x 4 tokens, products of bytes in
 * pairs. */
#include "avx2.h"

#include "lanes_avx2.h"

#define HAS_DOT 0
#define TOKENS  4
#define LANES   8
enum { ROWS = 2 * LANES };

FORCE_INLINE ints ints_dot_words(ints sum, ints a, ints b)
{
    return ints_add_32(sum, ints_madd_words(a, b));
}

#include "whole_panel_x86.h"

void afmoe__whole_avx2(struct kernels *k)
{
    set_whole_products(k);
}
