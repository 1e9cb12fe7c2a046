/* Version, build features, names of status codes and CPU levels, and the defaults of every public struct.
 *
 * Calls with NULL options use the X_init of this file too, so the two cannot drift apart. */
#include "cpu.h"
#include "error.h"
#include "tokenizer.h"

#include <string.h>


uint32_t afmoe_version(void)
{
    return AFMOE_VERSION_MAJOR * 1000000u + AFMOE_VERSION_MINOR * 1000u + AFMOE_VERSION_PATCH;
}

const char *afmoe_version_string(void)
{
    return AFMOE_VERSION_TEXT; /* from meson, which reads it from the header; a test compares the two */
}

const char *afmoe_build_features(void)
{
#ifdef AFMOE_HAVE_X86
    return "c avx2 formats:F32,F16,BF16,Q8_0";
#else
    return "c formats:F32,F16,BF16,Q8_0";
#endif
}

const char *afmoe_status_name(afmoe_status status)
{
    switch (status) {
    case AFMOE_OK: return "AFMOE_OK";
    case AFMOE_END: return "AFMOE_END";
    case AFMOE_INVALID: return "AFMOE_INVALID";
    case AFMOE_NO_MEMORY: return "AFMOE_NO_MEMORY";
    case AFMOE_IO: return "AFMOE_IO";
    case AFMOE_NOT_FOUND: return "AFMOE_NOT_FOUND";
    case AFMOE_FORMAT: return "AFMOE_FORMAT";
    case AFMOE_TRUNCATED: return "AFMOE_TRUNCATED";
    case AFMOE_LIMIT: return "AFMOE_LIMIT";
    case AFMOE_CORRUPT: return "AFMOE_CORRUPT";
    case AFMOE_UNSUPPORTED: return "AFMOE_UNSUPPORTED";
    case AFMOE_BUSY: return "AFMOE_BUSY";
    case AFMOE_CANCELLED: return "AFMOE_CANCELLED";
    case AFMOE_CONTEXT_FULL: return "AFMOE_CONTEXT_FULL";
    case AFMOE_CAPACITY: return "AFMOE_CAPACITY";
    case AFMOE_STATE: return "AFMOE_STATE";
    case AFMOE_NUMERIC: return "AFMOE_NUMERIC";
    case AFMOE_INTERNAL: return "AFMOE_INTERNAL";
    default: return "AFMOE_UNKNOWN";
    }
}

int32_t afmoe_cpu_level(void)
{
    return afmoe__cpu_level();
}

const char *afmoe_cpu_level_name(int32_t level)
{
    return afmoe__cpu_level_name(level);
}

/* Zero all of *s, set its size. */
#define INIT(s) (memset((s), 0, sizeof *(s)), (s)->size = sizeof *(s))

void afmoe_error_init(afmoe_error *error)
{
    INIT(error);
}

void afmoe_model_options_init(afmoe_model_options *options)
{
    INIT(options);
    options->max_json_bytes = 32u << 20;
}

void afmoe_model_info_init(afmoe_model_info *info)
{
    INIT(info);
}

void afmoe_tokenize_options_init(afmoe_tokenize_options *options)
{
    INIT(options);
    options->special = AFMOE_SPECIAL_ALL;
    options->max_text_bytes = DEFAULT_MAX_TEXT_BYTES;
}

void afmoe_context_options_init(afmoe_context_options *options)
{
    INIT(options);
    options->n_threads = -1;
    options->cpu_level = AFMOE_CPU_AUTO;
    options->precision = AFMOE_PRECISION_EXACT;
    options->cells = AFMOE_CELLS_F32;
    options->chunk_tokens = 256;
    options->max_tokens = UINT64_MAX;
    options->rewind_tokens = 256;
    options->max_page_bytes = UINT64_MAX;
}

void afmoe_context_info_init(afmoe_context_info *info)
{
    INIT(info);
}

void afmoe_append_options_init(afmoe_append_options *options)
{
    INIT(options);
}

void afmoe_append_result_init(afmoe_append_result *result)
{
    INIT(result);
}

void afmoe_session_stats_init(afmoe_session_stats *stats)
{
    INIT(stats);
}

void afmoe_sampler_options_init(afmoe_sampler_options *options)
{
    INIT(options);
    options->top_p = 1;
    options->repetition_penalty = 1;
    options->top_k = (uint64_t)1 << 32;
}

void afmoe_generate_options_init(afmoe_generate_options *options)
{
    INIT(options);
    options->max_tokens = UINT64_MAX;
    options->n_prompt = UINT64_MAX;
}

void afmoe_generate_result_init(afmoe_generate_result *result)
{
    INIT(result);
    result->stop_token = -1;
    result->stop_string = -1;
}
