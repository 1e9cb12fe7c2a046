/* What every part of the decoder computes with: kernels, worker pool, and scratch of each worker. */
#ifndef AFMOE_CORE_ENGINE_H
#define AFMOE_CORE_ENGINE_H

#include "kernels.h"
#include "memory.h"
#include "pool.h"
#include "weights.h"

struct engine {
    struct kernels kernels;
    struct pool *pool;
    uint8_t *worker_scratch; /* n_threads pieces of worker_scratch_bytes, 64-byte aligned */
    uint64_t worker_scratch_bytes;
};

/* `worker_scratch_bytes` is rounded up to whole cache lines. The pool is created here. */
afmoe_status afmoe__engine_create(struct engine *out, int32_t cpu_level, uint32_t n_threads,
                                  uint64_t worker_scratch_bytes, afmoe_error *error);
/* Safe on a zeroed struct. */
void afmoe__engine_destroy(struct engine *engine);

/* Whole cache lines, so that workers do not share any. */
static inline uint64_t engine_scratch_piece(uint64_t worker_scratch_bytes)
{
    return (worker_scratch_bytes + CACHE_LINE_BYTES - 1) & ~(uint64_t)(CACHE_LINE_BYTES - 1);
}

static inline void *engine_scratch(const struct engine *engine, uint32_t worker)
{
    return engine->worker_scratch + worker * engine->worker_scratch_bytes;
}

/* Run a stage; one unit's worth of work stays on the calling thread. */
static inline void engine_run(const struct engine *engine, pool_stage_fn stage, void *arg, uint64_t n_units,
                              uint64_t grain)
{
    if (n_units == 0) return;
    if (n_units <= grain)
        stage(arg, 0, n_units, 0);
    else
        afmoe__pool_run(engine->pool, stage, arg, n_units, grain);
}

#endif
