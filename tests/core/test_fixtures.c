/* Every fixture against the reference, at every CPU level this machine has and several thread counts and chunks. */
#include "fixture_compare.h"

#include "cpu.h"
#include "error.h"
#include "sanitizer.h"
#include "test_paths.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const double LOGIT_TOLERANCE = 5e-5, LAYER_TOLERANCE = 2e-5, ROUTE_TOLERANCE = 5e-5;

static void check_fixture(const char *path, const struct runner_options *options)
{
    struct fixture_result result;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    if (fixture_compare(&result, path, options, &error) != AFMOE_OK) fail_msg("%s: %s", path, error.message);
    /* Every fixture has logits; the rest only where it has values. */
    if (!(result.max_logit <= LOGIT_TOLERANCE) || result.worst_layer_error > LAYER_TOLERANCE ||
        result.expert_mismatches > 0 || result.max_route_weight > ROUTE_TOLERANCE || result.greedy_match == 0)
        fail_msg("%s at level %s, %u threads, chunks of %llu: logits %g, residual %g in layer %d, %lld experts, greedy %d",
                 path, afmoe__cpu_level_name(options->cpu_level), options->n_threads,
                 (unsigned long long)options->chunk_tokens, result.max_logit, result.worst_layer_error,
                 result.worst_layer, (long long)result.expert_mismatches, result.greedy_match);
}

/* The levels with kernels of their own: the table's level equals the one asked for. */
static int level_exists(int32_t level)
{
    struct kernels kernels;
    afmoe__kernels_select(&kernels, level);
    return kernels.level == level;
}

static void check_everywhere(const char *path)
{
    static const struct {
        uint32_t n_threads;
        uint64_t chunk_tokens;
    } runs[] = {{2, 7}, {3, 1}, {1, 256}};
    const size_t n_runs = UNDER_SANITIZER ? 1 : sizeof runs / sizeof *runs;
    for (int32_t level = 0; level <= afmoe__cpu_level(); level++) {
        if (!level_exists(level)) continue;
        for (size_t i = 0; i < n_runs; i++) {
            struct runner_options options = {level, runs[i].n_threads, runs[i].chunk_tokens, CELLS_F32};
            check_fixture(path, &options);
        }
    }
    print_message("%s\n", path);
}

static void small_fixtures(void **state)
{
    static const char *const names[] = {
        "nano",           "tied",           "bf16",           "ragged",            "yarn",
        "grouped-router", "tiny-bias",      "tiny-dynamic-rope", "tiny-linear-rope", "tiny-llama3-rope",
        "tiny-softmax-router", "tiny-no-route-norm", "tiny-no-shared-f16", "tiny-window-1"};
    char path[4096];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) check_everywhere(data_path(path, sizeof path, names[i]));
}

static void check_folder(const char *folder)
{
    struct dirent *entry;
    DIR *listing = opendir(folder);
    int n = 0;
    assert_non_null(listing);
    while ((entry = readdir(listing))) {
        char path[4096 + sizeof entry->d_name + 1];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        check_everywhere(path);
        n++;
    }
    closedir(listing);
    assert_true(n > 0);
}

static void all_models(void **state)
{
    char path[4096];
    (void)state;
    if (shared_path(path, sizeof path, "fixtures/models", "all_models")) check_folder(path);
}

static void other_layouts(void **state)
{
    static const char *const names[] = {
        "fixtures/layouts/stacked",         "fixtures/layouts/prime-rl",        "fixtures/gguf/blocks-bf16.gguf",
        "fixtures/gguf/blocks-q8_0.gguf",   "fixtures/gguf/blocks-q4_0.gguf",   "fixtures/gguf/blocks-q2_k.gguf",
        "fixtures/gguf/blocks-q3_k_m.gguf", "fixtures/gguf/blocks-q4_k_m.gguf", "fixtures/gguf/blocks-q5_k_m.gguf",
        "fixtures/gguf/blocks-q6_k.gguf",   "fixtures/gguf/blocks-iq4_xs.gguf"};
    char path[4096];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (shared_path(path, sizeof path, names[i], "other_layouts")) check_everywhere(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(small_fixtures), cmocka_unit_test(all_models),
                                       cmocka_unit_test(other_layouts)};
    return cmocka_run_group_tests_name("fixtures", tests, NULL, NULL);
}
