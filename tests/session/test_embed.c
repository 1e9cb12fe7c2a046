/* Embeddings against a slow computation from the hidden state of every token. */
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOKENS = 200, HIDDEN = 32, VOCAB = 96 }; /* of the tiny models */

static afmoe_error error;
static afmoe_model *tiny;
static afmoe_token tokens[N_TOKENS];
static float hidden[N_TOKENS][HIDDEN];

static afmoe_session *session_of(afmoe_model *model, uint32_t chunk_tokens, uint64_t rewind_tokens)
{
    afmoe_context_options options = two_threads();
    options.chunk_tokens = chunk_tokens;
    options.rewind_tokens = rewind_tokens;
    afmoe_context *context = open_context(model, &options);
    afmoe_session *session = open_session(context);
    afmoe_context_free(context);
    return session;
}

static int open_tiny(void **state)
{
    char path[PATH_BYTES];
    uint64_t positions[N_TOKENS];
    (void)state;
    error = fresh_error();
    if (!small_model_path(path, "tiny-bias")) return -1;
    tiny = open_model(path);
    make_tokens(tokens, N_TOKENS, VOCAB, 3);
    for (uint64_t p = 0; p < N_TOKENS; p++) positions[p] = p;
    afmoe_append_options options;
    afmoe_append_options_init(&options, sizeof options);
    options.positions = positions;
    options.n_positions = N_TOKENS;
    options.out_hidden = hidden[0];
    options.hidden_capacity = N_TOKENS * HIDDEN;
    afmoe_session *session = session_of(tiny, 64, 0);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens, N_TOKENS, &options, NULL, &error));
    afmoe_session_free(session);
    return 0;
}

static int close_tiny(void **state)
{
    (void)state;
    afmoe_model_free(tiny);
    return 0;
}

/* Of the first n tokens. */
static void expect(float *out, uint64_t n, int32_t pooling, int32_t normalize)
{
    double vector[HIDDEN], squares = 0;
    for (int i = 0; i < HIDDEN; i++) {
        double sum = 0;
        for (uint64_t p = 0; p < n; p++) sum += (double)hidden[p][i];
        vector[i] = pooling == AFMOE_POOL_MEAN ? sum / (double)n : (double)hidden[n - 1][i];
        squares += vector[i] * vector[i];
    }
    for (int i = 0; i < HIDDEN; i++) out[i] = (float)(normalize ? vector[i] / sqrt(squares) : vector[i]);
}

static void check_embedding(afmoe_session *session, uint64_t n, int32_t pooling, int32_t normalize)
{
    float out[HIDDEN], expected[HIDDEN];
    uint64_t out_n = 0;
    expect(expected, n, pooling, normalize);
    CHECK_STATUS(AFMOE_OK,
                 afmoe_session_embed(session, tokens, n, pooling, normalize, NULL, out, HIDDEN, &out_n, &error));
    assert_int_equal(out_n, HIDDEN);
    assert_int_equal(n_tokens_of(session), n);
    /* Both are sums of doubles, rounded once or twice differently before they become floats. */
    for (int i = 0; i < HIDDEN; i++) assert_true(fabsf(out[i] - expected[i]) <= 2e-7f * fabsf(expected[i]));
    if (pooling == AFMOE_POOL_LAST && !normalize) assert_memory_equal(out, hidden[n - 1], sizeof out);
}

static void test_equals_the_slow_way(void **state)
{
    static const uint64_t lengths[] = {1, 2, 64, 65, 130, N_TOKENS};
    (void)state;
    for (uint32_t chunk = 1; chunk <= 256; chunk *= 16) {
        afmoe_session *session = session_of(tiny, chunk, 0);
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            for (int32_t normalize = 0; normalize < 2; normalize++) {
                check_embedding(session, lengths[i], AFMOE_POOL_MEAN, normalize);
                check_embedding(session, lengths[i], AFMOE_POOL_LAST, normalize);
            }
        }
        for (size_t i = sizeof lengths / sizeof *lengths; i-- > 0;) { /* and back */
            check_embedding(session, lengths[i], AFMOE_POOL_LAST, 0);
            check_embedding(session, lengths[i], AFMOE_POOL_MEAN, 1);
        }
        afmoe_session_free(session);
    }
}

static void test_same_bits(void **state)
{
    float one[HIDDEN], other[HIDDEN];
    (void)state;
    afmoe_session *a = session_of(tiny, 7, 256), *b = session_of(tiny, 256, 0);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(a, tokens, 90, NULL, NULL, &error));
    for (int32_t pooling = AFMOE_POOL_MEAN; pooling <= AFMOE_POOL_LAST; pooling++) {
        CHECK_STATUS(AFMOE_OK, afmoe_session_embed(a, tokens, N_TOKENS, pooling, 1, NULL, one, HIDDEN, NULL, &error));
        CHECK_STATUS(AFMOE_OK, afmoe_session_embed(b, tokens, N_TOKENS, pooling, 1, NULL, other, HIDDEN, NULL, &error));
        assert_memory_equal(one, other, sizeof one);
    }
    afmoe_session_free(a);
    afmoe_session_free(b);
}

/* The timeline goes on from an embedding as from an append; logits come with the next token. */
static void test_timeline_afterwards(void **state)
{
    float out[HIDDEN], logits[VOCAB], expected[VOCAB];
    uint64_t n;
    (void)state;
    afmoe_session *session = session_of(tiny, 32, 256), *plain = session_of(tiny, 32, 256);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens + 7, 40, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_OK,
                 afmoe_session_embed(session, tokens, 100, AFMOE_POOL_MEAN, 0, NULL, out, HIDDEN, &n, &error));
    CHECK_STATUS(AFMOE_STATE, afmoe_session_logits(session, logits, VOCAB, &n, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens + 100, 30, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(plain, tokens, 130, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_logits(session, logits, VOCAB, &n, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_logits(plain, expected, VOCAB, &n, &error));
    assert_memory_equal(logits, expected, sizeof logits);

    afmoe_session_stats before = stats_of(session);
    CHECK_STATUS(AFMOE_OK,
                 afmoe_session_embed(session, tokens, 140, AFMOE_POOL_LAST, 0, NULL, out, HIDDEN, &n, &error));
    assert_int_equal(stats_of(session).n_prompt_computed - before.n_prompt_computed, 10);
    assert_int_equal(stats_of(session).n_reused - before.n_reused, 130);
    CHECK_STATUS(AFMOE_OK, afmoe_session_sync(session, tokens, 140, NULL, NULL, &error)); /* makes the logits */
    CHECK_STATUS(AFMOE_OK, afmoe_session_logits(session, logits, VOCAB, &n, &error));
    afmoe_session_free(session);
    afmoe_session_free(plain);
}

static void test_refusals(void **state)
{
    float out[HIDDEN + 1];
    uint64_t n = 0;
    const afmoe_token odd[] = {1, VOCAB, 2};
    (void)state;
    afmoe_session *session = session_of(tiny, 32, 256);
    memset(out, 0x5A, sizeof out);
    CHECK_STATUS(AFMOE_CAPACITY, afmoe_session_embed(session, tokens, 3, 1, 0, NULL, out, HIDDEN - 1, &n, &error));
    assert_int_equal(n, HIDDEN);
    n = 0;
    CHECK_STATUS(AFMOE_CAPACITY, afmoe_session_embed(session, tokens, 3, 1, 0, NULL, NULL, 0, &n, &error));
    assert_int_equal(n, HIDDEN);
    CHECK_STATUS(AFMOE_INVALID, afmoe_session_embed(session, tokens, 3, 1, 0, NULL, NULL, HIDDEN, &n, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_session_embed(session, tokens, 0, 1, 0, NULL, out, HIDDEN, &n, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_session_embed(session, NULL, 3, 1, 0, NULL, out, HIDDEN, &n, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_session_embed(session, tokens, 3, 0, 0, NULL, out, HIDDEN, &n, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_session_embed(session, tokens, 3, 3, 0, NULL, out, HIDDEN, &n, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_session_embed(session, tokens, 3, 1, 2, NULL, out, HIDDEN, &n, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_session_embed(session, odd, 3, 1, 0, NULL, out, HIDDEN, &n, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_session_embed(NULL, tokens, 3, 1, 0, NULL, out, HIDDEN, &n, &error));
    CHECK_STATUS(AFMOE_CONTEXT_FULL,
                 afmoe_session_embed(session, tokens, (uint64_t)1 << 63, 1, 0, NULL, out, HIDDEN, &n, &error));
    assert_int_equal(n_tokens_of(session), 0);
    for (size_t i = 0; i < sizeof out; i++) assert_int_equal(((unsigned char *)out)[i], 0x5A);
    afmoe_session_free(session);
}

static void test_cancel(void **state)
{
    float out[HIDDEN];
    afmoe_cancel *cancel;
    (void)state;
    afmoe_session *session = session_of(tiny, 32, 256);
    CHECK_STATUS(AFMOE_OK, afmoe_cancel_create(&cancel, &error));
    afmoe_cancel_set(cancel);
    memset(out, 0x5A, sizeof out);
    CHECK_STATUS(AFMOE_CANCELLED, afmoe_session_embed(session, tokens, 100, 1, 0, cancel, out, HIDDEN, NULL, &error));
    assert_int_equal(n_tokens_of(session), 0);
    for (size_t i = 0; i < sizeof out; i++) assert_int_equal(((unsigned char *)out)[i], 0x5A);
    afmoe_cancel_free(cancel);
    check_embedding(session, 100, AFMOE_POOL_MEAN, 0);
    afmoe_session_free(session);
}

static void test_not_finite(void **state)
{
    char path[PATH_BYTES], variant[PATH_BYTES];
    float out[HIDDEN];
    (void)state;
    if (!small_model_path(path, "tiny-bias")) return;
    make_variant(variant, path, NULL, NULL);
    poison_variant(variant, "model.norm.weight");
    afmoe_model *model = open_model(variant);
    afmoe_session *session = session_of(model, 32, 256);
    CHECK_STATUS(AFMOE_NUMERIC, afmoe_session_embed(session, tokens, 10, 1, 1, NULL, out, HIDDEN, NULL, &error));
    CHECK_STATUS(AFMOE_NUMERIC, afmoe_session_embed(session, tokens, 10, 2, 0, NULL, out, HIDDEN, NULL, &error));
    afmoe_session_free(session);
    afmoe_model_free(model);
    remove_variant(variant);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_the_slow_way), cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_timeline_afterwards), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_cancel),              cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests_name("embed", tests, open_tiny, close_tiny);
}
