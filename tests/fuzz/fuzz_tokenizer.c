/* Tokenizers: a small valid tokenizer.json with edits or any bytes, or the same as keys of a GGUF file with edits. One
 * that loads turns a text into ids and back. */
#include "fuzz.h"

#include "file.h"
#include "tiny_tokenizer.h"
#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>

static const char *const words[] = {
    "BPE", "WordPiece", "Unigram", "ByteLevel", "Sequence", "Split", "Digits", "Regex", "TemplateProcessing",
    "Metaspace", "NFC", "type", "pattern", "behavior", "invert", "use_regex", "add_prefix_space", "vocab", "merges",
    "added_tokens",
    "content", "special", "normalized", "lstrip", "id", "h e", "he", "the", "\xc4\xa0the", "<|im_end|>", "a", "",
    "<0x0A>", "x y z", "ignore_merges", "unk_token", "\xe4\xb8\x80", "\xc4\x80", "model", "Isolated", "Removed",
};
static const char *const keys[] = {
    "tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
    "tokenizer.ggml.merges", "tokenizer.ggml.scores", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token", "tokenizer.ggml.mask_token_id",
};

enum { N_WORDS = sizeof words / sizeof *words, N_KEYS = sizeof keys / sizeof *keys };

static void round_trip(struct tokenizer *tokenizer)
{
    static const char text[] = "the then <|im_end|><think> 12345 \xe4\xb8\x80\xff\xc3 in\n\n ing a";
    afmoe_token ids[sizeof text];
    char back[sizeof text];
    uint64_t n_ids = afmoe__tokenizer_n_ids(tokenizer), n, n_back;
    afmoe_error error = {.size = sizeof error};
    CHECK_ONE_OF(afmoe__tokenizer_encode(tokenizer, text, sizeof text - 1, NULL, ids, sizeof text, &n, &error),
                 AFMOE_OK);
    for (uint64_t i = 0; i < n; i++) REQUIRE(ids[i] >= 0 && (uint64_t)ids[i] < n_ids);
    CHECK_ONE_OF(afmoe__tokenizer_decode(tokenizer, n_ids, ids, n, 0, back, sizeof back, &n_back, &error), AFMOE_OK);
    REQUIRE(n_back == sizeof text - 1 && memcmp(back, text, n_back) == 0);
}

static void check_tokens(struct tokenizer *tokenizer)
{
    uint64_t n_ids = afmoe__tokenizer_n_ids(tokenizer), n_tokens = 0, n;
    const uint8_t *bytes;
    for (uint64_t id = 0; id < n_ids; id++) {
        int32_t kind = afmoe__tokenizer_token(tokenizer, (afmoe_token)id, &bytes, &n);
        if (kind == AFMOE_TOKEN_UNUSED) continue;
        n_tokens++;
        REQUIRE(n > 0);
        afmoe_token found = afmoe__tokenizer_find(tokenizer, bytes, n);
        uint64_t n_found;
        const uint8_t *same;
        REQUIRE(found >= 0 && (uint64_t)found < n_ids);
        afmoe__tokenizer_token(tokenizer, found, &same, &n_found);
        REQUIRE(n_found == n && memcmp(same, bytes, n) == 0);
    }
    REQUIRE(n_tokens == afmoe__tokenizer_n_tokens(tokenizer));
}

static void check_loaded(afmoe_status status, const afmoe_error *error, struct tokenizer *tokenizer)
{
    static const afmoe_status expected[] = {AFMOE_OK, AFMOE_FORMAT, AFMOE_TRUNCATED, AFMOE_LIMIT, AFMOE_UNSUPPORTED};
    fuzz_check_status(status, error, expected, 5, "loading a tokenizer");
    REQUIRE((status == AFMOE_OK) == (tokenizer != NULL));
    if (!tokenizer) return;
    check_tokens(tokenizer);
    round_trip(tokenizer);
    afmoe__tokenizer_free(tokenizer);
}

static void load_json(struct choices *c, bool raw)
{
    static struct json_base base;
    struct buffer text = {0};
    struct tokenizer *tokenizer = NULL;
    afmoe_error error = {.size = sizeof error};
    if (!base.n) {
        json_t *document = tiny_tokenizer();
        json_base_init(&base, json_dumps(document, JSON_COMPACT));
        json_decref(document);
    }
    if (raw) buffer_put(&text, c->at, c->n);
    else json_edit(&text, &base, c, words, N_WORDS);
    uint8_t *exact = malloc(text.n + !text.n);
    REQUIRE(exact);
    if (text.n) memcpy(exact, text.data, text.n);
    afmoe_status status = afmoe__tokenizer_from_json(&tokenizer, exact, text.n, 1 << 20, "tokenizer.json", &error);
    check_loaded(status, &error, tokenizer);
    free(exact);
    buffer_free(&text);
}

/* Change one string of an array of strings, in place of the old one. */
static void edit_string(struct gguf_writer *w, struct choices *c, const char *key)
{
    struct buffer value = {0};
    const struct written_key *k = w->keys;
    size_t n_new;
    while (k < w->keys + w->n_keys && strcmp(k->name, key) != 0) k++;
    if (k == w->keys + w->n_keys || k->value.n < 16 || k->value.data[0] != GGUF_ARRAY ||
        k->value.data[4] != GGUF_STRING)
        return;
    uint16_t target = choose_u16(c);
    const uint8_t *bytes = choose_bytes(c, 16, &n_new);
    if (n_new == 0) {
        bytes = (const uint8_t *)words[choose_below(c, N_WORDS)];
        n_new = strlen((const char *)bytes);
    }
    uint64_t n, n_old, at = 16;
    memcpy(&n, k->value.data + 8, 8);
    if (n == 0 || n > 1000) return;
    buffer_put(&value, k->value.data + 4, 12);
    for (uint64_t i = 0; i < n; i++) {
        if (k->value.n - at < 8) break; /* an array that lies about its length */
        memcpy(&n_old, k->value.data + at, 8);
        if (n_old > k->value.n - at - 8) break;
        bool here = i == target % n;
        buffer_put_u64(&value, here ? n_new : n_old);
        buffer_put(&value, here ? bytes : k->value.data + at + 8, here ? n_new : n_old);
        at += 8 + n_old;
    }
    gguf_set(w, key, GGUF_ARRAY, value.data, value.n);
    buffer_free(&value);
}

static void edit_types(struct gguf_writer *w, struct choices *c)
{
    for (uint32_t i = 0; i < w->n_keys; i++) {
        struct buffer *value = &w->keys[i].value;
        if (strcmp(w->keys[i].name, "tokenizer.ggml.token_type") != 0 || value->n < 20) continue;
        uint16_t at = choose_u16(c);
        value->data[16 + at % (value->n - 16)] = choose_u8(c) % 8;
    }
}

static void edit_keys(struct gguf_writer *w, struct choices *c)
{
    const char *key = keys[choose_below(c, N_KEYS)];
    uint64_t number = choose_size(c);
    size_t n;
    const uint8_t *bytes;
    switch (choose_below(c, 8)) {
    case 0: gguf_drop(w, key); break;
    case 1: gguf_set(w, key, GGUF_U64, &number, 8); break;
    case 2: gguf_set_string(w, key, words[choose_below(c, N_WORDS)]); break;
    case 3:
        bytes = choose_bytes(c, 64, &n);
        gguf_set_array(w, key, choose_below(c, N_GGUF_TYPES), number, bytes, n);
        break;
    case 4: gguf_set_strings(w, key, number % 300, words[choose_below(c, N_WORDS)]); break;
    case 5: edit_types(w, c); break;
    default: edit_string(w, c, number & 1 ? "tokenizer.ggml.tokens" : "tokenizer.ggml.merges");
    }
}

static void load_gguf(struct choices *c)
{
    struct gguf_writer w = {.version = 3, .n_tensors_said = UINT64_MAX, .n_keys_said = UINT64_MAX, .alignment = 32};
    struct buffer bytes;
    struct mapped_file file;
    struct gguf *gguf = NULL;
    struct tokenizer *tokenizer = NULL;
    uint64_t n_header;
    afmoe_error error = {.size = sizeof error};
    gguf_add_tiny_tokenizer(&w);
    for (uint32_t n = choose_below(c, 8); n > 0; n--) edit_keys(&w, c);
    gguf_serialise(&w, &bytes, &n_header);
    disk_clear();
    disk_put("t.gguf", bytes.data, bytes.n);
    CHECK_ONE_OF(afmoe__file_open(&file, DISK "/t.gguf", FILE_MAPPED, &error), AFMOE_OK);
    if (CHECK_ONE_OF(afmoe__gguf_open(&gguf, &file, &error), AFMOE_OK, AFMOE_FORMAT, AFMOE_TRUNCATED, AFMOE_LIMIT,
                     AFMOE_UNSUPPORTED) == AFMOE_OK) {
        afmoe_status status = afmoe__tokenizer_from_gguf(&tokenizer, gguf, &error);
        check_loaded(status, &error, tokenizer);
        afmoe__gguf_close(gguf);
    } else {
        afmoe__file_close(&file);
    }
    gguf_writer_free(&w);
    buffer_free(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices c = {data, size};
    uint8_t how = choose_u8(&c);
    if (how == 255) load_json(&c, true);
    else if (how & 1) load_json(&c, false);
    else load_gguf(&c);
    return 0;
}
