/* Worker pool: `run(stage, n_units)` over contiguous ranges with stealing.
 *
 * The calling thread is worker 0; n_threads - 1 threads are started at creation. A stage is a function over units
 * 0..n_units-1; every worker begins with one contiguous share (so that its memory reads run on linearly) and, when
 * done, steals from the far end of another's. run returns when every unit is done. Units must be independent: the
 * result may not depend on who computes them or in what order.
 *
 * Idle workers spin for some microseconds, then sleep; an idle pool uses no CPU. One run at a time (the context's
 * turn-taking sees to that). No allocation after creation. */
#ifndef AFMOE_BASE_POOL_H
#define AFMOE_BASE_POOL_H

#include "afmoe.h"

struct pool;

/* Compute units [begin, end). `worker` < n_threads picks per-worker scratch. */
typedef void (*pool_stage_fn)(void *arg, uint64_t begin, uint64_t end, uint32_t worker);

afmoe_status afmoe__pool_create(struct pool **out, uint32_t n_threads, afmoe_error *error);
void afmoe__pool_free(struct pool *pool);
uint32_t afmoe__pool_n_threads(const struct pool *pool);

/* `grain`: units taken at a time, >= 1; a worker keeps its scratch for one such piece. n_units may be 0. */
void afmoe__pool_run(struct pool *pool, pool_stage_fn stage, void *arg, uint64_t n_units, uint64_t grain);

#endif
