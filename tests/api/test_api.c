/* The public border: arguments, structs of other sizes, errors, ranges, buffers, and what a model says of itself. */
#include "harness.h"

#include "test_paths.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 2112 }; /* of the text model */

static afmoe_error error;
static afmoe_model *text_model;
static afmoe_context *context;
static afmoe_session *session; /* with four tokens */

static int open_all(void **state)
{
    static const afmoe_token some[] = {5, 6, 7, 8};
    char path[PATH_BYTES];
    (void)state;
    error = fresh_error();
    text_model = open_model(text_model_path(path));
    context = open_context(text_model, NULL);
    session = open_session(context);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, some, 4, NULL, NULL, &error));
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    afmoe_session_free(session);
    afmoe_context_free(context);
    afmoe_model_free(text_model);
    return 0;
}

/* ---- NULL ---- */

#define INVALID(call) CHECK_STATUS(AFMOE_INVALID, call)

static void null_is_fine_to_free_and_retain(void **state)
{
    (void)state;
    afmoe_model_free(NULL);
    afmoe_model_retain(NULL);
    afmoe_context_free(NULL);
    afmoe_session_free(NULL);
    afmoe_sampler_free(NULL);
    afmoe_stream_decoder_free(NULL);
    afmoe_cancel_free(NULL);
    afmoe_cancel_retain(NULL);
    afmoe_cancel_set(NULL);
    afmoe_cancel_clear(NULL);
    assert_int_equal(afmoe_cancel_is_set(NULL), 0);
}

static void null_handles_are_invalid(void **state)
{
    uint64_t n;
    float x;
    const float *view;
    afmoe_token token;
    afmoe_model_info model_info;
    afmoe_context_info context_info;
    afmoe_session_stats stats;
    afmoe_sampler_options sampler_options;
    (void)state;
    afmoe_model_info_init(&model_info, sizeof model_info);
    afmoe_context_info_init(&context_info, sizeof context_info);
    afmoe_session_stats_init(&stats, sizeof stats);
    afmoe_sampler_options_init(&sampler_options, sizeof sampler_options);
    INVALID(afmoe_model_get_info(NULL, &model_info, &error));
    INVALID(afmoe_model_stop_tokens(NULL, &token, 1, &n, &error));
    INVALID(afmoe_model_sampler_options(NULL, &sampler_options, &error));
    INVALID(afmoe_tokenize(NULL, "a", 1, NULL, &token, 1, &n, &error));
    INVALID(afmoe_detokenize(NULL, &token, 0, 0, NULL, 0, &n, &error));
    INVALID(afmoe_token_text(NULL, 0, NULL, NULL, NULL, &error));
    INVALID(afmoe_token_find(NULL, "a", 1, &token, &error));
    INVALID(afmoe_chat_tokenize(NULL, NULL, NULL, 0, NULL, NULL, 0, &n, &error));
    INVALID(afmoe_context_get_info(NULL, &context_info, &error));
    INVALID(afmoe_session_append(NULL, &token, 0, NULL, NULL, &error));
    INVALID(afmoe_session_sync(NULL, &token, 0, NULL, NULL, &error));
    INVALID(afmoe_session_rewind(NULL, 0, NULL, NULL, &error));
    INVALID(afmoe_session_tokens(NULL, &token, 1, &n, &error));
    INVALID(afmoe_session_logits(NULL, &x, 1, &n, &error));
    INVALID(afmoe_session_logits_view(NULL, &view, &n, &error));
    INVALID(afmoe_session_logprobs(NULL, &x, 1, &n, &error));
    INVALID(afmoe_session_hidden(NULL, &x, 1, &n, &error));
    INVALID(afmoe_session_get_stats(NULL, &stats, &error));
    INVALID(afmoe_session_top_logprobs(NULL, &token, &x, 1, &n, &error));
    INVALID(afmoe_sampler_sample(NULL, session, 0, &token, NULL, &error));
    INVALID(afmoe_sampler_sample_logits(NULL, &x, 1, NULL, 0, 0, &token, NULL, &error));
    INVALID(afmoe_stream_decoder_push(NULL, 0, (const char **)&view, &n, &error));
    INVALID(afmoe_stream_decoder_finish(NULL, (const char **)&view, &n, &error));
    INVALID(afmoe_generate(NULL, NULL, NULL, NULL, &error));
    assert_non_null(strstr(error.message, "session is NULL"));
}

static void null_outs_and_inputs_are_invalid(void **state)
{
    uint64_t n;
    float x;
    afmoe_token token;
    afmoe_model *model = text_model;
    afmoe_context *no_context = context;
    afmoe_session *no_session = session;
    afmoe_sampler *sampler;
    afmoe_stream_decoder *decoder;
    const char *role = "user", *none = NULL;
    (void)state;
    INVALID(afmoe_model_open(NULL, "x", NULL, &error));
    INVALID(afmoe_model_open(&model, NULL, NULL, &error));
    assert_null(model); /* a failing call leaves NULL, never an old pointer */
    INVALID(afmoe_context_create(NULL, text_model, NULL, &error));
    INVALID(afmoe_context_create(&no_context, NULL, NULL, &error));
    assert_null(no_context);
    INVALID(afmoe_session_create(NULL, context, &error));
    INVALID(afmoe_session_create(&no_session, NULL, &error));
    assert_null(no_session);
    INVALID(afmoe_cancel_create(NULL, &error));
    INVALID(afmoe_sampler_create(NULL, text_model, NULL, &error));
    INVALID(afmoe_sampler_create(&sampler, NULL, NULL, &error));
    INVALID(afmoe_stream_decoder_create(NULL, text_model, 0, &error));
    INVALID(afmoe_stream_decoder_create(&decoder, NULL, 0, &error));
    INVALID(afmoe_stream_decoder_create(&decoder, text_model, 2, &error));
    INVALID(afmoe_model_get_info(text_model, NULL, &error));
    INVALID(afmoe_model_sampler_options(text_model, NULL, &error));
    INVALID(afmoe_context_get_info(context, NULL, &error));
    INVALID(afmoe_session_get_stats(session, NULL, &error));
    INVALID(afmoe_tokenize(text_model, NULL, 1, NULL, &token, 1, &n, &error));
    INVALID(afmoe_detokenize(text_model, NULL, 1, 0, NULL, 0, &n, &error));
    INVALID(afmoe_detokenize(text_model, &token, 0, -1, NULL, 0, &n, &error));
    INVALID(afmoe_token_text(text_model, -1, NULL, NULL, NULL, &error));
    INVALID(afmoe_token_text(text_model, VOCAB, NULL, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_token_text(text_model, 0, NULL, NULL, NULL, &error));
    INVALID(afmoe_token_find(text_model, NULL, 1, &token, &error));
    INVALID(afmoe_token_find(text_model, "a", 1, NULL, &error));
    CHECK_STATUS(AFMOE_NOT_FOUND, afmoe_token_find(text_model, "", 0, &token, &error));
    INVALID(afmoe_chat_tokenize(text_model, NULL, &role, 1, NULL, NULL, 0, &n, &error));
    INVALID(afmoe_chat_tokenize(text_model, &role, NULL, 1, NULL, NULL, 0, &n, &error));
    INVALID(afmoe_chat_tokenize(text_model, &none, &role, 1, NULL, NULL, 0, &n, &error));
    INVALID(afmoe_chat_tokenize(text_model, &role, &none, 1, NULL, NULL, 0, &n, &error));
    afmoe_chat_options chat;
    afmoe_chat_options_init(&chat, sizeof chat);
    chat.add_generation_prompt = 7;
    INVALID(afmoe_chat_tokenize(text_model, &role, &role, 1, &chat, NULL, 0, &n, &error));
    INVALID(afmoe_session_logits_view(session, NULL, &n, &error));
    INVALID(afmoe_session_top_logprobs(session, NULL, &x, 1, &n, &error));
    INVALID(afmoe_session_top_logprobs(session, &token, NULL, 1, &n, &error));
    INVALID(afmoe_session_top_logprobs(session, &token, &x, 1, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_top_logprobs(session, NULL, NULL, 0, &n, &error));
    assert_int_equal(n, 0);
}

static void sampler_arguments(void **state)
{
    float logits[VOCAB] = {0};
    const afmoe_token far[] = {1, VOCAB};
    afmoe_token token;
    afmoe_sampler *sampler;
    (void)state;
    CHECK_STATUS(AFMOE_OK, afmoe_sampler_create(&sampler, text_model, NULL, &error));
    INVALID(afmoe_sampler_sample(sampler, NULL, 0, &token, NULL, &error));
    INVALID(afmoe_sampler_sample(sampler, session, 0, NULL, NULL, &error));
    INVALID(afmoe_sampler_sample_logits(sampler, NULL, VOCAB, NULL, 0, 0, &token, NULL, &error));
    INVALID(afmoe_sampler_sample_logits(sampler, logits, VOCAB - 1, NULL, 0, 0, &token, NULL, &error));
    INVALID(afmoe_sampler_sample_logits(sampler, logits, VOCAB, NULL, 1, 0, &token, NULL, &error));
    INVALID(afmoe_sampler_sample_logits(sampler, logits, VOCAB, far, 2, 0, &token, NULL, &error));
    CHECK_STATUS(AFMOE_OK,
                 afmoe_sampler_sample_logits(sampler, logits, VOCAB, far, 1, UINT64_MAX, &token, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_sampler_sample(sampler, session, UINT64_MAX, &token, NULL, &error));
    afmoe_session *empty = open_session(context);
    CHECK_STATUS(AFMOE_STATE, afmoe_sampler_sample(sampler, empty, 0, &token, NULL, &error));
    CHECK_STATUS(AFMOE_STATE, afmoe_generate(empty, sampler, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_STATE, afmoe_generate(empty, NULL, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_STATE, afmoe_session_logits(empty, logits, VOCAB, NULL, &error));
    afmoe_session_free(empty);
    afmoe_sampler_free(sampler);
}

static void samplers_belong_to_a_model(void **state)
{
    char path[PATH_BYTES];
    afmoe_token token;
    afmoe_sampler *sampler;
    afmoe_model *other = open_model(text_model_path(path));
    (void)state;
    CHECK_STATUS(AFMOE_OK, afmoe_sampler_create(&sampler, other, NULL, &error));
    CHECK_STATUS(AFMOE_STATE, afmoe_generate(session, sampler, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_STATE, afmoe_sampler_sample(sampler, session, 0, &token, NULL, &error));
    assert_int_equal(n_tokens_of(session), 4);
    afmoe_sampler_free(sampler);
    afmoe_model_free(other);
}

/* ---- Structs of other sizes ---- */

/* One struct of the border: its defaults, and a call that takes it and succeeds with the defaults. */
struct border_struct {
    const char *name;
    uint32_t bytes, alignment;
    bool comes_out;
    void (*init)(void *s, uint32_t size);
    afmoe_status (*call)(void *s);
};

union any_struct {
    uint32_t size;
    unsigned char bytes[1024];
    uint64_t aligned;
};

static afmoe_status call_model_open(void *s)
{
    char path[PATH_BYTES];
    afmoe_model *model;
    afmoe_status status = afmoe_model_open(&model, text_model_path(path), s, &error);
    if (status == AFMOE_OK) afmoe_model_free(model);
    return status;
}

static afmoe_status call_tokenize(void *s)
{
    afmoe_token out[8];
    uint64_t n;
    return afmoe_tokenize(text_model, "a b", 3, s, out, 8, &n, &error);
}

static afmoe_status call_context_create(void *s)
{
    afmoe_context *other;
    afmoe_status status = afmoe_context_create(&other, text_model, s, &error);
    if (status == AFMOE_OK) afmoe_context_free(other);
    return status;
}

static afmoe_status call_append(void *s)
{
    return afmoe_session_append(session, NULL, 0, s, NULL, &error);
}

static afmoe_status call_sync_out(void *s)
{
    static const afmoe_token some[] = {5, 6, 7, 8};
    return afmoe_session_sync(session, some, 4, NULL, s, &error);
}

static afmoe_status call_sampler_create(void *s)
{
    afmoe_sampler *sampler;
    afmoe_status status = afmoe_sampler_create(&sampler, text_model, s, &error);
    if (status == AFMOE_OK) afmoe_sampler_free(sampler);
    return status;
}

static afmoe_status generate_nothing(afmoe_generate_options *options, afmoe_generate_result *result)
{
    afmoe_session *one = open_session(context);
    static const afmoe_token token = 5;
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(one, &token, 1, NULL, NULL, &error));
    afmoe_status status = afmoe_generate(one, NULL, options, result, &error);
    afmoe_session_free(one);
    return status == AFMOE_END ? AFMOE_OK : status;
}

static afmoe_status call_generate(void *s)
{
    return generate_nothing(s, NULL);
}

static afmoe_status call_generate_out(void *s)
{
    afmoe_generate_options options;
    afmoe_generate_options_init(&options, sizeof options);
    options.max_tokens = 0;
    return generate_nothing(&options, s);
}

static afmoe_status call_model_info(void *s)
{
    return afmoe_model_get_info(text_model, s, &error);
}

static afmoe_status call_tensor(void *s)
{
    return afmoe_model_get_tensor(text_model, 0, s, &error);
}

static afmoe_status call_context_info(void *s)
{
    return afmoe_context_get_info(context, s, &error);
}

static afmoe_status call_stats(void *s)
{
    return afmoe_session_get_stats(session, s, &error);
}

static afmoe_status call_sampler_options(void *s)
{
    return afmoe_model_sampler_options(text_model, s, &error);
}

#define INIT_OF(name) \
    static void init_##name(void *s, uint32_t size) \
    { \
        afmoe_##name##_init(s, size); \
    }
INIT_OF(model_options)
INIT_OF(tokenize_options)
INIT_OF(context_options)
INIT_OF(append_options)
INIT_OF(sampler_options)
INIT_OF(generate_options)
INIT_OF(model_info)
INIT_OF(context_info)
INIT_OF(append_result)
INIT_OF(session_stats)
INIT_OF(generate_result)
INIT_OF(tensor_info)

#define BORDER(name, comes_out, call)                                                                                  \
    {"afmoe_" #name, sizeof(afmoe_##name), _Alignof(afmoe_##name), comes_out, init_##name, call}
static const struct border_struct border[] = {
    BORDER(model_options, false, call_model_open),     BORDER(tokenize_options, false, call_tokenize),
    BORDER(context_options, false, call_context_create), BORDER(append_options, false, call_append),
    BORDER(sampler_options, false, call_sampler_create), BORDER(generate_options, false, call_generate),
    BORDER(model_info, true, call_model_info),         BORDER(context_info, true, call_context_info),
    BORDER(append_result, true, call_sync_out),        BORDER(session_stats, true, call_stats),
    BORDER(generate_result, true, call_generate_out),  BORDER(sampler_options, true, call_sampler_options),
    BORDER(tensor_info, true, call_tensor)};
enum { N_BORDER = sizeof border / sizeof *border };

static void sizes_that_are_no_struct(void **state)
{
    (void)state;
    for (int b = 0; b < N_BORDER; b++) {
        /* The last ones end within a field, which would be half the caller's, half the default. */
        const uint32_t sizes[] = {0, 1, 3, 4, border[b].bytes - 1, border[b].bytes - border[b].alignment / 2, 999};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            union any_struct s = {.size = 0};
            border[b].init(&s, border[b].bytes);
            s.size = sizes[i];
            if (border[b].call(&s) != AFMOE_INVALID) fail_msg("%s of %u bytes", border[b].name, sizes[i]);
            assert_non_null(strstr(error.message, border[b].name));
            assert_non_null(strstr(error.message, "_init"));
        }
    }
}

/* An older caller's struct ends early: what lies behind it is neither read nor written. */
static void smaller_structs(void **state)
{
    (void)state;
    for (int b = 0; b < N_BORDER; b++)
        for (uint32_t size = 8; size < border[b].bytes; size += 8) {
            union any_struct s;
            memset(&s, 0xa5, sizeof s);
            border[b].init(&s, size);
            afmoe_status status = border[b].call(&s);
            if (status != AFMOE_OK) fail_msg("%s of %u bytes: %s", border[b].name, size, error.message);
            assert_int_equal(s.size, size);
            for (size_t i = size; i < sizeof s; i++) assert_int_equal(s.bytes[i], 0xa5);
        }
}

static void larger_structs(void **state)
{
    (void)state;
    for (int b = 0; b < N_BORDER; b++) {
        union any_struct s;
        memset(&s, 0, sizeof s);
        border[b].init(&s, 1000);
        if (border[b].call(&s) != AFMOE_OK) fail_msg("%s with a tail of zeros: %s", border[b].name, error.message);
        assert_int_equal(s.size, 1000);
        for (uint32_t i = border[b].bytes; i < sizeof s; i++) assert_int_equal(s.bytes[i], 0);
        if (border[b].comes_out) continue;
        const uint32_t ends[] = {border[b].bytes, 999}; /* of 1000 */
        for (int end = 0; end < 2; end++) {
            uint32_t at = ends[end];
            s.bytes[at] = 1;
            if (border[b].call(&s) != AFMOE_UNSUPPORTED) fail_msg("%s with byte %u set", border[b].name, at);
            assert_non_null(strstr(error.message, border[b].name));
            s.bytes[at] = 0;
        }
    }
}

/* The out structs of a smaller size get the same leading bytes. */
static void out_structs_are_cut(void **state)
{
    (void)state;
    for (int b = 0; b < N_BORDER; b++) {
        union any_struct full, cut;
        if (!border[b].comes_out || border[b].call == call_generate_out) continue; /* has a time in it */
        border[b].init(&full, border[b].bytes);
        border[b].init(&cut, border[b].bytes);
        cut.size = 16;
        assert_int_equal(border[b].call(&full), AFMOE_OK);
        assert_int_equal(border[b].call(&cut), AFMOE_OK);
        assert_memory_equal(cut.bytes + 4, full.bytes + 4, 12);
    }
}

static void reserved_fields_must_be_zero(void **state)
{
    afmoe_model_options model_options;
    afmoe_append_options append_options;
    afmoe_sampler_options sampler_options;
    afmoe_generate_options generate_options;
    (void)state;
    afmoe_model_options_init(&model_options, sizeof model_options);
    afmoe_append_options_init(&append_options, sizeof append_options);
    afmoe_sampler_options_init(&sampler_options, sizeof sampler_options);
    afmoe_generate_options_init(&generate_options, sizeof generate_options);
    model_options.reserved = append_options.reserved = sampler_options.reserved = generate_options.reserved = 1;
    assert_int_equal(call_model_open(&model_options), AFMOE_INVALID);
    model_options.reserved = 0;
    model_options.reserved_2 = 1;
    assert_int_equal(call_model_open(&model_options), AFMOE_INVALID);
    assert_int_equal(call_append(&append_options), AFMOE_INVALID);
    assert_int_equal(call_sampler_create(&sampler_options), AFMOE_INVALID);
    assert_int_equal(call_generate(&generate_options), AFMOE_INVALID);
    assert_non_null(strstr(error.message, "afmoe_generate_options: reserved is 1"));
}

/* ---- Errors ---- */

static void errors_of_every_size(void **state)
{
    static const uint32_t sizes[] = {0, 4, 8, 9, 12, 20, 100, sizeof(afmoe_error), sizeof(afmoe_error) + 8};
    char full[sizeof error.message];
    (void)state;
    INVALID(afmoe_session_create(&(afmoe_session *){NULL}, NULL, &error));
    memcpy(full, error.message, sizeof full);
    assert_int_equal(error.code, AFMOE_INVALID);
    assert_true(strlen(full) > 12);
    assert_int_equal(afmoe_session_create(&(afmoe_session *){NULL}, NULL, NULL), AFMOE_INVALID);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        union any_struct s;
        afmoe_error *given = (afmoe_error *)(void *)&s;
        memset(&s, 0xa5, sizeof s);
        s.size = sizes[i];
        assert_int_equal(afmoe_session_create(&(afmoe_session *){NULL}, NULL, given), AFMOE_INVALID);
        for (size_t at = sizes[i] < 8 ? 4 : sizes[i]; at < sizeof s; at++) assert_int_equal(s.bytes[at], 0xa5);
        if (sizes[i] <= 8) continue;
        size_t room = sizes[i] - 8, length = strlen(full) < room ? strlen(full) : room - 1;
        assert_int_equal(given->code, AFMOE_INVALID);
        assert_memory_equal(given->message, full, length);
        assert_int_equal(given->message[length], 0);
    }
}

static void success_leaves_the_error_alone(void **state)
{
    char hub[PATH_BYTES];
    afmoe_error kept;
    afmoe_model *model;
    (void)state;
    memset(&error, 0x5a, sizeof error);
    error.size = sizeof error;
    kept = error;
    assert_int_equal(call_model_open(NULL), AFMOE_OK);
    for (int b = 0; b < N_BORDER; b++) {
        union any_struct s;
        border[b].init(&s, border[b].bytes);
        assert_int_equal(border[b].call(&s), AFMOE_OK);
    }
    if (small_model_path(hub, "tiny-bias")) { /* without optional files */
        assert_int_equal(afmoe_model_open(&model, hub, NULL, &error), AFMOE_OK);
        afmoe_model_free(model);
    }
    assert_memory_equal(&error, &kept, sizeof error);
    error = fresh_error();
}

/* ---- Ranges of options ---- */

static void check_context(afmoe_status expected, const afmoe_context_options *options, const char *in_message)
{
    afmoe_context *made;
    CHECK_STATUS(expected, afmoe_context_create(&made, text_model, options, &error));
    if (expected != AFMOE_OK) {
        assert_null(made);
        if (!strstr(error.message, in_message)) fail_msg("\"%s\" lacks \"%s\"", error.message, in_message);
    }
    afmoe_context_free(made);
}

#define TRY_CONTEXT(field, value, expected, in_message) \
    do { \
        afmoe_context_options options_ = two_threads(); \
        options_.field = value; \
        check_context(expected, &options_, in_message); \
    } while (0)

static void context_ranges(void **state)
{
    (void)state;
    TRY_CONTEXT(n_threads, 0, AFMOE_INVALID, "n_threads is 0, allowed are 1..256");
    TRY_CONTEXT(n_threads, -2, AFMOE_INVALID, "1..256");
    TRY_CONTEXT(n_threads, 257, AFMOE_INVALID, "1..256");
    TRY_CONTEXT(n_threads, INT32_MIN, AFMOE_INVALID, "1..256");
    TRY_CONTEXT(n_threads, -1, AFMOE_OK, "");
    TRY_CONTEXT(n_threads, 1, AFMOE_OK, "");
    TRY_CONTEXT(cpu_level, -2, AFMOE_INVALID, "-1..5");
    TRY_CONTEXT(cpu_level, 6, AFMOE_INVALID, "-1..5");
    TRY_CONTEXT(cpu_level, AFMOE_CPU_C, AFMOE_OK, "");
    if (afmoe_cpu_level() < AFMOE_CPU_AVX512BF16)
        TRY_CONTEXT(cpu_level, afmoe_cpu_level() + 1, AFMOE_UNSUPPORTED, afmoe_cpu_level_name(afmoe_cpu_level()));
    TRY_CONTEXT(precision, 0, AFMOE_INVALID, "1..2");
    TRY_CONTEXT(precision, 3, AFMOE_INVALID, "1..2");
    TRY_CONTEXT(precision, AFMOE_PRECISION_EXACT, AFMOE_OK, "");
    TRY_CONTEXT(cells, -1, AFMOE_INVALID, "0..4");
    TRY_CONTEXT(cells, 5, AFMOE_INVALID, "0..4");
    TRY_CONTEXT(cells, AFMOE_CELLS_AUTO, AFMOE_OK, "");
    TRY_CONTEXT(cells, AFMOE_CELLS_BF16, AFMOE_OK, "");
    TRY_CONTEXT(cells, AFMOE_CELLS_Q8_0, AFMOE_OK, "");
    TRY_CONTEXT(chunk_tokens, 0, AFMOE_INVALID, "1..4096");
    TRY_CONTEXT(chunk_tokens, 4097, AFMOE_INVALID, "1..4096");
    TRY_CONTEXT(chunk_tokens, 4096, AFMOE_OK, "");
    TRY_CONTEXT(max_tokens, 0, AFMOE_INVALID, "1..2048");
    TRY_CONTEXT(max_tokens, 2049, AFMOE_INVALID, "1..2048");
    TRY_CONTEXT(max_tokens, 4096, AFMOE_INVALID, "1..2048"); /* the usual default, when it is stated */
    TRY_CONTEXT(max_tokens, UINT64_MAX - 1, AFMOE_INVALID, "1..2048");
    TRY_CONTEXT(max_tokens, UINT64_MAX, AFMOE_OK, "");
    TRY_CONTEXT(max_tokens, 1, AFMOE_OK, "");
    TRY_CONTEXT(max_tokens, 2048, AFMOE_OK, "");
    TRY_CONTEXT(rewind_tokens, ((uint64_t)1 << 32) + 1, AFMOE_INVALID, "0..2^32");
    TRY_CONTEXT(rewind_tokens, (uint64_t)1 << 32, AFMOE_OK, "");
    TRY_CONTEXT(max_page_bytes, 0, AFMOE_OK, "");
}

static void check_sampler(afmoe_status expected, const afmoe_sampler_options *options, const char *in_message)
{
    afmoe_sampler *made;
    CHECK_STATUS(expected, afmoe_sampler_create(&made, text_model, options, &error));
    if (expected != AFMOE_OK) {
        assert_null(made);
        if (!strstr(error.message, in_message)) fail_msg("\"%s\" lacks \"%s\"", error.message, in_message);
    }
    afmoe_sampler_free(made);
}

#define TRY_SAMPLER(field, value, expected, in_message) \
    do { \
        afmoe_sampler_options options_; \
        afmoe_sampler_options_init(&options_, sizeof options_); \
        options_.field = value; \
        check_sampler(expected, &options_, in_message); \
    } while (0)

#define TRY_INTERVAL(field, least, most, in_message) \
    do { \
        TRY_SAMPLER(field, least, AFMOE_OK, ""); \
        TRY_SAMPLER(field, most, AFMOE_OK, ""); \
        TRY_SAMPLER(field, nextafterf(least, -INFINITY), AFMOE_INVALID, in_message); \
        TRY_SAMPLER(field, nextafterf(most, INFINITY), AFMOE_INVALID, in_message); \
        TRY_SAMPLER(field, NAN, AFMOE_INVALID, in_message); \
        TRY_SAMPLER(field, INFINITY, AFMOE_INVALID, in_message); \
    } while (0)

static void sampler_ranges(void **state)
{
    (void)state;
    TRY_INTERVAL(temperature, 0.0f, 100.0f, "temperature is");
    TRY_INTERVAL(temperature, 0.0f, 100.0f, "0..100");
    TRY_INTERVAL(top_p, 0.0f, 1.0f, "0..1");
    TRY_INTERVAL(min_p, 0.0f, 1.0f, "0..1");
    TRY_INTERVAL(repetition_penalty, 0.01f, 100.0f, "0.01..100");
    TRY_INTERVAL(presence_penalty, -100.0f, 100.0f, "-100..100");
    TRY_INTERVAL(frequency_penalty, -100.0f, 100.0f, "-100..100");
    TRY_SAMPLER(top_k, 0, AFMOE_INVALID, "1..4294967296");
    TRY_SAMPLER(top_k, ((uint64_t)1 << 32) + 1, AFMOE_INVALID, "1..4294967296");
    TRY_SAMPLER(top_k, 1, AFMOE_OK, "");
    TRY_SAMPLER(n_bias, 1, AFMOE_INVALID, "NULL");
}

static void bias_ranges(void **state)
{
    static const struct {
        afmoe_token token;
        float value;
        afmoe_status status;
    } cases[] = {{0, 1e30f, AFMOE_OK},      {VOCAB - 1, -1e30f, AFMOE_OK}, {0, -INFINITY, AFMOE_OK},
                 {0, 2e30f, AFMOE_INVALID}, {0, INFINITY, AFMOE_INVALID},  {0, NAN, AFMOE_INVALID},
                 {-1, 0, AFMOE_INVALID},    {VOCAB, 0, AFMOE_INVALID}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        afmoe_sampler_options options;
        afmoe_sampler_options_init(&options, sizeof options);
        options.bias_tokens = &cases[i].token;
        options.bias_values = &cases[i].value;
        options.n_bias = 1;
        check_sampler(cases[i].status, &options, "bias_");
    }
}

static void check_model_options(afmoe_status expected, afmoe_model_options *options, const char *in_message)
{
    assert_int_equal(call_model_open(options), expected);
    if (expected != AFMOE_OK) assert_non_null(strstr(error.message, in_message));
}

static void model_and_text_ranges(void **state)
{
    afmoe_model_options options;
    afmoe_tokenize_options text_options;
    uint64_t n;
    (void)state;
    afmoe_model_options_init(&options, sizeof options);
    options.max_json_bytes = 0;
    check_model_options(AFMOE_INVALID, &options, "1..1073741824");
    options.max_json_bytes = ((uint64_t)1 << 30) + 1;
    check_model_options(AFMOE_INVALID, &options, "1..1073741824");
    options.max_json_bytes = (uint64_t)1 << 30;
    check_model_options(AFMOE_OK, &options, "");
    options.strict = 2;
    check_model_options(AFMOE_INVALID, &options, "strict is 2");
    options.strict = 1;
    options.tokenizer_only = -1;
    check_model_options(AFMOE_INVALID, &options, "tokenizer_only is -1");

    afmoe_tokenize_options_init(&text_options, sizeof text_options);
    text_options.special = 3;
    INVALID(afmoe_tokenize(text_model, "a", 1, &text_options, NULL, 0, &n, &error));
    text_options.special = AFMOE_SPECIAL_RANGES;
    text_options.n_special_ranges = 1;
    INVALID(afmoe_tokenize(text_model, "a", 1, &text_options, NULL, 0, &n, &error));
    text_options.special_ranges = (const uint64_t[]){0, 2};
    INVALID(afmoe_tokenize(text_model, "a", 1, &text_options, NULL, 0, &n, &error));
    text_options.special = AFMOE_SPECIAL_NONE;
    text_options.max_text_bytes = 2;
    CHECK_STATUS(AFMOE_LIMIT, afmoe_tokenize(text_model, "abc", 3, &text_options, NULL, 0, &n, &error));
}

static void check_generate(afmoe_status expected, const afmoe_generate_options *options, const char *in_message)
{
    CHECK_STATUS(expected, generate_nothing((afmoe_generate_options *)options, NULL));
    if (expected != AFMOE_OK && !strstr(error.message, in_message))
        fail_msg("\"%s\" lacks \"%s\"", error.message, in_message);
}

#define TRY_GENERATE(assignments, expected, in_message) \
    do { \
        afmoe_generate_options o; \
        afmoe_generate_options_init(&o, sizeof o); \
        o.max_tokens = 2; \
        assignments; \
        check_generate(expected, &o, in_message); \
    } while (0)

static void generate_ranges(void **state)
{
    static const char *const strings[] = {"xyz", "uvw"};
    static const uint64_t lengths[] = {0, 3};
    const char *none[] = {NULL};
    const afmoe_token far = VOCAB;
    (void)state;
    TRY_GENERATE(o.ignore_eos = 2, AFMOE_INVALID, "ignore_eos is 2");
    TRY_GENERATE(o.keep_special = -1, AFMOE_INVALID, "keep_special is -1");
    TRY_GENERATE(o.n_top_logprobs = 1025, AFMOE_INVALID, "0..1024");
    TRY_GENERATE(o.n_top_logprobs = 1024, AFMOE_OK, "");
    TRY_GENERATE(o.n_stop_tokens = 1, AFMOE_INVALID, "stop_tokens is NULL");
    TRY_GENERATE((o.n_stop_tokens = 1, o.stop_tokens = &far), AFMOE_INVALID, "0..2111");
    TRY_GENERATE(o.n_stop_strings = 1, AFMOE_INVALID, "NULL");
    TRY_GENERATE((o.n_stop_strings = 65, o.stop_strings = strings), AFMOE_INVALID, "0..64");
    TRY_GENERATE((o.n_stop_strings = 1, o.stop_strings = none), AFMOE_INVALID, "NULL");
    TRY_GENERATE((o.n_stop_strings = 2, o.stop_strings = strings), AFMOE_OK, "");
    TRY_GENERATE((o.n_stop_strings = 1, o.stop_strings = strings, o.stop_string_bytes = lengths), AFMOE_INVALID, "0");
    TRY_GENERATE(o.n_prompt = 1000000, AFMOE_OK, "");
    TRY_GENERATE(o.n_prompt = 0, AFMOE_OK, "");
}

/* ---- Buffers ---- */

typedef afmoe_status (*buffer_fn)(void *out, uint64_t capacity, uint64_t *out_n);

static afmoe_status buffer_stop_tokens(void *out, uint64_t capacity, uint64_t *out_n)
{
    return afmoe_model_stop_tokens(text_model, out, capacity, out_n, &error);
}

static afmoe_status buffer_tokenize(void *out, uint64_t capacity, uint64_t *out_n)
{
    return afmoe_tokenize(text_model, "one two three", 13, NULL, out, capacity, out_n, &error);
}

static afmoe_status buffer_detokenize(void *out, uint64_t capacity, uint64_t *out_n)
{
    static const afmoe_token some[] = {300, 301, 302};
    return afmoe_detokenize(text_model, some, 3, 0, out, capacity, out_n, &error);
}

static afmoe_status buffer_chat(void *out, uint64_t capacity, uint64_t *out_n)
{
    const char *role = "user", *content = "hello";
    return afmoe_chat_tokenize(text_model, &role, &content, 1, NULL, out, capacity, out_n, &error);
}

static afmoe_status buffer_session_tokens(void *out, uint64_t capacity, uint64_t *out_n)
{
    return afmoe_session_tokens(session, out, capacity, out_n, &error);
}

static afmoe_status buffer_logits(void *out, uint64_t capacity, uint64_t *out_n)
{
    return afmoe_session_logits(session, out, capacity, out_n, &error);
}

static afmoe_status buffer_logprobs(void *out, uint64_t capacity, uint64_t *out_n)
{
    return afmoe_session_logprobs(session, out, capacity, out_n, &error);
}

static afmoe_status buffer_hidden(void *out, uint64_t capacity, uint64_t *out_n)
{
    return afmoe_session_hidden(session, out, capacity, out_n, &error);
}

static void capacities(void **state)
{
    static const struct {
        buffer_fn call;
        uint64_t element_bytes;
    } buffers[] = {{buffer_stop_tokens, 4}, {buffer_tokenize, 4}, {buffer_detokenize, 1}, {buffer_chat, 4},
                   {buffer_session_tokens, 4}, {buffer_logits, 4}, {buffer_logprobs, 4}, {buffer_hidden, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        uint64_t n = 0, again = 0;
        CHECK_STATUS(AFMOE_CAPACITY, buffers[i].call(NULL, 0, &n));
        assert_true(n > 0);
        uint64_t n_bytes = n * buffers[i].element_bytes;
        unsigned char *bytes = malloc(n_bytes); /* exact: ASan sees a byte too many */
        memset(bytes, 0x7e, n_bytes);
        CHECK_STATUS(AFMOE_CAPACITY, buffers[i].call(bytes, n - 1, &again));
        assert_int_equal(again, n);
        for (uint64_t b = 0; b < n_bytes; b++) assert_int_equal(bytes[b], 0x7e);
        CHECK_STATUS(AFMOE_OK, buffers[i].call(bytes, n, &again));
        assert_int_equal(again, n);
        CHECK_STATUS(AFMOE_INVALID, buffers[i].call(NULL, 1, &again));
        free(bytes);
    }
}

static void nothing_fits_anywhere(void **state)
{
    uint64_t n = 7;
    afmoe_session *empty = open_session(context);
    (void)state;
    CHECK_STATUS(AFMOE_OK, afmoe_session_tokens(empty, NULL, 0, &n, &error));
    assert_int_equal(n, 0);
    CHECK_STATUS(AFMOE_OK, afmoe_tokenize(text_model, NULL, 0, NULL, NULL, 0, &n, &error));
    assert_int_equal(n, 0);
    CHECK_STATUS(AFMOE_OK, afmoe_detokenize(text_model, NULL, 0, 0, NULL, 0, &n, &error));
    assert_int_equal(n, 0);
    afmoe_session_free(empty);
}

/* ---- What a model is ---- */

static void pico_says_what_it_is(void **state)
{
    afmoe_model_info info = info_of(text_model);
    (void)state;
    assert_int_equal(info.container, AFMOE_CONTAINER_GGUF);
    assert_int_equal(info.layout, AFMOE_LAYOUT_GGUF);
    assert_true(info.has_weights == 1 && info.has_tokenizer == 1);
    assert_int_equal(info.eos_token, 3);
    assert_true(info.n_layers == 4 && info.n_dense_layers == 1 && info.n_full_layers == 1);
    assert_true(info.n_heads == 4 && info.n_kv_heads == 2 && info.head_dim == 64);
    assert_true(info.n_experts == 8 && info.n_experts_per_token == 2 && info.n_shared_experts == 1);
    assert_true(info.vocab_size == VOCAB && info.n_tokens > 0 && info.n_tokens <= VOCAB);
    assert_true(info.hidden_size == 256 && info.max_positions == 2048 && info.sliding_window == 128);
    assert_true(info.weight_bytes > info.n_parameters && info.weight_bytes < 2 * info.n_parameters); /* Q8_0 mostly */
}

/* n_parameters and weight_bytes of float32 tensors, summed up from the config. */
static void tiny_says_what_it_is(void **state)
{
    char path[PATH_BYTES];
    (void)state;
    afmoe_model *model = open_model(small_model_path(path, "tiny-bias"));
    afmoe_model_info info = info_of(model);
    /* q, k and v, o, gate; norms of q and k; biases of q, k, v, o */
    uint64_t attention = 64 * 32 + 2 * 32 * 32 + 32 * 64 + 64 * 32 + 2 * 16 + 64 + 32 + 32 + 32;
    uint64_t moe = 4 + 4 * 32 + 5 * 3 * 16 * 32;
    uint64_t expected = 2 * 96 * 32 + 32 + 4 * (attention + 4 * 32) + 3 * 48 * 32 + 3 * moe;
    assert_int_equal(info.container, AFMOE_CONTAINER_SAFETENSORS);
    assert_int_equal(info.layout, AFMOE_LAYOUT_HUB);
    assert_true(info.has_weights == 1 && info.has_tokenizer == 0 && info.n_tokens == 0);
    assert_true(info.bos_token == 0 && info.eos_token == 3 && info.pad_token == 12);
    assert_true(info.vocab_size == 96 && info.hidden_size == 32 && info.max_positions == 512);
    assert_true(info.sliding_window == 6 && info.n_full_layers == 1 && info.n_layers == 4);
    assert_int_equal(info.n_parameters, expected);
    assert_int_equal(info.weight_bytes, 4 * expected);
    afmoe_model_free(model);
}

static void stop_sets(void **state)
{
    afmoe_token stops[8];
    uint64_t n;
    char path[PATH_BYTES];
    (void)state;
    CHECK_STATUS(AFMOE_OK, afmoe_model_stop_tokens(text_model, stops, 8, &n, &error));
    assert_int_equal(n, 2); /* the eos is <|im_end|> itself */
    assert_int_equal(stops[0], 3);
    afmoe_token end_of_text;
    CHECK_STATUS(AFMOE_OK, afmoe_token_find(text_model, "<|end_of_text|>", 15, &end_of_text, &error));
    assert_int_equal(stops[1], end_of_text);
    afmoe_model *model = open_model(small_model_path(path, "tiny-bias"));
    CHECK_STATUS(AFMOE_OK, afmoe_model_stop_tokens(model, stops, 8, &n, &error));
    assert_true(n == 1 && stops[0] == 3);
    afmoe_model_free(model);
}

/* generation_config.json: its eos ids are the whole stop set, in its order; what it recommends replaces defaults. */
static void generation_config_is_heeded(void **state)
{
    char from[PATH_BYTES], path[PATH_BYTES];
    afmoe_token stops[8];
    uint64_t n;
    afmoe_sampler_options options;
    (void)state;
    make_variant(path, small_model_path(from, "tiny-bias"), NULL, NULL);
    add_to_variant(path, "generation_config.json",
                   "{\"eos_token_id\": [7, 5, 7], \"temperature\": 0.25, \"top_k\": 0, \"top_p\": 0.5, "
                   "\"min_p\": 0.125, \"repetition_penalty\": 1.5}");
    afmoe_model *model = open_model(path);
    CHECK_STATUS(AFMOE_OK, afmoe_model_stop_tokens(model, stops, 8, &n, &error));
    assert_true(n == 2 && stops[0] == 7 && stops[1] == 5);
    afmoe_sampler_options_init(&options, sizeof options);
    CHECK_STATUS(AFMOE_OK, afmoe_model_sampler_options(model, &options, &error));
    assert_true(options.temperature == 0.25f && options.top_p == 0.5f && options.min_p == 0.125f);
    assert_true(options.repetition_penalty == 1.5f && options.top_k == (uint64_t)1 << 32);
    afmoe_model_free(model);
    remove_variant(path);
}

static void hub_recommends(void **state)
{
    char path[PATH_BYTES];
    afmoe_token stops[8];
    uint64_t n;
    afmoe_sampler_options options;
    (void)state;
    if (!shared_path(path, sizeof path, "pico/hub", "recommendations of the text model's hub folder")) return;
    afmoe_model *model = open_model(path);
    afmoe_sampler_options_init(&options, sizeof options);
    CHECK_STATUS(AFMOE_OK, afmoe_model_sampler_options(model, &options, &error));
    assert_true(options.temperature == 0.3f && options.top_p == 0.8f);
    assert_true(options.top_k == (uint64_t)1 << 32 && options.min_p == 0 && options.repetition_penalty == 1);
    CHECK_STATUS(AFMOE_OK, afmoe_model_stop_tokens(model, stops, 8, &n, &error));
    assert_true(n == 2 && stops[0] == 3 && stops[1] == 1);
    afmoe_model_free(model);
}

/* ---- Models that have only a part ---- */

static void tokenizer_alone(void **state)
{
    char path[PATH_BYTES];
    afmoe_model_options options;
    afmoe_model *model;
    afmoe_context *none;
    afmoe_token ids[8];
    uint64_t n;
    (void)state;
    afmoe_model_options_init(&options, sizeof options);
    options.tokenizer_only = 1;
    CHECK_STATUS(AFMOE_OK, afmoe_model_open(&model, text_model_path(path), &options, &error));
    afmoe_model_info info = info_of(model);
    assert_true(info.has_weights == 0 && info.has_tokenizer == 1 && info.layout == AFMOE_LAYOUT_NONE);
    assert_true(info.n_layers == 0 && info.n_parameters == 0 && info.vocab_size > 0 && info.eos_token == 3);
    CHECK_STATUS(AFMOE_STATE, afmoe_context_create(&none, model, NULL, &error));
    assert_null(none);
    CHECK_STATUS(AFMOE_OK, afmoe_tokenize(model, "hello", 5, NULL, ids, 8, &n, &error));
    afmoe_model_free(model);
    if (small_model_path(path, "tiny-bias"))
        CHECK_STATUS(AFMOE_NOT_FOUND, afmoe_model_open(&model, path, &options, &error));
}

static void model_without_tokenizer(void **state)
{
    static const afmoe_token some[] = {1, 2, 3};
    char path[PATH_BYTES];
    afmoe_token token;
    uint64_t n;
    afmoe_stream_decoder *decoder;
    const char *text = "a";
    (void)state;
    afmoe_model *model = open_model(small_model_path(path, "tiny-bias"));
    afmoe_context *small = open_context(model, NULL);
    afmoe_session *one = open_session(small);
    CHECK_STATUS(AFMOE_UNSUPPORTED, afmoe_tokenize(model, "a", 1, NULL, &token, 1, &n, &error));
    CHECK_STATUS(AFMOE_UNSUPPORTED, afmoe_detokenize(model, some, 1, 0, NULL, 0, &n, &error));
    CHECK_STATUS(AFMOE_UNSUPPORTED, afmoe_token_text(model, 0, NULL, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_UNSUPPORTED, afmoe_token_find(model, "a", 1, &token, &error));
    CHECK_STATUS(AFMOE_UNSUPPORTED, afmoe_chat_tokenize(model, &text, &text, 1, NULL, NULL, 0, &n, &error));
    CHECK_STATUS(AFMOE_UNSUPPORTED, afmoe_stream_decoder_create(&decoder, model, 0, &error));
    assert_non_null(strstr(error.message, "tokenizer"));
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(one, some, 3, NULL, NULL, &error));
    afmoe_generate_options options;
    afmoe_generate_result result;
    afmoe_generate_options_init(&options, sizeof options);
    afmoe_generate_result_init(&result, sizeof result);
    options.max_tokens = 5;
    options.ignore_eos = 1;
    CHECK_STATUS(AFMOE_OK, afmoe_generate(one, NULL, &options, &result, &error));
    assert_true(result.n_generated == 5 && result.finish_reason == AFMOE_FINISH_LENGTH);
    options.n_stop_strings = 1;
    options.stop_strings = &text;
    CHECK_STATUS(AFMOE_UNSUPPORTED, afmoe_generate(one, NULL, &options, &result, &error));
    afmoe_session_free(one);
    afmoe_context_free(small);
    afmoe_model_free(model);
}

static void missing_paths(void **state)
{
    afmoe_model *model = text_model;
    char from[PATH_BYTES], path[PATH_BYTES], inside[PATH_BYTES + 64];
    (void)state;
    CHECK_STATUS(AFMOE_NOT_FOUND, afmoe_model_open(&model, "/does/not/exist", NULL, &error));
    assert_null(model);
    assert_non_null(strstr(error.message, "/does/not/exist"));
    CHECK_STATUS(AFMOE_NOT_FOUND, afmoe_model_open(&model, "", NULL, &error));
    make_variant(path, small_model_path(from, "tiny-bias"), NULL, NULL);
    snprintf(inside, sizeof inside, "%s/config.json", path);
    CHECK_STATUS(AFMOE_FORMAT, afmoe_model_open(&model, inside, NULL, &error));
    assert_int_equal(remove(inside), 0);
    CHECK_STATUS(AFMOE_NOT_FOUND, afmoe_model_open(&model, path, NULL, &error));
    remove_variant(path);
}

/* ---- Logs ---- */

struct log_lines {
    int n[2];
    char last[256];
};

static void keep_line(void *user, int32_t level, const char *message)
{
    struct log_lines *lines = user;
    lines->n[level]++;
    snprintf(lines->last, sizeof lines->last, "%s", message);
}

/* A bias the config does not speak of is surplus. */
static void log_gets_warnings(void **state)
{
    char from[PATH_BYTES], path[PATH_BYTES];
    struct log_lines lines = {{0}, ""};
    afmoe_model_options options;
    afmoe_model *model;
    (void)state;
    make_variant(path, small_model_path(from, "tiny-bias"), "attention_bias", "false");
    afmoe_model_options_init(&options, sizeof options);
    options.log = keep_line;
    options.log_data = &lines;
    CHECK_STATUS(AFMOE_OK, afmoe_model_open(&model, path, &options, &error));
    afmoe_model_free(model);
    assert_int_equal(lines.n[AFMOE_LOG_WARNING], 1);
    assert_non_null(strstr(lines.last, "16 tensors"));
    options.strict = 1;
    CHECK_STATUS(AFMOE_FORMAT, afmoe_model_open(&model, path, &options, &error));
    assert_non_null(strstr(error.message, "16 tensors"));
    remove_variant(path);

    afmoe_context_options context_options = two_threads();
    context_options.log = keep_line;
    context_options.log_data = &lines;
    afmoe_context_free(open_context(text_model, &context_options));
    assert_int_equal(lines.n[AFMOE_LOG_INFO], 1);
    assert_non_null(strstr(lines.last, afmoe_cpu_level_name(afmoe_cpu_level())));
}

/* ---- Names ---- */

static void names_and_versions(void **state)
{
    char version[32];
    (void)state;
    snprintf(version, sizeof version, "%d.%d.%d", AFMOE_VERSION_MAJOR, AFMOE_VERSION_MINOR, AFMOE_VERSION_PATCH);
    assert_string_equal(afmoe_version_string(), version);
    assert_int_equal(afmoe_version(),
                     AFMOE_VERSION_MAJOR * 1000000 + AFMOE_VERSION_MINOR * 1000 + AFMOE_VERSION_PATCH);
    assert_string_equal(afmoe_status_name(AFMOE_OK), "AFMOE_OK");
    assert_string_equal(afmoe_status_name(AFMOE_END), "AFMOE_END");
    assert_string_equal(afmoe_status_name(2), "AFMOE_UNKNOWN");
    assert_string_equal(afmoe_status_name(-17), "AFMOE_UNKNOWN");
    assert_string_equal(afmoe_status_name(INT32_MIN), "AFMOE_UNKNOWN");
    for (afmoe_status status = AFMOE_INTERNAL; status < 0; status++)
        assert_true(strcmp(afmoe_status_name(status), "AFMOE_UNKNOWN") != 0);
    assert_string_equal(afmoe_cpu_level_name(AFMOE_CPU_C), "c");
    assert_string_equal(afmoe_cpu_level_name(6), "unknown");
    assert_string_equal(afmoe_cpu_level_name(-1), "unknown");
    assert_string_equal(afmoe_cpu_level_name(INT32_MAX), "unknown");
    assert_non_null(strstr(afmoe_build_features(), "Q8_0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_is_fine_to_free_and_retain),
        cmocka_unit_test(null_handles_are_invalid),
        cmocka_unit_test(null_outs_and_inputs_are_invalid),
        cmocka_unit_test(sampler_arguments),
        cmocka_unit_test(samplers_belong_to_a_model),
        cmocka_unit_test(sizes_that_are_no_struct),
        cmocka_unit_test(smaller_structs),
        cmocka_unit_test(larger_structs),
        cmocka_unit_test(out_structs_are_cut),
        cmocka_unit_test(reserved_fields_must_be_zero),
        cmocka_unit_test(errors_of_every_size),
        cmocka_unit_test(success_leaves_the_error_alone),
        cmocka_unit_test(context_ranges),
        cmocka_unit_test(sampler_ranges),
        cmocka_unit_test(bias_ranges),
        cmocka_unit_test(model_and_text_ranges),
        cmocka_unit_test(generate_ranges),
        cmocka_unit_test(capacities),
        cmocka_unit_test(nothing_fits_anywhere),
        cmocka_unit_test(pico_says_what_it_is),
        cmocka_unit_test(tiny_says_what_it_is),
        cmocka_unit_test(stop_sets),
        cmocka_unit_test(generation_config_is_heeded),
        cmocka_unit_test(hub_recommends),
        cmocka_unit_test(tokenizer_alone),
        cmocka_unit_test(model_without_tokenizer),
        cmocka_unit_test(missing_paths),
        cmocka_unit_test(log_gets_warnings),
        cmocka_unit_test(names_and_versions),
    };
    return cmocka_run_group_tests_name("api", tests, open_all, close_all);
}
