/* The generate loop with the demo model (path in argv[1]), held against the same loop written out. */
#include "afmoe.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_TOKENS = 400, MAX_TEXT = 8192, IM_END = 3 };

static const char *model_path;
static afmoe_model *model;
static afmoe_context *context;
static afmoe_token prompt[64];
static uint64_t n_prompt;

/* What came out of a call: the text of all pieces, their tokens, and what the callback is to do. */
struct sink {
    char text[MAX_TEXT];
    uint64_t n_bytes, n_pieces, n_last;
    afmoe_token tokens[MAX_TOKENS];
    float logprobs[MAX_TOKENS];
    uint64_t first_position;
    uint64_t refuse_at;   /* the piece with this number */
    afmoe_cancel *cancel; /* set in piece cancel_at */
    uint64_t cancel_at;
    uint64_t n_top; /* expected in each piece */
};

static int32_t on_piece(void *user_data, const afmoe_piece *piece)
{
    struct sink *sink = user_data;
    assert_int_equal(piece->size, sizeof *piece);
    assert_true(sink->n_bytes + piece->text_bytes <= MAX_TEXT && sink->n_pieces < MAX_TOKENS);
    if (piece->text_bytes) memcpy(sink->text + sink->n_bytes, piece->text, piece->text_bytes);
    sink->n_bytes += piece->text_bytes;
    assert_int_equal(sink->n_last, 0); /* nothing comes after the last piece */
    if (piece->token < 0) {
        assert_true(piece->text_bytes > 0 && piece->logprob == 0.0f && piece->n_top == 0);
        assert_int_equal(piece->position, sink->first_position + sink->n_pieces);
        sink->n_last++;
        return 0;
    }
    if (sink->n_pieces == 0) sink->first_position = piece->position;
    assert_int_equal(piece->position, sink->first_position + sink->n_pieces);
    assert_int_equal(piece->n_top, sink->n_top);
    for (uint64_t i = 1; i < piece->n_top; i++)
        assert_true(piece->top_logprobs[i] < piece->top_logprobs[i - 1] ||
                    (piece->top_logprobs[i] == piece->top_logprobs[i - 1] &&
                     piece->top_tokens[i] > piece->top_tokens[i - 1]));
    if (piece->n_top) { /* greedy: the token is the first of the list */
        assert_int_equal(piece->top_tokens[0], piece->token);
        assert_true(piece->top_logprobs[0] == piece->logprob);
    }
    sink->tokens[sink->n_pieces] = piece->token;
    sink->logprobs[sink->n_pieces] = piece->logprob;
    if (sink->cancel && sink->n_pieces == sink->cancel_at) afmoe_cancel_set(sink->cancel);
    return sink->n_pieces++ == sink->refuse_at;
}

static struct sink *new_sink(void)
{
    struct sink *sink = calloc(1, sizeof *sink);
    sink->refuse_at = UINT64_MAX;
    return sink;
}

static afmoe_generate_options options_for(struct sink *sink)
{
    afmoe_generate_options options;
    afmoe_generate_options_init(&options, sizeof options);
    options.on_piece = on_piece;
    options.on_piece_data = sink;
    return options;
}

static afmoe_session *prompted(void)
{
    afmoe_session *session;
    assert_int_equal(afmoe_session_create(&session, context, NULL), AFMOE_OK);
    assert_int_equal(afmoe_session_append(session, prompt, n_prompt, NULL, NULL, NULL), AFMOE_OK);
    return session;
}

static uint64_t timeline(afmoe_session *session, afmoe_token *out)
{
    uint64_t n;
    assert_int_equal(afmoe_session_tokens(session, out, MAX_TOKENS, &n, NULL), AFMOE_OK);
    return n;
}

/* The greedy answer, token by token, without the loop under test. */
static struct {
    afmoe_token tokens[MAX_TOKENS];
    float logprobs[MAX_TOKENS];
    uint64_t n_tokens;
    char text[MAX_TEXT];
    uint64_t n_bytes;
} answer;

static void make_answer(void)
{
    afmoe_session *session = prompted();
    afmoe_sampler *sampler;
    assert_int_equal(afmoe_sampler_create(&sampler, model, NULL, NULL), AFMOE_OK);
    for (;;) {
        afmoe_token token;
        float logprob;
        assert_int_equal(afmoe_sampler_sample(sampler, session, n_prompt, &token, &logprob, NULL), AFMOE_OK);
        if (token == IM_END) break;
        assert_true(answer.n_tokens < 200);
        answer.logprobs[answer.n_tokens] = logprob;
        answer.tokens[answer.n_tokens++] = token;
        assert_int_equal(afmoe_session_append(session, &token, 1, NULL, NULL, NULL), AFMOE_OK);
    }
    assert_int_equal(afmoe_detokenize(model, answer.tokens, answer.n_tokens, 1, answer.text, MAX_TEXT,
                                      &answer.n_bytes, NULL),
                     AFMOE_OK);
    assert_true(answer.n_tokens > 40 && answer.n_bytes > 200);
    afmoe_sampler_free(sampler);
    afmoe_session_free(session);
}

static int set_up(void **state)
{
    static const char *const roles[] = {"user"}, *const contents[] = {"Tell me a story about a fox in the forest."};
    (void)state;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    if (afmoe_model_open(&model, model_path, NULL, &error) != AFMOE_OK) fail_msg("%s", error.message);
    assert_int_equal(afmoe_context_create(&context, model, NULL, NULL), AFMOE_OK);
    assert_int_equal(afmoe_chat_tokenize(model, roles, contents, 1, NULL, prompt, 64, &n_prompt, NULL), AFMOE_OK);
    make_answer();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    afmoe_context_free(context);
    afmoe_model_free(model);
    return 0;
}

static void assert_tokens(afmoe_session *session, uint64_t n_answer)
{
    afmoe_token tokens[MAX_TOKENS];
    assert_int_equal(timeline(session, tokens), n_prompt + n_answer);
    assert_memory_equal(tokens, prompt, n_prompt * sizeof *prompt);
    assert_memory_equal(tokens + n_prompt, answer.tokens, n_answer * sizeof *tokens);
}

static void until_the_stop_token(void **state)
{
    (void)state;
    struct sink *sink = new_sink();
    afmoe_session *session = prompted();
    afmoe_generate_options options = options_for(sink);
    afmoe_generate_result result;
    afmoe_generate_result_init(&result, sizeof result);
    options.n_top_logprobs = sink->n_top = 5;
    assert_int_equal(afmoe_generate(session, NULL, &options, &result, NULL), AFMOE_END);
    assert_int_equal(result.finish_reason, AFMOE_FINISH_STOP_TOKEN);
    assert_int_equal(result.stop_token, IM_END);
    assert_int_equal(result.stop_string, -1);
    assert_int_equal(result.n_generated, answer.n_tokens);
    assert_true(result.elapsed_ns > 0);
    assert_tokens(session, answer.n_tokens);
    assert_int_equal(sink->n_pieces, answer.n_tokens);
    assert_int_equal(sink->first_position, n_prompt);
    assert_memory_equal(sink->tokens, answer.tokens, answer.n_tokens * sizeof *answer.tokens);
    assert_memory_equal(sink->logprobs, answer.logprobs, answer.n_tokens * sizeof *answer.logprobs);
    assert_int_equal(sink->n_bytes, answer.n_bytes);
    assert_memory_equal(sink->text, answer.text, answer.n_bytes);
    afmoe_session_free(session);
    free(sink);
}

static void in_parts_as_in_one(void **state)
{
    (void)state;
    struct sink *sink = new_sink();
    afmoe_session *session = prompted();
    afmoe_generate_options options = options_for(sink);
    afmoe_generate_result result;
    afmoe_generate_result_init(&result, sizeof result);
    options.max_tokens = 0;
    assert_int_equal(afmoe_generate(session, NULL, &options, &result, NULL), AFMOE_OK);
    assert_int_equal(result.finish_reason, AFMOE_FINISH_LENGTH);
    assert_int_equal(result.n_generated, 0);
    for (uint64_t n = 0; n < 30; n += 10) {
        options.max_tokens = 10;
        assert_int_equal(afmoe_generate(session, NULL, &options, &result, NULL), AFMOE_OK);
        assert_int_equal(result.finish_reason, AFMOE_FINISH_LENGTH);
        assert_int_equal(result.n_generated, 10);
        assert_int_equal(result.stop_token, -1);
        assert_tokens(session, n + 10);
    }
    options.max_tokens = UINT64_MAX;
    assert_int_equal(afmoe_generate(session, NULL, &options, &result, NULL), AFMOE_END);
    assert_tokens(session, answer.n_tokens);
    assert_int_equal(sink->n_bytes, answer.n_bytes);
    assert_memory_equal(sink->text, answer.text, answer.n_bytes);
    afmoe_session_free(session);
    free(sink);
}

/* Every substring of some lengths: the text ends before its first occurrence. */
static void stop_strings_cut_the_text(void **state)
{
    (void)state;
    const uint64_t lengths[] = {1, 5, 23};
    for (uint64_t l = 0; l < 3; l++)
        for (uint64_t at = 0; at + lengths[l] <= answer.n_bytes; at += 37) {
            char string[64] = "";
            memcpy(string, answer.text + at, lengths[l]);
            const char *strings[] = {"not in the text", string};
            char text[MAX_TEXT] = "";
            memcpy(text, answer.text, answer.n_bytes);
            uint64_t expected = (uint64_t)(strstr(text, string) - text);

            struct sink *sink = new_sink();
            afmoe_session *session = prompted();
            afmoe_generate_options options = options_for(sink);
            afmoe_generate_result result;
            afmoe_generate_result_init(&result, sizeof result);
            options.stop_strings = strings;
            options.n_stop_strings = 2;
            assert_int_equal(afmoe_generate(session, NULL, &options, &result, NULL), AFMOE_END);
            assert_int_equal(result.finish_reason, AFMOE_FINISH_STOP_STRING);
            assert_int_equal(result.stop_string, 1);
            assert_int_equal(result.stop_token, -1);
            assert_int_equal(sink->n_bytes, expected);
            assert_memory_equal(sink->text, answer.text, expected);
            assert_tokens(session, result.n_generated);
            assert_int_equal(sink->n_pieces, result.n_generated);
            afmoe_session_free(session);
            free(sink);
        }
}

/* "fox" begins the stop string "foxtrot", so it waits; the end brings it. */
static void held_text_comes_at_the_end(void **state)
{
    (void)state;
    const char *strings[] = {"foxtrot"};
    char text[MAX_TEXT] = "";
    memcpy(text, answer.text, answer.n_bytes);
    assert_non_null(strstr(text, "fox"));
    struct sink *sink = new_sink();
    afmoe_session *session = prompted();
    afmoe_generate_options options = options_for(sink);
    options.stop_strings = strings;
    options.n_stop_strings = 1;
    options.max_tokens = 1;
    uint64_t n_last = 0;
    afmoe_status status;
    while ((status = afmoe_generate(session, NULL, &options, NULL, NULL)) == AFMOE_OK) {
        n_last += sink->n_last;
        sink->n_last = sink->n_pieces = 0;
    }
    assert_int_equal(status, AFMOE_END);
    assert_true(n_last > 0);
    assert_int_equal(sink->n_bytes, answer.n_bytes);
    assert_memory_equal(sink->text, answer.text, answer.n_bytes);
    afmoe_session_free(session);
    free(sink);
}

static void the_callback_can_stop(void **state)
{
    (void)state;
    struct sink *sink = new_sink();
    sink->refuse_at = 7;
    afmoe_session *session = prompted();
    afmoe_generate_options options = options_for(sink);
    afmoe_generate_result result;
    afmoe_generate_result_init(&result, sizeof result);
    assert_int_equal(afmoe_generate(session, NULL, &options, &result, NULL), AFMOE_CANCELLED);
    assert_int_equal(result.finish_reason, AFMOE_FINISH_CANCELLED);
    assert_int_equal(result.n_generated, 8); /* the refused one is in the timeline */
    assert_tokens(session, 8);
    sink->refuse_at = UINT64_MAX;
    assert_int_equal(afmoe_generate(session, NULL, &options, &result, NULL), AFMOE_END);
    assert_tokens(session, answer.n_tokens);
    assert_memory_equal(sink->text, answer.text, answer.n_bytes);
    afmoe_session_free(session);
    free(sink);
}

static void a_cancel_object_can_stop(void **state)
{
    (void)state;
    struct sink *sink = new_sink();
    assert_int_equal(afmoe_cancel_create(&sink->cancel, NULL), AFMOE_OK);
    sink->cancel_at = 4;
    afmoe_session *session = prompted();
    afmoe_generate_options options = options_for(sink);
    options.cancel = sink->cancel;
    afmoe_generate_result result;
    afmoe_generate_result_init(&result, sizeof result);
    for (int i = 0; i < 2; i++) { /* the second call does nothing: it is set still */
        assert_int_equal(afmoe_generate(session, NULL, &options, &result, NULL), AFMOE_CANCELLED);
        assert_int_equal(result.finish_reason, AFMOE_FINISH_CANCELLED);
        assert_int_equal(result.n_generated, i ? 0 : 5);
        assert_tokens(session, 5);
    }
    afmoe_cancel_clear(sink->cancel);
    sink->cancel_at = UINT64_MAX;
    assert_int_equal(afmoe_generate(session, NULL, &options, &result, NULL), AFMOE_END);
    assert_tokens(session, answer.n_tokens);
    afmoe_cancel_free(sink->cancel);
    afmoe_session_free(session);
    free(sink);
}

static void a_full_context_keeps_what_is_there(void **state)
{
    (void)state;
    afmoe_context *small;
    afmoe_session *session;
    afmoe_context_options context_options;
    afmoe_context_options_init(&context_options, sizeof context_options);
    context_options.max_tokens = n_prompt + 20;
    assert_int_equal(afmoe_context_create(&small, model, &context_options, NULL), AFMOE_OK);
    assert_int_equal(afmoe_session_create(&session, small, NULL), AFMOE_OK);
    assert_int_equal(afmoe_session_append(session, prompt, n_prompt, NULL, NULL, NULL), AFMOE_OK);
    struct sink *sink = new_sink();
    afmoe_generate_options options = options_for(sink);
    afmoe_generate_result result;
    afmoe_generate_result_init(&result, sizeof result);
    assert_int_equal(afmoe_generate(session, NULL, &options, &result, NULL), AFMOE_CONTEXT_FULL);
    assert_int_equal(result.finish_reason, AFMOE_FINISH_CONTEXT);
    assert_int_equal(result.n_generated, 20);
    assert_tokens(session, 20);
    char text[MAX_TEXT];
    uint64_t n_bytes;
    assert_int_equal(afmoe_detokenize(model, answer.tokens, 20, 1, text, MAX_TEXT, &n_bytes, NULL), AFMOE_OK);
    assert_int_equal(sink->n_bytes, n_bytes);
    assert_memory_equal(sink->text, text, n_bytes);
    afmoe_session_free(session);
    afmoe_context_free(small);
    free(sink);
}

static afmoe_sampler *make_sampler(const afmoe_sampler_options *options)
{
    afmoe_sampler *sampler;
    assert_int_equal(afmoe_sampler_create(&sampler, model, options, NULL), AFMOE_OK);
    return sampler;
}

static void the_seed_decides(void **state)
{
    (void)state;
    afmoe_token runs[4][MAX_TOKENS];
    for (int run = 0; run < 4; run++) { /* 0 and 1 alike, 2 in two calls, 3 with another seed */
        afmoe_sampler_options sampler_options;
        afmoe_sampler_options_init(&sampler_options, sizeof sampler_options);
        sampler_options.temperature = 2.0f;
        sampler_options.seed = run == 3 ? 12 : 11;
        afmoe_sampler *sampler = make_sampler(&sampler_options);
        afmoe_session *session = prompted();
        afmoe_generate_options options;
        afmoe_generate_options_init(&options, sizeof options);
        options.ignore_eos = 1;
        options.max_tokens = run == 2 ? 30 : 60;
        for (int part = 0; part < (run == 2 ? 2 : 1); part++)
            assert_int_equal(afmoe_generate(session, sampler, &options, NULL, NULL), AFMOE_OK);
        assert_int_equal(timeline(session, runs[run]), n_prompt + 60);
        afmoe_session_free(session);
        afmoe_sampler_free(sampler);
    }
    assert_memory_equal(runs[0], runs[1], (n_prompt + 60) * sizeof(afmoe_token));
    assert_memory_equal(runs[0], runs[2], (n_prompt + 60) * sizeof(afmoe_token));
    assert_memory_not_equal(runs[0], runs[3], (n_prompt + 60) * sizeof(afmoe_token));
}

/* A presence penalty no logit outweighs: no token twice, and none of the prompt where that counts as generated. */
static void n_prompt_parts_prompt_and_answer(void **state)
{
    (void)state;
    for (int count_prompt = 0; count_prompt < 2; count_prompt++) {
        afmoe_sampler_options sampler_options;
        afmoe_sampler_options_init(&sampler_options, sizeof sampler_options);
        sampler_options.presence_penalty = 100.0f;
        afmoe_sampler *sampler = make_sampler(&sampler_options);
        afmoe_session *session = prompted();
        afmoe_generate_options options;
        afmoe_generate_options_init(&options, sizeof options);
        options.ignore_eos = 1;
        options.max_tokens = 60;
        if (count_prompt) options.n_prompt = 0;
        assert_int_equal(afmoe_generate(session, sampler, &options, NULL, NULL), AFMOE_OK);
        afmoe_token tokens[MAX_TOKENS];
        uint64_t n = timeline(session, tokens), n_in_prompt = 0;
        for (uint64_t i = n_prompt; i < n; i++) {
            for (uint64_t j = n_prompt; j < i; j++) assert_int_not_equal(tokens[i], tokens[j]);
            for (uint64_t j = 0; j < n_prompt; j++) n_in_prompt += tokens[i] == tokens[j];
        }
        assert_true(count_prompt ? n_in_prompt == 0 : n_in_prompt > 0);
        afmoe_session_free(session);
        afmoe_sampler_free(sampler);
    }
}

/* Forced to emit the first byte of a two-byte character for ever: the text is valid UTF-8 all the same. */
static void broken_characters_become_replacements(void **state)
{
    (void)state;
    afmoe_token token;
    const float value = 1e30f;
    assert_int_equal(afmoe_token_find(model, "\xc3", 1, &token, NULL), AFMOE_OK);
    afmoe_sampler_options sampler_options;
    afmoe_sampler_options_init(&sampler_options, sizeof sampler_options);
    sampler_options.bias_tokens = &token;
    sampler_options.bias_values = &value;
    sampler_options.n_bias = 1;
    afmoe_sampler *sampler = make_sampler(&sampler_options);
    afmoe_session *session = prompted();
    struct sink *sink = new_sink();
    afmoe_generate_options options = options_for(sink);
    options.max_tokens = 3;
    assert_int_equal(afmoe_generate(session, sampler, &options, NULL, NULL), AFMOE_OK);
    assert_int_equal(sink->n_last, 1);
    assert_int_equal(sink->n_bytes, 9);
    assert_memory_equal(sink->text, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 9);
    /* a stop string in what only the end makes visible */
    const char *strings[] = {"\xef\xbf\xbd"};
    free(sink);
    sink = new_sink();
    options = options_for(sink);
    options.max_tokens = 1;
    options.stop_strings = strings;
    options.n_stop_strings = 1;
    afmoe_generate_result result;
    afmoe_generate_result_init(&result, sizeof result);
    assert_int_equal(afmoe_generate(session, sampler, &options, &result, NULL), AFMOE_END);
    assert_int_equal(result.finish_reason, AFMOE_FINISH_STOP_STRING);
    assert_int_equal(sink->n_bytes, 0);
    afmoe_session_free(session);
    afmoe_sampler_free(sampler);
    free(sink);
}

static void special_tokens_are_text_only_when_asked(void **state)
{
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        struct sink *sink = new_sink();
        afmoe_session *session = prompted();
        afmoe_generate_options options = options_for(sink);
        options.ignore_eos = 1;
        options.keep_special = keep;
        options.max_tokens = answer.n_tokens + 1;
        assert_int_equal(afmoe_generate(session, NULL, &options, NULL, NULL), AFMOE_OK);
        assert_int_equal(sink->tokens[answer.n_tokens], IM_END);
        assert_int_equal(sink->n_bytes, answer.n_bytes + (keep ? strlen("<|im_end|>") : 0));
        afmoe_session_free(session);
        free(sink);
    }
}

static void own_stop_tokens_stop(void **state)
{
    (void)state;
    afmoe_session *session = prompted();
    afmoe_generate_options options;
    afmoe_generate_result result;
    afmoe_generate_options_init(&options, sizeof options);
    afmoe_generate_result_init(&result, sizeof result);
    options.stop_tokens = &answer.tokens[3];
    options.n_stop_tokens = 1;
    options.ignore_eos = 1; /* is about the model's own set only */
    assert_int_equal(afmoe_generate(session, NULL, &options, &result, NULL), AFMOE_END);
    assert_int_equal(result.stop_token, answer.tokens[3]);
    assert_int_equal(result.n_generated, 3);
    assert_tokens(session, 3);
    afmoe_session_free(session);
}

static void refuse(afmoe_session *session, const afmoe_generate_options *options, afmoe_status status,
                   const char *message)
{
    afmoe_error error;
    afmoe_generate_result result;
    afmoe_error_init(&error, sizeof error);
    afmoe_generate_result_init(&result, sizeof result);
    assert_int_equal(afmoe_generate(session, NULL, options, &result, &error), status);
    assert_string_equal(error.message, message);
    assert_int_equal(result.finish_reason, AFMOE_FINISH_ERROR);
    assert_int_equal(result.n_generated, 0);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    afmoe_generate_options options;
    const afmoe_token bad = 2112;
    afmoe_session *session = prompted();
    afmoe_generate_options_init(&options, sizeof options);
    options.n_top_logprobs = 1025;
    refuse(session, &options, AFMOE_INVALID, "n_top_logprobs is 1025, allowed are 0..1024");
    afmoe_generate_options_init(&options, sizeof options);
    options.n_stop_tokens = 1;
    refuse(session, &options, AFMOE_INVALID, "n_stop_tokens is 1 but stop_tokens is NULL");
    options.stop_tokens = &bad;
    refuse(session, &options, AFMOE_INVALID, "stop_tokens[0] is 2112, allowed are 0..2111");
    afmoe_generate_options_init(&options, sizeof options);
    options.n_stop_strings = 65;
    refuse(session, &options, AFMOE_INVALID, "n_stop_strings is 65, allowed are 0..64");
    afmoe_generate_options_init(&options, sizeof options);
    options.ignore_eos = 2;
    refuse(session, &options, AFMOE_INVALID, "ignore_eos is 2, allowed are 0 and 1");
    afmoe_generate_options_init(&options, sizeof options);
    options.keep_special = -1;
    refuse(session, &options, AFMOE_INVALID, "keep_special is -1, allowed are 0 and 1");
    afmoe_generate_options_init(&options, sizeof options);
    options.reserved = 1;
    refuse(session, &options, AFMOE_INVALID, "afmoe_generate_options: reserved is 1, must be 0");
    afmoe_session_free(session);

    assert_int_equal(afmoe_session_create(&session, context, NULL), AFMOE_OK);
    afmoe_generate_options_init(&options, sizeof options);
    refuse(session, &options, AFMOE_STATE, "the session has no logits to start from: append tokens first");
    afmoe_session_free(session);
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    model_path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(until_the_stop_token),
        cmocka_unit_test(in_parts_as_in_one),
        cmocka_unit_test(stop_strings_cut_the_text),
        cmocka_unit_test(held_text_comes_at_the_end),
        cmocka_unit_test(the_callback_can_stop),
        cmocka_unit_test(a_cancel_object_can_stop),
        cmocka_unit_test(a_full_context_keeps_what_is_there),
        cmocka_unit_test(the_seed_decides),
        cmocka_unit_test(n_prompt_parts_prompt_and_answer),
        cmocka_unit_test(broken_characters_become_replacements),
        cmocka_unit_test(special_tokens_are_text_only_when_asked),
        cmocka_unit_test(own_stop_tokens_stop),
        cmocka_unit_test(bad_options_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
