/* What every part of the decoder computes with: kernels, worker pool, and scratch of each worker. */
#ifndef AFMOE_CORE_ENGINE_H
#define AFMOE_CORE_ENGINE_H

#include "kernels.h"
#include "memory.h"
#include "pool.h"
#include "weights.h"

struct engine {
    struct kernels kernels;
    enum precision precision;
    struct pool *pool;
    uint8_t *prepared; /* room for prepared activations of one stage, 64-byte aligned; of the decoder */
    uint64_t prepared_bytes;
    uint8_t *worker_scratch; /* n_threads pieces of worker_scratch_bytes, 64-byte aligned */
    uint64_t worker_scratch_bytes;
};

/* `worker_scratch_bytes` is rounded up to whole cache lines. The pool is created here. */
afmoe_status afmoe__engine_create(struct engine *out, int32_t cpu_level, enum precision precision,
                                  const struct pool_options *threads, uint64_t worker_scratch_bytes,
                                  afmoe_error *error);
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

/* Run a stage; one piece of work stays on the calling thread. */
static inline void engine_run(const struct engine *engine, pool_stage_fn stage, void *arg, uint64_t n_units,
                              uint64_t grain)
{
    afmoe__pool_run(engine->pool, stage, arg, n_units, grain);
}

/* True: the last stages may have left units out (see afmoe__pool_watch), and so will all others of this pass. */
static inline bool engine_stopped(const struct engine *engine)
{
    return afmoe__pool_stopped(engine->pool);
}

#endif
