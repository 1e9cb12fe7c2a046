/* The prefix store: a new session begins with what finished ones have left, to the bits of a fresh one; what is left
 * stays within its budget and makes room for sessions. */
#include "timelines.h"

#include <stdlib.h>
#include <string.h>

static afmoe_context_options with_prefixes(uint64_t n_pages)
{
    afmoe_context_options options = exact_options();
    options.rewind_tokens = 70;
    options.chunk_tokens = 48;
    options.prefix_bytes = n_pages * bytes_of_page(tiny);
    return options;
}

/* A session of tokens[0, n) comes and goes. */
static void leave(afmoe_context *context, const afmoe_token *of, uint64_t n)
{
    afmoe_session *session = open_session(context);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, of, n, NULL, NULL, &error));
    afmoe_session_free(session);
}

/* A new session of n tokens reuses n_reused of them, by append or sync. */
static void check_new(const struct bits *expected, afmoe_context *context, uint64_t n, uint64_t n_reused, bool sync)
{
    afmoe_session *session = open_session(context);
    afmoe_append_result result;
    afmoe_append_result_init(&result, sizeof result);
    if (sync) CHECK_STATUS(AFMOE_OK, afmoe_session_sync(session, tokens, n, NULL, &result, &error));
    else CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens, n, NULL, &result, &error));
    assert_result(&result, n, n_reused, n - n_reused);
    assert_int_equal(stats_of(session).n_reused, n_reused);
    assert_last(expected, session, n);
    append(session, n, n + 3);
    assert_last(expected, session, n + 3);
    CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, 0, NULL, NULL, &error)); /* leaves nothing of its own */
    afmoe_session_free(session);
}

static void known_beginnings_are_reused(void **state)
{
    static const struct {
        uint64_t n, n_reused; /* 200 are known, windows from 200 - 70 on */
    } cases[] = {{250, 200}, {201, 200}, {200, 199}, {199, 198}, {140, 139}, {134, 133}, {128, 127}, {70, 69}, {69, 0},
                 {60, 0},    {1, 0}};
    struct bits *expected = whole(tiny, exact());
    afmoe_context_options options = with_prefixes(100);
    afmoe_context *context = open_context(tiny, &options);
    (void)state;
    check_new(expected, context, 250, 0, false);
    leave(context, tokens, 200);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_new(expected, context, cases[i].n, cases[i].n_reused, false);
        check_new(expected, context, cases[i].n, cases[i].n_reused, true);
    }
    afmoe_context_free(context);
    free(expected);
}

static void other_beginnings_are_not(void **state)
{
    afmoe_token other[N_TOKENS];
    struct bits *expected = whole(tiny, exact());
    afmoe_context_options options = with_prefixes(100);
    afmoe_context *context = open_context(tiny, &options);
    (void)state;
    memcpy(other, tokens, sizeof other);
    other[150] = (other[150] + 1) % VOCAB;
    leave(context, other, 200);
    check_new(expected, context, 250, 150, false); /* as far as they agree */
    other[0] = (other[0] + 1) % VOCAB;
    leave(context, other, 250);
    check_new(expected, context, 250, 150, true);
    afmoe_context_free(context);
    free(expected);
}

/* Values asked for inside of the beginning are computed. */
static void what_is_asked_for_is_computed(void **state)
{
    static const uint64_t positions[] = {160, 210};
    float logits[2][VOCAB], logprobs[100];
    struct bits *expected = whole(tiny, exact());
    afmoe_context_options options = with_prefixes(100);
    afmoe_context *context = open_context(tiny, &options);
    (void)state;
    leave(context, tokens, 200);
    for (int i = 0; i < 2; i++) {
        afmoe_session *session = open_session(context);
        afmoe_append_options asked;
        afmoe_append_result result;
        afmoe_append_options_init(&asked, sizeof asked);
        afmoe_append_result_init(&result, sizeof result);
        if (i == 0) {
            asked.positions = positions;
            asked.n_positions = 2;
            asked.out_logits = logits[0];
            asked.logits_capacity = 2 * VOCAB;
        } else {
            asked.logprob_begin = 151;
            asked.logprob_end = 251;
            asked.out_logprobs = logprobs;
        }
        CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens, 251, &asked, &result, &error));
        assert_result(&result, 251, i ? 150 : 160, i ? 101 : 91);
        if (i) assert_memory_equal(logprobs, &expected->logprobs[151], sizeof logprobs);
        for (int k = 0; k < 2 && !i; k++)
            assert_memory_equal(logits[k], expected->logits[positions[k]], sizeof logits[k]);
        afmoe_session_free(session);
    }
    afmoe_context_free(context);
    free(expected);
}

static afmoe_memory memory_of(afmoe_context *context)
{
    afmoe_memory memory;
    afmoe_memory_init(&memory, sizeof memory);
    CHECK_STATUS(AFMOE_OK, afmoe_context_get_memory(context, &memory, &error));
    return memory;
}

/* Least recently used goes first; a page counts once, and one that others extend goes at once. */
static void budget_is_kept(void **state)
{
    uint64_t layers = info_of(tiny).n_layers, page = bytes_of_page(tiny);
    struct bits *expected = whole(tiny, exact());
    afmoe_context_options options = with_prefixes(2 * layers); /* two pages of all layers */
    afmoe_context *context = open_context(tiny, &options);
    afmoe_token others[4][PAGE];
    char path[PATH_BYTES];
    afmoe_memory estimate;
    (void)state;
    afmoe_memory_init(&estimate, sizeof estimate);
    small_model_path(path, "tiny-bias");
    CHECK_STATUS(AFMOE_OK, afmoe_estimate(path, NULL, &options, 1, 100, &estimate, &error));
    assert_int_equal(estimate.prefixes, options.prefix_bytes);
    for (uint32_t i = 0; i < 4; i++) make_tokens(others[i], PAGE, VOCAB, 50 + i);
    leave(context, tokens, 40); /* less than a page: nothing is left */
    assert_int_equal(page_bytes_of(context), 0);
    assert_int_equal(memory_of(context).prefixes, 0);
    leave(context, others[0], PAGE);
    leave(context, tokens, PAGE);
    leave(context, others[1], PAGE); /* others[0] goes */
    assert_int_equal(page_bytes_of(context), 2 * layers * page);
    check_new(expected, context, 100, PAGE, false); /* and makes tokens the newest */
    leave(context, others[2], PAGE); /* others[1] goes */
    check_new(expected, context, 100, PAGE, true);
    leave(context, tokens, 2 * PAGE); /* holds all of tokens, and others[2] goes */
    check_new(expected, context, 200, 2 * PAGE, true);
    assert_int_equal(page_bytes_of(context), 2 * layers * page);
    assert_true(memory_of(context).prefixes > 2 * layers * page && memory_of(context).pages == 0);
    leave(context, tokens, PAGE + 20); /* known already */
    check_new(expected, context, 200, 2 * PAGE, true);
    leave(context, tokens, 3 * PAGE); /* does not fit: the newest of all goes too */
    assert_int_equal(page_bytes_of(context), 0);
    assert_int_equal(memory_of(context).prefixes, 0);
    afmoe_context_free(context);
    free(expected);
}

/* Under the cap of the context prefixes make room, and nothing is reused that did not fit. */
static void sessions_come_first(void **state)
{
    uint64_t layers = info_of(tiny).n_layers;
    struct bits *expected = whole(tiny, exact());
    afmoe_context_options options = with_prefixes(100);
    options.max_page_bytes = 4 * layers * bytes_of_page(tiny);
    afmoe_context *context = open_context(tiny, &options);
    afmoe_token other[N_TOKENS];
    afmoe_append_result result;
    (void)state;
    make_tokens(other, N_TOKENS, VOCAB, 77);
    leave(context, other, 128);
    leave(context, tokens, 128);
    afmoe_session *session = open_session(context);
    append(session, 0, 200); /* what `other` left goes, as it takes two more pages of each */
    assert_int_equal(stats_of(session).n_reused, 128);
    assert_last(expected, session, 200);
    afmoe_session *second = open_session(context);
    afmoe_append_result_init(&result, sizeof result);
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_append(second, tokens, 250, NULL, &result, &error));
    assert_result(&result, 0, 0, 0);
    assert_int_equal(n_tokens_of(second), 0);
    assert_int_equal(stats_of(second).page_bytes, 0);
    afmoe_session_free(session);
    append(second, 0, 250);
    assert_last(expected, second, 250);
    afmoe_session_free(second);
    afmoe_context_free(context);
    free(expected);
}

/* What was refused must not come back as a prefix. */
static void refused_states_leave_nothing(void **state)
{
    if (!strstr(afmoe_build_features(), "state")) return;
    struct bits *expected = whole(tiny, exact());
    afmoe_context_options options = with_prefixes(100);
    afmoe_context *context = open_context(tiny, &options);
    afmoe_session *session = open_session(context);
    uint64_t n;
    (void)state;
    append(session, 0, 150);
    assert_int_equal(afmoe_session_save_memory(session, NULL, 0, &n, &error), AFMOE_CAPACITY);
    unsigned char *bytes = malloc(n);
    assert_non_null(bytes);
    CHECK_STATUS(AFMOE_OK, afmoe_session_save_memory(session, bytes, n, &n, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, 0, NULL, NULL, &error));
    bytes[n - 1] ^= 1; /* in the cells: the tokens are read and right */
    CHECK_STATUS(AFMOE_CORRUPT, afmoe_session_load_memory(session, bytes, n, &error));
    assert_int_equal(page_bytes_of(context), 0);
    check_new(expected, context, 200, 0, true);
    free(bytes);
    afmoe_session_free(session);
    afmoe_context_free(context);
    free(expected);
}

static void threads_share_the_store(void **state)
{
    struct bits *expected = whole(tiny, exact());
    (void)state;
    afmoe_context_options options = with_prefixes(5 * info_of(tiny).n_layers); /* some go all the time */
    afmoe_context *context = open_context(tiny, &options);
    assert_true(visit_together(context, expected, 3, 0) > 0);
    afmoe_context_free(context);
    free(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_beginnings_are_reused), cmocka_unit_test(other_beginnings_are_not),
        cmocka_unit_test(what_is_asked_for_is_computed), cmocka_unit_test(budget_is_kept),
        cmocka_unit_test(sessions_come_first), cmocka_unit_test(refused_states_leave_nothing),
        cmocka_unit_test(threads_share_the_store)};
    return cmocka_run_group_tests_name("prefixes", tests, open_tiny, close_tiny);
}
