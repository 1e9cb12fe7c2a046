/* The scheduler: every answer is the one generate gives, whoever runs beside it; order, bounds, flow, failures. */
#define _GNU_SOURCE
#include "text_model.h"

#include "sanitizer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_PIECES = 64, MAX_PROMPT = 400, N_REQUESTS = 6 };

struct made {
    afmoe_token tokens[MAX_PIECES];
    float logprobs[MAX_PIECES];
    char text[MAX_PIECES * 16];
    uint64_t n, n_bytes;
    afmoe_status status;
    afmoe_generate_result result;
    char message[504];
    int n_done;
    uint64_t done_at; /* in the order of all */
};

static uint64_t n_done_all;

static int32_t on_piece(void *user_data, const afmoe_piece *piece)
{
    struct made *made = user_data;
    if (made->n == MAX_PIECES || made->n_bytes + piece->text_bytes > sizeof made->text) return 1;
    memcpy(made->text + made->n_bytes, piece->text, piece->text_bytes);
    made->n_bytes += piece->text_bytes;
    made->tokens[made->n] = piece->token;
    made->logprobs[made->n++] = piece->logprob;
    return 0;
}

static void on_done(void *user_data, afmoe_status status, const afmoe_generate_result *result,
                    const afmoe_error *failure)
{
    struct made *made = user_data;
    made->status = status;
    made->result = *result;
    strcpy(made->message, failure->message);
    made->n_done++;
    made->done_at = n_done_all++;
}

/* ---- The same answers ---- */

struct job {
    afmoe_token prompt[MAX_PROMPT];
    uint64_t n_prompt;
    afmoe_generate_options options;
    afmoe_sampler *sampler;
    struct made alone, together;
};

static const char *const stop = "the";

/* Prompts of several lengths, greedy and drawn, with and without drafts, ending in several ways. */
static void make_job(struct job *job, int i)
{
    static const char *const texts[] = {"Once upon a time", "user\nWrite a short story with a frog and a book.\n",
                                        "int main(void) {", "The library", "a", "2 + 2 ="};
    memset(job, 0, sizeof *job);
    CHECK_STATUS(AFMOE_OK, afmoe_tokenize(model, texts[i], strlen(texts[i]), NULL, job->prompt, MAX_PROMPT,
                                          &job->n_prompt, &error));
    if (i == 1 || i == 3) {
        make_tokens(job->prompt, 90u * (unsigned)i, info_of(model).n_tokens, 5u + (unsigned)i);
        job->n_prompt = 90u * (unsigned)i;
    }
    afmoe_generate_options_init(&job->options, sizeof job->options);
    job->options.max_tokens = 10 + 9 * (uint64_t)i;
    job->options.max_draft = i % 2 ? 8 : 0;
    job->options.ignore_eos = i % 3 == 0;
    job->options.on_piece = on_piece;
    if (i == 4) {
        job->options.stop_strings = &stop;
        job->options.n_stop_strings = 1;
    }
    if (i % 2) {
        afmoe_sampler_options options;
        afmoe_sampler_options_init(&options, sizeof options);
        options.temperature = 0.7f;
        options.seed = (uint64_t)i;
        CHECK_STATUS(AFMOE_OK, afmoe_sampler_create(&job->sampler, model, &options, &error));
    }
}

static void answer_alone(struct job *job)
{
    afmoe_context *context = open_context(model, NULL);
    afmoe_session *session = open_session(context);
    job->options.on_piece_data = &job->alone;
    afmoe_generate_result_init(&job->alone.result, sizeof job->alone.result);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, job->prompt, job->n_prompt, NULL, NULL, &error));
    job->alone.status = afmoe_generate(session, job->sampler, &job->options, &job->alone.result, &error);
    afmoe_session_free(session);
    afmoe_context_free(context);
}

static afmoe_request request_of(struct job *job, afmoe_session *session)
{
    afmoe_request request;
    afmoe_request_init(&request, sizeof request);
    memset(&job->together, 0, sizeof job->together);
    job->options.on_piece_data = &job->together;
    request.session = session;
    request.sampler = job->sampler;
    request.tokens = job->prompt;
    request.n_tokens = job->n_prompt;
    request.options = &job->options;
    request.on_done = on_done;
    request.on_done_data = &job->together;
    return request;
}

static void check_same(const struct job *job)
{
    const struct made *a = &job->alone, *b = &job->together;
    assert_int_equal(b->n_done, 1);
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->tokens, b->tokens, a->n * sizeof *a->tokens);
    assert_memory_equal(a->logprobs, b->logprobs, a->n * sizeof *a->logprobs);
    assert_int_equal(a->n_bytes, b->n_bytes);
    assert_memory_equal(a->text, b->text, a->n_bytes);
    assert_int_equal(a->result.finish_reason, b->result.finish_reason);
    assert_int_equal(a->result.n_generated, b->result.n_generated);
    assert_int_equal(a->result.stop_token, b->result.stop_token);
    assert_int_equal(a->result.stop_string, b->result.stop_string);
}

static struct job jobs[N_REQUESTS];

static void make_jobs(void)
{
    static struct made alone[N_REQUESTS]; /* made once for all tests */
    for (int i = 0; i < N_REQUESTS; i++) {
        make_job(&jobs[i], i);
        if (!alone[i].n) {
            answer_alone(&jobs[i]);
            alone[i] = jobs[i].alone;
        }
        jobs[i].alone = alone[i];
    }
}

static void free_jobs(void)
{
    for (int i = 0; i < N_REQUESTS; i++) afmoe_sampler_free(jobs[i].sampler);
    memset(jobs, 0, sizeof jobs);
}

static afmoe_scheduler *open_scheduler(afmoe_context *context, uint32_t max_running, uint32_t max_prompt_tokens)
{
    afmoe_scheduler_options options;
    afmoe_scheduler *scheduler;
    afmoe_scheduler_options_init(&options, sizeof options);
    options.max_running = max_running;
    options.max_prompt_tokens = max_prompt_tokens;
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_create(&scheduler, context, &options, &error));
    return scheduler;
}

static afmoe_scheduler_info info_now(afmoe_scheduler *scheduler)
{
    afmoe_scheduler_info info;
    afmoe_scheduler_info_init(&info, sizeof info);
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_get_info(scheduler, &info, &error));
    return info;
}

static void test_same_answers(void **state)
{
    static const uint32_t running[] = {1, 3, 8}, prompt_tokens[] = {1, 16, 4096};
    (void)state;
    make_jobs();
    for (int k = UNDER_SANITIZER ? 1 : 0; k < 9; k += UNDER_TSAN ? 6 : UNDER_SANITIZER ? 3 : 1) {
        afmoe_context_options options = two_threads();
        options.chunk_tokens = k == 4 ? 4 : 64; /* fewer rows than requests once */
        options.rewind_tokens = 0;
        afmoe_context *context = open_context(model, &options);
        afmoe_scheduler *scheduler = open_scheduler(context, running[k % 3], prompt_tokens[k / 3]);
        afmoe_session *sessions[N_REQUESTS];
        for (int i = 0; i < N_REQUESTS; i++) {
            sessions[i] = open_session(context);
            const afmoe_request request = request_of(&jobs[i], sessions[i]);
            CHECK_STATUS(AFMOE_OK, afmoe_scheduler_submit(scheduler, &request, &error));
            CHECK_STATUS(AFMOE_BUSY, afmoe_session_rewind(sessions[i], 0, NULL, NULL, &error));
        }
        if (k % 2) {
            while (afmoe_scheduler_step(scheduler, &error) == AFMOE_OK)
                assert_true(info_now(scheduler).n_running <= running[k % 3]);
        }
        CHECK_STATUS(AFMOE_OK, afmoe_scheduler_run(scheduler, &error));
        CHECK_STATUS(AFMOE_END, afmoe_scheduler_step(scheduler, &error));
        afmoe_scheduler_info info = info_now(scheduler);
        assert_int_equal(info.n_done, N_REQUESTS);
        assert_int_equal(info.n_running + info.n_waiting, 0);
        for (int i = 0; i < N_REQUESTS; i++) {
            check_same(&jobs[i]);
            assert_int_equal(n_tokens_of(sessions[i]), jobs[i].n_prompt + jobs[i].together.result.n_generated);
            afmoe_session_free(sessions[i]);
        }
        assert_int_equal(page_bytes_of(context), 0);
        afmoe_scheduler_free(scheduler);
        afmoe_context_free(context);
    }
    free_jobs();
}

/* ---- Order, bounds, flow ---- */

static void test_order(void **state)
{
    static const int32_t priorities[] = {0, 5, 0, -3, 5, 7};
    static const uint64_t order[] = {3, 1, 4, 5, 2, 0}; /* what place each comes out at */
    afmoe_context *context = open_context(model, NULL);
    afmoe_scheduler *scheduler = open_scheduler(context, 1, 64);
    afmoe_session *sessions[N_REQUESTS];
    (void)state;
    n_done_all = 0;
    for (int i = 0; i < N_REQUESTS; i++) {
        make_job(&jobs[i], i);
        sessions[i] = open_session(context);
        afmoe_request request = request_of(&jobs[i], sessions[i]);
        jobs[i].options.max_tokens = 3;
        request.priority = priorities[i];
        CHECK_STATUS(AFMOE_OK, afmoe_scheduler_submit(scheduler, &request, &error));
    }
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_run(scheduler, &error));
    for (int i = 0; i < N_REQUESTS; i++) {
        assert_int_equal(jobs[i].together.done_at, order[i]);
        afmoe_session_free(sessions[i]);
    }
    free_jobs();
    afmoe_scheduler_free(scheduler);
    afmoe_context_free(context);
}

static void test_bounds(void **state)
{
    afmoe_context *context = open_context(model, NULL);
    afmoe_session *sessions[3] = {open_session(context), open_session(context), open_session(context)};
    afmoe_scheduler_options options;
    afmoe_scheduler *scheduler;
    (void)state;
    afmoe_scheduler_options_init(&options, sizeof options);
    options.max_waiting = 2;
    options.max_running = 0;
    CHECK_STATUS(AFMOE_INVALID, afmoe_scheduler_create(&scheduler, context, &options, &error));
    assert_string_equal(error.message, "max_running is 0, allowed are 1..4096");
    options.max_running = 1;
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_create(&scheduler, context, &options, &error));
    for (int i = 0; i < 3; i++) {
        make_job(&jobs[i], 2 * (i % 2));
        const afmoe_request request = request_of(&jobs[i], sessions[i]);
        CHECK_STATUS(i < 2 ? AFMOE_OK : AFMOE_LIMIT, afmoe_scheduler_submit(scheduler, &request, &error));
    }
    assert_string_equal(error.message, "2 requests are waiting, which is max_waiting");
    assert_int_equal(n_tokens_of(sessions[2]), 0); /* it was let go */
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_step(scheduler, &error));
    const afmoe_request request = request_of(&jobs[2], sessions[2]);
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_submit(scheduler, &request, &error)); /* one of them runs now */
    assert_int_equal(info_now(scheduler).n_waiting, 2);
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_run(scheduler, &error));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(jobs[i].together.n_done, 1);
        afmoe_session_free(sessions[i]);
    }
    free_jobs();
    afmoe_scheduler_free(scheduler);
    afmoe_context_free(context);
}

/* A long prompt beside a running answer: the answer gets a token in every step. */
static void test_answers_flow(void **state)
{
    enum { PIECE = 8, LONG = 200 };
    afmoe_context *context = open_context(model, NULL);
    afmoe_scheduler *scheduler = open_scheduler(context, 4, PIECE);
    afmoe_session *sessions[2] = {open_session(context), open_session(context)};
    (void)state;
    make_job(&jobs[0], 0);
    make_job(&jobs[1], 3);
    jobs[0].options.max_tokens = 50;
    jobs[1].n_prompt = LONG;
    afmoe_request first = request_of(&jobs[0], sessions[0]), second = request_of(&jobs[1], sessions[1]);
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_submit(scheduler, &first, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_step(scheduler, &error)); /* the prompt */
    assert_int_equal(jobs[0].together.n, 0);
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_submit(scheduler, &second, &error));
    for (uint64_t step = 1; step <= LONG / PIECE; step++) {
        assert_int_equal(jobs[1].together.n, 0);
        CHECK_STATUS(AFMOE_OK, afmoe_scheduler_step(scheduler, &error));
        assert_int_equal(jobs[0].together.n, step);
    }
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_step(scheduler, &error));
    assert_int_equal(jobs[1].together.n, 1);
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_run(scheduler, &error));
    free_jobs();
    afmoe_session_free(sessions[0]);
    afmoe_session_free(sessions[1]);
    afmoe_scheduler_free(scheduler);
    afmoe_context_free(context);
}

/* Pages for one of them only: the second waits for the first, and is not refused. */
static void test_waits_for_pages(void **state)
{
    afmoe_context_options options = two_threads();
    afmoe_context *context = open_context(model, &options);
    afmoe_session *session = open_session(context);
    (void)state;
    make_job(&jobs[0], 1);
    make_job(&jobs[1], 3);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, jobs[1].prompt, 300, NULL, NULL, &error));
    options.max_page_bytes = page_bytes_of(context);
    afmoe_session_free(session);
    afmoe_context_free(context);
    answer_alone(&jobs[0]);
    answer_alone(&jobs[1]);

    context = open_context(model, &options);
    afmoe_scheduler *scheduler = open_scheduler(context, 4, 64);
    afmoe_session *sessions[2] = {open_session(context), open_session(context)};
    n_done_all = 0;
    for (int i = 0; i < 2; i++) {
        const afmoe_request request = request_of(&jobs[i], sessions[i]);
        CHECK_STATUS(AFMOE_OK, afmoe_scheduler_submit(scheduler, &request, &error));
    }
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_step(scheduler, &error));
    assert_int_equal(info_now(scheduler).n_running, 1);
    assert_int_equal(info_now(scheduler).n_waiting, 1);
    while (jobs[0].together.n_done == 0) CHECK_STATUS(AFMOE_OK, afmoe_scheduler_step(scheduler, &error));
    check_same(&jobs[0]);
    afmoe_session_free(sessions[0]); /* gives its pages back */
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_run(scheduler, &error));
    check_same(&jobs[1]);

    /* more tokens than a session holds is no matter of waiting */
    static afmoe_token many[5000];
    afmoe_request request = request_of(&jobs[0], sessions[1]);
    request.tokens = many;
    request.n_tokens = 5000;
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_submit(scheduler, &request, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_run(scheduler, &error));
    assert_int_equal(jobs[0].together.status, AFMOE_CONTEXT_FULL);
    assert_int_equal(jobs[0].together.result.finish_reason, AFMOE_FINISH_CONTEXT);
    assert_non_null(strstr(jobs[0].together.message, "5000 more"));
    free_jobs();
    afmoe_session_free(sessions[1]);
    afmoe_scheduler_free(scheduler);
    afmoe_context_free(context);
}

/* ---- Stopping ---- */

static void test_cancel(void **state)
{
    afmoe_context_options context_options = two_threads();
    context_options.chunk_tokens = 32;
    afmoe_context *context = open_context(model, &context_options);
    afmoe_scheduler *scheduler = open_scheduler(context, 3, 8);
    afmoe_session *sessions[4];
    afmoe_cancel *cancels[4];
    (void)state;
    for (int i = 0; i < 4; i++) { /* 0 answers on, 1 reads, 2 answers, 3 waits */
        make_job(&jobs[i], i == 1 ? 3 : 0);
        jobs[i].options.max_tokens = 40;
        if (i == 0) answer_alone(&jobs[0]);
        sessions[i] = open_session(context);
        CHECK_STATUS(AFMOE_OK, afmoe_cancel_create(&cancels[i], &error));
        const afmoe_request request = request_of(&jobs[i], sessions[i]);
        jobs[i].options.cancel = cancels[i];
        CHECK_STATUS(AFMOE_OK, afmoe_scheduler_submit(scheduler, &request, &error));
    }
    for (int i = 0; i < 4; i++) CHECK_STATUS(AFMOE_OK, afmoe_scheduler_step(scheduler, &error));
    for (int i = 1; i < 4; i++) afmoe_cancel_set(cancels[i]);
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_step(scheduler, &error));
    for (int i = 1; i < 4; i++) {
        assert_int_equal(jobs[i].together.n_done, 1);
        assert_int_equal(jobs[i].together.status, AFMOE_CANCELLED);
        assert_int_equal(jobs[i].together.result.finish_reason, AFMOE_FINISH_CANCELLED);
    }
    assert_string_equal(jobs[3].together.message, "cancelled while waiting");
    assert_int_equal(n_tokens_of(sessions[3]), 0);
    uint64_t n_read = n_tokens_of(sessions[1]);
    assert_true(n_read > 0 && n_read < jobs[1].n_prompt);
    assert_int_equal(n_tokens_of(sessions[2]), jobs[2].n_prompt + jobs[2].together.result.n_generated);
    assert_true(jobs[2].together.n > 0);
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_run(scheduler, &error));
    check_same(&jobs[0]);
    for (int i = 0; i < 4; i++) {
        afmoe_session_free(sessions[i]);
        afmoe_cancel_free(cancels[i]);
    }
    free_jobs();
    afmoe_scheduler_free(scheduler);
    afmoe_context_free(context);
}

struct again {
    afmoe_scheduler *scheduler;
    const afmoe_request *request;
    afmoe_status status;
    int n_left, n_done;
    bool frees;
};

static void submit_again(void *user_data, afmoe_status status, const afmoe_generate_result *result,
                         const afmoe_error *failure)
{
    struct again *again = user_data;
    (void)result;
    (void)failure;
    again->n_done++;
    again->status = status;
    assert_int_equal(afmoe_scheduler_step(again->scheduler, NULL), AFMOE_BUSY);
    if (again->frees) afmoe_scheduler_free(again->scheduler);
    if (again->n_left-- > 0) again->status = afmoe_scheduler_submit(again->scheduler, again->request, NULL);
}

/* From inside of on_done: submit works, the session can be used, and the scheduler be freed. */
static void test_inside_of_callbacks(void **state)
{
    (void)state;
    for (int frees = 0; frees < 2; frees++) {
        afmoe_context *context = open_context(model, NULL);
        afmoe_scheduler *scheduler = open_scheduler(context, 4, 8);
        afmoe_session *session = open_session(context);
        make_job(&jobs[0], 0);
        jobs[0].options.max_tokens = 4;
        afmoe_request request = request_of(&jobs[0], session);
        struct again again = {.scheduler = scheduler, .request = &request, .n_left = frees ? 0 : 3, .frees = frees};
        request.on_done = submit_again;
        request.on_done_data = &again;
        CHECK_STATUS(AFMOE_OK, afmoe_scheduler_submit(scheduler, &request, &error));
        CHECK_STATUS(AFMOE_OK, afmoe_scheduler_run(scheduler, &error));
        assert_int_equal(again.n_done, frees ? 1 : 4);
        assert_int_equal(n_tokens_of(session), (jobs[0].n_prompt + 4) * (frees ? 1 : 4));
        if (!frees) afmoe_scheduler_free(scheduler);
        afmoe_session_free(session);
        afmoe_context_free(context);
    }
}

/* Freed with requests waiting, reading and answering: all are told, none is left. */
static void test_free_with_requests(void **state)
{
    for (int n_steps = 0; n_steps < 4; n_steps++) {
        afmoe_context *context = open_context(model, NULL);
        afmoe_scheduler *scheduler = open_scheduler(context, 2, 8);
        afmoe_session *sessions[3];
        (void)state;
        for (int i = 0; i < 3; i++) {
            make_job(&jobs[i], i == 1 ? 3 : 0);
            jobs[i].options.max_draft = 8;
            sessions[i] = open_session(context);
            const afmoe_request request = request_of(&jobs[i], sessions[i]);
            CHECK_STATUS(AFMOE_OK, afmoe_scheduler_submit(scheduler, &request, &error));
        }
        for (int i = 0; i < n_steps; i++) CHECK_STATUS(AFMOE_OK, afmoe_scheduler_step(scheduler, &error));
        afmoe_scheduler_free(scheduler);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(jobs[i].together.n_done, 1);
            assert_int_equal(jobs[i].together.status, AFMOE_CANCELLED);
            CHECK_STATUS(AFMOE_OK, afmoe_session_append(sessions[i], jobs[0].prompt, 2, NULL, NULL, &error));
            afmoe_session_free(sessions[i]);
        }
        assert_int_equal(page_bytes_of(context), 0);
        free_jobs();
        afmoe_context_free(context);
    }
}

/* ---- Refused ---- */

static void test_refused(void **state)
{
    afmoe_context *context = open_context(model, NULL), *other = open_context(model, NULL);
    afmoe_scheduler *scheduler = open_scheduler(context, 1, 8);
    afmoe_session *session = open_session(context), *foreign = open_session(other);
    (void)state;
    make_job(&jobs[0], 3);
    afmoe_request good = request_of(&jobs[0], session), request = good;
    CHECK_STATUS(AFMOE_INVALID, afmoe_scheduler_submit(NULL, &good, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_scheduler_submit(scheduler, NULL, &error));
    request.session = NULL;
    CHECK_STATUS(AFMOE_INVALID, afmoe_scheduler_submit(scheduler, &request, &error));
    request.session = foreign;
    CHECK_STATUS(AFMOE_INVALID, afmoe_scheduler_submit(scheduler, &request, &error));
    request = good;
    request.tokens = NULL;
    CHECK_STATUS(AFMOE_INVALID, afmoe_scheduler_submit(scheduler, &request, &error));
    request.n_tokens = 0;
    CHECK_STATUS(AFMOE_STATE, afmoe_scheduler_submit(scheduler, &request, &error));
    jobs[0].options.max_draft = 100;
    CHECK_STATUS(AFMOE_INVALID, afmoe_scheduler_submit(scheduler, &good, &error));
    jobs[0].options.max_draft = 0;
    const char *empty = "";
    const afmoe_generate_options before = jobs[0].options;
    jobs[0].options.stop_strings = &empty;
    jobs[0].options.n_stop_strings = 1;
    CHECK_STATUS(AFMOE_INVALID, afmoe_scheduler_submit(scheduler, &good, &error));
    jobs[0].options = before;
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_submit(scheduler, &good, &error));
    CHECK_STATUS(AFMOE_BUSY, afmoe_scheduler_submit(scheduler, &good, &error));
    request = good; /* the sampler is in use as well */
    request.session = open_session(context);
    CHECK_STATUS(AFMOE_BUSY, afmoe_scheduler_submit(scheduler, &request, &error));
    afmoe_session_free(request.session);
    jobs[0].prompt[1] = -1; /* found when it is read */
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_run(scheduler, &error));
    assert_int_equal(jobs[0].together.status, AFMOE_INVALID);
    assert_int_equal(jobs[0].together.result.finish_reason, AFMOE_FINISH_ERROR);
    assert_non_null(strstr(jobs[0].together.message, "token 1 is -1"));
    CHECK_STATUS(AFMOE_END, afmoe_scheduler_step(scheduler, &error));
    free_jobs();
    afmoe_session_free(session);
    afmoe_session_free(foreign);
    afmoe_scheduler_free(scheduler);
    afmoe_context_free(context);
    afmoe_context_free(other);
}

/* ---- From several threads ---- */

struct submitter {
    afmoe_scheduler *scheduler;
    afmoe_session *sessions[N_REQUESTS];
    atomic_int n_submitted;
    afmoe_status status;
};

static void *submit_all(void *user)
{
    struct submitter *submitter = user;
    for (int i = 0; i < N_REQUESTS; i++) {
        const afmoe_request request = request_of(&jobs[i], submitter->sessions[i]);
        afmoe_status status = afmoe_scheduler_submit(submitter->scheduler, &request, NULL);
        if (status != AFMOE_OK) submitter->status = status;
        atomic_fetch_add(&submitter->n_submitted, 1);
    }
    return NULL;
}

/* One thread submits while another runs what is there. */
static void test_submit_from_another_thread(void **state)
{
    afmoe_context *context = open_context(model, NULL);
    struct submitter submitter = {.scheduler = open_scheduler(context, 3, 16)};
    pthread_t thread;
    (void)state;
    make_jobs();
    for (int i = 0; i < N_REQUESTS; i++) submitter.sessions[i] = open_session(context);
    assert_int_equal(pthread_create(&thread, NULL, submit_all, &submitter), 0);
    while (atomic_load(&submitter.n_submitted) < N_REQUESTS)
        CHECK_STATUS(AFMOE_OK, afmoe_scheduler_run(submitter.scheduler, &error));
    pthread_join(thread, NULL);
    assert_int_equal(submitter.status, AFMOE_OK);
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_run(submitter.scheduler, &error));
    for (int i = 0; i < N_REQUESTS; i++) {
        check_same(&jobs[i]);
        afmoe_session_free(submitter.sessions[i]);
    }
    free_jobs();
    afmoe_scheduler_free(submitter.scheduler);
    afmoe_context_free(context);
}

/* ---- Fork ---- */

static int n_released;

static void take_back(void *user_data)
{
    (void)user_data;
    n_released++;
}

/* All bytes of the text model, free() them. */
static void *read_model(size_t *out_n)
{
    char path[PATH_BYTES];
    FILE *file = fopen(text_model_path(path), "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *out_n = (size_t)ftell(file);
    rewind(file);
    void *bytes = malloc(*out_n);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *out_n, file), *out_n);
    fclose(file);
    return bytes;
}

/* All that a child has of its parent, in an order. */
struct left {
    afmoe_scheduler *scheduler;
    afmoe_context *context;
    afmoe_session *sessions[N_REQUESTS];
    bool scheduler_first;
};

static void free_all(struct left *left)
{
    if (left->scheduler_first) afmoe_scheduler_free(left->scheduler);
    for (int i = 0; i < N_REQUESTS; i++) afmoe_session_free(left->sessions[i]);
    free_jobs(); /* samplers */
    if (!left->scheduler_first) afmoe_scheduler_free(left->scheduler);
    afmoe_context_free(left->context);
    afmoe_model_free(model);
}

/* The memory of the model goes back when nothing holds it any more: no request, session or sampler. */
static int inside(struct left *left)
{
    alarm(60);
    uint64_t n_done = n_done_all;
    free_all(left);
    return n_done_all != n_done ? 1 : n_released != 1 ? 2 : 0;
}

static void check_child(struct left *left)
{
    int how;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(inside(left));
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
}

/* Before, between and after steps: requests that wait, read, answer (some with drafts held) and are done. */
static void test_free_in_a_child(void **state)
{
    size_t n_bytes;
    void *bytes = read_model(&n_bytes);
    afmoe_model *shared = model;
    struct left left = {.scheduler_first = true};
    (void)state;
    n_released = 0;
    CHECK_STATUS(AFMOE_OK, afmoe_model_open_memory(&model, bytes, n_bytes, take_back, NULL, NULL, &error));
    make_jobs();
    left.context = open_context(model, NULL);
    left.scheduler = open_scheduler(left.context, 4, 16);
    for (int i = 0; i < N_REQUESTS; i++) {
        left.sessions[i] = open_session(left.context);
        const afmoe_request request = request_of(&jobs[i], left.sessions[i]);
        CHECK_STATUS(AFMOE_OK, afmoe_scheduler_submit(left.scheduler, &request, &error));
    }
    for (int step = 0; step < 30; step++) {
        if (step % 3 == 0) check_child(&left);
        left.scheduler_first = !left.scheduler_first;
        CHECK_STATUS(AFMOE_OK, afmoe_scheduler_step(left.scheduler, &error));
    }
    CHECK_STATUS(AFMOE_OK, afmoe_scheduler_run(left.scheduler, &error));
    for (int i = 0; i < N_REQUESTS; i++) check_same(&jobs[i]); /* the parent's went on */
    free_all(&left);
    assert_int_equal(n_released, 1);
    model = shared;
    free(bytes);
}

static void *submit_and_run(void *user)
{
    struct submitter *submitter = user;
    submit_all(user);
    if (submitter->status == AFMOE_OK) submitter->status = afmoe_scheduler_run(submitter->scheduler, NULL);
    return NULL;
}

/* A thread that is not there put a request in line or was in a step: what it used may stay, but nobody waits for it. */
static void test_free_in_a_child_of_threads(void **state)
{
    struct submitter submitter = {.n_submitted = 0};
    pthread_t thread;
    struct left left = {.scheduler_first = true};
    (void)state;
    if (UNDER_TSAN) { /* with it this did not end within three minutes */
        printf("skipped: sanitizer test_free_in_a_child_of_threads (ThreadSanitizer's own locks in the child)\n");
        return;
    }
    make_jobs();
    submitter.scheduler = left.scheduler = open_scheduler(left.context = open_context(model, NULL), 3, 16);
    for (int i = 0; i < N_REQUESTS; i++) submitter.sessions[i] = left.sessions[i] = open_session(left.context);
    assert_int_equal(pthread_create(&thread, NULL, submit_and_run, &submitter), 0);
    for (int i = 0; i < 20; i++) {
        int how;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            afmoe_model_retain(model); /* for tear_down */
            alarm(60);
            free_all(&left);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    }
    pthread_join(thread, NULL);
    assert_int_equal(submitter.status, AFMOE_OK);
    for (int i = 0; i < N_REQUESTS; i++) check_same(&jobs[i]);
    afmoe_model_retain(model);
    free_all(&left);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_answers),    cmocka_unit_test(test_order),
        cmocka_unit_test(test_bounds),          cmocka_unit_test(test_answers_flow),
        cmocka_unit_test(test_waits_for_pages), cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_inside_of_callbacks), cmocka_unit_test(test_free_with_requests),
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_submit_from_another_thread),
        cmocka_unit_test(test_free_in_a_child), cmocka_unit_test(test_free_in_a_child_of_threads),
    };
    return cmocka_run_group_tests_name("scheduler", tests, set_up, tear_down);
}
