/* Stop strings, against a search of the whole text, cut in every way. */
#include "stop_strings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_TEXT = 14 };

struct expected {
    uint64_t n_bytes; /* that come out */
    int32_t stop_string;
};

/* The first end of any string; of those that end there the longest, then the first. */
static struct expected search(const char *text, const char *const *strings, uint64_t n)
{
    uint64_t n_text = strlen(text);
    for (uint64_t end = 1; end <= n_text; end++) {
        struct expected found = {0, -1};
        uint64_t longest = 0;
        for (uint64_t s = 0; s < n; s++) {
            uint64_t length = strlen(strings[s]);
            if (length > end || length <= longest || memcmp(text + end - length, strings[s], length) != 0) continue;
            longest = length;
            found = (struct expected){end - length, (int32_t)s};
        }
        if (longest) return found;
    }
    return (struct expected){n_text, -1};
}

/* Longest suffix of the first n bytes that begins a string. */
static uint64_t must_hold(const char *text, uint64_t n, const char *const *strings, uint64_t n_strings)
{
    for (uint64_t length = n; length > 0; length--)
        for (uint64_t s = 0; s < n_strings; s++)
            if (strlen(strings[s]) > length && memcmp(text + n - length, strings[s], length) == 0) return length;
    return 0;
}

/* Bit i of `cuts`: a piece ends after byte i. */
static void run(const char *text, unsigned cuts, const char *const *strings, uint64_t n_strings)
{
    struct stop_strings *stops;
    assert_int_equal(afmoe__stop_strings_create(&stops, strings, NULL, n_strings, NULL), AFMOE_OK);
    struct expected expected = search(text, strings, n_strings);
    char given[MAX_TEXT + 1];
    uint64_t n_given = 0, n_text = strlen(text), begin = 0;
    struct stop_text out = {NULL, 0, -1};
    for (uint64_t i = 0; i < n_text && out.stop_string < 0; i++) {
        if (i + 1 < n_text && !(cuts >> i & 1)) continue;
        assert_int_equal(afmoe__stop_strings_push(stops, text + begin, i + 1 - begin, &out, NULL), AFMOE_OK);
        memcpy(given + n_given, out.text, out.n_bytes);
        n_given += out.n_bytes;
        begin = i + 1;
        if (out.stop_string < 0) assert_int_equal(n_given, begin - must_hold(text, begin, strings, n_strings));
    }
    assert_int_equal(out.stop_string, expected.stop_string);
    if (out.stop_string < 0) {
        afmoe__stop_strings_finish(stops, &out);
        memcpy(given + n_given, out.text, out.n_bytes);
        n_given += out.n_bytes;
    }
    assert_int_equal(n_given, expected.n_bytes);
    assert_memory_equal(given, text, n_given);
    afmoe__stop_strings_free(stops);
}

static void every_cut_gives_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *strings[4];
        uint64_t n;
    } sets[] = {
        {{"ab"}, 1},
        {{"aab"}, 1},
        {{"aaa"}, 1},
        {{"abab", "bb"}, 2},
        {{"b", "aab", "ab"}, 3},
        {{"abcabd", "ca", "bcab"}, 3},
        {{"aaab", "aab", "aab", "baaa"}, 4},
        {{"zzz", "y"}, 2},
    };
    static const char *const texts[] = {"abcabcabd", "aaaaab", "aabaabaaa", "babababb", "abcabdab", "aaaa", "cccc",
                                        "a", "", "aaba", "abcab", "aabaaab"};
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++)
        for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
            for (unsigned cuts = 0; cuts < 1u << strlen(texts[t]); cuts++)
                run(texts[t], cuts, sets[s].strings, sets[s].n);
}

/* Every text over {a, b} of up to 9 bytes, whole and byte by byte. */
static void every_short_text(void **state)
{
    (void)state;
    static const char *const strings[] = {"abba", "aab", "bbb", "ba"};
    for (unsigned n = 0; n <= 9; n++)
        for (unsigned bits = 0; bits < 1u << n; bits++) {
            char text[MAX_TEXT + 1] = "";
            for (unsigned i = 0; i < n; i++) text[i] = bits >> i & 1 ? 'b' : 'a';
            for (unsigned first = 0; first < 4; first++) {
                run(text, 0, strings + first, 4 - first);
                run(text, ~0u, strings + first, 4 - first);
            }
        }
}

static void bytes_of_zero_are_bytes(void **state)
{
    (void)state;
    const char *strings[] = {"a\0b"};
    const uint64_t bytes[] = {3};
    struct stop_strings *stops;
    struct stop_text out;
    assert_int_equal(afmoe__stop_strings_create(&stops, strings, bytes, 1, NULL), AFMOE_OK);
    assert_int_equal(afmoe__stop_strings_push(stops, "xa\0", 3, &out, NULL), AFMOE_OK);
    assert_int_equal(out.n_bytes, 1);
    assert_int_equal(afmoe__stop_strings_push(stops, "", 0, &out, NULL), AFMOE_OK);
    assert_int_equal(out.n_bytes, 0);
    assert_int_equal(afmoe__stop_strings_push(stops, "bz", 2, &out, NULL), AFMOE_OK);
    assert_int_equal(out.n_bytes, 0);
    assert_int_equal(out.stop_string, 0);
    afmoe__stop_strings_free(stops);
}

static void a_long_piece_and_a_long_string(void **state)
{
    (void)state;
    enum { N = 100000 };
    char *text = malloc(2 * N + 1);
    memset(text, 'a', 2 * N);
    text[2 * N] = '\0';
    text[N] = 'b';
    const char *strings[] = {text}; /* a^N b a^(N-1) */
    struct stop_strings *stops;
    struct stop_text out;
    assert_int_equal(afmoe__stop_strings_create(&stops, strings, NULL, 1, NULL), AFMOE_OK);
    /* A quadratic search would take minutes here. */
    uint64_t n_given = 0;
    for (int round = 0; round < 20; round++) {
        assert_int_equal(afmoe__stop_strings_push(stops, text, N, &out, NULL), AFMOE_OK);
        n_given += out.n_bytes;
    }
    assert_int_equal(n_given, 19 * N);
    assert_int_equal(afmoe__stop_strings_push(stops, text + N, N, &out, NULL), AFMOE_OK);
    assert_int_equal(out.stop_string, 0);
    assert_int_equal(out.n_bytes, 0);
    afmoe__stop_strings_free(stops);
    free(text);
}

static void refuse(const char *const *strings, const uint64_t *bytes, uint64_t n, const char *message)
{
    afmoe_error error = {.size = sizeof error};
    struct stop_strings *stops;
    assert_int_equal(afmoe__stop_strings_create(&stops, strings, bytes, n, &error), AFMOE_INVALID);
    assert_null(stops);
    assert_string_equal(error.message, message);
}

static void bad_strings_are_refused(void **state)
{
    (void)state;
    const char *strings[65];
    for (int i = 0; i < 65; i++) strings[i] = "x";
    refuse(strings, NULL, 65, "n_stop_strings is 65, allowed are 0..64");
    refuse(NULL, NULL, 1, "n_stop_strings is 1 but stop_strings is NULL");
    strings[1] = "";
    refuse(strings, NULL, 2, "stop_strings[1] is empty");
    strings[1] = NULL;
    refuse(strings, NULL, 2, "stop_strings[1] is NULL");
    strings[1] = "a\xc3(";
    refuse(strings, NULL, 2, "stop_strings[1] is not valid UTF-8 at byte 1");
    strings[1] = "a\xe2\x82";
    refuse(strings, NULL, 2, "stop_strings[1] is not valid UTF-8 at byte 1");
    struct stop_strings *stops;
    strings[1] = "\xe2\x82\xac";
    assert_int_equal(afmoe__stop_strings_create(&stops, strings, NULL, 64, NULL), AFMOE_OK);
    afmoe__stop_strings_free(stops);
    afmoe__stop_strings_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_gives_the_same),
        cmocka_unit_test(every_short_text),
        cmocka_unit_test(bytes_of_zero_are_bytes),
        cmocka_unit_test(a_long_piece_and_a_long_string),
        cmocka_unit_test(bad_strings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
