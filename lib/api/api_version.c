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

#define FORMATS                                                                                                        \
    "formats:F32,F16,BF16,Q8_0,Q4_0,Q4_1,Q5_0,Q5_1,Q2_K,Q3_K,Q4_K,Q5_K,Q6_K,IQ1_S,IQ1_M,IQ2_XXS,IQ2_XS,IQ2_S,IQ3_XXS," \
    "IQ3_S,IQ4_NL,IQ4_XS,TQ1_0,TQ2_0,MXFP4,NVFP4"

#ifdef AFMOE_HAVE_X86
#ifdef AFMOE_HAVE_AVX512
#define X86 "avx2 avxvnni avx512 avx512icl avx512bf16 "
#else
#define X86 "avx2 "
#endif
#else
#define X86 ""
#endif
#ifdef AFMOE_HAVE_STATE
#define STATE "state "
#else
#define STATE ""
#endif

const char *afmoe_build_features(void)
{
    return "c " X86 STATE FORMATS;
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

/* ---- Defaults ---- */

/* Write the defaults `full` over the caller's struct of `size` bytes, whatever we or it know more of. */
static void init(void *out, uint32_t size, const void *full, uint32_t full_bytes)
{
    if (!out || size < sizeof size) return;
    memset(out, 0, size);
    memcpy(out, full, size < full_bytes ? size : full_bytes);
    memcpy(out, &size, sizeof size);
}

#define DEFINE_INIT(name, ...)                                                                                         \
    void name##_init(name *out, uint32_t size)                                                                         \
    {                                                                                                                  \
        const name full = {.size = sizeof full, __VA_ARGS__};                                                          \
        init(out, size, &full, sizeof full);                                                                           \
    }

DEFINE_INIT(afmoe_error, .code = AFMOE_OK)
DEFINE_INIT(afmoe_model_options, .max_json_bytes = 32u << 20, .load = AFMOE_LOAD_MAP)
DEFINE_INIT(afmoe_model_info, .bos_token = -1, .eos_token = -1, .pad_token = -1)
DEFINE_INIT(afmoe_tensor_info, .n_dims = 0)
DEFINE_INIT(afmoe_tokenize_options, .special = AFMOE_SPECIAL_ALL, .max_text_bytes = DEFAULT_MAX_TEXT_BYTES)
DEFINE_INIT(afmoe_chat_options, .add_generation_prompt = 1, .max_text_bytes = DEFAULT_MAX_TEXT_BYTES)
DEFINE_INIT(afmoe_context_options, .n_threads = -1, .cpu_level = AFMOE_CPU_AUTO, .precision = AFMOE_PRECISION_FAST,
            .cells = AFMOE_CELLS_AUTO, .chunk_tokens = 512, .max_tokens = UINT64_MAX, .rewind_tokens = 256,
            .max_page_bytes = UINT64_MAX, .snapshot_tokens = 1024,
            .prefix_folder_bytes = (uint64_t)1 << 33)
DEFINE_INIT(afmoe_context_info, .n_threads = 0)
DEFINE_INIT(afmoe_memory, .reserved = 0)
DEFINE_INIT(afmoe_append_options, .reserved = 0)
DEFINE_INIT(afmoe_append_result, .reserved = 0)
DEFINE_INIT(afmoe_step_item, .status = AFMOE_OK)
DEFINE_INIT(afmoe_step_options, .reserved = 0)
DEFINE_INIT(afmoe_session_stats, .reserved = 0)
DEFINE_INIT(afmoe_sampler_options, .top_p = 1, .repetition_penalty = 1, .top_k = (uint64_t)1 << 32)
DEFINE_INIT(afmoe_piece, .token = -1)
DEFINE_INIT(afmoe_generate_options, .max_tokens = UINT64_MAX, .n_prompt = UINT64_MAX)
DEFINE_INIT(afmoe_scheduler_options, .max_running = 8, .max_waiting = 256, .max_prompt_tokens = 64)
DEFINE_INIT(afmoe_request, .priority = 0)
DEFINE_INIT(afmoe_scheduler_info, .reserved = 0)
DEFINE_INIT(afmoe_generate_result, .stop_token = -1, .stop_string = -1)
