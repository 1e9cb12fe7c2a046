/* Where the model is, and the objects every command makes from it. */
#include "cli.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char DEMO_MODEL[] = "pico-q8_0.gguf";

static void log_line(void *user_data, int32_t level, const char *message)
{
    const struct settings *settings = user_data;
    if (settings->verbose || (level >= AFMOE_LOG_WARNING && !settings->quiet)) complain("%s", message);
}

/* ../share/afmoe/MODEL beside the folder of this program, for installations that were moved. */
static bool beside_program(char *out, size_t capacity)
{
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0) return false;
    program[n] = '\0';
    char *slash = strrchr(program, '/');
    if (!slash) return false;
    *slash = '\0';
    return (size_t)snprintf(out, capacity, "%s/../share/afmoe/%s", program, DEMO_MODEL) < capacity &&
           access(out, R_OK) == 0;
}

static const char *search_model(const struct settings *settings, char *buffer, size_t capacity)
{
    if (settings->model) return settings->model;
    const char *from_environment = getenv("AFMOE_MODEL");
    if (from_environment && *from_environment) return from_environment;
    if ((size_t)snprintf(buffer, capacity, "%s/%s", AFMOE_MODEL_DIR, DEMO_MODEL) < capacity &&
        access(buffer, R_OK) == 0)
        return buffer;
    return beside_program(buffer, capacity) ? buffer : NULL;
}

const char *find_model(const struct settings *settings, char *buffer, size_t capacity)
{
    const char *path = search_model(settings, buffer, capacity);
    if (!path) complain("no model: give one with -m PATH or in AFMOE_MODEL (the demo model is not installed)");
    return path;
}

void model_options(const struct settings *settings, afmoe_model_options *out)
{
    afmoe_model_options_init(out, sizeof *out);
    out->log = log_line;
    out->log_data = (void *)settings;
}

static void describe(const afmoe_model *model, const char *path)
{
    afmoe_model_info info;
    afmoe_model_info_init(&info, sizeof info);
    if (afmoe_model_get_info(model, &info, NULL) != AFMOE_OK) return;
    complain("%s: %u layers, hidden %llu, %u experts choose %u, %llu rows, %llu parameters, %.1f MB", path,
             info.n_layers, (unsigned long long)info.hidden_size, info.n_experts, info.n_experts_per_token,
             (unsigned long long)info.vocab_size, (unsigned long long)info.n_parameters,
             (double)info.weight_bytes / 1e6);
}

int open_model(afmoe_model **out, const struct settings *settings, bool tokenizer_only)
{
    char buffer[PATH_MAX];
    const char *path = find_model(settings, buffer, sizeof buffer);
    if (!path) return EXIT_USAGE;
    afmoe_model_options options;
    afmoe_error error;
    model_options(settings, &options);
    afmoe_error_init(&error, sizeof error);
    options.tokenizer_only = tokenizer_only;
    if (afmoe_model_open(out, path, &options, &error) != AFMOE_OK) return complain_error(&error);
    if (settings->verbose) describe(*out, path);
    return EXIT_OK;
}

const char *cells_name(int32_t cells)
{
    static const char *const names[] = {[AFMOE_CELLS_F32] = "f32", [AFMOE_CELLS_F16] = "f16",
                                        [AFMOE_CELLS_BF16] = "bf16", [AFMOE_CELLS_Q8_0] = "q8_0"};
    return names[cells];
}

static bool cells_of(const char *word, int32_t *out)
{
    for (int32_t cells = AFMOE_CELLS_F32; cells <= AFMOE_CELLS_Q8_0; cells++)
        if (strcmp(word, cells_name(cells)) == 0) {
            *out = cells;
            return true;
        }
    complain("--cells takes f32, f16, bf16 or q8_0, not '%s'", word);
    return false;
}

static bool precision_of(const char *word, int32_t *out)
{
    bool exact = strcmp(word, "exact") == 0;
    if (!exact && strcmp(word, "fast") != 0) {
        complain("--precision takes fast or exact, not '%s'", word);
        return false;
    }
    *out = exact ? AFMOE_PRECISION_EXACT : AFMOE_PRECISION_FAST;
    return true;
}

static bool level_of(const char *word, int32_t *out)
{
    for (int32_t level = AFMOE_CPU_C; strcmp(afmoe_cpu_level_name(level), "unknown") != 0; level++)
        if (strcmp(word, afmoe_cpu_level_name(level)) == 0) {
            *out = level;
            return true;
        }
    complain("--cpu takes c, avx2 or another level by name, not '%s'; this machine has %s", word,
             afmoe_cpu_level_name(afmoe_cpu_level()));
    return false;
}

bool context_options(const struct settings *settings, afmoe_context_options *out)
{
    afmoe_context_options_init(out, sizeof *out);
    if (settings->threads != UINT64_MAX)
        out->n_threads = settings->threads > INT32_MAX ? INT32_MAX : (int32_t)settings->threads;
    if (settings->context != UINT64_MAX) out->max_tokens = settings->context;
    if (settings->precision && !precision_of(settings->precision, &out->precision)) return false;
    if (settings->cells && !cells_of(settings->cells, &out->cells)) return false;
    if (settings->cpu && !level_of(settings->cpu, &out->cpu_level)) return false;
    out->prefix_folder = settings->prefix_folder;
    /* So that what is kept serves every text with the same beginning. */
    if (settings->prefix_folder) out->rewind_tokens = settings->context != UINT64_MAX ? settings->context : 4096;
    out->log = log_line;
    out->log_data = (void *)settings;
    return true;
}

static bool allocate_tokens(struct tokens *out)
{
    out->ids = malloc(out->n * sizeof *out->ids);
    if (!out->ids) complain("out of memory: %llu tokens", (unsigned long long)out->n);
    return out->ids != NULL;
}

/* OK keeps the tokens. */
static int finish_tokens(struct tokens *out, afmoe_status status, const afmoe_error *error)
{
    if (status == AFMOE_OK) return EXIT_OK;
    free(out->ids);
    out->ids = NULL;
    return complain_error(error);
}

int tokenize_text(struct tokens *out, const afmoe_model *model, const char *text, size_t n_bytes)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    *out = (struct tokens){NULL, 0};
    afmoe_status status = afmoe_tokenize(model, text, n_bytes, NULL, NULL, 0, &out->n, &error);
    if (status == AFMOE_CAPACITY) {
        if (!allocate_tokens(out)) return EXIT_FAILED;
        status = afmoe_tokenize(model, text, n_bytes, NULL, out->ids, out->n, &out->n, &error);
    }
    return finish_tokens(out, status, &error);
}

int tokenize_messages(struct tokens *out, const afmoe_model *model, const char *const *roles,
                      const char *const *contents, uint64_t n_messages, bool answer_follows)
{
    afmoe_chat_options options;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_chat_options_init(&options, sizeof options);
    options.add_generation_prompt = answer_follows;
    *out = (struct tokens){NULL, 0};
    afmoe_status status = afmoe_chat_tokenize(model, roles, contents, n_messages, &options, NULL, 0, &out->n, &error);
    if (status == AFMOE_CAPACITY) {
        if (!allocate_tokens(out)) return EXIT_FAILED;
        status = afmoe_chat_tokenize(model, roles, contents, n_messages, &options, out->ids, out->n, &out->n,
                                     &error);
    }
    return finish_tokens(out, status, &error);
}

int session_tokens(struct tokens *out, afmoe_session *session)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    *out = (struct tokens){NULL, 0};
    afmoe_status status = afmoe_session_tokens(session, NULL, 0, &out->n, &error);
    if (status == AFMOE_CAPACITY) {
        if (!allocate_tokens(out)) return EXIT_FAILED;
        status = afmoe_session_tokens(session, out->ids, out->n, &out->n, &error);
    }
    return finish_tokens(out, status, &error);
}

bool has_template(const afmoe_model *model)
{
    static const char start[] = "<|im_start|>", end[] = "<|im_end|>";
    afmoe_token token;
    return afmoe_token_find(model, start, sizeof start - 1, &token, NULL) == AFMOE_OK &&
           afmoe_token_find(model, end, sizeof end - 1, &token, NULL) == AFMOE_OK;
}
