/* Usable threads, see topology.h.
 *
 * Where the numbers come from: sched_getaffinity(2); sysfs topology/thread_siblings_list (Documentation/admin-guide/
 * cputopology.rst), a list like "0-3,8" of the hardware threads of one core; cgroups(7): /proc/self/cgroup names the
 * group of each hierarchy, /proc/self/mountinfo (proc(5)) where the hierarchy is mounted and which group its top is;
 * v2 has cpu.max "QUOTA|max PERIOD", v1 cpu.cfs_quota_us (-1: none) and cpu.cfs_period_us. A limit of a group holds
 * for all below it, so every level from the own group to the top counts. What cannot be read limits nothing. */
#define _GNU_SOURCE /* sched_getaffinity, CPU_ALLOC */
#include "topology.h"

#include "memory.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CPUS = 1 << 16, PATH_BYTES = 4096, LINE_BYTES = 8192 };

/* One bit a CPU. */
struct cpu_mask {
    uint64_t bits[MAX_CPUS / 64];
};

static bool mask_has(const struct cpu_mask *mask, uint32_t cpu)
{
    return mask->bits[cpu / 64] >> (cpu % 64) & 1;
}

/* ---- Files ---- */

static FILE *open_file(const char *root, const char *path)
{
    char full[PATH_BYTES];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    return n > 0 && (size_t)n < sizeof full ? fopen(full, "re") : NULL;
}

/* The next line without its newline; one longer than the buffer is skipped. */
static bool read_line(FILE *file, char line[LINE_BYTES])
{
    bool skipping = false;
    while (fgets(line, LINE_BYTES, file)) {
        size_t n = strlen(line);
        bool whole = n > 0 && line[n - 1] == '\n';
        if (whole) line[n - 1] = '\0';
        if (!skipping && (whole || n + 1 < LINE_BYTES)) return true;
        skipping = !whole;
    }
    return false;
}

static bool read_first_line(const char *root, const char *path, char line[LINE_BYTES])
{
    FILE *file = open_file(root, path);
    if (!file) return false;
    bool ok = read_line(file, line);
    fclose(file);
    return ok;
}

/* ---- Affinity ---- */

/* "0-3,8" into bits; what does not parse ends the list. */
static void parse_list(struct cpu_mask *out, const char *text)
{
    while (*text >= '0' && *text <= '9') {
        char *end;
        unsigned long first = strtoul(text, &end, 10), last = first;
        if (*end == '-') last = strtoul(end + 1, &end, 10);
        for (unsigned long cpu = first; cpu <= last && cpu < MAX_CPUS; cpu++)
            out->bits[cpu / 64] |= (uint64_t)1 << (cpu % 64);
        text = *end == ',' ? end + 1 : end;
    }
}

/* The kernel refuses a set smaller than its own, so the size grows until it fits. */
static bool read_affinity(struct cpu_mask *out)
{
    for (int n_cpus = 1024; n_cpus <= MAX_CPUS; n_cpus *= 2) {
        size_t bytes = CPU_ALLOC_SIZE(n_cpus);
        cpu_set_t *set = afmoe__alloc_zeroed(bytes, 1);
        if (!set) return false;
        bool ok = sched_getaffinity(0, bytes, set) == 0;
        for (int cpu = 0; ok && cpu < n_cpus; cpu++)
            if (CPU_ISSET_S(cpu, bytes, set)) out->bits[cpu / 64] |= (uint64_t)1 << (cpu % 64);
        afmoe__free(set);
        if (ok) return true;
    }
    return false;
}

/* The affinity mask of a recorded tree, as proc(5) tells it; without one every CPU present. */
static bool read_recorded_affinity(const char *root, struct cpu_mask *out)
{
    static const char key[] = "Cpus_allowed_list:";
    char line[LINE_BYTES];
    bool found = false;
    FILE *file = open_file(root, "/proc/self/status");
    while (file && !found && read_line(file, line)) found = strncmp(line, key, strlen(key)) == 0;
    if (file) fclose(file);
    if (found) parse_list(out, line + strlen(key) + strspn(line + strlen(key), " \t"));
    if (found) return true;
    if (!read_first_line(root, "/sys/devices/system/cpu/present", line)) return false;
    parse_list(out, line);
    return true;
}

/* A cpuset of a cgroup (v1 and v2) is in the affinity mask already: the kernel cuts one with the other. */
static bool read_cpus(const char *root, struct cpu_mask *out)
{
    return *root ? read_recorded_affinity(root, out) : read_affinity(out);
}

/* ---- Cores ---- */

/* Does a CPU before this one, in the mask, belong to the same core? */
static bool shares_core(const char *root, const struct cpu_mask *mask, uint32_t cpu, struct cpu_mask *siblings)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
    if (!read_first_line(root, path, line)) return false;
    memset(siblings, 0, sizeof *siblings);
    parse_list(siblings, line);
    for (uint32_t other = 0; other < cpu; other++)
        if (mask_has(siblings, other) && mask_has(mask, other)) return true;
    return false;
}

uint32_t afmoe__topology_cores(const char *root)
{
    struct cpu_mask *masks = afmoe__alloc_zeroed(2, sizeof *masks);
    uint32_t n = 0;
    if (masks && read_cpus(root, &masks[0]))
        for (uint32_t cpu = 0; cpu < MAX_CPUS; cpu++)
            if (mask_has(&masks[0], cpu) && !shares_core(root, &masks[0], cpu, &masks[1])) n++;
    afmoe__free(masks);
    return n;
}

/* ---- Quota ---- */

/* Whole CPUs of quota / period microseconds, UINT32_MAX when there is no limit. */
static uint32_t whole_cpus(long long quota, long long period)
{
    if (quota <= 0 || period <= 0 || quota / period >= UINT32_MAX) return UINT32_MAX;
    return quota < period ? 1 : (uint32_t)(quota / period);
}

static uint32_t quota_v2(const char *root, const char *group)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    long long quota, period;
    int n = snprintf(path, sizeof path, "%s/cpu.max", group);
    if (n < 0 || (size_t)n >= sizeof path || !read_first_line(root, path, line)) return UINT32_MAX;
    return sscanf(line, "%lld %lld", &quota, &period) == 2 ? whole_cpus(quota, period) : UINT32_MAX;
}

static uint32_t quota_v1(const char *root, const char *group)
{
    static const char *const names[2] = {"cpu.cfs_quota_us", "cpu.cfs_period_us"};
    long long number[2];
    for (int i = 0; i < 2; i++) {
        char path[PATH_BYTES], line[LINE_BYTES];
        int n = snprintf(path, sizeof path, "%s/%s", group, names[i]);
        if (n < 0 || (size_t)n >= sizeof path || !read_first_line(root, path, line)) return UINT32_MAX;
        if (sscanf(line, "%lld", &number[i]) != 1) return UINT32_MAX;
    }
    return whole_cpus(number[0], number[1]);
}

struct hierarchy {
    bool v1;
    char mount[PATH_BYTES]; /* where it is mounted */
    char top[PATH_BYTES];   /* the group seen there */
};

/* Is `word` one of the comma-separated words of `list`? */
static bool list_has(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, word, n) == 0 && (p[n] == '\0' || p[n] == ',')) return true;
    return false;
}

/* "ID PARENT DEVICE TOP MOUNT OPTIONS [TAGS] - TYPE SOURCE SUPER_OPTIONS": is it a hierarchy that limits CPUs? */
static bool parse_mount(const char *line, struct hierarchy *out)
{
    char type[64], options[LINE_BYTES];
    const char *tail = strstr(line, " - ");
    if (!tail || sscanf(line, "%*s %*s %*s %4095s %4095s", out->top, out->mount) != 2) return false;
    if (sscanf(tail, " - %63s %*s %8191s", type, options) != 2) return false;
    out->v1 = strcmp(type, "cgroup") == 0;
    return out->v1 ? list_has(options, "cpu") : strcmp(type, "cgroup2") == 0;
}

/* "ID:CONTROLLERS:GROUP": is it the own group in this hierarchy? v2 is "0::GROUP". */
static const char *parse_group(char *line, bool v1)
{
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) return NULL;
    *group++ = '\0';
    bool fits = v1 ? list_has(controllers + 1, "cpu") : controllers[1] == '\0' && strncmp(line, "0:", 2) == 0;
    return fits ? group : NULL;
}

/* Where the own group's files are: the mount point and what the group's path has below the group mounted there. A
 * group outside of what is mounted is seen as its top. False for paths too long. */
static bool own_folder(const struct hierarchy *h, const char *group, char out[PATH_BYTES])
{
    size_t n_top = strcmp(h->top, "/") == 0 ? 0 : strlen(h->top);
    bool below = strncmp(group, h->top, n_top) == 0 && group[n_top] == '/' && !strstr(group, "/..");
    const char *rest = below && strcmp(group + n_top, "/") != 0 ? group + n_top : "";
    int n = snprintf(out, PATH_BYTES, "%s%s", h->mount, rest);
    return n > 0 && n < PATH_BYTES;
}

/* The least quota from the own group up to the mount point. */
static uint32_t quota_upwards(const char *root, const struct hierarchy *h, const char *group)
{
    char folder[PATH_BYTES];
    uint32_t least = UINT32_MAX;
    if (!own_folder(h, group, folder)) return least;
    for (size_t n_mount = strlen(h->mount); strlen(folder) >= n_mount;) {
        uint32_t here = h->v1 ? quota_v1(root, folder) : quota_v2(root, folder);
        if (here < least) least = here;
        char *slash = strrchr(folder, '/');
        if (!slash) break;
        *slash = '\0';
    }
    return least;
}

static uint32_t quota_of(const char *root, const struct hierarchy *h)
{
    char line[LINE_BYTES];
    uint32_t least = UINT32_MAX;
    FILE *file = open_file(root, "/proc/self/cgroup");
    if (!file) return least;
    while (least == UINT32_MAX && read_line(file, line)) {
        const char *group = parse_group(line, h->v1);
        if (group) least = quota_upwards(root, h, group);
    }
    fclose(file);
    return least;
}

static uint32_t read_quota(const char *root)
{
    char line[LINE_BYTES];
    struct hierarchy h;
    uint32_t least = UINT32_MAX;
    FILE *file = open_file(root, "/proc/self/mountinfo");
    if (!file) return least;
    while (read_line(file, line)) {
        uint32_t quota = parse_mount(line, &h) ? quota_of(root, &h) : UINT32_MAX;
        if (quota < least) least = quota;
    }
    fclose(file);
    return least;
}

uint32_t afmoe__topology_n_threads(const char *root)
{
    uint32_t cores = *root ? 0 : afmoe__topology_hwloc_cores(), quota = read_quota(root);
    if (cores == 0) cores = afmoe__topology_cores(root);
    uint32_t n = cores < quota ? cores : quota;
    return n < 1 ? 1 : n;
}
