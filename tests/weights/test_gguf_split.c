/* GGUF files split into parts: whole ones open as the file they were made of, and every part that is missing, mixed up
 * or lying is named. */
#include "fixture_writer.h"
#include "opening.h"

enum { N_PARTS = 3 };

static struct scratch scratch;

/* What is done to one part before it is written. */
struct fault {
    uint32_t part;
    const char *key; /* set to `value`; dropped with value -1 */
    int64_t value;
    const char *drop_tensor, *rename_from, *rename_to;
    uint64_t cut; /* bytes at the end */
};

static const char *part_name(uint32_t part, uint32_t n_parts)
{
    static char name[64];
    snprintf(name, sizeof name, "tiny-%05u-of-%05u.gguf", part + 1, n_parts);
    return name;
}

static void write_part(uint32_t part, const struct fault *fault)
{
    struct gguf_writer w;
    struct buffer bytes;
    uint64_t n_header;
    gguf_writer_init_part(&w, FORMAT_Q8_0, part, N_PARTS);
    if (fault && fault->part == part) {
        if (fault->key && fault->value < 0) gguf_drop(&w, fault->key);
        if (fault->key && fault->value >= 0) gguf_set_u32(&w, fault->key, (uint32_t)fault->value);
        if (fault->drop_tensor) gguf_drop_tensor(&w, fault->drop_tensor);
        if (fault->rename_from)
            snprintf(gguf_writer_tensor(&w, fault->rename_from)->name, sizeof w.tensors->name, "%s", fault->rename_to);
        w.drop_tail = fault->cut;
    }
    gguf_serialise(&w, &bytes, &n_header);
    scratch_write(&scratch, part_name(part, N_PARTS), bytes.data, bytes.n);
    gguf_writer_free(&w);
    buffer_free(&bytes);
}

static const char *write_parts(const struct fault *fault)
{
    for (uint32_t part = 0; part < N_PARTS; part++) write_part(part, fault);
    return scratch_path(&scratch, part_name(0, N_PARTS));
}

static void check_same(const struct matrix *a, const struct matrix *b)
{
    assert_true(a->format == b->format && a->n_rows == b->n_rows && a->n_columns == b->n_columns);
    if (a->n_rows) assert_memory_equal(a->data, b->data, a->n_rows * a->row_bytes);
}

static void test_opens_as_the_whole(void **state)
{
    (void)state;
    struct gguf_writer w;
    struct buffer bytes;
    uint64_t n_header;
    struct checkpoint whole, split;
    struct checkpoint_options options = plain_options();
    gguf_writer_init(&w, FORMAT_Q8_0);
    gguf_serialise(&w, &bytes, &n_header);
    scratch_write(&scratch, "whole.gguf", bytes.data, bytes.n);
    check_open(&whole, scratch_path(&scratch, "whole.gguf"), &options, AFMOE_OK, "", "whole");
    check_open(&split, write_parts(NULL), &options, AFMOE_OK, "", "split");
    assert_int_equal(split.container, AFMOE_CONTAINER_GGUF);
    assert_int_equal(split.weights.n_parameters, whole.weights.n_parameters);
    assert_int_equal(split.weights.weight_bytes, whole.weights.weight_bytes);
    assert_int_equal(split.config.vocab_size, 40);
    assert_false(split.config.tie_word_embeddings); /* output.weight lies in the last part */
    check_same(&split.weights.embedding, &whole.weights.embedding);
    check_same(&split.weights.head, &whole.weights.head);
    for (int l = 0; l < 2; l++) {
        check_same(&split.weights.layers[l].q, &whole.weights.layers[l].q);
        check_same(&split.weights.layers[l].o, &whole.weights.layers[l].o);
    }
    for (int e = 0; e < 4; e++)
        check_same(&split.weights.layers[1].experts[e].up, &whole.weights.layers[1].experts[e].up);
    assert_memory_equal(split.weights.norm, whole.weights.norm, 32 * sizeof(float));
    afmoe__checkpoint_close(&whole);
    afmoe__checkpoint_close(&split);
    gguf_writer_free(&w);
    buffer_free(&bytes);
}

/* gguf-split can leave the first part without tensors. */
static void test_first_part_without_tensors(void **state)
{
    (void)state;
    struct gguf_writer w[2];
    struct checkpoint c;
    struct checkpoint_options options = plain_options();
    gguf_writer_init_part(&w[0], FORMAT_F16, 0, 2);
    gguf_writer_init_part(&w[1], FORMAT_F16, 1, 2);
    for (uint32_t i = 0; i < w[0].n_tensors; i++) w[1].tensors[w[1].n_tensors++] = w[0].tensors[i];
    w[0].n_tensors = 0;
    for (uint32_t part = 0; part < 2; part++) {
        struct buffer bytes;
        uint64_t n_header;
        gguf_serialise(&w[part], &bytes, &n_header);
        scratch_write(&scratch, part_name(part, 2), bytes.data, bytes.n);
        gguf_writer_free(&w[part]);
        buffer_free(&bytes);
    }
    check_open(&c, scratch_path(&scratch, part_name(0, 2)), &options, AFMOE_OK, "", "metadata first");
    assert_int_equal(c.config.vocab_size, 40);
    afmoe__checkpoint_close(&c);
}

static const struct {
    const char *name;
    struct fault fault;
    int32_t status;
    const char *message;
} faults[] = {
    {"number twice", {.part = 2, .key = "split.no", .value = 1}, AFMOE_FORMAT, "tiny-00003-of-00003.gguf: says it is"},
    {"number past the end", {.part = 1, .key = "split.no", .value = 7}, AFMOE_FORMAT, "tiny-00002-of-00003.gguf: says"},
    {"other count", {.part = 1, .key = "split.count", .value = 4}, AFMOE_FORMAT, "tiny-00002-of-00003.gguf: says"},
    {"other total", {.part = 2, .key = "split.tensors.count", .value = 1}, AFMOE_FORMAT, "00003-of-00003.gguf: says"},
    {"no number", {.part = 1, .key = "split.no", .value = -1}, AFMOE_FORMAT, "tiny-00002-of-00003.gguf: key split.no"},
    {"no count", {.part = 1, .key = "split.count", .value = -1}, AFMOE_FORMAT, "00002-of-00003.gguf: key split.count"},
    {"no total", {.part = 0, .key = "split.tensors.count", .value = -1}, AFMOE_FORMAT,
     "tiny-00001-of-00003.gguf: key split.tensors.count"},
    {"first is another", {.part = 0, .key = "split.no", .value = 1}, AFMOE_FORMAT, "is part 2 of 3"},
    {"more parts than the name says", {.part = 0, .key = "split.count", .value = 5}, AFMOE_FORMAT, "of-00005.gguf"},
    {"endless parts", {.part = 0, .key = "split.count", .value = 4000000000}, AFMOE_FORMAT,
     "split.count is 4000000000"},
    {"tensor lost", {.part = 1, .drop_tensor = "output_norm.weight"}, AFMOE_FORMAT,
     "says 36 tensors, the 3 parts have 35"},
    {"tensor in two parts", {.part = 1, .rename_from = "output_norm.weight", .rename_to = "token_embd.weight"},
     AFMOE_FORMAT, "\"token_embd.weight\" occurs twice, in tiny-0000"},
    {"part cut", {.part = 2, .cut = 1}, AFMOE_TRUNCATED, "tiny-00003-of-00003.gguf: tensor"},
};

static void test_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        check_refused(write_parts(&faults[i].fault), faults[i].status, faults[i].message, faults[i].name);
}

static void test_part_missing(void **state)
{
    (void)state;
    char path[512];
    for (uint32_t part = 1; part < N_PARTS; part++) {
        snprintf(path, sizeof path, "%s", write_parts(NULL));
        assert_int_equal(remove(scratch_path(&scratch, part_name(part, N_PARTS))), 0);
        check_refused(path, AFMOE_FORMAT, part_name(part, N_PARTS), "missing");
    }
}

static void test_part_is_no_gguf(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", write_parts(NULL));
    scratch_write(&scratch, part_name(1, N_PARTS), "no GGUF file, but one of some length", 36);
    check_refused(path, AFMOE_FORMAT, "tiny-00002-of-00003.gguf: does not begin", "no GGUF");
    scratch_write(&scratch, part_name(1, N_PARTS), "", 0);
    check_refused(path, AFMOE_TRUNCATED, "tiny-00002-of-00003.gguf", "empty");
}

static void test_name_without_number(void **state)
{
    (void)state;
    char path[512];
    write_parts(NULL);
    snprintf(path, sizeof path, "%s", scratch_path(&scratch, part_name(0, N_PARTS)));
    assert_int_equal(rename(path, scratch_path(&scratch, "renamed.gguf")), 0);
    check_refused(scratch_path(&scratch, "renamed.gguf"), AFMOE_FORMAT, "-00001-of-00003.gguf", "renamed");
    check_refused(scratch_path(&scratch, part_name(1, N_PARTS)), AFMOE_FORMAT, "is part 2 of 3", "second part opened");
}

/* Read instead of mapped: every part's bytes are loaded. */
static void test_read_mode(void **state)
{
    (void)state;
    struct checkpoint mapped, read;
    struct checkpoint_options options = plain_options();
    const char *path = write_parts(NULL);
    check_open(&mapped, path, &options, AFMOE_OK, "", "mapped");
    options.read = true;
    check_open(&read, path, &options, AFMOE_OK, "", "read");
    check_same(&read.weights.embedding, &mapped.weights.embedding);
    check_same(&read.weights.head, &mapped.weights.head);
    check_same(&read.weights.layers[1].shared.down, &mapped.weights.layers[1].shared.down);
    assert_true(touch_view(&read) == touch_view(&mapped));
    afmoe__checkpoint_close(&mapped);
    afmoe__checkpoint_close(&read);
}

/* Without a path the other parts cannot be found. */
static void test_from_memory(void **state)
{
    (void)state;
    struct gguf_writer w;
    struct buffer bytes;
    uint64_t n_header;
    struct checkpoint c;
    struct checkpoint_options options = plain_options();
    afmoe_error error = {.size = sizeof error};
    gguf_writer_init_part(&w, FORMAT_Q8_0, 0, N_PARTS);
    gguf_serialise(&w, &bytes, &n_header);
    const struct checkpoint_source source = {.kind = SOURCE_MEMORY, .data = bytes.data, .length = bytes.n};
    assert_int_equal(afmoe__checkpoint_open_source(&c, &source, &options, &error), AFMOE_UNSUPPORTED);
    assert_non_null(strstr(error.message, "is the first of 3 parts"));
    afmoe__checkpoint_close(&c);
    gguf_writer_free(&w);
    buffer_free(&bytes);
}

static int make_scratch(void **state)
{
    (void)state;
    scratch_make(&scratch);
    return 0;
}

static int remove_scratch(void **state)
{
    (void)state;
    scratch_remove(&scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opens_as_the_whole), cmocka_unit_test(test_first_part_without_tensors),
        cmocka_unit_test(test_faults),             cmocka_unit_test(test_part_missing),
        cmocka_unit_test(test_part_is_no_gguf),    cmocka_unit_test(test_name_without_number),
        cmocka_unit_test(test_read_mode),          cmocka_unit_test(test_from_memory),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
