/* Context, see context.h: options checked and resolved, decoder and page store made from them. */
#include "context_private.h"

#include "ahead.h"
#include "checked.h"
#include "cpu.h"
#include "error.h"
#include "memory.h"
#include "session.h"
#include "topology.h"

#include <stdio.h>
#include <unistd.h>

enum { MAX_THREADS = 256, MAX_CHUNK_TOKENS = 4096, DEFAULT_MAX_TOKENS = 4096 };

static afmoe_status check_threads(struct context *context, const afmoe_context_options *options, afmoe_error *error)
{
    if (options->n_threads != -1 && (options->n_threads < 1 || options->n_threads > MAX_THREADS))
        return afmoe__fail(error, AFMOE_INVALID, "n_threads is %d, allowed are 1..%d and -1", options->n_threads,
                           MAX_THREADS);
    uint32_t usable = options->n_threads == -1 ? afmoe__topology_n_threads("") : (uint32_t)options->n_threads;
    if (options->n_threads == -1 && options->n_cpus && options->n_cpus < usable) usable = (uint32_t)options->n_cpus;
    context->n_threads = usable < MAX_THREADS ? usable : MAX_THREADS;
    return AFMOE_OK;
}

static afmoe_status check_level(int32_t *out, const afmoe_context_options *options, afmoe_error *error)
{
    int32_t best = afmoe__cpu_level();
    if (options->cpu_level < AFMOE_CPU_AUTO || options->cpu_level > AFMOE_CPU_AVX512BF16)
        return afmoe__fail(error, AFMOE_INVALID, "cpu_level is %d, allowed are %d..%d", options->cpu_level,
                           AFMOE_CPU_AUTO, AFMOE_CPU_AVX512BF16);
    if (options->cpu_level != AFMOE_CPU_AUTO && !afmoe__cpu_has_level(options->cpu_level))
        return afmoe__fail(error, AFMOE_UNSUPPORTED, "cpu_level %s: this CPU has not got it; its highest is %s",
                           afmoe__cpu_level_name(options->cpu_level), afmoe__cpu_level_name(best));
    *out = options->cpu_level == AFMOE_CPU_AUTO ? best : options->cpu_level;
    return AFMOE_OK;
}

static afmoe_status check_precision(struct context *context, const afmoe_context_options *options, afmoe_error *error)
{
    static const enum cell_format formats[] = {
        [AFMOE_CELLS_F32] = CELLS_F32, [AFMOE_CELLS_F16] = CELLS_F16, [AFMOE_CELLS_BF16] = CELLS_BF16,
        [AFMOE_CELLS_Q8_0] = CELLS_Q8_0};
    if (options->precision != AFMOE_PRECISION_EXACT && options->precision != AFMOE_PRECISION_FAST)
        return afmoe__fail(error, AFMOE_INVALID, "precision is %d, allowed are %d..%d", options->precision,
                           AFMOE_PRECISION_EXACT, AFMOE_PRECISION_FAST);
    if (options->cells < AFMOE_CELLS_AUTO || options->cells > AFMOE_CELLS_Q8_0)
        return afmoe__fail(error, AFMOE_INVALID, "cells is %d, allowed are %d..%d", options->cells, AFMOE_CELLS_AUTO,
                           AFMOE_CELLS_Q8_0);
    context->precision = options->precision;
    context->cells = options->cells;
    if (options->cells == AFMOE_CELLS_AUTO)
        context->cells = options->precision == AFMOE_PRECISION_FAST ? AFMOE_CELLS_BF16 : AFMOE_CELLS_F32;
    context->cell_format = formats[context->cells];
    return AFMOE_OK;
}

static uint64_t page_bytes(const struct context *context)
{
    return 2 * context->config->n_kv_heads * head_page_bytes(context->cell_format, context->config->head_dim);
}

/* The default depends on the model; a stated value is never lowered silently. */
static afmoe_status check_sizes(struct context *context, const afmoe_context_options *options, afmoe_error *error)
{
    const struct model_config *config = context->config;
    uint64_t max = config->max_positions;
    context->max_tokens = options->max_tokens;
    if (options->max_tokens == UINT64_MAX) context->max_tokens = max < DEFAULT_MAX_TOKENS ? max : DEFAULT_MAX_TOKENS;
    if (context->max_tokens < 1 || context->max_tokens > max) {
        if (config->rope.kind == ROPE_DYNAMIC && context->max_tokens > max)
            return afmoe__fail(error, AFMOE_UNSUPPORTED,
                               "max_tokens is %llu: with dynamic rope the keys of a timeline longer than "
                               "max_position_embeddings (%llu) depend on its final length",
                               (unsigned long long)context->max_tokens, (unsigned long long)max);
        return afmoe__fail(error, AFMOE_INVALID, "max_tokens is %llu, allowed are 1..%llu",
                           (unsigned long long)context->max_tokens, (unsigned long long)max);
    }
    if (options->chunk_tokens < 1 || options->chunk_tokens > MAX_CHUNK_TOKENS)
        return afmoe__fail(error, AFMOE_INVALID, "chunk_tokens is %u, allowed are 1..%d", options->chunk_tokens,
                           MAX_CHUNK_TOKENS);
    if (options->rewind_tokens > (uint64_t)1 << 32)
        return afmoe__fail(error, AFMOE_INVALID, "rewind_tokens is %llu, allowed are 0..2^32",
                           (unsigned long long)options->rewind_tokens);
    if (options->snapshot_tokens < PAGE_POSITIONS || options->snapshot_tokens > (uint64_t)1 << 32)
        return afmoe__fail(error, AFMOE_INVALID, "snapshot_tokens is %llu, allowed are %d..2^32",
                           (unsigned long long)options->snapshot_tokens, PAGE_POSITIONS);
    uint64_t chunk_tokens = options->chunk_tokens < context->max_tokens ? options->chunk_tokens : context->max_tokens;
    afmoe__page_plan_init(&context->plan, config, options->rewind_tokens, chunk_tokens);
    afmoe__plan_snapshots(&context->plan, options->snapshot_tokens, options->snapshot_bytes / page_bytes(context));
    return AFMOE_OK;
}

/* What the options mean for this model and machine; makes nothing. */
static afmoe_status resolve(struct context *context, struct decoder_options *decoder,
                            const afmoe_context_options *options, afmoe_error *error)
{
    afmoe_status status;
    *decoder = (struct decoder_options){.cells = CELLS_F32};
    if ((status = check_threads(context, options, error)) != AFMOE_OK) return status;
    if ((status = check_level(&decoder->cpu_level, options, error)) != AFMOE_OK) return status;
    if ((status = check_precision(context, options, error)) != AFMOE_OK) return status;
    if ((status = check_sizes(context, options, error)) != AFMOE_OK) return status;
    decoder->threads = (struct pool_options){.n_threads = context->n_threads, .cpus = options->cpus,
                                             .n_cpus = options->n_cpus, .parallel = options->parallel,
                                             .parallel_data = options->parallel_data};
    decoder->precision = context->precision == AFMOE_PRECISION_FAST ? PRECISION_FAST : PRECISION_EXACT;
    decoder->cells = context->cell_format;
    decoder->max_rows = context->plan.chunk_tokens;
    return AFMOE_OK;
}

/* Place the batch of a pass in one block; with base NULL only count. */
static uint64_t lay_out_pass(struct context *context, uint8_t *base)
{
    uint64_t used = 0;
    context->pass.items = carve(base, &used, context->plan.chunk_tokens, sizeof *context->pass.items);
    context->pass.sessions = carve(base, &used, context->plan.chunk_tokens, sizeof *context->pass.sessions);
    return used;
}

static afmoe_status allocate_pass(struct context *context, afmoe_error *error)
{
    uint64_t bytes = lay_out_pass(context, NULL);
    context->pass_block = afmoe__alloc_zeroed(bytes, 1);
    if (!context->pass_block) return afmoe__fail_memory(error, bytes, "the batch of a pass");
    lay_out_pass(context, context->pass_block);
    return AFMOE_OK;
}

static afmoe_status build(struct context *context, const afmoe_context_options *options, uint64_t fingerprint,
                          afmoe_error *error)
{
    struct decoder_options decoder;
    afmoe_status status = resolve(context, &decoder, options, error);
    if (status == AFMOE_OK)
        status = afmoe__prefix_folder_open(&context->prefix_folder, context, options->prefix_folder,
                                           options->prefix_folder_bytes, fingerprint, error);
    if (status != AFMOE_OK) return status;

    if ((status = afmoe__turns_init(&context->turns, error)) != AFMOE_OK) return status;
    context->has_turns = true;
    status = afmoe__pages_create(&context->pages, page_bytes(context), options->max_page_bytes, error);
    if (status == AFMOE_OK) status = afmoe__prefixes_create(&context->prefixes, context, options->prefix_bytes, error);
    if (status != AFMOE_OK) return status;
    if ((status = allocate_pass(context, error)) != AFMOE_OK) return status;
    return afmoe__decoder_create(&context->decoder, context->config, context->weights, &decoder, error);
}

static void log_choice(const struct context *context, const afmoe_context_options *options)
{
    if (!options->log) return;
    char line[128];
    snprintf(line, sizeof line, "%u threads, CPU level %s", context->n_threads,
             afmoe__cpu_level_name(afmoe__decoder_cpu_level(context->decoder)));
    options->log(options->log_data, AFMOE_LOG_INFO, line);
    uint64_t each = afmoe__plan_snapshot_pages(&context->plan) * page_bytes(context);
    if (options->snapshot_bytes == 0 || options->snapshot_bytes >= each) return;
    snprintf(line, sizeof line, "no snapshots: snapshot_bytes is %llu, one takes %llu",
             (unsigned long long)options->snapshot_bytes, (unsigned long long)each);
    options->log(options->log_data, AFMOE_LOG_WARNING, line);
}

afmoe_status afmoe__context_create(struct context **out, const struct model_config *config,
                                   const struct model_weights *weights, const afmoe_context_options *options,
                                   uint64_t fingerprint, afmoe_error *error)
{
    *out = NULL;
    struct context *context = afmoe__alloc_zeroed(1, sizeof *context);
    if (!context) return afmoe__fail_memory(error, sizeof *context, "a context");
    context->config = config;
    context->weights = weights;
    context->owner = getpid();
    afmoe_status status = build(context, options, fingerprint, error);
    if (status != AFMOE_OK) {
        afmoe__context_free(context);
        return status;
    }
    log_choice(context, options);
    *out = context;
    return AFMOE_OK;
}

void afmoe__context_free(struct context *context)
{
    if (!context) return;
    afmoe__decoder_free(context->decoder);
    afmoe__free(context->pass_block);
    afmoe__prefixes_free(context->prefixes);
    afmoe__prefix_folder_close(context->prefix_folder);
    afmoe__pages_free(context->pages);
    /* In a child of fork a waiter that is not there would be waited for. */
    if (context->has_turns && context->owner == getpid()) afmoe__turns_destroy(&context->turns);
    afmoe__free(context);
}

afmoe_status afmoe__context_check_process(const struct context *context, afmoe_error *error)
{
    pid_t here = getpid();
    if (here == context->owner) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_STATE, "the context belongs to another process: %ld made it, this is %ld",
                       (long)context->owner, (long)here);
}

static uint64_t scratch_bytes(const struct context *context)
{
    struct context counted = {.plan = context->plan};
    return afmoe__decoder_scratch_bytes(context->decoder) + lay_out_pass(&counted, NULL);
}

void afmoe__context_info(struct context *context, afmoe_context_info *out)
{
    out->n_threads = (int32_t)context->n_threads;
    out->cpu_level = afmoe__decoder_cpu_level(context->decoder);
    out->precision = context->precision;
    out->cells = context->cells;
    out->chunk_tokens = (uint32_t)context->plan.chunk_tokens;
    out->max_tokens = context->max_tokens;
    out->page_bytes = afmoe__pages_bytes(context->pages);
    out->scratch_bytes = scratch_bytes(context);
    afmoe__prefix_folder_counts(context->prefix_folder, out);
}

void afmoe__context_memory(struct context *context, afmoe_memory *out)
{
    out->scratch = scratch_bytes(context);
    out->pages = afmoe__pages_memory(context->pages, &out->prefixes);
    out->prefixes += afmoe__prefixes_memory(context->prefixes);
    out->sessions = context->session_bytes;
    out->drafts = context->n_draft_bytes;
}

/* Pages of n sessions: while the last one grows, the others have given back what they can. */
static bool count_pages(const struct page_plan *plan, uint64_t n_sessions, uint64_t n_tokens, uint64_t *out)
{
    uint64_t first = afmoe__plan_first_kept(plan, n_tokens);
    uint64_t held = afmoe__plan_pages_held(plan, first, n_tokens) +
                    plan->n_sliding * afmoe__plan_pages_behind(plan, first, n_tokens);
    *out = 0;
    if (n_sessions == 0) return true;
    return checked_mul(n_sessions - 1, held, out) &&
           checked_add(*out, afmoe__plan_most_pages(plan, 0, 0, 0, n_tokens), out);
}

afmoe_status afmoe__context_estimate(const struct model_config *config, const afmoe_context_options *options,
                                     uint64_t n_sessions, uint64_t n_tokens, afmoe_memory *out, afmoe_error *error)
{
    struct context context = {.config = config};
    struct decoder_options decoder;
    uint64_t n_pages;
    afmoe_status status = resolve(&context, &decoder, options, error);
    if (status != AFMOE_OK) return status;
    if (n_tokens > context.max_tokens)
        return afmoe__fail(error, AFMOE_CONTEXT_FULL, "%llu tokens; a session holds %llu", (unsigned long long)n_tokens,
                           (unsigned long long)context.max_tokens);
    out->scratch = afmoe__decoder_scratch_needed(config, &decoder) + lay_out_pass(&context, NULL);
    out->prefixes = options->prefix_bytes < options->max_page_bytes ? options->prefix_bytes : options->max_page_bytes;
    if (!count_pages(&context.plan, n_sessions, n_tokens, &n_pages) ||
        !checked_mul(n_pages, afmoe__pages_block_bytes(page_bytes(&context)), &out->pages) ||
        !checked_mul(n_sessions, afmoe__session_bytes(&context), &out->sessions) ||
        !checked_mul(n_sessions, afmoe__ahead_bytes(&context, 1), &out->drafts))
        return afmoe__fail(error, AFMOE_LIMIT, "%llu sessions take more than 2^64 bytes",
                           (unsigned long long)n_sessions);
    if (n_pages <= options->max_page_bytes / page_bytes(&context)) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_CONTEXT_FULL,
                       "key/value memory: %llu pages of %llu bytes needed, max_page_bytes allows %llu",
                       (unsigned long long)n_pages, (unsigned long long)page_bytes(&context),
                       (unsigned long long)(options->max_page_bytes / page_bytes(&context)));
}
