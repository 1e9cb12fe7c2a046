/* What surrounds the weights: kinds of paths, generation_config.json, tokenizer_config.json, tokenizer only. */
#define _XOPEN_SOURCE 700 /* mkfifo */

#include "fixture_writer.h"
#include "opening.h"

#include <sys/stat.h>

static struct scratch scratch;

static int make_scratch(void **state)
{
    (void)state;
    scratch_make(&scratch);
    struct safetensors_writer w;
    json_t *config = tiny_config();
    safetensors_writer_init(&w);
    safetensors_add_tiny(&w, FORMAT_F32);
    write_tiny_hub(&scratch, config, &w);
    safetensors_writer_free(&w);
    json_decref(config);
    return 0;
}

static int remove_scratch(void **state)
{
    (void)state;
    scratch_remove(&scratch);
    return 0;
}

static void write_text(const char *name, const char *text)
{
    scratch_write(&scratch, name, text, strlen(text));
}

static void test_path_kinds(void **state)
{
    (void)state;
    struct scratch empty;
    scratch_make(&empty);
    check_refused("/nonexistent/folder", AFMOE_NOT_FOUND, "\"/nonexistent/folder\" does not exist", "missing");
    check_refused(empty.path, AFMOE_NOT_FOUND, "no config.json in", "empty folder");
    check_refused(scratch_path(&scratch, "model.safetensors"), AFMOE_FORMAT, "opened by its folder", "one shard");
    assert_int_equal(mkfifo(scratch_path(&empty, "fifo"), 0600), 0);
    check_refused(scratch_path(&empty, "fifo"), AFMOE_FORMAT, "neither a file nor a folder", "FIFO");
    assert_int_equal(mkfifo(scratch_path(&empty, "config.json"), 0600), 0);
    check_refused(empty.path, AFMOE_FORMAT, "not a regular file", "config.json a FIFO");
    scratch_remove(&empty);
}

/* ---- Read ---- */

static int32_t count_call(void *user_data, uint64_t done, uint64_t total)
{
    assert_true(done <= total);
    ++*(int *)user_data;
    return 0;
}

/* Opens with READ and counts the steps of reading; the vectors are those of a mapped checkpoint. */
static int count_steps(const char *path, int32_t status, const char *part)
{
    int n = 0;
    struct checkpoint read, mapped;
    struct checkpoint_options options = plain_options();
    if (!status) check_open(&mapped, path, &options, status, part, path);
    options.read = true;
    options.progress = count_call;
    options.progress_data = &n;
    check_open(&read, path, &options, status, part, path);
    if (!status) {
        assert_memory_equal(read.weights.norm, mapped.weights.norm, read.config.hidden_size * sizeof(float));
        assert_true(read.weights.norm[0] != 0 && touch_view(&read) == touch_view(&mapped));
        afmoe__checkpoint_close(&mapped);
    }
    afmoe__checkpoint_close(&read);
    return n;
}

static int count_steps_of_gguf(void (*change)(struct gguf_writer *), int32_t status, const char *part)
{
    struct gguf_writer w;
    struct buffer bytes;
    uint64_t n_header;
    gguf_writer_init(&w, FORMAT_F16);
    change(&w);
    gguf_serialise(&w, &bytes, &n_header);
    scratch_write(&scratch, "read.gguf", bytes.data, bytes.n);
    gguf_writer_free(&w);
    buffer_free(&bytes);
    return count_steps(scratch_path(&scratch, "read.gguf"), status, part);
}

static void change_nothing(struct gguf_writer *w)
{
    (void)w;
}

static void widen_output(struct gguf_writer *w)
{
    struct written_tensor *t = gguf_writer_tensor(w, "output.weight");
    t->dims[1]++;
    t->n_elements += t->dims[0];
}

static void drop_last_norm(struct gguf_writer *w)
{
    gguf_drop_tensor(w, "output_norm.weight");
}

/* Weights of a checkpoint that does not fit its configuration may be many GB: not one is read. */
static void test_refused_before_it_is_read(void **state)
{
    (void)state;
    assert_true(count_steps_of_gguf(change_nothing, AFMOE_OK, "") > 0);
    assert_int_equal(count_steps_of_gguf(widen_output, AFMOE_FORMAT, "output.weight\": shape [41, 32]"), 0);
    assert_int_equal(count_steps_of_gguf(drop_last_norm, AFMOE_FORMAT, "\"output_norm.weight\" is missing"), 0);
    assert_true(count_steps(scratch.path, AFMOE_OK, "") > 0);
    json_t *config = tiny_config();
    json_object_set_new(config, "vocab_size", json_integer(41));
    scratch_write_json(&scratch, "config.json", config);
    assert_int_equal(count_steps(scratch.path, AFMOE_FORMAT, "shape [40, 32], expected [41, 32]"), 0);
    json_object_set_new(config, "vocab_size", json_integer(40));
    scratch_write_json(&scratch, "config.json", config);
    json_decref(config);
}

/* ---- generation_config.json ---- */

static const struct {
    const char *text;
    int32_t status;
    const char *part;
} generations[] = {
    {"{}", AFMOE_OK, ""},
    {"[]", AFMOE_FORMAT, "generation_config.json: the document is an array"},
    {"{", AFMOE_FORMAT, "generation_config.json: ends at byte 1"},
    {"{\"temperature\": \"1\"}", AFMOE_FORMAT, "temperature is a string"},
    {"{\"temperature\": -1}", AFMOE_FORMAT, "temperature is -1, expected 0..100"},
    {"{\"top_p\": 1.5}", AFMOE_FORMAT, "top_p is 1.5, expected 0..1"},
    {"{\"min_p\": true}", AFMOE_FORMAT, "min_p is a boolean"},
    {"{\"top_k\": 1.5}", AFMOE_FORMAT, "top_k is a fraction"},
    {"{\"top_k\": -1}", AFMOE_FORMAT, "top_k is -1"},
    {"{\"repetition_penalty\": 0}", AFMOE_FORMAT, "repetition_penalty is 0"},
    {"{\"do_sample\": 1}", AFMOE_FORMAT, "do_sample is an integer"},
    {"{\"eos_token_id\": \"3\"}", AFMOE_FORMAT, "eos_token_id is a string"},
    {"{\"eos_token_id\": [3, null]}", AFMOE_FORMAT, "eos_token_id is null"},
    {"{\"eos_token_id\": 40}", AFMOE_FORMAT, "eos_token_id is 40, expected 0..39"},
    {"{\"eos_token_id\": [3, -1]}", AFMOE_FORMAT, "eos_token_id is -1"},
    {"{\"temperature\": null, \"top_k\": null, \"eos_token_id\": null, \"do_sample\": null}", AFMOE_OK, ""},
};

static void test_generation_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof generations / sizeof *generations; i++) {
        write_text("generation_config.json", generations[i].text);
        check_refused(scratch.path, generations[i].status, generations[i].part, generations[i].text);
    }
    unlink(scratch_path(&scratch, "generation_config.json"));
}

static void test_generation_read(void **state)
{
    (void)state;
    struct checkpoint c;
    struct checkpoint_options options = plain_options();
    write_text("generation_config.json",
               "{\"eos_token_id\": [3, 1], \"temperature\": 0.3, \"top_p\": 0.8, \"top_k\": 50,"
               "\"min_p\": 0.06, \"repetition_penalty\": 1.1, \"do_sample\": true}");
    check_open(&c, scratch.path, &options, AFMOE_OK, "", "generation");
    const struct generation_config *g = &c.generation;
    assert_int_equal(g->n_eos_tokens, 2);
    assert_true(g->eos_tokens[0] == 3 && g->eos_tokens[1] == 1);
    assert_true(g->has_temperature && g->temperature == 0.3 && g->has_top_p && g->top_p == 0.8);
    assert_true(g->has_top_k && g->top_k == 50 && g->has_min_p && g->min_p == 0.06);
    assert_true(g->has_repetition_penalty && g->repetition_penalty == 1.1 && g->has_do_sample && g->do_sample);
    assert_false(c.add_bos);
    assert_null(c.tokenizer_json.data);
    afmoe__checkpoint_close(&c);
    unlink(scratch_path(&scratch, "generation_config.json"));
}

/* A list in config.json is a stop set as well, where generation_config.json names none. */
static void test_config_eos_list(void **state)
{
    (void)state;
    struct checkpoint c;
    struct checkpoint_options options = plain_options();
    json_t *config = tiny_config();
    json_object_set_new(config, "eos_token_id", json_pack("[i,i]", 7, 8));
    scratch_write_json(&scratch, "config.json", config);
    check_open(&c, scratch.path, &options, AFMOE_OK, "", "list");
    assert_int_equal(c.config.eos_token, 7);
    assert_int_equal(c.generation.n_eos_tokens, 2);
    assert_int_equal(c.generation.eos_tokens[1], 8);
    afmoe__checkpoint_close(&c);
    write_text("generation_config.json", "{\"eos_token_id\": 3}");
    check_open(&c, scratch.path, &options, AFMOE_OK, "", "one");
    assert_int_equal(c.generation.n_eos_tokens, 1);
    assert_int_equal(c.generation.eos_tokens[0], 3);
    afmoe__checkpoint_close(&c);
    unlink(scratch_path(&scratch, "generation_config.json"));
    json_object_del(config, "eos_token_id");
    scratch_write_json(&scratch, "config.json", config);
    json_decref(config);
}

static void test_tokenizer_files(void **state)
{
    (void)state;
    struct checkpoint c;
    struct checkpoint_options options = plain_options();
    write_text("tokenizer.json", "{\"version\": \"1.0\"}");
    write_text("tokenizer_config.json", "{\"add_bos_token\": true}");
    check_open(&c, scratch.path, &options, AFMOE_OK, "", "tokenizer files");
    assert_true(c.add_bos && c.has_weights);
    assert_int_equal(c.tokenizer_json.size, 18);
    afmoe__checkpoint_close(&c);
    write_text("tokenizer_config.json", "{\"add_bos_token\": 1}");
    check_refused(scratch.path, AFMOE_FORMAT, "tokenizer_config.json: add_bos_token is an integer", "add_bos");
    write_text("tokenizer_config.json", "[]");
    check_refused(scratch.path, AFMOE_FORMAT, "tokenizer_config.json: the document is an array", "add_bos");
    write_text("tokenizer_config.json", "{\"add_bos_token\": null}");
    check_refused(scratch.path, AFMOE_OK, "", "null");
}

static void test_tokenizer_only(void **state)
{
    (void)state;
    struct checkpoint c;
    struct scratch only;
    struct checkpoint_options options = plain_options();
    options.tokenizer_only = true;
    scratch_make(&only);
    check_open(&c, only.path, &options, AFMOE_NOT_FOUND, "tokenizer.json", "no tokenizer");
    scratch_write(&only, "tokenizer.json", "{}", 2);
    check_open(&c, only.path, &options, AFMOE_OK, "", "folder");
    assert_int_equal(c.container, AFMOE_CONTAINER_TOKENIZER);
    assert_int_equal(c.layout, AFMOE_LAYOUT_NONE);
    assert_false(c.has_weights);
    assert_int_equal(c.config.bos_token, -1);
    afmoe__checkpoint_close(&c);
    scratch_write(&only, "config.json", "{\"model_type\": \"other\", \"eos_token_id\": 5}", 42);
    check_open(&c, only.path, &options, AFMOE_OK, "", "another model's config");
    assert_int_equal(c.config.eos_token, 5);
    assert_int_equal(c.config.bos_token, -1);
    afmoe__checkpoint_close(&c);
    check_open(&c, scratch_path(&only, "tokenizer.json"), &options, AFMOE_OK, "", "file");
    assert_int_equal(c.container, AFMOE_CONTAINER_TOKENIZER);
    assert_int_equal(c.tokenizer_json.size, 2);
    assert_int_equal(c.config.eos_token, -1);
    afmoe__checkpoint_close(&c);
    /* GGUF: neither architecture nor formats matter. */
    struct gguf_writer w;
    struct buffer bytes;
    uint64_t n_header;
    gguf_writer_init(&w, FORMAT_F32);
    gguf_set_string(&w, "general.architecture", "llama");
    gguf_set_u32(&w, "tokenizer.ggml.eos_token_id", 3);
    gguf_serialise(&w, &bytes, &n_header);
    scratch_write(&only, "t.gguf", bytes.data, bytes.n);
    check_open(&c, scratch_path(&only, "t.gguf"), &options, AFMOE_OK, "", "GGUF");
    assert_int_equal(c.container, AFMOE_CONTAINER_GGUF);
    assert_non_null(c.gguf);
    assert_false(c.has_weights);
    assert_int_equal(c.config.eos_token, 3);
    afmoe__checkpoint_close(&c);
    gguf_writer_free(&w);
    buffer_free(&bytes);
    scratch_remove(&only);
}

/* Closing twice, and after a failure, is fine. */
static void test_close(void **state)
{
    (void)state;
    struct checkpoint c = {0};
    struct checkpoint_options options = plain_options();
    afmoe__checkpoint_close(&c);
    assert_int_equal(afmoe__checkpoint_open(&c, "/nonexistent", &options, NULL), AFMOE_NOT_FOUND);
    afmoe__checkpoint_close(&c);
    afmoe__checkpoint_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_path_kinds),
        cmocka_unit_test(test_refused_before_it_is_read),
        cmocka_unit_test(test_generation_refused),
        cmocka_unit_test(test_generation_read),
        cmocka_unit_test(test_config_eos_list),
        cmocka_unit_test(test_tokenizer_files),
        cmocka_unit_test(test_tokenizer_only),
        cmocka_unit_test(test_close),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
