/* What this CPU and operating system allow: the levels AFMOE_CPU_* of afmoe.h. */
#ifndef AFMOE_KERNELS_CPU_H
#define AFMOE_KERNELS_CPU_H

#include <stdint.h>

/* The highest level allowed here, whether or not this build has kernels for it. */
int32_t afmoe__cpu_level(void);

/* "c", "avx2", ...; "unknown" for numbers that are no level. Static. */
const char *afmoe__cpu_level_name(int32_t level);

#endif
