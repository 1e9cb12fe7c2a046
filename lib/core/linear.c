/* y = W x for several matrices in one stage, see linear.h. */
#include "linear.h"

#include "memory.h"

/* Rows of one unit of work. A multiple of every kernel's panel; small enough that a router of 128 rows still feeds
 * some threads, large enough that taking a unit costs nothing beside computing it. */
enum { UNIT_ROWS = 32 };

struct linear_stage {
    const struct engine *engine;
    const struct linear_job *jobs;
    uint64_t n_jobs;
};

static uint64_t panel_bytes(const struct kernels *kernels, uint64_t n_columns)
{
    uint64_t most = 0;
    for (int f = 0; f < N_FORMATS; f++) {
        uint64_t bytes = kernels->product[f].panel_scratch_bytes(n_columns);
        if (bytes > most) most = bytes;
    }
    return (most + CACHE_LINE_BYTES - 1) & ~(uint64_t)(CACHE_LINE_BYTES - 1);
}

uint64_t afmoe__linear_scratch_bytes(const struct kernels *kernels, uint64_t n_tokens, uint64_t n_columns)
{
    return panel_bytes(kernels, n_columns) + n_tokens * UNIT_ROWS * sizeof(float);
}

/* Rows [begin, begin + n_rows) of one matrix for all tokens of the job. */
static void multiply(const struct engine *engine, const struct matrix *m, const struct linear_job *job, uint64_t begin,
                     uint64_t n_rows, float *y, uint64_t y_stride, void *scratch)
{
    const struct product_kernels *product = &engine->kernels.product[m->format];
    const uint8_t *rows = m->data + begin * m->row_bytes;
    if (job->n_tokens == 1)
        product->one_token(y, job->x, rows, m->row_bytes, n_rows, m->n_columns);
    else
        product->panel(y, y_stride, job->x, job->x_stride * sizeof(float), job->n_tokens, rows, m->row_bytes, n_rows,
                       m->n_columns, scratch);
}

static void compute_rows(const struct engine *engine, const struct linear_job *job, uint64_t begin, uint64_t n_rows,
                         uint8_t *scratch)
{
    float *y = job->y + begin;
    float *up = (float *)scratch;
    uint8_t *panel = scratch + job->n_tokens * UNIT_ROWS * sizeof *up; /* whole cache lines */
    multiply(engine, job->weights, job, begin, n_rows, y, job->y_stride, panel);
    if (job->up) {
        multiply(engine, job->up, job, begin, n_rows, up, UNIT_ROWS, panel);
        for (uint64_t t = 0; t < job->n_tokens; t++)
            engine->kernels.silu_mul(y + t * job->y_stride, y + t * job->y_stride, up + t * UNIT_ROWS, n_rows);
    } else if (job->bias) {
        for (uint64_t t = 0; t < job->n_tokens; t++)
            engine->kernels.add(y + t * job->y_stride, job->bias + begin, n_rows);
    }
}

/* The job that unit belongs to: the last one whose first_unit is not above it (empty jobs have no units). */
static uint64_t find_job(const struct linear_stage *stage, uint64_t unit)
{
    uint64_t low = 0, high = stage->n_jobs;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (stage->jobs[middle].first_unit <= unit)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static uint64_t n_units(const struct linear_job *job)
{
    return job->n_tokens ? (job->weights->n_rows + UNIT_ROWS - 1) / UNIT_ROWS : 0;
}

static void stage_units(void *arg, uint64_t begin, uint64_t end, uint32_t worker)
{
    const struct linear_stage *stage = arg;
    uint64_t j = find_job(stage, begin);
    while (begin < end) {
        const struct linear_job *job = &stage->jobs[j];
        uint64_t job_end = job->first_unit + n_units(job);
        if (begin >= job_end) {
            j++;
            continue;
        }
        uint64_t stop = end < job_end ? end : job_end;
        uint64_t n_rows = job->weights->n_rows;
        for (uint64_t u = begin; u < stop; u++) {
            uint64_t row = (u - job->first_unit) * UNIT_ROWS;
            uint64_t n = n_rows - row < UNIT_ROWS ? n_rows - row : UNIT_ROWS;
            compute_rows(stage->engine, job, row, n, engine_scratch(stage->engine, worker));
        }
        begin = stop;
    }
}

void afmoe__linear_run(const struct engine *engine, struct linear_job *jobs, uint64_t n_jobs)
{
    uint64_t total = 0;
    for (uint64_t j = 0; j < n_jobs; j++) {
        jobs[j].first_unit = total;
        total += n_units(&jobs[j]);
    }
    struct linear_stage stage = {engine, jobs, n_jobs};
    engine_run(engine, stage_units, &stage, total, 1);
}
