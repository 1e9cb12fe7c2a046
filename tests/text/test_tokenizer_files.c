/* Tokenizer files as they may come: every fault has its status and names the culprit; what is odd but clear works. */
#include "tokenizer.h"

#include "memory_peak.h"
#include "text_fixture.h"
#include "tiny_tokenizer.h"

#include <time.h>
#include <unistd.h>

static struct {
    json_t *json; /* pico-tokenizer.json */
} base;

static int load_base(void **state)
{
    (void)state;
    struct file_bytes file = read_fixture("AFMOE_TEST_DATA", "tokenizer/pico-tokenizer.json");
    if (!file.data) return -1;
    base.json = json_loadb((const char *)file.data, file.n, 0, NULL);
    free(file.data);
    return base.json ? 0 : -1;
}

static int free_base(void **state)
{
    (void)state;
    json_decref(base.json);
    return 0;
}

/* ---- tokenizer.json ---------------------------------------------------------------------------------------------- */

/* Whatever the answer, the memory taken is bounded by the size of the document. */
static afmoe_status load_text(const char *text, size_t n, struct tokenizer **out, afmoe_error *error)
{
    uint64_t before = memory_peak_begin();
    afmoe_status status = afmoe__tokenizer_from_json(out, (const uint8_t *)text, n, 1 << 25, "t.json", error);
    assert_true(memory_peak_growth_kib(before) <= memory_allowed_kib(n));
    return status;
}

static afmoe_status load_json(json_t *root, struct tokenizer **out, afmoe_error *error)
{
    char *text = json_dumps(root, JSON_ENCODE_ANY);
    afmoe_status status = load_text(text, strlen(text), out, error);
    free(text);
    return status;
}

/* Put `value` (JSON; NULL: delete) at `path`: keys and indices with dots between; "+" appends to an array. */
static void set_at(json_t *at, const char *path, const char *value)
{
    char key[128];
    for (;;) {
        size_t n = strcspn(path, ".");
        assert_true(n < sizeof key);
        memcpy(key, path, n);
        key[n] = '\0';
        bool last = path[n] == '\0';
        json_t *new_value = last && value ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
        if (last && value) assert_non_null(new_value);
        if (last && json_is_array(at)) {
            assert_int_equal(key[0] == '+' ? json_array_append_new(at, new_value)
                                           : json_array_set_new(at, (size_t)atoi(key), new_value),
                             0);
            return;
        }
        if (last) {
            assert_int_equal(value ? json_object_set_new(at, key, new_value) : json_object_del(at, key), 0);
            return;
        }
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(key)) : json_object_get(at, key);
        assert_non_null(at);
        path += n + 1;
    }
}

static void json_faults_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *path, *value;
        afmoe_status status;
        const char *culprit;
    } cases[] = {
        {"model", NULL, AFMOE_FORMAT, "\"model\""},
        {"model", "[]", AFMOE_FORMAT, "\"model\""},
        {"model.type", "\"WordPiece\"", AFMOE_UNSUPPORTED, "WordPiece"},
        {"model.type", "\"a\\nb\\u0007\"", AFMOE_UNSUPPORTED, "\"a?b?\""},
        {"model.type", "7", AFMOE_UNSUPPORTED, "model type"},
        {"model.dropout", "0.1", AFMOE_UNSUPPORTED, "dropout"},
        {"model.ignore_merges", "true", AFMOE_UNSUPPORTED, "ignore_merges"},
        {"model.continuing_subword_prefix", "\"##\"", AFMOE_UNSUPPORTED, "continuing_subword_prefix"},
        {"model.end_of_word_suffix", "\"</w>\"", AFMOE_UNSUPPORTED, "end_of_word_suffix"},
        {"model.vocab", NULL, AFMOE_FORMAT, "model.vocab"},
        {"model.vocab", "[\"a\"]", AFMOE_FORMAT, "model.vocab"},
        {"model.vocab", "{}", AFMOE_FORMAT, "byte 0x"},
        {"model.vocab.zzz", "-1", AFMOE_FORMAT, "\"zzz\" has the id -1"},
        {"model.vocab.zzz", "2147483648", AFMOE_FORMAT, "2147483648"},
        {"model.vocab.zzz", "9223372036854775807", AFMOE_FORMAT, "9223372036854775807"},
        {"model.vocab.zzz", "1.5", AFMOE_FORMAT, "\"zzz\""},
        {"model.vocab.zzz", "\"7\"", AFMOE_FORMAT, "\"zzz\""},
        {"model.vocab.zzz", "100", AFMOE_FORMAT, "same id 100"},
        {"model.vocab.", "1600", AFMOE_FORMAT, "0 bytes"},
        {"model.vocab.a", NULL, AFMOE_FORMAT, "byte 0x61"},
        {"model.merges", NULL, AFMOE_FORMAT, "model.merges"},
        {"model.merges", "{}", AFMOE_FORMAT, "model.merges"},
        {"model.merges.0", "7", AFMOE_FORMAT, "merge 0"},
        {"model.merges.0", "[\"h\"]", AFMOE_FORMAT, "merge 0"},
        {"model.merges.0", "[\"h\", 7]", AFMOE_FORMAT, "merge 0"},
        {"model.merges.0", "[\"h\", \"e\", \"e\"]", AFMOE_FORMAT, "merge 0"},
        {"model.merges.0", "\"he\"", AFMOE_FORMAT, "merge 0"},
        {"model.merges.0", "\"h e e\"", AFMOE_FORMAT, "merge 0"},
        {"model.merges.+", "[\"nosuchtoken\", \"e\"]", AFMOE_FORMAT, "left part"},
        {"model.merges.+", "[\"e\", \"nosuchtoken\"]", AFMOE_FORMAT, "right part"},
        {"model.merges.+", "[\"\", \"e\"]", AFMOE_FORMAT, "left part"},
        {"model.merges.+", "[\"\\u4e00\", \"e\"]", AFMOE_FORMAT, "left part"},
        {"model.merges.+", "[\"Z\", \"Q\"]", AFMOE_FORMAT, "gives no token"},
        {"model.merges.+", "[\"h\", \"e\"]", AFMOE_FORMAT, "repeats merge 0"},
        {"normalizer", "{\"type\": \"NFC\"}", AFMOE_UNSUPPORTED, "NFC"},
        {"normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFKC\"}]}", AFMOE_UNSUPPORTED, "NFKC"},
        {"normalizer", "7", AFMOE_UNSUPPORTED, "normalizer"},
        {"pre_tokenizer", NULL, AFMOE_UNSUPPORTED, "pre_tokenizer"},
        {"pre_tokenizer", "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}", AFMOE_UNSUPPORTED, "ByteLevel"},
        {"pre_tokenizer.pretokenizers.0.individual_digits", "true", AFMOE_UNSUPPORTED, "step 1"},
        {"decoder", NULL, AFMOE_UNSUPPORTED, "decoder"},
        {"decoder", "{\"type\": \"Metaspace\"}", AFMOE_UNSUPPORTED, "Metaspace"},
        {"post_processor", "{\"type\": \"BertProcessing\"}", AFMOE_UNSUPPORTED, "BertProcessing"},
        {"post_processor", "{\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\"}, {\"type\": \"X\"}]}",
         AFMOE_UNSUPPORTED, "\"X\""},
        {"added_tokens", "{}", AFMOE_FORMAT, "added_tokens"},
        {"added_tokens.0.content", NULL, AFMOE_FORMAT, "added_tokens[0]"},
        {"added_tokens.0.content", "\"\"", AFMOE_FORMAT, "added_tokens[0]"},
        {"added_tokens.0.id", "5", AFMOE_FORMAT, "<|begin_of_text|>"},
        {"added_tokens.0.id", "-1", AFMOE_FORMAT, "<|begin_of_text|>"},
        {"added_tokens.0.id", "4294967296", AFMOE_FORMAT, "4294967296"},
        {"added_tokens.0.id", NULL, AFMOE_FORMAT, "<|begin_of_text|>"},
        {"added_tokens.3.lstrip", "true", AFMOE_UNSUPPORTED, "\"<|im_end|>\" has lstrip"},
        {"added_tokens.3.rstrip", "true", AFMOE_UNSUPPORTED, "\"<|im_end|>\" has rstrip"},
        {"added_tokens.3.single_word", "true", AFMOE_UNSUPPORTED, "\"<|im_end|>\" has single_word"},
        {"added_tokens.+", "{\"id\": 100, \"content\": \"new\"}", AFMOE_FORMAT, "\"new\""},
        {"added_tokens.+", "{\"id\": 1601, \"content\": \"he\", \"special\": true}", AFMOE_FORMAT, "\"he\""},
        {"added_tokens.+", "7", AFMOE_FORMAT, "added_tokens[32]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *root = json_deep_copy(base.json);
        struct tokenizer *tokenizer = NULL;
        afmoe_error error = {.size = sizeof error};
        set_at(root, cases[i].path, cases[i].value);
        afmoe_status status = load_json(root, &tokenizer, &error);
        if (status != cases[i].status || !strstr(error.message, cases[i].culprit) || !strstr(error.message, "t.json")) {
            fail_msg("case %zu (%s): status %d, \"%s\"", i, cases[i].path, status, status ? error.message : "");
        }
        assert_null(tokenizer);
        json_decref(root);
    }
}

static void json_documents_that_are_none(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        afmoe_status status;
    } cases[] = {{"", AFMOE_FORMAT},
                 {"[]", AFMOE_FORMAT},
                 {"{\"model\":", AFMOE_FORMAT},
                 {"{\"a\":1,\"a\":2}", AFMOE_FORMAT},
                 {"\xff", AFMOE_FORMAT}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tokenizer *tokenizer = NULL;
        afmoe_status status = afmoe__tokenizer_from_json(&tokenizer, (const uint8_t *)cases[i].text,
                                                         strlen(cases[i].text), 1 << 20, "t.json", NULL);
        assert_true(status == cases[i].status || (i == 0 && status == AFMOE_TRUNCATED) ||
                    (i == 2 && status == AFMOE_TRUNCATED));
    }
    char *text = json_dumps(base.json, 0);
    struct tokenizer *tokenizer = NULL;
    assert_int_equal(afmoe__tokenizer_from_json(&tokenizer, (const uint8_t *)text, strlen(text), 1000, "t.json", NULL),
                     AFMOE_LIMIT);
    free(text);
}

static void odd_but_clear_json_works(void **state)
{
    (void)state;
    static const struct {
        const char *path, *value;
    } cases[] = {{"normalizer", NULL},
                 {"normalizer", "null"},
                 {"truncation", "{\"max_length\": 4}"},
                 {"padding", "{\"length\": 4}"},
                 {"added_tokens", NULL},
                 {"model.merges.0", "\"h e\""},
                 {"model.unk_token", "\"he\""},
                 {"model.byte_fallback", "true"},
                 {"model.vocab.zzz", "1700"},
                 {"post_processor", "{\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\"}]}"},
                 {"post_processor", "{\"type\": \"TemplateProcessing\", \"single\": []}"},
                 {"model.vocab.\xe4\xb8\x80", "1600"} /* no letter of the byte alphabet */};
    const char *text = "The 1234 tokens, then.";
    afmoe_token wanted[64], ids[64];
    uint64_t n_wanted, n;
    struct tokenizer *tokenizer = NULL;
    assert_int_equal(load_json(base.json, &tokenizer, NULL), AFMOE_OK);
    assert_int_equal(afmoe__tokenizer_encode(tokenizer, text, strlen(text), NULL, wanted, 64, &n_wanted, NULL),
                     AFMOE_OK);
    afmoe__tokenizer_free(tokenizer);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *root = json_deep_copy(base.json);
        afmoe_error error = {.size = sizeof error};
        set_at(root, cases[i].path, cases[i].value);
        if (load_json(root, &tokenizer, &error) != AFMOE_OK) fail_msg("case %zu: %s", i, error.message);
        assert_int_equal(afmoe__tokenizer_encode(tokenizer, text, strlen(text), NULL, ids, 64, &n, NULL), AFMOE_OK);
        assert_int_equal(n, n_wanted);
        assert_memory_equal(ids, wanted, n * sizeof *ids);
        if (strcmp(cases[i].path, "model.vocab.zzz") == 0) {
            assert_int_equal(afmoe__tokenizer_n_ids(tokenizer), 1701);
            assert_int_equal(afmoe__tokenizer_n_tokens(tokenizer), 1601);
        }
        afmoe__tokenizer_free(tokenizer);
        json_decref(root);
    }
}

/* A merge to a control token would let plain text forge it. */
static void merges_to_control_tokens(void **state)
{
    (void)state;
    json_t *root = json_deep_copy(base.json);
    struct tokenizer *tokenizer = NULL;
    afmoe_error error = {.size = sizeof error};
    set_at(root, "added_tokens.+", "{\"id\": 1600, \"content\": \"ZQ\", \"special\": true}");
    set_at(root, "model.merges.+", "[\"Z\", \"Q\"]");
    assert_int_equal(load_json(root, &tokenizer, &error), AFMOE_UNSUPPORTED);
    assert_non_null(strstr(error.message, "control token 1600"));
    json_decref(root);
}

static uint64_t next_random(uint64_t *random)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return *random >> 33;
}

/* What loads must also work. */
static void use_and_free(struct tokenizer *tokenizer)
{
    const char *text = "<|im_start|>user\nThe year 2024 \xff\xe4\xb8\xad<think>";
    afmoe_token ids[128];
    char back[256];
    uint64_t n, n_back;
    assert_int_equal(afmoe__tokenizer_encode(tokenizer, text, strlen(text), NULL, ids, 128, &n, NULL), AFMOE_OK);
    assert_int_equal(
        afmoe__tokenizer_decode(tokenizer, afmoe__tokenizer_n_ids(tokenizer), ids, n, 0, back, 256, &n_back, NULL),
        AFMOE_OK);
    assert_int_equal(n_back, strlen(text));
    assert_memory_equal(back, text, n_back);
    afmoe__tokenizer_free(tokenizer);
}

static void flipped_json_is_refused_or_works(void **state)
{
    (void)state;
    char *good = json_dumps(base.json, JSON_COMPACT);
    size_t n = strlen(good), n_loaded = 0, n_refused = 0;
    char *text = malloc(n);
    uint64_t random = 11;
    for (int round = 0; round < 300; round++) {
        memcpy(text, good, n);
        /* Digits and letters among them, so that many documents stay JSON. */
        for (int flips = 0; flips <= round % 3; flips++) {
            text[next_random(&random) % n] = "0123456789abcxyz,:\"[]{}\\\xff"[next_random(&random) % 26];
        }
        struct tokenizer *tokenizer = NULL;
        if (load_text(text, n, &tokenizer, NULL) == AFMOE_OK) {
            use_and_free(tokenizer);
            n_loaded++;
        } else {
            assert_null(tokenizer);
            n_refused++;
        }
    }
    assert_true(n_loaded > 0 && n_refused > 0);
    free(text);
    free(good);
}

/* A small document, cut at every byte. */
static void cut_json_is_refused(void **state)
{
    (void)state;
    json_t *tiny = tiny_tokenizer();
    char *text = json_dumps(tiny, JSON_COMPACT);
    struct tokenizer *tokenizer = NULL;
    size_t n = strlen(text);
    assert_int_equal(load_text(text, n, &tokenizer, NULL), AFMOE_OK);
    use_and_free(tokenizer);
    tokenizer = NULL;
    while (n-- > 0) {
        afmoe_error error = {.size = sizeof error};
        assert_int_equal(load_text(text, n, &tokenizer, &error), AFMOE_FORMAT);
        assert_non_null(strstr(error.message, "t.json"));
        assert_null(tokenizer);
    }
    free(text);
    json_decref(tiny);
}

static void every_flipped_bit_is_refused_or_works(void **state)
{
    (void)state;
    json_t *tiny = tiny_tokenizer();
    char *text = json_dumps(tiny, JSON_COMPACT);
    size_t n = strlen(text), n_loaded = 0, n_refused = 0;
    uint64_t before = memory_peak_begin();
    for (size_t bit = 0; bit < 8 * n; bit++) {
        struct tokenizer *tokenizer = NULL;
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        afmoe_status status =
            afmoe__tokenizer_from_json(&tokenizer, (const uint8_t *)text, n, 1 << 25, "t.json", NULL);
        if (status == AFMOE_OK) use_and_free(tokenizer);
        else assert_true(!tokenizer && (status == AFMOE_FORMAT || status == AFMOE_UNSUPPORTED));
        n_loaded += status == AFMOE_OK;
        n_refused += status != AFMOE_OK;
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
    }
    assert_true(n_loaded > 0 && n_refused > n_loaded);
    assert_true(memory_peak_growth_kib(before) <= memory_allowed_kib(n));
    free(text);
    json_decref(tiny);
}

/* ---- GGUF -------------------------------------------------------------------------------------------------------- */

struct writer {
    uint8_t data[1 << 17];
    size_t n;
    uint64_t n_keys;
};

static void put(struct writer *w, const void *bytes, size_t n)
{
    assert_true(w->n + n <= sizeof w->data);
    memcpy(w->data + w->n, bytes, n);
    w->n += n;
}

static void put_u32(struct writer *w, uint32_t value)
{
    uint8_t bytes[4];
    for (int i = 0; i < 4; i++) bytes[i] = (uint8_t)(value >> 8 * i);
    put(w, bytes, 4);
}

static void put_u64(struct writer *w, uint64_t value)
{
    put_u32(w, (uint32_t)value);
    put_u32(w, (uint32_t)(value >> 32));
}

static void put_string(struct writer *w, const char *text, size_t n)
{
    put_u64(w, n);
    put(w, text, n);
}

static void put_key(struct writer *w, const char *key, enum gguf_type type)
{
    put_string(w, key, strlen(key));
    put_u32(w, (uint32_t)type);
    w->n_keys++;
}

static void put_word(struct writer *w, const char *key, const char *value)
{
    put_key(w, key, GGUF_STRING);
    put_string(w, value, strlen(value));
}

static void put_number(struct writer *w, const char *key, uint32_t value)
{
    put_key(w, key, GGUF_U32);
    put_u32(w, value);
}

static void put_array(struct writer *w, const char *key, enum gguf_type type, uint64_t n)
{
    put_key(w, key, GGUF_ARRAY);
    put_u32(w, (uint32_t)type);
    put_u64(w, n);
}

/* What differs from the good file. */
struct change {
    const char *model, *pre; /* NULL: absent */
    const char *extra_merge; /* appended */
    const char *number_key;  /* NULL: none */
    uint32_t number;
    int32_t type_of_3; /* token_type of id 3 */
    int n_types_missing;
    enum gguf_type types_are; /* 0: I32 */
    bool no_types, no_merges, tokens_are_numbers, add_bos_is_number, add_bos;
    const char *last_token; /* text of the extra row, id 1600 */
    int32_t last_type;
    uint64_t flips; /* not 0: the seed of random changes to the metadata */
};
static const struct change no_change = {
    .model = "gpt2", .pre = "afmoe", .type_of_3 = 3, .last_token = "[PAD1600]", .last_type = 5};

/* Tokens by id out of the base document. */
static void tokens_by_id(const char *texts[1600], int32_t types[1600])
{
    const char *text;
    json_t *value, *vocab = json_object_get(json_object_get(base.json, "model"), "vocab");
    json_object_foreach (vocab, text, value) {
        texts[json_integer_value(value)] = text;
        types[json_integer_value(value)] = 1;
    }
    size_t i;
    json_array_foreach (json_object_get(base.json, "added_tokens"), i, value) {
        types[json_integer_value(json_object_get(value, "id"))] =
            json_is_true(json_object_get(value, "special")) ? 3 : 4;
    }
}

/* One number in any of a few types: they are converted by what they are, never cast. */
static void put_type(struct writer *w, enum gguf_type type, int32_t value)
{
    float f = (float)value;
    uint8_t byte = (uint8_t)value;
    if (type == GGUF_STRING) put_string(w, "1", 1);
    else if (type == GGUF_F32) put(w, &f, 4);
    else if (type == GGUF_U64) put_u64(w, (uint64_t)value);
    else if (type == GGUF_I8) put(w, &byte, 1);
    else put_u32(w, (uint32_t)value);
}

static void put_tokens(struct writer *w, const struct change *change)
{
    const char *texts[1600];
    int32_t types[1601];
    tokens_by_id(texts, types);
    types[3] = change->type_of_3;
    types[1600] = change->last_type;
    put_array(w, "tokenizer.ggml.tokens", change->tokens_are_numbers ? GGUF_U32 : GGUF_STRING, 1601);
    for (size_t i = 0; i < 1601; i++) {
        const char *text = i < 1600 ? texts[i] : change->last_token;
        if (change->tokens_are_numbers) {
            put_u32(w, 1);
        } else {
            put_string(w, text, strlen(text));
        }
    }
    if (change->no_types) return;
    enum gguf_type type = change->types_are ? change->types_are : GGUF_I32;
    put_array(w, "tokenizer.ggml.token_type", type, 1601 - (uint64_t)change->n_types_missing);
    for (size_t i = 0; i < 1601 - (size_t)change->n_types_missing; i++) put_type(w, type, types[i]);
}

static void put_merges(struct writer *w, const struct change *change)
{
    const json_t *merges = json_object_get(json_object_get(base.json, "model"), "merges");
    put_array(w, "tokenizer.ggml.merges", GGUF_STRING, json_array_size(merges) + (change->extra_merge != NULL));
    for (size_t i = 0; i < json_array_size(merges); i++) {
        char text[256];
        const json_t *merge = json_array_get(merges, i);
        int n = snprintf(text, sizeof text, "%s %s", json_string_value(json_array_get(merge, 0)),
                         json_string_value(json_array_get(merge, 1)));
        put_string(w, text, (size_t)n);
    }
    if (change->extra_merge) put_string(w, change->extra_merge, strlen(change->extra_merge));
}

static afmoe_status load_gguf(const struct change *change, struct tokenizer **out, afmoe_error *error)
{
    struct writer *w = calloc(1, sizeof *w);
    put(w, "GGUF", 4);
    put_u32(w, 3);
    put_u64(w, 0);
    put_u64(w, 0); /* the number of keys, below */
    if (change->model) put_word(w, "tokenizer.ggml.model", change->model);
    if (change->pre) put_word(w, "tokenizer.ggml.pre", change->pre);
    put_tokens(w, change);
    if (!change->no_merges) put_merges(w, change);
    if (change->number_key) put_number(w, change->number_key, change->number);
    if (change->add_bos_is_number) put_number(w, "tokenizer.ggml.add_bos_token", 1);
    if (change->add_bos) {
        put_key(w, "tokenizer.ggml.add_bos_token", GGUF_BOOL);
        put(w, "\1", 1);
    }
    w->data[16] = (uint8_t)w->n_keys;
    uint64_t random = change->flips;
    for (uint64_t flips = 0; change->flips && flips <= change->flips % 3;
         flips++) { /* small values: types stay valid */
        w->data[24 + next_random(&random) % (w->n - 24)] = (uint8_t)(next_random(&random) % (flips ? 256 : 8));
    }

    char path[] = "/tmp/afmoe-tokenizer-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, w->data, w->n), (ssize_t)w->n);
    close(descriptor);
    free(w);
    struct mapped_file file;
    struct gguf *gguf = NULL;
    afmoe_error open_error = {.size = sizeof open_error};
    uint64_t before = memory_peak_begin();
    assert_int_equal(afmoe__file_open(&file, path, FILE_MAPPED, NULL), AFMOE_OK);
    afmoe_status status = afmoe__gguf_open(&gguf, &file, &open_error);
    if (status == AFMOE_OK) {
        status = afmoe__tokenizer_from_gguf(out, gguf, error);
        afmoe__gguf_close(gguf);
    } else {
        afmoe__file_close(&file);
        if (!change->flips) fail_msg("open: %s", open_error.message);
    }
    assert_true(memory_peak_growth_kib(before) <= memory_allowed_kib(sizeof w->data));
    unlink(path);
    return status;
}

static void gguf_equals_json(void **state)
{
    (void)state;
    struct tokenizer *from_json = NULL, *from_gguf = NULL;
    afmoe_error error = {.size = sizeof error};
    if (load_gguf(&no_change, &from_gguf, &error) != AFMOE_OK) fail_msg("%s", error.message);
    assert_int_equal(load_json(base.json, &from_json, &error), AFMOE_OK);
    assert_int_equal(afmoe__tokenizer_n_ids(from_gguf), 1601);
    assert_int_equal(afmoe__tokenizer_n_tokens(from_gguf), 1600);
    for (afmoe_token id = 0; id < 1600; id++) {
        const uint8_t *a, *b;
        uint64_t n_a, n_b;
        assert_int_equal(afmoe__tokenizer_token(from_json, id, &a, &n_a),
                         afmoe__tokenizer_token(from_gguf, id, &b, &n_b));
        assert_int_equal(n_a, n_b);
        assert_memory_equal(a, b, n_a);
    }
    assert_int_equal(afmoe__tokenizer_find(from_gguf, (const uint8_t *)"[PAD1600]", 9), -1);
    const char *text = "<|im_start|>user\nThe year 2024, e\xcc\x81t\xc3\xa9 [PAD1600]<think>";
    afmoe_token a[128], b[128];
    uint64_t n_a, n_b;
    assert_int_equal(afmoe__tokenizer_encode(from_json, text, strlen(text), NULL, a, 128, &n_a, NULL), AFMOE_OK);
    assert_int_equal(afmoe__tokenizer_encode(from_gguf, text, strlen(text), NULL, b, 128, &n_b, NULL), AFMOE_OK);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a * sizeof *a);
    afmoe__tokenizer_free(from_json);
    afmoe__tokenizer_free(from_gguf);
}

#define CHANGED .model = "gpt2", .pre = "afmoe", .type_of_3 = 3, .last_token = "[PAD1600]", .last_type = 5
/* The compiler is told that overriding CHANGED is meant. */
#pragma GCC diagnostic ignored "-Woverride-init"
#ifdef __clang__
#pragma clang diagnostic ignored "-Winitializer-overrides"
#endif

static void gguf_faults_are_named(void **state)
{
    (void)state;
    static const struct {
        struct change change;
        afmoe_status status;
        const char *culprit;
    } cases[] = {
        {{CHANGED, .model = "llama"}, AFMOE_UNSUPPORTED, "tokenizer.ggml.model is \"llama\""},
        {{CHANGED, .model = NULL}, AFMOE_UNSUPPORTED, "tokenizer.ggml.model is missing"},
        {{CHANGED, .pre = "qwen2"}, AFMOE_UNSUPPORTED, "tokenizer.ggml.pre is \"qwen2\""},
        {{CHANGED, .pre = NULL}, AFMOE_UNSUPPORTED, "tokenizer.ggml.pre is missing"},
        {{CHANGED, .pre = "a\nb"}, AFMOE_UNSUPPORTED, "\"a?b\""},
        {{CHANGED, .tokens_are_numbers = true}, AFMOE_FORMAT, "tokenizer.ggml.tokens"},
        {{CHANGED, .types_are = GGUF_STRING}, AFMOE_FORMAT, "tokenizer.ggml.token_type[0]"},
        {{CHANGED, .n_types_missing = 1}, AFMOE_FORMAT, "has 1600 entries, tokens has 1601"},
        {{CHANGED, .type_of_3 = 0}, AFMOE_FORMAT, "token_type[3] is 0"},
        {{CHANGED, .type_of_3 = 7}, AFMOE_FORMAT, "token_type[3] is 7"},
        {{CHANGED, .type_of_3 = -1}, AFMOE_FORMAT, "token_type[3] is -1"},
        {{CHANGED, .no_merges = true}, AFMOE_FORMAT, "tokenizer.ggml.merges is missing"},
        {{CHANGED, .extra_merge = "ab"}, AFMOE_FORMAT, "tokenizer.ggml.merges["},
        {{CHANGED, .extra_merge = ""}, AFMOE_FORMAT, "tokenizer.ggml.merges["},
        {{CHANGED, .extra_merge = "a b c"}, AFMOE_FORMAT, "tokenizer.ggml.merges["},
        {{CHANGED, .extra_merge = "nosuchtoken b"}, AFMOE_FORMAT, "left part"},
        {{CHANGED, .extra_merge = "Z Q"}, AFMOE_FORMAT, "gives no token"},
        {{CHANGED, .extra_merge = "h e"}, AFMOE_FORMAT, "repeats merge 0"},
        {{CHANGED, .extra_merge = "[ PAD1600]"}, AFMOE_FORMAT, "right part"},
        {{CHANGED, .number_key = "tokenizer.ggml.bos_token_id", .number = 1601}, AFMOE_FORMAT, "bos_token_id"},
        {{CHANGED, .number_key = "tokenizer.ggml.eos_token_id", .number = UINT32_MAX - 1}, AFMOE_FORMAT, "eos_token_id"},
        {{CHANGED, .number_key = "tokenizer.ggml.padding_token_id", .number = 1601}, AFMOE_FORMAT, "padding_token_id"},
        {{CHANGED, .add_bos_is_number = true}, AFMOE_FORMAT, "add_bos_token"},
        {{CHANGED, .add_bos = true}, AFMOE_FORMAT, "bos_token_id is missing"},
        {{CHANGED, .last_token = "", .last_type = 3}, AFMOE_FORMAT, "token 1600 has 0 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tokenizer *tokenizer = NULL;
        afmoe_error error = {.size = sizeof error};
        afmoe_status status = load_gguf(&cases[i].change, &tokenizer, &error);
        if (status != cases[i].status || !strstr(error.message, cases[i].culprit)) {
            fail_msg("case %zu: status %d, \"%s\"", i, status, status ? error.message : "");
        }
        assert_null(tokenizer);
    }
}

static void odd_but_clear_gguf_works(void **state)
{
    (void)state;
    static const struct {
        struct change change;
        int32_t kind_of_1600;
        const char *bytes_of_1600;
    } cases[] = {
        {{CHANGED, .last_token = "he", .last_type = 1}, AFMOE_TOKEN_NORMAL, "he"}, /* repeated */
        {{CHANGED, .last_token = "<|im_end|>", .last_type = 3}, AFMOE_TOKEN_CONTROL, "<|im_end|>"},
        {{CHANGED, .last_token = "<0x0A>", .last_type = 6}, AFMOE_TOKEN_NORMAL, "\n"},
        {{CHANGED, .last_token = "<0x-1>", .last_type = 6}, AFMOE_TOKEN_NORMAL, "<0x-1>"},
        {{CHANGED, .last_token = "<0x0a>", .last_type = 6}, AFMOE_TOKEN_NORMAL, "<0x0a>"},
        {{CHANGED, .last_token = "<0xZZ>", .last_type = 6}, AFMOE_TOKEN_NORMAL, "<0xZZ>"},
        {{CHANGED, .last_token = "\xff\xfe", .last_type = 1}, AFMOE_TOKEN_NORMAL, "\xff\xfe"}, /* no UTF-8 */
        {{CHANGED, .last_token = "a b", .last_type = 4}, AFMOE_TOKEN_ADDED, "a b"},
        {{CHANGED, .add_bos = true, .number_key = "tokenizer.ggml.bos_token_id"}, AFMOE_TOKEN_UNUSED, ""},
        {{CHANGED, .number_key = "tokenizer.ggml.eos_token_id", .number = UINT32_MAX}, AFMOE_TOKEN_UNUSED, ""}, /* none */
        {{CHANGED, .no_types = true, .last_token = "xyzzy"}, AFMOE_TOKEN_NORMAL, "xyzzy"},
        {{CHANGED, .types_are = GGUF_F32, .last_token = "xyzzy", .last_type = 4}, AFMOE_TOKEN_ADDED, "xyzzy"},
        {{CHANGED, .types_are = GGUF_U64, .last_token = "xyzzy", .last_type = 4}, AFMOE_TOKEN_ADDED, "xyzzy"},
        {{CHANGED, .types_are = GGUF_I8, .last_token = "xyzzy", .last_type = 4}, AFMOE_TOKEN_ADDED, "xyzzy"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tokenizer *tokenizer = NULL;
        afmoe_error error = {.size = sizeof error};
        if (load_gguf(&cases[i].change, &tokenizer, &error) != AFMOE_OK) fail_msg("case %zu: %s", i, error.message);
        const uint8_t *bytes;
        uint64_t n;
        assert_int_equal(afmoe__tokenizer_token(tokenizer, 1600, &bytes, &n), cases[i].kind_of_1600);
        assert_int_equal(n, strlen(cases[i].bytes_of_1600));
        assert_memory_equal(bytes, cases[i].bytes_of_1600, n);
        afmoe_token ids[32];
        const char *text = "he\n<|im_end|>";
        assert_int_equal(afmoe__tokenizer_encode(tokenizer, text, strlen(text), NULL, ids, 32, &n, NULL), AFMOE_OK);
        for (uint64_t j = 0; j < n; j++) assert_true(ids[j] < 1600); /* of repeated tokens the first id */
        afmoe__tokenizer_free(tokenizer);
    }
}

/* More strings than any vocabulary has, in a file that is as long as it says. */
static void too_many_strings(void **state)
{
    (void)state;
    static const char *const keys[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"};
    for (int i = 0; i < 2; i++) {
        struct gguf_writer w = {.version = 3, .n_tensors_said = UINT64_MAX, .n_keys_said = UINT64_MAX, .alignment = 32};
        struct buffer bytes;
        struct scratch scratch;
        struct mapped_file file;
        struct gguf *gguf = NULL;
        struct tokenizer *tokenizer = NULL;
        uint64_t n_header;
        afmoe_error error = {.size = sizeof error};
        gguf_add_tiny_tokenizer(&w);
        gguf_drop(&w, "tokenizer.ggml.token_type");
        gguf_set_strings(&w, keys[i], 4000001, "");
        gguf_serialise(&w, &bytes, &n_header);
        scratch_make(&scratch);
        scratch_write(&scratch, "t.gguf", bytes.data, bytes.n);
        uint64_t n = bytes.n, before;
        buffer_free(&bytes);
        gguf_writer_free(&w);
        before = memory_peak_begin();
        assert_int_equal(afmoe__file_open(&file, scratch_path(&scratch, "t.gguf"), FILE_MAPPED, NULL), AFMOE_OK);
        assert_int_equal(afmoe__gguf_open(&gguf, &file, &error), AFMOE_OK);
        assert_int_equal(afmoe__tokenizer_from_gguf(&tokenizer, gguf, &error), AFMOE_LIMIT);
        assert_non_null(strstr(error.message, keys[i]));
        assert_non_null(strstr(error.message, "4000001 strings; at most 4000000"));
        assert_true(memory_peak_growth_kib(before) <= n / 1024 + 1024); /* the file's own pages */
        afmoe__gguf_close(gguf);
        scratch_remove(&scratch);
    }
}

/* One added token many times over: text of it costs what it costs with one. */
static void one_token_many_times(void **state)
{
    (void)state;
    enum { N = 400000, N_TEXT = 400000 };
    struct gguf_writer w = {.version = 3, .n_tensors_said = UINT64_MAX, .n_keys_said = UINT64_MAX, .alignment = 32};
    struct buffer bytes, tokens = {0}, types = {0};
    struct mapped_file file;
    struct gguf *gguf = NULL;
    struct tokenizer *tokenizer = NULL;
    uint64_t n_header, n;
    struct timespec begin, end;
    gguf_add_tiny_tokenizer(&w);
    const struct written_key *key = w.keys;
    while (strcmp(key->name, "tokenizer.ggml.tokens") != 0) key++;
    uint64_t n_first = (uint64_t)key->value.data[8] | (uint64_t)key->value.data[9] << 8;
    buffer_put(&tokens, key->value.data + 16, key->value.n - 16);
    while (strcmp(key->name, "tokenizer.ggml.token_type") != 0) key++;
    buffer_put(&types, key->value.data + 16, key->value.n - 16);
    for (int i = 0; i < N; i++) {
        buffer_put(&tokens, "\2\0\0\0\0\0\0\0QQ", 10);
        buffer_put_u32(&types, 3);
    }
    gguf_set_array(&w, "tokenizer.ggml.tokens", GGUF_STRING, n_first + N, tokens.data, tokens.n);
    gguf_set_array(&w, "tokenizer.ggml.token_type", GGUF_I32, n_first + N, types.data, types.n);
    gguf_serialise(&w, &bytes, &n_header);
    assert_int_equal(afmoe__file_open_memory(&file, bytes.data, bytes.n, FILE_MAPPED, NULL), AFMOE_OK);
    assert_int_equal(afmoe__gguf_open(&gguf, &file, NULL), AFMOE_OK);
    assert_int_equal(afmoe__tokenizer_from_gguf(&tokenizer, gguf, NULL), AFMOE_OK);

    char *text = malloc(N_TEXT);
    afmoe_token *ids = malloc(N_TEXT * sizeof *ids);
    assert_true(text && ids);
    memset(text, 'Q', N_TEXT);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    assert_int_equal(afmoe__tokenizer_encode(tokenizer, text, N_TEXT, NULL, ids, N_TEXT, &n, NULL), AFMOE_OK);
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(end.tv_sec - begin.tv_sec < 20);
    assert_int_equal(n, N_TEXT / 2);
    for (uint64_t i = 0; i < n; i++) assert_int_equal(ids[i], n_first);
    free(text);
    free(ids);
    afmoe__tokenizer_free(tokenizer);
    afmoe__gguf_close(gguf);
    gguf_writer_free(&w);
    buffer_free(&bytes);
    buffer_free(&tokens);
    buffer_free(&types);
}

static void flipped_gguf_is_refused_or_works(void **state)
{
    (void)state;
    size_t n_loaded = 0, n_refused = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct change change = no_change;
        struct tokenizer *tokenizer = NULL;
        change.flips = seed * 0x9e3779b97f4a7c15u;
        if (load_gguf(&change, &tokenizer, NULL) == AFMOE_OK) {
            use_and_free(tokenizer);
            n_loaded++;
        } else {
            assert_null(tokenizer);
            n_refused++;
        }
    }
    assert_true(n_loaded > 0 && n_refused > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_faults_are_named),
        cmocka_unit_test(json_documents_that_are_none),
        cmocka_unit_test(odd_but_clear_json_works),
        cmocka_unit_test(merges_to_control_tokens),
        cmocka_unit_test(flipped_json_is_refused_or_works),
        cmocka_unit_test(cut_json_is_refused),
        cmocka_unit_test(every_flipped_bit_is_refused_or_works),
        cmocka_unit_test(gguf_equals_json),
        cmocka_unit_test(gguf_faults_are_named),
        cmocka_unit_test(odd_but_clear_gguf_works),
        cmocka_unit_test(too_many_strings),
        cmocka_unit_test(one_token_many_times),
        cmocka_unit_test(flipped_gguf_is_refused_or_works),
    };
    return cmocka_run_group_tests(tests, load_base, free_base);
}
