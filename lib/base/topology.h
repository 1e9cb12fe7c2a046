/* How many threads this process may usefully run: the smallest of affinity mask, physical cores within it, and the
 * cgroup CPU quota (v1 and v2, every level up to the root), rounded down, at least 1. */
#ifndef AFMOE_BASE_TOPOLOGY_H
#define AFMOE_BASE_TOPOLOGY_H

#include <stdint.h>

/* `root`: where /sys and /proc are looked for, "" for the real ones; tests pass a folder of recorded files. */
uint32_t afmoe__topology_n_threads(const char *root);

#endif
