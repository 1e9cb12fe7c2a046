/* JSON with caps: what is refused, and that no document costs more than 64 MiB and 4 bytes for every byte of text.
 *
 * Memory is measured in a child process for each document, so that one does not hide another. */
#include "json.h"

#include <limits.h> /* __GLIBC__ */
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "memory_peak.h"

static const struct json_caps caps = {64 << 20, JSON_MAX_VALUES, JSON_MAX_DEPTH};

static const struct {
    const char *text;
    int32_t status;
    const char *part;
} small[] = {
    {"{}", AFMOE_OK, ""},
    {" [1, -2.5e3, \"a\\u00e9\\ud83d\\ude00\", true, false, null, {\"k\": [{}]}] \n", AFMOE_OK, ""},
    {"3", AFMOE_OK, ""},
    {"\"\xF0\x9F\x98\x80 \xE2\x82\xAC \xC3\xA9\"", AFMOE_OK, ""},
    {"", AFMOE_FORMAT, "ends at byte 0 where a value is expected"},
    {"{", AFMOE_FORMAT, "a key or '}'"},
    {"[1", AFMOE_FORMAT, "ends at byte 2"},
    {"[1,", AFMOE_FORMAT, "ends at byte 3 where a value"},
    {"[1,]", AFMOE_FORMAT, "byte 0x5D at 3"},
    {"[1 2]", AFMOE_FORMAT, "byte 0x32 at 3"},
    {"{\"a\" 1}", AFMOE_FORMAT, "expected ':'"},
    {"{\"a\":1,}", AFMOE_FORMAT, "expected a key"},
    {"{1:1}", AFMOE_FORMAT, "expected a key"},
    {"[}", AFMOE_FORMAT, "byte 0x7D at 1"},
    {"{]", AFMOE_FORMAT, "byte 0x5D at 1"},
    {"]", AFMOE_FORMAT, "byte 0x5D at 0"},
    {"{} {}", AFMOE_FORMAT, "expected nothing more"},
    {"{}\x01", AFMOE_FORMAT, "byte 0x01 at 2"},
    {"[tru]", AFMOE_FORMAT, "byte 0x74 at 1"},
    {"[True]", AFMOE_FORMAT, "byte 0x54 at 1"},
    {"[NaN]", AFMOE_FORMAT, "byte 0x4E at 1"},
    {"[+1]", AFMOE_FORMAT, "byte 0x2B at 1"},
    {"[1.]", AFMOE_FORMAT, "test"},
    {"[01]", AFMOE_FORMAT, "test"},
    {"[1e999]", AFMOE_FORMAT, "overflow"},
    {"[9223372036854775808]", AFMOE_FORMAT, "too big integer"},
    {"\"a\n\"", AFMOE_FORMAT, "byte 0x0A at 2"},
    {"\"a\\", AFMOE_FORMAT, "test"},
    {"\"\\x\"", AFMOE_FORMAT, "test"},
    {"\"\\ud800\"", AFMOE_FORMAT, "test"},
    {"\"\\u0000\"", AFMOE_FORMAT, "\\u0000"},
    {"{\"a\\u0000\": 1}", AFMOE_FORMAT, "\\u0000"},
    {"{\"a\": 1, \"a\": 2}", AFMOE_FORMAT, "duplicate object key"},
    {"\"\xC0\x80\"", AFMOE_FORMAT, "byte 0xC0 at 1"},
    {"\"\xED\xA0\x80\"", AFMOE_FORMAT, "byte 0xED at 1"},
    {"\"\xF4\x90\x80\x80\"", AFMOE_FORMAT, "byte 0xF4 at 1"},
    {"\"\xE2\x82\"", AFMOE_FORMAT, "byte 0xE2 at 1"},
    {"\"\xFF\"", AFMOE_FORMAT, "byte 0xFF at 1"},
    {"\xEF\xBB\xBF{}", AFMOE_FORMAT, "byte 0xEF at 0"},
};

static void test_small(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        json_t *document = NULL;
        afmoe_error error = {.size = sizeof error};
        size_t n = strlen(small[i].text);
        uint8_t *exact = malloc(n ? n : 1); /* so that a read past the end is seen by sanitizers */
        assert_non_null(exact);
        memcpy(exact, small[i].text, n);
        int32_t status = afmoe__json_parse(&document, exact, n, &caps, "test", &error);
        if (status != small[i].status || (status && !strstr(error.message, small[i].part))) {
            print_error("%s: %d \"%s\", expected \"%s\"\n", small[i].text, status, error.message, small[i].part);
        }
        assert_int_equal(status, small[i].status);
        if (status) assert_non_null(strstr(error.message, small[i].part));
        json_decref(document);
        free(exact);
    }
}

static void test_caps(void **state)
{
    (void)state;
    json_t *document = NULL;
    afmoe_error error = {.size = sizeof error};
    const uint8_t text[] = "[[1],[2]]";
    struct json_caps small_caps = {9, 5, 2};
    assert_int_equal(afmoe__json_parse(&document, text, 9, &small_caps, "test", &error), AFMOE_OK);
    json_decref(document);
    small_caps.max_bytes = 8;
    assert_int_equal(afmoe__json_parse(&document, text, 9, &small_caps, "test", &error), AFMOE_LIMIT);
    assert_non_null(strstr(error.message, "9 bytes, allowed are 8"));
    small_caps = (struct json_caps){9, 4, 2};
    assert_int_equal(afmoe__json_parse(&document, text, 9, &small_caps, "test", &error), AFMOE_LIMIT);
    assert_non_null(strstr(error.message, "more than 4 values"));
    small_caps = (struct json_caps){9, 5, 1};
    assert_int_equal(afmoe__json_parse(&document, text, 9, &small_caps, "test", &error), AFMOE_LIMIT);
    assert_non_null(strstr(error.message, "nested deeper than 1 at byte 1"));
}

/* Every cut and every flipped bit of a document: an answer, never a fault. */
static void test_cut_and_flipped(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\": [1, -2.5, \"b\\u00e9\\n\xC3\xA9\"], \"c\": {\"d\": null, \"e\": [true, false]}}";
    uint8_t copy[sizeof text - 1];
    json_t *document;
    for (size_t n = 0; n < sizeof copy; n++) {
        assert_int_equal(afmoe__json_parse(&document, (const uint8_t *)text, n, &caps, "test", NULL), AFMOE_FORMAT);
    }
    for (size_t bit = 0; bit < 8 * sizeof copy; bit++) {
        memcpy(copy, text, sizeof copy);
        copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
        document = NULL;
        int32_t status = afmoe__json_parse(&document, copy, sizeof copy, &caps, "test", NULL);
        assert_true(status == AFMOE_OK || status == AFMOE_FORMAT);
        assert_true((document != NULL) == (status == AFMOE_OK));
        json_decref(document);
    }
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

struct text {
    uint8_t *bytes;
    uint64_t n;
};

/* `opening`, then `unit` until n bytes are reached (the last comma off), then `closing`. */
static struct text repeat(const char *opening, const char *unit, const char *closing, uint64_t n)
{
    struct text out = {malloc(n + 1024), 0};
    size_t n_unit = strlen(unit);
    assert_non_null(out.bytes);
    memcpy(out.bytes, opening, strlen(opening));
    out.n = strlen(opening);
    while (out.n + n_unit + strlen(closing) <= n) {
        memcpy(out.bytes + out.n, unit, n_unit);
        out.n += n_unit;
    }
    out.n--;
    memcpy(out.bytes + out.n, closing, strlen(closing));
    out.n += strlen(closing);
    return out;
}

/* Objects with many keys, all different: {"0":0,"1":0,...} */
static struct text many_keys(uint64_t n)
{
    struct text out = {malloc(n + 64), 1};
    assert_non_null(out.bytes);
    out.bytes[0] = '{';
    for (uint64_t i = 0; out.n + 24 < n; i++) {
        out.n += (uint64_t)sprintf((char *)out.bytes + out.n, "\"%llx\":0,", (unsigned long long)i);
    }
    out.bytes[out.n - 1] = '}';
    return out;
}

/* Parses in a child: its status (negated) and growth in KiB. The child has touched the text already. */
static int32_t parse_in_child(const struct text *text, uint64_t *growth_kib)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
#ifdef __GLIBC__
    malloc_trim(0); /* what the child gets from freed memory of this process would not be seen as growth */
#endif
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        json_t *document = NULL;
        volatile uint8_t sum = 0;
        for (uint64_t i = 0; i < text->n; i += 512) sum = (uint8_t)(sum + text->bytes[i]);
        uint64_t before = memory_peak_begin(); /* inherited peaks do not count */
        int32_t status = afmoe__json_parse(&document, text->bytes, text->n, &caps, "test", NULL);
        uint64_t answer[2] = {(uint64_t)-(int64_t)status, memory_peak_growth_kib(before)};
        _exit(write(ends[1], answer, sizeof answer) == (ssize_t)sizeof answer ? 0 : 1);
    }
    uint64_t answer[2];
    int exit_status = 0;
    assert_int_equal(read(ends[0], answer, sizeof answer), sizeof answer);
    assert_int_equal(waitpid(child, &exit_status, 0), child);
    assert_int_equal(exit_status, 0);
    close(ends[0]);
    close(ends[1]);
    *growth_kib = answer[1];
    return -(int32_t)answer[0];
}

enum { ANY = 1 };

/* Frees the text. `status` ANY: either OK or LIMIT is right, as long as the bound holds. */
static void check_bound(const char *name, struct text text, int32_t status)
{
    uint64_t growth = 0, allowed = 64 * 1024 + 4 * text.n / 1024;
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    int32_t answer = parse_in_child(&text, &growth);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
    print_message("%-28s %9llu bytes: status %d, %7llu of %llu KiB, %.2f s\n", name, (unsigned long long)text.n, answer,
                  (unsigned long long)growth, (unsigned long long)allowed, seconds);
    free(text.bytes);
    if (status == ANY) assert_true(answer == AFMOE_OK || answer == AFMOE_LIMIT);
    else assert_int_equal(answer, status);
    assert_true(growth <= allowed);
    if (answer == AFMOE_LIMIT) assert_true(seconds < 20); /* refused before it is parsed: takes a moment */
}

static struct text deep(void)
{
    struct text out = {malloc(1 << 20), 1 << 20};
    assert_non_null(out.bytes);
    memset(out.bytes, '[', out.n);
    return out;
}

static void test_memory(void **state)
{
    (void)state;
    const uint64_t full = 32 << 20;
    check_bound("arrays", repeat("[", "[],", "]", full), AFMOE_LIMIT);
    check_bound("objects", repeat("[", "{},", "]", full), AFMOE_LIMIT);
    check_bound("strings", repeat("[", "\"\",", "]", full), AFMOE_LIMIT);
    check_bound("numbers", repeat("[", "0,", "]", full), AFMOE_LIMIT);
    check_bound("fractions", repeat("[", "1.5,", "]", full), AFMOE_LIMIT);
    check_bound("nulls", repeat("[", "null,", "]", full), AFMOE_LIMIT);
    check_bound("keys", many_keys(full), AFMOE_LIMIT);
    check_bound("brackets", deep(), AFMOE_LIMIT);
    check_bound("one string", repeat("\"", "aaaaaaaaaaaaaaaa", "\"", full), ANY);
    check_bound("one number", repeat("1", "0000000000000000", "0", full), AFMOE_FORMAT);
    /* Just inside: as many as the estimate lets through. */
    check_bound("arrays that pass", repeat("[", "[],", "]", 1500000), AFMOE_OK);
    check_bound("objects that pass", repeat("[", "{},", "]", 800000), AFMOE_OK);
    check_bound("strings that pass", repeat("[", "\"\",", "]", 2400000), AFMOE_OK);
    check_bound("numbers that pass", repeat("[", "0,", "]", 3000000), AFMOE_OK);
    check_bound("keys that pass", many_keys(4000000), AFMOE_OK);
    check_bound(
        "long strings that pass",
        repeat("[", "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\",", "]", full), ANY);
}

/* The header of a Large checkpoint in one file: 46,080 tensors and more. */
static void test_large_header(void **state)
{
    (void)state;
    struct text out = {malloc(16 << 20), 1};
    assert_non_null(out.bytes);
    out.bytes[0] = '{';
    for (int i = 0; i < 46080; i++) {
        unsigned long long at = 18874368ull * (unsigned)i;
        out.n += (uint64_t)sprintf((char *)out.bytes + out.n,
                                   "\"model.layers.%d.mlp.experts.%d.gate_proj.weight\":{\"dtype\":\"BF16\",\"shape\":"
                                   "[3072,3072],\"data_offsets\":[%llu,%llu]},",
                                   6 + i / 768, i % 768, at, at + 18874368);
    }
    out.bytes[out.n - 1] = '}';
    check_bound("46,080 tensors", out, AFMOE_OK);
}

static struct text read_command(const char *command)
{
    struct text out = {malloc(48 << 20), 0};
    assert_non_null(out.bytes);
    FILE *pipe = popen(command, "r");
    size_t n = 0;
    while (pipe && (n = fread(out.bytes + out.n, 1, (48 << 20) - out.n, pipe)) > 0) out.n += n;
    if (pipe) pclose(pipe);
    return out;
}

/* Merges in the older spelling, ["a","b"] as "a b". */
static struct text join_merges(const struct text *text)
{
    struct text out = {malloc(2 * text->n), 0};
    json_t *document = json_loadb((const char *)text->bytes, text->n, 0, NULL), *merge;
    size_t i;
    assert_non_null(out.bytes);
    assert_non_null(document);
    json_t *merges = json_object_get(json_object_get(document, "model"), "merges"), *joined = json_array();
    json_array_foreach(merges, i, merge) {
        json_array_append_new(joined, json_sprintf("%s %s", json_string_value(json_array_get(merge, 0)),
                                                   json_string_value(json_array_get(merge, 1))));
    }
    json_object_set_new(json_object_get(document, "model"), "merges", joined);
    out.n = json_dumpb(document, (char *)out.bytes, 2 * text->n, JSON_COMPACT);
    json_decref(document);
    return out;
}

static void test_tokenizer(void **state)
{
    (void)state;
    const char *shared = getenv("AFMOE_SHARED");
    char command[1024];
    if (!shared || access(shared, R_OK) != 0) {
        printf("skipped: test_tokenizer (no reference folder)\n");
        return;
    }
    snprintf(command, sizeof command, "xz -dc '%s/trinity-tokenizer/tokenizer-large.json.xz' 2>/dev/null", shared);
    struct text text = read_command(command);
    if (text.n == 0) {
        printf("skipped: test_tokenizer (no xz)\n");
        free(text.bytes);
        return;
    }
    check_bound("tokenizer, merges joined", join_merges(&text), AFMOE_OK);
    check_bound("tokenizer", text, AFMOE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),  cmocka_unit_test(test_caps),         cmocka_unit_test(test_cut_and_flipped),
        cmocka_unit_test(test_memory), cmocka_unit_test(test_large_header), cmocka_unit_test(test_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
