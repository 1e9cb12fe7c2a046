/* Shared by the fuzz targets, see fuzz.h. The linker's --wrap puts the files below in place of lib/base/file.c's. */
#include "fuzz.h"

#include "error.h"
#include "file.h"
#include "memory.h"
#include "test_paths.h"
#include "tiny_tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

volatile uint64_t fuzz_sink;

void fuzz_broken(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: broken: %s\n", file, line, condition);
    abort();
}

afmoe_status fuzz_check_status(afmoe_status status, const afmoe_error *error, const afmoe_status *expected, size_t n,
                               const char *call)
{
    for (size_t i = 0; i < n; i++) {
        if (expected[i] != status) continue;
        if (status >= 0) return status;
        REQUIRE(error->code == status);
        REQUIRE(memchr(error->message, '\0', sizeof error->message) && error->message[0] != '\0');
        REQUIRE(!strchr(error->message, '\n'));
        return status;
    }
    fprintf(stderr, "%s: %s is no documented answer (%s)\n", call, afmoe_status_name(status),
            status < 0 ? error->message : "");
    abort();
}

static void *need(void *p)
{
    REQUIRE(p);
    return p;
}

/* ---- Choices ---------------------------------------------------------------------------------------------------- */

uint8_t choose_u8(struct choices *c)
{
    return c->n ? (c->n--, *c->at++) : 0;
}

uint16_t choose_u16(struct choices *c)
{
    uint16_t low = choose_u8(c);
    return (uint16_t)(low | choose_u8(c) << 8);
}

uint32_t choose_u32(struct choices *c)
{
    uint32_t low = choose_u16(c);
    return low | (uint32_t)choose_u16(c) << 16;
}

uint64_t choose_u64(struct choices *c)
{
    uint64_t low = choose_u32(c);
    return low | (uint64_t)choose_u32(c) << 32;
}

uint32_t choose_below(struct choices *c, uint32_t n)
{
    return (n <= 256 ? choose_u8(c) : choose_u16(c)) % n;
}

uint64_t choose_size(struct choices *c)
{
    uint8_t how = choose_u8(c);
    if (how < 64) return how;
    if (how < 128) return (UINT64_C(1) << (how - 64)) - 1;
    if (how < 192) return UINT64_C(1) << (how - 128);
    if (how < 200) return UINT64_MAX - (how - 192);
    return how < 228 ? choose_u16(c) : choose_u64(c);
}

float choose_float(struct choices *c)
{
    static const float edges[] = {0, 1, 0.5f, 0.999f, 1.001f, 0.01f, 0.0099f, 100, 100.1f, 1e-30f, 1e30f, 1e31f,
                                  1e-45f, 3.4e38f, 0.9f, 2};
    uint8_t how = choose_u8(c);
    if (how < 16) return edges[how];
    if (how < 32) return -edges[how - 16];
    if (how == 32) return NAN;
    if (how == 33) return INFINITY;
    if (how == 34) return -INFINITY;
    if (how < 128) return (float)choose_u8(c) / 128;
    uint32_t bits = choose_u32(c);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

const uint8_t *choose_bytes(struct choices *c, size_t max, size_t *out_n)
{
    size_t n = max <= 255 ? choose_u8(c) : choose_u16(c);
    if (n > max) n %= max + 1;
    if (n > c->n) n = c->n;
    const uint8_t *bytes = c->at;
    c->at += n;
    c->n -= n;
    *out_n = n;
    return bytes;
}

/* ---- Files without a disk --------------------------------------------------------------------------------------- */

enum { MAX_DISK_FILES = 8 };

static struct disk_file {
    char name[64];
    uint8_t *data;
    uint64_t n;
} disk[MAX_DISK_FILES];
static size_t n_disk;

void disk_clear(void)
{
    for (size_t i = 0; i < n_disk; i++) free(disk[i].data);
    n_disk = 0;
}

void disk_put(const char *name, const void *bytes, uint64_t n)
{
    REQUIRE(n_disk < MAX_DISK_FILES);
    struct disk_file *file = &disk[n_disk++];
    snprintf(file->name, sizeof file->name, "%s", name);
    file->n = n;
    file->data = need(malloc(n ? n : 1));
    if (n) memcpy(file->data, bytes, n);
}

static const struct disk_file *find_on_disk(const char *name)
{
    for (size_t i = 0; i < n_disk; i++) {
        if (strcmp(disk[i].name, name) == 0) return &disk[i];
    }
    return NULL;
}

static const char *name_on_disk(const char *path)
{
    return strncmp(path, DISK "/", sizeof DISK) == 0 ? path + sizeof DISK : NULL;
}

static afmoe_status use_file(struct mapped_file *out, const struct disk_file *file, enum file_mode mode,
                             afmoe_error *error)
{
    char path[128];
    snprintf(path, sizeof path, DISK "/%.63s", file->name);
    afmoe_status status = afmoe__file_open_memory(out, file->data, file->n, mode, error);
    if (status != AFMOE_OK) return status;
    afmoe__free(out->path);
    out->path = need(afmoe__strdup(path));
    return AFMOE_OK;
}

afmoe_status __real_afmoe__file_open(struct mapped_file *out, const char *path, enum file_mode mode,
                                     afmoe_error *error);
afmoe_status __wrap_afmoe__file_open(struct mapped_file *out, const char *path, enum file_mode mode,
                                     afmoe_error *error);
afmoe_status __wrap_afmoe__file_open(struct mapped_file *out, const char *path, enum file_mode mode,
                                     afmoe_error *error)
{
    const char *name = name_on_disk(path);
    const struct disk_file *file = name ? find_on_disk(name) : NULL;
    return file ? use_file(out, file, mode, error) : __real_afmoe__file_open(out, path, mode, error);
}

afmoe_status __real_afmoe__file_open_in(struct mapped_file *out, const char *folder, const char *name,
                                        enum file_mode mode, afmoe_error *error);
afmoe_status __wrap_afmoe__file_open_in(struct mapped_file *out, const char *folder, const char *name,
                                        enum file_mode mode, afmoe_error *error);
afmoe_status __wrap_afmoe__file_open_in(struct mapped_file *out, const char *folder, const char *name,
                                        enum file_mode mode, afmoe_error *error)
{
    const struct disk_file *file = strcmp(folder, DISK) == 0 ? find_on_disk(name) : NULL;
    /* Else the real one judges the name, and finds nothing. */
    return file ? use_file(out, file, mode, error) : __real_afmoe__file_open_in(out, folder, name, mode, error);
}

afmoe_status __real_afmoe__path_kind(enum path_kind *out, const char *path, afmoe_error *error);
afmoe_status __wrap_afmoe__path_kind(enum path_kind *out, const char *path, afmoe_error *error);
afmoe_status __wrap_afmoe__path_kind(enum path_kind *out, const char *path, afmoe_error *error)
{
    const char *name = name_on_disk(path);
    if (strcmp(path, DISK) == 0 || (name && find_on_disk(name))) {
        *out = name ? PATH_FILE : PATH_FOLDER;
        return AFMOE_OK;
    }
    return __real_afmoe__path_kind(out, path, error);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

static size_t skip_string(const char *text, size_t at)
{
    for (at++; text[at] != '"'; at++) at += text[at] == '\\';
    return at + 1;
}

void json_base_init(struct json_base *base, const char *text)
{
    enum { MAX_DEPTH = 32 };
    size_t open[MAX_DEPTH], depth = 0, key = SIZE_MAX, capacity = 0;
    *base = (struct json_base){.text = text, .n = strlen(text)};
    for (size_t at = 0; at < base->n;) {
        char x = text[at];
        if (x == ']' || x == '}') base->spans[open[--depth]].end = ++at;
        else if (x == ',' || x == ':' || x == ' ' || x == '\n') at++;
        else {
            size_t end = at + 1;
            if (x == '"') end = skip_string(text, at);
            else if (x != '[' && x != '{') end = at + strcspn(text + at, ",]} \n");
            if (x == '"' && text[end] == ':') {
                key = at;
                at = end;
                continue;
            }
            if (base->n_spans == capacity) {
                capacity = 2 * capacity + 64;
                base->spans = need(realloc(base->spans, capacity * sizeof *base->spans));
            }
            if (x == '[' || x == '{') {
                REQUIRE(depth < MAX_DEPTH);
                open[depth++] = base->n_spans;
            }
            base->spans[base->n_spans++] = (struct json_span){key == SIZE_MAX ? at : key, at, end};
            key = SIZE_MAX;
            at = end;
        }
    }
}

static const char *const odd_values[] = {
    "null", "true", "false", "0", "-0", "1", "2", "3", "-1", "1.5", "1e2", "1e999", "-1e999", "1e-999", "0.0", "1024",
    "1025", "65535", "65536", "65537", "4294967295", "4294967296", "2147483647", "2147483648", "9007199254740993",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551615",
    "18446744073709551616", "123456789012345678901234567890123456789012345678901234567890", "\"\"", "\"0\"", "\"16\"",
    "\"a\"", "\"\\u0000\"", "\"a\\u0000b\"", "\"\\ud800\"", "\"\\ud83d\\ude00\"", "\"\xff\"", "\"\xc0\x80\"", "\"/\"",
    "\"..\"", "\"a b\"", "[]", "{}", "[[]]", "[null]", "[0]", "[0,0]", "[1,2,3]", "[-1]", "[\"a\"]", "{\"a\":1}",
    "{\"a\":1,\"a\":2}", "{\"\":0}", "NaN", "Infinity", "01", "+1", ".5", "1.", "'a'", "\"\t\"", "\"\\x\"", "[1,]",
    "{\"a\"}", ("\xef\xbb\xbf" "1"), "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
};

enum { N_ODD_VALUES = sizeof odd_values / sizeof *odd_values, MAX_JSON_EDITS = 8 };

struct json_change {
    size_t begin, end;
    struct buffer text;
};

static void put_text(struct buffer *out, const char *text)
{
    buffer_put(out, text, strlen(text));
}

static void put_word(struct buffer *out, struct choices *c, const char *const *words, size_t n_words)
{
    put_text(out, "\"");
    put_text(out, words[choose_below(c, (uint32_t)n_words)]);
    put_text(out, "\"");
}

/* What stands in place of one value. */
static void choose_value(struct buffer *out, const struct json_base *base, struct choices *c, const char *const *words,
                         size_t n_words)
{
    char number[64];
    size_t n;
    const uint8_t *bytes;
    const struct json_span *other;
    switch (choose_below(c, 7)) {
    case 0:
    case 1: put_text(out, odd_values[choose_below(c, N_ODD_VALUES)]); break;
    case 2:
        snprintf(number, sizeof number, "%lld", (long long)choose_size(c));
        put_text(out, number);
        break;
    case 3: put_word(out, c, words, n_words); break;
    case 4:
        other = &base->spans[choose_u16(c) % base->n_spans];
        buffer_put(out, base->text + other->begin, other->end - other->begin);
        break;
    case 5:
        snprintf(number, sizeof number, "%.9g", (double)choose_float(c));
        put_text(out, number);
        break;
    default:
        bytes = choose_bytes(c, 32, &n);
        buffer_put(out, bytes, n);
    }
}

static struct json_change choose_change(const struct json_base *base, struct choices *c, const char *const *words,
                                        size_t n_words)
{
    const struct json_span *span = &base->spans[choose_u16(c) % base->n_spans];
    struct json_change change = {span->begin, span->end, {0}};
    uint8_t how = choose_below(c, 10);
    if (how < 5) choose_value(&change.text, base, c, words, n_words);
    if (how == 5) { /* drop the member, with the comma behind it */
        change.begin = span->key;
        change.end += base->text[span->end] == ',';
    }
    if (how == 6) { /* repeat it */
        change.end = change.begin = span->key;
        buffer_put(&change.text, base->text + span->key, span->end - span->key);
        put_text(&change.text, ",");
    }
    if (how == 7 && span->key != span->begin) { /* rename it */
        change.begin = span->key;
        change.end = span->begin - 1;
        put_word(&change.text, c, words, n_words);
    }
    if (how == 8) { /* a new member or element before it */
        change.end = change.begin = span->key;
        if (span->key != span->begin) {
            put_word(&change.text, c, words, n_words);
            put_text(&change.text, ":");
        }
        choose_value(&change.text, base, c, words, n_words);
        put_text(&change.text, ",");
    }
    if (how == 9) { /* the text ends here */
        change.end = base->n;
    }
    return change;
}

static int compare_changes(const void *a, const void *b)
{
    const struct json_change *x = a, *y = b;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1) : (x->end > y->end) - (x->end < y->end);
}

void json_edit(struct buffer *out, const struct json_base *base, struct choices *c, const char *const *words,
               size_t n_words)
{
    struct json_change changes[MAX_JSON_EDITS];
    size_t n = choose_below(c, MAX_JSON_EDITS + 1), at = 0;
    for (size_t i = 0; i < n; i++) changes[i] = choose_change(base, c, words, n_words);
    qsort(changes, n, sizeof *changes, compare_changes);
    for (size_t i = 0; i < n; i++) {
        if (changes[i].begin >= at) { /* else it lies in one made already */
            buffer_put(out, base->text + at, changes[i].begin - at);
            buffer_put(out, changes[i].text.data, changes[i].text.n);
            at = changes[i].end;
        }
        buffer_free(&changes[i].text);
    }
    buffer_put(out, base->text + at, base->n - at);
}

/* ---- A tiny model ----------------------------------------------------------------------------------------------- */

const struct buffer *tiny_file(void)
{
    static struct buffer bytes;
    if (bytes.n > 0) return &bytes;
    struct gguf_writer w;
    uint64_t n_header;
    gguf_writer_init(&w, FORMAT_F32);
    gguf_add_tiny_tokenizer(&w);
    for (int i = 0; i < 2; i++) {
        struct written_tensor *t = gguf_writer_tensor(&w, i ? "output.weight" : "token_embd.weight");
        t->dims[1] = TINY_IDS;
        t->n_elements = 32 * TINY_IDS;
    }
    gguf_serialise(&w, &bytes, &n_header);
    gguf_writer_free(&w);
    return &bytes;
}

afmoe_model *tiny_model(void)
{
    static afmoe_model *model;
    if (model) return model;
    const struct buffer *bytes = tiny_file();
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    CHECK_ONE_OF(afmoe_model_open_memory(&model, bytes->data, bytes->n, NULL, NULL, NULL, &error), AFMOE_OK);
    return model;
}

void read_data_file(struct buffer *out, const char *name)
{
    char path[1024], bytes[4096];
    size_t n;
    *out = (struct buffer){0};
    FILE *file = fopen(data_path(path, sizeof path, name), "rb");
    if (!file) {
        fprintf(stderr, "cannot open %s: set AFMOE_TEST_DATA to tests/data\n", path);
        exit(2);
    }
    while ((n = fread(bytes, 1, sizeof bytes, file)) > 0) buffer_put(out, bytes, n);
    fclose(file);
}
