/* How much memory a part of a test takes at its peak, and whether that follows from the size of its input. */
#ifndef AFMOE_TESTS_MEMORY_PEAK_H
#define AFMOE_TESTS_MEMORY_PEAK_H

#include "sanitizer.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the build or what runs it has memory of its own, which makes figures of this process meaningless. */
static inline bool has_shadow_memory(void)
{
    const char *preloaded = getenv("LD_PRELOAD");
    return UNDER_SANITIZER || (preloaded && strstr(preloaded, "vgpreload")); /* valgrind */
}

/* Resident memory of this process at its peak, in KiB; 0 where it cannot be told. */
static inline uint64_t memory_peak_kib(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *file = has_shadow_memory() ? NULL : fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "VmHWM: %llu", &kib) == 1) break;
    }
    if (file) fclose(file);
    return kib;
}

/* Let the peak start afresh, where the kernel can; returns what it is now. */
static inline uint64_t memory_peak_begin(void)
{
    FILE *clear = has_shadow_memory() ? NULL : fopen("/proc/self/clear_refs", "w");
    if (clear) {
        fputs("5", clear);
        fclose(clear);
    }
    return memory_peak_kib();
}

/* Growth of the peak since memory_peak_begin; the kernel's counts are coarse and may fall a little. */
static inline uint64_t memory_peak_growth_kib(uint64_t begin)
{
    uint64_t now = memory_peak_kib();
    return now > begin ? now - begin : 0;
}

/* What opening files of so many bytes may take at its peak, in KiB: for small files, far below the caps that hold for
 * all. What a count in a file claims plays no part. */
static inline uint64_t memory_allowed_kib(uint64_t n_file_bytes)
{
    return 1024 + 48 * (n_file_bytes / 1024);
}

#endif
