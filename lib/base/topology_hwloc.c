/* Physical cores, asked of hwloc (https://www.open-mpi.org/projects/hwloc/): it knows machines whose sysfs is odd, and
 * systems without one. Everything but cores and hardware threads is filtered out, which keeps the call at a
 * millisecond or so. hwloc 2.9 does not survive its own allocations failing; hence one short call when a context is
 * created, none where the caller says n_threads, and an option to build without. */
#include "topology.h"

#ifdef AFMOE_HAVE_HWLOC
#include <hwloc.h>

static uint32_t count_bound(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_const_bitmap_t allowed)
{
    uint32_t n = 0;
    hwloc_obj_t object = NULL;
    while ((object = hwloc_get_next_obj_by_type(topology, type, object)) != NULL)
        if (hwloc_bitmap_intersects(object->cpuset, allowed)) n++;
    return n;
}

static uint32_t count_cores(hwloc_topology_t topology)
{
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    uint32_t n = 0;
    if (allowed && hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_THREAD) == 0) {
        n = count_bound(topology, HWLOC_OBJ_CORE, allowed);
        if (n == 0) n = count_bound(topology, HWLOC_OBJ_PU, allowed); /* some virtual machines show no cores */
    }
    hwloc_bitmap_free(allowed);
    return n;
}

uint32_t afmoe__topology_hwloc_cores(void)
{
    hwloc_topology_t topology;
    uint32_t n = 0;
    if (hwloc_topology_init(&topology) != 0) return 0;
    if (hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE) == 0 &&
        hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL) == 0 &&
        hwloc_topology_load(topology) == 0)
        n = count_cores(topology);
    hwloc_topology_destroy(topology);
    return n;
}

#else

uint32_t afmoe__topology_hwloc_cores(void)
{
    return 0;
}

#endif
