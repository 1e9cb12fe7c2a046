/* y = W x for several matrices in one stage, see linear.h. */
#include "linear.h"

#include "memory.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

/* Rows of one unit of work. A multiple of every kernel's panel; small enough that a router of 128 rows still feeds
 * some threads, large enough that taking a unit costs nothing beside computing it. */
enum { UNIT_ROWS = 32 };

static const struct product_kernels *product_of(const struct engine *engine, const struct linear_job *job,
                                                const struct matrix *m)
{
    return &engine->kernels.product[job->exact ? PRECISION_EXACT : engine->precision][m->format];
}

/* ---- Activations ---- */

/* Whether a product of this precision reads activations of this kind. */
static bool reads_kind(const struct kernels *kernels, enum precision precision, enum activation_kind kind)
{
    for (int f = 0; f < N_FORMATS; f++)
        if (kernels->product[precision][f].activation == kind) return true;
    return false;
}

uint64_t afmoe__linear_prepared_bytes(const struct kernels *kernels, enum precision precision, uint64_t n_rows,
                                      uint64_t n_columns)
{
    uint64_t each = 0, n = (n_columns + MAX_BLOCK_ELEMENTS - 1) / MAX_BLOCK_ELEMENTS * MAX_BLOCK_ELEMENTS;
    for (int kind = ACTIVATION_F32 + 1; kind < N_ACTIVATION_KINDS; kind++)
        if (reads_kind(kernels, precision, kind)) each += activation_bytes(kind, n);
    return n_rows * each;
}

/* Find room for every kind of activations that the jobs read. Returns how many rows there are to prepare. */
static uint64_t place_prepared(const struct engine *engine, struct linear_input *inputs, uint64_t n_inputs,
                               const struct linear_job *jobs, uint64_t n_jobs)
{
    uint64_t used = 0, n_rows = 0;
    for (uint64_t i = 0; i < n_inputs; i++) {
        bool needed[N_ACTIVATION_KINDS] = {false};
        for (uint64_t j = 0; j < n_jobs; j++) {
            if (jobs[j].input != &inputs[i] || jobs[j].n_tokens == 0) continue;
            needed[product_of(engine, &jobs[j], jobs[j].weights)->activation] = true;
            if (jobs[j].up) needed[product_of(engine, &jobs[j], jobs[j].up)->activation] = true;
        }
        for (int kind = 0; kind < N_ACTIVATION_KINDS; kind++) {
            inputs[i].prepared[kind] = NULL;
            if (!needed[kind] || kind == ACTIVATION_F32) continue;
            inputs[i].prepared[kind] = engine->prepared + used;
            used += inputs[i].n_rows * activation_bytes(kind, inputs[i].n_columns);
            n_rows += inputs[i].n_rows;
        }
    }
    assert(used <= engine->prepared_bytes);
    return n_rows;
}

/* So few rows are not worth waking other workers for. */
enum { PREPARE_ROWS = 16 };

struct preparation {
    const struct engine *engine;
    const struct linear_input *inputs;
    uint64_t n_inputs;
};

/* Units are the rows of all inputs in all kinds, one after the other. */
static void prepare_rows(void *arg, uint64_t begin, uint64_t end, uint32_t worker)
{
    const struct preparation *p = arg;
    uint64_t first = 0;
    (void)worker;
    for (uint64_t i = 0; i < p->n_inputs; i++)
        for (int kind = 0; kind < N_ACTIVATION_KINDS; kind++) {
            const struct linear_input *input = &p->inputs[i];
            uint64_t n = input->n_columns, bytes = activation_bytes(kind, n);
            if (!input->prepared[kind]) continue;
            for (uint64_t row = begin > first ? begin - first : 0; row < input->n_rows && first + row < end; row++)
                p->engine->kernels.prepare[kind](input->prepared[kind] + row * bytes, input->x + row * n, n);
            first += input->n_rows;
        }
}

/* ---- Products ---- */

struct linear_stage {
    const struct engine *engine;
    const struct linear_job *jobs;
    uint64_t n_jobs;
};

/* Scratch of one worker. */
struct unit_scratch {
    float *up;      /* [n_tokens][UNIT_ROWS]: the second product of a gated job */
    const void **x; /* [n_tokens] */
    uint8_t *panel;
};

static uint64_t lay_out(struct unit_scratch *out, uint8_t *base, uint64_t n_tokens, uint64_t panel_bytes)
{
    uint64_t used = 0;
    out->up = carve(base, &used, n_tokens * UNIT_ROWS, sizeof *out->up);
    out->x = carve(base, &used, n_tokens, sizeof *out->x);
    out->panel = carve(base, &used, panel_bytes, 1);
    return used;
}

uint64_t afmoe__linear_scratch_bytes(const struct kernels *kernels, enum precision precision, uint64_t n_tokens,
                                     uint64_t n_columns)
{
    uint64_t most = 0;
    struct unit_scratch scratch;
    const enum precision used[] = {PRECISION_EXACT, precision}; /* there are exact jobs in any */
    for (int i = 0; i < 2; i++)
        for (int f = 0; f < N_FORMATS; f++) {
            uint64_t bytes = kernels->product[used[i]][f].panel_scratch_bytes(n_columns);
            if (bytes > most) most = bytes;
        }
    return lay_out(&scratch, NULL, n_tokens, most);
}

static const void *activations_of(const struct linear_job *job, enum activation_kind kind, uint64_t token)
{
    const struct linear_input *input = job->input;
    uint64_t row = job->rows ? job->rows[token] : job->first_row + token;
    if (kind == ACTIVATION_F32) return input->x + row * input->n_columns;
    return input->prepared[kind] + row * activation_bytes(kind, input->n_columns);
}

static const uint8_t *row_of(const struct matrix *m, uint64_t row)
{
    return m->data + row * m->row_bytes;
}

/* Rows [begin, begin + n_rows) of one matrix for all tokens of the job; `next` is what will be read after them. */
static void multiply(const struct engine *engine, const struct matrix *m, const struct linear_job *job, uint64_t begin,
                     uint64_t n_rows, const uint8_t *next, float *y, uint64_t y_stride,
                     const struct unit_scratch *scratch)
{
    const struct product_kernels *product = product_of(engine, job, m);
    const uint8_t *rows = row_of(m, begin);
    if (job->n_tokens == 1) {
        product->one_token(y, activations_of(job, product->activation, 0), rows, m->row_bytes, n_rows, m->n_columns,
                           next);
        return;
    }
    for (uint64_t t = 0; t < job->n_tokens; t++) scratch->x[t] = activations_of(job, product->activation, t);
    product->panel(y, y_stride, scratch->x, job->n_tokens, rows, m->row_bytes, n_rows, m->n_columns, next,
                   scratch->panel);
}

static void compute_rows(const struct engine *engine, const struct linear_job *job, uint64_t begin, uint64_t n_rows,
                         const uint8_t *next, uint8_t *worker_scratch)
{
    float *y = job->y + begin;
    struct unit_scratch scratch;
    lay_out(&scratch, worker_scratch, job->n_tokens, 0);
    multiply(engine, job->weights, job, begin, n_rows, job->up ? row_of(job->up, begin) : next, y, job->y_stride,
             &scratch);
    if (job->up) {
        multiply(engine, job->up, job, begin, n_rows, next, scratch.up, UNIT_ROWS, &scratch);
        for (uint64_t t = 0; t < job->n_tokens; t++)
            engine->kernels.silu_mul(y + t * job->y_stride, y + t * job->y_stride, scratch.up + t * UNIT_ROWS, n_rows);
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

/* What the unit after that of job j at `row` reads first. Units are taken in order, but for a few that are stolen. */
static const uint8_t *unit_after(const struct linear_stage *stage, uint64_t j, uint64_t row)
{
    const struct matrix *m = stage->jobs[j].weights;
    if (row + UNIT_ROWS < m->n_rows) return row_of(m, row + UNIT_ROWS);
    while (++j < stage->n_jobs)
        if (stage->jobs[j].n_tokens) return stage->jobs[j].weights->data;
    return row_of(m, m->n_rows);
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
            compute_rows(stage->engine, job, row, n, unit_after(stage, j, row), engine_scratch(stage->engine, worker));
        }
        begin = stop;
    }
}

void afmoe__linear_run(const struct engine *engine, struct linear_input *inputs, uint64_t n_inputs,
                       struct linear_job *jobs, uint64_t n_jobs)
{
    struct preparation preparation = {engine, inputs, n_inputs};
    uint64_t n_prepared = place_prepared(engine, inputs, n_inputs, jobs, n_jobs);
    engine_run(engine, prepare_rows, &preparation, n_prepared, PREPARE_ROWS);

    uint64_t total = 0;
    for (uint64_t j = 0; j < n_jobs; j++) {
        jobs[j].first_unit = total;
        total += n_units(&jobs[j]);
    }
    struct linear_stage stage = {engine, jobs, n_jobs};
    engine_run(engine, stage_units, &stage, total, 1);
}
