/* Shift: full layers forget, positions run on, and the bits depend on the tokens and the shifts alone. What the bits
 * should be is held against numpy by test_shift_reference.py. */
#include "sanitizer.h"
#include "timelines.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 12800, MOST_SHIFTS = 64 };

/* What a timeline came from: tokens, and shifts when it had so many. */
struct recipe {
    uint64_t n_tokens, n_shifts;
    struct {
        uint64_t at, n_keep, n_drop;
    } shifts[MOST_SHIFTS];
};

static afmoe_model *first_full; /* its first layer is full: all that follows depends on what that sees; window 6 */
static char first_full_path[PATH_BYTES];
static afmoe_token many[LONGEST];

static uint64_t shift(afmoe_session *session, uint64_t n_keep, uint64_t n_drop)
{
    uint64_t n_dropped;
    CHECK_STATUS(AFMOE_OK, afmoe_session_shift(session, n_keep, n_drop, &n_dropped, &error));
    return n_dropped;
}

static void go_to(afmoe_session *session, uint64_t n)
{
    uint64_t begin = n_tokens_of(session);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, many + begin, n - begin, NULL, NULL, &error));
}

static void make(afmoe_session *session, const struct recipe *recipe)
{
    for (uint64_t i = 0; i < recipe->n_shifts; i++) {
        go_to(session, recipe->shifts[i].at);
        shift(session, recipe->shifts[i].n_keep, recipe->shifts[i].n_drop);
    }
    go_to(session, recipe->n_tokens);
}

static void last_of(afmoe_session *session, float out[VOCAB])
{
    CHECK_STATUS(AFMOE_OK, afmoe_session_logits(session, out, VOCAB, NULL, &error));
}

static void assert_equal_logits(afmoe_session *a, afmoe_session *b)
{
    float first[VOCAB], second[VOCAB];
    last_of(a, first);
    last_of(b, second);
    assert_memory_equal(first, second, sizeof first);
}

/* The session is what a fresh one becomes by the recipe, now and some tokens on. */
static void assert_made_by(afmoe_session *session, const struct recipe *recipe)
{
    afmoe_model_info info = info_of(first_full);
    afmoe_context_options options = exact_options();
    options.max_tokens = info.max_positions;
    afmoe_session *fresh = session_with(first_full, &options);
    make(fresh, recipe);
    assert_int_equal(n_tokens_of(session), recipe->n_tokens);
    assert_int_equal(stats_of(session).n_dropped, stats_of(fresh).n_dropped);
    go_to(session, recipe->n_tokens + 3);
    go_to(fresh, recipe->n_tokens + 3);
    assert_equal_logits(session, fresh);
    afmoe_session_free(fresh);
}

static const struct recipe twice = {
    330, 3, {{200, 10, 64}, {290, 64, 65}, {310, 0, 64}}}; /* drops 64..127, 128..255, 0..63 */

static void the_same_bits_however_it_is_computed(void **state)
{
    static const uint32_t chunks[] = {1, 7, 64, 512};
    float expected[VOCAB], got[VOCAB];
    (void)state;
    for (int32_t cells = AFMOE_CELLS_F32; cells <= AFMOE_CELLS_Q8_0; cells++)
        for (int i = 0; i < 12; i++) {
            afmoe_context_options options = exact_options();
            options.cells = cells;
            options.n_threads = 1 + i % 3;
            options.chunk_tokens = chunks[i / 3];
            afmoe_session *session = session_with(first_full, &options);
            make(session, &twice);
            assert_int_equal(stats_of(session).n_dropped, 256);
            last_of(session, got);
            if (i == 0) memcpy(expected, got, sizeof got);
            assert_memory_equal(expected, got, sizeof got);
            afmoe_session_free(session);
        }
}

/* It does change what is computed, from the next token on; what was computed stays. */
static void it_changes_what_comes(void **state)
{
    afmoe_session *shifted = session_with(first_full, exact()), *whole_one = session_with(first_full, exact());
    float a[VOCAB], b[VOCAB];
    (void)state;
    go_to(shifted, 200);
    go_to(whole_one, 200);
    assert_int_equal(shift(shifted, 10, 64), 64);
    assert_int_equal(n_tokens_of(shifted), 200);
    assert_tokens(shifted, many, 200);
    assert_equal_logits(shifted, whole_one);
    go_to(shifted, 201);
    go_to(whole_one, 201);
    last_of(shifted, a);
    last_of(whole_one, b);
    assert_memory_not_equal(a, b, sizeof a);
    afmoe_session_free(shifted);
    afmoe_session_free(whole_one);
}

static void numbers_are_rounded_up_and_checked(void **state)
{
    static const struct {
        uint64_t n_keep, n_drop, n_dropped; /* of 200 tokens: three whole pages */
    } good[] = {{0, 0, 0},     {0, 1, 64},    {0, 64, 64},    {0, 65, 128},   {0, 192, 192}, {1, 64, 64},
                {64, 128, 128}, {65, 64, 64}, {128, 1, 64}, {192, 0, 0}, {UINT64_MAX, 0, 0}};
    static const uint64_t bad[][2] = {{0, 193},          {1, 129},         {64, 129},       {129, 1},
                                      {200, 1},          {0, UINT64_MAX},  {UINT64_MAX, 1}, {UINT64_MAX, UINT64_MAX},
                                      {1ull << 63, 1ull << 63}, {0, UINT64_MAX - 62}};
    afmoe_session *session = session_with(first_full, exact());
    uint64_t n_dropped = 7;
    (void)state;
    assert_int_equal(shift(session, 0, 0), 0); /* without tokens */
    CHECK_STATUS(AFMOE_INVALID, afmoe_session_shift(session, 0, 1, &n_dropped, &error));
    assert_int_equal(n_dropped, 0);
    go_to(session, 200);
    uint64_t page_bytes = stats_of(session).page_bytes;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        n_dropped = 7;
        CHECK_STATUS(AFMOE_INVALID, afmoe_session_shift(session, bad[i][0], bad[i][1], &n_dropped, &error));
        assert_non_null(strstr(error.message, "200 tokens, of which 3 pages are whole"));
        assert_int_equal(n_dropped, 0);
        assert_int_equal(stats_of(session).n_dropped, 0);
        assert_int_equal(stats_of(session).page_bytes, page_bytes);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        afmoe_session *fork;
        CHECK_STATUS(AFMOE_OK, afmoe_session_fork(&fork, session, &error));
        assert_int_equal(shift(fork, good[i].n_keep, good[i].n_drop), good[i].n_dropped);
        assert_int_equal(stats_of(fork).n_dropped, good[i].n_dropped);
        go_to(fork, 210);
        afmoe_session_free(fork);
    }
    CHECK_STATUS(AFMOE_OK, afmoe_session_shift(session, 0, 64, NULL, &error));
    assert_int_equal(afmoe_session_shift(session, 0, 999, NULL, NULL), AFMOE_INVALID);
    n_dropped = 7;
    CHECK_STATUS(AFMOE_INVALID, afmoe_session_shift(NULL, 0, 64, &n_dropped, &error));
    assert_int_equal(n_dropped, 0);
    afmoe_session_free(session);
}

/* ---- Full, and on ---- */

static void a_full_session_goes_on(void **state)
{
    afmoe_context_options options = exact_options();
    options.max_tokens = 192;
    afmoe_session *session = session_with(first_full, &options);
    struct recipe recipe = {.n_shifts = 0};
    (void)state;
    for (uint64_t n = 192; n < 512 - 64; n += 64) {
        go_to(session, n);
        CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_append(session, many, 1, NULL, NULL, &error));
        assert_int_equal(shift(session, 64, 64), 64);
        recipe.shifts[recipe.n_shifts].at = n;
        recipe.shifts[recipe.n_shifts].n_keep = recipe.shifts[recipe.n_shifts].n_drop = 64;
        recipe.n_shifts++;
    }
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_append(session, many, 65, NULL, NULL, &error));
    assert_non_null(strstr(error.message, "256 of them dropped; a session holds 192"));
    recipe.n_tokens = 384;
    assert_made_by(session, &recipe);
    afmoe_session_free(session);
}

/* The memory of what is dropped is there for others, but not while a fork has it. */
static void dropped_pages_go_to_the_context(void **state)
{
    uint64_t n_full = info_of(tiny).n_full_layers, n_layers = info_of(tiny).n_layers;
    afmoe_context *context = capped_context(tiny, n_full * 5 + (n_layers - n_full) * 2);
    afmoe_session *session = open_session(context), *fork;
    (void)state;
    for (uint64_t n = 0; n < 310; n += 62) append(session, n, n + 62);
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_append(session, many, 64, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_fork(&fork, session, &error));
    shift(session, 0, 64);
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_append(session, many, 64, NULL, NULL, &error));
    shift(fork, 0, 128);
    afmoe_session_free(fork);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, many, 64, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_append(session, many, 64, NULL, NULL, &error));
    shift(session, 0, 64);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, many, 64, NULL, NULL, &error));
    afmoe_session_free(session);
    assert_int_equal(page_bytes_of(context), 0);
    afmoe_context_free(context);
}

static uint64_t session_memory_of(afmoe_context *context)
{
    afmoe_memory memory;
    afmoe_memory_init(&memory, sizeof memory);
    CHECK_STATUS(AFMOE_OK, afmoe_context_get_memory(context, &memory, &error));
    return memory.sessions;
}

/* 200 shifts: pages as many as at the first, tables as much longer as the header says, also where positions pass those
 * of the model. */
static void memory_stays(void **state)
{
    afmoe_context_options options = exact_options();
    options.max_tokens = 256;
    afmoe_context *context = open_context(first_full, &options);
    afmoe_session *session = open_session(context);
    uint64_t n_layers = info_of(first_full).n_layers, page_bytes = 0, before = session_memory_of(context);
    float logits[VOCAB];
    (void)state;
    for (uint64_t i = 0; i < 196; i++) {
        go_to(session, 256 + 64 * i);
        if (i == 8) page_bytes = page_bytes_of(context); /* rewind_tokens are there */
        if (i > 8) assert_int_equal(page_bytes_of(context), page_bytes);
        shift(session, 64, 64);
    }
    assert_true(n_tokens_of(session) > 20 * info_of(first_full).max_positions);
    last_of(session, logits);
    for (int i = 0; i < VOCAB; i++) assert_true(logits[i] - logits[i] == 0);
    uint64_t more = session_memory_of(context) - before, stated = 196 * (64 * sizeof(afmoe_token) + 8 * n_layers);
    assert_true(more >= stated && more <= stated + 128); /* both arrays begin at cache lines */
    afmoe_session *fork;
    CHECK_STATUS(AFMOE_OK, afmoe_session_fork(&fork, session, &error));
    assert_int_equal(session_memory_of(context), 2 * (before + more));
    afmoe_session_free(session);
    go_to(fork, LONGEST);
    afmoe_session_free(fork);
    assert_int_equal(session_memory_of(context), 0);
    assert_int_equal(page_bytes_of(context), 0);
    afmoe_context_free(context);
}

/* Keys depend on the final length then. */
static void dynamic_rope_ends_at_max_positions(void **state)
{
    char path[PATH_BYTES];
    (void)state;
    if (!small_model_path(path, "tiny-dynamic-rope")) return;
    afmoe_model *model = open_model(path);
    afmoe_session *session = session_with(model, exact());
    uint64_t max = info_of(model).max_positions;
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, many, max, NULL, NULL, &error));
    shift(session, 0, 64);
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_append(session, many, 1, NULL, NULL, &error));
    assert_non_null(strstr(error.message, "dynamic rope"));
    afmoe_session_free(session);
    afmoe_model_free(model);
}

/* ---- Back, and the same again ---- */

static afmoe_append_result sync_to(afmoe_session *session, const afmoe_token *to, uint64_t n)
{
    afmoe_append_result result;
    afmoe_append_result_init(&result, sizeof result);
    CHECK_STATUS(AFMOE_OK, afmoe_session_sync(session, to, n, NULL, &result, &error));
    return result;
}

static void sync_compares_with_all_tokens(void **state)
{
    struct recipe recipe = twice, unshifted = {.n_tokens = 330};
    afmoe_context_options options = exact_options();
    options.rewind_tokens = 40;
    afmoe_session *session = session_with(first_full, &options);
    afmoe_append_result result;
    afmoe_token other[MAX_POSITIONS];
    (void)state;
    make(session, &recipe);
    result = sync_to(session, many, 330);
    assert_result(&result, 330, 330, 0);
    result = sync_to(session, many, 340);
    assert_result(&result, 340, 330, 10);
    memcpy(other, many, sizeof other);
    other[320] = (other[320] + 1) % VOCAB;
    result = sync_to(session, other, 325);
    assert_result(&result, 325, 320, 5);
    result = sync_to(session, many, 330);
    assert_result(&result, 330, 320, 10);
    assert_made_by(session, &recipe); /* shifts were behind 320 and are now there */
    result = sync_to(session, many, 330);
    other[20] = (other[20] + 1) % VOCAB; /* before all that was dropped: from the start, and whole */
    result = sync_to(session, other, 330);
    assert_int_equal(result.n_reused, 0);
    assert_int_equal(stats_of(session).n_dropped, 0);
    result = sync_to(session, many, 330);
    assert_int_equal(result.n_reused, 0);
    assert_made_by(session, &unshifted);
    afmoe_session_free(session);
}

static void going_back_is_free_or_undoes_it(void **state)
{
    afmoe_context_options options = exact_options();
    options.rewind_tokens = 100;
    options.snapshot_tokens = 64;
    options.snapshot_bytes = 1 << 20;
    static const struct {
        uint64_t target, from;
        bool shifted;
    } cases[] = {{330, 330, true}, {299, 299, true}, {256, 256, true}, {250, 128, false}, {192, 128, false},
                 {128, 128, false}, {100, 64, false}, {1, 1, false}, {0, 0, false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct recipe recipe = {330, 2, {{290, 128, 64}, {310, 100, 64}}}; /* drops 128..255 */
        afmoe_session *session = session_with(first_full, &options);
        afmoe_append_result result;
        afmoe_append_result_init(&result, sizeof result);
        make(session, &recipe);
        CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, cases[i].target, NULL, &result, &error));
        assert_int_equal(result.n_tokens, cases[i].target);
        if (cases[i].shifted) assert_int_equal(result.n_computed, 0);
        assert_int_equal(result.n_reused + result.n_computed, cases[i].target);
        assert_true(result.n_reused >= cases[i].from);
        assert_int_equal(stats_of(session).n_dropped, cases[i].shifted ? 128 : 0);
        recipe.n_tokens = cases[i].target;
        for (int j = 0; j < 2; j++)
            if (recipe.shifts[j].at > cases[i].target) recipe.shifts[j].at = cases[i].target;
        if (!cases[i].shifted) recipe.n_shifts = 0;
        assert_made_by(session, &recipe);
        afmoe_session_free(session);
    }
}

/* Where undoing would take more tokens than a session holds, nothing happens. */
static void what_cannot_be_undone_stays(void **state)
{
    afmoe_context_options options = exact_options();
    options.max_tokens = 256;
    options.rewind_tokens = 0;
    afmoe_session *session = session_with(first_full, &options);
    struct recipe recipe = {300, 1, {{256, 64, 128}}};
    afmoe_append_result result;
    float before[VOCAB], vector[HIDDEN], after[VOCAB];
    afmoe_token other[MAX_POSITIONS];
    (void)state;
    afmoe_append_result_init(&result, sizeof result);
    make(session, &recipe);
    last_of(session, before);
    memcpy(other, many, sizeof other);
    other[100] = (other[100] + 1) % VOCAB;
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_sync(session, other, 300, NULL, &result, &error));
    assert_non_null(strstr(error.message, "0 tokens and 300 more; a session holds 256"));
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_rewind(session, 257, NULL, &result, &error));
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_embed(session, many, 300, AFMOE_POOL_MEAN, 0, NULL, vector, HIDDEN,
                                                         NULL, &error));
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_sync(session, many, UINT64_MAX, NULL, &result, &error));
    last_of(session, after);
    assert_memory_equal(before, after, sizeof before);
    assert_made_by(session, &recipe);
    CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, 200, NULL, &result, &error));
    assert_result(&result, 200, 0, 200);
    CHECK_STATUS(AFMOE_OK, afmoe_session_embed(session, many, 250, AFMOE_POOL_LAST, 0, NULL, vector, HIDDEN, NULL,
                                               &error));
    afmoe_session_free(session);
}

static void embeddings_follow(void **state)
{
    afmoe_session *session = session_with(first_full, exact()), *fork;
    float a[HIDDEN], b[HIDDEN];
    (void)state;
    make(session, &twice);
    CHECK_STATUS(AFMOE_OK, afmoe_session_fork(&fork, session, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_embed(fork, many, 335, AFMOE_POOL_LAST, 0, NULL, a, HIDDEN, NULL, &error));
    go_to(session, 335);
    CHECK_STATUS(AFMOE_OK, afmoe_session_hidden(session, b, HIDDEN, NULL, &error));
    assert_memory_equal(a, b, sizeof a);
    assert_int_equal(stats_of(fork).n_dropped, 256);
    afmoe_session_free(session);
    afmoe_session_free(fork);
}

/* ---- Forks, prefixes, states, drafts ---- */

static void forks_share_what_is_left(void **state)
{
    afmoe_context_options options = exact_options();
    afmoe_context *context = open_context(first_full, &options);
    afmoe_session *session = open_session(context), *before, *after;
    struct recipe recipe = {200, 1, {{200, 10, 64}}}, unshifted = {.n_tokens = 200};
    (void)state;
    go_to(session, 200);
    CHECK_STATUS(AFMOE_OK, afmoe_session_fork(&before, session, &error));
    shift(session, 10, 64);
    uint64_t page_bytes = page_bytes_of(context);
    CHECK_STATUS(AFMOE_OK, afmoe_session_fork(&after, session, &error));
    assert_int_equal(page_bytes_of(context), page_bytes);
    assert_made_by(after, &recipe);
    assert_made_by(session, &recipe);
    CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, 200, NULL, NULL, &error));
    afmoe_session_free(session);
    afmoe_session *late;
    CHECK_STATUS(AFMOE_OK, afmoe_session_fork(&late, before, &error));
    shift(late, 10, 64);
    assert_made_by(late, &recipe);
    assert_made_by(before, &unshifted);
    afmoe_session_free(late);
    afmoe_session_free(before);
    afmoe_session_free(after);
    assert_int_equal(page_bytes_of(context), 0);
    afmoe_context_free(context);
}

/* A session that was shifted leaves n_keep tokens, and a new one begins with them. */
static void check_left(const afmoe_context_options *options, uint64_t n_keep)
{
    struct recipe recipe = {330, 1, {{200, n_keep, 64}}}, unshifted = {.n_tokens = 330};
    afmoe_context *context = open_context(first_full, options);
    afmoe_session *session = open_session(context);
    afmoe_append_result result;
    afmoe_append_result_init(&result, sizeof result);
    make(session, &recipe);
    afmoe_session_free(session);
    session = open_session(context);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, many, 330, NULL, &result, &error));
    assert_result(&result, 330, n_keep, 330 - n_keep);
    assert_made_by(session, &unshifted);
    CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, 0, NULL, NULL, &error)); /* leaves nothing of its own */
    afmoe_session_free(session);
    afmoe_context_free(context);
}

/* What a shifted session leaves is exact: at most what comes before the first token dropped. */
static void prefixes_take_only_what_is_exact(void **state)
{
    char folder[PATH_BYTES], remove[PATH_BYTES + 16];
    const char *root = getenv("TMPDIR");
    afmoe_context_options options = exact_options();
    options.snapshot_tokens = 64;
    options.snapshot_bytes = 1 << 20;
    (void)state;
    options.prefix_bytes = 1 << 20;
    for (uint64_t n_keep = 0; n_keep <= 128; n_keep += 64) check_left(&options, n_keep);
    if (!strstr(afmoe_build_features(), " state ")) return;
    options.prefix_bytes = 0;
    snprintf(folder, sizeof folder, "%s/afmoe-shift-XXXXXX", root ? root : "/tmp");
    assert_non_null(mkdtemp(folder));
    options.prefix_folder = folder;
    for (uint64_t n_keep = 0; n_keep <= 128; n_keep += 64) check_left(&options, n_keep);
    snprintf(remove, sizeof remove, "rm -r '%s'", folder);
    assert_int_equal(system(remove), 0);
}

static void generation_goes_on_with_drafts_and_without(void **state)
{
    afmoe_token repeated[200], out[2][100];
    (void)state;
    for (int i = 0; i < 200; i++) repeated[i] = (afmoe_token)(16 + i % 8);
    for (int i = 0; i < 2; i++) {
        afmoe_context_options options = exact_options();
        options.max_tokens = 256;
        afmoe_session *session = session_with(first_full, &options);
        afmoe_generate_options generate;
        afmoe_generate_options_init(&generate, sizeof generate);
        generate.max_draft = i ? 8 : 0;
        generate.ignore_eos = 1;
        generate.max_tokens = 100;
        CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, repeated, 200, NULL, NULL, &error));
        CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_generate(session, NULL, &generate, NULL, &error));
        assert_int_equal(n_tokens_of(session), 256);
        shift(session, 64, 64);
        generate.max_tokens = 44;
        CHECK_STATUS(AFMOE_OK, afmoe_generate(session, NULL, &generate, NULL, &error));
        afmoe_token all[300];
        CHECK_STATUS(AFMOE_OK, afmoe_session_tokens(session, all, 300, NULL, &error));
        memcpy(out[i], all + 200, sizeof out[i]);
        if (i) assert_true(stats_of(session).n_drafted > 0);
        afmoe_session_free(session);
    }
    assert_memory_equal(out[0], out[1], sizeof out[0]);
}

static void states_are_of_the_shifted_session(void **state)
{
    if (!strstr(afmoe_build_features(), " state ")) return;
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct recipe recipe = twice;
        afmoe_context_options options = exact_options();
        options.max_tokens = 256; /* fewer than the timeline has */
        options.rewind_tokens = i ? 0 : 70;
        afmoe_session *session = session_with(first_full, exact()), *loaded = session_with(first_full, &options);
        uint8_t *bytes;
        uint64_t n;
        make(session, &recipe);
        assert_int_equal(afmoe_session_save_memory(session, NULL, 0, &n, &error), AFMOE_CAPACITY);
        bytes = malloc(n);
        CHECK_STATUS(AFMOE_OK, afmoe_session_save_memory(session, bytes, n, NULL, &error));
        go_to(loaded, 100); /* goes */
        CHECK_STATUS(AFMOE_OK, afmoe_session_load_memory(loaded, bytes, n, &error));
        assert_tokens(loaded, many, 330);
        assert_equal_logits(session, loaded);
        afmoe_append_result result = sync_to(loaded, many, 330);
        assert_result(&result, 330, 330, 0);
        assert_made_by(loaded, &recipe);
        CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_append(loaded, many, 256, NULL, NULL, &error));
        CHECK_STATUS(AFMOE_OK, afmoe_session_load_memory(session, bytes, n, &error)); /* over itself */
        assert_made_by(session, &recipe);
        free(bytes);
        afmoe_session_free(session);
        afmoe_session_free(loaded);
    }
}

/* ---- Side by side ---- */

static void *shift_on(void *arg)
{
    afmoe_session *session = arg;
    afmoe_token some[64];
    make_tokens(some, 64, VOCAB, 5);
    for (int i = 0; i < 6; i++)
        if (afmoe_session_shift(session, 64, 64, NULL, NULL) != AFMOE_OK ||
            afmoe_session_append(session, some, 64, NULL, NULL, NULL) != AFMOE_OK)
            return NULL;
    return session;
}

/* Forks of one session in threads of their own: they share pages, and each drops them. */
static void threads_shift_their_own(void **state)
{
    enum { N_THREADS = 4 };
    pthread_t threads[N_THREADS];
    afmoe_session *sessions[N_THREADS];
    afmoe_context_options options = exact_options();
    options.max_tokens = 256;
    afmoe_context *context = open_context(first_full, &options);
    (void)state;
    sessions[0] = open_session(context);
    go_to(sessions[0], 256);
    for (int i = 1; i < N_THREADS; i++) CHECK_STATUS(AFMOE_OK, afmoe_session_fork(&sessions[i], sessions[0], &error));
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, shift_on, sessions[i]), 0);
    for (int i = 0; i < N_THREADS; i++) {
        void *done;
        pthread_join(threads[i], &done);
        assert_ptr_equal(done, sessions[i]);
        assert_equal_logits(sessions[0], sessions[i]);
    }
    for (int i = 0; i < N_THREADS; i++) afmoe_session_free(sessions[i]);
    assert_int_equal(page_bytes_of(context), 0);
    afmoe_context_free(context);
}

/* ---- Any way ---- */

/* The session has n tokens now, of which the first n_kept were not read again. */
static void cut_recipe(struct recipe *recipe, afmoe_session *session, uint64_t n, uint64_t n_kept)
{
    recipe->n_tokens = n;
    if (stats_of(session).n_dropped == 0) recipe->n_shifts = 0;
    for (uint64_t i = 0; i < recipe->n_shifts; i++)
        if (recipe->shifts[i].at > n_kept) recipe->shifts[i].at = n_kept;
}

/* Whatever happens to sessions under a cap: a call is done or refused with nothing changed, and the bits are those of a
 * fresh session with the same tokens and shifts. */
static void random_walks(void **state)
{
    uint64_t n_refused = 0, n_shifted = 0, n_undone = 0;
    (void)state;
    for (uint32_t seed = 1; seed <= (UNDER_SANITIZER ? 4 : 8); seed++) {
        afmoe_context_options options = exact_options();
        options.max_tokens = 320;
        options.rewind_tokens = seed % 2 ? 0 : 130;
        options.chunk_tokens = seed % 3 ? 48 : 17;
        options.snapshot_tokens = 64;
        options.snapshot_bytes = (seed % 4) * 4 * bytes_of_page(first_full);
        options.prefix_bytes = seed % 2 ? 9 * bytes_of_page(first_full) : 0;
        options.max_page_bytes = 44 * bytes_of_page(first_full);
        afmoe_context *context = open_context(first_full, &options);
        afmoe_session *sessions[3];
        struct recipe recipes[3] = {{.n_tokens = 0}, {.n_tokens = 0}, {.n_tokens = 0}};
        for (int i = 0; i < 3; i++) sessions[i] = open_session(context);
        uint32_t random = seed;
        for (int step = 0; step < 200; step++) {
            random = random * 1664525u + 1013904223u;
            uint32_t i = (random >> 16) % 3, what = random >> 29;
            uint64_t x = (random >> 8) % 128, n = recipes[i].n_tokens;
            afmoe_status status = AFMOE_OK;
            afmoe_append_result result;
            afmoe_append_result_init(&result, sizeof result);
            if (what == 0) {
                uint32_t from = (i + 1) % 3;
                afmoe_session_free(sessions[i]);
                CHECK_STATUS(AFMOE_OK, afmoe_session_fork(&sessions[i], sessions[from], &error));
                recipes[i] = recipes[from];
            } else if (what <= 2 && recipes[i].n_shifts < MOST_SHIFTS) {
                uint64_t n_keep = x / 2, n_drop = x % 3 * 50 + 1;
                status = afmoe_session_shift(sessions[i], n_keep, n_drop, NULL, &error);
                assert_true(status == AFMOE_OK || status == AFMOE_INVALID);
                if (status == AFMOE_OK) {
                    struct recipe *recipe = &recipes[i];
                    recipe->shifts[recipe->n_shifts].at = n;
                    recipe->shifts[recipe->n_shifts].n_keep = n_keep;
                    recipe->shifts[recipe->n_shifts++].n_drop = n_drop;
                    n_shifted++;
                }
                status = AFMOE_OK;
            } else if (what == 3) {
                uint64_t to = n > 2 * x ? n - 2 * x : n / 2, n_shifts = recipes[i].n_shifts;
                status = afmoe_session_rewind(sessions[i], to, NULL, &result, &error);
                if (status == AFMOE_OK) cut_recipe(&recipes[i], sessions[i], to, result.n_reused);
                n_undone += n_shifts > 0 && recipes[i].n_shifts == 0;
            } else {
                status = what == 4 ? afmoe_session_sync(sessions[i], many, n + x, NULL, &result, &error)
                                   : afmoe_session_append(sessions[i], many + n, x, NULL, NULL, &error);
                if (status == AFMOE_OK) cut_recipe(&recipes[i], sessions[i], n + x, what == 4 ? result.n_reused : n);
            }
            assert_true(status == AFMOE_OK || status == AFMOE_CONTEXT_FULL);
            n_refused += status != AFMOE_OK;
            assert_int_equal(n_tokens_of(sessions[i]), recipes[i].n_tokens);
            if (step % 5) continue;
            if (afmoe_session_append(sessions[i], many + recipes[i].n_tokens, 3, NULL, NULL, NULL)) continue;
            recipes[i].n_tokens += 3;
            options.max_page_bytes = UINT64_MAX;
            afmoe_session *fresh = session_with(first_full, &options);
            make(fresh, &recipes[i]);
            assert_equal_logits(sessions[i], fresh);
            assert_int_equal(stats_of(sessions[i]).n_dropped, stats_of(fresh).n_dropped);
            afmoe_session_free(fresh);
        }
        for (int i = 0; i < 3; i++) {
            CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(sessions[i], 0, NULL, NULL, &error));
            afmoe_session_free(sessions[i]);
        }
        assert_int_equal(session_memory_of(context), 0);
        afmoe_context_free(context);
    }
    assert_true(n_refused > 20 && n_shifted > 50 && n_undone > 5);
}

static int open_models(void **state)
{
    char path[PATH_BYTES];
    if (open_tiny(state) != 0 || !small_model_path(path, "tiny-window-1")) return -1;
    make_variant(first_full_path, path, "sliding_window", "6");
    first_full = open_model(first_full_path);
    assert_int_equal(info_of(first_full).vocab_size, VOCAB);
    assert_int_equal(info_of(first_full).hidden_size, HIDDEN);
    make_tokens(many, LONGEST, VOCAB, 3);
    return 0;
}

static int close_models(void **state)
{
    afmoe_model_free(first_full);
    remove_variant(first_full_path);
    return close_tiny(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_bits_however_it_is_computed),
                                       cmocka_unit_test(it_changes_what_comes),
                                       cmocka_unit_test(numbers_are_rounded_up_and_checked),
                                       cmocka_unit_test(a_full_session_goes_on),
                                       cmocka_unit_test(dropped_pages_go_to_the_context),
                                       cmocka_unit_test(memory_stays),
                                       cmocka_unit_test(dynamic_rope_ends_at_max_positions),
                                       cmocka_unit_test(sync_compares_with_all_tokens),
                                       cmocka_unit_test(going_back_is_free_or_undoes_it),
                                       cmocka_unit_test(what_cannot_be_undone_stays),
                                       cmocka_unit_test(embeddings_follow),
                                       cmocka_unit_test(forks_share_what_is_left),
                                       cmocka_unit_test(prefixes_take_only_what_is_exact),
                                       cmocka_unit_test(generation_goes_on_with_drafts_and_without),
                                       cmocka_unit_test(states_are_of_the_shifted_session),
                                       cmocka_unit_test(threads_shift_their_own),
                                       cmocka_unit_test(random_walks)};
    return cmocka_run_group_tests_name("shift", tests, open_models, close_models);
}
