/* afmoe_estimate and afmoe_context_get_memory against what the system says: the growth of RssAnon, the private memory
 * of a process, measured in a child of its own for each case. */
#define _GNU_SOURCE
#include "harness.h"

#include "fixture_writer.h"
#include "sanitizer.h"
#include "test_paths.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* What is not counted: malloc's headers and the end of its heap it keeps (up to 128 KiB, M_TRIM_THRESHOLD), the stack
 * of a worker (some 12 KiB each), and the small structs that hold everything together. */
enum { SLACK_BYTES = 128 << 10, MAX_TOKENS = 4096 };

#define MEASURABLE !UNDER_SANITIZER

static afmoe_error error;
static struct scratch scratch;

struct usage {
    const char *path;
    int32_t load, n_threads, cells;
    uint32_t chunk_tokens;
    uint64_t n_sessions, n_tokens, snapshot_bytes;
    uint64_t max_draft; /* of an answer, in the midst of which is measured; one session then */
};

enum { N_ANSWER = 400 };

struct outcome {
    afmoe_memory estimate, now;
    uint64_t growth; /* of RssAnon, in bytes */
};

static uint64_t rss_anon(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "RssAnon: %llu", &kib) == 1) break;
    if (file) fclose(file);
    return kib * 1024;
}

static uint64_t private_bytes(const afmoe_memory *memory)
{
    return memory->weights_private + memory->scratch + memory->pages + memory->sessions + memory->drafts;
}

static afmoe_model_options model_options(const struct usage *usage)
{
    afmoe_model_options options;
    afmoe_model_options_init(&options, sizeof options);
    options.load = usage->load;
    return options;
}

static afmoe_context_options context_options(const struct usage *usage)
{
    afmoe_context_options options = two_threads();
    options.n_threads = usage->n_threads;
    options.cells = usage->cells;
    options.chunk_tokens = usage->chunk_tokens;
    options.snapshot_bytes = usage->snapshot_bytes;
    options.snapshot_tokens = 128;
    return options;
}

struct measure {
    afmoe_context *context;
    uint64_t before, n_pieces;
    struct outcome *out;
};

static void measure(const struct measure *measure)
{
    measure->out->growth = rss_anon() - measure->before;
    afmoe_memory_init(&measure->out->now, sizeof measure->out->now);
    CHECK_STATUS(AFMOE_OK, afmoe_context_get_memory(measure->context, &measure->out->now, &error));
}

static int32_t measure_last(void *user_data, const afmoe_piece *piece)
{
    struct measure *m = user_data;
    (void)piece;
    if (++m->n_pieces == N_ANSWER - 1) measure(m);
    return 0;
}

/* The same token over and over: as many drafts as there may be are soon tried and right. */
static void answer(afmoe_model *model, afmoe_session *session, uint64_t max_draft, struct measure *m)
{
    static const afmoe_token token = 7;
    static const float bias = 1e6f;
    afmoe_sampler_options sampling;
    afmoe_generate_options options;
    afmoe_generate_result result;
    afmoe_sampler *sampler;
    afmoe_sampler_options_init(&sampling, sizeof sampling);
    afmoe_generate_options_init(&options, sizeof options);
    afmoe_generate_result_init(&result, sizeof result);
    sampling.bias_tokens = &token;
    sampling.bias_values = &bias;
    sampling.n_bias = 1;
    CHECK_STATUS(AFMOE_OK, afmoe_sampler_create(&sampler, model, &sampling, &error));
    options.max_draft = max_draft;
    options.max_tokens = N_ANSWER;
    options.on_piece = measure_last;
    options.on_piece_data = m;
    CHECK_STATUS(AFMOE_OK, afmoe_generate(session, sampler, &options, &result, &error));
    assert_true(result.n_draft_accepted > N_ANSWER / 2);
    afmoe_sampler_free(sampler);
    afmoe_memory after;
    afmoe_memory_init(&after, sizeof after);
    CHECK_STATUS(AFMOE_OK, afmoe_context_get_memory(m->context, &after, &error));
    assert_int_equal(after.drafts, 0);
}

/* In a child. */
static void run(const struct usage *usage, struct outcome *out)
{
    static afmoe_token tokens[MAX_TOKENS];
    afmoe_model_options for_model = model_options(usage);
    afmoe_context_options for_context = context_options(usage);
    afmoe_session *sessions[8];
    afmoe_model *model;
    memset(tokens, 1, sizeof tokens); /* there before measuring begins */
    uint64_t before = rss_anon();
    CHECK_STATUS(AFMOE_OK, afmoe_model_open(&model, usage->path, &for_model, &error));
    make_tokens(tokens, usage->n_tokens, info_of(model).vocab_size, 4);
    afmoe_context *context = open_context(model, &for_context);
    for (uint64_t i = 0; i < usage->n_sessions; i++) {
        sessions[i] = open_session(context);
        CHECK_STATUS(AFMOE_OK, afmoe_session_append(sessions[i], tokens, usage->n_tokens, NULL, NULL, &error));
    }
    struct measure m = {.context = context, .before = before, .out = out};
    if (usage->max_draft) answer(model, sessions[0], usage->max_draft, &m);
    else measure(&m);
    for (uint64_t i = 0; i < usage->n_sessions; i++) afmoe_session_free(sessions[i]);
    afmoe_context_free(context);
    afmoe_model_free(model);
}

static void estimate(const struct usage *usage, struct outcome *out)
{
    afmoe_model_options for_model = model_options(usage);
    afmoe_context_options for_context = context_options(usage);
    afmoe_memory_init(&out->estimate, sizeof out->estimate);
    uint64_t n_tokens = usage->n_tokens + (usage->max_draft ? N_ANSWER : 0);
    CHECK_STATUS(AFMOE_OK, afmoe_estimate(usage->path, &for_model, &for_context, usage->n_sessions, n_tokens,
                                          &out->estimate, &error));
    out->estimate.drafts *= usage->max_draft; /* it is that of one */
}

static void in_child(void (*what)(const struct usage *, struct outcome *), const struct usage *usage,
                     struct outcome *out)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        what(usage, out);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void check_close(const char *what, uint64_t said, uint64_t measured)
{
    double off = fabs((double)said - (double)measured);
    if (off <= 0.05 * (double)measured + SLACK_BYTES) return;
    print_error("%s: %llu bytes, RssAnon grew by %llu\n", what, (unsigned long long)said, (unsigned long long)measured);
    fail();
}

static void check_usage(const struct usage *usage)
{
    struct outcome *out = mmap(NULL, sizeof *out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(out != MAP_FAILED);
    in_child(estimate, usage, out);
    in_child(run, usage, out);
    const char *name = strrchr(usage->path, '/') + 1;
    print_message("%s, load %d, cells %d, %d threads, chunks of %u, %llu sessions of %llu: grew %.2f MiB, estimate "
                  "%.2f (weights %.2f, scratch %.2f, pages %.2f, sessions %.2f, drafts %.2f), memory %.2f\n", name, usage->load,
                  usage->cells, usage->n_threads, usage->chunk_tokens, (unsigned long long)usage->n_sessions,
                  (unsigned long long)usage->n_tokens, (double)out->growth / 1048576,
                  (double)private_bytes(&out->estimate) / 1048576, (double)out->estimate.weights_private / 1048576,
                  (double)out->estimate.scratch / 1048576, (double)out->estimate.pages / 1048576,
                  (double)out->estimate.sessions / 1048576, (double)out->estimate.drafts / 1048576,
                  (double)private_bytes(&out->now) / 1048576);
    /* Sizes have one home: what was estimated is what is there, to the byte. */
    assert_int_equal(out->estimate.weights_mapped, out->now.weights_mapped);
    assert_int_equal(out->estimate.weights_private, out->now.weights_private);
    assert_int_equal(out->estimate.scratch, out->now.scratch);
    assert_int_equal(out->estimate.pages, out->now.pages);
    assert_int_equal(out->estimate.sessions, out->now.sessions);
    assert_int_equal(out->estimate.drafts, out->now.drafts);
    if (MEASURABLE) {
        check_close("estimate", private_bytes(&out->estimate), out->growth);
        check_close("memory", private_bytes(&out->now), out->growth);
    }
    munmap(out, sizeof *out);
}

static void test_fixtures(void **state)
{
    static const char *const names[] = {"tiny-bias", "nano", "tiny-no-shared-f16"};
    char path[PATH_BYTES];
    (void)state;
    if (!MEASURABLE) printf("skipped: sanitizer RssAnon (a sanitizer's own memory is in it)\n");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!small_model_path(path, names[i])) continue;
        for (int32_t load = AFMOE_LOAD_MAP; load <= AFMOE_LOAD_READ; load++)
            check_usage(&(struct usage){.path = path, .load = load, .n_threads = 2, .cells = AFMOE_CELLS_F32,
                                        .chunk_tokens = 256, .n_sessions = 2, .n_tokens = 400});
    }
}

static void test_text_model(void **state)
{
    char path[PATH_BYTES];
    (void)state;
    text_model_path(path);
    for (int32_t load = AFMOE_LOAD_MAP; load <= AFMOE_LOAD_READ; load++)
        check_usage(&(struct usage){.path = path, .load = load, .n_threads = 2, .cells = AFMOE_CELLS_F16,
                                    .chunk_tokens = 64, .n_sessions = 1, .n_tokens = 256});
}

/* A token for every byte, in the GPT-2 alphabet: printable Latin-1 stands for itself, the rest is U+0100 and up. */
static void add_byte_tokenizer(struct gguf_writer *w)
{
    struct buffer tokens = {0};
    uint32_t n_others = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool itself = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
        uint32_t point = itself ? byte : 256 + n_others++;
        const uint8_t text[2] = {(uint8_t)(point < 128 ? point : 0xC0 | point >> 6), (uint8_t)(0x80 | (point & 0x3F))};
        buffer_put_u64(&tokens, point < 128 ? 1 : 2);
        buffer_put(&tokens, text, point < 128 ? 1 : 2);
    }
    gguf_set_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_set_string(w, "tokenizer.ggml.pre", "afmoe");
    gguf_set_array(w, "tokenizer.ggml.tokens", GGUF_STRING, 256, tokens.data, tokens.n);
    gguf_set_array(w, "tokenizer.ggml.merges", GGUF_STRING, 0, "", 0);
    buffer_free(&tokens);
}

/* The tiny model grown: hidden size 256, heads of 128, windows of 512, 16000 tokens: 41 MB of float32. */
static const char *large_path(void)
{
    enum { TIMES = 8, VOCAB = 16000 };
    struct gguf_writer w;
    struct buffer file;
    uint64_t header;
    gguf_writer_init(&w, FORMAT_F32);
    add_byte_tokenizer(&w);
    gguf_set_u32(&w, "afmoe.context_length", MAX_TOKENS);
    gguf_set_u32(&w, "afmoe.embedding_length", 32 * TIMES);
    gguf_set_u32(&w, "afmoe.feed_forward_length", 64 * TIMES);
    gguf_set_u32(&w, "afmoe.attention.key_length", 16 * TIMES);
    gguf_set_u32(&w, "afmoe.expert_feed_forward_length", 32 * TIMES);
    gguf_set_u32(&w, "afmoe.attention.sliding_window", 512);
    for (uint32_t i = 0; i < w.n_tensors; i++) {
        struct written_tensor *t = &w.tensors[i];
        t->n_elements = 1;
        for (uint32_t d = 0; d < t->n_dims; d++) {
            if (t->dims[d] == 40) t->dims[d] = VOCAB;
            else if (t->dims[d] != 4) t->dims[d] *= TIMES; /* 4: the experts */
            t->n_elements *= t->dims[d];
        }
    }
    gguf_serialise(&w, &file, &header);
    scratch_write(&scratch, "large.gguf", file.data, file.n);
    buffer_free(&file);
    gguf_writer_free(&w);
    return scratch_path(&scratch, "large.gguf");
}

static void test_large_model(void **state)
{
    (void)state;
    const char *path = large_path();
    /* Few tokens where nothing is measured: only the numbers are compared with each other. */
    uint64_t n_tokens = MEASURABLE ? MAX_TOKENS : 300;
    for (int32_t load = AFMOE_LOAD_MAP; load <= AFMOE_LOAD_READ; load++)
        check_usage(&(struct usage){.path = path, .load = load, .n_threads = 2, .cells = AFMOE_CELLS_F32,
                                    .chunk_tokens = 256, .n_sessions = 2, .n_tokens = n_tokens});
    check_usage(&(struct usage){.path = path, .n_threads = 4, .cells = AFMOE_CELLS_BF16, .chunk_tokens = 1000,
                                .n_sessions = 3, .n_tokens = n_tokens / 2});
    check_usage(&(struct usage){.path = path, .n_threads = 2, .cells = AFMOE_CELLS_Q8_0, .chunk_tokens = 500,
                                .n_sessions = 2, .n_tokens = n_tokens});
    check_usage(&(struct usage){.path = path, .load = AFMOE_LOAD_READ, .n_threads = 1, .cells = AFMOE_CELLS_F32,
                                .chunk_tokens = 16});
    for (uint64_t bytes = 1 << 20; bytes <= 16 << 20; bytes *= 4) /* snapshots: few, more, all that come */
        check_usage(&(struct usage){.path = path, .n_threads = 2, .cells = AFMOE_CELLS_F32, .chunk_tokens = 200,
                                    .n_sessions = 2, .n_tokens = n_tokens / 2, .snapshot_bytes = bytes});
    for (uint64_t max_draft = 8; max_draft <= 64; max_draft *= 8)
        check_usage(&(struct usage){.path = path, .n_threads = 2, .cells = AFMOE_CELLS_F32, .chunk_tokens = 128,
                                    .n_sessions = 1, .n_tokens = 256, .max_draft = max_draft});
}

static void test_parts(void **state)
{
    char path[PATH_BYTES];
    afmoe_memory one, two, none;
    (void)state;
    text_model_path(path);
    afmoe_memory_init(&one, sizeof one);
    afmoe_memory_init(&two, sizeof two);
    afmoe_memory_init(&none, sizeof none);
    CHECK_STATUS(AFMOE_OK, afmoe_estimate(path, NULL, NULL, 0, 0, &none, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_estimate(path, NULL, NULL, 1, 300, &one, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_estimate(path, NULL, NULL, 2, 300, &two, &error));
    assert_true(none.pages == 0 && none.sessions == 0 && none.scratch > 0 && none.weights_mapped > 8000000);
    assert_true(one.pages > 0 && one.sessions > 0 && two.sessions == 2 * one.sessions);
    assert_true(two.scratch == none.scratch && two.weights_private == none.weights_private);
    afmoe_model_options read;
    afmoe_model_options_init(&read, sizeof read);
    read.load = AFMOE_LOAD_READ;
    CHECK_STATUS(AFMOE_OK, afmoe_estimate(path, &read, NULL, 0, 0, &one, &error));
    assert_int_equal(one.weights_mapped, 0);
    assert_int_equal(one.weights_private, none.weights_private + none.weights_mapped);
}

static void test_refusals(void **state)
{
    char path[PATH_BYTES];
    afmoe_memory out;
    afmoe_model_options text;
    afmoe_context_options options;
    (void)state;
    text_model_path(path);
    afmoe_memory_init(&out, sizeof out);
    out.pages = 77;
    afmoe_model_options_init(&text, sizeof text);
    text.tokenizer_only = 1;
    CHECK_STATUS(AFMOE_STATE, afmoe_estimate(path, &text, NULL, 1, 1, &out, &error));
    CHECK_STATUS(AFMOE_NOT_FOUND, afmoe_estimate("/nonexistent", NULL, NULL, 1, 1, &out, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_estimate(NULL, NULL, NULL, 1, 1, &out, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_estimate(path, NULL, NULL, 1, 1, NULL, &error));
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_estimate(path, NULL, NULL, 1, UINT64_MAX, &out, &error));
    CHECK_STATUS(AFMOE_LIMIT, afmoe_estimate(path, NULL, NULL, UINT64_MAX, 100, &out, &error));
    CHECK_STATUS(AFMOE_LIMIT, afmoe_estimate(path, NULL, NULL, UINT64_MAX, 0, &out, &error));
    options = two_threads();
    options.n_threads = 0;
    CHECK_STATUS(AFMOE_INVALID, afmoe_estimate(path, NULL, &options, 1, 1, &out, &error));
    options = two_threads();
    options.max_page_bytes = 1;
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_estimate(path, NULL, &options, 1, 1, &out, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_estimate(path, NULL, &options, 1, 0, &out, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_context_get_memory(NULL, &out, &error));
    afmoe_memory unset = {0};
    CHECK_STATUS(AFMOE_INVALID, afmoe_estimate(path, NULL, NULL, 1, 1, &unset, &error));
}

/* Sessions that go take their memory out of the figures, with recycled pages the last to go. */
static void test_memory_now(void **state)
{
    char path[PATH_BYTES];
    afmoe_token tokens[200];
    afmoe_memory memory;
    (void)state;
    if (!small_model_path(path, "tiny-bias")) return;
    afmoe_model *model = open_model(path);
    make_tokens(tokens, 200, info_of(model).vocab_size, 4);
    afmoe_context *context = open_context(model, NULL);
    afmoe_memory_init(&memory, sizeof memory);
    CHECK_STATUS(AFMOE_OK, afmoe_context_get_memory(context, &memory, &error));
    assert_true(memory.pages == 0 && memory.sessions == 0 && memory.scratch > 0 && memory.weights_mapped > 0);
    afmoe_session *one = open_session(context), *two = open_session(context);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(one, tokens, 200, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(two, tokens, 10, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_context_get_memory(context, &memory, &error));
    uint64_t sessions = memory.sessions, pages = memory.pages;
    assert_true(pages > page_bytes_of(context) && sessions > 0);
    afmoe_session_free(one);
    CHECK_STATUS(AFMOE_OK, afmoe_context_get_memory(context, &memory, &error));
    assert_int_equal(memory.sessions, sessions / 2);
    assert_int_equal(memory.pages, pages);
    afmoe_session_free(two);
    CHECK_STATUS(AFMOE_OK, afmoe_context_get_memory(context, &memory, &error));
    assert_true(memory.pages == 0 && memory.sessions == 0);
    afmoe_context_free(context);
    afmoe_model_free(model);
}

int main(void)
{
    pid_t parent = getpid();
    error = fresh_error();
    scratch_make(&scratch);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixtures), cmocka_unit_test(test_text_model), cmocka_unit_test(test_large_model),
        cmocka_unit_test(test_parts),    cmocka_unit_test(test_refusals),   cmocka_unit_test(test_memory_now),
    };
    int n_failed = cmocka_run_group_tests_name("estimate", tests, NULL, NULL);
    if (getpid() != parent) _exit(1); /* a check failed in a child */
    scratch_remove(&scratch);
    return n_failed;
}
