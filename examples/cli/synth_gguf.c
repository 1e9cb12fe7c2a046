/* A random model as one GGUF file (version 3): header, metadata, tensor list, then the data aligned to 32 bytes. The
 * keys are those llama.cpp's converter writes for AFMoE.
 *
 * The vocabulary has the form of Trinity's: added tokens, the 256 bytes in GPT-2's order, tokens that are made by one
 * merge each, and 192 rows without a token. The merges are all strings of two letters, then of three, and so on, the
 * first of which may be a space: every string is unique and what it is merged from comes before it. */
#include "synth.h"

#include <stdlib.h>
#include <string.h>

enum { GGUF_UINT32 = 4, GGUF_INT32 = 5, GGUF_FLOAT32 = 6, GGUF_BOOL = 7, GGUF_STRING = 8, GGUF_ARRAY = 9 };
enum { TYPE_NORMAL = 1, TYPE_CONTROL = 3, TYPE_USER_DEFINED = 4, TYPE_UNUSED = 5 };
enum { ALIGNMENT = 32, N_LETTERS = 26, MAX_TOKEN_BYTES = 24 };

static const char *const added[N_ADDED] = {
    "<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start|>", "<|channel|>",
    "<|message|>", "<|end|>", "<|fitm_start|>", "<|fitm_end|>", "<|fitm_hole|>", "<|pad|>", "<think>", "</think>",
    "<tools>", "</tools>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
    "<|reserved_special_8|>", "<|reserved_special_9|>", "<|reserved_special_10|>", "<|reserved_special_11|>",
    "<|reserved_special_12|>", "<|reserved_special_13|>", "<|reserved_special_14|>", "<|reserved_special_15|>",
    "<|reserved_special_16|>", "<|reserved_special_17|>", "<|reserved_special_18|>",
};

/* ---- Parts of a file, little endian ------------------------------------------------------------------------------ */

static bool put_number(struct out_file *file, uint64_t value, unsigned n_bytes)
{
    uint8_t bytes[8];
    for (unsigned i = 0; i < n_bytes; i++) bytes[i] = (uint8_t)(value >> 8 * i);
    return out_write(file, bytes, n_bytes);
}

static bool put_string(struct out_file *file, const char *text)
{
    size_t n = strlen(text);
    return put_number(file, n, 8) && out_write(file, text, n);
}

/* Metadata grows in memory first: the file begins with its count. */
struct metadata {
    struct out_file file;
    uint64_t n;
};

static void put_key(struct metadata *m, const char *key, uint32_t type)
{
    put_string(&m->file, key);
    put_number(&m->file, type, 4);
    m->n++;
}

static void put_u32(struct metadata *m, const char *key, uint64_t value)
{
    put_key(m, key, GGUF_UINT32);
    put_number(&m->file, value, 4);
}

static void put_f32(struct metadata *m, const char *key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(m, key, GGUF_FLOAT32);
    put_number(&m->file, bits, 4);
}

static void put_bool(struct metadata *m, const char *key, bool value)
{
    put_key(m, key, GGUF_BOOL);
    put_number(&m->file, value, 1);
}

static void put_text(struct metadata *m, const char *key, const char *text)
{
    put_key(m, key, GGUF_STRING);
    put_string(&m->file, text);
}

static void put_array(struct metadata *m, const char *key, uint32_t type, uint64_t n)
{
    put_key(m, key, GGUF_ARRAY);
    put_number(&m->file, type, 4);
    put_number(&m->file, n, 8);
}

/* ---- Vocabulary -------------------------------------------------------------------------------------------------- */

/* GPT-2's letter for byte token i: the printable bytes of Latin-1 in order, then 256 and on for the others. */
static void byte_text(char out[3], unsigned i)
{
    unsigned code = i < 94 ? 33 + i : i < 106 ? 161 + i - 94 : i < 188 ? 174 + i - 106 : 256 + i - 188;
    unsigned n = 0;
    if (code < 128) out[n++] = (char)code;
    else {
        out[n++] = (char)(0xC0 | code >> 6);
        out[n++] = (char)(0x80 | (code & 63));
    }
    out[n] = '\0';
}

/* The string merge i makes. Its last letter is the right side, what stands before it the left side. */
static void merged_text(char out[MAX_TOKEN_BYTES], uint64_t i)
{
    uint64_t n_strings = (N_LETTERS + 1) * N_LETTERS;
    unsigned length = 2;
    for (; i >= n_strings; n_strings *= N_LETTERS, length++) i -= n_strings;
    char reversed[MAX_TOKEN_BYTES];
    unsigned n = 0;
    for (unsigned k = 1; k < length; k++, i /= N_LETTERS) reversed[n++] = (char)('a' + i % N_LETTERS);
    char *end = out;
    if (i == 0) end = stpcpy(end, "\xC4\xA0"); /* the space */
    else *end++ = (char)('a' + i - 1);
    while (n > 0) *end++ = reversed[--n];
    *end = '\0';
}

static void token_text(char out[MAX_TOKEN_BYTES], uint64_t id, uint64_t n_tokens)
{
    if (id < N_ADDED) snprintf(out, MAX_TOKEN_BYTES, "%s", added[id]);
    else if (id < N_ADDED + N_BYTES) byte_text(out, (unsigned)id - N_ADDED);
    else if (id < n_tokens) merged_text(out, id - N_ADDED - N_BYTES);
    else snprintf(out, MAX_TOKEN_BYTES, "[PAD%u]", (unsigned)id);
}

static int token_type(uint64_t id, uint64_t n_tokens)
{
    if (id < N_ADDED) return added[id][1] == '|' ? TYPE_CONTROL : TYPE_USER_DEFINED;
    return id < n_tokens ? TYPE_NORMAL : TYPE_UNUSED;
}

static void put_vocabulary(struct metadata *m, uint64_t vocab)
{
    char text[MAX_TOKEN_BYTES];
    uint64_t n_tokens = vocab - N_UNUSED, n_merges = n_tokens - N_ADDED - N_BYTES;
    put_text(m, "tokenizer.ggml.model", "gpt2");
    put_text(m, "tokenizer.ggml.pre", "afmoe");
    put_array(m, "tokenizer.ggml.tokens", GGUF_STRING, vocab);
    for (uint64_t id = 0; id < vocab; id++) {
        token_text(text, id, n_tokens);
        put_string(&m->file, text);
    }
    put_array(m, "tokenizer.ggml.token_type", GGUF_INT32, vocab);
    for (uint64_t id = 0; id < vocab; id++) put_number(&m->file, (uint64_t)token_type(id, n_tokens), 4);
    put_array(m, "tokenizer.ggml.merges", GGUF_STRING, n_merges);
    for (uint64_t i = 0; i < n_merges; i++) {
        merged_text(text, i);
        size_t n = strlen(text);
        char last = text[n - 1];
        snprintf(text + n - 1, sizeof text - n + 1, " %c", last);
        put_string(&m->file, text);
    }
    put_u32(m, "tokenizer.ggml.bos_token_id", 0);
    put_u32(m, "tokenizer.ggml.eos_token_id", 3);
    put_u32(m, "tokenizer.ggml.padding_token_id", 12);
    put_bool(m, "tokenizer.ggml.add_bos_token", false);
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static void put_configuration(struct metadata *m, const struct shape *s, const struct format *format)
{
    put_text(m, "general.architecture", "afmoe");
    put_text(m, "general.name", s->name);
    put_u32(m, "general.file_type", format->gguf_ftype);
    put_u32(m, "general.quantization_version", 2);
    put_u32(m, "afmoe.block_count", s->n_layers);
    put_u32(m, "afmoe.context_length", s->max_positions);
    put_u32(m, "afmoe.embedding_length", s->hidden);
    put_u32(m, "afmoe.feed_forward_length", s->dense_width);
    put_u32(m, "afmoe.attention.head_count", s->n_heads);
    put_u32(m, "afmoe.attention.head_count_kv", s->n_kv_heads);
    put_u32(m, "afmoe.attention.key_length", s->head_dim);
    put_u32(m, "afmoe.attention.value_length", s->head_dim);
    put_f32(m, "afmoe.attention.layer_norm_rms_epsilon", 1e-5f);
    put_u32(m, "afmoe.attention.sliding_window", s->window);
    put_u32(m, "afmoe.rope.dimension_count", s->head_dim);
    put_f32(m, "afmoe.rope.freq_base", 10000);
    put_u32(m, "afmoe.expert_count", s->n_experts);
    put_u32(m, "afmoe.expert_used_count", s->n_experts_per_token);
    put_u32(m, "afmoe.expert_shared_count", 1);
    put_u32(m, "afmoe.expert_feed_forward_length", s->expert_width);
    put_u32(m, "afmoe.leading_dense_block_count", s->n_dense_layers);
    put_u32(m, "afmoe.expert_gating_func", 2);
    put_bool(m, "afmoe.expert_weights_norm", true);
    put_f32(m, "afmoe.expert_weights_scale", 2.826f);
    put_u32(m, "afmoe.vocab_size", s->vocab);
}

static bool put_padding(struct out_file *file)
{
    static const uint8_t zeros[ALIGNMENT];
    return out_write(file, zeros, (size_t)((ALIGNMENT - file->n_bytes % ALIGNMENT) % ALIGNMENT));
}

static bool put_tensor_list(struct out_file *file, const struct plan *plan)
{
    uint64_t offset = 0;
    for (size_t i = 0; i < plan->n; i++) {
        const struct tensor *t = &plan->tensors[i];
        put_string(file, t->name);
        put_number(file, t->n_dims, 4);
        for (unsigned k = t->n_dims; k-- > 0;) put_number(file, t->dims[k], 8); /* GGUF: fastest first */
        put_number(file, t->format->gguf_type, 4);
        put_number(file, offset, 8);
        offset += (tensor_bytes(t) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return put_padding(file);
}

/* All of the metadata in memory of its own, free() it. */
static bool make_metadata(char **out, size_t *out_n, uint64_t *out_n_keys, const struct shape *shape,
                          const struct format *format)
{
    *out = NULL;
    struct metadata m = {.file = {.path = "metadata"}};
    m.file.stream = open_memstream(out, out_n);
    if (!m.file.stream) {
        complain("out of memory");
        return false;
    }
    put_configuration(&m, shape, format);
    put_vocabulary(&m, shape->vocab);
    *out_n_keys = m.n;
    bool good = fclose(m.file.stream) == 0 && !m.file.failed;
    if (!good && !m.file.failed) complain("out of memory");
    return good;
}

static bool write_all(struct out_file *file, const struct shape *shape, const struct format *format,
                      const struct plan *plan, struct filler *filler)
{
    char *metadata;
    size_t n;
    uint64_t n_keys;
    bool good = make_metadata(&metadata, &n, &n_keys, shape, format) && out_write(file, "GGUF", 4) &&
                put_number(file, 3, 4) && put_number(file, plan->n, 8) && put_number(file, n_keys, 8) &&
                out_write(file, metadata, n) && put_tensor_list(file, plan);
    free(metadata);
    for (size_t i = 0; good && i < plan->n; i++)
        good = filler_write(filler, file, &plan->tensors[i]) && put_padding(file);
    return good;
}

int synth_gguf(const char *path, const struct shape *shape, const struct format *format, const struct plan *plan,
               struct filler *filler)
{
    struct out_file file;
    if (!out_open(&file, path)) return EXIT_FAILED;
    bool good = write_all(&file, shape, format, plan, filler);
    return out_close(&file, good) ? EXIT_OK : EXIT_FAILED;
}
