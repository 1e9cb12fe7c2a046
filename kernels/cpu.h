/* What this CPU and operating system allow: the levels AFMOE_CPU_* of afmoe.h. */
#ifndef AFMOE_KERNELS_CPU_H
#define AFMOE_KERNELS_CPU_H

#include <stdint.h>

/* The highest level allowed here, whether or not this build has kernels for it. */
int32_t afmoe__cpu_level(void);

/* 1 when this level is allowed here. Levels below the highest are, with one exception: AVX-512 without AVX-VNNI. */
int32_t afmoe__cpu_has_level(int32_t level);

/* "c", "avx2", ...; "unknown" for numbers that are no level. Static. */
const char *afmoe__cpu_level_name(int32_t level);

#endif
