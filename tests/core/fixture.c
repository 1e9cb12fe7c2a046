/* fixture DIR...: runs fixture folders (or X.gguf with X.expected.safetensors beside it) and prints one JSON line each.
 *
 * {"fixture", "max_logit", "mean_logit", "worst_layer", "worst_layer_error", "expert_mismatches", "max_route_weight",
 *  "greedy_match", "median_divergence", "mean_divergence"}; null where the folder has no such value. Exit status 1 when
 * max_logit is above --tol (5e-5), the residual stream above --layer-tol (2e-5, off when --tol is given), an expert
 * or greedy token differs, or a folder cannot be run; 2 for wrong usage. */
#include "fixture_compare.h"

#include "cpu.h"
#include "error.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tolerances {
    double logit, layer;
};

static void print_number(const char *name, double value)
{
    if (isnan(value))
        printf(", \"%s\": null", name);
    else if (isinf(value))
        printf(", \"%s\": 1e999", name);
    else
        printf(", \"%s\": %.6g", name, value);
}

static void print_result(const char *path, const struct fixture_result *r)
{
    printf("{\"fixture\": \"%s\"", path);
    print_number("max_logit", r->max_logit);
    print_number("mean_logit", r->mean_logit);
    print_number("worst_layer", r->worst_layer < 0 ? NAN : r->worst_layer);
    print_number("worst_layer_error", r->worst_layer_error);
    print_number("expert_mismatches", r->expert_mismatches < 0 ? NAN : (double)r->expert_mismatches);
    print_number("max_route_weight", r->max_route_weight);
    printf(", \"greedy_match\": %s", r->greedy_match < 0 ? "null" : r->greedy_match ? "true" : "false");
    print_number("median_divergence", r->median_divergence);
    print_number("mean_divergence", r->mean_divergence);
    printf("}\n");
    fflush(stdout);
}

/* NaN stands for "no value" and passes; everything a fixture has must be within. */
static int within(const struct fixture_result *r, const struct tolerances *tolerances)
{
    return !(r->max_logit > tolerances->logit) && !(r->worst_layer_error > tolerances->layer) &&
           r->expert_mismatches <= 0 && r->greedy_match != 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: fixture [--tol X] [--layer-tol X] [--cpu LEVEL] [--threads N] [--chunk N] "
                    "[--cells f32|f16|bf16|q8_0] DIR_OR_GGUF...\n");
    return 2;
}

static int parse_level(const char *text)
{
    for (int32_t level = 0; level <= afmoe__cpu_level(); level++)
        if (strcmp(text, afmoe__cpu_level_name(level)) == 0) return level;
    return -1;
}

static int parse_cells(const char *text)
{
    static const char *const names[N_CELL_FORMATS] = {"f32", "f16", "bf16", "q8_0"};
    for (int i = 0; i < N_CELL_FORMATS; i++)
        if (strcmp(text, names[i]) == 0) return i;
    return -1;
}

/* False: wrong usage. */
static int parse(int argc, char **argv, struct runner_options *options, struct tolerances *tolerances)
{
    enum { TOL, LAYER_TOL, CPU, THREADS, CHUNK, CELLS };
    static const struct option table[] = {
        {"tol", required_argument, NULL, TOL},       {"layer-tol", required_argument, NULL, LAYER_TOL},
        {"cpu", required_argument, NULL, CPU},       {"threads", required_argument, NULL, THREADS},
        {"chunk", required_argument, NULL, CHUNK},   {"cells", required_argument, NULL, CELLS},
        {NULL, 0, NULL, 0}};
    int option, cells = options->cells;
    while ((option = getopt_long(argc, argv, "", table, NULL)) != -1) {
        switch (option) {
        case TOL:
            tolerances->logit = atof(optarg);
            tolerances->layer = INFINITY;
            break;
        case LAYER_TOL: tolerances->layer = atof(optarg); break;
        case CPU: options->cpu_level = parse_level(optarg); break;
        case THREADS: options->n_threads = (uint32_t)atoi(optarg); break;
        case CHUNK: options->chunk_tokens = (uint64_t)atoi(optarg); break;
        case CELLS: cells = parse_cells(optarg); break;
        default: return 0;
        }
    }
    options->cells = (enum cell_format)cells;
    return options->cpu_level >= 0 && cells >= 0 && options->n_threads >= 1 && options->n_threads <= 256 &&
           options->chunk_tokens >= 1 && options->chunk_tokens <= 4096 && optind < argc;
}

int main(int argc, char **argv)
{
    struct runner_options options = {.cpu_level = afmoe__cpu_level(), .n_threads = 2, .chunk_tokens = 256,
                                     .cells = CELLS_F32};
    struct tolerances tolerances = {5e-5, 2e-5};
    if (!parse(argc, argv, &options, &tolerances)) return usage();
    int failed = 0;
    for (int i = optind; i < argc; i++) {
        struct fixture_result result;
        afmoe_error error;
        afmoe_error_init(&error, sizeof error);
        if (fixture_compare(&result, argv[i], &options, &error) != AFMOE_OK) {
            fprintf(stderr, "fixture: %s: %s\n", argv[i], error.message);
            failed = 1;
            continue;
        }
        print_result(argv[i], &result);
        if (!within(&result, &tolerances)) failed = 1;
    }
    return failed;
}
