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

/* ---- Rows that nobody wants, and two sequences in one pass ---- */

enum { SIDE_TOKENS = 76 /* more than a page */, SIDE_OFFSET = 20, MAX_SIDES = 3 };

/* A sequence that is computed in passes of some wanted rows, without a trace: so the last layer leaves rows out. */
struct side {
    struct runner runner;       /* only its cells are used, and of the first one the decoder */
    const struct runner *alone; /* the same, with all rows wanted */
    const afmoe_token *tokens;
    uint64_t base;
    uint64_t wanted[LONG_TOKENS], n_wanted; /* of the pass that runs */
    uint64_t n_given;
    bool hidden_only;
};

static void on_side_row(void *user, uint64_t item, uint64_t row, const float *hidden, const float *logits)
{
    struct side *side = (struct side *)user + item;
    const struct model_config *config = side->alone->config;
    uint64_t at = side->base + row, layer = config->n_layers;
    assert_true(side->n_given < side->n_wanted);
    assert_int_equal(row, side->wanted[side->n_given++]);
    assert_int_equal(logits == NULL, side->hidden_only);
    const float *expected = side->alone->residual + (layer * side->alone->max_tokens + at) * config->hidden_size;
    if (memcmp(hidden, expected, config->hidden_size * sizeof *hidden) != 0 ||
        (logits && memcmp(logits, runner_logits(side->alone, at), config->vocab_size * sizeof *logits) != 0))
        fail_msg("sequence %llu, position %llu: other bits than alone", (unsigned long long)item,
                 (unsigned long long)at);
}

/* So many rows, of which every `step`th from `first` on is wanted; step 0: none. */
struct piece {
    uint64_t n, first, step;
    bool hidden_only;
};

/* One pass: a piece of each side. */
static void pass_sides(struct side *sides, uint64_t n_sides, const struct piece *pieces)
{
    struct batch_item items[MAX_SIDES];
    for (uint64_t i = 0; i < n_sides; i++) {
        struct side *side = &sides[i];
        side->n_given = side->n_wanted = 0;
        side->hidden_only = pieces[i].hidden_only;
        for (uint64_t row = pieces[i].first; pieces[i].step && row < pieces[i].n; row += pieces[i].step)
            side->wanted[side->n_wanted++] = row;
        items[i] = (struct batch_item){.cells = &side->runner.cells, .tokens = side->tokens + side->base,
                                       .n_tokens = pieces[i].n, .n_past = side->base, .wanted = side->wanted,
                                       .n_wanted = side->n_wanted, .hidden_only = side->hidden_only};
    }
    struct batch batch = {.items = items, .n_items = n_sides};
    assert_int_equal(afmoe__decoder_pass(sides[0].runner.decoder, &batch, on_side_row, sides, NULL, NULL, NULL),
                     AFMOE_OK);
    for (uint64_t i = 0; i < n_sides; i++) {
        assert_int_equal(sides[i].n_given, sides[i].n_wanted);
        sides[i].base += pieces[i].n;
    }
}

/* Feed sequence A (tokens from 0) and B (tokens from 20) together, with pieces of different length, of which all,
 * some, the last or no rows are wanted; and C, which is B once more, a little behind. */
static void check_side_by_side(const struct model *model, int32_t level, enum cell_format cells,
                               enum precision precision)
{
    static const struct piece pieces[][MAX_SIDES] = {
        {{20, 0, 1}, {1, 0, 1}, {2, 0, 0}},          {{10, 2, 3}, {1, 0, 0}, {1, 0, 1}},
        {{1, 0, 0}, {3, 0, 1, true}, {1, 0, 1}},     {{5, 4, 1}, {37, 1, 5}, {30, 29, 1, true}},
        {{36, 30, 2, true}, {31, 0, 0}, {35, 0, 2}}, {{1, 0, 0}, {1, 0, 0}, {1, 0, 0}},
        {{2, 1, 1}, {1, 0, 1, true}, {2, 0, 1}},     {{1, 0, 1}, {1, 0, 0}, {1, 0, 1}}};
    struct runner_options options = {level, 2, 128, cells, .precision = precision};
    struct runner alone[2];
    struct side sides[MAX_SIDES];
    struct model shifted = *model;
    memmove(shifted.tokens, model->tokens + SIDE_OFFSET, (MAX_TOKENS - SIDE_OFFSET) * sizeof *shifted.tokens);
    const struct model *models[] = {model, &shifted};
    for (int i = 0; i < 2; i++) run(&alone[i], models[i], &options, SIDE_TOKENS);
    for (int i = 0; i < MAX_SIDES; i++) {
        sides[i] = (struct side){.alone = &alone[i > 0], .tokens = models[i > 0]->tokens};
        run(&sides[i].runner, models[i > 0], &options, 0);
    }
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) pass_sides(sides, MAX_SIDES, pieces[p]);
    for (int i = 0; i < MAX_SIDES; i++) {
        assert_in_range(sides[i].base, SIDE_TOKENS - 3, SIDE_TOKENS);
        runner_free(&sides[i].runner);
    }
    for (int i = 0; i < 2; i++) runner_free(&alone[i]);
}

/* ---- Many positions ---- */

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

    /* Many rows, of which so few go on in the last layer that the work of each is cut by spans. */
    static const struct piece few[] = {{100, 99, 1}, {70, 50, 2}, {70, 67, 2}, {1, 0, 1}, {9, 0, 8}};
    struct side side = {.alone = &whole, .tokens = model->tokens, .base = LONG_TOKENS};
    for (size_t i = 0; i < sizeof few / sizeof *few; i++) side.base -= few[i].n;
    run_up_to(&side.runner, model, &options, side.base, LONG_TOKENS);
    for (size_t i = 0; i < sizeof few / sizeof *few; i++) pass_sides(&side, 1, &few[i]);
    runner_free(&side.runner);
    runner_free(&whole);
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
                                        "fixtures/models/large", "fixtures/models/nano-wide",
                                        "fixtures/models/all-dense"};
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
        for (int cells = UNDER_SANITIZER ? CELLS_Q8_0 : 0; kernels.level == level && cells < N_CELL_FORMATS; cells++) {
            /* a last layer of either kind */
            model.checkpoint.config.layer_is_full[model.checkpoint.config.n_layers - 1] = cells % 2 == 0;
            check_spans(&model, level, (enum cell_format)cells);
        }
    }
    afmoe__checkpoint_close(&model.checkpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(small_models), cmocka_unit_test(block_formats),
                                       cmocka_unit_test(whole_numbers), cmocka_unit_test(long_sequence)};
    return cmocka_run_group_tests_name("invariance", tests, NULL, NULL);
}
