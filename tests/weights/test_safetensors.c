/* safetensors: hostile headers, shards and links, each with the answer it must get. */
#define _XOPEN_SOURCE 700 /* truncate, pwrite, symlink */

#include "fixture_writer.h"
#include "opening.h"

#include <sys/stat.h>
#include <time.h>

static struct scratch scratch;

static int make_scratch(void **state)
{
    (void)state;
    scratch_make(&scratch);
    json_t *config = tiny_config();
    scratch_write_json(&scratch, "config.json", config);
    json_decref(config);
    return 0;
}

static int remove_scratch(void **state)
{
    (void)state;
    scratch_remove(&scratch);
    return 0;
}

static void drop(const char *name)
{
    unlink(scratch_path(&scratch, name));
}

/* ---- One file --------------------------------------------------------------------------------------------------- */

#define Q "model.layers.0.self_attn.q_proj.weight"

/* Changes one entry of the tiny model's header: `set` is merged into it. */
static const struct {
    const char *name, *tensor, *set;
    int32_t status;
    const char *part;
} entries[] = {
    {"as it is", Q, "{}", AFMOE_OK, ""},
    {"unknown field", Q, "{\"note\": 1}", AFMOE_OK, ""},
    {"no object", Q, "[1]", AFMOE_FORMAT, Q "\": its entry is no object"},
    {"dtype unknown", Q, "{\"dtype\": \"F31\"}", AFMOE_UNSUPPORTED, Q "\": unknown dtype \"F31\""},
    {"dtype in lower case", Q, "{\"dtype\": \"f32\"}", AFMOE_UNSUPPORTED, Q "\": unknown dtype \"f32\""},
    {"dtype no string", Q, "{\"dtype\": 1}", AFMOE_FORMAT, Q "\": \"dtype\""},
    {"dtype of no kernel", Q, "{\"dtype\": \"I32\"}", AFMOE_UNSUPPORTED, Q "\" has format I32"},
    {"dtype of other size", Q, "{\"dtype\": \"F16\"}", AFMOE_FORMAT, Q "\": data_offsets"},
    {"dtype of 4 bits", Q, "{\"dtype\": \"F4\"}", AFMOE_FORMAT, Q "\": data_offsets"},
    {"shape no array", Q, "{\"shape\": 3}", AFMOE_FORMAT, Q "\": \"shape\""},
    {"shape negative", Q, "{\"shape\": [-1, 32]}", AFMOE_FORMAT, Q "\": \"shape\""},
    {"shape fractional", Q, "{\"shape\": [32.0, 32]}", AFMOE_FORMAT, Q "\": \"shape\""},
    {"shape wraps", Q, "{\"shape\": [4294967296, 4294967296, 2]}", AFMOE_FORMAT, Q "\": \"shape\" overflows"},
    {"bytes wrap", Q, "{\"shape\": [4611686018427387904]}", AFMOE_FORMAT, Q "\": data_offsets"},
    {"9 dimensions", Q, "{\"shape\": [1,1,1,1,1,1,1,32,32]}", AFMOE_FORMAT, Q "\": \"shape\" has more than 8"},
    {"larger than its bytes", Q, "{\"shape\": [1000, 1000]}", AFMOE_FORMAT, Q "\": data_offsets"},
    {"other shape", Q, "{\"shape\": [16, 64]}", AFMOE_FORMAT,
     Q "\": shape [16, 64], expected [32, 32] ([num_attention_heads * head_dim, hidden_size])"},
    {"other rank", Q, "{\"shape\": [1, 32, 32]}", AFMOE_FORMAT, Q "\": shape [1, 32, 32], expected [32, 32]"},
    {"empty", Q, "{\"shape\": [0, 32], \"data_offsets\": [0, 0]}", AFMOE_FORMAT, "leaving a hole"},
    {"offsets negative", Q, "{\"data_offsets\": [-1, 4095]}", AFMOE_FORMAT, Q "\": \"data_offsets\""},
    {"offsets reversed", Q, "{\"data_offsets\": [4096, 0]}", AFMOE_FORMAT, Q "\": \"data_offsets\""},
    {"offsets fractional", Q, "{\"data_offsets\": [0.0, 4096]}", AFMOE_FORMAT, Q "\": \"data_offsets\""},
    {"offsets as text", Q, "{\"data_offsets\": [\"0\", 4096]}", AFMOE_FORMAT, Q "\": \"data_offsets\""},
    {"three offsets", Q, "{\"data_offsets\": [0, 1, 2]}", AFMOE_FORMAT, Q "\": \"data_offsets\""},
    {"offset 2^62", Q, "{\"data_offsets\": [0, 4611686018427387904]}", AFMOE_TRUNCATED, Q "\": data_offsets"},
    {"overlap", Q, "{\"data_offsets\": [0, 4096]}", AFMOE_FORMAT, "overlapping"},
    {"metadata no object", "__metadata__", "[1]", AFMOE_FORMAT, "metadata"},
    {"metadata no string", "__metadata__", "{\"a\": 1}", AFMOE_FORMAT, "__metadata__ \"a\" is no string"},
    {"metadata", "__metadata__", "{\"format\": \"pt\"}", AFMOE_OK, ""},
    {"empty name", "", "{\"dtype\": \"F32\", \"shape\": [0], \"data_offsets\": [0, 0]}", AFMOE_FORMAT,
     "a tensor name of 0 bytes"},
    {"empty tensor nobody needs", "x", "{\"dtype\": \"F32\", \"shape\": [0, 3], \"data_offsets\": [0, 0]}",
     AFMOE_OK, ""},
    {"offset missing", Q, "{\"data_offsets\": [4096]}", AFMOE_FORMAT, Q "\": \"data_offsets\""},
    {"offsets null", Q, "{\"data_offsets\": null}", AFMOE_FORMAT, Q "\": \"data_offsets\""},
    {"shape null", Q, "{\"shape\": null}", AFMOE_FORMAT, Q "\": \"shape\""},
    {"shape of lists", Q, "{\"shape\": [[32], 32]}", AFMOE_FORMAT, Q "\": \"shape\""},
    {"shape as text", Q, "{\"shape\": [\"32\", 32]}", AFMOE_FORMAT, Q "\": \"shape\""},
    {"dtype null", Q, "{\"dtype\": null}", AFMOE_FORMAT, Q "\": \"dtype\""},
    {"dtype empty", Q, "{\"dtype\": \"\"}", AFMOE_UNSUPPORTED, Q "\": unknown dtype \"\""},
    {"a scalar", Q, "{\"shape\": []}", AFMOE_FORMAT, Q "\": data_offsets"},
    {"embedding rows", "model.embed_tokens.weight", "{\"shape\": [20, 64]}", AFMOE_FORMAT,
     "\"model.embed_tokens.weight\": shape [20, 64], expected [40, 32] ([vocab_size, hidden_size])"},
};

static void test_entries(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        struct safetensors_writer w;
        struct buffer bytes;
        safetensors_writer_init(&w);
        safetensors_add_tiny(&w, FORMAT_F32);
        json_t *set = json_loads(entries[i].set, 0, NULL), *entry = json_object_get(w.header, entries[i].tensor);
        if (entry && json_is_object(set)) json_object_update(entry, set);
        else json_object_set(w.header, entries[i].tensor, set);
        json_decref(set);
        safetensors_serialise(&w, &bytes);
        scratch_write(&scratch, "model.safetensors", bytes.data, bytes.n);
        check_refused(scratch.path, entries[i].status, entries[i].part, entries[i].name);
        safetensors_writer_free(&w);
        buffer_free(&bytes);
    }
}

/* Whole files as text: 8 bytes of length, then the header, then `n_data` zero bytes. */
static const struct {
    const char *name;
    uint64_t length; /* UINT64_MAX: the header's */
    const char *header;
    uint64_t n_data;
    int32_t status;
    const char *part;
} headers[] = {
    {"length 2^63", UINT64_C(1) << 63, "{}", 0, AFMOE_TRUNCATED, "header of 9223372036854775808 bytes"},
    {"length + 8 wraps", UINT64_MAX - 7, "{}", 0, AFMOE_TRUNCATED, "header of 18446744073709551608 bytes"},
    {"length past the end", 3, "{}", 0, AFMOE_TRUNCATED, "header of 3 bytes"},
    {"length 0", 0, "", 0, AFMOE_FORMAT, "does not begin with '{'"},
    {"no object", UINT64_MAX, "[]", 0, AFMOE_FORMAT, "does not begin with '{'"},
    {"leading space", UINT64_MAX, " {}", 0, AFMOE_FORMAT, "does not begin with '{'"},
    {"byte order mark", UINT64_MAX, "\xEF\xBB\xBF{}", 0, AFMOE_FORMAT, "does not begin with '{'"},
    {"not UTF-8", UINT64_MAX, "{\"a\xC0\x80\": 1}", 0, AFMOE_FORMAT, "byte 0xC0 at 3"},
    {"trailing garbage", UINT64_MAX, "{}x", 0, AFMOE_FORMAT, "expected nothing more"},
    {"too deep", UINT64_MAX, "{\"a\":{\"b\":[[[1]]]}}", 0, AFMOE_LIMIT, "nested deeper than 4"},
    {"name twice", UINT64_MAX,
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
     4, AFMOE_FORMAT, "duplicate object key"},
    {"field twice", UINT64_MAX, "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
     AFMOE_FORMAT, "duplicate object key"},
    {"NUL in a name", UINT64_MAX, "{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
     AFMOE_FORMAT, "\\u0000"},
    {"offset above 2^63", UINT64_MAX,
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,9223372036854775808]}}", 4, AFMOE_FORMAT,
     "too big integer"},
    {"hole", UINT64_MAX, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, AFMOE_FORMAT,
     "\"a\" begins at 4, leaving a hole from 0"},
    {"rest", UINT64_MAX, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5, AFMOE_FORMAT,
     "end at byte 4 of the data, which has 5"},
    {"data missing", UINT64_MAX, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 3, AFMOE_TRUNCATED,
     "tensor \"a\": data_offsets [0, 4]"},
    {"trailing spaces", UINT64_MAX, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}   ", 4,
     AFMOE_FORMAT, "\"model.embed_tokens.weight\" is missing"},
    {"no tensors", UINT64_MAX, "{}", 0, AFMOE_FORMAT, "\"model.embed_tokens.weight\" is missing"},
};

static void test_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        struct buffer bytes = {0};
        size_t n = strlen(headers[i].header);
        buffer_put_u64(&bytes, headers[i].length == UINT64_MAX ? n : headers[i].length);
        buffer_put(&bytes, headers[i].header, n);
        for (uint64_t d = 0; d < headers[i].n_data; d++) buffer_put(&bytes, "", 1);
        scratch_write(&scratch, "model.safetensors", bytes.data, bytes.n);
        check_refused(scratch.path, headers[i].status, headers[i].part, headers[i].name);
        buffer_free(&bytes);
    }
    scratch_write(&scratch, "model.safetensors", "1234567", 7);
    check_refused(scratch.path, AFMOE_TRUNCATED, "7 bytes", "7 bytes");
    scratch_write(&scratch, "model.safetensors", "", 0);
    check_refused(scratch.path, AFMOE_TRUNCATED, "0 bytes", "empty file");
    scratch_write(&scratch, "model.safetensors", "\2\0\0\0\0\0\0\0{\0", 10);
    check_refused(scratch.path, AFMOE_FORMAT, "byte 0x00", "NUL in the header");
    scratch_write(&scratch, "model.safetensors", "\4\0\0\0\0\0\0\0{}\0\0", 12);
    check_refused(scratch.path, AFMOE_FORMAT, "byte 0x00", "NULs behind the header");
    struct checkpoint c;
    struct checkpoint_options small = {.max_json_bytes = 1024};
    struct buffer bytes = {0};
    buffer_put_u64(&bytes, 1025);
    while (bytes.n < 8 + 1025) buffer_put(&bytes, "{", 1);
    scratch_write(&scratch, "model.safetensors", bytes.data, bytes.n);
    check_open(&c, scratch.path, &small, AFMOE_LIMIT, "header of 1025 bytes, allowed are 1024", "cap");
    buffer_free(&bytes);
}

static void test_name_lengths(void **state)
{
    (void)state;
    char name[1100];
    memset(name, 'n', sizeof name);
    for (int n = 1024; n <= 1025; n++) {
        struct safetensors_writer w;
        struct buffer bytes;
        uint64_t shape = 1;
        name[n] = '\0';
        safetensors_writer_init(&w);
        safetensors_add_tiny(&w, FORMAT_F32);
        safetensors_add(&w, name, "F32", 1, &shape, "abcd", 4);
        safetensors_serialise(&w, &bytes);
        scratch_write(&scratch, "model.safetensors", bytes.data, bytes.n);
        check_refused(scratch.path, n == 1024 ? AFMOE_OK : AFMOE_FORMAT, "a tensor name of 1025 bytes", "long name");
        safetensors_writer_free(&w);
        buffer_free(&bytes);
        name[n] = 'n';
    }
}

/* Nothing but names: neither memory nor time may be of another order than the file. */
static void test_many_names(void **state)
{
    (void)state;
    enum { N = 60000 };
    struct buffer text = {0}, bytes = {0};
    struct timespec begin, end;
    char entry[96];
    for (int i = 0; i < N; i++) {
        int n = snprintf(entry, sizeof entry, "%c\"%x\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}",
                         i ? ',' : '{', (unsigned)i);
        buffer_put(&text, entry, (uint64_t)n);
    }
    buffer_put(&text, "}", 1);
    buffer_put_u64(&bytes, text.n);
    buffer_put(&bytes, text.data, text.n);
    scratch_write(&scratch, "model.safetensors", bytes.data, bytes.n);
    buffer_free(&text);
    buffer_free(&bytes);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    check_refused(scratch.path, AFMOE_FORMAT, "\"model.embed_tokens.weight\" is missing", "many names");
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(end.tv_sec - begin.tv_sec < 20);
}

/* Data at every address modulo 8, as headers of any length are legal. */
static void test_unaligned_data(void **state)
{
    (void)state;
    for (uint64_t n_spaces = 0; n_spaces < 8; n_spaces++) {
        struct safetensors_writer w;
        struct buffer bytes, shifted = {0};
        struct checkpoint c;
        struct checkpoint_options options = plain_options();
        safetensors_writer_init(&w);
        safetensors_add_tiny(&w, FORMAT_BF16);
        safetensors_serialise(&w, &bytes);
        uint64_t n_header = bytes.n - 8 - w.data.n;
        buffer_put_u64(&shifted, n_header + n_spaces);
        buffer_put(&shifted, bytes.data + 8, n_header);
        for (uint64_t i = 0; i < n_spaces; i++) buffer_put(&shifted, " ", 1);
        buffer_put(&shifted, w.data.data, w.data.n);
        scratch_write(&scratch, "model.safetensors", shifted.data, shifted.n);
        check_open(&c, scratch.path, &options, AFMOE_OK, "", "unaligned");
        for (uint64_t i = 0; i < 32; i++) assert_true(c.weights.norm[i] == tiny_element(i));
        assert_memory_equal(c.weights.embedding.data, w.data.data, 40 * 32 * 2);
        assert_true(touch_view(&c) == touch_view(&c));
        afmoe__checkpoint_close(&c);
        safetensors_writer_free(&w);
        buffer_free(&bytes);
        buffer_free(&shifted);
    }
}

/* ---- Shards ----------------------------------------------------------------------------------------------------- */

/* The tiny model in one shard a.safetensors, a stray tensor in b.safetensors, and an index with changes. */
static json_t *write_shards(void)
{
    struct safetensors_writer w;
    struct buffer bytes;
    uint64_t shape = 1;
    json_t *map = json_object(), *entry;
    const char *name;
    drop("model.safetensors");
    safetensors_writer_init(&w);
    safetensors_add_tiny(&w, FORMAT_BF16);
    json_object_foreach(w.header, name, entry) json_object_set_new(map, name, json_string("a.safetensors"));
    safetensors_serialise(&w, &bytes);
    scratch_write(&scratch, "a.safetensors", bytes.data, bytes.n);
    safetensors_writer_free(&w);
    buffer_free(&bytes);
    safetensors_writer_init(&w);
    safetensors_add(&w, "stray", "F32", 1, &shape, "abcd", 4);
    safetensors_serialise(&w, &bytes);
    scratch_write(&scratch, "b.safetensors", bytes.data, bytes.n);
    safetensors_writer_free(&w);
    buffer_free(&bytes);
    return map;
}

static const struct {
    const char *name, *tensor, *file; /* file NULL: 1, a number */
    int32_t status;
    const char *part;
} maps[] = {
    {"as it is", "model.norm.weight", "a.safetensors", AFMOE_OK, ""},
    {"parent folder", "stray", "../a.safetensors", AFMOE_FORMAT, "../a.safetensors"},
    {"absolute", "stray", "/etc/passwd", AFMOE_FORMAT, "/etc/passwd"},
    {"..", "stray", "..", AFMOE_FORMAT, "\"..\""},
    {"empty", "stray", "", AFMOE_FORMAT, "\"\" is no file name"},
    {"hidden", "stray", ".b.safetensors", AFMOE_FORMAT, ".b.safetensors"},
    {"backslash", "stray", "..\\b", AFMOE_FORMAT, "..\\b"},
    {"missing", "stray", "c.safetensors", AFMOE_FORMAT, "shard \"c.safetensors\" is missing"},
    {"a folder", "stray", "folder", AFMOE_FORMAT, "not a regular file"},
    {"shard without the tensor", "stray", "a.safetensors", AFMOE_FORMAT,
     "\"stray\" is said to be in \"a.safetensors\""},
    {"tensor in the other shard", "model.norm.weight", "b.safetensors", AFMOE_FORMAT, "\"model.norm.weight\" is said"},
    {"file no string", "stray", NULL, AFMOE_FORMAT, "\"stray\" is no string"},
};

static void test_shards(void **state)
{
    (void)state;
    mkdir(scratch_path(&scratch, "folder"), 0700);
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        json_t *map = write_shards();
        json_object_set_new(map, maps[i].tensor, maps[i].file ? json_string(maps[i].file) : json_integer(1));
        json_t *index = json_pack("{s:{}, s:o}", "metadata", "weight_map", map);
        scratch_write_json(&scratch, "model.safetensors.index.json", index);
        check_refused(scratch.path, maps[i].status, maps[i].part, maps[i].name);
        json_decref(index);
    }
}

static void check_index(json_t *index, int32_t status, const char *part)
{
    scratch_write_json(&scratch, "model.safetensors.index.json", index);
    check_refused(scratch.path, status, part, part);
    json_decref(index);
}

static void test_indices(void **state)
{
    (void)state;
    json_decref(write_shards());
    check_index(json_array(), AFMOE_FORMAT, "weight_map is missing");
    check_index(json_pack("{s:i}", "weight_map", 1), AFMOE_FORMAT, "weight_map is an integer");
    check_index(json_pack("{s:{}}", "weight_map"), AFMOE_FORMAT, "names 0 files");
    json_t *map = json_object();
    for (int i = 0; i <= 10000; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", i);
        json_object_set_new(map, name, json_string(name));
    }
    check_index(json_pack("{s:o}", "weight_map", map), AFMOE_FORMAT, "names 10001 files");
    /* The same tensor in two shards. */
    struct safetensors_writer w;
    struct buffer bytes;
    safetensors_writer_init(&w);
    safetensors_add_tiny(&w, FORMAT_BF16);
    safetensors_serialise(&w, &bytes);
    scratch_write(&scratch, "b.safetensors", bytes.data, bytes.n);
    map = json_pack("{s:s, s:s}", "model.norm.weight", "a.safetensors", "lm_head.weight", "b.safetensors");
    check_index(json_pack("{s:o}", "weight_map", map), AFMOE_FORMAT, "occurs twice");
    safetensors_writer_free(&w);
    buffer_free(&bytes);
    drop("model.safetensors.index.json");
    check_refused(scratch.path, AFMOE_NOT_FOUND, "neither model.safetensors nor", "no weights");
}

/* Links of the hub's cache are followed, links that leave it are not. */
static void test_links(void **state)
{
    (void)state;
    char snapshot[300], outside[300];
    struct scratch cache;
    scratch_make(&cache);
    static const char *const folders[] = {"blobs", "snapshots", "snapshots/abc"};
    for (int i = 0; i < 3; i++) assert_int_equal(mkdir(scratch_path(&cache, folders[i]), 0700), 0);
    snprintf(snapshot, sizeof snapshot, "%s/snapshots/abc", cache.path);
    struct safetensors_writer w;
    struct buffer bytes;
    json_t *config = tiny_config();
    safetensors_writer_init(&w);
    safetensors_add_tiny(&w, FORMAT_F16);
    safetensors_serialise(&w, &bytes);
    scratch_write_json(&cache, "blobs/1234", config);
    scratch_write(&cache, "blobs/5678", bytes.data, bytes.n);
    assert_int_equal(symlink("../../blobs/1234", scratch_path(&cache, "snapshots/abc/config.json")), 0);
    assert_int_equal(symlink("../../blobs/5678", scratch_path(&cache, "snapshots/abc/model.safetensors")), 0);
    check_refused(snapshot, AFMOE_OK, "", "the hub's cache");
    scratch_write(&scratch, "outside", bytes.data, bytes.n);
    snprintf(outside, sizeof outside, "%s", scratch_path(&scratch, "outside"));
    unlink(scratch_path(&cache, "snapshots/abc/model.safetensors"));
    assert_int_equal(symlink(outside, scratch_path(&cache, "snapshots/abc/model.safetensors")), 0);
    check_refused(snapshot, AFMOE_FORMAT, "outside of", "a link out of the cache");
    unlink(scratch_path(&cache, "snapshots/abc/model.safetensors"));
    assert_int_equal(symlink("model.safetensors", scratch_path(&cache, "snapshots/abc/model.safetensors")), 0);
    check_refused(snapshot, AFMOE_IO, "model.safetensors", "a link to itself");
    json_decref(config);
    safetensors_writer_free(&w);
    buffer_free(&bytes);
    scratch_remove(&cache);
}

/* ---- Every cut, every flipped bit ------------------------------------------------------------------------------- */

static uint64_t write_tiny(struct buffer *bytes)
{
    struct safetensors_writer w;
    safetensors_writer_init(&w);
    safetensors_add_tiny(&w, FORMAT_BF16);
    safetensors_serialise(&w, bytes);
    safetensors_writer_free(&w);
    scratch_write(&scratch, "model.safetensors", bytes->data, bytes->n);
    return 8 + bytes->data[0] + 256u * bytes->data[1];
}

static void test_truncated_everywhere(void **state)
{
    (void)state;
    struct buffer bytes;
    uint64_t n_header = write_tiny(&bytes);
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path(&scratch, "model.safetensors"));
    for (uint64_t n = bytes.n; n-- > 0;) {
        if (n > n_header + 64 && n % 61 != 0) continue;
        assert_int_equal(truncate(path, (off_t)n), 0);
        check_refused(scratch.path, AFMOE_TRUNCATED, "model.safetensors", "cut");
    }
    buffer_free(&bytes);
}

static void test_every_bit_flipped(void **state)
{
    (void)state;
    struct buffer bytes;
    uint64_t n_header = write_tiny(&bytes);
    struct flips flips = flip_every_bit(scratch.path, scratch_path(&scratch, "model.safetensors"), 8 * n_header);
    buffer_free(&bytes);
    assert_true(flips.n_opened < n_header);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_name_lengths),
        cmocka_unit_test(test_many_names),
        cmocka_unit_test(test_unaligned_data),
        cmocka_unit_test(test_truncated_everywhere),
        cmocka_unit_test(test_every_bit_flipped),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_indices),
        cmocka_unit_test(test_links),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
