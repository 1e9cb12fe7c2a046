/* The count of pages against a simulation that grows a timeline chunk by chunk. */
#include "page_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static uint64_t simulate(const struct page_plan *plan, uint64_t first, uint64_t begin, uint64_t end)
{
    uint64_t most = 0;
    for (uint64_t n = begin; n < end;) {
        n = end - n < plan->chunk_tokens ? end : n + plan->chunk_tokens;
        uint64_t held = afmoe__plan_pages_held(plan, first, n), kept = afmoe__plan_first_kept(plan, n);
        if (held > most) most = held;
        if (kept > first) first = kept;
    }
    return most;
}

static void test_most_pages(void **state)
{
    static const uint64_t chunks[] = {1, 7, 63, 64, 65, 100, 256}, windows[] = {1, 8, 64, 200},
                          rewinds[] = {0, 1, 256, (uint64_t)1 << 32}, ends[] = {0, 1, 64, 65, 300, 1000, 5003, 20000};
    (void)state;
    for (uint64_t i = 0; i < 7 * 4 * 4 * 8 * 3; i++) {
        const struct page_plan plan = {.n_full = i / 896, .n_sliding = 3 * (i / 896 != 2), .window = windows[i / 7 % 4],
                                       .rewind_tokens = rewinds[i / 28 % 4], .chunk_tokens = chunks[i % 7]};
        uint64_t end = ends[i / 112 % 8];
        assert_int_equal(afmoe__plan_most_pages(&plan, 0, 0, 0, end), simulate(&plan, 0, 0, end));
        for (uint64_t begin = 1; begin < end; begin += 1 + end / 9) { /* from where it has grown to, or come back to */
            uint64_t first = afmoe__plan_first_kept(&plan, begin);
            assert_int_equal(afmoe__plan_most_pages(&plan, first, 0, begin, end), simulate(&plan, first, begin, end));
            first = afmoe__plan_window_page(&plan, begin);
            assert_int_equal(afmoe__plan_most_pages(&plan, first, 0, begin, end), simulate(&plan, first, begin, end));
        }
    }
}

/* Against a chunk that begins at every place, and a growing that is cut at random. */
static void test_any_cut(void **state)
{
    static const uint64_t chunks[] = {1, 7, 64, 100, 256}, windows[] = {1, 8, 200}, ends[] = {1, 65, 300, 1000};
    uint64_t random = 1;
    (void)state;
    for (uint64_t i = 0; i < 5 * 3 * 4 * 3; i++) {
        const struct page_plan plan = {.n_full = i / 60, .n_sliding = 3 * (i / 60 != 2), .window = windows[i / 5 % 3],
                                       .rewind_tokens = i % 2 * 100, .chunk_tokens = chunks[i % 5]};
        uint64_t end = ends[i / 15 % 4];
        for (uint64_t begin = 0; begin < end; begin += 1 + end / 9) {
            uint64_t first = afmoe__plan_window_page(&plan, begin), most = 0, kept = first;
            for (uint64_t at = begin; at < end; at++) {
                uint64_t to = end - at < plan.chunk_tokens ? end : at + plan.chunk_tokens;
                uint64_t from = afmoe__plan_first_kept(&plan, at);
                uint64_t held = afmoe__plan_pages_held(&plan, at > begin && from > first ? from : first, to);
                if (held > most) most = held;
            }
            assert_int_equal(afmoe__plan_most_pages_any_cut(&plan, first, 0, begin, end), most);
            for (uint64_t n = begin; n < end;) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                n += 1 + (random >> 33) % plan.chunk_tokens;
                if (n > end) n = end;
                assert_true(afmoe__plan_pages_held(&plan, kept, n) <= most);
                if (afmoe__plan_first_kept(&plan, n) > kept) kept = afmoe__plan_first_kept(&plan, n);
            }
        }
    }
}

/* The pages of one sliding layer, one by one: kept while a window or a snapshot has them, as page_plan.h says. */
static void test_snapshots(void **state)
{
    enum { MAX_PAGES = 40 };
    static const uint64_t chunks[] = {1, 50, 64, 200, 700}, windows[] = {2, 64, 65, 200}, intervals[] = {64, 100, 320},
                          numbers[] = {1, 2, 5, 100};
    (void)state;
    for (uint64_t i = 0; i < 5 * 4 * 3 * 4; i++) {
        struct page_plan plan = {.n_full = 1, .n_sliding = 3, .window = windows[i / 5 % 4],
                                 .rewind_tokens = i % 2 ? 0 : 90, .chunk_tokens = chunks[i % 5]};
        afmoe__plan_snapshots(&plan, intervals[i / 20 % 3], numbers[i / 60] * afmoe__plan_snapshot_pages(&plan) + 1);
        assert_int_equal(plan.max_snapshots, numbers[i / 60]);
        bool held[MAX_PAGES] = {false};
        uint64_t most = 0, end = 64 * MAX_PAGES - 7, n_doubled = 0, interval = afmoe__plan_interval(&plan, 0);
        for (uint64_t n = 0; n < end;) {
            uint64_t n_held = 0, begin = n;
            n = end - n < plan.chunk_tokens ? end : n + plan.chunk_tokens;
            for (uint64_t page = 0; page < MAX_PAGES; page++) {
                if (page * 64 < n && page * 64 + 64 > begin) held[page] = true;
                n_held += held[page];
            }
            if (plan.n_full * page_count(n) + 3 * n_held > most) most = plan.n_full * page_count(n) + 3 * n_held;
            n_doubled += interval != afmoe__plan_interval(&plan, n);
            interval = afmoe__plan_interval(&plan, n);
            assert_true(n / interval <= plan.max_snapshots && interval % 64 == 0);
            uint64_t first = afmoe__plan_first_kept(&plan, n), n_behind = 0;
            for (uint64_t page = 0; page < first; page++) {
                bool in_snapshot = false;
                for (uint64_t at = interval; at <= n; at += interval)
                    in_snapshot |= page >= afmoe__plan_window_page(&plan, at) && page < at / 64;
                assert_int_equal(afmoe__plan_in_snapshot(&plan, page, n), in_snapshot);
                assert_true(held[page] || !in_snapshot); /* what a snapshot needs was never given back before */
                held[page] = in_snapshot;
                n_behind += in_snapshot;
            }
            assert_int_equal(afmoe__plan_pages_behind(&plan, first, n), n_behind);
            assert_true(n_behind <= plan.max_snapshots * afmoe__plan_snapshot_pages(&plan) / 3);
        }
        assert_int_equal(afmoe__plan_most_pages(&plan, 0, 0, 0, end), most);
        assert_true(n_doubled > 0 || numbers[i / 60] == 100);
    }
}

static void test_numbers(void **state)
{
    /* 1 full and 3 sliding layers, windows of 8, no way back: 130 tokens are 3 pages; the window of position 130 begins
     * at 123, in page 1. */
    const struct page_plan plan = {.n_full = 1, .n_sliding = 3, .window = 8, .chunk_tokens = 64};
    (void)state;
    assert_int_equal(afmoe__plan_first_kept(&plan, 130), 1);
    assert_int_equal(afmoe__plan_pages_held(&plan, 1, 130), 3 + 3 * 2);
    /* The chunk 64..127 begins while page 0 is seen: 2 pages of 4 layers; the next adds one to all, page 0 gone. */
    assert_int_equal(afmoe__plan_most_pages(&plan, 0, 0, 0, 128), 8);
    assert_int_equal(afmoe__plan_most_pages(&plan, 0, 0, 0, 192), 3 + 3 * 2);
    assert_int_equal(afmoe__plan_most_pages(&plan, 0, 0, 0, (uint64_t)1 << 32), ((uint64_t)1 << 26) + 3 * 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_most_pages), cmocka_unit_test(test_any_cut),
                                       cmocka_unit_test(test_snapshots), cmocka_unit_test(test_numbers)};
    return cmocka_run_group_tests_name("page_plan", tests, NULL, NULL);
}
