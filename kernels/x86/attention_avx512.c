/* Attention at AVX-512: 6 queries x 2 tiles are 12 sums. */
#include "avx512.h"

#include "wide_avx512.h"

enum { TILES = 2 };
#include "attention_x86.h"

void afmoe__attention_avx512(struct kernels *k)
{
    set_attention(k);
}
