/* Usable threads on recorded trees of /sys and /proc, made here in a temporary folder. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "topology.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { MAX_FILES = 256 };

static char root[64];
static char made[MAX_FILES][256]; /* files and folders in order of making */
static int n_made;

static void remember(const char *path)
{
    assert_true(n_made < MAX_FILES);
    snprintf(made[n_made++], sizeof made[0], "%s", path);
}

static int begin_tree(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/afmoe-topology-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int end_tree(void **state)
{
    (void)state;
    while (n_made > 0) remove(made[--n_made]);
    return rmdir(root);
}

static void put(const char *path, const char *text)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        if (mkdir(full, 0700) == 0) remember(full);
        *p = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    remember(full);
}

static void put_cpus(int n, const char *(*siblings)(int cpu))
{
    char path[128], text[32];
    snprintf(text, sizeof text, "0-%d\n", n - 1);
    put("/sys/devices/system/cpu/present", text);
    for (int cpu = 0; cpu < n; cpu++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
        put(path, siblings(cpu));
    }
}

static const char *pairs_apart(int cpu) /* 0,4 1,5 2,6 3,7 */
{
    static const char *const lists[] = {"0,4\n", "1,5\n", "2,6\n", "3,7\n"};
    return lists[cpu % 4];
}

static const char *pairs_adjacent(int cpu) /* 0-1 2-3 ... */
{
    static const char *const lists[] = {"0-1\n", "2-3\n", "4-5\n", "6-7\n"};
    return lists[cpu / 2];
}

static void put_v2(const char *group)
{
    char text[128];
    put("/proc/self/mountinfo", "25 1 0:22 / /proc rw - proc proc rw\n"
                                "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
    snprintf(text, sizeof text, "0::%s\n", group);
    put("/proc/self/cgroup", text);
}

static void test_nothing_known(void **state)
{
    (void)state;
    assert_int_equal(afmoe__topology_n_threads(root), 1);
}

static void test_no_siblings(void **state)
{
    (void)state;
    put("/sys/devices/system/cpu/present", "0-2,5,7-8\n");
    assert_int_equal(afmoe__topology_n_threads(root), 6);
}

static void test_cores(void **state)
{
    (void)state;
    put_cpus(8, pairs_apart);
    assert_int_equal(afmoe__topology_n_threads(root), 4);
}

static void test_cores_adjacent(void **state)
{
    (void)state;
    put_cpus(8, pairs_adjacent);
    assert_int_equal(afmoe__topology_n_threads(root), 4);
}

/* Of a core only one thread may be in the mask; it is not always the first. */
static void test_half_cores(void **state)
{
    (void)state;
    put_cpus(8, pairs_apart);
    put("/sys/devices/system/cpu/present", "2-5\n"); /* 4 and 5 stand for cores 0 and 1 */
    assert_int_equal(afmoe__topology_n_threads(root), 4);
}

static void test_v2_own_group(void **state)
{
    (void)state;
    put_cpus(8, pairs_apart);
    put_v2("/app.slice/job");
    put("/sys/fs/cgroup/app.slice/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/app.slice/job/cpu.max", "250000 100000\n");
    assert_int_equal(afmoe__topology_n_threads(root), 2);
}

static void test_v2_parent(void **state)
{
    (void)state;
    put_cpus(8, pairs_apart);
    put_v2("/app.slice/job");
    put("/sys/fs/cgroup/app.slice/cpu.max", "50000 100000\n"); /* half a CPU is one thread */
    put("/sys/fs/cgroup/app.slice/job/cpu.max", "300000 100000\n");
    assert_int_equal(afmoe__topology_n_threads(root), 1);
}

static void test_v2_top_of_container(void **state)
{
    (void)state;
    put_cpus(8, pairs_apart);
    put_v2("/");
    put("/sys/fs/cgroup/cpu.max", "300000 100000\n");
    assert_int_equal(afmoe__topology_n_threads(root), 3);
}

static void test_v2_no_limit(void **state)
{
    (void)state;
    put_cpus(8, pairs_apart);
    put_v2("/job");
    put("/sys/fs/cgroup/job/cpu.max", "max 100000\n");
    assert_int_equal(afmoe__topology_n_threads(root), 4);
}

static void put_v1(const char *top, const char *group)
{
    char text[512];
    snprintf(text, sizeof text,
             "36 32 0:33 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
             "37 32 0:34 %s /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:10 - cgroup cgroup rw,cpu,cpuacct\n",
             top);
    put("/proc/self/mountinfo", text);
    snprintf(text, sizeof text, "9:cpuset:/other\n4:cpu,cpuacct:%s\n1:name=systemd:/x\n0::/\n", group);
    put("/proc/self/cgroup", text);
}

static void test_v1_parent(void **state)
{
    (void)state;
    put_cpus(8, pairs_apart);
    put_v1("/", "/a/b");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "400000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "200000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpuset/other/cpu.cfs_quota_us", "1\n");
    assert_int_equal(afmoe__topology_n_threads(root), 2);
}

/* A container without a namespace of groups: the group is named as outside, its folder is the mount point. */
static void test_v1_mounted_group(void **state)
{
    (void)state;
    put_cpus(8, pairs_apart);
    put_v1("/docker/0123", "/docker/0123");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "50000\n");
    assert_int_equal(afmoe__topology_n_threads(root), 3);
}

/* Two sockets of two cores with two threads each: core numbers repeat, sibling lists do not. */
static const char *two_sockets(int cpu)
{
    static const char *const lists[] = {"0,4\n", "1,5\n", "2,6\n", "3,7\n"};
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
    put(path, cpu % 4 < 2 ? "0\n" : "1\n");
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_id", cpu);
    put(path, cpu % 2 ? "1\n" : "0\n");
    return lists[cpu % 4];
}

static void test_two_sockets(void **state)
{
    (void)state;
    put_cpus(8, two_sockets);
    assert_int_equal(afmoe__topology_n_threads(root), 4);
}

/* Two performance cores with two threads, then four efficiency cores with one: all six cores count. */
static const char *hybrid(int cpu)
{
    static const char *const lists[] = {"0-1\n", "0-1\n", "2-3\n", "2-3\n", "4\n", "5\n", "6\n", "7\n"};
    return lists[cpu];
}

static void test_hybrid(void **state)
{
    (void)state;
    put_cpus(8, hybrid);
    put("/sys/devices/cpu_core/cpus", "0-3\n");
    put("/sys/devices/cpu_atom/cpus", "4-7\n");
    assert_int_equal(afmoe__topology_n_threads(root), 6);
}

static void test_hybrid_limited_to_efficiency_cores(void **state)
{
    (void)state;
    put_cpus(8, hybrid);
    put("/proc/self/status", "Name:\tx\nCpus_allowed:\tf0\nCpus_allowed_list:\t4-7\nMems_allowed:\t1\n");
    assert_int_equal(afmoe__topology_n_threads(root), 4);
}

/* A cpuset shows in the affinity mask: one thread of core 1 and both of core 3, which is two cores. */
static void test_cpuset(void **state)
{
    (void)state;
    put_cpus(8, pairs_apart);
    put("/proc/self/status", "Name:\tx\nCpus_allowed:\ta8\nCpus_allowed_list:\t3,5,7\n");
    put_v2("/box");
    put("/sys/fs/cgroup/box/cpuset.cpus.effective", "3,5,7\n");
    put("/sys/fs/cgroup/box/cpu.max", "max 100000\n");
    assert_int_equal(afmoe__topology_n_threads(root), 2);
}

/* Three levels, the tightest in the middle; it beats the cpuset too. */
static void test_v2_nested(void **state)
{
    (void)state;
    put_cpus(8, pairs_apart);
    put("/proc/self/status", "Cpus_allowed_list:\t0-6\n");
    put_v2("/a.slice/b.slice/c");
    put("/sys/fs/cgroup/a.slice/cpu.max", "400000 100000\n");
    put("/sys/fs/cgroup/a.slice/b.slice/cpu.max", "30000 10000\n");
    put("/sys/fs/cgroup/a.slice/b.slice/c/cpu.max", "max 100000\n");
    assert_int_equal(afmoe__topology_n_threads(root), 3);
}

/* systemd's mixed mode: CPU limits in v1, groups also in a v2 hierarchy without controllers. */
static void test_v1_and_v2(void **state)
{
    (void)state;
    put_cpus(8, pairs_apart);
    put("/proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
                                "37 24 0:34 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
    put("/proc/self/cgroup", "4:cpu:/j\n0::/user.slice/session-1\n");
    put("/sys/fs/cgroup/unified/user.slice/session-1/cgroup.procs", "1\n");
    put("/sys/fs/cgroup/cpu/j/cpu.cfs_quota_us", "200000\n");
    put("/sys/fs/cgroup/cpu/j/cpu.cfs_period_us", "100000\n");
    assert_int_equal(afmoe__topology_n_threads(root), 2);
}

/* What is missing limits nothing, and what is there still counts. */
static void test_missing_files(void **state)
{
    (void)state;
    put("/sys/devices/system/cpu/present", "0-7\n");
    put("/sys/devices/system/cpu/cpu4/topology/thread_siblings_list", "0,4\n"); /* of one pair only */
    put("/proc/self/cgroup", "0::/job\n");                                      /* without mountinfo */
    put("/sys/fs/cgroup/job/cpu.max", "100000 100000\n");
    assert_int_equal(afmoe__topology_n_threads(root), 7);
}

static void test_garbage_quotas(void **state)
{
    static const char *const quotas[] = {"", "\n", "max\n", "100000\n", "-5 100000\n", "100000 0\n", "1e9 x\n",
                                         "99999999999999999999 1\n", "0 100000\n", "max max\n"};
    (void)state;
    put_cpus(8, pairs_apart);
    put_v2("/job");
    for (size_t i = 0; i < sizeof quotas / sizeof *quotas; i++) {
        put("/sys/fs/cgroup/job/cpu.max", quotas[i]);
        assert_int_equal(afmoe__topology_n_threads(root), 4);
    }
}

static void test_garbage_lists(void **state)
{
    static const char *const lists[] = {"", "\n", "-\n", "x\n", "Cpus_allowed_list:\n", "Cpus_allowed_list:\t\n",
                                        "Cpus_allowed_list:\tnone\n", "Cpus_allowed_list:\t3-1\n"};
    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        put("/proc/self/status", lists[i]);
        put("/sys/devices/system/cpu/present", lists[i]);
        assert_int_equal(afmoe__topology_n_threads(root), 1);
    }
}

static void test_garbage(void **state)
{
    (void)state;
    static char noise[20000];
    memset(noise, 'x', sizeof noise - 1);
    put("/sys/devices/system/cpu/present", "0-1,99999999999999999999,junk\n");
    put("/sys/devices/system/cpu/cpu1/topology/thread_siblings_list", noise);
    put("/proc/self/mountinfo", noise);
    put("/proc/self/cgroup", "no colons\n0:\n::::\n");
    assert_int_equal(afmoe__topology_n_threads(root), 2);
}

static void test_this_machine(void **state)
{
    (void)state;
    uint32_t n = afmoe__topology_n_threads("");
    assert_true(n >= 1 && n <= (uint32_t)sysconf(_SC_NPROCESSORS_CONF));
    assert_true(n <= afmoe__topology_cores(""));
}

#ifdef AFMOE_HAVE_HWLOC
/* sysfs and hwloc count the same cores: with the mask we were started with, and with each single CPU of it. */
static void test_hwloc_agrees(void **state)
{
    (void)state;
    cpu_set_t all, one;
    uint32_t cores = afmoe__topology_hwloc_cores();
    assert_true(cores > 0);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0); /* more than 1024 CPUs: not this machine */
    assert_int_equal(afmoe__topology_cores(""), cores);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all)) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
        assert_int_equal(afmoe__topology_hwloc_cores(), 1);
        assert_int_equal(afmoe__topology_cores(""), 1);
        assert_int_equal(afmoe__topology_n_threads(""), 1);
    }
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}
#endif

int main(void)
{
#define TREE(test) cmocka_unit_test_setup_teardown(test, begin_tree, end_tree)
    const struct CMUnitTest tests[] = {
        TREE(test_nothing_known),
        TREE(test_no_siblings),
        TREE(test_cores),
        TREE(test_cores_adjacent),
        TREE(test_half_cores),
        TREE(test_v2_own_group),
        TREE(test_v2_parent),
        TREE(test_v2_top_of_container),
        TREE(test_v2_no_limit),
        TREE(test_v1_parent),
        TREE(test_v1_mounted_group),
        TREE(test_two_sockets),
        TREE(test_hybrid),
        TREE(test_hybrid_limited_to_efficiency_cores),
        TREE(test_cpuset),
        TREE(test_v2_nested),
        TREE(test_v1_and_v2),
        TREE(test_missing_files),
        TREE(test_garbage_quotas),
        TREE(test_garbage_lists),
        TREE(test_garbage),
        cmocka_unit_test(test_this_machine),
#ifdef AFMOE_HAVE_HWLOC
        cmocka_unit_test(test_hwloc_agrees),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
