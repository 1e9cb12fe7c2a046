/* Detection of the CPU level: cpuid feature bits (Intel SDM vol. 2A, CPUID leaves 1 and 7; AMD APM vol. 3 has the same
 * bits) and xgetbv, which says what register state the operating system saves. */
#include "cpu.h"

#include "afmoe.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <stdbool.h>

struct features {
    uint32_t leaf1_ecx, leaf7_ebx, leaf7_ecx, leaf7_1_eax;
    uint64_t saved; /* xcr0 */
};

static uint64_t xgetbv0(void)
{
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static struct features read_features(void)
{
    struct features f = {0};
    uint32_t eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return f;
    f.leaf1_ecx = ecx;
    if (ecx & 1u << 27) f.saved = xgetbv0(); /* OSXSAVE */
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return f;
    f.leaf7_ebx = ebx;
    f.leaf7_ecx = ecx;
    if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) f.leaf7_1_eax = eax;
    return f;
}

static bool has(uint64_t bits, uint64_t wanted)
{
    return (bits & wanted) == wanted;
}

enum {
    SAVED_YMM = 1 << 1 | 1 << 2,
    SAVED_ZMM = 1 << 5 | 1 << 6 | 1 << 7,
    LEAF1_FMA_AVX_F16C = 1 << 12 | 1 << 28 | 1 << 29,
    LEAF7_AVX2 = 1 << 5,
    LEAF7_1_AVXVNNI = 1 << 4,
    LEAF7_1_AVX512BF16 = 1 << 5,
    /* ecx: VBMI, VBMI2, GFNI, VAES, VPCLMULQDQ, VNNI, BITALG, VPOPCNTDQ */
    LEAF7_AVX512ICL = 1 << 1 | 1 << 6 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12 | 1 << 14
};
static const uint32_t leaf7_avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
static const uint32_t leaf7_ifma = 1u << 21;

/* A level is reached when all below it on its own line are: AVX-VNNI is not needed for AVX-512, which has its own
 * forms of everything; server parts before Sapphire Rapids and Zen 4 have the one without the other. */
int32_t afmoe__cpu_level(void)
{
    struct features f = read_features();
    if (!has(f.saved, SAVED_YMM) || !has(f.leaf1_ecx, LEAF1_FMA_AVX_F16C) || !has(f.leaf7_ebx, LEAF7_AVX2))
        return AFMOE_CPU_C;
    if (!has(f.saved, SAVED_ZMM) || !has(f.leaf7_ebx, leaf7_avx512))
        return has(f.leaf7_1_eax, LEAF7_1_AVXVNNI) ? AFMOE_CPU_AVXVNNI : AFMOE_CPU_AVX2;
    if (!has(f.leaf7_ecx, LEAF7_AVX512ICL) || !has(f.leaf7_ebx, leaf7_ifma)) return AFMOE_CPU_AVX512;
    return has(f.leaf7_1_eax, LEAF7_1_AVX512BF16) ? AFMOE_CPU_AVX512BF16 : AFMOE_CPU_AVX512ICL;
}

int32_t afmoe__cpu_has_level(int32_t level)
{
    int32_t highest = afmoe__cpu_level();
    if (level == AFMOE_CPU_AVXVNNI && highest > level) return has(read_features().leaf7_1_eax, LEAF7_1_AVXVNNI);
    return level >= AFMOE_CPU_C && level <= highest;
}

#else

int32_t afmoe__cpu_level(void)
{
    return AFMOE_CPU_C;
}

int32_t afmoe__cpu_has_level(int32_t level)
{
    return level == AFMOE_CPU_C;
}

#endif

const char *afmoe__cpu_level_name(int32_t level)
{
    switch (level) {
    case AFMOE_CPU_C: return "c";
    case AFMOE_CPU_AVX2: return "avx2";
    case AFMOE_CPU_AVXVNNI: return "avxvnni";
    case AFMOE_CPU_AVX512: return "avx512";
    case AFMOE_CPU_AVX512ICL: return "avx512icl";
    case AFMOE_CPU_AVX512BF16: return "avx512bf16";
    default: return "unknown";
    }
}
