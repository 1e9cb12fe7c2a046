/* Attention at AVX2: 6 queries x 1 tile are 12 sums, with 2 vectors of the tile and a factor in the 16 registers. */
#include "avx2.h"

#include "wide_avx2.h"

enum { TILES = 1 };
#include "attention_x86.h"

void afmoe__attention_avx2(struct kernels *k)
{
    set_attention(k);
}
