/* afmoe inspect: what a checkpoint holds, and whether this version can run it. The checkpoint is opened as for running;
 * where that fails, the failure is the problem told, and it is opened again for what can be read without weights. */
#include "cli.h"

#include <jansson.h>

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_FORMATS = 64 };

/* Tensors of one format. */
struct format_sum {
    const char *name;
    uint64_t n_tensors, n_bytes;
    bool is_supported;
};

struct report {
    const struct settings *settings;
    const char *path;
    afmoe_model *model; /* NULL: nothing could be read */
    afmoe_error problem; /* code OK: none */
    afmoe_model_info info;
    struct format_sum formats[MAX_FORMATS];
    int n_formats;
};

/* ---- Opening ---- */

static bool is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

static void open_checkpoint(struct report *report)
{
    afmoe_model_options options;
    model_options(report->settings, &options);
    if (afmoe_model_open(&report->model, report->path, &options, &report->problem) == AFMOE_OK) return;
    options.inspect_only = 1;
    if (afmoe_model_open(&report->model, report->path, &options, NULL) == AFMOE_OK) return;
    options.inspect_only = 0;
    options.tokenizer_only = 1;
    if (afmoe_model_open(&report->model, report->path, &options, NULL) != AFMOE_OK) return;
    afmoe_model_get_info(report->model, &report->info, NULL);
    /* A tokenizer.json is whole as it is. */
    if (report->info.container == AFMOE_CONTAINER_TOKENIZER && is_file(report->path)) report->problem.code = AFMOE_OK;
}

static void add_format(struct report *report, const afmoe_tensor_info *tensor)
{
    int i = 0;
    while (i < report->n_formats && strcmp(report->formats[i].name, tensor->format) != 0) i++;
    if (i == MAX_FORMATS) return; /* the containers know fewer */
    if (i == report->n_formats) {
        report->n_formats++;
        report->formats[i] = (struct format_sum){.name = tensor->format, .is_supported = tensor->is_supported};
    }
    report->formats[i].n_tensors++;
    report->formats[i].n_bytes += tensor->n_bytes;
}

static int by_bytes(const void *a, const void *b)
{
    const struct format_sum *x = a, *y = b;
    return (x->n_bytes < y->n_bytes) - (x->n_bytes > y->n_bytes);
}

static afmoe_tensor_info tensor_at(const struct report *report, uint64_t index)
{
    afmoe_tensor_info tensor;
    afmoe_tensor_info_init(&tensor, sizeof tensor);
    afmoe_model_get_tensor(report->model, index, &tensor, NULL); /* index is in range: cannot fail */
    return tensor;
}

static void sum_formats(struct report *report)
{
    for (uint64_t i = 0; i < afmoe_model_n_tensors(report->model); i++) {
        afmoe_tensor_info tensor = tensor_at(report, i);
        add_format(report, &tensor);
    }
    qsort(report->formats, (size_t)report->n_formats, sizeof *report->formats, by_bytes);
}

/* ---- Words ---- */

static const char *const containers[] = {"none", "safetensors", "GGUF", "tokenizer"};
static const char *const layouts[] = {"none", "hub", "stacked", "prime-rl", "GGUF"};
static const char *const scores[] = {"none", "sigmoid", "softmax"};
static const char *const ropes[] = {"none", "default", "linear", "dynamic", "llama3", "yarn"};
static const char *const uses[] = {"surplus", "used"};

#define WORD(words, i) ((i) >= 0 && (size_t)(i) < sizeof(words) / sizeof *(words) ? (words)[i] : "unknown")

/* "ssss f": a letter for each layer, s sliding, f full. */
static bool layer_letters(const struct report *report, struct buffer *out)
{
    for (uint32_t layer = 0; layer < report->info.n_layers; layer++) {
        int32_t is_full = 0;
        afmoe_model_layer_is_full(report->model, layer, &is_full, NULL);
        if (!buffer_append(out, is_full ? "f" : "s", 1)) return false;
    }
    return buffer_append(out, NULL, 0);
}

/* ---- As text ---- */

static void print_config(const struct report *report)
{
    const afmoe_model_info *i = &report->info;
    struct buffer letters = {0};
    printf("layers         %u (the first %u dense), %u of them full attention\n", i->n_layers, i->n_dense_layers,
           i->n_full_layers);
    if (layer_letters(report, &letters)) printf("attention      %s (s sliding, f full)\n", letters.bytes);
    free(letters.bytes);
    printf("hidden         %" PRIu64 ", dense width %" PRIu64 ", expert width %" PRIu64 "\n", i->hidden_size,
           i->intermediate_size, i->moe_intermediate_size);
    printf("heads          %u, %u for keys and values, of %u\n", i->n_heads, i->n_kv_heads, i->head_dim);
    printf("experts        %u, %u chosen", i->n_experts, i->n_experts_per_token);
    if (i->n_groups > 1) printf(" in %u of %u groups", i->n_groups_chosen, i->n_groups);
    printf(", %u shared\n", i->n_shared_experts);
    printf("router         %s, weights %s, times %g\n", WORD(scores, i->score_function),
           i->route_norm ? "normalised" : "as they are", (double)i->route_scale);
    printf("window         %u\npositions      %" PRIu64 "\n", i->sliding_window, i->max_positions);
    printf("rotation       %s, theta %g", WORD(ropes, i->rope_kind), (double)i->rope_theta);
    if (i->rope_kind != AFMOE_ROPE_DEFAULT) printf(", factor %g", (double)i->rope_factor);
    if (i->rope_original_positions) printf(", first trained for %" PRIu64, i->rope_original_positions);
    printf("\nnorm epsilon   %g\n", (double)i->rms_norm_eps);
    printf("embedding      %s, output %s, attention bias %s\n", i->mup_enabled ? "scaled (muP)" : "not scaled",
           i->tied_embeddings ? "tied" : "its own", i->attention_bias ? "yes" : "no");
    printf("parameters     %" PRIu64 "\n", i->n_parameters);
}

static void print_formats(const struct report *report)
{
    for (int i = 0; i < report->n_formats; i++) {
        const struct format_sum *sum = &report->formats[i];
        printf("%-14s %-8s %6" PRIu64 " tensors, %" PRIu64 " bytes%s\n", i ? "" : "formats", sum->name, sum->n_tensors,
               sum->n_bytes, sum->is_supported ? "" : ", not supported");
    }
}

static void print_token(const struct report *report, const char *label, afmoe_token token)
{
    const char *bytes = "";
    uint64_t n = 0;
    if (token < 0) return;
    if (report->info.has_tokenizer) afmoe_token_text(report->model, token, &bytes, &n, NULL, NULL);
    printf("%-14s %d %.*s\n", label, (int)token, (int)(n < 100 ? n : 100), bytes);
}

static void print_tokenizer(const struct report *report)
{
    const afmoe_model_info *i = &report->info;
    const char *text;
    uint64_t n = 0;
    printf("vocabulary     %" PRIu64 " rows\n", i->vocab_size);
    if (i->has_tokenizer) printf("tokenizer      %" PRIu64 " tokens%s\n", i->n_tokens, i->add_bos ? ", wants bos" : "");
    else printf("tokenizer      none\n");
    print_token(report, "bos", i->bos_token);
    print_token(report, "eos", i->eos_token);
    print_token(report, "pad", i->pad_token);
    afmoe_token stops[64];
    if (afmoe_model_stop_tokens(report->model, stops, 64, &n, NULL) == AFMOE_OK)
        for (uint64_t s = 0; s < n; s++) print_token(report, s ? "" : "stops", stops[s]);
    bool has_chat = i->has_tokenizer && has_template(report->model);
    bool has_text = afmoe_model_chat_template(report->model, &text, &n, NULL) == AFMOE_OK;
    printf("chat           %s; ", has_chat ? "ChatML" : "no ChatML tokens");
    if (has_text) printf("the file's template has %" PRIu64 " bytes\n", n);
    else printf("no template in the files\n");
}

static void print_tensor(const afmoe_tensor_info *tensor)
{
    char shape[8 * 21 + 1] = "";
    size_t n = 0;
    for (uint32_t d = 0; d < tensor->n_dims; d++)
        n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%" PRIu64, d ? "x" : "", tensor->shape[d]);
    printf("%-8s %-16s %12" PRIu64 " %s+%" PRIu64 " %s%s%s\n", tensor->format, n ? shape : "scalar", tensor->n_bytes,
           tensor->file, tensor->file_offset, tensor->name, tensor->is_used == 0 ? " (surplus)" : "",
           tensor->is_supported ? "" : " (not supported)");
}

static const char *verdict(const struct report *report)
{
    if (report->problem.code != AFMOE_OK) return "cannot be run";
    if (!report->info.has_weights) return "a tokenizer that can be used";
    return report->info.has_tokenizer ? "can be run" : "runs on token ids only: it has no tokenizer";
}

static void print_report(const struct report *report)
{
    const afmoe_model_info *i = &report->info;
    printf("path           %s\n", report->path);
    printf("container      %s", WORD(containers, i->container));
    if (i->layout != AFMOE_LAYOUT_NONE) printf(", names as %s", WORD(layouts, i->layout));
    printf("\n");
    if (i->n_layers) print_config(report);
    print_formats(report);
    print_tokenizer(report);
    for (uint64_t t = 0; report->settings->tensors && t < afmoe_model_n_tensors(report->model); t++) {
        afmoe_tensor_info tensor = tensor_at(report, t);
        if (t == 0) printf("\n");
        print_tensor(&tensor);
    }
    printf("verdict        %s", verdict(report));
    if (report->problem.code != AFMOE_OK) printf(": %s", report->problem.message);
    printf("\n");
}

/* ---- As JSON: a failure inside leaves a hole that makes the whole fail ---- */

static json_t *config_as_json(const struct report *report)
{
    const afmoe_model_info *i = &report->info;
    struct buffer letters = {0};
    if (!layer_letters(report, &letters)) return NULL;
    json_t *config = json_pack(
        "{s:I,s:I,s:I,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:s,s:b,s:f,s:I,s:I,s:s,s:f,s:f,s:I,s:f,s:b,s:b,"
        "s:b,s:I}",
        "n_layers", (json_int_t)i->n_layers, "n_dense_layers", (json_int_t)i->n_dense_layers, "n_full_layers",
        (json_int_t)i->n_full_layers, "attention", letters.bytes, "hidden_size", (json_int_t)i->hidden_size,
        "intermediate_size", (json_int_t)i->intermediate_size, "moe_intermediate_size",
        (json_int_t)i->moe_intermediate_size, "n_heads", (json_int_t)i->n_heads, "n_kv_heads",
        (json_int_t)i->n_kv_heads, "head_dim", (json_int_t)i->head_dim, "n_experts", (json_int_t)i->n_experts,
        "n_experts_per_token", (json_int_t)i->n_experts_per_token, "n_shared_experts",
        (json_int_t)i->n_shared_experts, "n_groups", (json_int_t)i->n_groups, "n_groups_chosen",
        (json_int_t)i->n_groups_chosen, "score_function", WORD(scores, i->score_function), "route_norm", i->route_norm,
        "route_scale", (double)i->route_scale, "sliding_window", (json_int_t)i->sliding_window, "max_positions",
        (json_int_t)i->max_positions, "rope", WORD(ropes, i->rope_kind), "rope_theta", (double)i->rope_theta,
        "rope_factor", (double)i->rope_factor, "rope_original_positions", (json_int_t)i->rope_original_positions,
        "rms_norm_eps", (double)i->rms_norm_eps, "mup_enabled", i->mup_enabled, "tied_embeddings", i->tied_embeddings,
        "attention_bias", i->attention_bias, "n_parameters", (json_int_t)i->n_parameters);
    free(letters.bytes);
    return config;
}

static json_t *formats_as_json(const struct report *report)
{
    json_t *list = json_array();
    for (int i = 0; i < report->n_formats; i++) {
        const struct format_sum *sum = &report->formats[i];
        if (json_array_append_new(list, json_pack("{s:s,s:I,s:I,s:b}", "format", sum->name, "tensors",
                                                  (json_int_t)sum->n_tensors, "bytes", (json_int_t)sum->n_bytes,
                                                  "supported", sum->is_supported)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* What is no UTF-8 (in a file's own text) is null. */
static json_t *text_as_json(const char *bytes, uint64_t n)
{
    json_t *text = json_stringn(bytes, n);
    return text ? text : json_null();
}

static json_t *stops_as_json(const struct report *report)
{
    uint64_t n = 0;
    afmoe_model_stop_tokens(report->model, NULL, 0, &n, NULL);
    afmoe_token *stops = malloc((n + 1) * sizeof *stops);
    bool good = stops && afmoe_model_stop_tokens(report->model, stops, n, &n, NULL) == AFMOE_OK;
    json_t *list = good ? json_array() : NULL;
    for (uint64_t i = 0; list && i < n; i++) json_array_append_new(list, json_integer(stops[i]));
    free(stops);
    return list;
}

static json_t *tokenizer_as_json(const struct report *report)
{
    const afmoe_model_info *i = &report->info;
    const char *text;
    uint64_t n;
    bool has_text = afmoe_model_chat_template(report->model, &text, &n, NULL) == AFMOE_OK;
    return json_pack("{s:I,s:b,s:I,s:b,s:i,s:i,s:i,s:o,s:b,s:o}", "vocab_size", (json_int_t)i->vocab_size,
                     "has_tokenizer", i->has_tokenizer, "n_tokens", (json_int_t)i->n_tokens, "add_bos", i->add_bos,
                     "bos_token", i->bos_token, "eos_token", i->eos_token, "pad_token", i->pad_token, "stop_tokens",
                     stops_as_json(report), "has_chatml", i->has_tokenizer && has_template(report->model),
                     "chat_template", has_text ? text_as_json(text, n) : json_null());
}

static json_t *tensor_as_json(const afmoe_tensor_info *tensor)
{
    json_t *shape = json_array();
    for (uint32_t d = 0; d < tensor->n_dims; d++)
        json_array_append_new(shape, json_integer((json_int_t)tensor->shape[d]));
    /* A name from a GGUF file need not be UTF-8. */
    return json_pack("{s:o,s:s,s:o,s:I,s:s,s:I,s:b,s:o}", "name", text_as_json(tensor->name, strlen(tensor->name)),
                     "format", tensor->format, "shape", shape, "bytes", (json_int_t)tensor->n_bytes, "file",
                     tensor->file, "offset", (json_int_t)tensor->file_offset, "supported", tensor->is_supported, "use",
                     tensor->is_used < 0 ? json_null() : json_string(WORD(uses, tensor->is_used)));
}

static json_t *tensors_as_json(const struct report *report)
{
    json_t *list = json_array();
    for (uint64_t t = 0; t < afmoe_model_n_tensors(report->model); t++) {
        afmoe_tensor_info tensor = tensor_at(report, t);
        if (json_array_append_new(list, tensor_as_json(&tensor)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *problem_as_json(const struct report *report)
{
    if (report->problem.code == AFMOE_OK) return json_null();
    return json_pack("{s:s,s:o}", "status", afmoe_status_name(report->problem.code), "message",
                     text_as_json(report->problem.message, strlen(report->problem.message)));
}

static json_t *report_as_json(const struct report *report)
{
    const afmoe_model_info *i = &report->info;
    json_t *whole = json_pack("{s:o,s:b,s:s,s:o}", "path", text_as_json(report->path, strlen(report->path)), "can_run",
                              report->problem.code == AFMOE_OK, "verdict", verdict(report), "problem",
                              problem_as_json(report));
    if (!whole || !report->model) return whole;
    bool good = json_object_set_new(whole, "container", json_string(WORD(containers, i->container))) == 0 &&
                json_object_set_new(whole, "layout", json_string(WORD(layouts, i->layout))) == 0 &&
                json_object_set_new(whole, "config", i->n_layers ? config_as_json(report) : json_null()) == 0 &&
                json_object_set_new(whole, "formats", formats_as_json(report)) == 0 &&
                json_object_set_new(whole, "tokenizer", tokenizer_as_json(report)) == 0 &&
                (!report->settings->tensors || json_object_set_new(whole, "tensors", tensors_as_json(report)) == 0);
    if (good) return whole;
    json_decref(whole);
    return NULL;
}

static bool print_json(const struct report *report)
{
    json_t *whole = report_as_json(report);
    char *text = whole ? json_dumps(whole, JSON_INDENT(2) | JSON_REAL_PRECISION(7)) : NULL;
    json_decref(whole);
    if (!text) {
        complain("out of memory");
        return false;
    }
    bool good = write_out(text, strlen(text)) && write_out("\n", 1);
    free(text);
    return good;
}

/* ---- The command ---- */

static int inspect(struct report *report)
{
    afmoe_error_init(&report->problem, sizeof report->problem);
    afmoe_model_info_init(&report->info, sizeof report->info);
    open_checkpoint(report);
    if (report->model) {
        afmoe_model_get_info(report->model, &report->info, NULL);
        sum_formats(report);
    }
    if (report->settings->json) {
        if (!print_json(report)) return EXIT_FAILED;
    } else if (report->model) {
        print_report(report);
    } else {
        complain("%s", report->problem.message);
    }
    return report->problem.code == AFMOE_OK ? EXIT_OK : EXIT_FAILED;
}

int command_inspect(const struct settings *settings)
{
    char buffer[PATH_MAX];
    struct report report = {.settings = settings};
    if (settings->n_arguments > (settings->model ? 0 : 1)) {
        complain("unexpected argument '%s'", settings->arguments[settings->model ? 0 : 1]);
        return EXIT_USAGE;
    }
    report.path = settings->n_arguments ? settings->arguments[0] : find_model(settings, buffer, sizeof buffer);
    if (!report.path) return EXIT_USAGE;
    int code = inspect(&report);
    afmoe_model_free(report.model);
    return code;
}
