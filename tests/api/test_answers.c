/* The trained text model answers as the reference does, token for token, and its perplexity is the reference's. */
#include "harness.h"

#include "sanitizer.h"
#include "test_paths.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_IDS = 512, IM_END = 3 };

static afmoe_error error;

static int prepare(void **state)
{
    (void)state;
    error = fresh_error();
    return 0;
}

/* ---- Samples: one JSON object a line, see models/sample.py ---- */

static uint64_t read_ids(afmoe_token *out, const json_t *sample, const char *key)
{
    const json_t *ids = json_object_get(sample, key);
    uint64_t n = json_array_size(ids);
    assert_in_range(n, 1, MAX_IDS);
    for (uint64_t i = 0; i < n; i++) out[i] = (afmoe_token)json_integer_value(json_array_get(ids, i));
    return n;
}

struct text {
    char bytes[8192];
    uint64_t n;
};

static int32_t add_piece(void *user, const afmoe_piece *piece)
{
    struct text *text = user;
    assert_true(text->n + piece->text_bytes < sizeof text->bytes);
    memcpy(text->bytes + text->n, piece->text, piece->text_bytes);
    text->n += piece->text_bytes;
    assert_true(piece->logprob <= 0);
    return 0;
}

/* Token by token: greedy from the logits, appended one at a time. */
static void check_greedy(afmoe_session *session, const afmoe_token *prompt, uint64_t n_prompt,
                         const afmoe_token *answer, uint64_t n_answer)
{
    CHECK_STATUS(AFMOE_OK, afmoe_session_sync(session, prompt, n_prompt, NULL, NULL, &error));
    for (uint64_t i = 0; i < n_answer; i++) {
        afmoe_token best;
        float logprob;
        uint64_t n;
        CHECK_STATUS(AFMOE_OK, afmoe_session_top_logprobs(session, &best, &logprob, 1, &n, &error));
        if (best != answer[i]) fail_msg("token %d of the answer is %d, expected %d", (int)i, best, answer[i]);
        if (i + 1 < n_answer) CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, &best, 1, NULL, NULL, &error));
    }
}

/* The chat template and the generate loop give the same ids, and the text. */
static void check_chat(afmoe_model *model, afmoe_session *session, const json_t *sample, const afmoe_token *prompt,
                       uint64_t n_prompt, const afmoe_token *answer, uint64_t n_answer)
{
    const json_t *messages = json_object_get(sample, "messages");
    const char *roles[16], *contents[16], *expected = json_string_value(json_object_get(sample, "answer"));
    uint64_t n_messages = json_array_size(messages), n;
    afmoe_token ids[MAX_IDS];
    assert_in_range(n_messages, 1, 16);
    for (uint64_t i = 0; i < n_messages; i++) {
        roles[i] = json_string_value(json_object_get(json_array_get(messages, i), "role"));
        contents[i] = json_string_value(json_object_get(json_array_get(messages, i), "content"));
    }
    CHECK_STATUS(AFMOE_OK, afmoe_chat_tokenize(model, roles, contents, n_messages, NULL, ids, MAX_IDS, &n, &error));
    assert_int_equal(n, n_prompt);
    assert_memory_equal(ids, prompt, n * sizeof *ids);

    struct text text = {.n = 0};
    afmoe_generate_options options;
    afmoe_generate_result result;
    afmoe_generate_options_init(&options, sizeof options);
    afmoe_generate_result_init(&result, sizeof result);
    options.on_piece = add_piece;
    options.on_piece_data = &text;
    options.max_tokens = MAX_IDS;
    CHECK_STATUS(AFMOE_OK, afmoe_session_sync(session, ids, n, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_END, afmoe_generate(session, NULL, &options, &result, &error));
    assert_int_equal(result.finish_reason, AFMOE_FINISH_STOP_TOKEN);
    assert_int_equal(result.stop_token, answer[n_answer - 1]);
    assert_int_equal(result.n_generated, n_answer - 1); /* the stop token is not added */
    CHECK_STATUS(AFMOE_OK, afmoe_session_tokens(session, ids, MAX_IDS, &n, &error));
    assert_int_equal(n, n_prompt + n_answer - 1);
    assert_memory_equal(ids + n_prompt, answer, (n_answer - 1) * sizeof *ids);
    assert_int_equal(text.n, strlen(expected));
    assert_memory_equal(text.bytes, expected, text.n);
}

static void check_samples(const char *model_path, const char *samples_path)
{
    char line[65536];
    int n_samples = 0, n_wanted = UNDER_SANITIZER ? 3 : 16;
    afmoe_model *model = open_model(model_path);
    afmoe_context *context = open_context(model, NULL);
    afmoe_session *session = open_session(context);
    FILE *file = fopen(samples_path, "r");
    assert_non_null(file);
    while (n_samples < n_wanted && fgets(line, sizeof line, file)) {
        afmoe_token prompt[MAX_IDS], answer[MAX_IDS];
        json_t *sample = json_loads(line, 0, NULL);
        assert_non_null(sample);
        uint64_t n_prompt = read_ids(prompt, sample, "prompt_ids"), n_answer = read_ids(answer, sample, "answer_ids");
        assert_int_equal(answer[n_answer - 1], IM_END);
        check_greedy(session, prompt, n_prompt, answer, n_answer);
        check_chat(model, session, sample, prompt, n_prompt, answer, n_answer);
        json_decref(sample);
        n_samples++;
    }
    fclose(file);
    assert_int_equal(n_samples, n_wanted);
    afmoe_session_free(session);
    afmoe_context_free(context);
    afmoe_model_free(model);
}

static void gguf_answers(void **state)
{
    char path[PATH_BYTES], samples[PATH_BYTES + 32];
    (void)state;
    text_model_path(path);
    const char *slash = strrchr(path, '/');
    snprintf(samples, sizeof samples, "%.*s/samples-q8_0.jsonl", slash ? (int)(slash - path) : 1, slash ? path : ".");
    check_samples(path, samples);
}

static void hub_answers(void **state)
{
    char path[PATH_BYTES], samples[PATH_BYTES];
    (void)state;
    if (!shared_path(path, sizeof path, "pico/hub", "answers of the text model's hub folder") ||
        !shared_path(samples, sizeof samples, "pico/samples.jsonl", "answers of the text model's hub folder"))
        return;
    check_samples(path, samples);
}

/* ---- Perplexity ---- */

static uint64_t read_text_ids(afmoe_token **out, const afmoe_model *model, const char *path)
{
    uint64_t n;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    size_t n_bytes = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(n_bytes);
    assert_int_equal(fread(bytes, 1, n_bytes, file), n_bytes);
    fclose(file);
    assert_int_equal(afmoe_tokenize(model, bytes, n_bytes, NULL, NULL, 0, &n, &error), AFMOE_CAPACITY);
    *out = malloc(n * sizeof **out);
    CHECK_STATUS(AFMOE_OK, afmoe_tokenize(model, bytes, n_bytes, NULL, *out, n, &n, &error));
    free(bytes);
    return n;
}

/* As models/eval_reference.py: windows of 256 without overlap, the first token of each is not predicted. */
static void hub_perplexity(void **state)
{
    enum { WINDOW = 256 };
    char path[PATH_BYTES], text[PATH_BYTES];
    float logprobs[WINDOW - 1];
    afmoe_token *ids;
    double sum = 0;
    uint64_t n_predicted = 0;
    (void)state;
#if UNDER_SANITIZER
    printf("skipped: sanitizer hub_perplexity (59,000 tokens take minutes there; the answers run the same code)\n");
    return;
#endif
    if (!shared_path(path, sizeof path, "pico/hub", "perplexity of the text model's hub folder") ||
        !shared_path(text, sizeof text, "pico/eval.txt", "perplexity of the text model's hub folder"))
        return;
    afmoe_model *model = open_model(path);
    afmoe_context_options options = two_threads();
    options.max_tokens = WINDOW;
    afmoe_context *context = open_context(model, &options);
    afmoe_session *session = open_session(context);
    uint64_t n = read_text_ids(&ids, model, text);
    assert_int_equal(n, 59304);
    afmoe_append_options append_options;
    afmoe_append_options_init(&append_options, sizeof append_options);
    append_options.logprob_begin = 1;
    append_options.logprob_end = WINDOW;
    append_options.out_logprobs = logprobs;
    for (uint64_t begin = 0; begin + WINDOW <= n; begin += WINDOW) {
        CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, 0, NULL, NULL, &error));
        CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, ids + begin, WINDOW, &append_options, NULL, &error));
        for (int i = 0; i < WINDOW - 1; i++) sum += (double)logprobs[i];
        n_predicted += WINDOW - 1;
    }
    assert_int_equal(n_predicted, 58905);
    double perplexity = exp(-sum / (double)n_predicted);
    if (fabs(perplexity - 1.256076455116272) > 1e-4) fail_msg("perplexity is %.9f, expected 1.256076", perplexity);
    free(ids);
    afmoe_session_free(session);
    afmoe_context_free(context);
    afmoe_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gguf_answers), cmocka_unit_test(hub_answers),
                                       cmocka_unit_test(hub_perplexity)};
    return cmocka_run_group_tests_name("answers", tests, prepare, NULL);
}
