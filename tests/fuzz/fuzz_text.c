/* Text to ids and back with the small trained tokenizer of tests/data: whatever the bytes, decoding gives them back;
 * what is not asked for as a special token never becomes one; a stream decoder gives the same text repaired. */
#include "fuzz.h"

#include "chatml.h"
#include "stream_decoder.h"
#include "tokenizer.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

static struct tokenizer *tokenizer;
static uint64_t n_ids;

/* Put in place of a byte that announces one: plain mutation hardly finds them. */
static const char *const phrases[] = {"<|im_start|>", "<|im_end|>", "<think>", "<|end_of_text|>", " the", "\r\n",
                                      "1234567890", "\xe4\xb8\x80\xe4\xba\x8c", "\xf0\x9f\x98\x80", "\xcc\x81",
                                      "\xc2\xa0", "'ll", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\xe0\xb9\x84\xe0\xb8\x97",
                                      "\xed\xa0\x80", "\xef\xbf\xbd"};
enum { N_PHRASES = sizeof phrases / sizeof *phrases, ESCAPE = 0x1b };

static void make_text(struct buffer *out, struct choices *c)
{
    while (c->n > 0) {
        uint8_t x = choose_u8(c);
        const char *phrase = phrases[(c->n ? c->at[0] : 0) % N_PHRASES];
        if (x == ESCAPE && c->n) {
            choose_u8(c);
            buffer_put(out, phrase, strlen(phrase));
        } else {
            buffer_put(out, &x, 1);
        }
    }
}

static int32_t kind_of(afmoe_token id)
{
    const uint8_t *bytes;
    uint64_t n;
    return afmoe__tokenizer_token(tokenizer, id, &bytes, &n);
}

/* Whatever cuts the tokens made, this is the text with maximal subparts replaced. */
static void check_stream(const afmoe_token *ids, uint64_t n, const struct buffer *text)
{
    struct stream_decoder *decoder = NULL;
    afmoe_error error = {.size = sizeof error};
    struct buffer streamed = {0}, repaired = {0};
    const char *piece;
    uint64_t n_piece;
    CHECK_ONE_OF(afmoe__stream_decoder_create(&decoder, tokenizer, n_ids, 0, &error), AFMOE_OK);
    for (uint64_t i = 0; i <= n; i++) {
        if (i < n) CHECK_ONE_OF(afmoe__stream_decoder_push(decoder, ids[i], &piece, &n_piece, &error), AFMOE_OK);
        else CHECK_ONE_OF(afmoe__stream_decoder_finish(decoder, &piece, &n_piece, &error), AFMOE_OK);
        for (uint64_t at = 0; at < n_piece;) {
            struct utf8_step step = utf8_decode((const uint8_t *)piece + at, n_piece - at);
            REQUIRE(step.kind == UTF8_VALID);
            at += step.n_bytes;
        }
        buffer_put(&streamed, piece, n_piece);
    }
    for (uint64_t at = 0; at < text->n;) {
        struct utf8_step step = utf8_decode(text->data + at, text->n - at);
        if (step.kind == UTF8_VALID) buffer_put(&repaired, text->data + at, step.n_bytes);
        else buffer_put(&repaired, "\xef\xbf\xbd", 3);
        at += step.n_bytes;
    }
    REQUIRE(streamed.n == repaired.n && (streamed.n == 0 || memcmp(streamed.data, repaired.data, streamed.n) == 0));
    afmoe__stream_decoder_free(decoder);
    buffer_free(&streamed);
    buffer_free(&repaired);
}

static void round_trip(const struct buffer *text, const afmoe_tokenize_options *options, bool with_stream)
{
    afmoe_error error = {.size = sizeof error};
    uint64_t n = 0, n_again = 0, n_back = 0;
    const char *bytes = (const char *)text->data;
    afmoe_status status = afmoe__tokenizer_encode(tokenizer, bytes, text->n, options, NULL, 0, &n, &error);
    REQUIRE(status == (n ? AFMOE_CAPACITY : AFMOE_OK) && n <= text->n);
    afmoe_token *ids = malloc((n + !n) * sizeof *ids);
    char *back = malloc(text->n + 1);
    REQUIRE(ids && back);
    if (n > 1) {
        ids[0] = -7;
        CHECK_ONE_OF(afmoe__tokenizer_encode(tokenizer, bytes, text->n, options, ids, n - 1, &n_again, &error),
                     AFMOE_CAPACITY);
        REQUIRE(n_again == n && ids[0] == -7);
    }
    CHECK_ONE_OF(afmoe__tokenizer_encode(tokenizer, bytes, text->n, options, ids, n, &n_again, &error), AFMOE_OK);
    REQUIRE(n_again == n);
    for (uint64_t i = 0; i < n; i++) {
        REQUIRE(ids[i] >= 0 && (uint64_t)ids[i] < n_ids && kind_of(ids[i]) != AFMOE_TOKEN_UNUSED);
        REQUIRE(options->special != AFMOE_SPECIAL_NONE || kind_of(ids[i]) == AFMOE_TOKEN_NORMAL);
    }
    CHECK_ONE_OF(afmoe__tokenizer_decode(tokenizer, n_ids, ids, n, 0, back, text->n, &n_back, &error), AFMOE_OK);
    REQUIRE(n_back == text->n && (n_back == 0 || memcmp(back, bytes, n_back) == 0));
    if (with_stream) check_stream(ids, n, text);
    free(ids);
    free(back);
}

/* Rising ranges, or any two numbers: those that are none are refused. */
static void encode_ranges(const struct buffer *text, struct choices *c)
{
    uint64_t ranges[8], at = 0, n = 1 + choose_below(c, 4), n_out;
    bool is_rising = choose_u8(c) < 200;
    afmoe_error error = {.size = sizeof error};
    afmoe_tokenize_options options;
    afmoe_tokenize_options_init(&options, sizeof options);
    options.special = AFMOE_SPECIAL_RANGES;
    options.special_ranges = ranges;
    options.n_special_ranges = n;
    for (uint64_t i = 0; i < 2 * n; i++) {
        at += choose_u8(c) % 32;
        ranges[i] = is_rising ? (at < text->n ? at : text->n) : choose_size(c);
    }
    if (is_rising) {
        round_trip(text, &options, false);
        return;
    }
    afmoe_token *ids = malloc((text->n + 1) * sizeof *ids);
    REQUIRE(ids);
    CHECK_ONE_OF(afmoe__tokenizer_encode(tokenizer, (const char *)text->data, text->n, &options, ids, text->n, &n_out,
                                         &error), AFMOE_OK, AFMOE_INVALID);
    free(ids);
}

/* The text as role and content of messages, cut at NULs: its own control tokens stay text. */
static void chat(const struct buffer *text)
{
    enum { MAX_MESSAGES = 3 };
    const char *parts[2 * MAX_MESSAGES];
    afmoe_error error = {.size = sizeof error};
    uint64_t n_parts = 0, n = 0;
    afmoe_chat_options options;
    afmoe_chat_options_init(&options, sizeof options);
    struct buffer copy = {0};
    buffer_put(&copy, text->data, text->n);
    buffer_put(&copy, "", 1);
    for (uint64_t at = 0; at < copy.n && n_parts < 2 * MAX_MESSAGES; at += strlen((char *)copy.data + at) + 1) {
        parts[n_parts++] = (const char *)copy.data + at;
    }
    uint64_t n_messages = n_parts / 2; /* parts: all roles, then all contents */
    uint64_t capacity = text->n + 16 * (n_messages + 1);
    afmoe_token *ids = malloc(capacity * sizeof *ids);
    REQUIRE(ids);
    afmoe_status status = CHECK_ONE_OF(afmoe__chatml_encode(tokenizer, parts, parts + n_messages, n_messages, &options,
                                                            ids, capacity, &n, &error), AFMOE_OK);
    uint64_t n_control = 0;
    for (uint64_t i = 0; i < n && status == AFMOE_OK; i++) n_control += kind_of(ids[i]) != AFMOE_TOKEN_NORMAL;
    REQUIRE(n_control == 2 * n_messages + 1);
    free(ids);
    buffer_free(&copy);
}

/* Any ids: decoding refuses those outside of the vocabulary and says how much room it wants. */
static void decode_ids(struct choices *c)
{
    afmoe_token ids[16];
    char out[64];
    uint64_t n = choose_below(c, 17), n_out = 0;
    bool all_inside = true;
    afmoe_error error = {.size = sizeof error};
    for (uint64_t i = 0; i < n; i++) {
        ids[i] = choose_u8(c) < 200 ? choose_u16(c) % (int32_t)n_ids : (afmoe_token)choose_u32(c);
        all_inside = all_inside && ids[i] >= 0 && (uint64_t)ids[i] < n_ids;
    }
    afmoe_status status = CHECK_ONE_OF(afmoe__tokenizer_decode(tokenizer, n_ids, ids, n, choose_u8(c) & 1, out,
                                                               sizeof out, &n_out, &error),
                                       AFMOE_OK, AFMOE_CAPACITY, AFMOE_INVALID);
    REQUIRE((status == AFMOE_INVALID) == !all_inside);
    REQUIRE(status != AFMOE_CAPACITY || n_out > sizeof out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices c = {data, size};
    struct buffer text = {0};
    afmoe_tokenize_options options;
    afmoe_tokenize_options_init(&options, sizeof options);
    if (!tokenizer) {
        struct buffer file;
        afmoe_error error = {.size = sizeof error};
        read_data_file(&file, "tokenizer/pico-tokenizer.json");
        CHECK_ONE_OF(afmoe__tokenizer_from_json(&tokenizer, file.data, file.n, 1 << 25, "pico", &error), AFMOE_OK);
        buffer_free(&file);
        n_ids = afmoe__tokenizer_n_ids(tokenizer);
    }
    uint8_t how = choose_u8(&c);
    if (how % 8 == 7) {
        decode_ids(&c);
        return 0;
    }
    struct choices ranges = c;
    make_text(&text, &c);
    if (how & 8) encode_ranges(&text, &ranges);
    options.special = how & 16 ? AFMOE_SPECIAL_NONE : AFMOE_SPECIAL_ALL;
    round_trip(&text, &options, true);
    chat(&text);
    buffer_free(&text);
    return 0;
}
