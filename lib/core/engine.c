/* Kernels, pool and worker scratch put together, see engine.h. */
#include "engine.h"

#include "error.h"
#include "memory.h"

#include <string.h>

afmoe_status afmoe__engine_create(struct engine *out, int32_t cpu_level, enum precision precision,
                                  const struct pool_options *threads, uint64_t worker_scratch_bytes,
                                  afmoe_error *error)
{
    memset(out, 0, sizeof *out);
    out->precision = precision;
    afmoe__kernels_select(&out->kernels, cpu_level);
    out->worker_scratch_bytes = engine_scratch_piece(worker_scratch_bytes);
    uint64_t n_bytes = threads->n_threads * out->worker_scratch_bytes;
    out->worker_scratch = afmoe__alloc_aligned(n_bytes, 1);
    if (!out->worker_scratch) return afmoe__fail_memory(error, n_bytes, "scratch of the worker threads");
    memset(out->worker_scratch, 0, n_bytes); /* touched at once, as the decoder's */
    afmoe_status status = afmoe__pool_create(&out->pool, threads, error);
    if (status != AFMOE_OK) afmoe__engine_destroy(out);
    return status;
}

void afmoe__engine_destroy(struct engine *engine)
{
    afmoe__pool_free(engine->pool);
    afmoe__free(engine->worker_scratch);
    memset(engine, 0, sizeof *engine);
}
