/* Faults that were found once, each with the input that showed it. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static afmoe_error error;

static void variant_of(char *path, const char *name)
{
    char hub[PATH_BYTES];
    assert_non_null(small_model_path(hub, name));
    make_variant(path, hub, NULL, NULL);
}

/* It was taken for "no tokenizer", and with tokenizer_only the process died. */
static void an_empty_tokenizer_is_a_fault(void **state)
{
    char path[PATH_BYTES];
    afmoe_model_options options;
    afmoe_model *model;
    (void)state;
    variant_of(path, "tiny-bias");
    add_to_variant(path, "tokenizer.json", "");
    afmoe_model_options_init(&options, sizeof options);
    for (options.tokenizer_only = 0; options.tokenizer_only < 2; options.tokenizer_only++) {
        CHECK_STATUS(AFMOE_FORMAT, afmoe_model_open(&model, path, &options, &error));
        assert_null(model);
        assert_non_null(strstr(error.message, "tokenizer.json"));
    }
    remove_variant(path);
}

/* The model still computes on ids; the text calls say why they do not work. */
static void a_strange_tokenizer_leaves_a_model(void **state)
{
    static const char text[] = "{\"version\": \"1.0\", \"added_tokens\": [], \"model\": {\"type\": \"Unigram\"}}";
    char path[PATH_BYTES];
    afmoe_model_options options;
    afmoe_model *model;
    const afmoe_token token = 5;
    uint64_t n;
    (void)state;
    variant_of(path, "tiny-bias");
    add_to_variant(path, "tokenizer.json", text);
    CHECK_STATUS(AFMOE_OK, afmoe_model_open(&model, path, NULL, &error));
    assert_int_equal(info_of(model).has_tokenizer, 0);
    CHECK_STATUS(AFMOE_UNSUPPORTED, afmoe_tokenize(model, "a", 1, NULL, NULL, 0, &n, &error));
    assert_non_null(strstr(error.message, "pre_tokenizer"));
    afmoe_context *context = open_context(model, NULL);
    afmoe_session *session = open_session(context);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, &token, 1, NULL, NULL, &error));
    afmoe_session_free(session);
    afmoe_context_free(context);
    afmoe_model_free(model);

    afmoe_model_options_init(&options, sizeof options);
    options.tokenizer_only = 1;
    CHECK_STATUS(AFMOE_UNSUPPORTED, afmoe_model_open(&model, path, &options, &error));
    remove_variant(path);
}

/* Two million of them took minutes. */
static void a_long_stop_set_is_refused(void **state)
{
    enum { N = 1025, EACH = 3 };
    char path[PATH_BYTES], text[64 + N * EACH], *at = text;
    afmoe_model *model;
    (void)state;
    variant_of(path, "tiny-bias");
    at += sprintf(at, "{\"eos_token_id\": [");
    for (int i = 0; i < N; i++) at += sprintf(at, "%s%d", i ? "," : "", i % 90);
    sprintf(at, "]}");
    add_to_variant(path, "generation_config.json", text);
    CHECK_STATUS(AFMOE_LIMIT, afmoe_model_open(&model, path, NULL, &error));
    assert_non_null(strstr(error.message, "eos_token_id"));
    remove_variant(path);
}

/* The caller cannot know which tokens are kept. */
static void sync_gives_values_of_kept_tokens(void **state)
{
    enum { N = 40, P = 7 };
    char hub[PATH_BYTES];
    afmoe_token tokens[N];
    const uint64_t position = P;
    afmoe_append_options options;
    afmoe_append_result result;
    (void)state;
    assert_non_null(small_model_path(hub, "tiny-bias"));
    afmoe_model *model = open_model(hub);
    afmoe_context *context = open_context(model, NULL);
    afmoe_session *session = open_session(context);
    uint64_t vocab = info_of(model).vocab_size;
    float *first = malloc(vocab * sizeof *first), *again = malloc(vocab * sizeof *again), logprobs[2][N];
    make_tokens(tokens, N, vocab, 3);
    afmoe_append_options_init(&options, sizeof options);
    afmoe_append_result_init(&result, sizeof result);
    options.positions = &position;
    options.n_positions = 1;
    options.out_logits = first;
    options.logits_capacity = vocab;
    options.logprob_begin = 1;
    options.logprob_end = N;
    options.out_logprobs = logprobs[0];
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens, N, &options, NULL, &error));
    options.out_logits = again;
    options.out_logprobs = logprobs[1];
    CHECK_STATUS(AFMOE_OK, afmoe_session_sync(session, tokens, N, &options, &result, &error));
    assert_int_equal(result.n_computed, N); /* the log-probability at 1 needs the logits at 0 */
    assert_memory_equal(first, again, vocab * sizeof *first);
    assert_memory_equal(logprobs[0], logprobs[1], (N - 1) * sizeof logprobs[0][0]);

    options.logprob_end = options.logprob_begin = 0;
    memset(again, 0, vocab * sizeof *again);
    CHECK_STATUS(AFMOE_OK, afmoe_session_sync(session, tokens, N, &options, &result, &error));
    assert_int_equal(result.n_reused, P);
    assert_memory_equal(first, again, vocab * sizeof *first);

    options.n_positions = 0;
    options.logprob_begin = 9;
    options.logprob_end = 3;
    CHECK_STATUS(AFMOE_INVALID, afmoe_session_sync(session, tokens, N, &options, &result, &error));
    assert_non_null(strstr(error.message, "reversed"));
    free(first);
    free(again);
    afmoe_session_free(session);
    afmoe_context_free(context);
    afmoe_model_free(model);
}

static int32_t stop_at_the_end(void *user_data, uint64_t done, uint64_t total)
{
    (void)user_data;
    return done == total;
}

/* Everything was computed, so everything is there. */
static void stopping_behind_the_last_chunk_keeps_logits(void **state)
{
    enum { N = 20 };
    char hub[PATH_BYTES];
    afmoe_token tokens[N];
    const float *logits;
    afmoe_append_options options;
    (void)state;
    assert_non_null(small_model_path(hub, "tiny-bias"));
    afmoe_model *model = open_model(hub);
    afmoe_context *context = open_context(model, NULL);
    afmoe_session *session = open_session(context);
    make_tokens(tokens, N, info_of(model).vocab_size, 3);
    afmoe_append_options_init(&options, sizeof options);
    options.progress = stop_at_the_end;
    CHECK_STATUS(AFMOE_CANCELLED, afmoe_session_append(session, tokens, N, &options, NULL, &error));
    assert_int_equal(n_tokens_of(session), N);
    CHECK_STATUS(AFMOE_OK, afmoe_session_logits_view(session, &logits, NULL, &error));
    afmoe_session_free(session);
    afmoe_context_free(context);
    afmoe_model_free(model);
}

/* A path is cut in the middle of a character, and a name in a file may be no UTF-8 at all. */
static void messages_are_utf8(void **state)
{
    char path[700];
    afmoe_model *model;
    (void)state;
    for (size_t shift = 0; shift < 3; shift++) {
        size_t n = shift;
        memset(path, 'x', sizeof path);
        for (; n + 3 < 600; n += 3) memcpy(path + n, "\xe2\x82\xac", 3);
        path[n] = '\0';
        assert_int_not_equal(afmoe_model_open(&model, path, NULL, &error), AFMOE_OK);
        const unsigned char *c = (const unsigned char *)error.message;
        while (*c) {
            int length = *c < 0x80 ? 1 : 3;
            if (length == 3) {
                assert_int_equal(c[0], 0xe2);
                assert_int_equal(c[1], 0x82);
                assert_int_equal(c[2], 0xac);
            }
            c += length;
        }
    }
}

static void a_size_that_was_never_set_is_not_believed(void **state)
{
    afmoe_model_options *options = malloc(sizeof *options);
    afmoe_model *model;
    (void)state;
    afmoe_model_options_init(options, sizeof *options);
    options->size = 0x7fffffff;
    CHECK_STATUS(AFMOE_INVALID, afmoe_model_open(&model, "nothing", options, &error));
    free(options);
}

static int set_up(void **state)
{
    (void)state;
    error = fresh_error();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_tokenizer_is_a_fault),
        cmocka_unit_test(a_strange_tokenizer_leaves_a_model),
        cmocka_unit_test(a_long_stop_set_is_refused),
        cmocka_unit_test(sync_gives_values_of_kept_tokens),
        cmocka_unit_test(stopping_behind_the_last_chunk_keeps_logits),
        cmocka_unit_test(messages_are_utf8),
        cmocka_unit_test(a_size_that_was_never_set_is_not_believed),
    };
    return cmocka_run_group_tests_name("findings", tests, set_up, NULL);
}
