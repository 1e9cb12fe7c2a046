/* Rows of `afmoe bench` as a table, as csv or as JSON; fields that llama-bench has too bear its names. */
#include "bench.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const precision_names[] = {[AFMOE_PRECISION_EXACT] = "exact", [AFMOE_PRECISION_FAST] = "fast"};

static double tokens_per_second(const struct bench_row *row, uint64_t ns)
{
    uint64_t n = row->n_prompt + row->n_gen * row->n_sessions;
    return ns ? 1e9 * (double)n / (double)ns : 0;
}

/* Mean and sample deviation, of nanoseconds or of tokens a second. */
static void statistics(const struct bench_row *row, bool rates, double *mean, double *deviation)
{
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < row->n_samples; i++)
        sum += rates ? tokens_per_second(row, row->samples_ns[i]) : (double)row->samples_ns[i];
    *mean = sum / (double)row->n_samples;
    for (uint64_t i = 0; i < row->n_samples; i++) {
        double x = rates ? tokens_per_second(row, row->samples_ns[i]) : (double)row->samples_ns[i];
        squares += (x - *mean) * (x - *mean);
    }
    *deviation = row->n_samples > 1 ? sqrt(squares / (double)(row->n_samples - 1)) : 0;
}

static void cpu_name(char *out, size_t capacity)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    snprintf(out, capacity, "unknown");
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(out, capacity, "%s", colon + 1 + strspn(colon + 1, " "));
        break;
    }
    if (file) fclose(file);
}

/* ---- JSON and csv: the same fields ------------------------------------------------------------------------------- */

static json_t *text(const char *value)
{
    json_t *json = json_string(value);
    return json ? json : json_string("(not UTF-8)");
}

static json_t *samples(const struct bench_row *row, bool rates)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < row->n_samples; i++)
        json_array_append_new(list, rates ? json_real(tokens_per_second(row, row->samples_ns[i]))
                                          : json_integer((json_int_t)row->samples_ns[i]));
    return list;
}

/* NULL when memory ran out: every setter takes NULL and fails, and so the count is short. */
static json_t *fields_of(const struct bench_row *row, bool with_samples)
{
    char cpu[256], type[64];
    double mean_ns, deviation_ns, mean, deviation;
    json_t *o = json_object();
    int bad = !o;
    cpu_name(cpu, sizeof cpu);
    snprintf(type, sizeof type, "afmoe %.2fB", (double)row->model->n_parameters / 1e9);
    statistics(row, false, &mean_ns, &deviation_ns);
    statistics(row, true, &mean, &deviation);
#define SET(name, value) bad |= json_object_set_new(o, name, value)
#define SET_COUNT(name, value) SET(name, json_integer((json_int_t)(value)))
    SET("build_version", text(afmoe_version_string()));
    SET("cpu_info", text(cpu));
    SET("cpu_level", text(afmoe_cpu_level_name(row->context.cpu_level)));
    SET("precision", text(precision_names[row->context.precision]));
    SET("model_filename", text(row->model_path));
    SET("model_type", text(type));
    SET_COUNT("model_size", row->model->weight_bytes);
    SET_COUNT("model_n_params", row->model->n_parameters);
    SET_COUNT("n_batch", row->context.chunk_tokens);
    SET_COUNT("n_threads", row->context.n_threads);
    SET("type_k", text(cells_name(row->context.cells)));
    SET("type_v", text(cells_name(row->context.cells)));
    SET_COUNT("n_prompt", row->n_prompt);
    SET_COUNT("n_gen", row->n_gen);
    SET_COUNT("n_depth", row->n_depth);
    SET_COUNT("n_sessions", row->n_sessions);
    SET("test_time", text(row->time));
    SET_COUNT("avg_ns", llround(mean_ns));
    SET_COUNT("stddev_ns", llround(deviation_ns));
    SET("avg_ts", json_real(mean));
    SET("stddev_ts", json_real(deviation));
    SET("read_gb_s", json_real(row->limits.read_gb_s));
    SET("dot_gflops", json_real(row->limits.dot_gflops));
    if (with_samples) {
        SET("samples_ns", samples(row, false));
        SET("samples_ts", samples(row, true));
    }
#undef SET_COUNT
#undef SET
    if (!bad) return o;
    json_decref(o);
    complain("out of memory");
    return NULL;
}

static bool put(const char *bytes)
{
    return write_out(bytes, strlen(bytes));
}

static bool print_json(const struct bench_row *row, uint64_t index)
{
    json_t *fields = fields_of(row, true);
    char *line = fields ? json_dumps(fields, JSON_REAL_PRECISION(9)) : NULL;
    bool good = line && put(index ? ",\n  " : "[\n  ") && put(line);
    free(line);
    json_decref(fields);
    return good;
}

/* RFC 4180, every field in quotes, as llama-bench does. */
static bool print_csv_field(const char *value, bool first)
{
    if (!put(first ? "\"" : ",\"")) return false;
    for (; *value; value++)
        if (!write_out(value, 1) || (*value == '"' && !put("\""))) return false;
    return put("\"");
}

static bool print_csv(const struct bench_row *row, uint64_t index)
{
    json_t *fields = fields_of(row, false), *value;
    const char *name;
    bool good = fields != NULL, first = true;
    if (index == 0) {
        json_object_foreach(fields, name, value) {
            good = good && print_csv_field(name, first);
            first = false;
        }
        good = good && put("\n");
    }
    first = true;
    json_object_foreach(fields, name, value) {
        char number[40];
        if (json_is_integer(value)) snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        else if (json_is_real(value)) snprintf(number, sizeof number, "%.9g", json_real_value(value));
        good = good && print_csv_field(json_is_string(value) ? json_string_value(value) : number, first);
        first = false;
    }
    json_decref(fields);
    return good && put("\n");
}

/* ---- A table ----------------------------------------------------------------------------------------------------- */

static bool print_md(const struct bench_row *row, uint64_t index)
{
    char test[96], line[512];
    double mean, deviation;
    int n = row->n_prompt ? snprintf(test, sizeof test, "pp%" PRIu64, row->n_prompt)
                          : snprintf(test, sizeof test, "tg%" PRIu64, row->n_gen);
    if (row->n_depth) n += snprintf(test + n, sizeof test - (size_t)n, " @ d%" PRIu64, row->n_depth);
    if (row->n_sessions > 1) snprintf(test + n, sizeof test - (size_t)n, " x %" PRIu64, row->n_sessions);
    statistics(row, true, &mean, &deviation);
    if (index == 0 &&
        !put("| model | size | cpu | precision | cells | threads | test | t/s | read GB/s | dot Gflop/s |\n"
             "| --- | ---: | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |\n"))
        return false;
    snprintf(line, sizeof line,
             "| afmoe %.2fB | %.2f GiB | %s | %s | %s | %d | %s | %.2f \302\261 %.2f | %.1f | %.1f |\n",
             (double)row->model->n_parameters / 1e9, (double)row->model->weight_bytes / (double)(1 << 30),
             afmoe_cpu_level_name(row->context.cpu_level), precision_names[row->context.precision],
             cells_name(row->context.cells), row->context.n_threads, test, mean, deviation, row->limits.read_gb_s,
             row->limits.dot_gflops);
    return put(line);
}

bool bench_print_row(enum bench_form form, const struct bench_row *row, uint64_t index)
{
    hide_progress();
    bool good = form == BENCH_MD ? print_md(row, index) : form == BENCH_CSV ? print_csv(row, index)
                                                                           : print_json(row, index);
    return good && flush_out();
}

bool bench_print_end(enum bench_form form, uint64_t n_rows)
{
    hide_progress();
    return form != BENCH_JSON || put(n_rows ? "\n]\n" : "[]\n");
}
