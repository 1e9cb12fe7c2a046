/* The threads of a context: eight sessions from eight threads, a host's own parallel-for, own affinity, and fork. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "harness.h"

#include "sanitizer.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N_SESSIONS = 8, VOCAB = 96, N_PROMPT = 70, N_ANSWER = 20, MAX_WORKERS = 4 };

static afmoe_error error;
static afmoe_model *model;

static int open_tiny(void **state)
{
    char path[PATH_BYTES];
    (void)state;
    error = fresh_error();
    if (!small_model_path(path, "tiny-bias")) return -1;
    model = open_model(path);
    return 0;
}

static int close_tiny(void **state)
{
    (void)state;
    afmoe_model_free(model);
    return 0;
}

static afmoe_context_options options_of(int32_t n_threads)
{
    afmoe_context_options options;
    afmoe_context_options_init(&options, sizeof options);
    options.n_threads = n_threads;
    options.chunk_tokens = 16;
    return options;
}

/* ---- Eight sessions ---- */

struct work {
    pthread_t thread;
    afmoe_context *context;
    uint32_t seed;
    afmoe_token answer[N_ANSWER];
    uint64_t n_answer;
    float logits[VOCAB];
    afmoe_status status, reentered;
};

struct inside {
    struct work *work;
    afmoe_session *session;
};

/* Calls back into its own session, which is BUSY, and frees it with the last piece. */
static int32_t on_piece(void *user, const afmoe_piece *piece)
{
    struct inside *inside = user;
    struct work *work = inside->work;
    uint64_t n;
    afmoe_token token = 1;
    work->answer[work->n_answer++] = piece->token;
    if (afmoe_session_append(inside->session, &token, 1, NULL, NULL, NULL) != AFMOE_BUSY ||
        afmoe_generate(inside->session, NULL, NULL, NULL, NULL) != AFMOE_BUSY ||
        afmoe_session_logits(inside->session, work->logits, VOCAB, &n, NULL) != AFMOE_BUSY)
        work->reentered = AFMOE_INTERNAL;
    if (work->n_answer == N_ANSWER) afmoe_session_free(inside->session);
    return 0;
}

/* A prompt of its own, its logits, an answer with a callback that calls back and frees. No assertions: those belong to
 * the main thread. */
static void *work_alone(void *user)
{
    struct work *work = user;
    afmoe_token prompt[N_PROMPT];
    afmoe_generate_options options;
    afmoe_session *session;
    uint64_t n;
    make_tokens(prompt, N_PROMPT, VOCAB, work->seed);
    afmoe_generate_options_init(&options, sizeof options);
    work->status = afmoe_session_create(&session, work->context, NULL);
    if (work->status != AFMOE_OK) return NULL;
    struct inside inside = {work, session};
    options.max_tokens = N_ANSWER;
    options.ignore_eos = 1;
    options.on_piece = on_piece;
    options.on_piece_data = &inside;
    work->status = afmoe_session_append(session, prompt, N_PROMPT, NULL, NULL, NULL);
    if (work->status == AFMOE_OK) work->status = afmoe_session_logits(session, work->logits, VOCAB, &n, NULL);
    if (work->status == AFMOE_OK)
        work->status = afmoe_generate(session, NULL, &options, NULL, NULL);
    else
        afmoe_session_free(session);
    return NULL;
}

static void check_same_work(const struct work *a, const struct work *b)
{
    assert_int_equal(b->status, AFMOE_OK);
    assert_int_equal(b->reentered, AFMOE_OK);
    assert_int_equal(b->n_answer, N_ANSWER);
    assert_memory_equal(a->answer, b->answer, sizeof a->answer);
    assert_memory_equal(a->logits, b->logits, sizeof a->logits);
}

/* Session i on contexts[i % n_contexts], first alone, then all eight at once from eight threads. */
static void check_eight(int n_contexts, int32_t n_threads)
{
    afmoe_context *contexts[N_SESSIONS];
    static struct work alone[N_SESSIONS], together[N_SESSIONS];
    afmoe_context_options options = options_of(n_threads);
    for (int i = 0; i < n_contexts; i++) contexts[i] = open_context(model, &options);
    for (uint32_t i = 0; i < N_SESSIONS; i++) {
        alone[i] = together[i] = (struct work){.context = contexts[i % (uint32_t)n_contexts], .seed = i};
        work_alone(&alone[i]);
        check_same_work(&alone[i], &alone[i]);
    }
    for (int i = 0; i < N_SESSIONS; i++)
        assert_int_equal(pthread_create(&together[i].thread, NULL, work_alone, &together[i]), 0);
    for (int i = 0; i < N_SESSIONS; i++) pthread_join(together[i].thread, NULL);
    for (int i = 0; i < n_contexts; i++) afmoe_context_free(contexts[i]);
    for (int i = 0; i < N_SESSIONS; i++) check_same_work(&alone[i], &together[i]);
}

static void eight_sessions_in_turns(void **state)
{
    (void)state;
    check_eight(1, 2);
}

static void eight_contexts(void **state)
{
    (void)state;
    check_eight(N_SESSIONS, 2);
}

/* ---- A host's parallel-for ---- */

struct host {
    enum { FORWARDS, BACKWARDS, ON_THREADS, N_WAYS } way;
    uint32_t n_calls, refuse_at;
};

struct host_task {
    afmoe_task_fn task;
    void *task_data;
    uint32_t worker;
};

static void *run_task(void *user)
{
    struct host_task *t = user;
    t->task(t->task_data, t->worker);
    return NULL;
}

static int32_t host_parallel(void *user_data, uint32_t n_workers, afmoe_task_fn task, void *task_data)
{
    struct host *host = user_data;
    pthread_t threads[MAX_WORKERS];
    struct host_task tasks[MAX_WORKERS];
    if (++host->n_calls == host->refuse_at) return 1;
    for (uint32_t i = 0; i < n_workers; i++) {
        tasks[i] = (struct host_task){task, task_data, host->way == BACKWARDS ? n_workers - 1 - i : i};
        if (host->way != ON_THREADS || i == 0)
            run_task(&tasks[i]);
        else if (pthread_create(&threads[i], NULL, run_task, &tasks[i]) != 0)
            return 1;
    }
    for (uint32_t i = 1; i < n_workers && host->way == ON_THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}

static void append_prompt(afmoe_session *session, afmoe_status expected, afmoe_append_result *result)
{
    afmoe_token prompt[N_PROMPT];
    make_tokens(prompt, N_PROMPT, VOCAB, 5);
    CHECK_STATUS(expected, afmoe_session_append(session, prompt, N_PROMPT, NULL, result, &error));
}

static void logits_after_prompt(float *out, const afmoe_context_options *options)
{
    uint64_t n;
    afmoe_token more[] = {3, 1, 4};
    afmoe_context *context = open_context(model, options);
    afmoe_session *session = open_session(context);
    append_prompt(session, AFMOE_OK, NULL);
    for (int i = 0; i < 3; i++)
        CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, &more[i], 1, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_logits(session, out, VOCAB, &n, &error));
    afmoe_session_free(session);
    afmoe_context_free(context);
}

static void host_parallel_gives_the_same_bits(void **state)
{
    (void)state;
    float expected[VOCAB], got[VOCAB];
    afmoe_context_options options = options_of(1);
    logits_after_prompt(expected, &options);
    for (int way = 0; way < N_WAYS; way++)
        for (int32_t n_threads = 1; n_threads <= MAX_WORKERS; n_threads++) {
            struct host host = {.way = way};
            options = options_of(n_threads);
            options.parallel = host_parallel;
            options.parallel_data = &host;
            logits_after_prompt(got, &options);
            assert_memory_equal(expected, got, sizeof expected);
            assert_int_equal(host.n_calls > 0, n_threads > 1);
        }
}

static int count_threads(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    int n = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) sscanf(line, "Threads: %d", &n);
    fclose(file);
    return n;
}

static void host_parallel_starts_no_threads(void **state)
{
    (void)state;
    struct host host = {.way = FORWARDS};
    afmoe_context_options options = options_of(4);
    int before = count_threads();
    options.parallel = host_parallel;
    options.parallel_data = &host;
    afmoe_context *context = open_context(model, &options);
    assert_int_equal(count_threads(), before);
    afmoe_context_free(context);
}

/* Refused in the n-th stage, for every n: CANCELLED, whole chunks kept, and the session goes on to the same bits. */
static void host_parallel_says_stop(void **state)
{
    (void)state;
    float expected[VOCAB], got[VOCAB];
    uint64_t n;
    struct host host = {.way = FORWARDS};
    afmoe_token prompt[N_PROMPT];
    afmoe_context_options options = options_of(2);
    options.parallel = host_parallel;
    options.parallel_data = &host;
    afmoe_context *context = open_context(model, &options);
    afmoe_session *session = open_session(context);
    make_tokens(prompt, N_PROMPT, VOCAB, 5);
    append_prompt(session, AFMOE_OK, NULL);
    CHECK_STATUS(AFMOE_OK, afmoe_session_logits(session, expected, VOCAB, &n, &error));
    uint32_t n_stages = host.n_calls;
    assert_true(n_stages > 20);
    for (uint32_t stop = 1; stop <= n_stages; stop++) {
        afmoe_append_result result;
        afmoe_append_result_init(&result, sizeof result);
        CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, 0, NULL, NULL, &error));
        host = (struct host){.way = FORWARDS, .refuse_at = stop};
        append_prompt(session, AFMOE_CANCELLED, &result);
        assert_non_null(strstr(error.message, "stopped by parallel"));
        assert_int_equal(host.n_calls, stop); /* it is not asked again */
        assert_int_equal(result.n_tokens % 16, 0);
        CHECK_STATUS(AFMOE_STATE, afmoe_session_logits(session, got, VOCAB, &n, &error));
        CHECK_STATUS(AFMOE_OK, afmoe_session_sync(session, prompt, N_PROMPT, NULL, NULL, &error));
        CHECK_STATUS(AFMOE_OK, afmoe_session_logits(session, got, VOCAB, &n, &error));
        assert_memory_equal(expected, got, sizeof expected);
    }
    afmoe_session_free(session);
    afmoe_context_free(context);
}

/* ---- Own affinity ---- */

static void cpus_of_our_own(void **state)
{
    (void)state;
    cpu_set_t mine;
    int32_t cpus[2];
    uint64_t n_cpus = 0;
    float expected[VOCAB], got[VOCAB];
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE && n_cpus < 2; cpu++)
        if (CPU_ISSET(cpu, &mine)) cpus[n_cpus++] = cpu;
    afmoe_context_options options = options_of(3);
    logits_after_prompt(expected, &options);
    options.cpus = cpus;
    options.n_cpus = n_cpus;
    logits_after_prompt(got, &options);
    assert_memory_equal(expected, got, sizeof expected);

    afmoe_context_info info;
    afmoe_context_info_init(&info, sizeof info);
    options.n_threads = -1;
    options.n_cpus = 1;
    afmoe_context *context = open_context(model, &options);
    CHECK_STATUS(AFMOE_OK, afmoe_context_get_info(context, &info, &error));
    assert_int_equal(info.n_threads, 1); /* no more than CPUs given */
    afmoe_context_free(context);
}

static void bad_thread_options(void **state)
{
    (void)state;
    static const int32_t negative = -1, absent = 65535;
    struct host host = {.way = FORWARDS};
    afmoe_context *context;
    afmoe_context_options options = options_of(2);
    options.n_cpus = 1;
    CHECK_STATUS(AFMOE_INVALID, afmoe_context_create(&context, model, &options, &error));
    options.cpus = &negative;
    CHECK_STATUS(AFMOE_INVALID, afmoe_context_create(&context, model, &options, &error));
    options.cpus = &absent;
    CHECK_STATUS(AFMOE_INVALID, afmoe_context_create(&context, model, &options, &error));
    options.parallel = host_parallel;
    options.parallel_data = &host;
    CHECK_STATUS(AFMOE_INVALID, afmoe_context_create(&context, model, &options, &error));
    assert_null(context);
}

/* ---- Fork ---- */

/* Runs `inside` in a child; it answers 0 for good, else the number of the check that failed. */
static void in_child(int (*inside)(afmoe_context *context, afmoe_session *session), afmoe_context *context,
                     afmoe_session *session)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60); /* a child that waits for a thread would wait for ever */
        _exit(inside(context, session));
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    if (WIFSIGNALED(how)) print_error("child: signal %d\n", WTERMSIG(how));
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
}

static int all_is_state(afmoe_context *context, afmoe_session *session)
{
    afmoe_error why = fresh_error();
    afmoe_token token = 1;
    afmoe_context_info info;
    afmoe_session *other;
    afmoe_context_info_init(&info, sizeof info);
    if (afmoe_session_append(session, &token, 1, NULL, NULL, &why) != AFMOE_STATE) return 1;
    if (!strstr(why.message, "another process")) return 2;
    if (afmoe_session_sync(session, &token, 1, NULL, NULL, NULL) != AFMOE_STATE) return 3;
    if (afmoe_session_rewind(session, 0, NULL, NULL, NULL) != AFMOE_STATE) return 4;
    if (afmoe_generate(session, NULL, NULL, NULL, NULL) != AFMOE_STATE) return 5;
    if (afmoe_session_create(&other, context, NULL) != AFMOE_STATE || other) return 6;
    if (afmoe_context_get_info(context, &info, NULL) != AFMOE_STATE) return 7;
    return 0;
}

static int free_session_first(afmoe_context *context, afmoe_session *session)
{
    int failed = all_is_state(context, session);
    afmoe_session_free(session);
    afmoe_context_free(context);
    return failed;
}

/* The model is no process's own: a new context on it computes in the child. */
static int free_context_first(afmoe_context *context, afmoe_session *session)
{
    int failed = all_is_state(context, session);
    afmoe_context_free(context);
    afmoe_session_free(session);
    afmoe_context_options options = options_of(UNDER_TSAN ? 1 : 2); /* it forbids threads in a child */
    afmoe_token token = 1;
    if (afmoe_context_create(&context, model, &options, NULL) != AFMOE_OK) return 20;
    if (afmoe_session_create(&session, context, NULL) != AFMOE_OK) return 21;
    if (afmoe_session_append(session, &token, 1, NULL, NULL, NULL) != AFMOE_OK) return 22;
    afmoe_session_free(session);
    afmoe_context_free(context);
    return failed;
}

static void fork_with_idle_workers(void **state)
{
    (void)state;
    afmoe_context_options options = options_of(4);
    afmoe_context *context = open_context(model, &options);
    afmoe_session *session = open_session(context);
    append_prompt(session, AFMOE_OK, NULL);
    in_child(free_session_first, context, session); /* workers may still spin */
    usleep(20000);
    in_child(free_context_first, context, session); /* they sleep */
    append_prompt(session, AFMOE_OK, NULL);         /* the parent's goes on */
    afmoe_session_free(session);
    afmoe_context_free(context);
}

/* Another thread computes, with all its locks, at the moment of fork. */
struct busy {
    afmoe_context *context;
    afmoe_cancel *cancel;
    afmoe_session *session;
};

static void *append_and_rewind(void *user)
{
    struct busy *busy = user;
    afmoe_token prompt[N_PROMPT];
    afmoe_append_options options;
    afmoe_append_options_init(&options, sizeof options);
    options.cancel = busy->cancel;
    make_tokens(prompt, N_PROMPT, VOCAB, 9);
    while (!afmoe_cancel_is_set(busy->cancel)) {
        afmoe_session_append(busy->session, prompt, N_PROMPT, &options, NULL, NULL);
        afmoe_session_rewind(busy->session, 0, NULL, NULL, NULL);
    }
    return NULL;
}

static void fork_while_others_compute(void **state)
{
    (void)state;
    struct busy busy;
    pthread_t thread;
    afmoe_context_options options = options_of(3);
    busy.context = open_context(model, &options);
    busy.session = open_session(busy.context);
    CHECK_STATUS(AFMOE_OK, afmoe_cancel_create(&busy.cancel, &error));
    assert_int_equal(pthread_create(&thread, NULL, append_and_rewind, &busy), 0);
    for (int i = 0; i < (UNDER_TSAN ? 5 : 40); i++) {
        afmoe_session *session = open_session(busy.context);
        append_prompt(session, AFMOE_OK, NULL);
        in_child(free_session_first, busy.context, session);
        in_child(free_session_first, busy.context, busy.session); /* the one in use */
        afmoe_session_free(session);
    }
    afmoe_cancel_set(busy.cancel);
    pthread_join(thread, NULL);
    afmoe_session_free(busy.session);
    afmoe_context_free(busy.context);
    afmoe_cancel_free(busy.cancel);
}

/* Fork in a callback amid a call: the child's copy of the call ends with STATE at the next chunk. */
static pid_t forked;

static int32_t fork_once(void *user_data, uint64_t done, uint64_t total)
{
    (void)user_data, (void)done, (void)total;
    if (forked < 0) forked = fork();
    if (forked == 0) alarm(60);
    return 0;
}

static void fork_in_a_callback(void **state)
{
    (void)state;
    afmoe_append_options options;
    afmoe_append_options_init(&options, sizeof options);
    options.progress = fork_once;
    afmoe_token prompt[N_PROMPT];
    afmoe_context_options two = options_of(2);
    afmoe_context *context = open_context(model, &two);
    afmoe_session *session = open_session(context);
    make_tokens(prompt, N_PROMPT, VOCAB, 5);
    forked = -1;
    afmoe_status status = afmoe_session_append(session, prompt, N_PROMPT, &options, NULL, &error);
    if (forked == 0) {
        afmoe_session_free(session);
        afmoe_context_free(context);
        _exit(status == AFMOE_STATE ? 0 : 1);
    }
    int how;
    assert_true(forked > 0);
    assert_int_equal(status, AFMOE_OK);
    assert_int_equal(waitpid(forked, &how, 0), forked);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    afmoe_session_free(session);
    afmoe_context_free(context);
}

/* ---- Idle ---- */

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void idle_uses_no_cpu(void **state)
{
    (void)state;
    afmoe_context_options options = options_of(4);
    afmoe_context *context = open_context(model, &options);
    afmoe_session *session = open_session(context);
    append_prompt(session, AFMOE_OK, NULL);
    usleep(20000);
    double before = cpu_seconds();
    sleep(2);
    double used = cpu_seconds() - before;
    print_message("2 s idle with 4 threads: %.6f s of CPU\n", used);
    if (!UNDER_TSAN) assert_true(used < 0.02); /* its own thread wakes up; a spinning worker would take 2 */
    afmoe_session_free(session);
    afmoe_context_free(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_sessions_in_turns),
        cmocka_unit_test(eight_contexts),
        cmocka_unit_test(host_parallel_gives_the_same_bits),
        cmocka_unit_test(host_parallel_starts_no_threads),
        cmocka_unit_test(host_parallel_says_stop),
        cmocka_unit_test(cpus_of_our_own),
        cmocka_unit_test(bad_thread_options),
        cmocka_unit_test(fork_with_idle_workers),
        cmocka_unit_test(fork_while_others_compute),
        cmocka_unit_test(fork_in_a_callback),
        cmocka_unit_test(idle_uses_no_cpu),
    };
    return cmocka_run_group_tests_name("context_threads", tests, open_tiny, close_tiny);
}
