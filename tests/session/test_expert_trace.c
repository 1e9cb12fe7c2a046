/* The expert trace: what the router chose in the pass itself, whatever the chunks. */
#include "harness.h"

#include "checkpoint.h"
#include "cpu.h"
#include "pass_runner.h"

#include <stdlib.h>
#include <string.h>

enum { N_TOKENS = 150 };

static afmoe_error error;

/* What runs inside, recorded by running the decoder directly. */
struct record {
    struct checkpoint checkpoint;
    struct runner runner;
    afmoe_token tokens[N_TOKENS];
    uint64_t n_mixtures, k, n; /* n entries in all */
};

static void make_record(struct record *r, const char *path)
{
    const struct checkpoint_options plain = {.max_json_bytes = 32 << 20};
    const struct runner_options options = {.cpu_level = afmoe__cpu_level(), .n_threads = 1, .chunk_tokens = N_TOKENS};
    CHECK_STATUS(AFMOE_OK, afmoe__checkpoint_open(&r->checkpoint, path, &plain, &error));
    const struct model_config *config = &r->checkpoint.config;
    make_tokens(r->tokens, N_TOKENS, config->vocab_size, 5);
    CHECK_STATUS(AFMOE_OK, runner_create(&r->runner, config, &r->checkpoint.weights, &options, N_TOKENS, &error));
    CHECK_STATUS(AFMOE_OK, runner_feed(&r->runner, r->tokens, N_TOKENS, &error));
    r->n_mixtures = config->n_layers - config->n_dense_layers;
    r->k = config->n_experts_per_token;
    r->n = N_TOKENS * r->n_mixtures * r->k;
}

static void free_record(struct record *r)
{
    runner_free(&r->runner);
    afmoe__checkpoint_close(&r->checkpoint);
}

/* Entries of positions [begin, end) against the record. */
static void compare(const struct record *r, uint64_t begin, uint64_t end, const int32_t *ids, const float *weights)
{
    uint64_t n_dense = r->checkpoint.config.n_dense_layers;
    for (uint64_t p = begin; p < end; p++) {
        for (uint64_t m = 0; m < r->n_mixtures; m++) {
            uint64_t at = ((p - begin) * r->n_mixtures + m) * r->k, from = ((m + n_dense) * N_TOKENS + p) * r->k;
            if (ids) assert_memory_equal(ids + at, r->runner.ids + from, r->k * sizeof *ids);
            if (weights) assert_memory_equal(weights + at, r->runner.route_weights + from, r->k * sizeof *weights);
        }
    }
}

static afmoe_session *session_of(afmoe_model *model, uint32_t chunk_tokens)
{
    afmoe_context_options options = two_threads();
    options.chunk_tokens = chunk_tokens;
    options.precision = AFMOE_PRECISION_EXACT; /* as the recorded pass */
    afmoe_context *context = open_context(model, &options);
    afmoe_session *session = open_session(context);
    afmoe_context_free(context);
    return session;
}

static afmoe_append_options tracing(int32_t *ids, float *weights, uint64_t capacity)
{
    afmoe_append_options options;
    afmoe_append_options_init(&options, sizeof options);
    options.out_expert_ids = ids;
    options.out_expert_weights = weights;
    options.expert_capacity = capacity;
    return options;
}

static void check_model(const char *name)
{
    static const uint32_t chunks[] = {1, 7, 64, 256};
    char path[PATH_BYTES];
    struct record r;
    if (!small_model_path(path, name)) return;
    make_record(&r, path);
    afmoe_model *model = open_model(path);
    int32_t *ids = malloc(r.n * sizeof *ids);
    float *weights = malloc(r.n * sizeof *weights);
    assert_true(ids && weights);
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
        afmoe_session *session = session_of(model, chunks[c]);
        afmoe_append_options options = tracing(ids, weights, r.n);
        memset(ids, 0xFF, r.n * sizeof *ids);
        CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, r.tokens, N_TOKENS, &options, NULL, &error));
        compare(&r, 0, N_TOKENS, ids, weights);
        afmoe_session_free(session);
    }
    /* Only what the call computes, in buffers of exactly that size; either may be left out. */
    afmoe_session *session = session_of(model, 16);
    uint64_t each = r.n_mixtures * r.k;
    afmoe_append_options only_ids = tracing(ids, NULL, 50 * each), only_weights = tracing(NULL, weights, 100 * each);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, r.tokens, 50, &only_ids, NULL, &error));
    compare(&r, 0, 50, ids, NULL);
    CHECK_STATUS(AFMOE_OK, afmoe_session_sync(session, r.tokens, N_TOKENS, &only_weights, NULL, &error));
    compare(&r, 50, N_TOKENS, NULL, weights);
    afmoe_session_free(session);
    free(ids);
    free(weights);
    afmoe_model_free(model);
    free_record(&r);
}

static void test_equals_the_pass(void **state)
{
    (void)state;
    check_model("tiny-bias");
    check_model("nano");
    check_model("grouped-router");
}

static void test_capacity(void **state)
{
    char path[PATH_BYTES];
    struct record r;
    (void)state;
    if (!small_model_path(path, "tiny-bias")) return;
    make_record(&r, path);
    afmoe_model *model = open_model(path);
    afmoe_session *session = session_of(model, 16);
    int32_t *ids = malloc(r.n * sizeof *ids);
    assert_non_null(ids);
    memset(ids, 0x5A, r.n * sizeof *ids);
    afmoe_append_options options = tracing(ids, NULL, r.n - 1);
    CHECK_STATUS(AFMOE_CAPACITY, afmoe_session_append(session, r.tokens, N_TOKENS, &options, NULL, &error));
    char needed[40];
    snprintf(needed, sizeof needed, " %llu entries", (unsigned long long)r.n);
    assert_non_null(strstr(error.message, needed));
    assert_int_equal(n_tokens_of(session), 0);
    for (uint64_t i = 0; i < r.n; i++) assert_int_equal(ids[i], 0x5A5A5A5A);
    options.expert_capacity = r.n;
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, r.tokens, N_TOKENS, &options, NULL, &error));
    compare(&r, 0, N_TOKENS, ids, NULL);
    options.expert_capacity = 0; /* nothing is computed, nothing is needed */
    CHECK_STATUS(AFMOE_OK, afmoe_session_sync(session, r.tokens, N_TOKENS, &options, NULL, &error));
    free(ids);
    afmoe_session_free(session);
    afmoe_model_free(model);
    free_record(&r);
}

static int32_t stop_at_48(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    assert_int_equal(total, N_TOKENS);
    return done >= 48;
}

static void test_stopped_call(void **state)
{
    char path[PATH_BYTES];
    struct record r;
    (void)state;
    if (!small_model_path(path, "tiny-bias")) return;
    make_record(&r, path);
    afmoe_model *model = open_model(path);
    afmoe_session *session = session_of(model, 16);
    int32_t *ids = malloc(r.n * sizeof *ids);
    float *weights = malloc(r.n * sizeof *weights);
    assert_true(ids && weights);
    afmoe_append_options options = tracing(ids, weights, r.n);
    options.progress = stop_at_48;
    CHECK_STATUS(AFMOE_CANCELLED, afmoe_session_append(session, r.tokens, N_TOKENS, &options, NULL, &error));
    assert_int_equal(n_tokens_of(session), 48);
    compare(&r, 0, 48, ids, weights);
    free(ids);
    free(weights);
    afmoe_session_free(session);
    afmoe_model_free(model);
    free_record(&r);
}

int main(void)
{
    error = fresh_error();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equals_the_pass), cmocka_unit_test(test_capacity),
                                       cmocka_unit_test(test_stopped_call)};
    return cmocka_run_group_tests_name("expert_trace", tests, NULL, NULL);
}
