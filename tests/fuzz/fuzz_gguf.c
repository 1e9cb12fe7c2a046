/* GGUF files: the tiny model with edits in the writer's terms (keys, tensors, counts) or in bytes of its header, or any
 * bytes at all. What opens is read to the last byte: every value, every tensor, the tokenizer. */
#include "fuzz.h"

#include "checkpoint.h"
#include "tiny_tokenizer.h"
#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>

static const char *const keys[] = {
    "general.architecture", "general.alignment", "general.name", "general.file_type", "general.sampling.temp",
    "general.sampling.top_p", "general.sampling.top_k", "general.sampling.min_p", "general.sampling.penalty_repeat",
    "afmoe.vocab_size", "afmoe.block_count", "afmoe.context_length", "afmoe.embedding_length",
    "afmoe.feed_forward_length", "afmoe.attention.head_count", "afmoe.attention.head_count_kv",
    "afmoe.attention.key_length", "afmoe.attention.value_length", "afmoe.attention.layer_norm_rms_epsilon",
    "afmoe.attention.sliding_window", "afmoe.attention.sliding_window_pattern", "afmoe.expert_count",
    "afmoe.expert_used_count", "afmoe.expert_shared_count", "afmoe.expert_feed_forward_length",
    "afmoe.expert_group_count", "afmoe.expert_group_used_count", "afmoe.expert_weights_norm",
    "afmoe.expert_weights_scale", "afmoe.expert_gating_func", "afmoe.leading_dense_block_count",
    "afmoe.rope.freq_base", "afmoe.rope.dimension_count", "afmoe.rope.scaling.type", "afmoe.rope.scaling.factor",
    "afmoe.rope.scaling.original_context_length", "afmoe.rope.scaling.attn_factor",
    "afmoe.rope.scaling.yarn_beta_fast", "afmoe.rope.scaling.yarn_beta_slow",
    "afmoe.rope.scaling.yarn_log_multiplier", "split.count", "split.no", "tokenizer.ggml.model", "tokenizer.ggml.pre",
    "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges", "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.padding_token_id",
    "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token", "", "x",
};

static const char *const words[] = {"afmoe", "llama", "gpt2", "yarn", "linear", "none", "longrope", "", "\n", "a b"};

enum { N_KEYS = sizeof keys / sizeof *keys, N_WORDS = sizeof words / sizeof *words, MAX_EDITS = 12 };

/* Bytes to change in the header once it is written. */
struct byte_edits {
    struct {
        uint16_t at;
        uint8_t value;
    } list[MAX_EDITS];
    size_t n;
};

static void set_scalar(struct gguf_writer *w, struct choices *c, const char *key)
{
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
    uint32_t type = choose_below(c, 14);
    uint64_t bits = choose_size(c);
    if (type == GGUF_F32) {
        float x = choose_float(c);
        gguf_set(w, key, type, &x, 4);
    } else if (type == GGUF_F64) {
        double x = (double)choose_float(c);
        gguf_set(w, key, type, &x, 8);
    } else {
        gguf_set(w, key, type, &bits, type < sizeof sizes && sizes[type] < 8 ? sizes[type] : 8);
    }
}

static void set_array(struct gguf_writer *w, struct choices *c, const char *key)
{
    size_t n_bytes;
    uint32_t type = choose_below(c, 14);
    uint64_t n = choose_size(c);
    const uint8_t *bytes = choose_bytes(c, 64, &n_bytes);
    gguf_set_array(w, key, type, n, bytes, n_bytes);
}

static void set_strings(struct gguf_writer *w, struct choices *c, const char *key)
{
    char text[33] = "";
    size_t n_bytes;
    const uint8_t *bytes = choose_bytes(c, sizeof text - 1, &n_bytes);
    memcpy(text, bytes, n_bytes); /* a NUL ends it */
    uint8_t n = choose_u8(c);
    if (n == 0) gguf_set_string(w, key, text);
    else gguf_set_strings(w, key, n, text);
}

/* A string of its own length, NULs and all. */
static void set_bytes(struct gguf_writer *w, struct choices *c, const char *key)
{
    struct buffer value = {0};
    size_t n;
    const uint8_t *bytes = choose_bytes(c, 255, &n);
    buffer_put_u64(&value, choose_u8(c) < 200 ? n : choose_size(c));
    buffer_put(&value, bytes, n);
    gguf_set(w, key, GGUF_STRING, value.data, value.n);
    buffer_free(&value);
}

static void edit_tensor(struct gguf_writer *w, struct choices *c, uint8_t how)
{
    struct written_tensor *t = &w->tensors[choose_below(c, w->n_tensors)];
    size_t n;
    const uint8_t *bytes;
    switch (how) {
    case 0: t->dims[choose_below(c, 4)] = choose_size(c); break;
    case 1: t->n_dims = choose_u8(c) < 250 ? choose_below(c, 9) : choose_u32(c); break;
    case 2: t->type = choose_u8(c) < 200 ? choose_below(c, 48) : choose_u32(c); break;
    case 3: t->move = (int64_t)(choose_u8(c) < 128 ? choose_size(c) : 0 - choose_size(c)); break;
    case 4: memmove(t->name, w->tensors[choose_below(c, w->n_tensors)].name, sizeof t->name); break;
    case 5:
        bytes = choose_bytes(c, sizeof t->name - 1, &n);
        memcpy(t->name, bytes, n);
        t->name[n] = '\0';
        break;
    case 6: t->dims[0] = choose_below(c, 64); t->dims[1] = choose_below(c, 64); break;
    default: gguf_drop_tensor(w, w->tensors[choose_below(c, w->n_tensors)].name);
    }
}

static void edit_counts(struct gguf_writer *w, struct choices *c, uint8_t how)
{
    switch (how) {
    case 0: w->n_tensors_said = choose_size(c); break;
    case 1: w->n_keys_said = choose_size(c); break;
    case 2: w->version = choose_below(c, 6); break;
    case 3:
        w->alignment = UINT64_C(1) << choose_below(c, 13);
        gguf_set_u32(w, "general.alignment", (uint32_t)w->alignment);
        break;
    case 4: w->drop_tail = choose_u16(c); break;
    default: gguf_add_tensor(w, "extra.weight", FORMAT_F32, 1 + choose_below(c, 3), choose_below(c, 9), 1, 1);
    }
}

static void edit(struct gguf_writer *w, struct choices *c, struct byte_edits *later)
{
    uint8_t how = choose_below(c, 24);
    const char *key = how < 8 ? keys[choose_below(c, N_KEYS)] : NULL;
    switch (how) {
    case 0:
    case 1: set_scalar(w, c, key); break;
    case 2: set_array(w, c, key); break;
    case 3: set_strings(w, c, key); break;
    case 4: set_bytes(w, c, key); break;
    case 5: gguf_drop(w, key); break;
    case 6: gguf_set_string(w, key, words[choose_below(c, N_WORDS)]); break;
    case 7: gguf_append_u32(w, key, choose_u8(c)); break;
    case 8:
    case 9:
        later->list[later->n].at = choose_u16(c);
        later->list[later->n++].value = choose_u8(c);
        break;
    default:
        if (how < 18) edit_tensor(w, c, how - 10);
        else edit_counts(w, c, how - 18);
    }
}

static void build(struct buffer *out, struct choices *c, uint8_t kind)
{
    struct gguf_writer w;
    struct byte_edits later = {.n = 0};
    uint64_t n_header;
    gguf_writer_init(&w, (enum tensor_format)(kind % (FORMAT_Q8_0 + 1)));
    if (kind & 16) {
        gguf_add_tiny_tokenizer(&w);
        for (int i = 0; i < 2; i++) {
            struct written_tensor *t = gguf_writer_tensor(&w, i ? "output.weight" : "token_embd.weight");
            t->dims[1] = TINY_IDS;
            t->n_elements = 32 * TINY_IDS;
        }
    }
    for (size_t n = choose_below(c, MAX_EDITS + 1); n > 0; n--) edit(&w, c, &later);
    gguf_serialise(&w, out, &n_header);
    for (size_t i = 0; i < later.n; i++) {
        uint64_t at = later.list[i].at % n_header;
        if (at < out->n) out->data[at] ^= later.list[i].value;
    }
    gguf_writer_free(&w);
}

/* Every way to read a value, of every key there may be. */
static uint64_t read_keys(const struct gguf *gguf)
{
    uint64_t sum = 0;
    for (size_t k = 0; k < N_KEYS; k++) {
        struct gguf_value value;
        if (!afmoe__gguf_find(gguf, keys[k], &value)) continue;
        REQUIRE(afmoe__gguf_type_name(value.type) && value.element_type < N_GGUF_TYPES);
        const uint8_t *bytes, *cursor = value.data;
        uint64_t u = 0, n = 0, n_read = value.n < 1000 ? value.n : 1000;
        int64_t i = 0;
        double f = 0;
        bool b = false;
        for (uint64_t at = 0; at < n_read; at++) {
            afmoe__gguf_get_u64(&value, at, &u);
            afmoe__gguf_get_i64(&value, at, &i);
            afmoe__gguf_get_f64(&value, at, &f);
            afmoe__gguf_get_bool(&value, at, &b);
            sum += u + (uint64_t)i + b;
            if (value.element_type != GGUF_STRING) continue;
            afmoe__gguf_next_string(&cursor, &bytes, &n);
            if (n) sum += bytes[0] + bytes[n - 1];
        }
        REQUIRE(!afmoe__gguf_get_u64(&value, value.n, &u));
        if (afmoe__gguf_get_string(&value, &bytes, &n) && n) sum += bytes[0] + bytes[n - 1];
    }
    for (uint64_t t = 0; t < afmoe__gguf_n_tensors(gguf); t++) {
        const struct gguf_tensor *tensor = afmoe__gguf_tensor(gguf, t);
        if (tensor->n_bytes) sum += tensor->data[0] + tensor->data[tensor->n_bytes - 1];
    }
    return sum;
}

static void open_tokenizer(const struct gguf *gguf)
{
    struct tokenizer *tokenizer = NULL;
    afmoe_error error = {.size = sizeof error};
    afmoe_status status = afmoe__tokenizer_from_gguf(&tokenizer, gguf, &error);
    fuzz_check_status(status, &error, (const afmoe_status[]){AFMOE_OK, AFMOE_FORMAT, AFMOE_LIMIT, AFMOE_UNSUPPORTED}, 4,
                      "tokenizer_from_gguf");
    if (status == AFMOE_OK) {
        afmoe_token ids[64];
        uint64_t n;
        CHECK_ONE_OF(afmoe__tokenizer_encode(tokenizer, "the <|im_end|> 12 \xff", 19, NULL, ids, 64, &n, &error),
                     AFMOE_OK);
    }
    afmoe__tokenizer_free(tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices c = {data, size};
    struct buffer bytes = {0};
    afmoe_error error = {.size = sizeof error};
    uint8_t kind = choose_u8(&c);
    if (kind == 255) buffer_put(&bytes, c.at, c.n);
    else build(&bytes, &c, kind);
    disk_clear();
    disk_put("x.gguf", bytes.data, bytes.n);
    buffer_free(&bytes);

    struct checkpoint checkpoint;
    const struct checkpoint_options options = {.tokenizer_only = kind == 255 ? size & 1 : (kind & 0x60) == 0x60,
                                               .strict = kind & 0x80, .read = kind == 255 ? size & 2 : kind & 8,
                                               .max_json_bytes = 1 << 25};
    afmoe_status status = CHECK_ONE_OF(afmoe__checkpoint_open(&checkpoint, DISK "/x.gguf", &options, &error), AFMOE_OK,
                                       AFMOE_FORMAT, AFMOE_TRUNCATED, AFMOE_LIMIT, AFMOE_UNSUPPORTED);
    if (status == AFMOE_OK && checkpoint.gguf) {
        fuzz_sink += read_keys(checkpoint.gguf);
        open_tokenizer(checkpoint.gguf);
    }
    afmoe__checkpoint_close(&checkpoint);
    return 0;
}
