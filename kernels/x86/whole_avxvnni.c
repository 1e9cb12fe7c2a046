/* Products of block formats in whole numbers, AVX-VNNI: as at AVX2, with the dot product of bytes. */
#include "avx2.h"

#include "afmoe.h"
#include "lanes_avx2.h"

#define HAS_DOT         1
#define TOKENS          4
#define DOT_BYTES       _mm256_dpbusd_avx_epi32
#define DOT_WORDS       _mm256_dpwssd_avx_epi32
#define ints_dot_bytes  _mm256_dpbusd_avx_epi32
#define ints_dot_words  _mm256_dpwssd_avx_epi32
#define LANES           8
enum { ROWS = 2 * LANES };

#include "whole_panel_x86.h"

void afmoe__kernels_avxvnni(struct kernels *k)
{
    k->level = AFMOE_CPU_AVXVNNI;
    set_whole_products(k);
}
