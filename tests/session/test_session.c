/* Sessions: however a timeline came about, its bits are those of a fresh one; what was reused and computed is told; a
 * call that fails leaves the timeline as it says. */
#include "sanitizer.h"
#include "timelines.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Appending ---- */

static void pieces_give_the_same_bits(void **state)
{
    static const int32_t cells[] = {AFMOE_CELLS_F32, AFMOE_CELLS_F16, AFMOE_CELLS_BF16, AFMOE_CELLS_Q8_0};
    static const uint64_t pieces[][4] = {{1, 1, 1, 1}, {7, 1, 64, 2}, {64, 64, 64, 64}, {63, 66, 3, 100}};
    static const uint32_t chunks[] = {1, 5, 64, 256};
    (void)state;
    for (size_t c = 0; c < sizeof cells / sizeof *cells; c++) {
        afmoe_context_options options = two_threads();
        options.cells = cells[c];
        struct bits *expected = whole(tiny, &options);
        for (size_t p = 0; p < 4; p++) {
            struct bits *bits = calloc(1, sizeof *bits);
            options.chunk_tokens = chunks[(p + c) % 4];
            afmoe_session *session = session_with(tiny, &options);
            for (uint64_t at = 0, i = 0; at < N_TOKENS; i++) {
                uint64_t end = at + pieces[p][i % 4] < N_TOKENS ? at + pieces[p][i % 4] : N_TOKENS;
                record(bits, session, at, end);
                at = end;
            }
            assert_same_bits(bits, expected);
            assert_last(expected, session, N_TOKENS);
            afmoe_session_free(session);
            free(bits);
        }
        free(expected);
    }
}

/* log softmax in double, the slow way. */
static double plain_logprob(const float *logits, afmoe_token token)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < VOCAB; i++) max = logits[i] > max ? logits[i] : max;
    for (int i = 0; i < VOCAB; i++) sum += exp(logits[i] - max);
    return logits[token] - max - log(sum);
}

static void logprobs_are_those_of_the_logits(void **state)
{
    struct bits *bits = whole(tiny, NULL);
    (void)state;
    for (int p = 1; p < N_TOKENS; p++) {
        double plain = plain_logprob(bits->logits[p - 1], tokens[p]);
        assert_true(fabs(bits->logprobs[p] - plain) <= 2e-6 * (1 + fabs(plain)));
    }
    free(bits);
}

/* Any range and any positions, whatever chunk they fall in; nothing beside them is written. */
static void ranges_and_positions_across_chunks(void **state)
{
    static const uint64_t ranges[][2] = {{1, 2},    {1, 300},   {64, 65},   {63, 66},  {50, 50}, {0, 0},
                                         {299, 300}, {100, 201}, {128, 192}, {127, 128}};
    static const uint64_t chosen[] = {0, 1, 63, 64, 127, 128, 200, 299};
    enum { N_CHOSEN = 8 };
    struct bits *expected = whole(tiny, NULL);
    (void)state;
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
        float logprobs[N_TOKENS + 2], logits[N_CHOSEN][VOCAB];
        uint64_t n = ranges[r][1] - ranges[r][0];
        afmoe_context_options context_options = two_threads();
        context_options.chunk_tokens = 64;
        afmoe_session *session = session_with(tiny, &context_options);
        afmoe_append_options options;
        afmoe_append_options_init(&options, sizeof options);
        options.logprob_begin = ranges[r][0];
        options.logprob_end = ranges[r][1];
        options.out_logprobs = logprobs + 1;
        options.positions = chosen;
        options.n_positions = N_CHOSEN;
        options.out_logits = logits[0];
        options.logits_capacity = N_CHOSEN * VOCAB;
        logprobs[0] = logprobs[n + 1] = 42;
        CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens, N_TOKENS, &options, NULL, &error));
        assert_memory_equal(logprobs + 1, expected->logprobs + ranges[r][0], n * sizeof *logprobs);
        assert_true(logprobs[0] == 42 && logprobs[n + 1] == 42);
        for (int i = 0; i < N_CHOSEN; i++) assert_memory_equal(logits[i], expected->logits[chosen[i]], sizeof *logits);
        afmoe_session_free(session);
    }
    free(expected);
}

static void refuses_bad_ranges_and_positions(void **state)
{
    static const uint64_t down[] = {3, 2}, twice[] = {2, 2}, beyond[] = {10}, before[] = {4}, good[] = {5, 9};
    static const struct {
        uint64_t logprob_begin, logprob_end, n_positions;
        const uint64_t *positions;
        uint64_t capacity;
        afmoe_status status;
    } cases[] = {{4, 6, 0, NULL, 0, AFMOE_INVALID},  {9, 11, 0, NULL, 0, AFMOE_INVALID},
                 {0, 6, 0, NULL, 0, AFMOE_INVALID},  {5, UINT64_MAX, 0, NULL, 0, AFMOE_INVALID},
                 {0, 0, 2, down, VOCAB * 2, AFMOE_INVALID},   {0, 0, 2, twice, VOCAB * 2, AFMOE_INVALID},
                 {0, 0, 1, beyond, VOCAB, AFMOE_INVALID},     {0, 0, 1, before, VOCAB, AFMOE_INVALID},
                 {0, 0, 1, NULL, VOCAB, AFMOE_INVALID},       {0, 0, 2, good, VOCAB * 2 - 1, AFMOE_CAPACITY},
                 {0, 0, 2, good, VOCAB * 2, AFMOE_OK}};
    float logits[2 * VOCAB], logprobs[16];
    afmoe_session *session = session_with(tiny, NULL);
    (void)state;
    append(session, 0, 5);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        afmoe_append_options options;
        afmoe_append_options_init(&options, sizeof options);
        options.logprob_begin = cases[i].logprob_begin;
        options.logprob_end = cases[i].logprob_end;
        options.out_logprobs = logprobs;
        options.positions = cases[i].positions;
        options.n_positions = cases[i].n_positions;
        options.out_logits = logits;
        options.logits_capacity = cases[i].capacity;
        CHECK_STATUS(cases[i].status, afmoe_session_append(session, tokens + 5, 5, &options, NULL, &error));
        assert_int_equal(n_tokens_of(session), cases[i].status == AFMOE_OK ? 10 : 5);
        if (cases[i].status == AFMOE_INVALID)
            assert_non_null(strstr(error.message, cases[i].n_positions == 0 ? "5..10"
                                                  : cases[i].positions      ? "5..9"
                                                                            : "NULL"));
        if (cases[i].status == AFMOE_CAPACITY) assert_non_null(strstr(error.message, "192"));
    }
    afmoe_session_free(session);
}

/* The log-probability of the first new token needs the logits before it. */
static void first_logprob_needs_logits(void **state)
{
    float logprob;
    afmoe_session *session = session_with(tiny, NULL);
    afmoe_append_options options;
    (void)state;
    afmoe_append_options_init(&options, sizeof options);
    append(session, 0, 10);
    CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, 8, NULL, NULL, &error));
    options.logprob_begin = 8;
    options.logprob_end = 9;
    CHECK_STATUS(AFMOE_INVALID, afmoe_session_append(session, tokens + 8, 1, &options, NULL, &error));
    options.out_logprobs = &logprob;
    CHECK_STATUS(AFMOE_STATE, afmoe_session_append(session, tokens + 8, 1, &options, NULL, &error));
    assert_int_equal(n_tokens_of(session), 8);
    afmoe_session_free(session);
}

static void refuses_tokens_out_of_range(void **state)
{
    afmoe_session *session = session_with(tiny, NULL);
    const afmoe_token bad[] = {-1, INT32_MIN, VOCAB, INT32_MAX};
    struct bits *expected = whole(tiny, NULL);
    (void)state;
    append(session, 0, 5);
    for (int i = 0; i < 4; i++) {
        afmoe_token some[] = {1, 2, bad[i]};
        CHECK_STATUS(AFMOE_INVALID, afmoe_session_append(session, some, 3, NULL, NULL, &error));
        assert_non_null(strstr(error.message, "0..95"));
        CHECK_STATUS(AFMOE_INVALID, afmoe_session_sync(session, some, 3, NULL, NULL, &error));
        assert_last(expected, session, 5);
    }
    CHECK_STATUS(AFMOE_INVALID, afmoe_session_append(session, NULL, 1, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, NULL, 0, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_append(session, tokens, UINT64_MAX, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_sync(session, tokens, UINT64_MAX, NULL, NULL, &error));
    assert_last(expected, session, 5);
    afmoe_session_free(session);
    free(expected);
}

/* ---- Sync ---- */

static void sync_to(afmoe_session *session, const afmoe_token *to, uint64_t n, uint64_t n_reused)
{
    afmoe_append_result result;
    afmoe_append_result_init(&result, sizeof result);
    CHECK_STATUS(AFMOE_OK, afmoe_session_sync(session, to, n, NULL, &result, &error));
    assert_result(&result, n, n_reused, n - n_reused);
    assert_tokens(session, to, n);
}

static void sync_keeps_what_is_common(void **state)
{
    struct bits *expected = whole(tiny, NULL);
    afmoe_session *session = session_with(tiny, NULL);
    afmoe_token other[200];
    (void)state;
    sync_to(session, tokens, 200, 0);
    assert_last(expected, session, 200);
    sync_to(session, tokens, 200, 200);
    assert_last(expected, session, 200);
    sync_to(session, tokens, 230, 200);
    assert_last(expected, session, 230);
    sync_to(session, tokens, 100, 99);
    assert_last(expected, session, 100);
    memcpy(other, tokens, sizeof other);
    other[50] = (other[50] + 1) % VOCAB;
    sync_to(session, other, 200, 50);
    sync_to(session, tokens, 200, 50);
    assert_last(expected, session, 200);
    assert_int_equal(stats_of(session).n_reused, 200 + 200 + 99 + 50 + 50);
    sync_to(session, tokens, 0, 0);
    assert_no_logits(session);
    assert_int_equal(stats_of(session).page_bytes, 0);
    sync_to(session, NULL, 0, 0);
    other[0] = (tokens[0] + 1) % VOCAB;
    sync_to(session, other, 3, 0);
    sync_to(session, tokens, 3, 0);
    assert_last(expected, session, 3);
    afmoe_session_free(session);
    free(expected);
}

/* After a rewind there are no logits: the same tokens cost one. */
static void sync_makes_missing_logits(void **state)
{
    struct bits *expected = whole(tiny, NULL);
    afmoe_session *session = session_with(tiny, NULL);
    (void)state;
    append(session, 0, 80);
    CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, 70, NULL, NULL, &error));
    sync_to(session, tokens, 70, 69);
    assert_last(expected, session, 70);
    afmoe_session_free(session);
    free(expected);
}

static void sync_too_far_back_starts_again(void **state)
{
    struct bits *expected = whole(tiny, NULL);
    afmoe_context_options options = two_threads();
    options.rewind_tokens = 10;
    afmoe_session *session = session_with(tiny, &options);
    (void)state;
    append(session, 0, 300);
    sync_to(session, tokens, 291, 290);
    assert_last(expected, session, 291);
    sync_to(session, tokens, 100, 0);
    assert_last(expected, session, 100);
    afmoe_session_free(session);
    free(expected);
}

/* ---- Rewind ---- */

static void check_rewind(const struct bits *expected, uint64_t rewind_tokens, uint64_t to, bool is_free)
{
    afmoe_context_options options = two_threads();
    options.rewind_tokens = rewind_tokens;
    options.chunk_tokens = 32;
    afmoe_session *session = session_with(tiny, &options);
    afmoe_append_result result;
    afmoe_append_result_init(&result, sizeof result);
    append(session, 0, 256);
    for (uint64_t p = 256; p < 290; p++) append(session, p, p + 1);
    CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, to, NULL, &result, &error));
    assert_result(&result, to, is_free ? to : 0, is_free ? 0 : to);
    assert_tokens(session, tokens, to);
    if (to < 290)
        assert_no_logits(session);
    else
        assert_last(expected, session, 290);
    if (to < 290) {
        append(session, to, to + 1);
        assert_last(expected, session, to + 1);
        append(session, to + 1, 300);
        assert_last(expected, session, 300);
    }
    afmoe_session_free(session);
}

static void rewind_is_free_within_its_tokens(void **state)
{
    struct bits *expected = whole(tiny, NULL);
    (void)state;
    check_rewind(expected, 0, 290, true);
    check_rewind(expected, 0, 200, false);
    check_rewind(expected, 1, 289, true);
    check_rewind(expected, 100, 190, true);
    check_rewind(expected, 100, 100, false);
    check_rewind(expected, 256, 34, true);
    check_rewind(expected, 1000, 0, true);
    check_rewind(expected, (uint64_t)1 << 32, 1, true);
    check_rewind(expected, 0, 0, true);
    free(expected);
}

static void rewind_beyond_the_end_is_invalid(void **state)
{
    struct bits *expected = whole(tiny, NULL);
    afmoe_session *session = session_with(tiny, NULL);
    (void)state;
    append(session, 0, 5);
    CHECK_STATUS(AFMOE_INVALID, afmoe_session_rewind(session, 6, NULL, NULL, &error));
    assert_non_null(strstr(error.message, "0..5"));
    CHECK_STATUS(AFMOE_INVALID, afmoe_session_rewind(session, UINT64_MAX, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, 5, NULL, NULL, &error));
    assert_last(expected, session, 5);
    afmoe_session_free(session);
    free(expected);
}

/* Random appends, rewinds and syncs; after each the bits are those of a fresh timeline. */
static void random_walks_keep_the_bits(void **state)
{
    static const uint64_t rewind_tokens[] = {0, 10, 70, 256};
    struct bits *expected = whole(tiny, NULL);
    (void)state;
    for (int r = 0; r < 4; r += UNDER_TSAN ? 2 : 1) {
        afmoe_context_options options = two_threads();
        options.rewind_tokens = rewind_tokens[r];
        options.chunk_tokens = 48;
        afmoe_session *session = session_with(tiny, &options);
        uint32_t random = 99u + (uint32_t)r;
        for (int step = 0; step < 120; step++) {
            random = random * 1664525u + 1013904223u;
            uint64_t n = n_tokens_of(session), to = (random >> 12) % (N_TOKENS - 1) + 1;
            if (random >> 31 && n) {
                uint64_t back = (random >> 8) % (random >> 30 & 1 ? 20 : n + 1);
                uint64_t keep = back < n ? n - back : 0;
                CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, keep, NULL, NULL, &error));
                if (keep < N_TOKENS) append(session, keep, keep + 1);
                assert_last(expected, session, keep < N_TOKENS ? keep + 1 : N_TOKENS);
            } else {
                CHECK_STATUS(AFMOE_OK, afmoe_session_sync(session, tokens, to, NULL, NULL, &error));
                assert_last(expected, session, to);
            }
        }
        afmoe_session_free(session);
    }
    free(expected);
}

/* ---- Layers of one kind, and the memory they hold ---- */

/* Decoding far beyond the window holds `sliding` pages for each sliding layer and all for each full one. */
static void check_memory(afmoe_model *model, uint64_t most_sliding_pages)
{
    afmoe_model_info info = info_of(model);
    afmoe_context_options options = exact_options();
    options.rewind_tokens = 0;
    options.chunk_tokens = PAGE;
    afmoe_context *context = open_context(model, &options);
    afmoe_session *session = open_session(context);
    uint64_t page = bytes_of_page(model), n_sliding = info.n_layers - info.n_full_layers;
    append(session, 0, 200);
    for (uint64_t p = 200; p < MAX_POSITIONS; p++) {
        append(session, p, p + 1);
        uint64_t n_pages = p / PAGE + 1;
        uint64_t most = (info.n_full_layers * n_pages + n_sliding * most_sliding_pages) * page;
        uint64_t held = stats_of(session).page_bytes;
        assert_true(held <= most && held >= info.n_full_layers * n_pages * page);
        /* The free list has what the prompt's chunks needed beyond that, at most. */
        assert_true(page_bytes_of(context) <= (info.n_full_layers * n_pages + n_sliding * 3) * page);
    }
    CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, 0, NULL, NULL, &error));
    assert_int_equal(stats_of(session).page_bytes, 0);
    assert_int_equal(page_bytes_of(context), 0);
    afmoe_session_free(session);
    afmoe_context_free(context);
}

/* Pieces, rewinds and syncs on a model give the bits of its whole. */
static void check_model(afmoe_model *model)
{
    struct bits *expected = whole(model, NULL);
    struct bits *bits = calloc(1, sizeof *bits);
    afmoe_context_options options = two_threads();
    options.rewind_tokens = 5;
    options.chunk_tokens = 37;
    afmoe_session *session = session_with(model, &options);
    record(bits, session, 0, 150);
    for (uint64_t p = 150; p < N_TOKENS; p++) record(bits, session, p, p + 1);
    assert_same_bits(bits, expected);
    CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, 100, NULL, NULL, &error));
    append(session, 100, 180);
    assert_last(expected, session, 180);
    CHECK_STATUS(AFMOE_OK, afmoe_session_sync(session, tokens, 177, NULL, NULL, &error));
    assert_last(expected, session, 177);
    afmoe_session_free(session);
    free(bits);
    free(expected);
}

static void layers_of_every_kind(void **state)
{
    static const char *const all_full = "[\"full_attention\", \"full_attention\", \"full_attention\", "
                                        "\"full_attention\"]";
    static const char *const all_sliding = "[\"sliding_attention\", \"sliding_attention\", \"sliding_attention\", "
                                           "\"sliding_attention\"]";
    static const struct {
        const char *from, *key;
        const char *value;
        uint32_t n_full;
        uint64_t most_sliding_pages;
    } cases[] = {{"tiny-bias", NULL, NULL, 1, 2},        {"tiny-bias", "layer_types", all_full, 4, 0},
                 {"tiny-bias", "layer_types", all_sliding, 0, 2}, {"tiny-window-1", NULL, NULL, 2, 1},
                 {"tiny-window-1", "layer_types", all_sliding, 0, 1}, {"tiny-bias", "sliding_window", "64", 1, 2},
                 {"tiny-bias", "sliding_window", "65", 1, 2},    {"tiny-bias", "sliding_window", "66", 1, 3},
                 {"tiny-bias", "sliding_window", "100000", 1, 8}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char from[PATH_BYTES], path[PATH_BYTES];
        if (!small_model_path(from, cases[i].from)) continue;
        make_variant(path, from, cases[i].key, cases[i].value);
        afmoe_model *model = open_model(path);
        assert_int_equal(info_of(model).n_full_layers, cases[i].n_full);
        check_model(model);
        if (cases[i].most_sliding_pages < 3) check_memory(model, cases[i].most_sliding_pages);
        afmoe_model_free(model);
        remove_variant(path);
    }
}

/* ---- Limits ---- */

static void max_tokens_is_the_edge(void **state)
{
    struct bits *expected = whole(tiny, NULL);
    afmoe_context_options options = two_threads();
    options.max_tokens = 20;
    afmoe_session *session = session_with(tiny, &options);
    afmoe_append_result result;
    (void)state;
    afmoe_append_result_init(&result, sizeof result);
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_append(session, tokens, 21, NULL, &result, &error));
    assert_result(&result, 0, 0, 0);
    assert_no_logits(session);
    append(session, 0, 20);
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_append(session, tokens + 20, 1, NULL, &result, &error));
    assert_result(&result, 20, 0, 0);
    assert_last(expected, session, 20);
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_sync(session, tokens, 21, NULL, &result, &error));
    assert_result(&result, 20, 0, 0);
    assert_last(expected, session, 20);
    sync_to(session, tokens, 20, 20);
    CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, 19, NULL, NULL, &error));
    append(session, 19, 20);
    assert_last(expected, session, 20);
    afmoe_session_free(session);
    free(expected);
}

static void page_cap_is_shared(void **state)
{
    struct bits *expected = whole(tiny, exact());
    uint64_t layers = info_of(tiny).n_layers;
    afmoe_context *context = capped_context(tiny, 2 * layers);
    afmoe_session *a = open_session(context), *b = open_session(context);
    (void)state;
    append(a, 0, 60);
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_append(b, tokens, 65, NULL, NULL, &error));
    assert_int_equal(n_tokens_of(b), 0);
    append(b, 0, 64);
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_append(a, tokens + 60, 5, NULL, NULL, &error));
    assert_last(expected, a, 60);
    append(a, 60, 64);
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_sync(a, tokens, 65, NULL, NULL, &error));
    assert_last(expected, a, 64);
    assert_int_equal(page_bytes_of(context), 2 * layers * bytes_of_page(tiny));
    CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(b, 0, NULL, NULL, &error));
    append(a, 64, 65);
    assert_last(expected, a, 65);
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_append(b, tokens, 1, NULL, NULL, &error));
    afmoe_session_free(a);
    append(b, 0, 128);
    assert_last(expected, b, 128);
    afmoe_session_free(b);
    assert_int_equal(page_bytes_of(context), 0);
    afmoe_context_free(context);
    free(expected);
}

/* Going back to where the pages are gone needs more than is held; with the rest taken it fails and changes nothing. */
static void full_leaves_everything_when_going_back(void **state)
{
    struct bits *expected = whole(tiny, exact());
    uint64_t layers = info_of(tiny).n_layers;
    afmoe_token other[250];
    (void)state;
    make_tokens(other, 250, VOCAB, 5);
    other[0] = (tokens[0] + 1) % VOCAB;
    afmoe_context *context = capped_context(tiny, 4 * layers);
    afmoe_session *a = open_session(context), *b = open_session(context);
    append(a, 0, 256);
    append(b, 0, 64);
    uint64_t held = stats_of(a).page_bytes, all = page_bytes_of(context);
    afmoe_append_result result;
    afmoe_append_result_init(&result, sizeof result);
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_rewind(a, 196, NULL, &result, &error));
    assert_result(&result, 256, 0, 0);
    assert_last(expected, a, 256);
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_sync(a, other, 250, NULL, &result, &error));
    assert_result(&result, 256, 0, 0);
    assert_last(expected, a, 256);
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_sync(a, tokens, 196, NULL, &result, &error));
    assert_last(expected, a, 256);
    assert_tokens(a, tokens, 256);
    assert_int_equal(stats_of(a).page_bytes, held);
    assert_int_equal(page_bytes_of(context), all);
    assert_int_equal(stats_of(a).n_reused, 0);
    afmoe_session_free(b);
    CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(a, 196, NULL, &result, &error));
    assert_result(&result, 196, 0, 196);
    append(a, 196, 230);
    assert_last(expected, a, 230);
    afmoe_session_free(a);
    afmoe_context_free(context);
    free(expected);
}

/* ---- Cancel ---- */

static void cancel_set_before(void **state)
{
    struct bits *expected = whole(tiny, NULL);
    afmoe_session *session = session_with(tiny, NULL);
    afmoe_append_options options;
    afmoe_append_result result;
    afmoe_cancel *cancel;
    (void)state;
    afmoe_append_options_init(&options, sizeof options);
    afmoe_append_result_init(&result, sizeof result);
    CHECK_STATUS(AFMOE_OK, afmoe_cancel_create(&cancel, &error));
    options.cancel = cancel;
    append(session, 0, 30);
    afmoe_cancel_set(cancel);
    CHECK_STATUS(AFMOE_CANCELLED, afmoe_session_append(session, tokens + 30, 10, &options, &result, &error));
    assert_result(&result, 30, 0, 0);
    assert_last(expected, session, 30); /* no chunk was computed: the logits are still there */
    afmoe_cancel_clear(cancel);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens + 30, 10, &options, &result, &error));
    assert_result(&result, 40, 0, 10);
    assert_last(expected, session, 40);
    afmoe_cancel_free(cancel);
    afmoe_session_free(session);
    free(expected);
}

struct stopper {
    uint64_t stop_at, n_calls, total;
    afmoe_cancel *cancel; /* set instead of answering non-zero */
};

static int32_t stop_at(void *user, uint64_t done, uint64_t total)
{
    struct stopper *stopper = user;
    stopper->n_calls++;
    stopper->total = total;
    if (done < stopper->stop_at) return 0;
    if (stopper->cancel) afmoe_cancel_set(stopper->cancel);
    return !stopper->cancel;
}

/* What was kept goes on to the same bits. */
static void check_stopped(const struct bits *expected, afmoe_session *session, uint64_t n_kept)
{
    assert_int_equal(n_tokens_of(session), n_kept);
    assert_tokens(session, tokens, n_kept);
    assert_no_logits(session);
    append(session, n_kept, N_TOKENS);
    assert_last(expected, session, N_TOKENS);
}

static void progress_stops_and_whole_chunks_stay(void **state)
{
    struct bits *expected = whole(tiny, NULL);
    (void)state;
    for (int with_cancel = 0; with_cancel < 2; with_cancel++) {
        afmoe_context_options context_options = two_threads();
        context_options.chunk_tokens = 50;
        afmoe_session *session = session_with(tiny, &context_options);
        struct stopper stopper = {.stop_at = 120};
        afmoe_append_options options;
        afmoe_append_result result;
        afmoe_append_options_init(&options, sizeof options);
        afmoe_append_result_init(&result, sizeof result);
        if (with_cancel) CHECK_STATUS(AFMOE_OK, afmoe_cancel_create(&stopper.cancel, &error));
        options.progress = stop_at;
        options.progress_data = &stopper;
        options.cancel = stopper.cancel;
        append(session, 0, 10);
        CHECK_STATUS(AFMOE_CANCELLED, afmoe_session_append(session, tokens + 10, 250, &options, &result, &error));
        assert_result(&result, 160, 0, 150);
        assert_int_equal(stopper.n_calls, 3);
        assert_int_equal(stopper.total, 250);
        assert_non_null(strstr(error.message, "160"));
        check_stopped(expected, session, 160);
        afmoe_cancel_free(stopper.cancel);
        afmoe_session_free(session);
    }
    free(expected);
}

/* A rewind that has to compute again and is stopped has the chunks computed so far. */
static void stopped_rewind_and_sync(void **state)
{
    struct bits *expected = whole(tiny, NULL);
    (void)state;
    for (int is_sync = 0; is_sync < 2; is_sync++) {
        afmoe_context_options context_options = two_threads();
        context_options.chunk_tokens = 50;
        context_options.rewind_tokens = 0;
        afmoe_session *session = session_with(tiny, &context_options);
        struct stopper stopper = {.stop_at = 1};
        afmoe_append_options options;
        afmoe_append_result result;
        afmoe_append_options_init(&options, sizeof options);
        afmoe_append_result_init(&result, sizeof result);
        options.progress = stop_at;
        options.progress_data = &stopper;
        append(session, 0, 300);
        if (is_sync)
            CHECK_STATUS(AFMOE_CANCELLED, afmoe_session_sync(session, tokens, 200, &options, &result, &error));
        else
            CHECK_STATUS(AFMOE_CANCELLED, afmoe_session_rewind(session, 200, &options, &result, &error));
        assert_result(&result, 50, 0, 50);
        check_stopped(expected, session, 50);
        afmoe_session_free(session);
    }
    free(expected);
}

static void *set_after(void *user)
{
    struct stopper *stopper = user;
    struct timespec pause = {0, (long)stopper->stop_at};
    nanosleep(&pause, NULL);
    afmoe_cancel_set(stopper->cancel);
    return NULL;
}

/* At whatever moment another thread cancels, what is kept is a whole number of chunks and goes on rightly. */
static void cancel_from_another_thread(void **state)
{
    struct bits *expected = whole(tiny, NULL);
    afmoe_cancel *cancel;
    (void)state;
    CHECK_STATUS(AFMOE_OK, afmoe_cancel_create(&cancel, &error));
    for (uint64_t i = 0; i < 20; i++) {
        pthread_t thread;
        afmoe_context_options context_options = two_threads();
        context_options.chunk_tokens = 3;
        afmoe_session *session = session_with(tiny, &context_options);
        struct stopper stopper = {.stop_at = i * i * 5000, .cancel = cancel};
        afmoe_append_options options;
        afmoe_append_options_init(&options, sizeof options);
        options.cancel = cancel;
        afmoe_cancel_clear(cancel);
        assert_int_equal(pthread_create(&thread, NULL, set_after, &stopper), 0);
        afmoe_status status = afmoe_session_append(session, tokens, N_TOKENS, &options, NULL, &error);
        pthread_join(thread, NULL);
        uint64_t n_kept = n_tokens_of(session);
        if (status == AFMOE_CANCELLED) {
            assert_int_equal(n_kept % 3, 0);
            check_stopped(expected, session, n_kept);
        } else {
            assert_int_equal(status, AFMOE_OK);
            assert_last(expected, session, N_TOKENS);
        }
        afmoe_session_free(session);
    }
    afmoe_cancel_free(cancel);
    free(expected);
}

/* ---- Broken weights ---- */

static void check_numeric(afmoe_session *session, afmoe_sampler *sampler)
{
    float logprobs[VOCAB];
    afmoe_token token;
    uint64_t n;
    afmoe_generate_result result;
    afmoe_generate_result_init(&result, sizeof result);
    CHECK_STATUS(AFMOE_NUMERIC, afmoe_session_logprobs(session, logprobs, VOCAB, &n, &error));
    CHECK_STATUS(AFMOE_NUMERIC, afmoe_session_top_logprobs(session, &token, logprobs, 1, &n, &error));
    CHECK_STATUS(AFMOE_NUMERIC, afmoe_sampler_sample(sampler, session, 0, &token, NULL, &error));
    CHECK_STATUS(AFMOE_NUMERIC, afmoe_generate(session, NULL, NULL, &result, &error));
    assert_int_equal(result.finish_reason, AFMOE_FINISH_ERROR);
    assert_int_equal(result.n_generated, 0);
    CHECK_STATUS(AFMOE_NUMERIC, afmoe_generate(session, sampler, NULL, NULL, &error));
}

static void nan_weights_end_in_numeric(void **state)
{
    static const char *const tensors[] = {"model.norm.weight", "lm_head.weight",
                                          "model.layers.1.mlp.router.gate.weight",
                                          "model.layers.0.self_attn.q_norm.weight",
                                          "model.layers.2.mlp.experts.1.down_proj.weight"};
    char from[PATH_BYTES], path[PATH_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        afmoe_sampler_options sampler_options;
        afmoe_append_options options;
        afmoe_sampler *sampler;
        float logprobs[N_TOKENS];
        make_variant(path, small_model_path(from, "tiny-bias"), NULL, NULL);
        poison_variant(path, tensors[i]);
        afmoe_model *model = open_model(path);
        afmoe_session *session = session_with(model, NULL);
        afmoe_sampler_options_init(&sampler_options, sizeof sampler_options);
        sampler_options.temperature = 0.7f;
        CHECK_STATUS(AFMOE_OK, afmoe_sampler_create(&sampler, model, &sampler_options, &error));
        afmoe_append_options_init(&options, sizeof options);
        options.logprob_begin = 1;
        options.logprob_end = N_TOKENS;
        options.out_logprobs = logprobs;
        CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens, N_TOKENS, &options, NULL, &error));
        assert_true(isnan(logprobs[N_TOKENS - 2]));
        check_numeric(session, sampler);
        afmoe_sampler_free(sampler);
        afmoe_session_free(session);
        afmoe_model_free(model);
        remove_variant(path);
    }
}

/* ---- Threads ---- */

struct decoding {
    afmoe_session *session;
    const struct bits *expected;
    bool same;
};

/* One token at a time, so that turns change hands often. */
static void *decode(void *user)
{
    struct decoding *decoding = user;
    float logits[VOCAB];
    decoding->same = true;
    for (uint64_t p = 0; p < N_TOKENS; p++) {
        afmoe_status status = afmoe_session_append(decoding->session, tokens + p, 1, NULL, NULL, NULL);
        if (status == AFMOE_OK) status = afmoe_session_logits(decoding->session, logits, VOCAB, NULL, NULL);
        if (status != AFMOE_OK || memcmp(logits, decoding->expected->logits[p], sizeof logits) != 0)
            decoding->same = false;
    }
    return NULL;
}

static void sessions_take_turns(void **state)
{
    enum { N_SESSIONS = 3 };
    struct bits *expected = whole(tiny, NULL);
    afmoe_context *context = open_context(tiny, NULL);
    struct decoding decodings[N_SESSIONS];
    pthread_t threads[N_SESSIONS];
    (void)state;
    for (int i = 0; i < N_SESSIONS; i++) {
        decodings[i] = (struct decoding){open_session(context), expected, false};
        assert_int_equal(pthread_create(&threads[i], NULL, decode, &decodings[i]), 0);
    }
    for (int i = 0; i < N_SESSIONS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < N_SESSIONS; i++) {
        assert_true(decodings[i].same);
        afmoe_session_free(decodings[i].session);
    }
    afmoe_context_free(context);
    free(expected);
}

/* From inside one session's callback another of the same context can be used. */
static int32_t use_other(void *user, uint64_t done, uint64_t total)
{
    (void)done;
    (void)total;
    return afmoe_session_append(user, tokens, 20, NULL, NULL, NULL) != AFMOE_OK;
}

static void other_session_from_a_callback(void **state)
{
    struct bits *expected = whole(tiny, NULL);
    afmoe_context *context = open_context(tiny, NULL);
    afmoe_session *a = open_session(context), *b = open_session(context);
    afmoe_append_options options;
    (void)state;
    afmoe_append_options_init(&options, sizeof options);
    options.progress = use_other;
    options.progress_data = b;
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(a, tokens, 100, &options, NULL, &error));
    assert_last(expected, a, 100);
    assert_last(expected, b, 20);
    afmoe_session_free(a);
    afmoe_session_free(b);
    afmoe_context_free(context);
    free(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_give_the_same_bits),
        cmocka_unit_test(logprobs_are_those_of_the_logits),
        cmocka_unit_test(ranges_and_positions_across_chunks),
        cmocka_unit_test(refuses_bad_ranges_and_positions),
        cmocka_unit_test(first_logprob_needs_logits),
        cmocka_unit_test(refuses_tokens_out_of_range),
        cmocka_unit_test(sync_keeps_what_is_common),
        cmocka_unit_test(sync_makes_missing_logits),
        cmocka_unit_test(sync_too_far_back_starts_again),
        cmocka_unit_test(rewind_is_free_within_its_tokens),
        cmocka_unit_test(rewind_beyond_the_end_is_invalid),
        cmocka_unit_test(random_walks_keep_the_bits),
        cmocka_unit_test(layers_of_every_kind),
        cmocka_unit_test(max_tokens_is_the_edge),
        cmocka_unit_test(page_cap_is_shared),
        cmocka_unit_test(full_leaves_everything_when_going_back),
        cmocka_unit_test(cancel_set_before),
        cmocka_unit_test(progress_stops_and_whole_chunks_stay),
        cmocka_unit_test(stopped_rewind_and_sync),
        cmocka_unit_test(cancel_from_another_thread),
        cmocka_unit_test(nan_weights_end_in_numeric),
        cmocka_unit_test(sessions_take_turns),
        cmocka_unit_test(other_session_from_a_callback),
    };
    return cmocka_run_group_tests_name("session", tests, open_tiny, close_tiny);
}
