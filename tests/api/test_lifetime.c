/* Who lives how long: freeing in any order, freeing and calling from inside callbacks, references. Under ASan a use
 * after free or a leak fails. */
#include "harness.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static afmoe_error error;
static const afmoe_token prompt[] = {5, 6, 7, 8, 9, 10};
enum { N_PROMPT = 6 };

/* One of each, on a model of their own. */
enum { MODEL, CONTEXT, SESSION, SAMPLER, DECODER, N_OBJECTS };

struct objects {
    afmoe_model *model;
    afmoe_context *context;
    afmoe_session *a, *b;
    afmoe_sampler *sampler;
    afmoe_stream_decoder *decoder;
};

static int prepare(void **state)
{
    (void)state;
    error = fresh_error();
    return 0;
}

/* With n_tokens in session a. */
static void open_objects(struct objects *objects, uint64_t n_tokens)
{
    char path[PATH_BYTES];
    objects->model = open_model(text_model_path(path));
    afmoe_context_options options = two_threads();
    options.chunk_tokens = 2;
    objects->context = open_context(objects->model, &options);
    objects->a = open_session(objects->context);
    objects->b = open_session(objects->context);
    CHECK_STATUS(AFMOE_OK, afmoe_sampler_create(&objects->sampler, objects->model, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_stream_decoder_create(&objects->decoder, objects->model, 1, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(objects->a, prompt, n_tokens, NULL, NULL, &error));
}

static void free_one(struct objects *objects, int which)
{
    switch (which) {
    case MODEL: afmoe_model_free(objects->model); break;
    case CONTEXT: afmoe_context_free(objects->context); break;
    case SESSION:
        afmoe_session_free(objects->a);
        afmoe_session_free(objects->b);
        break;
    case SAMPLER: afmoe_sampler_free(objects->sampler); break;
    case DECODER: afmoe_stream_decoder_free(objects->decoder); break;
    }
}

static void free_all(struct objects *objects)
{
    for (int i = 0; i < N_OBJECTS; i++) free_one(objects, i);
}

/* ---- Order ---- */

/* The next permutation in lexical order; false after the last. */
static bool next_permutation(int *order, int n)
{
    int i = n - 2, j = n - 1;
    while (i >= 0 && order[i] > order[i + 1]) i--;
    if (i < 0) return false;
    while (order[j] < order[i]) j--;
    int swap = order[i];
    order[i] = order[j];
    order[j] = swap;
    for (int l = i + 1, r = n - 1; l < r; l++, r--) {
        swap = order[l];
        order[l] = order[r];
        order[r] = swap;
    }
    return true;
}

/* What is left after each free still works. */
static void use(const struct objects *objects, unsigned freed)
{
    uint64_t n;
    afmoe_token token;
    const char *text;
    if (!(freed >> SAMPLER & 1) && !(freed >> SESSION & 1))
        CHECK_STATUS(AFMOE_OK, afmoe_sampler_sample(objects->sampler, objects->a, 0, &token, NULL, &error));
    if (!(freed >> DECODER & 1))
        CHECK_STATUS(AFMOE_OK, afmoe_stream_decoder_push(objects->decoder, 300, &text, &n, &error));
    if (!(freed >> SESSION & 1))
        CHECK_STATUS(AFMOE_CAPACITY, afmoe_session_tokens(objects->a, NULL, 0, &n, &error));
    if (freed == (1 << MODEL | 1 << CONTEXT))
        CHECK_STATUS(AFMOE_OK, afmoe_session_append(objects->b, prompt, 1, NULL, NULL, &error));
}

static void free_in_every_order(void **state)
{
    int order[N_OBJECTS] = {0, 1, 2, 3, 4};
    (void)state;
    do {
        struct objects objects;
        unsigned freed = 0;
        open_objects(&objects, 1);
        for (int k = 0; k < N_OBJECTS; k++) {
            free_one(&objects, order[k]);
            freed |= 1u << order[k];
            use(&objects, freed);
        }
    } while (next_permutation(order, N_OBJECTS));
}

static void references_are_counted(void **state)
{
    char path[PATH_BYTES];
    (void)state;
    afmoe_model *model = open_model(text_model_path(path));
    for (int i = 0; i < 3; i++) afmoe_model_retain(model);
    for (int i = 0; i < 3; i++) afmoe_model_free(model);
    assert_int_equal(info_of(model).n_layers, 4);
    afmoe_model_free(model);

    afmoe_cancel *cancel;
    CHECK_STATUS(AFMOE_OK, afmoe_cancel_create(&cancel, &error));
    assert_int_equal(afmoe_cancel_is_set(cancel), 0);
    afmoe_cancel_retain(cancel);
    afmoe_cancel_free(cancel);
    afmoe_cancel_set(cancel);
    afmoe_cancel_set(cancel);
    assert_int_equal(afmoe_cancel_is_set(cancel), 1);
    afmoe_cancel_clear(cancel);
    assert_int_equal(afmoe_cancel_is_set(cancel), 0);
    afmoe_cancel_free(cancel);
}

/* ---- Callbacks ---- */

/* Every call on the session a callback belongs to answers BUSY. */
static void check_busy(afmoe_session *session, afmoe_sampler *sampler)
{
    float x;
    uint64_t n;
    const float *view;
    afmoe_token token;
    afmoe_session_stats stats;
    afmoe_session_stats_init(&stats, sizeof stats);
    CHECK_STATUS(AFMOE_BUSY, afmoe_session_append(session, prompt, 1, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_BUSY, afmoe_session_sync(session, prompt, 1, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_BUSY, afmoe_session_rewind(session, 0, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_BUSY, afmoe_session_tokens(session, NULL, 0, &n, &error));
    CHECK_STATUS(AFMOE_BUSY, afmoe_session_logits(session, &x, 1, &n, &error));
    CHECK_STATUS(AFMOE_BUSY, afmoe_session_logits_view(session, &view, &n, &error));
    CHECK_STATUS(AFMOE_BUSY, afmoe_session_logprobs(session, &x, 1, &n, &error));
    CHECK_STATUS(AFMOE_BUSY, afmoe_session_hidden(session, &x, 1, &n, &error));
    CHECK_STATUS(AFMOE_BUSY, afmoe_session_get_stats(session, &stats, &error));
    CHECK_STATUS(AFMOE_BUSY, afmoe_session_top_logprobs(session, &token, &x, 1, &n, &error));
    CHECK_STATUS(AFMOE_BUSY, afmoe_sampler_sample(sampler, session, 0, &token, NULL, &error));
    CHECK_STATUS(AFMOE_BUSY, afmoe_generate(session, NULL, NULL, NULL, &error));
    assert_non_null(strstr(error.message, "session"));
}

struct inside {
    struct objects *objects;
    bool frees, stops;
    int n_calls;
};

static int32_t inside_call(struct inside *inside)
{
    struct objects *objects = inside->objects;
    inside->n_calls++;
    check_busy(objects->a, objects->sampler);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(objects->b, prompt, 1, NULL, NULL, &error)); /* another may be used */
    if (inside->frees && inside->n_calls == 1) free_all(objects);
    return inside->stops;
}

static int32_t inside_progress(void *user, uint64_t done, uint64_t total)
{
    struct inside *inside = user;
    assert_true(done > 0 && done <= total && total == N_PROMPT);
    if (inside->frees && inside->n_calls) return 0; /* nothing is ours any more */
    return inside_call(inside);
}

static int32_t inside_piece(void *user, const afmoe_piece *piece)
{
    struct inside *inside = user;
    assert_int_equal(piece->size, sizeof *piece);
    if (inside->frees && inside->n_calls) return 0;
    return inside_call(inside);
}

static void check_append(bool frees, bool stops)
{
    struct objects objects;
    struct inside inside = {.objects = &objects, .frees = frees, .stops = stops};
    afmoe_append_options options;
    afmoe_append_result result;
    open_objects(&objects, 0);
    afmoe_append_options_init(&options, sizeof options);
    afmoe_append_result_init(&result, sizeof result);
    options.progress = inside_progress;
    options.progress_data = &inside;
    afmoe_status status = afmoe_session_append(objects.a, prompt, N_PROMPT, &options, &result, &error);
    assert_int_equal(status, stops ? AFMOE_CANCELLED : AFMOE_OK);
    assert_int_equal(result.n_tokens, stops ? 2 : N_PROMPT);
    if (!frees) {
        CHECK_STATUS(AFMOE_OK, afmoe_session_append(objects.a, prompt, 1, NULL, NULL, &error)); /* no longer busy */
        free_all(&objects);
    }
}

static void check_generate(bool frees, bool stops, bool with_sampler)
{
    struct objects objects;
    struct inside inside = {.objects = &objects, .frees = frees, .stops = stops};
    afmoe_generate_options options;
    afmoe_generate_result result;
    open_objects(&objects, N_PROMPT);
    afmoe_generate_options_init(&options, sizeof options);
    afmoe_generate_result_init(&result, sizeof result);
    options.on_piece = inside_piece;
    options.on_piece_data = &inside;
    options.max_tokens = 5;
    options.ignore_eos = 1;
    options.n_top_logprobs = 3;
    afmoe_status status = afmoe_generate(objects.a, with_sampler ? objects.sampler : NULL, &options, &result, &error);
    assert_int_equal(status, stops ? AFMOE_CANCELLED : AFMOE_OK);
    assert_int_equal(result.finish_reason, stops ? AFMOE_FINISH_CANCELLED : AFMOE_FINISH_LENGTH);
    assert_int_equal(result.n_generated, stops ? 1 : 5);
    if (!frees) {
        assert_int_equal(n_tokens_of(objects.a), N_PROMPT + result.n_generated);
        CHECK_STATUS(AFMOE_OK, afmoe_generate(objects.a, objects.sampler, &(afmoe_generate_options){
            .size = sizeof options, .max_tokens = 1, .ignore_eos = 1}, NULL, &error));
        free_all(&objects);
    }
}

static void calls_from_callbacks_are_busy(void **state)
{
    (void)state;
    for (int stops = 0; stops < 2; stops++) {
        check_append(false, stops);
        for (int with_sampler = 0; with_sampler < 2; with_sampler++) check_generate(false, stops, with_sampler);
    }
}

static void freeing_in_callbacks_is_deferred(void **state)
{
    (void)state;
    for (int stops = 0; stops < 2; stops++) {
        check_append(true, stops);
        for (int with_sampler = 0; with_sampler < 2; with_sampler++) check_generate(true, stops, with_sampler);
    }
}

static int32_t free_session(void *user, uint64_t done, uint64_t total)
{
    (void)total;
    if (done == 2) afmoe_session_free(user);
    return 0;
}

static void the_last_reference_goes_with_the_call(void **state)
{
    char path[PATH_BYTES];
    afmoe_append_options options;
    (void)state;
    afmoe_model *model = open_model(text_model_path(path));
    afmoe_context_options context_options = two_threads();
    context_options.chunk_tokens = 2;
    afmoe_context *context = open_context(model, &context_options);
    afmoe_session *session = open_session(context);
    afmoe_context_free(context);
    afmoe_model_free(model);
    afmoe_append_options_init(&options, sizeof options);
    options.progress = free_session;
    options.progress_data = session;
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, prompt, N_PROMPT, &options, NULL, &error));
}

/* ---- Another thread ---- */

/* Meets the main thread inside a callback. */
struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_inside, may_leave;
    struct objects *objects;
    afmoe_status status;
};

static void wait_for(struct meeting *meeting, const bool *flag)
{
    pthread_mutex_lock(&meeting->lock);
    while (!*flag) pthread_cond_wait(&meeting->changed, &meeting->lock);
    pthread_mutex_unlock(&meeting->lock);
}

static void raise_flag(struct meeting *meeting, bool *flag)
{
    pthread_mutex_lock(&meeting->lock);
    *flag = true;
    pthread_cond_broadcast(&meeting->changed);
    pthread_mutex_unlock(&meeting->lock);
}

static int32_t stay_inside(void *user, uint64_t done, uint64_t total)
{
    struct meeting *meeting = user;
    (void)total;
    if (done > 2) return 0;
    raise_flag(meeting, &meeting->is_inside);
    wait_for(meeting, &meeting->may_leave);
    return 0;
}

static void *append_in_thread(void *user)
{
    struct meeting *meeting = user;
    afmoe_append_options options;
    afmoe_append_options_init(&options, sizeof options);
    options.progress = stay_inside;
    options.progress_data = meeting;
    meeting->status = afmoe_session_append(meeting->objects->a, prompt, N_PROMPT, &options, NULL, NULL);
    return NULL;
}

static void check_second_caller(bool frees)
{
    struct objects objects;
    struct meeting meeting = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER,
                              .objects = &objects};
    pthread_t thread;
    open_objects(&objects, 0);
    assert_int_equal(pthread_create(&thread, NULL, append_in_thread, &meeting), 0);
    wait_for(&meeting, &meeting.is_inside);
    check_busy(objects.a, objects.sampler);
    if (frees) free_all(&objects);
    raise_flag(&meeting, &meeting.may_leave);
    pthread_join(thread, NULL);
    assert_int_equal(meeting.status, AFMOE_OK);
    if (frees) return;
    assert_int_equal(n_tokens_of(objects.a), N_PROMPT);
    free_all(&objects);
}

static void a_second_caller_is_busy(void **state)
{
    (void)state;
    check_second_caller(false);
}

static void a_second_thread_may_free(void **state)
{
    (void)state;
    check_second_caller(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_in_every_order),
        cmocka_unit_test(references_are_counted),
        cmocka_unit_test(calls_from_callbacks_are_busy),
        cmocka_unit_test(freeing_in_callbacks_is_deferred),
        cmocka_unit_test(the_last_reference_goes_with_the_call),
        cmocka_unit_test(a_second_caller_is_busy),
        cmocka_unit_test(a_second_thread_may_free),
    };
    return cmocka_run_group_tests_name("lifetime", tests, prepare, NULL);
}
