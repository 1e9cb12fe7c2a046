/* Products of block formats in whole numbers, AVX-512 with VNNI: as at AVX-512, with the dot product of bytes. */
#include "avx512.h"

#include "afmoe.h"
#include "lanes_avx512.h"

#define HAS_DOT         1
#define TOKENS          6
#define DOT_BYTES       _mm256_dpbusd_epi32
#define DOT_WORDS       _mm256_dpwssd_epi32
#define ints_dot_bytes  _mm512_dpbusd_epi32
#define ints_dot_words  _mm512_dpwssd_epi32
#define LANES           16
enum { ROWS = 2 * LANES };

#include "whole_panel_x86.h"

void afmoe__kernels_avx512icl(struct kernels *k)
{
    k->level = AFMOE_CPU_AVX512ICL;
    set_whole_products(k);
}
