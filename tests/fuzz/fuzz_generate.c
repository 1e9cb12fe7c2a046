/* Options of contexts, samplers, appends and generation, in and out of their ranges, on a tiny model: every answer is a
 * documented one, what a refused call left is what was there, and the session computes on. */
#include "fuzz.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* A struct's size as an older or newer caller may give it. */
static uint32_t choose_struct_size(struct choices *c, uint32_t full)
{
    uint8_t how = choose_u8(c);
    if (how < 240) return full;
    return how < 248 ? choose_u8(c) % full : full + choose_u8(c) % 8;
}

static int32_t choose_flag(struct choices *c)
{
    uint8_t how = choose_u8(c);
    return how < 250 ? how & 1 : (int32_t)choose_u32(c);
}

static int32_t choose_reserved(struct choices *c)
{
    return choose_u8(c) == 255;
}

/* One of the vocabulary, seldom any number. */
static afmoe_token choose_token(struct choices *c)
{
    if (choose_u8(c) < 250) return (afmoe_token)choose_below(c, TINY_IDS);
    return (afmoe_token)choose_u32(c);
}

/* In a larger room, so that a size above the struct's has something behind it. */
#define OPTIONS(type, name)                                                                                            \
    union {                                                                                                            \
        type x;                                                                                                        \
        uint8_t room[sizeof(type) + 8];                                                                                \
    } name;                                                                                                            \
    memset(&name, 0, sizeof name);                                                                                     \
    type##_init(&name.x, sizeof name.x);                                                                              \
    if (choose_u8(c) == 255) name.room[sizeof(type) + 3] = 1

static afmoe_context *make_context(struct choices *c)
{
    static const int32_t threads[] = {1, 1, 1, 2, 3, 0, -1, -2, 257, INT32_MIN, INT32_MAX};
    afmoe_context *context = NULL;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    OPTIONS(afmoe_context_options, options);
    options.x.n_threads = threads[choose_below(c, sizeof threads / sizeof *threads)];
    uint8_t which = choose_u8(c);
    if (which & 1) options.x.cpu_level = (int32_t)choose_below(c, 9) - 2;
    if (which & 2) options.x.cells = (int32_t)choose_below(c, 6);
    if (which & 4) options.x.chunk_tokens = (uint32_t)choose_size(c);
    if (which & 8) options.x.max_tokens = choose_size(c);
    if (which & 16) options.x.rewind_tokens = choose_size(c);
    if (which & 32) options.x.max_page_bytes = choose_size(c);
    if ((which & 192) == 192) options.x.precision = (int32_t)choose_below(c, 4);
    options.x.size = choose_struct_size(c, sizeof options.x);
    CHECK_ONE_OF(afmoe_context_create(&context, tiny_model(), &options.x, &error), AFMOE_OK, AFMOE_INVALID,
                 AFMOE_UNSUPPORTED);
    if (context) {
        afmoe_context_info info;
        afmoe_context_info_init(&info, sizeof info);
        CHECK_ONE_OF(afmoe_context_get_info(context, &info, &error), AFMOE_OK);
        REQUIRE(info.n_threads >= 1 && info.chunk_tokens >= 1 && info.max_tokens >= 1 && info.max_tokens <= 128);
        return context;
    }
    afmoe_context_options plain;
    afmoe_context_options_init(&plain, sizeof plain);
    plain.n_threads = 1;
    CHECK_ONE_OF(afmoe_context_create(&context, tiny_model(), &plain, &error), AFMOE_OK);
    return context;
}

static afmoe_sampler *make_sampler(struct choices *c)
{
    afmoe_sampler *sampler = NULL;
    afmoe_token tokens[8];
    float values[8];
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    OPTIONS(afmoe_sampler_options, options);
    uint8_t which = choose_u8(c);
    options.x.temperature = which & 1 ? choose_float(c) : 1;
    if (which & 2) options.x.top_p = choose_float(c);
    if (which & 4) options.x.min_p = choose_float(c);
    if (which & 8) options.x.repetition_penalty = choose_float(c);
    if (which & 16) options.x.presence_penalty = choose_float(c);
    if (which & 32) options.x.frequency_penalty = choose_float(c);
    if (which & 64) options.x.top_k = choose_size(c);
    options.x.seed = choose_u8(c);
    options.x.reserved = choose_reserved(c);
    if (which & 128) {
        options.x.n_bias = choose_below(c, 9);
        for (uint64_t i = 0; i < options.x.n_bias; i++) {
            tokens[i] = choose_token(c);
            values[i] = choose_float(c);
        }
        options.x.bias_tokens = choose_u8(c) < 250 ? tokens : NULL;
        options.x.bias_values = choose_u8(c) < 250 ? values : NULL;
    }
    options.x.size = choose_struct_size(c, sizeof options.x);
    CHECK_ONE_OF(afmoe_sampler_create(&sampler, tiny_model(), &options.x, &error), AFMOE_OK, AFMOE_INVALID,
                 AFMOE_UNSUPPORTED);
    return sampler;
}

static uint64_t length_of(afmoe_session *session)
{
    afmoe_session_stats stats;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_session_stats_init(&stats, sizeof stats);
    CHECK_ONE_OF(afmoe_session_get_stats(session, &stats, &error), AFMOE_OK);
    return stats.n_tokens;
}

static bool has_logits(afmoe_session *session)
{
    const float *logits;
    uint64_t n;
    return afmoe_session_logits_view(session, &logits, &n, NULL) == AFMOE_OK;
}

static int32_t stop_progress(void *user_data, uint64_t done, uint64_t total)
{
    REQUIRE(done <= total);
    return *(int32_t *)user_data;
}

enum { MOST_TOKENS = 24, MOST_POSITIONS = 4, HIDDEN = 32 };

static void append(struct choices *c, afmoe_session *session)
{
    static float logits[MOST_POSITIONS * TINY_IDS], hidden[MOST_POSITIONS * HIDDEN], logprobs[256];
    afmoe_token tokens[MOST_TOKENS];
    uint64_t positions[MOST_POSITIONS], before = length_of(session), n = choose_below(c, MOST_TOKENS + 1);
    int32_t stop = choose_u8(c) > 250;
    bool had_logits = has_logits(session);
    afmoe_append_result result;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_append_result_init(&result, sizeof result);
    OPTIONS(afmoe_append_options, options);
    for (uint64_t i = 0; i < n; i++) tokens[i] = choose_token(c);
    uint8_t which = choose_u8(c);
    if (which & 1) {
        options.x.progress = stop_progress;
        options.x.progress_data = &stop;
    }
    if (which & 2) {
        options.x.logprob_begin = choose_u8(c) < 200 ? before + choose_below(c, 8) : choose_size(c);
        options.x.logprob_end = choose_u8(c) < 200 ? options.x.logprob_begin + choose_below(c, 16) : choose_size(c);
        options.x.out_logprobs = choose_u8(c) < 250 ? logprobs : NULL;
    }
    if (which & 4) {
        options.x.n_positions = choose_below(c, MOST_POSITIONS + 1);
        for (uint64_t i = 0; i < options.x.n_positions; i++)
            positions[i] = choose_u8(c) < 220 ? before + i * (1 + choose_below(c, 4)) : choose_size(c);
        options.x.positions = choose_u8(c) < 250 ? positions : NULL;
        options.x.out_logits = which & 8 ? logits : NULL;
        options.x.logits_capacity = which & 8 ? sizeof logits / sizeof *logits - choose_below(c, 2) * 1000 : 0;
        options.x.out_hidden = which & 16 ? hidden : NULL;
        options.x.hidden_capacity = which & 16 ? sizeof hidden / sizeof *hidden - choose_below(c, 2) * 100 : 0;
    }
    options.x.reserved = choose_reserved(c);
    options.x.size = choose_struct_size(c, sizeof options.x);
    afmoe_status status;
    if (which & 32) {
        status = CHECK_ONE_OF(afmoe_session_sync(session, tokens, n, &options.x, &result, &error), AFMOE_OK,
                              AFMOE_INVALID, AFMOE_CONTEXT_FULL, AFMOE_CANCELLED, AFMOE_UNSUPPORTED, AFMOE_CAPACITY,
                              AFMOE_NUMERIC);
        REQUIRE(status != AFMOE_OK || length_of(session) == n);
    } else {
        status = CHECK_ONE_OF(afmoe_session_append(session, tokens, n, &options.x, &result, &error), AFMOE_OK,
                              AFMOE_INVALID, AFMOE_CONTEXT_FULL, AFMOE_CANCELLED, AFMOE_UNSUPPORTED, AFMOE_CAPACITY,
                              AFMOE_NUMERIC, AFMOE_STATE);
        REQUIRE(status != AFMOE_OK || length_of(session) == before + n);
        REQUIRE(status != AFMOE_STATE || (options.x.logprob_begin == before && !had_logits));
    }
    if (status != AFMOE_OK && status != AFMOE_CANCELLED && status != AFMOE_NUMERIC)
        REQUIRE(length_of(session) == before);
}

struct listener {
    uint32_t n, stop_after;
    uint64_t n_bytes;
};

static int32_t listen(void *user_data, const afmoe_piece *piece)
{
    struct listener *listener = user_data;
    REQUIRE(piece->size == sizeof *piece && piece->token >= -1 && piece->token < TINY_IDS);
    for (uint64_t i = 0; i < piece->text_bytes; i++) listener->n_bytes += piece->text[i] != 0;
    for (uint64_t i = 0; i < piece->n_top; i++) {
        REQUIRE(piece->top_tokens[i] >= 0 && piece->top_tokens[i] < TINY_IDS && !isnan(piece->top_logprobs[i]));
        REQUIRE(i == 0 || piece->top_logprobs[i] <= piece->top_logprobs[i - 1]);
    }
    return ++listener->n == listener->stop_after;
}

/* The same piece by piece, for a while. */
static void pull(afmoe_session *session, afmoe_sampler *sampler, const afmoe_generate_options *options,
                 struct listener *listener)
{
    afmoe_generation *generation;
    afmoe_generate_result result;
    afmoe_piece piece;
    afmoe_error error;
    uint64_t before = length_of(session), n_most = listener->stop_after % 16;
    afmoe_error_init(&error, sizeof error);
    afmoe_piece_init(&piece, sizeof piece);
    afmoe_generate_result_init(&result, sizeof result);
    if (CHECK_ONE_OF(afmoe_generation_create(&generation, session, sampler, options, &error), AFMOE_OK, AFMOE_INVALID,
                     AFMOE_STATE, AFMOE_UNSUPPORTED) != AFMOE_OK) {
        REQUIRE(length_of(session) == before && !generation);
        return;
    }
    for (uint64_t i = 0; i < n_most; i++) {
        if (CHECK_ONE_OF(afmoe_generation_next(generation, &piece, &error), AFMOE_OK, AFMOE_END, AFMOE_CONTEXT_FULL,
                         AFMOE_NUMERIC) != AFMOE_OK)
            break;
        listen(listener, &piece);
    }
    CHECK_ONE_OF(afmoe_generation_get_result(generation, &result, &error), AFMOE_OK);
    REQUIRE(result.n_generated == length_of(session) - before);
    afmoe_generation_free(generation);
}

static void generate(struct choices *c, afmoe_session *session, afmoe_sampler *sampler)
{
    static const char *const texts[] = {"a", "the", "\n\n", "", "\xff", "<|im_end|>", "\xe4\xb8\x80", "aaaaaaab", NULL};
    const char *strings[70];
    uint64_t string_bytes[70], before = length_of(session);
    afmoe_token stop_tokens[4];
    struct listener listener = {.stop_after = choose_u8(c)};
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    OPTIONS(afmoe_generate_options, options);
    OPTIONS(afmoe_generate_result, result);
    uint8_t which = choose_u8(c);
    options.x.max_tokens = choose_below(c, 12);
    options.x.ignore_eos = choose_flag(c);
    options.x.keep_special = choose_flag(c);
    if (which & 1) options.x.n_prompt = choose_size(c);
    if (which & 2) {
        options.x.n_stop_tokens = choose_below(c, 5);
        for (uint64_t i = 0; i < options.x.n_stop_tokens; i++) stop_tokens[i] = choose_token(c);
        options.x.stop_tokens = choose_u8(c) < 250 ? stop_tokens : NULL;
    }
    if (which & 4) {
        options.x.n_stop_strings = choose_u8(c) < 240 ? choose_below(c, 4) : choose_below(c, 70);
        for (uint64_t i = 0; i < options.x.n_stop_strings; i++) {
            uint8_t text = choose_u8(c);
            strings[i] = texts[text < 240 ? text % 3 : text % 9];
            string_bytes[i] = strings[i] ? choose_u8(c) % (strlen(strings[i]) + 1) : 0;
        }
        options.x.stop_strings = choose_u8(c) < 250 ? strings : NULL;
        options.x.stop_string_bytes = which & 8 ? string_bytes : NULL;
    }
    if (which & 16) options.x.n_top_logprobs = choose_u8(c) < 200 ? choose_below(c, 8) : choose_size(c);
    if (which & 32) {
        options.x.on_piece = listen;
        options.x.on_piece_data = &listener;
    }
    options.x.reserved = choose_reserved(c);
    options.x.size = choose_struct_size(c, sizeof options.x);
    if (which >= 192) {
        options.x.max_draft = which >> 1 & 7;
        pull(session, sampler, &options.x, &listener);
        return;
    }
    result.x.size = choose_struct_size(c, sizeof result.x);
    if (choose_u8(c) == 255) result.x.size = 0;
    /* An older caller's struct may end before max_tokens: then the session's limit ends it. */
    afmoe_status status = CHECK_ONE_OF(
        afmoe_generate(session, sampler, &options.x, &result.x, &error), AFMOE_OK, AFMOE_END, AFMOE_INVALID,
        AFMOE_STATE, AFMOE_CANCELLED, AFMOE_CONTEXT_FULL, AFMOE_NUMERIC, AFMOE_UNSUPPORTED);
    uint64_t after = length_of(session);
    REQUIRE(after >= before);
    if (status == AFMOE_INVALID || status == AFMOE_STATE || status == AFMOE_UNSUPPORTED) REQUIRE(after == before);
    if (status >= 0 && result.x.size >= 16) REQUIRE(result.x.n_generated == after - before);
}

static void sample(struct choices *c, afmoe_session *session, afmoe_sampler *sampler)
{
    static float logits[TINY_IDS];
    afmoe_token history[4], token = -1, tops[8];
    float logprob, top_logprobs[8];
    uint64_t n = choose_below(c, 5), n_top;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    for (int i = 0; i < TINY_IDS; i++) logits[i] = (float)(i % 7);
    for (int i = 0; i < 4; i++) {
        logits[choose_below(c, TINY_IDS)] = choose_float(c);
        history[i] = choose_token(c);
    }
    if (sampler) {
        afmoe_status status =
            CHECK_ONE_OF(afmoe_sampler_sample_logits(sampler, logits, choose_u8(c) < 250 ? TINY_IDS : choose_size(c),
                                                     history, n, choose_size(c), &token, &logprob, &error),
                         AFMOE_OK, AFMOE_INVALID, AFMOE_NUMERIC);
        REQUIRE(status != AFMOE_OK || (token >= 0 && token < TINY_IDS));
        status = CHECK_ONE_OF(afmoe_sampler_sample(sampler, session, choose_size(c), &token, NULL, &error), AFMOE_OK,
                              AFMOE_STATE, AFMOE_NUMERIC, AFMOE_INVALID);
        REQUIRE(status != AFMOE_OK || (token >= 0 && token < TINY_IDS));
    }
    CHECK_ONE_OF(afmoe_session_top_logprobs(session, tops, top_logprobs, choose_below(c, 9), &n_top, &error), AFMOE_OK,
                 AFMOE_STATE, AFMOE_INVALID);
}

static void embed(struct choices *c, afmoe_session *session)
{
    float vector[HIDDEN];
    afmoe_token tokens[MOST_TOKENS];
    uint64_t n = choose_below(c, MOST_TOKENS + 1), n_out = 0;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    for (uint64_t i = 0; i < n; i++) tokens[i] = choose_token(c);
    int32_t pooling = (int32_t)choose_below(c, 4), normalize = choose_flag(c);
    afmoe_status status = CHECK_ONE_OF(
        afmoe_session_embed(session, tokens, n, pooling, normalize, NULL, vector, choose_below(c, HIDDEN + 1), &n_out,
                            &error), AFMOE_OK, AFMOE_INVALID, AFMOE_CAPACITY, AFMOE_CONTEXT_FULL, AFMOE_NUMERIC);
    for (uint64_t i = 0; i < HIDDEN && status == AFMOE_OK; i++) REQUIRE(isfinite(vector[i]));
    REQUIRE(status != AFMOE_OK || length_of(session) == n);
}

/* After all that: from the beginning, one token, logits without a NaN. */
static void compute_on(afmoe_session *session)
{
    const afmoe_token token = 65;
    const float *logits;
    uint64_t n;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    CHECK_ONE_OF(afmoe_session_rewind(session, 0, NULL, NULL, &error), AFMOE_OK);
    if (CHECK_ONE_OF(afmoe_session_append(session, &token, 1, NULL, NULL, &error), AFMOE_OK, AFMOE_CONTEXT_FULL))
        return;
    CHECK_ONE_OF(afmoe_session_logits_view(session, &logits, &n, &error), AFMOE_OK);
    REQUIRE(n == TINY_IDS);
    for (uint64_t i = 0; i < n; i++) REQUIRE(isfinite(logits[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices choices = {data, size}, *c = &choices;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_context *context = make_context(c);
    afmoe_sampler *sampler = make_sampler(c);
    afmoe_session *session = NULL;
    CHECK_ONE_OF(afmoe_session_create(&session, context, &error), AFMOE_OK);
    for (int n = 0; n < 6 && choices.n > 0; n++) {
        switch (choose_below(c, 5)) {
        case 0: append(c, session); break;
        case 1: sample(c, session, sampler); break;
        case 2: {
            uint64_t before = length_of(session), n_tokens = choose_u8(c) < 200 ? choose_below(c, 32) : choose_size(c);
            afmoe_status status = CHECK_ONE_OF(afmoe_session_rewind(session, n_tokens, NULL, NULL, &error), AFMOE_OK,
                                               AFMOE_INVALID);
            REQUIRE((status == AFMOE_OK) == (n_tokens <= before));
            break;
        }
        case 3: embed(c, session); break;
        default: generate(c, session, sampler);
        }
    }
    compute_on(session);
    afmoe_session_free(session);
    afmoe_sampler_free(sampler);
    afmoe_context_free(context);
    return 0;
}
