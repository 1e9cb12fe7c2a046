/* The stream decoder: whole code points only, and together what the reference's decode gives. */
#include "stream_decoder.h"

#include "text_fixture.h"
#include "utf8.h"

struct collected {
    char text[1 << 16];
    size_t n;
};

static void assert_valid_utf8(const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        struct utf8_step step = utf8_decode((const uint8_t *)text + at, n - at);
        assert_int_equal(step.kind, UTF8_VALID);
        at += step.n_bytes;
    }
}

static void collect(struct collected *out, const char *text, uint64_t n)
{
    assert_true(out->n + n <= sizeof out->text);
    assert_valid_utf8(text, n); /* each piece by itself */
    memcpy(out->text + out->n, text, n);
    out->n += n;
}

static void decode_stream(struct stream_decoder *decoder, const afmoe_token *ids, size_t n_ids, struct collected *out)
{
    const char *text;
    uint64_t n;
    out->n = 0;
    for (size_t i = 0; i < n_ids; i++) {
        assert_int_equal(afmoe__stream_decoder_push(decoder, ids[i], &text, &n, NULL), AFMOE_OK);
        collect(out, text, n);
    }
    assert_int_equal(afmoe__stream_decoder_finish(decoder, &text, &n, NULL), AFMOE_OK);
    collect(out, text, n);
}

struct scene {
    struct tokenizer *tokenizer;
    struct stream_decoder *decoder;
    struct collected out;
};

static struct scene *open_scene(int32_t skip_special)
{
    struct scene *scene = calloc(1, sizeof *scene);
    assert_non_null(scene);
    scene->tokenizer = load_pico();
    assert_int_equal(afmoe__stream_decoder_create(&scene->decoder, scene->tokenizer, 1664, skip_special, NULL),
                     AFMOE_OK);
    return scene;
}

static void close_scene(struct scene *scene)
{
    afmoe__stream_decoder_free(scene->decoder);
    afmoe__tokenizer_free(scene->tokenizer);
    free(scene);
}

static void check_row(void *user_data, const json_t *row)
{
    struct scene *scene = user_data;
    const json_t *ids_json = json_object_get(row, "ids"), *decoded = json_object_get(row, "decoded");
    size_t n = json_array_size(ids_json);
    afmoe_token *ids = malloc(n * sizeof *ids + 1);
    for (size_t i = 0; i < n; i++) ids[i] = (afmoe_token)json_integer_value(json_array_get(ids_json, i));
    decode_stream(scene->decoder, ids, n, &scene->out);
    assert_int_equal(scene->out.n, json_string_length(decoded));
    assert_memory_equal(scene->out.text, json_string_value(decoded), scene->out.n);
    free(ids);
}

static void rows_decode_as_the_reference(void **state)
{
    (void)state;
    struct scene *scene = open_scene(0);
    struct file_bytes file = read_fixture("AFMOE_TEST_DATA", "tokenizer/pico.jsonl");
    assert_non_null(file.data);
    assert_int_equal(for_each_row(file, check_row, scene), 459);
    free(file.data);
    close_scene(scene);
}

/* The token of each byte. */
static void find_bytes(const struct tokenizer *tokenizer, afmoe_token ids[256])
{
    for (int byte = 0; byte < 256; byte++) {
        uint8_t one = (uint8_t)byte;
        ids[byte] = afmoe__tokenizer_find(tokenizer, &one, 1);
        assert_true(ids[byte] >= 0);
    }
}

/* Byte by byte; '?' in `wanted` is U+FFFD. Cases as Unicode's table 3-8 and Rust's from_utf8_lossy have them. */
static void invalid_bytes_become_replacements(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *wanted;
    } cases[] = {{"\xff", "?"},
                 {"a\x80z", "a?z"},
                 {"\xe4\xb8\xad\xe6\x96\x87", "\xe4\xb8\xad\xe6\x96\x87"},
                 {"\xe4\xb8", "?"},
                 {"\xe4\xb8z", "?z"},
                 {"\xe4\xb8\xe4\xb8\xad", "?\xe4\xb8\xad"},
                 {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
                 {"\xf0\x9f\x98", "?"},
                 {"\xf0\x9f\x98\xf0\x9f", "??"},
                 {"\xed\xa0\x80", "???"},
                 {"\xc0\xaf", "??"},
                 {"\xe0\x80\xaf", "???"},
                 {"\xf0\x80\x80\xaf", "????"},
                 {"\xf4\x90\x80\x80", "????"},
                 {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
                 {"\xf1\x80\x80\xe1\x80\xc2z\x80", "???z?"},
                 {"\xc2\xc2\xa9", "?\xc2\xa9"}};
    struct scene *scene = open_scene(0);
    afmoe_token of_byte[256], ids[16];
    find_bytes(scene->tokenizer, of_byte);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char wanted[64];
        size_t n_wanted = 0, n_ids = 0;
        for (const char *c = cases[i].bytes; *c; c++) ids[n_ids++] = of_byte[(uint8_t)*c];
        for (const char *c = cases[i].wanted; *c; c++) {
            if (*c == '?') {
                memcpy(wanted + n_wanted, "\xef\xbf\xbd", 3);
                n_wanted += 3;
            } else {
                wanted[n_wanted++] = *c;
            }
        }
        decode_stream(scene->decoder, ids, n_ids, &scene->out);
        assert_int_equal(scene->out.n, n_wanted);
        assert_memory_equal(scene->out.text, wanted, n_wanted);
    }
    close_scene(scene);
}

/* Random bytes: as byte tokens and as merged tokens the same text. */
static void chunking_changes_nothing(void **state)
{
    (void)state;
    struct scene *scene = open_scene(0);
    struct collected *by_byte = malloc(sizeof *by_byte);
    afmoe_token of_byte[256], ids[256], bytes_ids[256];
    uint64_t random = 3, n_ids;
    char text[256];
    find_bytes(scene->tokenizer, of_byte);
    for (int round = 0; round < 5000; round++) {
        size_t n = (size_t)(random >> 33) % sizeof text;
        for (size_t i = 0; i < n; i++) {
            static const char often[] = "\xe4\xb8\xad\xf0\x9f\x98\x80\xc3\xa9 the\xff";
            random = random * 6364136223846793005u + 1442695040888963407u;
            text[i] = often[(random >> 40) % (sizeof often - 1)];
            bytes_ids[i] = of_byte[(uint8_t)text[i]];
        }
        assert_int_equal(afmoe__tokenizer_encode(scene->tokenizer, text, n, NULL, ids, 256, &n_ids, NULL), AFMOE_OK);
        decode_stream(scene->decoder, bytes_ids, n, by_byte);
        decode_stream(scene->decoder, ids, n_ids, &scene->out);
        assert_int_equal(scene->out.n, by_byte->n);
        assert_memory_equal(scene->out.text, by_byte->text, by_byte->n);
    }
    free(by_byte);
    close_scene(scene);
}

static void kinds_and_bad_ids(void **state)
{
    (void)state;
    struct scene *scene = open_scene(1);
    const char *text = NULL;
    uint64_t n = 9;
    afmoe_error error = {.size = sizeof error};
    assert_int_equal(afmoe__stream_decoder_finish(scene->decoder, &text, &n, NULL), AFMOE_OK); /* before any push */
    assert_int_equal(n, 0);
    assert_int_equal(afmoe__stream_decoder_push(scene->decoder, 3, &text, &n, NULL), AFMOE_OK); /* control: skipped */
    assert_int_equal(n, 0);
    assert_int_equal(afmoe__stream_decoder_push(scene->decoder, 13, &text, &n, NULL), AFMOE_OK); /* added: kept */
    assert_int_equal(n, 7);
    assert_memory_equal(text, "<think>", 7);
    assert_int_equal(afmoe__stream_decoder_push(scene->decoder, 1663, &text, &n, NULL), AFMOE_OK); /* a padded row */
    assert_int_equal(n, 0);
    assert_int_equal(afmoe__stream_decoder_push(scene->decoder, 1664, &text, &n, &error), AFMOE_INVALID);
    assert_string_equal(error.message, "token is 1664; the vocabulary has 0 to 1663");
    assert_int_equal(afmoe__stream_decoder_push(scene->decoder, -1, &text, &n, &error), AFMOE_INVALID);
    close_scene(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_decode_as_the_reference),
        cmocka_unit_test(invalid_bytes_become_replacements),
        cmocka_unit_test(chunking_changes_nothing),
        cmocka_unit_test(kinds_and_bad_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
