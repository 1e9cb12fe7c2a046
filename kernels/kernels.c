/* Filling the kernel table, see kernels.h. */
#include "kernels.h"

#include "afmoe.h"
#include "ref/ref.h"

void afmoe__kernels_ref(struct kernels *k)
{
    k->level = AFMOE_CPU_C;
    afmoe__product_ref(k);
    afmoe__prepare_ref(k);
    afmoe__whole_product_ref(k);
    afmoe__elementwise_ref(k);
    afmoe__norm_ref(k);
    afmoe__rope_ref(k);
    afmoe__activation_ref(k);
    afmoe__cells_ref(k);
    afmoe__attention_ref(k);
}

void afmoe__kernels_select(struct kernels *out, int32_t level)
{
    *out = (struct kernels){0};
    afmoe__kernels_ref(out);
#if defined(__x86_64__)
    if (level >= AFMOE_CPU_AVX2) afmoe__kernels_avx2(out);
#if defined(AFMOE_HAVE_AVX512)
    if (level == AFMOE_CPU_AVXVNNI) afmoe__kernels_avxvnni(out);
    if (level >= AFMOE_CPU_AVX512) afmoe__kernels_avx512(out);
    if (level >= AFMOE_CPU_AVX512ICL) afmoe__kernels_avx512icl(out);
    if (level >= AFMOE_CPU_AVX512BF16) afmoe__kernels_avx512bf16(out);
#endif
#else
    (void)level;
#endif
}
