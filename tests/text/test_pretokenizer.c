/* The pre-tokenizer against the reference's cuts, on bytes that are no UTF-8, and its recognition of other ones. */
#include "pretokenizer.h"

#include "text_fixture.h"

static size_t count_and_check_cover(const char *text, size_t n)
{
    struct pretokenizer walk = pretokenizer_start((const uint8_t *)text, n);
    uint64_t begin, end, at = 0;
    size_t n_pieces = 0;
    while (afmoe__pretokenizer_next(&walk, &begin, &end)) {
        assert_int_equal(begin, at);
        assert_true(end > begin && end <= n);
        at = end;
        n_pieces++;
    }
    assert_int_equal(at, n);
    return n_pieces;
}

static void check_cuts(void *user_data, const json_t *row)
{
    (void)user_data;
    const json_t *text = json_object_get(row, "text"), *ends = json_object_get(row, "ends");
    size_t n = json_string_length(text);
    const char *bytes = json_string_value(text);
    assert_int_equal(count_and_check_cover(bytes, n), json_array_size(ends));
    struct pretokenizer walk = pretokenizer_start((const uint8_t *)bytes, n);
    uint64_t begin, end;
    for (size_t i = 0; afmoe__pretokenizer_next(&walk, &begin, &end); i++) {
        if ((json_int_t)end != json_integer_value(json_array_get(ends, i))) fail_msg("\"%s\": cut %zu", bytes, i);
    }
}

static void cuts_are_the_reference_s(void **state)
{
    (void)state;
    struct file_bytes file = read_fixture("AFMOE_TEST_DATA", "tokenizer/pieces.jsonl");
    assert_non_null(file.data);
    assert_true(for_each_row(file, check_cuts, NULL) > 1500);
    free(file.data);
}

/* Cuts written as '|' in the text. */
static void invalid_bytes_have_no_class(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "a|\xff"
        "b",              /* as other code points without a class: in front of a word */
        "a|\xff|1",       /* alone before a number */
        "\xff\xfe\x80|!", /* a run of them stays together */
        "a|\xe4\xb8"
        "b", /* a maximal subpart counts once */
        "\xff|\xe4\xb8"
        "b",              /* ... so here the second goes with the word */
        "\xed\xa0\x80|1", /* surrogates are no code points: three parts */
        "x| |\xff",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64];
        uint64_t ends[16];
        size_t n = 0, n_ends = 0;
        for (const char *c = cases[i]; *c; c++) {
            if (*c == '|') {
                ends[n_ends++] = n;
            } else {
                text[n++] = *c;
            }
        }
        ends[n_ends++] = n;
        assert_int_equal(count_and_check_cover(text, n), n_ends);
        struct pretokenizer walk = pretokenizer_start((const uint8_t *)text, n);
        uint64_t begin, end;
        for (size_t j = 0; afmoe__pretokenizer_next(&walk, &begin, &end); j++) assert_int_equal(end, ends[j]);
    }
}

static void any_bytes_are_covered(void **state)
{
    (void)state;
    uint64_t random = 1;
    char text[200];
    for (int round = 0; round < 20000; round++) {
        for (size_t i = 0; i < sizeof text; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            text[i] = (char)(random >> (round % 2 ? 56 : 57));
        }
        count_and_check_cover(text, (size_t)(random >> 33) % sizeof text);
    }
}

/* A step of the real description, one value changed: every such change must be noticed. */
static void other_descriptions_are_unsupported(void **state)
{
    (void)state;
    struct file_bytes file = read_fixture("AFMOE_TEST_DATA", "tokenizer/pico-tokenizer.json");
    assert_non_null(file.data);
    json_t *root = json_loadb((const char *)file.data, file.n, 0, NULL);
    json_t *description = json_object_get(root, "pre_tokenizer"),
           *steps = json_object_get(description, "pretokenizers");
    afmoe_error error = {.size = sizeof error};
    assert_int_equal(afmoe__pretokenizer_recognise(description, "t", &error), AFMOE_OK);

    static const struct {
        size_t step;
        const char *key, *value; /* value is JSON */
    } changes[] = {{0, "individual_digits", "true"},
                   {0, "type", "\"Whitespace\""},
                   {1, "invert", "true"},
                   {2, "behavior", "\"Removed\""},
                   {3, "pattern", "{\"String\":\"a\"}"},
                   {4, "pattern", "{\"Regex\":\"[0-9]\"}"},
                   {5, "pattern", "{}"},
                   {6, "use_regex", "true"},
                   {6, "add_prefix_space", "true"}};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        json_t *changed = json_deep_copy(description);
        json_t *step = json_array_get(json_object_get(changed, "pretokenizers"), changes[i].step);
        json_object_set_new(step, changes[i].key, json_loads(changes[i].value, JSON_DECODE_ANY, NULL));
        assert_int_equal(afmoe__pretokenizer_recognise(changed, "t", &error), AFMOE_UNSUPPORTED);
        char wanted[32];
        snprintf(wanted, sizeof wanted, "step %zu", changes[i].step + 1);
        assert_non_null(strstr(error.message, wanted));
        json_decref(changed);
    }
    json_array_remove(steps, 2);
    assert_int_equal(afmoe__pretokenizer_recognise(description, "t", &error), AFMOE_UNSUPPORTED);
    assert_int_equal(afmoe__pretokenizer_recognise(steps, "t", &error), AFMOE_UNSUPPORTED);
    assert_int_equal(afmoe__pretokenizer_recognise(NULL, "t", &error), AFMOE_UNSUPPORTED);
    json_decref(root);
    free(file.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_are_the_reference_s),
        cmocka_unit_test(invalid_bytes_have_no_class),
        cmocka_unit_test(any_bytes_are_covered),
        cmocka_unit_test(other_descriptions_are_unsupported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
