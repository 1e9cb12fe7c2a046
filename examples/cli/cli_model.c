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

const char *find_model(const struct settings *settings, char *buffer, size_t capacity)
{
    if (settings->model) return settings->model;
    const char *from_environment = getenv("AFMOE_MODEL");
    if (from_environment && *from_environment) return from_environment;
    if ((size_t)snprintf(buffer, capacity, "%s/%s", AFMOE_MODEL_DIR, DEMO_MODEL) < capacity &&
        access(buffer, R_OK) == 0)
        return buffer;
    return beside_program(buffer, capacity) ? buffer : NULL;
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
    if (!path) {
        complain("no model: give one with -m PATH or in AFMOE_MODEL (the demo model is not installed)");
        return EXIT_USAGE;
    }
    afmoe_model_options options;
    afmoe_error error;
    afmoe_model_options_init(&options, sizeof options);
    afmoe_error_init(&error, sizeof error);
    options.tokenizer_only = tokenizer_only;
    options.log = log_line;
    options.log_data = (void *)settings;
    if (afmoe_model_open(out, path, &options, &error) != AFMOE_OK) return complain_error(&error);
    if (settings->verbose) describe(*out, path);
    return EXIT_OK;
}

static bool cells_of(const char *word, int32_t *out)
{
    static const char *const words[] = {"f32", "f16", "bf16"};
    static const int32_t values[] = {AFMOE_CELLS_F32, AFMOE_CELLS_F16, AFMOE_CELLS_BF16};
    for (int i = 0; i < 3; i++)
        if (strcmp(word, words[i]) == 0) {
            *out = values[i];
            return true;
        }
    complain("--cells takes f32, f16 or bf16, not '%s'", word);
    return false;
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
    if (settings->cells && !cells_of(settings->cells, &out->cells)) return false;
    if (settings->cpu && !level_of(settings->cpu, &out->cpu_level)) return false;
    out->log = log_line;
    out->log_data = (void *)settings;
    return true;
}

int tokenize_text(struct tokens *out, const afmoe_model *model, const char *text, size_t n_bytes)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    *out = (struct tokens){NULL, 0};
    afmoe_status status = afmoe_tokenize(model, text, n_bytes, NULL, NULL, 0, &out->n, &error);
    if (status == AFMOE_CAPACITY) {
        out->ids = malloc(out->n * sizeof *out->ids);
        if (!out->ids) {
            complain("out of memory: %llu tokens", (unsigned long long)out->n);
            return EXIT_FAILED;
        }
        status = afmoe_tokenize(model, text, n_bytes, NULL, out->ids, out->n, &out->n, &error);
    }
    if (status == AFMOE_OK) return EXIT_OK;
    free(out->ids);
    return complain_error(&error);
}
