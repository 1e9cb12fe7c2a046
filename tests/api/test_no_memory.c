/* Every allocation and thread start fails once: the call then answers NO_MEMORY (a thread: IO, with errno), gives out
 * nothing, leaks nothing (under ASan), and what was there before goes on. The linker sends the library's allocations and
 * thread starts through here (meson.build). */
#define _GNU_SOURCE
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VOCAB = 96, N_TOKENS = 200, CHUNK = 50 };

static afmoe_error error;
static atomic_long n_until_failure = -1; /* -1: none fails */
static afmoe_status expected_failure; /* of the one that failed */
static afmoe_token tokens[N_TOKENS];

static bool fails(afmoe_status expected)
{
    long n = atomic_load(&n_until_failure);
    if (n < 0) return false;
    atomic_store(&n_until_failure, n - 1);
    if (n == 0) expected_failure = expected;
    return n == 0;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
int __real_posix_memalign(void **out, size_t alignment, size_t n);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
int __wrap_posix_memalign(void **out, size_t alignment, size_t n);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user);

void *__wrap_malloc(size_t n)
{
    return fails(AFMOE_NO_MEMORY) ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails(AFMOE_NO_MEMORY) ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails(AFMOE_NO_MEMORY) ? NULL : __real_realloc(p, n);
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t n)
{
    return fails(AFMOE_NO_MEMORY) ? ENOMEM : __real_posix_memalign(out, alignment, n);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user)
{
    return fails(AFMOE_IO) ? EAGAIN : __real_pthread_create(thread, attributes, run, user);
}

static int prepare(void **state)
{
    (void)state;
    error = fresh_error();
    make_tokens(tokens, N_TOKENS, VOCAB, 1);
    return 0;
}

/* A call of a scenario: OK, or the failure that was made. True: it went well. */
static bool went_well(afmoe_status status, const char *call)
{
    if (status >= 0) return true;
    if (atomic_load(&n_until_failure) >= 0 || status != expected_failure)
        fail_msg("%s: %s (%s)", call, afmoe_status_name(status), error.message);
    assert_int_equal(error.code, status);
    assert_true(strlen(error.message) > 0);
    return false;
}

#define GOES_WELL(call) went_well(call, #call)

/* Run a scenario once for each allocation it makes. */
static void fail_each(void (*scenario)(void))
{
    for (long n = 0;; n++) {
        if (n > 100000) fail_msg("does not end");
        atomic_store(&n_until_failure, n);
        scenario();
        bool failed = atomic_load(&n_until_failure) < 0;
        atomic_store(&n_until_failure, -1);
        if (!failed) return;
    }
}

static void compute(afmoe_model *model)
{
    afmoe_context *context = NULL;
    afmoe_session *session = NULL, *fork = NULL;
    afmoe_sampler *sampler = NULL;
    afmoe_sampler_options sampler_options;
    afmoe_generate_options options;
    afmoe_context_options context_options = two_threads();
    const afmoe_token bias = 3;
    const float value = -1;
    afmoe_sampler_options_init(&sampler_options, sizeof sampler_options);
    sampler_options.temperature = 1;
    sampler_options.bias_tokens = &bias;
    sampler_options.bias_values = &value;
    sampler_options.n_bias = 1;
    afmoe_generate_options_init(&options, sizeof options);
    options.max_tokens = 3;
    options.n_top_logprobs = 2;
    context_options.n_threads = 3;
    context_options.chunk_tokens = CHUNK;
    context_options.rewind_tokens = 0;
    context_options.snapshot_tokens = 64;
    context_options.snapshot_bytes = context_options.prefix_bytes = 1 << 20;
    if (GOES_WELL(afmoe_context_create(&context, model, &context_options, &error)) &&
        GOES_WELL(afmoe_session_create(&session, context, &error)) &&
        GOES_WELL(afmoe_sampler_create(&sampler, model, &sampler_options, &error)) &&
        GOES_WELL(afmoe_session_append(session, tokens, 20, NULL, NULL, &error)) &&
        GOES_WELL(afmoe_generate(session, NULL, &options, NULL, &error)) &&
        GOES_WELL(afmoe_generate(session, sampler, &options, NULL, &error)) &&
        GOES_WELL(afmoe_session_fork(&fork, session, &error)) &&
        GOES_WELL(afmoe_session_append(fork, tokens, 50, NULL, NULL, &error))) /* copies a page */
        GOES_WELL(afmoe_session_append(session, tokens, 1, NULL, NULL, &error));
    afmoe_session_free(fork);
    afmoe_session_free(session);
    afmoe_context_free(context);
    afmoe_sampler_free(sampler);
}

struct end {
    int n;
    afmoe_status status;
};

static void on_done(void *user_data, afmoe_status status, const afmoe_generate_result *result,
                    const afmoe_error *failure)
{
    struct end *end = user_data;
    (void)result;
    end->n++;
    end->status = status;
    if (status < 0) error = *failure;
}

/* Two sessions in a step, then in a scheduler: what fails is one's own. */
static void compute_together(afmoe_model *model)
{
    afmoe_context *context = NULL;
    afmoe_session *sessions[2] = {NULL, NULL};
    afmoe_scheduler *scheduler = NULL;
    afmoe_step_item items[2];
    afmoe_generate_options options;
    struct end ends[2] = {{0}};
    afmoe_context_options context_options = two_threads();
    context_options.chunk_tokens = CHUNK;
    afmoe_generate_options_init(&options, sizeof options);
    options.max_tokens = 3;
    options.max_draft = 4;
    if (!GOES_WELL(afmoe_context_create(&context, model, &context_options, &error)) ||
        !GOES_WELL(afmoe_session_create(&sessions[0], context, &error)) ||
        !GOES_WELL(afmoe_session_create(&sessions[1], context, &error)))
        goto end;
    for (int i = 0; i < 2; i++) {
        afmoe_step_item_init(&items[i], sizeof items[i]);
        items[i].session = sessions[i];
        items[i].tokens = tokens;
        items[i].n_tokens = 70;
    }
    if (!GOES_WELL(afmoe_context_step(context, items, 2, NULL, &error))) {
        assert_true(items[0].status == AFMOE_OK || items[1].status == AFMOE_OK);
        for (int i = 0; i < 2; i++)
            if (items[i].status == AFMOE_OK) assert_int_equal(n_tokens_of(sessions[i]), 70);
        goto end;
    }
    if (!GOES_WELL(afmoe_scheduler_create(&scheduler, context, NULL, &error))) goto end;
    for (int i = 0; i < 2; i++) {
        afmoe_request request;
        afmoe_request_init(&request, sizeof request);
        request.session = sessions[i];
        request.tokens = tokens;
        request.n_tokens = 70;
        request.options = &options;
        request.on_done = on_done;
        request.on_done_data = &ends[i];
        if (!GOES_WELL(afmoe_scheduler_submit(scheduler, &request, &error))) goto end;
    }
    assert_int_equal(afmoe_scheduler_run(scheduler, &error), AFMOE_OK);
    assert_true(ends[0].n == 1 && ends[1].n == 1);
    assert_true(ends[0].status >= 0 || ends[1].status >= 0);
    if (GOES_WELL(ends[0].status)) GOES_WELL(ends[1].status);
end:
    afmoe_scheduler_free(scheduler);
    afmoe_session_free(sessions[0]);
    afmoe_session_free(sessions[1]);
    afmoe_context_free(context);
}

static void hub_scenario(void)
{
    char path[PATH_BYTES];
    afmoe_model *model;
    if (!small_model_path(path, "tiny-bias")) return;
    if (!GOES_WELL(afmoe_model_open(&model, path, NULL, &error))) {
        assert_null(model);
        return;
    }
    compute(model);
    afmoe_model_free(model);
}

static void together_scenario(void)
{
    char path[PATH_BYTES];
    if (!small_model_path(path, "tiny-bias")) return;
    afmoe_model *model = NULL;
    if (!GOES_WELL(afmoe_model_open(&model, path, NULL, &error))) return;
    compute_together(model);
    afmoe_model_free(model);
}

static char folder[PATH_BYTES];
static uint64_t n_begun; /* sessions that began with a file */

static void empty_folder(void)
{
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries));) {
        assert_null(strstr(entry->d_name, ".tmp")); /* no halves of files */
        unlinkat(dirfd(entries), entry->d_name, 0);
    }
    closedir(entries);
}

/* What is left on disk, and found there: only opening the folder and what the sessions need may fail. */
static void on_disk_scenario(void)
{
    char path[PATH_BYTES];
    afmoe_model *model = NULL;
    afmoe_context *context = NULL;
    afmoe_session *session = NULL;
    afmoe_append_result result;
    afmoe_context_options options = two_threads();
    afmoe_append_result_init(&result, sizeof result);
    options.n_threads = 1;
    options.prefix_folder = folder;
    if (!small_model_path(path, "tiny-bias")) return;
    if (GOES_WELL(afmoe_model_open(&model, path, NULL, &error)) &&
        GOES_WELL(afmoe_context_create(&context, model, &options, &error)) &&
        GOES_WELL(afmoe_session_create(&session, context, &error)) &&
        GOES_WELL(afmoe_session_append(session, tokens, 70, NULL, NULL, &error))) {
        afmoe_session_free(session);
        session = NULL;
        if (GOES_WELL(afmoe_session_create(&session, context, &error)) &&
            GOES_WELL(afmoe_session_append(session, tokens, 100, NULL, &result, &error))) {
            assert_true(result.n_reused == 0 || result.n_reused == 70);
            n_begun += result.n_reused > 0;
            assert_int_equal(n_tokens_of(session), 100);
        }
        if (session) GOES_WELL(afmoe_session_rewind(session, 0, NULL, NULL, &error)); /* leaves nothing */
    }
    afmoe_session_free(session);
    afmoe_context_free(context);
    afmoe_model_free(model);
    empty_folder();
}

static void prefixes_on_disk(void **state)
{
    const char *root = getenv("TMPDIR");
    (void)state;
    if (!strstr(afmoe_build_features(), "state")) {
        printf("skipped: prefixes_on_disk (built without state)\n");
        return;
    }
    snprintf(folder, sizeof folder, "%s/afmoe-no-memory-XXXXXX", root ? root : "/tmp");
    assert_non_null(mkdtemp(folder));
    fail_each(on_disk_scenario);
    assert_true(n_begun > 0); /* the last time at least */
    assert_int_equal(rmdir(folder), 0);
}

static afmoe_model *text_model;

/* Piece by piece; drafts and what is copied from the options take memory of their own. */
static void pull(afmoe_session *session, afmoe_generate_options options, afmoe_cancel *cancel)
{
    const afmoe_token stop = 7;
    afmoe_generation *generation;
    afmoe_generate_result result;
    afmoe_piece piece;
    afmoe_status status;
    uint64_t n_before = n_tokens_of(session), n = 0;
    afmoe_piece_init(&piece, sizeof piece);
    afmoe_generate_result_init(&result, sizeof result);
    options.max_draft = 3;
    options.n_top_logprobs = 2;
    options.stop_tokens = &stop;
    options.n_stop_tokens = 1;
    options.cancel = cancel;
    options.ignore_eos = 1;
    if (!GOES_WELL(afmoe_generation_create(&generation, session, NULL, &options, &error))) {
        assert_null(generation);
        return;
    }
    while ((status = afmoe_generation_next(generation, &piece, &error)) == AFMOE_OK) n += piece.token >= 0;
    GOES_WELL(status);
    assert_int_equal(afmoe_generation_next(generation, &piece, &error), status);
    CHECK_STATUS(AFMOE_OK, afmoe_generation_get_result(generation, &result, &error));
    assert_int_equal(n_tokens_of(session), n_before + result.n_generated);
    assert_true(result.n_generated == n || (status < 0 && result.n_generated == n + 1)); /* one without its text */
    afmoe_generation_free(generation);
}

static void text_scenario(void)
{
    static const char *const stops[] = {"qqq", "zzz"};
    const char *role = "user", *content = "Tell me a story, \xf0\x9f\xa6\x8a <|im_end|>", *text;
    afmoe_token ids[64];
    char bytes[256];
    uint64_t n, n_bytes;
    afmoe_stream_decoder *decoder = NULL;
    afmoe_context *context = NULL;
    afmoe_session *session = NULL;
    afmoe_cancel *cancel = NULL;
    afmoe_generate_options options;
    afmoe_generate_options_init(&options, sizeof options);
    options.max_tokens = 2;
    options.stop_strings = stops;
    options.n_stop_strings = 2;
    afmoe_context_options context_options = two_threads();
    context_options.n_threads = 1;
    context_options.max_tokens = 64;
    if (GOES_WELL(afmoe_cancel_create(&cancel, &error)) &&
        GOES_WELL(afmoe_chat_tokenize(text_model, &role, &content, 1, NULL, ids, 64, &n, &error)) &&
        GOES_WELL(afmoe_detokenize(text_model, ids, n, 0, bytes, sizeof bytes, &n_bytes, &error)) &&
        GOES_WELL(afmoe_stream_decoder_create(&decoder, text_model, 0, &error)) &&
        GOES_WELL(afmoe_stream_decoder_push(decoder, ids[0], &text, &n_bytes, &error)) &&
        GOES_WELL(afmoe_context_create(&context, text_model, &context_options, &error)) &&
        GOES_WELL(afmoe_session_create(&session, context, &error)) &&
        GOES_WELL(afmoe_session_append(session, ids, n, NULL, NULL, &error)) &&
        GOES_WELL(afmoe_generate(session, NULL, &options, NULL, &error)))
        pull(session, options, cancel);
    afmoe_stream_decoder_free(decoder);
    afmoe_session_free(session);
    afmoe_context_free(context);
    afmoe_cancel_free(cancel);
}

static void open_text_scenario(void)
{
    char path[PATH_BYTES];
    afmoe_model *model;
    if (GOES_WELL(afmoe_model_open(&model, text_model_path(path), NULL, &error)))
        afmoe_model_free(model);
    else
        assert_null(model);
}

static unsigned char *model_bytes; /* of a GGUF file in memory */
static uint64_t n_model_bytes;

static void count_release(void *user_data)
{
    ++*(int *)user_data;
}

/* A copy of borrowed memory, estimated and embedded with: released once if it was taken, else never. */
static void memory_scenario(void)
{
    enum { MAX_HIDDEN = 4096 };
    static float vector[MAX_HIDDEN];
    char path[PATH_BYTES];
    afmoe_memory memory;
    afmoe_model_options read;
    afmoe_model *model;
    afmoe_context *context = NULL;
    afmoe_session *session = NULL;
    int n_released = 0;
    uint64_t n;
    afmoe_memory_init(&memory, sizeof memory);
    afmoe_model_options_init(&read, sizeof read);
    read.load = AFMOE_LOAD_READ;
    if (!GOES_WELL(afmoe_estimate(text_model_path(path), &read, NULL, 2, 100, &memory, &error)))
        assert_int_equal(memory.scratch, 0);
    if (!GOES_WELL(afmoe_model_open_memory(&model, model_bytes, n_model_bytes, count_release, &n_released, &read,
                                           &error))) {
        assert_null(model);
        assert_int_equal(n_released, 0);
        return;
    }
    if (GOES_WELL(afmoe_context_create(&context, model, NULL, &error)) &&
        GOES_WELL(afmoe_session_create(&session, context, &error)) &&
        !GOES_WELL(afmoe_session_embed(session, tokens, N_TOKENS, AFMOE_POOL_MEAN, 1, NULL, vector, MAX_HIDDEN, &n,
                                       &error)))
        assert_true(n_tokens_of(session) <= N_TOKENS);
    afmoe_model_free(model);
    afmoe_context_free(context);
    afmoe_session_free(session);
    assert_int_equal(n_released, 1);
}

static void borrowed_memory(void **state)
{
    char path[PATH_BYTES];
    (void)state;
    FILE *file = fopen(text_model_path(path), "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    n_model_bytes = (uint64_t)ftell(file);
    rewind(file);
    model_bytes = malloc(n_model_bytes);
    assert_non_null(model_bytes);
    assert_int_equal(fread(model_bytes, 1, n_model_bytes, file), n_model_bytes);
    fclose(file);
    fail_each(memory_scenario);
    free(model_bytes);
}

/* A state saved and loaded, from memory and a file: what fails leaves the session as it was. */
static void state_scenario(void)
{
    static unsigned char bytes[1 << 20];
    afmoe_context *context = NULL;
    afmoe_session *session = NULL, *loaded = NULL;
    uint64_t n;
    char path[PATH_BYTES];
    const char *root = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/afmoe-no-memory-%ld", root ? root : "/tmp", (long)getpid());
    if (GOES_WELL(afmoe_context_create(&context, text_model, NULL, &error)) &&
        GOES_WELL(afmoe_session_create(&session, context, &error)) &&
        GOES_WELL(afmoe_session_append(session, tokens, 70, NULL, NULL, &error)) &&
        GOES_WELL(afmoe_session_create(&loaded, context, &error)) &&
        GOES_WELL(afmoe_session_append(loaded, tokens, 3, NULL, NULL, &error)) &&
        GOES_WELL(afmoe_session_shift(session, 0, 64, NULL, &error)) &&
        GOES_WELL(afmoe_session_save_memory(session, bytes, sizeof bytes, &n, &error)) &&
        GOES_WELL(afmoe_session_save(session, path, &error))) {
        if (!GOES_WELL(afmoe_session_load_memory(loaded, bytes, n, &error)) ||
            !GOES_WELL(afmoe_session_rewind(loaded, 3, NULL, NULL, &error)) ||
            !GOES_WELL(afmoe_session_load(loaded, path, &error)))
            assert_true(n_tokens_of(loaded) == 3 || n_tokens_of(loaded) == 70);
        else
            assert_int_equal(n_tokens_of(loaded), 70);
    }
    unlink(path);
    afmoe_session_free(session);
    afmoe_session_free(loaded);
    afmoe_context_free(context);
}

static void saved_state(void **state)
{
    char path[PATH_BYTES];
    (void)state;
    if (!strstr(afmoe_build_features(), "state")) {
        printf("skipped: saved_state (built without it)\n");
        return;
    }
    text_model = open_model(text_model_path(path));
    fail_each(state_scenario);
    afmoe_model_free(text_model);
}

static char inspected[PATH_BYTES];

static void inspect_scenario(void)
{
    afmoe_model *model;
    afmoe_model_options options;
    afmoe_model_options_init(&options, sizeof options);
    options.inspect_only = 1;
    if (GOES_WELL(afmoe_model_open(&model, inspected, &options, &error)))
        afmoe_model_free(model);
    else
        assert_null(model);
}

static void inspect(void **state)
{
    char path[PATH_BYTES];
    (void)state;
    make_variant(inspected, small_model_path(path, "tiny-bias"), NULL, NULL);
    add_to_variant(inspected, "tokenizer_config.json", "{\"chat_template\": \"of the config\"}");
    add_to_variant(inspected, "chat_template.jinja", "of a file");
    fail_each(inspect_scenario);
    remove_variant(inspected);
}

static void hub_model(void **state)
{
    (void)state;
    fail_each(hub_scenario);
}

static void together(void **state)
{
    (void)state;
    fail_each(together_scenario);
}

static void text_calls(void **state)
{
    char path[PATH_BYTES];
    (void)state;
    text_model = open_model(text_model_path(path));
    fail_each(text_scenario);
    afmoe_model_free(text_model);
}

static void open_text_model(void **state)
{
    (void)state;
    fail_each(open_text_scenario);
}

/* Out of memory amid an append: whole chunks stay and go on to the same logits; before the first, the logits stay. */
static void append_keeps_whole_chunks(void **state)
{
    char path[PATH_BYTES];
    float expected[VOCAB], logits[VOCAB];
    afmoe_model *model = open_model(small_model_path(path, "tiny-bias"));
    afmoe_context_options options = two_threads();
    (void)state;
    options.chunk_tokens = CHUNK;
    afmoe_context *context = open_context(model, &options);
    for (long n = -1;; n++) { /* -1: nothing fails */
        afmoe_session *session = open_session(context);
        afmoe_append_result result;
        afmoe_append_result_init(&result, sizeof result);
        CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens, 1, NULL, NULL, &error));
        atomic_store(&n_until_failure, n);
        afmoe_status status = afmoe_session_append(session, tokens + 1, N_TOKENS - 1, NULL, &result, &error);
        bool failed = n >= 0 && atomic_load(&n_until_failure) < 0;
        atomic_store(&n_until_failure, -1);
        assert_int_equal(status, failed ? AFMOE_NO_MEMORY : AFMOE_OK);
        if (failed) {
            assert_int_equal((result.n_tokens - 1) % CHUNK, 0);
            assert_int_equal(n_tokens_of(session), result.n_tokens);
            assert_int_equal(afmoe_session_logits(session, logits, VOCAB, NULL, NULL),
                             result.n_tokens == 1 ? AFMOE_OK : AFMOE_STATE);
            CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens + result.n_tokens, N_TOKENS - result.n_tokens,
                                                        NULL, NULL, &error));
        }
        CHECK_STATUS(AFMOE_OK, afmoe_session_logits(session, n < 0 ? expected : logits, VOCAB, NULL, &error));
        if (n >= 0) assert_memory_equal(logits, expected, sizeof logits);
        afmoe_session_free(session);
        assert_int_equal(page_bytes_of(context), 0);
        if (n >= 0 && !failed) break;
    }
    afmoe_context_free(context);
    afmoe_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(append_keeps_whole_chunks), cmocka_unit_test(hub_model),
                                       cmocka_unit_test(text_calls), cmocka_unit_test(open_text_model),
                                       cmocka_unit_test(borrowed_memory), cmocka_unit_test(inspect),
                                       cmocka_unit_test(together), cmocka_unit_test(saved_state),
                                       cmocka_unit_test(prefixes_on_disk)};
    return cmocka_run_group_tests_name("no_memory", tests, prepare, NULL);
}
