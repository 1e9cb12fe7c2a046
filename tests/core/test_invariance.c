/* The same tokens give the same bits: whole prompt, token by token, in chunks, on any number of threads, side by side
 * with another sequence; for every cell format, at every CPU level. */
#include "pass_runner.h"

#include "checkpoint.h"
#include "cpu.h"
#include "error.h"
#include "expected.h"
#include "memory.h"
#include "sanitizer.h"
#include "test_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_TOKENS = UNDER_SANITIZER ? 96 : 160, LONG_TOKENS = 1400 };

struct model {
    struct checkpoint checkpoint;
    afmoe_token tokens[LONG_TOKENS]; /* MAX_TOKENS cross windows and pages, all of them the spans of attention too */
};

static void open_model(struct model *model, const char *path)
{
    struct checkpoint_options options = {.max_json_bytes = 32u << 20};
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    if (afmoe__checkpoint_open(&model->checkpoint, path, &options, &error) != AFMOE_OK)
        fail_msg("%s: %s", path, error.message);
    uint32_t random = 12345;
    for (int i = 0; i < LONG_TOKENS; i++) {
        random = random * 1664525u + 1013904223u;
        model->tokens[i] = (afmoe_token)(16 + (random >> 8) % (model->checkpoint.config.vocab_size - 16));
    }
}

static void run_up_to(struct runner *runner, const struct model *model, const struct runner_options *options,
                      uint64_t n, uint64_t max_tokens)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    if (runner_create(runner, &model->checkpoint.config, &model->checkpoint.weights, options, max_tokens, &error) !=
            AFMOE_OK ||
        runner_feed(runner, model->tokens, n, &error) != AFMOE_OK)
        fail_msg("%s", error.message);
}

static void run(struct runner *runner, const struct model *model, const struct runner_options *options, uint64_t n)
{
    run_up_to(runner, model, options, n, MAX_TOKENS);
}

static void assert_same(const struct runner *a, const struct runner *b, uint64_t n, const char *what)
{
    const struct model_config *config = a->config;
    if (memcmp(a->logits, b->logits, n * config->vocab_size * sizeof(float)) != 0) fail_msg("%s: logits differ", what);
    for (uint32_t layer = 0; layer <= config->n_layers; layer++) {
        uint64_t at = layer * a->max_tokens * config->hidden_size;
        if (memcmp(a->residual + at, b->residual + at, n * config->hidden_size * sizeof(float)) != 0)
            fail_msg("%s: residual stream entering layer %u differs", what, layer);
    }
}

/* ---- Chunks and threads ---- */

/* A host's parallel-for that has no threads and starts at the far end. */
static int32_t run_backwards(void *user_data, uint32_t n_workers, afmoe_task_fn task, void *task_data)
{
    (void)user_data;
    for (uint32_t i = n_workers; i-- > 0;) task(task_data, i);
    return 0;
}

static void check_chunks(const struct model *model, int32_t level, enum cell_format cells, enum precision precision)
{
    static const struct {
        const char *what;
        uint32_t n_threads;
        uint64_t chunk;
        afmoe_parallel_fn parallel;
    } runs[] = {{"chunks of 7", 1, 7}, {"three threads, chunks of 64", 3, 64},
                {"host's loop, chunks of 40", 5, 40, run_backwards}, {"three threads, token by token", 3, 1},
                {"token by token", 1, 1}, {"two threads", 2, 256}};
    const size_t n_runs = UNDER_SANITIZER ? 2 : sizeof runs / sizeof *runs;
    struct runner_options options = {level, 1, 256, cells, .precision = precision};
    struct runner whole, other;
    run(&whole, model, &options, MAX_TOKENS);
    for (size_t i = 0; i < n_runs; i++) {
        options.n_threads = runs[i].n_threads;
        options.chunk_tokens = runs[i].chunk;
        options.parallel = runs[i].parallel;
        run(&other, model, &options, MAX_TOKENS);
        assert_same(&whole, &other, MAX_TOKENS, runs[i].what);
        runner_free(&other);
    }
    runner_free(&whole);
}

/* At a depth where attention is made of several spans: by one worker, and of few rows by several. */
static void check_spans(const struct model *model, int32_t level, enum cell_format cells)
{
    static const uint64_t pieces[] = {1, 4, 3, 1, 5, 2, 1}; /* rows of the last passes */
    struct runner_options options = {level, 1, 256, cells};
    struct runner whole, other;
    uint64_t n = LONG_TOKENS;
    run_up_to(&whole, model, &options, LONG_TOKENS, LONG_TOKENS);
    options.n_threads = 3;
    options.chunk_tokens = 100;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) n -= pieces[i];
    run_up_to(&other, model, &options, n, LONG_TOKENS);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; n += pieces[i++])
        assert_int_equal(runner_feed(&other, model->tokens + n, pieces[i], NULL), AFMOE_OK);
    assert_same(&whole, &other, LONG_TOKENS, "several spans");
    runner_free(&other);
    runner_free(&whole);
}

/* ---- Two sequences in one pass, and rows that nobody wants ---- */

enum { SIDE_TOKENS = 60, SIDE_OFFSET = 20 };

struct side {
    const struct runner *alone;
    uint64_t base;
    const uint64_t *wanted; /* of the pass that runs: those not yet given */
    uint64_t n_wanted;
};

static void on_side_row(void *user, uint64_t item, uint64_t row, const float *hidden, const float *logits)
{
    struct side *side = (struct side *)user + item;
    uint64_t vocab = side->alone->config->vocab_size;
    (void)hidden;
    assert_true(side->n_wanted > 0);
    assert_int_equal(row, *side->wanted);
    side->wanted++;
    side->n_wanted--;
    if (memcmp(logits, runner_logits(side->alone, side->base + row), vocab * sizeof *logits) != 0)
        fail_msg("sequence %llu, position %llu: other logits than alone", (unsigned long long)item,
                 (unsigned long long)(side->base + row));
}

/* Every `step`th row from `first` on; step 0: none. */
static uint64_t list_rows(uint64_t *out, uint64_t n_rows, uint64_t first, uint64_t step)
{
    uint64_t n = 0;
    for (uint64_t row = first; step && row < n_rows; row += step) out[n++] = row;
    return n;
}

/* Feed sequence A (tokens from 0) and B (tokens from 20) together, with pieces of different length, of which all,
 * some, the last or no rows want logits. */
static void check_side_by_side(const struct model *model, int32_t level, enum cell_format cells,
                               enum precision precision)
{
    static const struct {
        uint64_t n, first, step;
    } pieces[][2] = {{{20, 0, 1}, {1, 0, 1}}, {{10, 2, 3}, {1, 0, 0}}, {{1, 0, 0}, {3, 0, 1}}, {{5, 4, 1}, {37, 1, 5}},
                     {{22, 0, 0}, {16, 0, 0}}, {{1, 0, 1}, {1, 0, 1}}, {{1, 0, 1}, {1, 0, 0}}}; /* both sum to 60 */
    struct runner_options options = {level, 2, 128, cells, .precision = precision};
    struct runner runners[2], alone[2];
    struct model shifted = *model;
    memmove(shifted.tokens, model->tokens + SIDE_OFFSET, (MAX_TOKENS - SIDE_OFFSET) * sizeof *shifted.tokens);
    const struct model *models[] = {model, &shifted};
    struct side sides[2];
    for (int i = 0; i < 2; i++) {
        run(&alone[i], models[i], &options, SIDE_TOKENS);
        run(&runners[i], models[i], &options, 0); /* only its cells are used */
        sides[i] = (struct side){.alone = &alone[i]};
    }
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        uint64_t wanted[2][SIDE_TOKENS];
        struct batch_item items[2];
        for (int i = 0; i < 2; i++) {
            sides[i].wanted = wanted[i];
            sides[i].n_wanted = list_rows(wanted[i], pieces[p][i].n, pieces[p][i].first, pieces[p][i].step);
            items[i] = (struct batch_item){.cells = &runners[i].cells, .tokens = models[i]->tokens + sides[i].base,
                                           .n_tokens = pieces[p][i].n, .n_past = sides[i].base, .wanted = wanted[i],
                                           .n_wanted = sides[i].n_wanted};
        }
        struct batch batch = {.items = items, .n_items = 2};
        assert_int_equal(afmoe__decoder_pass(runners[0].decoder, &batch, on_side_row, sides, NULL, NULL, NULL),
                         AFMOE_OK);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(sides[i].n_wanted, 0);
            sides[i].base += pieces[p][i].n;
        }
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sides[i].base, SIDE_TOKENS);
        runner_free(&runners[i]);
        runner_free(&alone[i]);
    }
}

static void check_model(const char *path)
{
    struct model model;
    open_model(&model, path);
    for (int32_t level = 0; level <= afmoe__cpu_level(); level++) {
        struct kernels kernels;
        afmoe__kernels_select(&kernels, level);
        if (kernels.level != level) continue;
        /* Under a sanitizer one format of cells at the lower levels: test_kernels runs their kernels. */
        bool few = UNDER_SANITIZER && level < afmoe__cpu_level();
        for (int cells = few ? CELLS_Q8_0 : 0; cells < N_CELL_FORMATS; cells++) {
            check_chunks(&model, level, (enum cell_format)cells, PRECISION_EXACT);
            check_side_by_side(&model, level, (enum cell_format)cells, PRECISION_EXACT);
        }
    }
    afmoe__checkpoint_close(&model.checkpoint);
    print_message("%s\n", path);
}

static void small_models(void **state)
{
    static const char *const names[] = {"nano", "tied", "bf16", "yarn", "grouped-router", "tiny-window-1"};
    char path[4096];
    (void)state;
    const size_t n = UNDER_SANITIZER ? 1 : sizeof names / sizeof *names; /* test_fixtures runs all there */
    for (size_t i = 0; i < n; i++) check_model(data_path(path, sizeof path, names[i]));
}

static void block_formats(void **state)
{
    static const char *const names[] = {"fixtures/gguf/blocks-q8_0.gguf", "fixtures/models/f16",
                                        "fixtures/models/large", "fixtures/models/nano-wide"};
    char path[4096];
    (void)state;
    const size_t n = UNDER_SANITIZER ? 1 : sizeof names / sizeof *names;
    for (size_t i = 0; i < n; i++)
        if (shared_path(path, sizeof path, names[i], "invariance of block formats")) check_model(path);
}

/* Precision FAST, where activations are rounded: all mixes of block formats that have a fixture, at the highest level;
 * the kernel tests hold every format to the same bits. */
static void check_fast(const char *path)
{
    struct model model;
    open_model(&model, path);
    check_chunks(&model, afmoe__cpu_level(), CELLS_BF16, PRECISION_FAST);
    check_side_by_side(&model, afmoe__cpu_level(), CELLS_BF16, PRECISION_FAST);
    afmoe__checkpoint_close(&model.checkpoint);
    print_message("fast: %s\n", path);
}

static void whole_numbers(void **state)
{
    static const char *const formats[] = {"q4_0", "q8_0", "q2_k", "q3_k_m", "q4_k_m", "q5_k_m", "q6_k", "iq4_xs"};
    char path[4096], name[64];
    (void)state;
    const size_t n_formats = UNDER_SANITIZER ? 1 : sizeof formats / sizeof *formats;
    for (size_t i = 0; i < n_formats; i++) {
        snprintf(name, sizeof name, "fixtures/gguf/blocks-%s.gguf", formats[i]);
        if (shared_path(path, sizeof path, name, "invariance of precision FAST")) check_fast(path);
    }
    check_fast(getenv("AFMOE_TEST_MODEL"));
    /* products of its own at AVX-512 BF16 */
    if (!UNDER_SANITIZER) check_fast(data_path(path, sizeof path, "bf16"));
}

static void long_sequence(void **state)
{
    char path[4096];
    struct model model;
    (void)state;
    open_model(&model, data_path(path, sizeof path, "nano"));
    model.checkpoint.config.max_positions = 2 * LONG_TOKENS;
    model.checkpoint.config.sliding_window = LONG_TOKENS / 2;
    for (int32_t level = UNDER_SANITIZER ? afmoe__cpu_level() : 0; level <= afmoe__cpu_level(); level++) {
        struct kernels kernels;
        afmoe__kernels_select(&kernels, level);
        for (int cells = UNDER_SANITIZER ? CELLS_Q8_0 : 0; kernels.level == level && cells < N_CELL_FORMATS; cells++)
            check_spans(&model, level, (enum cell_format)cells);
    }
    afmoe__checkpoint_close(&model.checkpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(small_models), cmocka_unit_test(block_formats),
                                       cmocka_unit_test(whole_numbers), cmocka_unit_test(long_sequence)};
    return cmocka_run_group_tests_name("invariance", tests, NULL, NULL);
}
