/* The JSON files of a folder: every cut of each is refused with the file named, every flipped bit is refused or the
 * folder opens and is whole, and a file above the cap is refused unread. */
#define _XOPEN_SOURCE 700 /* truncate, pwrite */

#include "fixture_writer.h"
#include "opening.h"


static struct scratch scratch;

/* A folder with one of each: weights in two shards. */
static int make_folder(void **state)
{
    (void)state;
    struct safetensors_writer whole, shards[2];
    struct buffer bytes;
    json_t *config = tiny_config(), *map = json_object(), *entry;
    const char *name;
    int n_tensors = 0;
    scratch_make(&scratch);
    safetensors_writer_init(&whole);
    safetensors_add_tiny(&whole, FORMAT_BF16);
    for (int i = 0; i < 2; i++) safetensors_writer_init(&shards[i]);
    json_object_foreach(whole.header, name, entry) {
        int shard = strstr(name, "layers.1") != NULL;
        uint64_t shape[2], n_dims = json_array_size(json_object_get(entry, "shape"));
        for (uint64_t d = 0; d < n_dims; d++) {
            shape[d] = (uint64_t)json_integer_value(json_array_get(json_object_get(entry, "shape"), d));
        }
        const json_t *offsets = json_object_get(entry, "data_offsets");
        uint64_t begin = (uint64_t)json_integer_value(json_array_get(offsets, 0));
        uint64_t end = (uint64_t)json_integer_value(json_array_get(offsets, 1));
        safetensors_add(&shards[shard], name, "BF16", (uint32_t)n_dims, shape, whole.data.data + begin, end - begin);
        if (n_tensors++ % 10 > 0) continue; /* an index may name a part */
        json_object_set_new(map, name, json_string(shard ? "b.safetensors" : "a.safetensors"));
    }
    for (int i = 0; i < 2; i++) {
        safetensors_serialise(&shards[i], &bytes);
        scratch_write(&scratch, i ? "b.safetensors" : "a.safetensors", bytes.data, bytes.n);
        buffer_free(&bytes);
        safetensors_writer_free(&shards[i]);
    }
    safetensors_writer_free(&whole);
    json_t *index = json_pack("{s:{s:i}, s:o}", "metadata", "total_size", 1, "weight_map", map);
    json_t *generation = json_pack("{s:[i,i], s:f, s:f, s:i, s:f, s:f, s:b}", "eos_token_id", 3, 4, "temperature", 0.15,
                                   "top_p", 0.75, "top_k", 50, "min_p", 0.06, "repetition_penalty", 1.1, "do_sample",
                                   1);
    json_t *tokenizer_config = json_pack("{s:b, s:s}", "add_bos_token", 1, "bos_token", "<s>");
    json_object_set_new(config, "rope_scaling", json_pack("{s:s, s:f, s:i, s:b}", "rope_type", "yarn", "factor", 4.0,
                                                          "original_max_position_embeddings", 32, "truncate", 1));
    scratch_write_json(&scratch, "config.json", config);
    scratch_write_json(&scratch, "generation_config.json", generation);
    scratch_write_json(&scratch, "tokenizer_config.json", tokenizer_config);
    scratch_write_json(&scratch, "model.safetensors.index.json", index);
    scratch_write(&scratch, "tokenizer.json", "{}", 2);
    json_decref(config);
    json_decref(generation);
    json_decref(tokenizer_config);
    json_decref(index);
    check_refused(scratch.path, AFMOE_OK, "", "as it is");
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    scratch_remove(&scratch);
    return 0;
}

static const char *const files[] = {"config.json", "generation_config.json", "tokenizer_config.json",
                                    "model.safetensors.index.json"};
enum { N_FILES = sizeof files / sizeof *files };

static struct buffer read_whole(const char *path)
{
    struct buffer out = {0};
    uint8_t chunk[4096];
    size_t n;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0) buffer_put(&out, chunk, n);
    fclose(file);
    return out;
}

static void test_truncated_everywhere(void **state)
{
    (void)state;
    for (int i = 0; i < N_FILES; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s", scratch_path(&scratch, files[i]));
        struct buffer bytes = read_whole(path);
        for (uint64_t n = bytes.n; n-- > 0;) {
            assert_int_equal(truncate(path, (off_t)n), 0);
            check_refused(scratch.path, AFMOE_FORMAT, files[i], files[i]);
        }
        scratch_write(&scratch, files[i], bytes.data, bytes.n);
        buffer_free(&bytes);
    }
    check_refused(scratch.path, AFMOE_OK, "", "as it was");
}

/* Refused is FORMAT or UNSUPPORTED; the index may name a shard that is not there, config.json another shape. */
static void test_every_bit_flipped(void **state)
{
    (void)state;
    for (int i = 0; i < N_FILES; i++) {
        const char *path = scratch_path(&scratch, files[i]);
        struct flips flips = flip_every_bit(scratch.path, path, 8 * bytes_of_path(path));
        assert_true(flips.n_format + flips.n_unsupported > 0);
        assert_int_equal(flips.n_truncated + flips.n_limit, 0);
        assert_true(flips.n_opened > 0 || strstr(files[i], "index")); /* every byte of the index matters */
    }
}

/* Any of the files as large as the cap allows: refused, or read at the price of docs/security.md. */
static void test_over_the_cap(void **state)
{
    (void)state;
    for (int i = 0; i < N_FILES; i++) {
        struct checkpoint c;
        struct checkpoint_options options = plain_options();
        struct buffer bytes = read_whole(scratch_path(&scratch, files[i])), large = {0};
        options.max_json_bytes = 4096;
        buffer_put(&large, bytes.data, bytes.n);
        while (large.n < 4097) buffer_put(&large, " ", 1);
        scratch_write(&scratch, files[i], large.data, large.n);
        check_open(&c, scratch.path, &options, AFMOE_LIMIT, files[i], files[i]);
        scratch_write(&scratch, files[i], bytes.data, bytes.n);
        buffer_free(&bytes);
        buffer_free(&large);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncated_everywhere),
        cmocka_unit_test(test_every_bit_flipped),
        cmocka_unit_test(test_over_the_cap),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
