/* Worker pool: `run(stage, n_units)` over contiguous ranges with stealing.
 *
 * The calling thread is worker 0; n_threads - 1 threads are started at creation, or none where the host brings its own
 * parallel-for. A stage is a function over units 0..n_units-1; every worker begins with one contiguous share (so that
 * its memory reads run on linearly) and, when done, steals from the far end of another's. run returns when every unit
 * is done. Units must be independent: the result may not depend on who computes them or in what order.
 *
 * Idle workers spin for some microseconds, then sleep; an idle pool uses no CPU. One run at a time (the context's
 * turn-taking sees to that). No allocation after creation. */
#ifndef AFMOE_BASE_POOL_H
#define AFMOE_BASE_POOL_H

#include "afmoe.h"

#include <stdbool.h>

struct pool;

struct pool_options {
    uint32_t n_threads;
    const int32_t *cpus; /* worker i > 0 is pinned to cpus[i % n_cpus]; read during creation only */
    uint64_t n_cpus;     /* 0: not pinned */
    afmoe_parallel_fn parallel; /* NULL: own threads */
    void *parallel_data;
};

/* Compute units [begin, end). `worker` < n_threads picks per-worker scratch. */
typedef void (*pool_stage_fn)(void *arg, uint64_t begin, uint64_t end, uint32_t worker);

afmoe_status afmoe__pool_create(struct pool **out, const struct pool_options *options, afmoe_error *error);
/* In a child of fork, where the threads do not exist, only memory is given back. */
void afmoe__pool_free(struct pool *pool);
uint32_t afmoe__pool_n_threads(const struct pool *pool);

/* `grain`: units taken at a time, >= 1; a worker keeps its scratch for one such piece. n_units may be 0. */
void afmoe__pool_run(struct pool *pool, pool_stage_fn stage, void *arg, uint64_t n_units, uint64_t grain);

/* From now on, runs leave out what is left of them once `cancel` (may be NULL) is set or the host's parallel-for says
 * stop. A run then returns with units not done, and every later run does nothing, until the next call of watch: so
 * whoever reads what a run has written as an index asks afmoe__pool_stopped first. */
void afmoe__pool_watch(struct pool *pool, const afmoe_cancel *cancel);
bool afmoe__pool_stopped(struct pool *pool);

#endif
