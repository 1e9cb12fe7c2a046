/* How long a computing call goes on once it is cancelled: on a model with the layers of Trinity Nano (hidden size 1024,
 * 128 experts of width 256, 8 chosen), in a prompt read in chunks of 256 and token by token. The weights of experts
 * are holes of a sparse file: zeros take as long as other numbers. Router and embeddings are random, so the experts
 * chosen differ from token to token. */
#define _XOPEN_SOURCE 700 /* pwrite */

#include "harness.h"

#include "sanitizer.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    HIDDEN = 1024, DENSE = 3072, WIDTH = 256, N_EXPERTS = 128, HEAD = 128, N_HEADS = 8, N_KV = 2, VOCAB = 8192,
    N_LAYERS = 4, /* of the last one a prompt needs keys and values alone */
    N_DENSE = 1
};

/* A second thread takes part in every sanitizer build; how fast is a question for the others. */
enum { N_TOKENS = UNDER_SANITIZER ? 24 : 768, CHUNK = UNDER_SANITIZER ? 8 : 256, N_TRIES = UNDER_SANITIZER ? 3 : 15 };

/* ---- The model ---- */

static const char config[] =
    "{\"architectures\":[\"AfmoeForCausalLM\"],\"model_type\":\"afmoe\",\"hidden_size\":1024,\"intermediate_size\":3072,"
    "\"moe_intermediate_size\":256,\"num_experts\":128,\"num_experts_per_tok\":8,\"num_shared_experts\":1,"
    "\"num_hidden_layers\":4,\"num_dense_layers\":1,\"num_attention_heads\":8,\"num_key_value_heads\":2,"
    "\"head_dim\":128,\"vocab_size\":8192,\"max_position_embeddings\":4096,\"sliding_window\":2048,"
    "\"layer_types\":[\"sliding_attention\",\"sliding_attention\",\"full_attention\",\"full_attention\"],"
    "\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,"
    "\"route_scale\":2.826,\"route_norm\":true,\"score_func\":\"sigmoid\",\"mup_enabled\":true,"
    "\"tie_word_embeddings\":false}";

struct file {
    char *header;
    size_t n, capacity;
    uint64_t data_bytes;
    uint64_t router_at[N_LAYERS], embedding_at;
};

/* A bfloat16 tensor of rows x columns (columns 0: a vector); its offset in the data. */
static uint64_t add(struct file *file, uint64_t rows, uint64_t columns, const char *format, int layer, int expert)
{
    char name[128];
    snprintf(name, sizeof name, format, layer, expert);
    uint64_t begin = file->data_bytes;
    file->data_bytes += 2 * rows * (columns ? columns : 1);
    if (file->capacity - file->n < 256) {
        file->capacity = 2 * file->capacity + 4096;
        file->header = realloc(file->header, file->capacity);
        assert_non_null(file->header);
    }
    char shape[64];
    snprintf(shape, sizeof shape, columns ? "%llu,%llu" : "%llu", (unsigned long long)rows, (unsigned long long)columns);
    file->n += (size_t)snprintf(file->header + file->n, file->capacity - file->n,
                                "%c\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
                                file->n ? ',' : '{', name, shape, (unsigned long long)begin,
                                (unsigned long long)file->data_bytes);
    return begin;
}

static void add_ffn(struct file *file, const char *at, int layer, int expert, uint64_t width)
{
    char name[128];
    snprintf(name, sizeof name, "%s.gate_proj.weight", at);
    add(file, width, HIDDEN, name, layer, expert);
    snprintf(name, sizeof name, "%s.up_proj.weight", at);
    add(file, width, HIDDEN, name, layer, expert);
    snprintf(name, sizeof name, "%s.down_proj.weight", at);
    add(file, HIDDEN, width, name, layer, expert);
}

static void add_layer(struct file *file, int layer)
{
    add(file, HIDDEN, 0, "model.layers.%d.input_layernorm.weight", layer, 0);
    add(file, HIDDEN, 0, "model.layers.%d.post_attention_layernorm.weight", layer, 0);
    add(file, HIDDEN, 0, "model.layers.%d.pre_mlp_layernorm.weight", layer, 0);
    add(file, HIDDEN, 0, "model.layers.%d.post_mlp_layernorm.weight", layer, 0);
    add(file, HEAD, 0, "model.layers.%d.self_attn.q_norm.weight", layer, 0);
    add(file, HEAD, 0, "model.layers.%d.self_attn.k_norm.weight", layer, 0);
    add(file, N_HEADS * HEAD, HIDDEN, "model.layers.%d.self_attn.q_proj.weight", layer, 0);
    add(file, N_KV * HEAD, HIDDEN, "model.layers.%d.self_attn.k_proj.weight", layer, 0);
    add(file, N_KV * HEAD, HIDDEN, "model.layers.%d.self_attn.v_proj.weight", layer, 0);
    add(file, N_HEADS * HEAD, HIDDEN, "model.layers.%d.self_attn.gate_proj.weight", layer, 0);
    add(file, HIDDEN, N_HEADS * HEAD, "model.layers.%d.self_attn.o_proj.weight", layer, 0);
    if (layer < N_DENSE) {
        add_ffn(file, "model.layers.%d.mlp", layer, 0, DENSE);
        return;
    }
    file->router_at[layer] = add(file, N_EXPERTS, HIDDEN, "model.layers.%d.mlp.router.gate.weight", layer, 0);
    add(file, N_EXPERTS, 0, "model.layers.%d.mlp.expert_bias", layer, 0);
    add_ffn(file, "model.layers.%d.mlp.shared_experts", layer, 0, WIDTH);
    for (int e = 0; e < N_EXPERTS; e++) add_ffn(file, "model.layers.%d.mlp.experts.%d", layer, e, WIDTH);
}

/* Random bfloat16 values of either sign in 1/2..2. */
static void write_random(int fd, uint64_t at, uint64_t n)
{
    static uint16_t values[1 << 16];
    uint32_t random = (uint32_t)at + 1;
    while (n > 0) {
        uint64_t now = n < 1 << 16 ? n : 1 << 16;
        for (uint64_t i = 0; i < now; i++) {
            random = random * 1664525u + 1013904223u;
            values[i] = (uint16_t)(0x3f00 + (random >> 16 & 0x807f) + (random >> 25 & 0x80));
        }
        assert_int_equal(pwrite(fd, values, 2 * now, (off_t)at), (ssize_t)(2 * now));
        at += 2 * now;
        n -= now;
    }
}

static void write_model(const char *path)
{
    struct file file = {0};
    file.embedding_at = add(&file, VOCAB, HIDDEN, "model.embed_tokens.weight", 0, 0);
    for (int layer = 0; layer < N_LAYERS; layer++) add_layer(&file, layer);
    add(&file, HIDDEN, 0, "model.norm.weight", 0, 0);
    add(&file, VOCAB, HIDDEN, "lm_head.weight", 0, 0);
    file.header[file.n++] = '}';
    while (file.n % 8) file.header[file.n++] = ' ';

    char name[PATH_BYTES + 32];
    snprintf(name, sizeof name, "%s/model.safetensors", path);
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    uint64_t n = file.n, data = 8 + n;
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &n, 8, 0), 8); /* little-endian */
    assert_int_equal(pwrite(fd, file.header, n, 8), (ssize_t)n);
    assert_int_equal(ftruncate(fd, (off_t)(data + file.data_bytes)), 0);
    write_random(fd, data + file.embedding_at, (uint64_t)VOCAB * HIDDEN);
    for (int layer = N_DENSE; layer < N_LAYERS; layer++)
        write_random(fd, data + file.router_at[layer], (uint64_t)N_EXPERTS * HIDDEN);
    close(fd);
    free(file.header);
    add_to_variant(path, "config.json", config);
}

static char folder[PATH_BYTES];
static afmoe_model *model;

static int open_nano(void **state)
{
    (void)state;
    const char *root = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/afmoe-nano-XXXXXX", root ? root : "/tmp");
    if (!mkdtemp(folder)) return -1;
    write_model(folder);
    model = open_model(folder);
    return 0;
}

static int close_nano(void **state)
{
    (void)state;
    afmoe_model_free(model);
    remove_variant(folder);
    return 0;
}

/* ---- Cancelling ---- */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct call {
    afmoe_session *session;
    afmoe_cancel *cancel;
    afmoe_token tokens[N_TOKENS];
    uint64_t n_tokens, at_once; /* in all, and of one append */
    afmoe_append_result result;
    afmoe_status status;
    uint64_t returned_ns;
};

static void *append_all(void *user)
{
    struct call *call = user;
    afmoe_append_options options;
    afmoe_append_options_init(&options, sizeof options);
    options.cancel = call->cancel;
    call->status = AFMOE_OK;
    for (uint64_t i = 0; i < call->n_tokens && call->status == AFMOE_OK; i += call->at_once)
        call->status = afmoe_session_append(call->session, call->tokens + i, call->at_once, &options, &call->result,
                                            NULL);
    call->returned_ns = now_ns();
    return NULL;
}

static void sleep_ns(uint64_t n)
{
    struct timespec t = {(time_t)(n / 1000000000u), (long)(n % 1000000000u)};
    while (nanosleep(&t, &t) != 0) continue;
}

/* Cancel after `delay`; how long the call went on after that. UINT64_MAX: it was done before. */
static uint64_t latency_ns(struct call *call, uint64_t delay)
{
    pthread_t thread;
    afmoe_error error = fresh_error();
    CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(call->session, 0, NULL, NULL, &error));
    afmoe_cancel_clear(call->cancel);
    assert_int_equal(pthread_create(&thread, NULL, append_all, call), 0);
    sleep_ns(delay);
    uint64_t set_ns = now_ns();
    afmoe_cancel_set(call->cancel);
    pthread_join(thread, NULL);
    if (call->status == AFMOE_OK) return UINT64_MAX;
    assert_int_equal(call->status, AFMOE_CANCELLED);
    assert_int_equal(call->result.n_tokens % (call->at_once < CHUNK ? call->at_once : CHUNK), 0); /* whole chunks */
    assert_int_equal(n_tokens_of(call->session), call->result.n_tokens);
    return call->returned_ns - set_ns;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The median of cancels spread over the whole call: a machine with other work may make any single one late. */
static void check_latency(const char *what, uint64_t n_tokens, uint64_t at_once)
{
    struct call call = {.n_tokens = n_tokens, .at_once = at_once};
    uint64_t took[N_TRIES];
    int n = 0;
    afmoe_context_options options = two_threads();
    options.chunk_tokens = CHUNK;
    afmoe_context *context = open_context(model, &options);
    call.session = open_session(context);
    assert_int_equal(afmoe_cancel_create(&call.cancel, NULL), AFMOE_OK);
    afmoe_append_result_init(&call.result, sizeof call.result);
    make_tokens(call.tokens, N_TOKENS, VOCAB, 7);
    uint64_t start = now_ns();
    append_all(&call);
    assert_int_equal(call.status, AFMOE_OK);
    uint64_t whole = now_ns() - start;
    for (int i = 0; i < N_TRIES; i++) {
        took[n] = latency_ns(&call, whole / 2 * (uint64_t)(2 * i + 1) / (uint64_t)(2 * N_TRIES));
        n += took[n] != UINT64_MAX;
    }
    assert_true(n > N_TRIES / 2);
    qsort(took, (size_t)n, sizeof *took, by_size);
    print_message("%s: whole call %.0f ms; cancelled: median %.2f ms, longest %.2f ms of %d\n", what,
                  (double)whole * 1e-6, (double)took[n / 2] * 1e-6, (double)took[n - 1] * 1e-6, n);
    if (!UNDER_SANITIZER) assert_true(took[n / 2] < 50000000u);
    afmoe_cancel_free(call.cancel);
    afmoe_session_free(call.session);
    afmoe_context_free(context);
}

static void in_prefill(void **state)
{
    (void)state;
    check_latency("prefill", N_TOKENS, N_TOKENS);
}

static void in_decode(void **state)
{
    (void)state;
    check_latency("decode", UNDER_SANITIZER ? 8 : 40, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_prefill), cmocka_unit_test(in_decode)};
    return cmocka_run_group_tests_name("cancel_latency", tests, open_nano, close_nano);
}
