/* Many threads: sessions of one context, contexts of one model, and cancelling from outside. Every thread finds the
 * bits a single one finds; ThreadSanitizer finds no race. */
#include "harness.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_THREADS = 4, VOCAB = 96, N_TOKENS = 120, N_ANSWER = 40 };

static afmoe_error error;
static afmoe_model *tiny;

/* What one thread does: a prompt of its own, then tokens drawn by a sampler of its own. */
struct work {
    pthread_t thread;
    afmoe_context *context;
    afmoe_token prompt[N_TOKENS], answer[N_ANSWER];
    float logits[VOCAB]; /* after the answer */
    afmoe_status status;
};

static int open_tiny(void **state)
{
    char path[PATH_BYTES];
    (void)state;
    error = fresh_error();
    if (!small_model_path(path, "tiny-bias")) return -1;
    tiny = open_model(path);
    return 0;
}

static int close_tiny(void **state)
{
    (void)state;
    afmoe_model_free(tiny);
    return 0;
}

static afmoe_context *context_of(int n_threads)
{
    afmoe_context_options options = two_threads();
    options.n_threads = n_threads;
    options.chunk_tokens = 16;
    return open_context(tiny, &options);
}

static afmoe_status answer(struct work *work, afmoe_session *session, afmoe_sampler *sampler)
{
    afmoe_generate_options options;
    afmoe_generate_options_init(&options, sizeof options);
    options.max_tokens = N_ANSWER;
    options.ignore_eos = 1;
    afmoe_token all[N_TOKENS + N_ANSWER];
    uint64_t n;
    afmoe_status status = afmoe_session_append(session, work->prompt, N_TOKENS, NULL, NULL, NULL);
    if (status == AFMOE_OK) status = afmoe_generate(session, sampler, &options, NULL, NULL);
    if (status == AFMOE_OK) status = afmoe_session_tokens(session, all, N_TOKENS + N_ANSWER, &n, NULL);
    if (status == AFMOE_OK) memcpy(work->answer, all + N_TOKENS, sizeof work->answer);
    return status == AFMOE_OK ? afmoe_session_logits(session, work->logits, VOCAB, NULL, NULL) : status;
}

/* In a thread: no assertions here, they belong to the main thread. */
static void *run(void *user)
{
    struct work *work = user;
    afmoe_session *session = NULL;
    afmoe_sampler *sampler = NULL;
    afmoe_sampler_options options;
    afmoe_sampler_options_init(&options, sizeof options);
    options.temperature = 1;
    options.seed = 3;
    work->status = afmoe_session_create(&session, work->context, NULL);
    if (work->status == AFMOE_OK) work->status = afmoe_sampler_create(&sampler, tiny, &options, NULL);
    if (work->status == AFMOE_OK) work->status = answer(work, session, sampler);
    afmoe_session_free(session);
    afmoe_sampler_free(sampler);
    return NULL;
}

/* Alone and one after the other first, then all at once; contexts[i] is that of thread i. */
static void check_together(afmoe_context *const *contexts)
{
    struct work alone[N_THREADS], together[N_THREADS];
    afmoe_context *context = context_of(1);
    memset(alone, 0, sizeof alone);
    memset(together, 0, sizeof together);
    for (int i = 0; i < N_THREADS; i++) {
        make_tokens(alone[i].prompt, N_TOKENS, VOCAB, 20u + (uint32_t)i);
        memcpy(together[i].prompt, alone[i].prompt, sizeof alone[i].prompt);
        alone[i].context = context;
        together[i].context = contexts[i];
        run(&alone[i]);
        assert_int_equal(alone[i].status, AFMOE_OK);
    }
    afmoe_context_free(context);
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&together[i].thread, NULL, run, &together[i]), 0);
    for (int i = 0; i < N_THREADS; i++) pthread_join(together[i].thread, NULL);
    for (int i = 0; i < N_THREADS; i++) {
        assert_int_equal(together[i].status, AFMOE_OK);
        assert_memory_equal(together[i].answer, alone[i].answer, sizeof alone[i].answer);
        assert_memory_equal(together[i].logits, alone[i].logits, sizeof alone[i].logits);
    }
}

static void sessions_of_one_context(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads <= 3; n_threads += 2) {
        afmoe_context *context = context_of(n_threads);
        check_together((afmoe_context *const[N_THREADS]){context, context, context, context});
        assert_int_equal(page_bytes_of(context), 0);
        afmoe_context_free(context);
    }
}

static void contexts_of_one_model(void **state)
{
    afmoe_context *contexts[N_THREADS];
    (void)state;
    for (int i = 0; i < N_THREADS; i++) contexts[i] = context_of(2);
    check_together(contexts);
    for (int i = 0; i < N_THREADS; i++) afmoe_context_free(contexts[i]);
}

/* ---- Cancelling from outside ---- */

/* Appends over and over until it is cancelled. */
struct endless {
    pthread_t thread;
    afmoe_session *session;
    afmoe_cancel *cancel;
    afmoe_token tokens[N_TOKENS];
    afmoe_status status;
};

static void *append_until_cancelled(void *user)
{
    struct endless *endless = user;
    afmoe_append_options options;
    afmoe_append_options_init(&options, sizeof options);
    options.cancel = endless->cancel;
    do {
        endless->status = afmoe_session_append(endless->session, endless->tokens, N_TOKENS, &options, NULL, NULL);
        if (endless->status == AFMOE_OK)
            endless->status = afmoe_session_rewind(endless->session, 0, NULL, NULL, NULL);
    } while (endless->status == AFMOE_OK);
    return NULL;
}

static void nap(long ns)
{
    struct timespec pause = {0, ns};
    nanosleep(&pause, NULL);
}

/* One by one, some computing, some waiting for their turn; the others go on, and a cancelled one can be used again. */
static void cancelling_one_leaves_the_others(void **state)
{
    afmoe_context *context = context_of(2);
    struct endless endless[N_THREADS];
    (void)state;
    for (int i = 0; i < N_THREADS; i++) {
        endless[i].session = open_session(context);
        make_tokens(endless[i].tokens, N_TOKENS, VOCAB, (uint32_t)i);
        CHECK_STATUS(AFMOE_OK, afmoe_cancel_create(&endless[i].cancel, &error));
        assert_int_equal(pthread_create(&endless[i].thread, NULL, append_until_cancelled, &endless[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        nap(3000000);
        afmoe_cancel_set(endless[i].cancel);
        pthread_join(endless[i].thread, NULL);
        assert_int_equal(endless[i].status, AFMOE_CANCELLED);
        uint64_t n_kept = n_tokens_of(endless[i].session);
        assert_true(n_kept < N_TOKENS && n_kept % 16 == 0);
        CHECK_STATUS(AFMOE_OK, afmoe_session_sync(endless[i].session, endless[i].tokens, N_TOKENS, NULL, NULL, &error));
        afmoe_session_free(endless[i].session);
        afmoe_cancel_free(endless[i].cancel);
    }
    assert_int_equal(page_bytes_of(context), 0);
    afmoe_context_free(context);
}

static void one_flag_stops_all(void **state)
{
    afmoe_context *context = context_of(2);
    struct endless endless[N_THREADS];
    afmoe_cancel *cancel;
    (void)state;
    CHECK_STATUS(AFMOE_OK, afmoe_cancel_create(&cancel, &error));
    for (int i = 0; i < N_THREADS; i++) {
        endless[i].session = open_session(context);
        endless[i].cancel = cancel;
        make_tokens(endless[i].tokens, N_TOKENS, VOCAB, (uint32_t)i);
        assert_int_equal(pthread_create(&endless[i].thread, NULL, append_until_cancelled, &endless[i]), 0);
    }
    nap(3000000);
    afmoe_cancel_set(cancel);
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(endless[i].thread, NULL);
        assert_int_equal(endless[i].status, AFMOE_CANCELLED);
        afmoe_session_free(endless[i].session);
    }
    afmoe_cancel_free(cancel);
    afmoe_context_free(context);
}

/* ---- One session, many callers ---- */

struct caller {
    pthread_t thread;
    afmoe_session *session;
    uint64_t n_appended, n_busy;
    afmoe_status worst; /* of those that are neither OK nor BUSY */
};

static void *append_some(void *user)
{
    struct caller *caller = user;
    const afmoe_token token = 7;
    for (int i = 0; i < 100; i++) {
        afmoe_status status = afmoe_session_append(caller->session, &token, 1, NULL, NULL, NULL);
        caller->n_appended += status == AFMOE_OK;
        caller->n_busy += status == AFMOE_BUSY;
        if (status != AFMOE_OK && status != AFMOE_BUSY) caller->worst = status;
    }
    return NULL;
}

static void one_session_has_one_caller(void **state)
{
    afmoe_context *context = context_of(1);
    afmoe_session *session = open_session(context);
    struct caller callers[N_THREADS];
    uint64_t n_appended = 0;
    (void)state;
    for (int i = 0; i < N_THREADS; i++) {
        callers[i] = (struct caller){.session = session};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, append_some, &callers[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(callers[i].thread, NULL);
        assert_int_equal(callers[i].worst, AFMOE_OK);
        assert_int_equal(callers[i].n_appended + callers[i].n_busy, 100);
        n_appended += callers[i].n_appended;
    }
    assert_int_equal(n_tokens_of(session), n_appended);
    afmoe_session_free(session);
    afmoe_context_free(context);
}

/* ---- References ---- */

static void *hold_and_drop(void *user)
{
    for (int i = 0; i < 200; i++) {
        afmoe_session *session;
        afmoe_model_retain(tiny);
        if (afmoe_session_create(&session, user, NULL) == AFMOE_OK) afmoe_session_free(session);
        afmoe_model_free(tiny);
    }
    return NULL;
}

static void references_from_many_threads(void **state)
{
    pthread_t threads[N_THREADS];
    afmoe_context *context = context_of(1);
    (void)state;
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hold_and_drop, context), 0);
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(info_of(tiny).n_layers, 4);
    afmoe_context_free(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_of_one_context), cmocka_unit_test(contexts_of_one_model),
        cmocka_unit_test(cancelling_one_leaves_the_others), cmocka_unit_test(one_flag_stops_all),
        cmocka_unit_test(one_session_has_one_caller), cmocka_unit_test(references_from_many_threads)};
    return cmocka_run_group_tests_name("threads", tests, open_tiny, close_tiny);
}
