/* Several sessions in one pass: the same bits as alone, and each with its own failures. */
#include "harness.h"
#include "sanitizer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 96, N_SESSIONS = 5, N_TOKENS = 300 };

static afmoe_error error;
static afmoe_model *model;
static afmoe_token tokens[N_SESSIONS][N_TOKENS];
static float expected[N_SESSIONS][N_TOKENS][VOCAB]; /* logits behind every token, computed alone */

static int set_up(void **state)
{
    char path[PATH_BYTES];
    (void)state;
    error = fresh_error();
    if (!small_model_path(path, "tiny-bias")) return -1;
    model = open_model(path);
    for (uint32_t i = 0; i < N_SESSIONS; i++) {
        afmoe_context *context = open_context(model, NULL);
        afmoe_session *session = open_session(context);
        afmoe_append_options options;
        uint64_t positions[N_TOKENS];
        for (uint64_t p = 0; p < N_TOKENS; p++) positions[p] = p;
        make_tokens(tokens[i], N_TOKENS, VOCAB, 40 + i);
        afmoe_append_options_init(&options, sizeof options);
        options.positions = positions;
        options.n_positions = N_TOKENS;
        options.out_logits = &expected[i][0][0];
        options.logits_capacity = (uint64_t)N_TOKENS * VOCAB;
        CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens[i], N_TOKENS, &options, NULL, &error));
        afmoe_session_free(session);
        afmoe_context_free(context);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    afmoe_model_free(model);
    return 0;
}

static afmoe_step_item item_of(afmoe_session *session, const afmoe_token *from, uint64_t n)
{
    afmoe_step_item item;
    afmoe_step_item_init(&item, sizeof item);
    item.session = session;
    item.tokens = from;
    item.n_tokens = n;
    return item;
}

static void check_logits(afmoe_session *session, uint32_t i)
{
    float logits[VOCAB];
    uint64_t n = n_tokens_of(session);
    CHECK_STATUS(AFMOE_OK, afmoe_session_logits(session, logits, VOCAB, NULL, &error));
    assert_memory_equal(logits, expected[i][n - 1], sizeof logits);
}

/* A prompt for each, then steps in which some read a piece, some one token and some nothing. */
static void check_mix(uint32_t n_sessions, uint32_t chunk, int32_t n_threads)
{
    static const uint64_t pieces[] = {1, 1, 13, 0, 1, 70, 2};
    afmoe_context_options options = two_threads();
    options.chunk_tokens = chunk;
    options.rewind_tokens = 0; /* sliding layers give pages back early */
    options.n_threads = n_threads;
    afmoe_context *context = open_context(model, &options);
    afmoe_session *sessions[N_SESSIONS];
    afmoe_step_item items[N_SESSIONS];
    uint64_t done[N_SESSIONS] = {0};
    for (uint32_t i = 0; i < n_sessions; i++) sessions[i] = open_session(context);
    for (uint64_t round = 0; round < 9; round++) {
        for (uint32_t i = 0; i < n_sessions; i++) {
            uint64_t n = round == 0 ? 20 + 37 * i : pieces[(round + 3 * i) % 7];
            if (n > N_TOKENS - done[i]) n = N_TOKENS - done[i];
            items[i] = item_of(sessions[i], tokens[i] + done[i], n);
            done[i] += n;
        }
        CHECK_STATUS(AFMOE_OK, afmoe_context_step(context, items, n_sessions, NULL, &error));
        for (uint32_t i = 0; i < n_sessions; i++) {
            assert_int_equal(items[i].status, AFMOE_OK);
            assert_int_equal(n_tokens_of(sessions[i]), done[i]);
            check_logits(sessions[i], i);
        }
    }
    for (uint32_t i = 0; i < n_sessions; i++) afmoe_session_free(sessions[i]);
    afmoe_context_free(context);
}

static void test_same_bits(void **state)
{
    static const uint32_t chunks[] = {1, 7, 64, 512};
    (void)state;
    for (uint32_t i = UNDER_SANITIZER ? 1 : 0; i < 4; i++)
        for (int32_t n_threads = UNDER_SANITIZER ? 3 : 1; n_threads <= 3; n_threads++)
            for (uint32_t n_sessions = 1; n_sessions <= N_SESSIONS; n_sessions += UNDER_SANITIZER ? 4 : 1)
                check_mix(n_sessions, chunks[i], n_threads);
}

/* Everything append gives out comes out of a step as well. */
static void test_options_of_items(void **state)
{
    enum { N = 40, ENTRIES = 4096 };
    afmoe_context_options context_options = two_threads();
    context_options.chunk_tokens = 16;
    afmoe_context *context = open_context(model, &context_options);
    static float logits[2][2][VOCAB], logprobs[2][2][N], weights[2][2][ENTRIES];
    static int32_t ids[2][2][ENTRIES];
    const uint64_t positions[] = {3, 38};
    (void)state;
    for (int together = 0; together < 2; together++) {
        afmoe_session *sessions[2] = {open_session(context), open_session(context)};
        afmoe_step_item items[2];
        afmoe_append_options options[2];
        afmoe_append_result results[2];
        for (int i = 0; i < 2; i++) {
            afmoe_append_options_init(&options[i], sizeof options[i]);
            afmoe_append_result_init(&results[i], sizeof results[i]);
            options[i].positions = positions;
            options[i].n_positions = 2;
            options[i].out_logits = logits[together][i];
            options[i].logits_capacity = VOCAB;
            options[i].n_positions = 1;
            options[i].positions = positions + i;
            options[i].logprob_begin = 1;
            options[i].logprob_end = N;
            options[i].out_logprobs = logprobs[together][i];
            options[i].out_expert_ids = ids[together][i];
            options[i].out_expert_weights = weights[together][i];
            options[i].expert_capacity = ENTRIES;
            items[i] = item_of(sessions[i], tokens[i], N);
            items[i].options = &options[i];
            items[i].result = &results[i];
        }
        if (together)
            CHECK_STATUS(AFMOE_OK, afmoe_context_step(context, items, 2, NULL, &error));
        for (int i = 0; i < 2 && !together; i++)
            CHECK_STATUS(AFMOE_OK, afmoe_session_append(sessions[i], tokens[i], N, &options[i], &results[i], &error));
        for (int i = 0; i < 2; i++) {
            assert_int_equal(results[i].n_tokens, N);
            assert_int_equal(results[i].n_computed, N);
            afmoe_session_free(sessions[i]);
        }
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    assert_memory_equal(logprobs[0], logprobs[1], sizeof logprobs[0]);
    assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
    assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
    assert_memory_not_equal(ids[0][0], ids[0][1], 100 * sizeof(int32_t));
    afmoe_context_free(context);
}

/* ---- Failures ---- */

static void test_failures_are_ones_own(void **state)
{
    afmoe_context_options options = two_threads();
    options.max_tokens = 60;
    options.chunk_tokens = 16;
    afmoe_context *context = open_context(model, &options), *other = open_context(model, NULL);
    afmoe_session *a = open_session(context), *b = open_session(context), *c = open_session(context),
                  *foreign = open_session(other);
    afmoe_token bad[] = {1, VOCAB};
    afmoe_error b_error = fresh_error();
    afmoe_append_result result;
    (void)state;
    afmoe_append_result_init(&result, sizeof result);
    afmoe_step_item items[] = {item_of(a, tokens[0], 50), item_of(b, bad, 2),          item_of(a, tokens[0], 1),
                               item_of(c, tokens[2], 61), item_of(foreign, tokens[0], 3), item_of(NULL, tokens[0], 1),
                               item_of(c, tokens[2], 0)};
    items[1].error = &b_error;
    items[3].result = &result;
    CHECK_STATUS(AFMOE_INVALID, afmoe_context_step(context, items, 7, NULL, &error));
    assert_non_null(strstr(error.message, "items[1]: token 1 is 96"));
    assert_int_equal(b_error.code, AFMOE_INVALID);
    assert_non_null(strstr(b_error.message, "token 1 is 96, allowed are 0..95"));
    static const afmoe_status statuses[] = {AFMOE_OK,      AFMOE_INVALID, AFMOE_BUSY, AFMOE_CONTEXT_FULL,
                                            AFMOE_INVALID, AFMOE_INVALID, AFMOE_OK};
    for (int i = 0; i < 7; i++) assert_int_equal(items[i].status, statuses[i]);
    assert_int_equal(result.n_tokens, 0);
    assert_int_equal(n_tokens_of(a), 50);
    check_logits(a, 0);
    assert_int_equal(n_tokens_of(b), 0);
    assert_int_equal(n_tokens_of(foreign), 0);

    items[1].size--; /* the call as a whole */
    CHECK_STATUS(AFMOE_INVALID, afmoe_context_step(context, items, 7, NULL, &error));
    assert_int_equal(n_tokens_of(a), 50);
    CHECK_STATUS(AFMOE_INVALID, afmoe_context_step(context, NULL, 1, NULL, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_context_step(NULL, items, 1, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_context_step(context, NULL, 0, NULL, &error));
    afmoe_session_free(a);
    afmoe_session_free(b);
    afmoe_session_free(c);
    afmoe_session_free(foreign);
    afmoe_context_free(context);
    afmoe_context_free(other);
}

/* Too little room for pages: who came first has it, the other is refused before anything is computed. */
static void test_page_cap(void **state)
{
    afmoe_context_options options = two_threads();
    afmoe_context *context = open_context(model, &options);
    afmoe_session *one = open_session(context);
    (void)state;
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(one, tokens[0], 64, NULL, NULL, &error));
    options.max_page_bytes = page_bytes_of(context);
    afmoe_session_free(one);
    afmoe_context_free(context);

    context = open_context(model, &options);
    afmoe_session *sessions[] = {open_session(context), open_session(context)};
    afmoe_step_item items[] = {item_of(sessions[0], tokens[0], 64), item_of(sessions[1], tokens[1], 64)};
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_context_step(context, items, 2, NULL, &error));
    assert_int_equal(items[0].status, AFMOE_OK);
    check_logits(sessions[0], 0);
    assert_int_equal(n_tokens_of(sessions[1]), 0);
    afmoe_session_free(sessions[0]);
    items[1] = item_of(sessions[1], tokens[1], 64);
    CHECK_STATUS(AFMOE_OK, afmoe_context_step(context, items + 1, 1, NULL, &error));
    check_logits(sessions[1], 1);
    afmoe_session_free(sessions[1]);
    afmoe_context_free(context);
}

/* ---- Shared pages ---- */

/* Sessions of one walk, and of which of the texts each has a beginning. */
struct walkers {
    afmoe_context *context;
    afmoe_session *sessions[N_SESSIONS];
    uint32_t of[N_SESSIONS];
    uint32_t random;
};

static uint32_t draw(struct walkers *walkers, uint32_t n)
{
    walkers->random = walkers->random * 1664525u + 1013904223u;
    return (walkers->random >> 8) % n;
}

static void check_walker(const struct walkers *walkers, uint32_t i)
{
    afmoe_token have[N_TOKENS];
    uint64_t n;
    CHECK_STATUS(AFMOE_OK, afmoe_session_tokens(walkers->sessions[i], have, N_TOKENS, &n, &error));
    assert_memory_equal(have, tokens[walkers->of[i]], n * sizeof *have);
}

static void step_some(struct walkers *walkers, uint32_t *n_full)
{
    afmoe_step_item items[N_SESSIONS];
    uint32_t at[N_SESSIONS], n = 0;
    for (uint32_t i = 0; i < N_SESSIONS; i++) {
        uint64_t begin = n_tokens_of(walkers->sessions[i]), more = draw(walkers, 3) ? draw(walkers, 90) : 1;
        if (draw(walkers, 3) == 0 || more == 0 || more > N_TOKENS - begin) continue;
        at[n] = i;
        items[n++] = item_of(walkers->sessions[i], tokens[walkers->of[i]] + begin, more);
    }
    if (n == 0) return;
    afmoe_context_step(walkers->context, items, n, NULL, NULL);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(items[i].status == AFMOE_OK || items[i].status == AFMOE_CONTEXT_FULL);
        if (items[i].status == AFMOE_OK) check_logits(walkers->sessions[at[i]], walkers->of[at[i]]);
        *n_full += items[i].status == AFMOE_CONTEXT_FULL;
        check_walker(walkers, at[i]);
    }
}

static void change_one(struct walkers *walkers)
{
    uint32_t i = draw(walkers, N_SESSIONS), from = draw(walkers, N_SESSIONS), text = draw(walkers, 2);
    uint64_t n = n_tokens_of(walkers->sessions[i]);
    switch (draw(walkers, 4)) {
    case 0:
        if (i == from) return;
        afmoe_session_free(walkers->sessions[i]);
        CHECK_STATUS(AFMOE_OK, afmoe_session_fork(&walkers->sessions[i], walkers->sessions[from], &error));
        walkers->of[i] = walkers->of[from];
        break;
    case 1: /* what it held may become a prefix, and that the beginning of the next */
        afmoe_session_free(walkers->sessions[i]);
        walkers->sessions[i] = open_session(walkers->context);
        walkers->of[i] = text;
        break;
    case 2: afmoe_session_rewind(walkers->sessions[i], draw(walkers, (uint32_t)n + 1), NULL, NULL, NULL); break;
    default:
        if (afmoe_session_sync(walkers->sessions[i], tokens[text], 1 + draw(walkers, N_TOKENS), NULL, NULL, NULL) ==
            AFMOE_OK) {
            walkers->of[i] = text;
            check_logits(walkers->sessions[i], text);
        }
    }
    check_walker(walkers, i);
}

/* Forks, prefixes, snapshots and a cap, under steps that cut as it comes. */
static void test_walks(void **state)
{
    afmoe_model_info info = info_of(model);
    uint64_t page = 2ull * info.n_kv_heads * 64 * info.head_dim * sizeof(uint16_t); /* bfloat16, the default */
    uint32_t n_full = 0;
    (void)state;
    for (uint32_t i = 0; i < (UNDER_SANITIZER ? 8 : 24); i += UNDER_TSAN ? 3 : 1) {
        struct walkers walkers = {.random = i};
        afmoe_context_options options = two_threads();
        options.chunk_tokens = (const uint32_t[]){1, 23, 64, 200}[i % 4];
        options.rewind_tokens = i % 3 * 60;
        options.snapshot_tokens = 64;
        options.snapshot_bytes = i % 5 * info.n_layers * page;
        options.prefix_bytes = i % 2 * 20 * page;
        options.max_page_bytes = (i % 4 < 2 ? 1000 : 40 + i) * page;
        walkers.context = open_context(model, &options);
        for (uint32_t j = 0; j < N_SESSIONS; j++) walkers.sessions[j] = open_session(walkers.context);
        for (uint32_t round = 0; round < 60; round++) {
            step_some(&walkers, &n_full);
            change_one(&walkers);
            assert_true(page_bytes_of(walkers.context) <= options.max_page_bytes);
        }
        for (uint32_t j = 0; j < N_SESSIONS; j++) afmoe_session_free(walkers.sessions[j]);
        if (options.prefix_bytes == 0) assert_int_equal(page_bytes_of(walkers.context), 0);
        afmoe_context_free(walkers.context);
    }
    assert_true(n_full > 0);
}

/* A new session of a step begins with what finished ones have left. */
static void test_prefix(void **state)
{
    afmoe_context_options options = two_threads();
    afmoe_append_result results[2];
    (void)state;
    options.prefix_bytes = (uint64_t)1 << 24;
    options.chunk_tokens = 32;
    afmoe_context *context = open_context(model, &options);
    afmoe_session *sessions[] = {open_session(context), open_session(context)};
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(sessions[0], tokens[0], 150, NULL, NULL, &error));
    afmoe_session_free(sessions[0]);
    sessions[0] = open_session(context);
    afmoe_step_item items[] = {item_of(sessions[0], tokens[0], 200), item_of(sessions[1], tokens[0], 151)};
    for (int i = 0; i < 2; i++) {
        afmoe_append_result_init(&results[i], sizeof results[i]);
        items[i].result = &results[i];
    }
    CHECK_STATUS(AFMOE_OK, afmoe_context_step(context, items, 2, NULL, &error));
    for (int i = 0; i < 2; i++) {
        check_logits(sessions[i], 0);
        assert_int_equal(results[i].n_reused, 150);
        assert_int_equal(results[i].n_computed, i ? 1 : 50);
        assert_int_equal(stats_of(sessions[i]).n_reused, 150);
        afmoe_session_free(sessions[i]);
    }
    afmoe_context_free(context);
}

/* ---- Stopping ---- */

struct stopper {
    afmoe_cancel *cancel;
    uint64_t at;
};

static int32_t set_at(void *user_data, uint64_t done, uint64_t total)
{
    struct stopper *stopper = user_data;
    (void)total;
    if (done >= stopper->at) afmoe_cancel_set(stopper->cancel);
    return 0;
}

/* The flag of one is set by the progress of another: the first keeps whole passes, the other reads on. */
static void test_cancel_of_one(void **state)
{
    afmoe_context_options context_options = two_threads();
    context_options.chunk_tokens = 20;
    afmoe_context *context = open_context(model, &context_options);
    afmoe_session *sessions[] = {open_session(context), open_session(context), open_session(context)};
    afmoe_append_options options[3];
    afmoe_append_result result;
    struct stopper stopper = {.at = 40};
    (void)state;
    CHECK_STATUS(AFMOE_OK, afmoe_cancel_create(&stopper.cancel, &error));
    afmoe_step_item items[3];
    for (int i = 0; i < 3; i++) {
        afmoe_append_options_init(&options[i], sizeof options[i]);
        items[i] = item_of(sessions[i], tokens[i], 200);
        items[i].options = &options[i];
    }
    afmoe_append_result_init(&result, sizeof result);
    options[0].progress = set_at;
    options[0].progress_data = &stopper;
    options[1].cancel = stopper.cancel;
    items[1].result = &result;
    CHECK_STATUS(AFMOE_CANCELLED, afmoe_context_step(context, items, 3, NULL, &error));
    assert_non_null(strstr(error.message, "items[1]: cancelled"));
    assert_int_equal(items[0].status, AFMOE_OK);
    assert_int_equal(items[1].status, AFMOE_CANCELLED);
    assert_int_equal(items[2].status, AFMOE_OK);
    check_logits(sessions[0], 0);
    check_logits(sessions[2], 2);
    uint64_t kept = n_tokens_of(sessions[1]);
    assert_true(kept > 0 && kept < 200);
    assert_int_equal(result.n_tokens, kept);
    assert_int_equal(result.n_computed, kept);
    afmoe_cancel_clear(stopper.cancel); /* and what was kept is good */
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(sessions[1], tokens[1] + kept, 10, NULL, NULL, &error));
    check_logits(sessions[1], 1);
    for (int i = 0; i < 3; i++) afmoe_session_free(sessions[i]);
    afmoe_cancel_free(stopper.cancel);
    afmoe_context_free(context);
}

static void test_cancel_of_all(void **state)
{
    afmoe_context *context = open_context(model, NULL);
    afmoe_session *sessions[] = {open_session(context), open_session(context)};
    afmoe_step_item items[] = {item_of(sessions[0], tokens[0], 20), item_of(sessions[1], tokens[1], 1)};
    afmoe_step_options options;
    afmoe_cancel *cancel;
    (void)state;
    afmoe_step_options_init(&options, sizeof options);
    CHECK_STATUS(AFMOE_OK, afmoe_cancel_create(&cancel, &error));
    options.cancel = cancel;
    afmoe_cancel_set(cancel);
    CHECK_STATUS(AFMOE_CANCELLED, afmoe_context_step(context, items, 2, &options, &error));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(items[i].status, AFMOE_CANCELLED);
        assert_int_equal(n_tokens_of(sessions[i]), 0);
    }
    afmoe_cancel_clear(cancel);
    CHECK_STATUS(AFMOE_OK, afmoe_context_step(context, items, 2, &options, &error));
    check_logits(sessions[0], 0);
    check_logits(sessions[1], 1);
    afmoe_session_free(sessions[0]);
    afmoe_session_free(sessions[1]);
    afmoe_cancel_free(cancel);
    afmoe_context_free(context);
}

struct watcher {
    afmoe_step_item *items;
    uint64_t order[3], n_seen, stop_at;
};

/* An item told of is free: its logits can be read, and more be appended, while the others wait. */
static int32_t look(void *user_data, uint64_t i)
{
    struct watcher *watcher = user_data;
    afmoe_session *session = watcher->items[i].session;
    watcher->order[watcher->n_seen++] = i;
    if (watcher->items[i].status == AFMOE_OK) {
        check_logits(session, (uint32_t)i);
        CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens[i] + n_tokens_of(session), 1, NULL, NULL, &error));
        check_logits(session, (uint32_t)i);
    }
    for (uint64_t other = 0; other < 3 && watcher->n_seen == 1; other++)
        if (other != i)
            CHECK_STATUS(AFMOE_BUSY, afmoe_session_append(watcher->items[other].session, tokens[0], 1, NULL, NULL, &error));
    return watcher->n_seen == watcher->stop_at;
}

static void test_told_when_done(void **state)
{
    (void)state;
    for (uint64_t stop_at = 1; stop_at <= 4; stop_at += 3) {
        afmoe_context_options context_options = two_threads();
        context_options.chunk_tokens = 16;
        afmoe_context *context = open_context(model, &context_options);
        afmoe_step_item items[] = {item_of(open_session(context), tokens[0], 150),
                                   item_of(open_session(context), tokens[1], 1),
                                   item_of(open_session(context), tokens[2], 40)};
        struct watcher watcher = {.items = items, .stop_at = stop_at};
        afmoe_step_options options;
        afmoe_step_options_init(&options, sizeof options);
        options.on_item = look;
        options.on_item_data = &watcher;
        CHECK_STATUS(stop_at == 1 ? AFMOE_CANCELLED : AFMOE_OK, afmoe_context_step(context, items, 3, &options, &error));
        assert_int_equal(watcher.n_seen, 3);
        assert_int_equal(watcher.order[0], 1); /* the single token comes out of the first pass */
        if (stop_at > 3) assert_int_equal(watcher.order[1], 2);
        if (stop_at == 1) assert_int_equal(items[0].status, AFMOE_CANCELLED);
        for (int i = 0; i < 3; i++) afmoe_session_free(items[i].session);
        afmoe_context_free(context);
    }
}

/* ---- From several threads ---- */

struct worker {
    afmoe_context *context;
    uint32_t first;
    afmoe_error error;
};

static void *run_steps(void *user)
{
    struct worker *worker = user;
    afmoe_session *sessions[2];
    worker->error = fresh_error();
    for (uint32_t i = 0; i < 2; i++) sessions[i] = open_session(worker->context);
    for (uint64_t at = 0; at < 40; at += 8) {
        afmoe_step_item items[] = {item_of(sessions[0], tokens[worker->first] + at, 8),
                                   item_of(sessions[1], tokens[worker->first + 1] + at, 8)};
        if (afmoe_context_step(worker->context, items, 2, NULL, &worker->error) != AFMOE_OK) break;
    }
    for (uint32_t i = 0; i < 2; i++) {
        float logits[VOCAB];
        if (afmoe_session_logits(sessions[i], logits, VOCAB, NULL, NULL) != AFMOE_OK ||
            memcmp(logits, expected[worker->first + i][39], sizeof logits) != 0)
            worker->error.code = AFMOE_INTERNAL;
        afmoe_session_free(sessions[i]);
    }
    return NULL;
}

static void test_steps_side_by_side(void **state)
{
    afmoe_context *context = open_context(model, NULL);
    struct worker workers[] = {{.context = context, .first = 0}, {.context = context, .first = 2}};
    pthread_t threads[2];
    (void)state;
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_steps, &workers[i]), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].error.code, AFMOE_OK);
    }
    afmoe_context_free(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),        cmocka_unit_test(test_options_of_items),
        cmocka_unit_test(test_failures_are_ones_own), cmocka_unit_test(test_page_cap),
        cmocka_unit_test(test_walks),            cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_cancel_of_one),    cmocka_unit_test(test_cancel_of_all),
        cmocka_unit_test(test_told_when_done),   cmocka_unit_test(test_steps_side_by_side),
    };
    return cmocka_run_group_tests_name("step", tests, set_up, tear_down);
}
