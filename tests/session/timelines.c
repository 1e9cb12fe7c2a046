/* Shared by the tests of sessions, see timelines.h. */
#include "timelines.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

afmoe_error error;
afmoe_model *tiny;
afmoe_token tokens[MAX_POSITIONS];

int open_tiny(void **state)
{
    char path[PATH_BYTES];
    (void)state;
    error = fresh_error();
    if (!small_model_path(path, "tiny-bias")) return -1;
    tiny = open_model(path);
    afmoe_model_info info = info_of(tiny);
    assert_int_equal(info.vocab_size, VOCAB);
    assert_int_equal(info.hidden_size, HIDDEN);
    make_tokens(tokens, MAX_POSITIONS, VOCAB, 1);
    return 0;
}

int close_tiny(void **state)
{
    (void)state;
    afmoe_model_free(tiny);
    return 0;
}

afmoe_context_options exact_options(void)
{
    afmoe_context_options options = two_threads();
    options.precision = AFMOE_PRECISION_EXACT;
    options.cells = AFMOE_CELLS_F32;
    return options;
}

const afmoe_context_options *exact(void)
{
    static afmoe_context_options options;
    options = exact_options();
    return &options;
}

afmoe_session *session_with(afmoe_model *model, const afmoe_context_options *options)
{
    afmoe_context *context = open_context(model, options);
    afmoe_session *session = open_session(context);
    afmoe_context_free(context); /* the session keeps it */
    return session;
}

void record(struct bits *bits, afmoe_session *session, uint64_t begin, uint64_t end)
{
    uint64_t positions[N_TOKENS];
    afmoe_append_options options;
    afmoe_append_options_init(&options, sizeof options);
    for (uint64_t p = begin; p < end; p++) positions[p - begin] = p;
    options.positions = positions;
    options.n_positions = end - begin;
    options.out_logits = bits->logits[begin];
    options.logits_capacity = (end - begin) * VOCAB;
    options.out_hidden = bits->hidden[begin];
    options.hidden_capacity = (end - begin) * HIDDEN;
    options.logprob_begin = begin ? begin : 1;
    options.logprob_end = end;
    options.out_logprobs = &bits->logprobs[options.logprob_begin];
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens + begin, end - begin, &options, NULL, &error));
}

struct bits *whole(afmoe_model *model, const afmoe_context_options *options)
{
    struct bits *bits = calloc(1, sizeof *bits);
    afmoe_session *session = session_with(model, options);
    record(bits, session, 0, N_TOKENS);
    afmoe_session_free(session);
    return bits;
}

void append(afmoe_session *session, uint64_t begin, uint64_t end)
{
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens + begin, end - begin, NULL, NULL, &error));
}

void assert_last(const struct bits *bits, afmoe_session *session, uint64_t n)
{
    float logits[VOCAB], hidden[HIDDEN];
    uint64_t count;
    assert_int_equal(n_tokens_of(session), n);
    CHECK_STATUS(AFMOE_OK, afmoe_session_logits(session, logits, VOCAB, &count, &error));
    assert_int_equal(count, VOCAB);
    CHECK_STATUS(AFMOE_OK, afmoe_session_hidden(session, hidden, HIDDEN, &count, &error));
    assert_memory_equal(logits, bits->logits[n - 1], sizeof logits);
    assert_memory_equal(hidden, bits->hidden[n - 1], sizeof hidden);
}

void assert_no_logits(afmoe_session *session)
{
    float logits[VOCAB];
    assert_int_equal(afmoe_session_logits(session, logits, VOCAB, NULL, NULL), AFMOE_STATE);
    assert_int_equal(afmoe_session_hidden(session, logits, VOCAB, NULL, NULL), AFMOE_STATE);
}

void assert_tokens(afmoe_session *session, const afmoe_token *expected, uint64_t n)
{
    afmoe_token got[MAX_POSITIONS];
    uint64_t count;
    CHECK_STATUS(AFMOE_OK, afmoe_session_tokens(session, got, MAX_POSITIONS, &count, &error));
    assert_int_equal(count, n);
    if (n) assert_memory_equal(got, expected, n * sizeof *got);
}

void assert_result(const afmoe_append_result *result, uint64_t n_tokens, uint64_t n_reused, uint64_t n_computed)
{
    assert_int_equal(result->n_tokens, n_tokens);
    assert_int_equal(result->n_reused, n_reused);
    assert_int_equal(result->n_computed, n_computed);
}

void assert_same_bits(const struct bits *a, const struct bits *b)
{
    assert_memory_equal(a->logits, b->logits, sizeof a->logits);
    assert_memory_equal(a->hidden, b->hidden, sizeof a->hidden);
    assert_memory_equal(a->logprobs, b->logprobs, sizeof a->logprobs);
}

struct visitor {
    afmoe_context *context;
    const struct bits *expected;
    uint32_t seed;
    uint64_t n_reused;
    bool same;
};

static void *visit(void *user)
{
    struct visitor *visitor = user;
    float logits[VOCAB];
    uint32_t random = visitor->seed;
    visitor->same = true;
    for (int round = 0; round < 25 && visitor->same; round++) {
        afmoe_session *session;
        afmoe_append_result result;
        random = random * 1664525u + 1013904223u;
        uint64_t n = 100 + (random >> 10) % 150;
        afmoe_append_result_init(&result, sizeof result);
        visitor->same = afmoe_session_create(&session, visitor->context, NULL) == AFMOE_OK &&
                        afmoe_session_sync(session, tokens, n, NULL, &result, NULL) == AFMOE_OK &&
                        afmoe_session_logits(session, logits, VOCAB, NULL, NULL) == AFMOE_OK &&
                        memcmp(logits, visitor->expected->logits[n - 1], sizeof logits) == 0;
        visitor->n_reused += result.n_reused;
        afmoe_session_free(session);
    }
    return NULL;
}

uint64_t visit_together(afmoe_context *context, const struct bits *expected, uint32_t n_visitors, uint32_t seed)
{
    struct visitor visitors[MAX_VISITORS];
    pthread_t threads[MAX_VISITORS];
    uint64_t n_reused = 0;
    assert_true(n_visitors <= MAX_VISITORS);
    for (uint32_t i = 0; i < n_visitors; i++) {
        visitors[i] = (struct visitor){.context = context, .expected = expected, .seed = seed + i};
        assert_int_equal(pthread_create(&threads[i], NULL, visit, &visitors[i]), 0);
    }
    for (uint32_t i = 0; i < n_visitors; i++) {
        pthread_join(threads[i], NULL);
        assert_true(visitors[i].same);
        n_reused += visitors[i].n_reused;
    }
    return n_reused;
}

uint64_t bytes_of_page(const afmoe_model *model)
{
    afmoe_model_info info = info_of(model);
    return 2ull * info.n_kv_heads * PAGE * info.head_dim * sizeof(float);
}

afmoe_context *capped_context(afmoe_model *model, uint64_t n_pages)
{
    afmoe_context_options options = exact_options();
    options.rewind_tokens = 0;
    options.max_page_bytes = n_pages * bytes_of_page(model) + 1;
    return open_context(model, &options);
}
