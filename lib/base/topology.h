/* How many threads this process may usefully run: the smallest of affinity mask, physical cores within it, and the
 * cgroup CPU quota (v1 and v2, every level up to the root), rounded down, at least 1. Efficiency cores count as any
 * other (docs/architecture.md says why). */
#ifndef AFMOE_BASE_TOPOLOGY_H
#define AFMOE_BASE_TOPOLOGY_H

#include <stdint.h>

/* `root`: where /sys and /proc are looked for, "" for the real ones; tests pass a folder of recorded files. */
uint32_t afmoe__topology_n_threads(const char *root);

/* Physical cores of which this thread may use a hardware thread; 0 when that cannot be found out. */
uint32_t afmoe__topology_cores(const char *root);

/* The same as hwloc has it, for this machine; 0 also in a build without hwloc. */
uint32_t afmoe__topology_hwloc_cores(void);

#endif
