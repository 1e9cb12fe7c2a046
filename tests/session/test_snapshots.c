/* Snapshots: going back far computes from the last one before, to the bits of a fresh timeline, and the memory stays
 * within what was allowed. */
#include "timelines.h"

#include <stdlib.h>
#include <string.h>

enum { WINDOW_PAGES = 1 }; /* of the tiny models' window of 6 */

static afmoe_context_options with_snapshots(uint64_t snapshot_tokens, uint64_t n_snapshots)
{
    afmoe_context_options options = exact_options();
    afmoe_model_info info = info_of(tiny);
    options.rewind_tokens = 0;
    options.chunk_tokens = 48;
    options.snapshot_tokens = snapshot_tokens;
    options.snapshot_bytes = n_snapshots * (info.n_layers - info.n_full_layers) * WINDOW_PAGES * bytes_of_page(tiny);
    return options;
}

/* Rewind and sync compute what lies between the snapshot and the target, no more; within the page that a snapshot holds
 * nothing, as long as the window lies in it, too. */
static void going_back_starts_at_a_snapshot(void **state)
{
    static const struct {
        uint64_t target, from;
    } cases[] = {{299, 256}, {257, 256}, {256, 256}, {255, 255}, {197, 197},
                 {196, 128}, {129, 128}, {128, 128}, {69, 69},   {68, 0},    {1, 0},     {0, 0}};
    struct bits *expected = whole(tiny, exact());
    afmoe_context_options options = with_snapshots(128, 100);
    (void)state;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        uint64_t target = cases[i / 2].target, from = cases[i / 2].from;
        afmoe_session *session = session_with(tiny, &options);
        afmoe_append_result result;
        afmoe_append_result_init(&result, sizeof result);
        append(session, 0, N_TOKENS);
        append(session, N_TOKENS, 400); /* far enough that no window is in the way */
        if (i % 2) {
            CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, target, NULL, &result, &error));
            assert_result(&result, target, from, target - from);
        } else {
            afmoe_token other[MAX_POSITIONS];
            memcpy(other, tokens, sizeof other);
            other[target] = (tokens[target] + 1) % VOCAB;
            CHECK_STATUS(AFMOE_OK, afmoe_session_sync(session, other, 400, NULL, &result, &error));
            assert_result(&result, 400, from, 400 - from);
            CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, target, NULL, &result, &error));
            assert_result(&result, target, from, target - from); /* the snapshot is there still */
        }
        append(session, target, target + 1);
        assert_last(expected, session, target + 1);
        afmoe_session_free(session);
    }
    free(expected);
}

/* More snapshots than allowed: the distance between them doubles, and the memory stays within the budget. */
static void budget_is_kept(void **state)
{
    uint64_t layers = info_of(tiny).n_layers, n_full = info_of(tiny).n_full_layers, page = bytes_of_page(tiny);
    (void)state;
    for (uint64_t n_snapshots = 0; n_snapshots <= 4; n_snapshots++) {
        afmoe_context_options options = with_snapshots(64, n_snapshots);
        afmoe_session *session = session_with(tiny, &options);
        for (uint64_t n = 0; n < MAX_POSITIONS; n++) {
            append(session, n, n + 1);
            uint64_t n_pages = n / PAGE + 1;
            assert_true(stats_of(session).page_bytes <=
                        (n_full * n_pages + (layers - n_full) * (2 + n_snapshots * WINDOW_PAGES)) * page);
        }
        afmoe_append_result result;
        afmoe_append_result_init(&result, sizeof result);
        static const uint64_t last[] = {0, 0, 256, 256, 384}; /* of so many, at 512 tokens, that lies before 450 */
        CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, 450, NULL, &result, &error));
        assert_result(&result, 450, last[n_snapshots], 450 - last[n_snapshots]);
        afmoe_session_free(session);
    }
}

/* Whatever way a timeline goes, and its forks, the bits are those of a fresh one, the cap holds, and nothing leaks. */
static void random_walks_keep_the_bits(void **state)
{
    struct bits *expected = whole(tiny, exact());
    (void)state;
    for (uint32_t seed = 0; seed < 6; seed++) {
        static const uint64_t intervals[] = {64, 128, 64}, numbers[] = {1, 2, 9};
        afmoe_context_options options = with_snapshots(intervals[seed % 3], numbers[seed % 3]);
        options.rewind_tokens = seed / 3 ? 70 : 0;
        afmoe_context *context = open_context(tiny, &options);
        afmoe_session *sessions[3];
        for (int i = 0; i < 3; i++) sessions[i] = open_session(context);
        uint32_t random = seed;
        uint64_t n_saved = 0;
        for (int step = 0; step < 250; step++) {
            random = random * 1664525u + 1013904223u;
            uint32_t which = (random >> 16) % 3;
            uint64_t to = (random >> 10) % N_TOKENS + 1;
            afmoe_append_result result;
            afmoe_append_result_init(&result, sizeof result);
            if (random >> 29 == 0) {
                afmoe_session_free(sessions[which]);
                CHECK_STATUS(AFMOE_OK, afmoe_session_fork(&sessions[which], sessions[(which + 1) % 3], &error));
            } else if (random >> 31 && to <= n_tokens_of(sessions[which])) {
                CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(sessions[which], to - 1, NULL, &result, &error));
                assert_int_equal(result.n_reused + result.n_computed, to - 1);
                append(sessions[which], to - 1, to);
                assert_last(expected, sessions[which], to);
            } else {
                CHECK_STATUS(AFMOE_OK, afmoe_session_sync(sessions[which], tokens, to, NULL, &result, &error));
                assert_last(expected, sessions[which], to);
            }
            n_saved += result.n_reused > 0 && result.n_computed > 0;
        }
        assert_true(n_saved > 20);
        for (int i = 0; i < 3; i++) afmoe_session_free(sessions[i]);
        assert_int_equal(page_bytes_of(context), 0);
        afmoe_context_free(context);
    }
    free(expected);
}

static char *log_text;

static void on_log(void *user, int32_t level, const char *message)
{
    (void)user;
    if (level != AFMOE_LOG_WARNING) return;
    free(log_text);
    log_text = strdup(message);
}

static void options_are_checked(void **state)
{
    static const uint64_t bad[] = {0, 1, 63, ((uint64_t)1 << 32) + 1, UINT64_MAX};
    afmoe_context *context;
    (void)state;
    for (int i = 0; i < 5; i++) {
        afmoe_context_options options = with_snapshots(bad[i], 1);
        CHECK_STATUS(AFMOE_INVALID, afmoe_context_create(&context, tiny, &options, &error));
        assert_non_null(strstr(error.message, "snapshot_tokens"));
    }
    for (uint64_t n = 0; n < 2; n++) {
        afmoe_context_options options = with_snapshots(64, n);
        options.snapshot_bytes += 5;
        options.log = on_log;
        context = open_context(tiny, &options);
        assert_true((log_text != NULL) == (n == 0));
        if (log_text) assert_non_null(strstr(log_text, "no snapshots: snapshot_bytes is 5, one takes "));
        free(log_text);
        log_text = NULL;
        afmoe_context_free(context);
    }
    afmoe_context_options most = with_snapshots((uint64_t)1 << 32, 0);
    most.snapshot_bytes = UINT64_MAX;
    afmoe_session *session = session_with(tiny, &most);
    append(session, 0, N_TOKENS);
    afmoe_session_free(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(going_back_starts_at_a_snapshot),
                                       cmocka_unit_test(budget_is_kept),
                                       cmocka_unit_test(random_walks_keep_the_bits),
                                       cmocka_unit_test(options_are_checked)};
    return cmocka_run_group_tests_name("snapshots", tests, open_tiny, close_tiny);
}
