/* Tiny checkpoints, see fixture_writer.h. */
#define _XOPEN_SOURCE 700 /* nftw */

#include "fixture_writer.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *need(void *p)
{
    if (p) return p;
    fprintf(stderr, "test: out of memory or disk\n");
    exit(99);
}

/* ---- Buffers and files ------------------------------------------------------------------------------------------ */

void buffer_put(struct buffer *buffer, const void *bytes, uint64_t n)
{
    if (n > buffer->capacity - buffer->n) {
        buffer->capacity = 2 * buffer->capacity + n + 64;
        buffer->data = need(realloc(buffer->data, buffer->capacity));
    }
    if (n) memcpy(buffer->data + buffer->n, bytes, n);
    buffer->n += n;
}

void buffer_put_u32(struct buffer *buffer, uint32_t x)
{
    uint8_t bytes[4];
    for (int i = 0; i < 4; i++) bytes[i] = (uint8_t)(x >> 8 * i);
    buffer_put(buffer, bytes, 4);
}

void buffer_put_u64(struct buffer *buffer, uint64_t x)
{
    buffer_put_u32(buffer, (uint32_t)x);
    buffer_put_u32(buffer, (uint32_t)(x >> 32));
}

void buffer_pad(struct buffer *buffer, uint64_t multiple)
{
    static const uint8_t zeros[64];
    for (uint64_t n; (n = (multiple - buffer->n % multiple) % multiple) > 0;) {
        buffer_put(buffer, zeros, n < sizeof zeros ? n : sizeof zeros);
    }
}

void buffer_free(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){0};
}

void scratch_make(struct scratch *scratch)
{
    const char *base = getenv("TMPDIR");
    snprintf(scratch->path, sizeof scratch->path, "%s/afmoe-test-XXXXXX", base ? base : "/tmp");
    need(mkdtemp(scratch->path));
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info, (void)type, (void)where;
    return remove(path);
}

void scratch_remove(struct scratch *scratch)
{
    nftw(scratch->path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

const char *scratch_path(const struct scratch *scratch, const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", scratch->path, name);
    return path;
}

void scratch_write(const struct scratch *scratch, const char *name, const void *bytes, uint64_t n)
{
    FILE *file = need(fopen(scratch_path(scratch, name), "wb"));
    need(n == 0 || fwrite(bytes, 1, n, file) == n ? file : NULL);
    need(fclose(file) == 0 ? file : NULL);
}

void scratch_write_json(const struct scratch *scratch, const char *name, json_t *document)
{
    char *text = need(json_dumps(document, JSON_COMPACT | JSON_ENCODE_ANY));
    scratch_write(scratch, name, text, strlen(text));
    free(text);
}

/* ---- Elements --------------------------------------------------------------------------------------------------- */

static int element_times_64(uint64_t i)
{
    return (int)(i * 37 % 128) - 64;
}

float tiny_element(uint64_t i)
{
    return (float)element_times_64(i) / 64;
}

/* For the values here only: normal, and exact in a half. */
static uint16_t to_half(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (x == 0) return 0;
    return (uint16_t)((bits >> 16 & 0x8000) | ((bits >> 23 & 0xFF) - 112) << 10 | (bits >> 13 & 0x3FF));
}

static void put_u16(struct buffer *buffer, uint16_t x)
{
    uint8_t bytes[2] = {(uint8_t)x, (uint8_t)(x >> 8)};
    buffer_put(buffer, bytes, 2);
}

static void put_encoded(struct buffer *buffer, enum tensor_format format, uint64_t begin, uint64_t end)
{
    for (uint64_t i = begin; i < end; i++) {
        float x = tiny_element(i);
        uint32_t bits;
        memcpy(&bits, &x, 4);
        if (format == FORMAT_F32) buffer_put_u32(buffer, bits);
        if (format == FORMAT_F16) put_u16(buffer, to_half(x));
        if (format == FORMAT_BF16) put_u16(buffer, (uint16_t)(bits >> 16));
        if (format == FORMAT_Q8_0) {
            int8_t q = (int8_t)element_times_64(i);
            if (i % 32 == 0) put_u16(buffer, to_half(1.0f / 64));
            buffer_put(buffer, &q, 1);
        }
    }
}

static void put_blocks(struct buffer *buffer, enum tensor_format format, uint64_t n)
{
    const struct format_traits *t = &afmoe__format_traits[format];
    for (uint64_t i = 0; i < n / t->block_elements * t->block_bytes; i++) {
        uint8_t byte = (uint8_t)(i * 37);
        buffer_put(buffer, &byte, 1);
    }
}

void buffer_put_elements(struct buffer *buffer, enum tensor_format format, uint64_t n)
{
    enum { PERIOD = 128 }; /* of the elements, and a multiple of Q8_0's block: encoded once, then copied */
    static struct buffer periods[N_FORMATS];
    struct buffer *period = &periods[format];
    if (format > FORMAT_Q8_0) {
        put_blocks(buffer, format, n);
        return;
    }
    if (period->n == 0) put_encoded(period, format, 0, PERIOD);
    for (uint64_t i = 0; i < n / PERIOD; i++) buffer_put(buffer, period->data, period->n);
    put_encoded(buffer, format, n / PERIOD * PERIOD, n);
}

/* ---- GGUF ------------------------------------------------------------------------------------------------------- */

static struct written_key *append_key(struct gguf_writer *w, const char *name, uint32_t type, const void *bytes,
                                      uint64_t n)
{
    struct written_key *key = need(w->n_keys < MAX_TINY_KEYS ? &w->keys[w->n_keys++] : NULL);
    *key = (struct written_key){0};
    snprintf(key->name, sizeof key->name, "%s", name);
    buffer_put_u32(&key->value, type);
    buffer_put(&key->value, bytes, n);
    return key;
}

void gguf_drop(struct gguf_writer *w, const char *name)
{
    for (uint32_t i = 0; i < w->n_keys; i++) {
        if (strcmp(w->keys[i].name, name) != 0) continue;
        buffer_free(&w->keys[i].value);
        memmove(&w->keys[i], &w->keys[i + 1], (w->n_keys - i - 1) * sizeof *w->keys);
        w->n_keys--;
        return;
    }
}

void gguf_set(struct gguf_writer *w, const char *name, uint32_t type, const void *bytes, uint64_t n)
{
    gguf_drop(w, name);
    append_key(w, name, type, bytes, n);
}

void gguf_set_u32(struct gguf_writer *w, const char *name, uint32_t x)
{
    gguf_drop(w, name);
    gguf_append_u32(w, name, x);
}

void gguf_append_u32(struct gguf_writer *w, const char *name, uint32_t x)
{
    buffer_put_u32(&append_key(w, name, GGUF_U32, "", 0)->value, x);
}

void gguf_set_f32(struct gguf_writer *w, const char *name, float x)
{
    gguf_set(w, name, GGUF_F32, &x, sizeof x);
}

void gguf_set_bool(struct gguf_writer *w, const char *name, uint8_t x)
{
    gguf_set(w, name, GGUF_BOOL, &x, 1);
}

void gguf_set_string(struct gguf_writer *w, const char *name, const char *text)
{
    gguf_drop(w, name);
    struct buffer *value = &append_key(w, name, GGUF_STRING, "", 0)->value;
    buffer_put_u64(value, strlen(text));
    buffer_put(value, text, strlen(text));
}

void gguf_set_array(struct gguf_writer *w, const char *name, uint32_t element_type, uint64_t n, const void *bytes,
                    uint64_t n_bytes)
{
    gguf_drop(w, name);
    struct buffer *value = &append_key(w, name, GGUF_ARRAY, "", 0)->value;
    buffer_put_u32(value, element_type);
    buffer_put_u64(value, n);
    buffer_put(value, bytes, n_bytes);
}

void gguf_set_strings(struct gguf_writer *w, const char *name, uint64_t n, const char *text)
{
    gguf_set_array(w, name, GGUF_STRING, n, "", 0);
    struct buffer *value = &w->keys[w->n_keys - 1].value;
    for (uint64_t i = 0; i < n; i++) {
        buffer_put_u64(value, strlen(text));
        buffer_put(value, text, strlen(text));
    }
}

struct written_tensor *gguf_writer_tensor(struct gguf_writer *w, const char *name)
{
    for (uint32_t i = 0; i < w->n_tensors; i++) {
        if (strcmp(w->tensors[i].name, name) == 0) return &w->tensors[i];
    }
    return need(NULL);
}

void gguf_drop_tensor(struct gguf_writer *w, const char *name)
{
    struct written_tensor *t = gguf_writer_tensor(w, name);
    memmove(t, t + 1, (size_t)(w->tensors + w->n_tensors - t - 1) * sizeof *t);
    w->n_tensors--;
}

static uint32_t type_code(enum tensor_format format)
{
    static const uint32_t codes[N_FORMATS] = {
        [FORMAT_F32] = 0,      [FORMAT_F16] = 1,     [FORMAT_BF16] = 30,   [FORMAT_Q8_0] = 8,     [FORMAT_Q4_0] = 2,
        [FORMAT_Q4_1] = 3,     [FORMAT_Q5_0] = 6,    [FORMAT_Q5_1] = 7,    [FORMAT_Q2_K] = 10,    [FORMAT_Q3_K] = 11,
        [FORMAT_Q4_K] = 12,    [FORMAT_Q5_K] = 13,   [FORMAT_Q6_K] = 14,   [FORMAT_IQ2_XXS] = 16, [FORMAT_IQ2_XS] = 17,
        [FORMAT_IQ3_XXS] = 18, [FORMAT_IQ1_S] = 19,  [FORMAT_IQ4_NL] = 20, [FORMAT_IQ3_S] = 21,   [FORMAT_IQ2_S] = 22,
        [FORMAT_IQ4_XS] = 23,  [FORMAT_IQ1_M] = 29,  [FORMAT_TQ1_0] = 34,  [FORMAT_TQ2_0] = 35,   [FORMAT_MXFP4] = 39,
        [FORMAT_NVFP4] = 40};
    return codes[format];
}

void gguf_set_format(struct written_tensor *tensor, enum tensor_format format)
{
    tensor->format = format;
    tensor->type = type_code(format);
}

struct written_tensor *gguf_add_tensor(struct gguf_writer *w, const char *name, enum tensor_format format,
                                       uint32_t n_dims, uint64_t d0, uint64_t d1, uint64_t d2)
{
    struct written_tensor *t = need(w->n_tensors < MAX_TINY_TENSORS ? &w->tensors[w->n_tensors++] : NULL);
    *t = (struct written_tensor){.n_dims = n_dims, .dims = {d0, d1, d2, 1}, .n_elements = d0 * d1 * d2};
    gguf_set_format(t, format);
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

static void add_layer(struct gguf_writer *w, int l, const char *name, enum tensor_format format, uint32_t n_dims,
                      uint64_t d0, uint64_t d1, uint64_t d2)
{
    char full[80];
    snprintf(full, sizeof full, "blk.%d.%s", l, name);
    gguf_add_tensor(w, full, format, n_dims, d0, d1, d2);
}

static void add_tiny_tensors(struct gguf_writer *w, enum tensor_format format)
{
    gguf_add_tensor(w, "token_embd.weight", format, 2, 32, 40, 1);
    gguf_add_tensor(w, "output_norm.weight", FORMAT_F32, 1, 32, 1, 1);
    gguf_add_tensor(w, "output.weight", format, 2, 32, 40, 1);
    for (int l = 0; l < 2; l++) {
        add_layer(w, l, "attn_norm.weight", FORMAT_F32, 1, 32, 1, 1);
        add_layer(w, l, "post_attention_norm.weight", FORMAT_F32, 1, 32, 1, 1);
        add_layer(w, l, "ffn_norm.weight", FORMAT_F32, 1, 32, 1, 1);
        add_layer(w, l, "post_ffw_norm.weight", FORMAT_F32, 1, 32, 1, 1);
        add_layer(w, l, "attn_q_norm.weight", FORMAT_F32, 1, 16, 1, 1);
        add_layer(w, l, "attn_k_norm.weight", FORMAT_F32, 1, 16, 1, 1);
        add_layer(w, l, "attn_q.weight", format, 2, 32, 32, 1);
        add_layer(w, l, "attn_k.weight", format, 2, 32, 16, 1);
        add_layer(w, l, "attn_v.weight", format, 2, 32, 16, 1);
        add_layer(w, l, "attn_gate.weight", format, 2, 32, 32, 1);
        add_layer(w, l, "attn_output.weight", format, 2, 32, 32, 1);
    }
    add_layer(w, 0, "ffn_gate.weight", format, 2, 32, 64, 1);
    add_layer(w, 0, "ffn_up.weight", format, 2, 32, 64, 1);
    add_layer(w, 0, "ffn_down.weight", format, 2, 64, 32, 1);
    add_layer(w, 1, "ffn_gate_inp.weight", FORMAT_F32, 2, 32, 4, 1);
    add_layer(w, 1, "exp_probs_b.bias", FORMAT_F32, 1, 4, 1, 1);
    add_layer(w, 1, "ffn_gate_exps.weight", format, 3, 32, 32, 4);
    add_layer(w, 1, "ffn_up_exps.weight", format, 3, 32, 32, 4);
    add_layer(w, 1, "ffn_down_exps.weight", format, 3, 32, 32, 4);
    add_layer(w, 1, "ffn_gate_shexp.weight", format, 2, 32, 32, 1);
    add_layer(w, 1, "ffn_up_shexp.weight", format, 2, 32, 32, 1);
    add_layer(w, 1, "ffn_down_shexp.weight", format, 2, 32, 32, 1);
}

void gguf_writer_init(struct gguf_writer *w, enum tensor_format format)
{
    static const uint8_t slides[2] = {1, 0};
    *w = (struct gguf_writer){.version = 3, .n_tensors_said = UINT64_MAX, .n_keys_said = UINT64_MAX, .alignment = 32};
    gguf_set_string(w, "general.architecture", "afmoe");
    gguf_set_u32(w, "afmoe.block_count", 2);
    gguf_set_u32(w, "afmoe.context_length", 128);
    gguf_set_u32(w, "afmoe.embedding_length", 32);
    gguf_set_u32(w, "afmoe.feed_forward_length", 64);
    gguf_set_u32(w, "afmoe.attention.head_count", 2);
    gguf_set_u32(w, "afmoe.attention.head_count_kv", 1);
    gguf_set_u32(w, "afmoe.attention.key_length", 16);
    gguf_set_f32(w, "afmoe.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_set_u32(w, "afmoe.expert_count", 4);
    gguf_set_u32(w, "afmoe.expert_used_count", 2);
    gguf_set_u32(w, "afmoe.expert_shared_count", 1);
    gguf_set_u32(w, "afmoe.expert_feed_forward_length", 32);
    gguf_set_u32(w, "afmoe.leading_dense_block_count", 1);
    gguf_set_u32(w, "afmoe.attention.sliding_window", 8);
    gguf_set_array(w, "afmoe.attention.sliding_window_pattern", GGUF_BOOL, 2, slides, 2);
    add_tiny_tensors(w, format);
}

void gguf_writer_free(struct gguf_writer *w)
{
    for (uint32_t i = 0; i < w->n_keys; i++) buffer_free(&w->keys[i].value);
}

void gguf_writer_init_part(struct gguf_writer *w, enum tensor_format format, uint32_t part, uint32_t n_parts)
{
    gguf_writer_init(w, format);
    uint32_t n_tensors = w->n_tensors, kept = 0;
    for (uint32_t i = part; i < n_tensors; i += n_parts) w->tensors[kept++] = w->tensors[i];
    w->n_tensors = kept;
    while (part > 0 && w->n_keys > 0) gguf_drop(w, w->keys[0].name);
    uint16_t number = (uint16_t)part, count = (uint16_t)n_parts;
    gguf_set(w, "split.no", GGUF_U16, &number, 2);
    gguf_set(w, "split.count", GGUF_U16, &count, 2);
    gguf_set(w, "split.tensors.count", GGUF_I32, &n_tensors, 4);
}

static void put_noise(struct buffer *out, const struct gguf_writer *w, const struct written_tensor *t)
{
    uint64_t random = w->noise;
    for (uint64_t n = format_row_bytes(t->format, t->n_elements); n > 0; n--) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint8_t byte = (uint8_t)(random >> 56) & w->noise_mask;
        buffer_put(out, &byte, 1);
    }
}

void gguf_serialise(const struct gguf_writer *w, struct buffer *out, uint64_t *out_header)
{
    struct buffer data = {0};
    *out = (struct buffer){0};
    buffer_put(out, "GGUF", 4);
    buffer_put_u32(out, w->version);
    buffer_put_u64(out, w->n_tensors_said == UINT64_MAX ? w->n_tensors : w->n_tensors_said);
    buffer_put_u64(out, w->n_keys_said == UINT64_MAX ? w->n_keys : w->n_keys_said);
    for (uint32_t i = 0; i < w->n_keys; i++) {
        buffer_put_u64(out, strlen(w->keys[i].name));
        buffer_put(out, w->keys[i].name, strlen(w->keys[i].name));
        buffer_put(out, w->keys[i].value.data, w->keys[i].value.n);
    }
    for (uint32_t i = 0; i < w->n_tensors; i++) {
        const struct written_tensor *t = &w->tensors[i];
        buffer_pad(&data, w->alignment);
        buffer_put_u64(out, strlen(t->name));
        buffer_put(out, t->name, strlen(t->name));
        buffer_put_u32(out, t->n_dims);
        for (uint32_t d = 0; d < t->n_dims && d < 8; d++) buffer_put_u64(out, t->dims[d]);
        buffer_put_u32(out, t->type);
        buffer_put_u64(out, data.n + (uint64_t)t->move);
        if (w->noise && t->format > FORMAT_BF16) put_noise(&data, w, t);
        else buffer_put_elements(&data, t->format, t->n_elements);
    }
    *out_header = out->n;
    buffer_pad(out, w->alignment);
    buffer_put(out, data.data, data.n);
    out->n -= w->drop_tail < out->n ? w->drop_tail : out->n;
    buffer_free(&data);
}

/* ---- safetensors ------------------------------------------------------------------------------------------------ */

void safetensors_writer_init(struct safetensors_writer *w)
{
    *w = (struct safetensors_writer){.header = need(json_object())};
}

void safetensors_writer_free(struct safetensors_writer *w)
{
    json_decref(w->header);
    buffer_free(&w->data);
}

void safetensors_add(struct safetensors_writer *w, const char *name, const char *dtype, uint32_t n_dims,
                     const uint64_t *shape, const void *bytes, uint64_t n)
{
    json_t *dims = need(json_array());
    for (uint32_t d = 0; d < n_dims; d++) json_array_append_new(dims, json_integer((json_int_t)shape[d]));
    json_t *entry = need(json_pack("{s:s, s:o, s:[I,I]}", "dtype", dtype, "shape", dims, "data_offsets",
                                   (json_int_t)w->data.n, (json_int_t)(w->data.n + n)));
    json_object_set_new(w->header, name, entry);
    buffer_put(&w->data, bytes, n);
}

void safetensors_serialise(const struct safetensors_writer *w, struct buffer *out)
{
    char *text = need(json_dumps(w->header, JSON_COMPACT));
    *out = (struct buffer){0};
    buffer_put_u64(out, strlen(text));
    buffer_put(out, text, strlen(text));
    buffer_put(out, w->data.data, w->data.n);
    free(text);
}

static void add_tiny(struct safetensors_writer *w, enum tensor_format format, const char *name, uint64_t rows,
                     uint64_t columns)
{
    const uint64_t shape[2] = {rows, columns};
    struct buffer bytes = {0};
    buffer_put_elements(&bytes, format, rows * (columns ? columns : 1));
    safetensors_add(w, name, afmoe__format_traits[format].name, columns ? 2 : 1, shape, bytes.data, bytes.n);
    buffer_free(&bytes);
}

void safetensors_add_tiny(struct safetensors_writer *w, enum tensor_format format)
{
    static const struct {
        const char *name;
        int layer; /* -1: both */
        uint64_t rows, columns;
    } rows[] = {
        {"input_layernorm.weight", -1, 32, 0},          {"post_attention_layernorm.weight", -1, 32, 0},
        {"pre_mlp_layernorm.weight", -1, 32, 0},        {"post_mlp_layernorm.weight", -1, 32, 0},
        {"self_attn.q_norm.weight", -1, 16, 0},         {"self_attn.k_norm.weight", -1, 16, 0},
        {"self_attn.q_proj.weight", -1, 32, 32},        {"self_attn.k_proj.weight", -1, 16, 32},
        {"self_attn.v_proj.weight", -1, 16, 32},        {"self_attn.gate_proj.weight", -1, 32, 32},
        {"self_attn.o_proj.weight", -1, 32, 32},        {"mlp.gate_proj.weight", 0, 64, 32},
        {"mlp.up_proj.weight", 0, 64, 32},              {"mlp.down_proj.weight", 0, 32, 64},
        {"mlp.router.gate.weight", 1, 4, 32},           {"mlp.expert_bias", 1, 4, 0},
        {"mlp.shared_experts.gate_proj.weight", 1, 32, 32}, {"mlp.shared_experts.up_proj.weight", 1, 32, 32},
        {"mlp.shared_experts.down_proj.weight", 1, 32, 32},
    };
    static const char *const parts[3] = {"gate", "up", "down"};
    char name[96];
    add_tiny(w, format, "model.embed_tokens.weight", 40, 32);
    add_tiny(w, format, "model.norm.weight", 32, 0);
    add_tiny(w, format, "lm_head.weight", 40, 32);
    for (int l = 0; l < 2; l++) {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            if (rows[i].layer >= 0 && rows[i].layer != l) continue;
            snprintf(name, sizeof name, "model.layers.%d.%s", l, rows[i].name);
            add_tiny(w, format, name, rows[i].rows, rows[i].columns);
        }
    }
    for (int e = 0; e < 4; e++) {
        for (int p = 0; p < 3; p++) {
            snprintf(name, sizeof name, "model.layers.1.mlp.experts.%d.%s_proj.weight", e, parts[p]);
            add_tiny(w, format, name, 32, 32);
        }
    }
}

json_t *tiny_config(void)
{
    return need(json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:[s,s]}",
                          "model_type", "afmoe", "vocab_size", 40, "hidden_size", 32, "num_hidden_layers", 2,
                          "num_dense_layers", 1, "num_attention_heads", 2, "num_key_value_heads", 1, "head_dim", 16,
                          "intermediate_size", 64, "moe_intermediate_size", 32, "num_experts", 4,
                          "num_experts_per_tok", 2, "num_shared_experts", 1, "sliding_window", 8,
                          "max_position_embeddings", 128, "layer_types", "sliding_attention", "full_attention"));
}

void write_tiny_hub(const struct scratch *scratch, json_t *config, const struct safetensors_writer *w)
{
    struct buffer bytes;
    safetensors_serialise(w, &bytes);
    scratch_write(scratch, "model.safetensors", bytes.data, bytes.n);
    scratch_write_json(scratch, "config.json", config);
    buffer_free(&bytes);
}
