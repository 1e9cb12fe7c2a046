/* State of a session from anywhere: bytes as they are, or a good state with edits, checksums made right again or not.
 * A load answers with a documented status; refused, it leaves tokens and logits; accepted, the session computes on. */
#include "fuzz.h"

#include "checksum.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 192, N_SAVED = 70, N_SHIFTED = 140, N_THERE = 5, MAX_TOKENS = 96 };

static afmoe_context *context;
static afmoe_error error;
static struct good {
    uint8_t *bytes;
    uint64_t n;
} plain, shifted; /* of the second, 64 tokens were dropped */

static void append(afmoe_session *session, uint64_t n)
{
    afmoe_token tokens[N_SAVED];
    for (uint64_t i = 0; i < n; i++) tokens[i] = (afmoe_token)(i * 7 % TINY_IDS);
    CHECK_ONE_OF(afmoe_session_append(session, tokens, n, NULL, NULL, &error), AFMOE_OK);
}

static afmoe_session *session_of(uint64_t n)
{
    afmoe_session *session;
    CHECK_ONE_OF(afmoe_session_create(&session, context, &error), AFMOE_OK);
    append(session, n);
    return session;
}

static void save(struct good *out, afmoe_session *session)
{
    CHECK_ONE_OF(afmoe_session_save_memory(session, NULL, 0, &out->n, &error), AFMOE_CAPACITY);
    out->bytes = malloc(out->n);
    REQUIRE(out->bytes);
    CHECK_ONE_OF(afmoe_session_save_memory(session, out->bytes, out->n, NULL, &error), AFMOE_OK);
}

static void prepare(void)
{
    afmoe_context_options options;
    if (plain.bytes) return;
    afmoe_error_init(&error, sizeof error);
    afmoe_context_options_init(&options, sizeof options);
    options.n_threads = 1;
    options.rewind_tokens = 0;
    options.max_tokens = MAX_TOKENS;
    CHECK_ONE_OF(afmoe_context_create(&context, tiny_model(), &options, &error), AFMOE_OK);
    afmoe_session *session = session_of(N_SAVED);
    save(&plain, session);
    CHECK_ONE_OF(afmoe_session_shift(session, 0, 64, NULL, &error), AFMOE_OK);
    append(session, N_SHIFTED - N_SAVED);
    save(&shifted, session);
    afmoe_session_free(session);
}

static uint64_t get_u64(const uint8_t *p)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--) value = value << 8 | p[i];
    return value;
}

static void put_u64(uint8_t *p, uint64_t value)
{
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)(value >> 8 * i);
}

/* As its writer would have made them. */
static void make_checksums(uint8_t *bytes, uint64_t n)
{
    uint64_t at = HEADER_BYTES;
    if (n < HEADER_BYTES) return;
    for (int i = 0; i < 4; i++) {
        uint64_t section = get_u64(bytes + 112 + 16 * i);
        if (section > n - at) break;
        put_u64(bytes + 120 + 16 * i, checksum_of(bytes + at, section));
        at += section;
    }
    put_u64(bytes + 184, checksum_of(bytes, 184));
}

/* A good state with edits, in memory exactly as long. */
static uint8_t *edit(struct choices *c, const struct good *good, uint64_t *out_n)
{
    uint64_t n = choose_u8(c) < 220 ? good->n : good->n * choose_u16(c) / 65536;
    uint8_t *bytes = malloc(n ? n : 1);
    REQUIRE(bytes);
    memcpy(bytes, good->bytes, n);
    for (uint32_t left = choose_below(c, 5); left > 0 && n > 0; left--) {
        bool in_header = choose_u8(c) < 160;
        uint64_t at = choose_u16(c) % (in_header && n > HEADER_BYTES ? HEADER_BYTES : n);
        if (choose_u8(c) & 1) bytes[at] = choose_u8(c);
        else if (at + 8 <= n) put_u64(bytes + at, choose_size(c));
    }
    if (choose_u8(c) < 220) make_checksums(bytes, n);
    *out_n = n;
    return bytes;
}

static void load(const uint8_t *bytes, uint64_t n)
{
    static float before[TINY_IDS], after[TINY_IDS];
    afmoe_token tokens[N_SHIFTED], next = 3;
    uint64_t n_tokens, n_logits;
    afmoe_session *session = session_of(N_THERE);
    CHECK_ONE_OF(afmoe_session_logits(session, before, TINY_IDS, &n_logits, &error), AFMOE_OK);
    afmoe_status status = CHECK_ONE_OF(afmoe_session_load_memory(session, bytes, n, &error), AFMOE_OK, AFMOE_FORMAT,
                                       AFMOE_TRUNCATED, AFMOE_CORRUPT, AFMOE_UNSUPPORTED, AFMOE_STATE,
                                       AFMOE_CONTEXT_FULL);
    CHECK_ONE_OF(afmoe_session_tokens(session, tokens, N_SHIFTED, &n_tokens, &error), AFMOE_OK);
    for (uint64_t i = 0; i < n_tokens; i++) REQUIRE(tokens[i] >= 0 && tokens[i] < TINY_IDS);
    if (status != AFMOE_OK) {
        REQUIRE(n_tokens == N_THERE);
        CHECK_ONE_OF(afmoe_session_logits(session, after, TINY_IDS, &n_logits, &error), AFMOE_OK);
        REQUIRE(memcmp(before, after, sizeof before) == 0);
    }
    CHECK_ONE_OF(afmoe_session_append(session, &next, 1, NULL, NULL, &error), AFMOE_OK, AFMOE_CONTEXT_FULL);
    CHECK_ONE_OF(afmoe_session_rewind(session, n_tokens / 2, NULL, NULL, &error), AFMOE_OK);
    afmoe_session_free(session);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices c = {data, size};
    uint64_t n;
    prepare();
    uint8_t what = choose_u8(&c);
    if (what < 16) {
        load(c.at ? c.at : plain.bytes, c.n);
        return 0;
    }
    uint8_t *bytes = edit(&c, what < 200 ? &plain : &shifted, &n);
    load(bytes, n);
    free(bytes);
    return 0;
}
