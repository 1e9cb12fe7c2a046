/* A tokenizer of 276 tokens, see tiny_tokenizer.h. */
#include "tiny_tokenizer.h"

#include "test_paths.h"

#include <stdbool.h>
#include <string.h>

static void *need(void *p)
{
    if (p) return p;
    fprintf(stderr, "test: out of memory, or no tests/data\n");
    exit(99);
}

static const char *const merges[] = {"h e", "t he", "i n", "\xc4\xa0 t", "e r", "o n", "\xc4\xa0t he", "in g", "a n",
                                     "\xc4\xa0 a", "0 0", "1 2", "\xc3\xa4 \xc2\xb8"};
enum { N_MERGES = sizeof merges / sizeof *merges, FIRST_ADDED = 256 + N_MERGES + 2 };

static const struct {
    const char *text;
    bool special;
} added[] = {{"<|begin_of_text|>", true}, {"<|end_of_text|>", true}, {"<|im_start|>", true}, {"<|im_end|>", true},
             {"<think>", false},         {"</think>", false},       {"<|", false}};
enum { N_ADDED = sizeof added / sizeof *added };

/* The letter of a byte in the byte alphabet, NUL-terminated. */
static void byte_letter(char out[3], unsigned byte)
{
    unsigned code_point = byte;
    if (byte <= 0x20) code_point = 0x100 + byte;
    else if (byte >= 0x7f && byte <= 0xa0) code_point = 0x121 + byte - 0x7f;
    else if (byte == 0xad) code_point = 0x143;
    if (code_point < 0x80) {
        snprintf(out, 3, "%c", (char)code_point);
        return;
    }
    out[0] = (char)(0xc0 | code_point >> 6);
    out[1] = (char)(0x80 | (code_point & 0x3f));
    out[2] = '\0';
}

/* A merge without its space. */
static void merge_result(char out[16], const char *merge)
{
    const char *space = strchr(merge, ' ');
    snprintf(out, 16, "%.*s%s", (int)(space - merge), merge, space + 1);
}

/* Ordinary token `id`; false in the gap. */
static bool ordinary_token(char out[16], int id)
{
    if (id < 256) byte_letter(out, (unsigned)id);
    else if (id < 256 + N_MERGES) merge_result(out, merges[id - 256]);
    else return false;
    return true;
}

static json_t *trinity_pretokenizer(void)
{
    char path[1024];
    json_t *document = json_load_file(data_path(path, sizeof path, "tokenizer/pico-tokenizer.json"), 0, NULL);
    json_t *part = json_incref(json_object_get(document, "pre_tokenizer"));
    json_decref(document);
    return need(part);
}

json_t *tiny_tokenizer(void)
{
    char token[16];
    json_t *vocab = need(json_object()), *list = need(json_array()), *extra = need(json_array());
    for (int id = 0; id < 256 + N_MERGES; id++) {
        ordinary_token(token, id);
        json_object_set_new(vocab, token, json_integer(id));
    }
    for (int i = 0; i < N_MERGES; i++) json_array_append_new(list, json_string(merges[i]));
    for (int i = 0; i < N_ADDED; i++) {
        json_array_append_new(extra, json_pack("{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id", FIRST_ADDED + i, "content",
                                               added[i].text, "special", added[i].special, "normalized", i == 5,
                                               "lstrip", 0, "rstrip", 0, "single_word", 0));
    }
    return need(json_pack("{s:s,s:n,s:n,s:o,s:n,s:o,s:{s:s},s:{s:s},s:{s:s,s:n,s:n,s:s,s:s,s:b,s:b,s:b,s:o,s:o}}",
                          "version", "1.0", "truncation", "padding", "added_tokens", extra, "normalizer",
                          "pre_tokenizer", trinity_pretokenizer(), "post_processor", "type", "ByteLevel", "decoder",
                          "type", "ByteLevel", "model", "type", "BPE", "dropout", "unk_token",
                          "continuing_subword_prefix", "", "end_of_word_suffix", "", "fuse_unk", 0, "byte_fallback", 0,
                          "ignore_merges", 0, "vocab", vocab, "merges", list));
}

static void put_string(struct buffer *out, const char *text)
{
    buffer_put_u64(out, strlen(text));
    buffer_put(out, text, strlen(text));
}

void gguf_add_tiny_tokenizer(struct gguf_writer *w)
{
    struct buffer tokens = {0}, types = {0}, list = {0};
    char token[16];
    for (int id = 0; id < FIRST_ADDED + N_ADDED; id++) {
        bool is_added = id >= FIRST_ADDED, is_token = is_added || ordinary_token(token, id);
        put_string(&tokens, is_added ? added[id - FIRST_ADDED].text : is_token ? token : "[PAD]");
        buffer_put_u32(&types, is_added ? (added[id - FIRST_ADDED].special ? 3 : 4) : is_token ? 1 : 5);
    }
    for (int i = 0; i < N_MERGES; i++) put_string(&list, merges[i]);
    gguf_set_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_set_string(w, "tokenizer.ggml.pre", "afmoe");
    gguf_set_array(w, "tokenizer.ggml.tokens", GGUF_STRING, FIRST_ADDED + N_ADDED, tokens.data, tokens.n);
    gguf_set_array(w, "tokenizer.ggml.token_type", GGUF_I32, FIRST_ADDED + N_ADDED, types.data, types.n);
    gguf_set_array(w, "tokenizer.ggml.merges", GGUF_STRING, N_MERGES, list.data, list.n);
    gguf_set_u32(w, "tokenizer.ggml.bos_token_id", FIRST_ADDED);
    gguf_set_u32(w, "tokenizer.ggml.eos_token_id", FIRST_ADDED + 3);
    gguf_set_bool(w, "tokenizer.ggml.add_bos_token", 1);
    buffer_free(&tokens);
    buffer_free(&types);
    buffer_free(&list);
}
