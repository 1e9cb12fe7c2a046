/* GGUF: what opens, and what every hostile container and every bad value in the metadata is answered with. */
#define _XOPEN_SOURCE 700 /* truncate, pwrite */

#include "fixture_writer.h"
#include "opening.h"

#include <math.h>
#include <time.h>


static struct scratch scratch;

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

static const char *save(const struct buffer *bytes)
{
    scratch_write(&scratch, "tiny.gguf", bytes->data, bytes->n);
    return scratch_path(&scratch, "tiny.gguf");
}

/* ---- What opens ------------------------------------------------------------------------------------------------- */

static void check_elements(const struct matrix *m, enum tensor_format format, uint64_t n_rows, uint64_t n_columns,
                           uint64_t first_element)
{
    struct buffer expected = {0};
    buffer_put_elements(&expected, format, first_element + n_rows * n_columns);
    uint64_t skipped = format_row_bytes(format, first_element);
    assert_int_equal(m->format, format);
    assert_int_equal(m->n_rows, n_rows);
    assert_int_equal(m->n_columns, n_columns);
    assert_memory_equal(m->data, expected.data + skipped, expected.n - skipped);
    buffer_free(&expected);
}

static void test_formats(void **state)
{
    (void)state;
    for (int format = 0; format < N_FORMATS; format++) {
        struct gguf_writer w;
        struct buffer bytes;
        uint64_t n_header;
        struct checkpoint c;
        struct checkpoint_options options = plain_options();
        gguf_writer_init(&w, (enum tensor_format)format);
        gguf_serialise(&w, &bytes, &n_header);
        const struct format_traits *t = &afmoe__format_traits[format];
        if (32 % t->block_elements) { /* rows of 32 are no whole blocks */
            char part[80];
            snprintf(part, sizeof part, "elements are no multiple of the %u of a %s block", t->block_elements, t->name);
            check_refused(save(&bytes), AFMOE_FORMAT, part, t->name);
            gguf_writer_free(&w);
            buffer_free(&bytes);
            continue;
        }
        check_open(&c, save(&bytes), &options, AFMOE_OK, "", t->name);
        assert_int_equal(c.container, AFMOE_CONTAINER_GGUF);
        assert_int_equal(c.config.vocab_size, 40);
        assert_true(c.config.mup_enabled && c.config.route_norm && !c.config.tie_word_embeddings);
        assert_false(c.config.layer_is_full[0]);
        assert_true(c.config.layer_is_full[1]);
        assert_int_equal(c.config.eos_token, -1);
        check_elements(&c.weights.layers[0].mlp.down, (enum tensor_format)format, 32, 64, 0);
        check_elements(&c.weights.layers[1].experts[3].up, (enum tensor_format)format, 32, 32, 3 * 32 * 32);
        check_elements(&c.weights.layers[1].router, FORMAT_F32, 4, 32, 0);
        for (uint64_t i = 0; i < 32; i++) assert_true(c.weights.norm[i] == tiny_element(i));
        afmoe__checkpoint_close(&c);
        gguf_writer_free(&w);
        buffer_free(&bytes);
    }
}

/* Every matrix in a format of its own. */
static void test_mixed_formats(void **state)
{
    (void)state;
    static const enum tensor_format formats[] = {FORMAT_Q4_0, FORMAT_Q4_1, FORMAT_Q5_0, FORMAT_Q5_1, FORMAT_Q8_0,
                                                 FORMAT_IQ4_NL, FORMAT_MXFP4, FORMAT_F16, FORMAT_BF16};
    struct gguf_writer w, other;
    struct buffer bytes;
    uint64_t n_header;
    struct checkpoint c;
    struct checkpoint_options options = plain_options();
    gguf_writer_init(&w, FORMAT_F32);
    for (uint32_t i = 0; i < w.n_tensors; i++) {
        struct written_tensor *t = &w.tensors[i];
        if (t->n_dims == 1) continue;
        t->format = formats[i % (sizeof formats / sizeof *formats)];
        gguf_writer_init(&other, t->format);
        t->type = gguf_writer_tensor(&other, "output.weight")->type;
        gguf_writer_free(&other);
    }
    gguf_serialise(&w, &bytes, &n_header);
    check_open(&c, save(&bytes), &options, AFMOE_OK, "", "mixed");
    check_elements(&c.weights.layers[0].q, gguf_writer_tensor(&w, "blk.0.attn_q.weight")->format, 32, 32, 0);
    check_elements(&c.weights.layers[0].k, gguf_writer_tensor(&w, "blk.0.attn_k.weight")->format, 16, 32, 0);
    check_elements(&c.weights.layers[0].mlp.down, gguf_writer_tensor(&w, "blk.0.ffn_down.weight")->format, 32, 64, 0);
    check_elements(&c.weights.layers[1].experts[2].gate, gguf_writer_tensor(&w, "blk.1.ffn_gate_exps.weight")->format,
                   32, 32, 2 * 32 * 32);
    assert_true(c.weights.layers[0].q.format != c.weights.layers[0].k.format);
    assert_true(touch_view(&c) == touch_view(&c));
    afmoe__checkpoint_close(&c);
    gguf_writer_free(&w);
    buffer_free(&bytes);
}

/* ---- Containers ------------------------------------------------------------------------------------------------- */

typedef void edit_fn(struct gguf_writer *w);

#define EDIT(name) static void name(struct gguf_writer *w)
#define TENSOR gguf_writer_tensor(w, "blk.1.attn_q.weight")

EDIT(nothing) { (void)w; }
EDIT(version_0) { w->version = 0; }
EDIT(version_1) { w->version = 1; }
EDIT(version_2) { w->version = 2; }
EDIT(version_4) { w->version = 4; }
EDIT(version_swapped) { w->version = 0x03000000; }
EDIT(tensors_negative) { w->n_tensors_said = UINT64_MAX - 1; }
EDIT(tensors_2_63) { w->n_tensors_said = UINT64_C(1) << 63; }
EDIT(keys_2_63) { w->n_keys_said = UINT64_C(1) << 63; }
EDIT(keys_more) { w->n_keys_said = w->n_keys + 100; }
EDIT(string_endless) { uint64_t n = UINT64_MAX; gguf_set(w, "general.name", GGUF_STRING, &n, 8); }
EDIT(string_past_end) { uint64_t n = 1 << 20; gguf_set(w, "general.name", GGUF_STRING, &n, 8); }
EDIT(type_13) { gguf_set(w, "general.name", 13, "abc", 3); }
EDIT(type_negative) { gguf_set(w, "general.name", UINT32_MAX, "abc", 3); }
EDIT(array_of_arrays) { gguf_set_array(w, "x", GGUF_ARRAY, 1, "\0\0\0\0\0\0\0\0\0\0\0\0", 12); }
EDIT(array_element_13) { gguf_set_array(w, "x", 13, 1, "abcd", 4); }
EDIT(array_wraps) { gguf_set_array(w, "x", GGUF_U64, (UINT64_C(1) << 61) + 1, "abcdefgh", 8); }
EDIT(array_past_end) { gguf_set_array(w, "x", GGUF_U8, 1 << 20, "a", 1); }
EDIT(strings_past_end) { gguf_set_array(w, "x", GGUF_STRING, UINT64_C(1) << 60, "", 0); }
EDIT(key_twice) { gguf_append_u32(w, "afmoe.block_count", 2); }
EDIT(key_empty) { gguf_append_u32(w, "", 2); }
EDIT(align_0) { gguf_set_u32(w, "general.alignment", 0); }
EDIT(align_48) { gguf_set_u32(w, "general.alignment", 48); }
EDIT(align_128k) { gguf_set_u32(w, "general.alignment", 131072); }
EDIT(align_text) { gguf_set_string(w, "general.alignment", "32"); }
EDIT(align_64) { gguf_set_u32(w, "general.alignment", 64); w->alignment = 64; }
EDIT(dims_0) { TENSOR->n_dims = 0; }
EDIT(dims_5) { TENSOR->n_dims = 5; }
EDIT(dims_huge) { TENSOR->n_dims = UINT32_MAX; }
EDIT(shape_wraps) { TENSOR->dims[0] = INT64_MAX; TENSOR->dims[1] = 2; }
EDIT(shape_wraps_bytes) { TENSOR->dims[0] = UINT64_C(1) << 62; TENSOR->dims[1] = 1; }
EDIT(shape_wraps_to_0) { TENSOR->dims[0] = UINT64_C(1) << 32; TENSOR->dims[1] = UINT64_C(1) << 32; }
EDIT(shape_0) { TENSOR->dims[0] = 0; }
EDIT(shape_other) { TENSOR->dims[1] = 31; }
EDIT(half_block) { TENSOR->type = 8; TENSOR->dims[0] = 48; }
EDIT(type_removed) { TENSOR->type = 4; }
EDIT(type_unknown) { TENSOR->type = 999; }
EDIT(tensor_type_negative) { TENSOR->type = UINT32_MAX; }
EDIT(type_i8) { TENSOR->type = 24; }
EDIT(offset_odd) { TENSOR->move = 1; }
EDIT(offset_past_end) { TENSOR->move = 1 << 20; }
EDIT(offset_wraps) { TENSOR->move = INT64_MIN; }
EDIT(offset_overlaps) { TENSOR->move = -32; }
EDIT(offset_before) { gguf_writer_tensor(w, "token_embd.weight")->move = -32; }
EDIT(padding_wraps) { TENSOR->n_dims = 1; TENSOR->dims[0] = (UINT64_C(1) << 62) - 1; }
EDIT(bytes_wrap_to_part) { TENSOR->n_dims = 1; TENSOR->dims[0] = (UINT64_C(1) << 62) + 8; }
EDIT(gap)
{
    gguf_add_tensor(w, "x", FORMAT_F32, 1, 64, 1, 1);
    gguf_writer_tensor(w, "x")->dims[0] = 8; /* 7 * 32 bytes at the end are nobody's */
}
EDIT(unsorted)
{
    /* Two of the same size, each with the other's data. */
    gguf_writer_tensor(w, "blk.1.attn_k.weight")->move = 16 * 32 * 4;
    gguf_writer_tensor(w, "blk.1.attn_v.weight")->move = -16 * 32 * 4;
}
EDIT(surplus_empty) { gguf_add_tensor(w, "x", FORMAT_F32, 2, 0, 32, 1); }
EDIT(no_tensors) { while (w->n_tensors > 0) gguf_drop_tensor(w, w->tensors[0].name); }
EDIT(no_keys) { while (w->n_keys > 0) gguf_drop(w, w->keys[0].name); }
EDIT(keys_fewer) { w->n_keys_said = w->n_keys - 1; }
EDIT(tensors_fewer) { w->n_tensors_said = w->n_tensors - 1; }
EDIT(name_with_nul) { gguf_set(w, "general.name", GGUF_STRING, "\3\0\0\0\0\0\0\0a\0b", 11); }
EDIT(layers_as_i8) { gguf_set(w, "afmoe.block_count", GGUF_I8, "\2", 1); }
EDIT(layers_as_u64) { gguf_set(w, "afmoe.block_count", GGUF_U64, "\2\0\0\0\0\0\0\0", 8); }
EDIT(layers_as_i64) { gguf_set(w, "afmoe.block_count", GGUF_I64, "\377\377\377\377\377\377\377\377", 8); }
EDIT(layers_as_list) { gguf_set_array(w, "afmoe.block_count", GGUF_U32, 1, "\2\0\0\0", 4); }
EDIT(epsilon_as_f64) { double x = 1e-5; gguf_set(w, "afmoe.attention.layer_norm_rms_epsilon", GGUF_F64, &x, 8); }
EDIT(bool_of_2) { gguf_set_array(w, "afmoe.attention.sliding_window_pattern", GGUF_BOOL, 2, "\1\2", 2); }
EDIT(pattern_short) { gguf_set_array(w, "afmoe.attention.sliding_window_pattern", GGUF_BOOL, 1, "\1", 1); }
EDIT(pattern_of_numbers) { gguf_set_array(w, "afmoe.attention.sliding_window_pattern", GGUF_U8, 2, "\1\0", 2); }
EDIT(data_short) { w->drop_tail = 1; }
EDIT(tensor_twice) { memcpy(TENSOR->name, "blk.1.attn_k.weight", 20); }
EDIT(tensor_unnamed) { TENSOR->name[0] = '\0'; }
EDIT(tensor_missing) { gguf_drop_tensor(w, "blk.1.attn_k.weight"); }
EDIT(head_missing) { gguf_drop_tensor(w, "output.weight"); }
EDIT(vector_q8_0)
{
    gguf_add_tensor(w, "x", FORMAT_F32, 1, 1, 1, 1);
    gguf_writer_tensor(w, "blk.0.attn_norm.weight")->type = 8;
}
EDIT(bias_as_weight) { memcpy(gguf_writer_tensor(w, "blk.1.exp_probs_b.bias")->name, "blk.1.exp_probs_b.weight", 25); }
EDIT(rope_factors) { gguf_add_tensor(w, "rope_freqs.weight", FORMAT_F32, 1, 8, 1, 1); }
EDIT(embedding_rows) { TENSOR->move = 0; gguf_set_u32(w, "afmoe.vocab_size", 41); }
EDIT(tokens_above_rows) { gguf_set_strings(w, "tokenizer.ggml.tokens", 41, "a"); }
EDIT(key_long)
{
    /* The bytes after the last value: a further key of 70,000 bytes. */
    struct buffer *value = &w->keys[w->n_keys - 1].value;
    buffer_put_u64(value, 70000);
    for (int i = 0; i < 70000; i++) buffer_put(value, "k", 1);
    w->n_keys_said = w->n_keys + 1;
}
EDIT(value_long)
{
    char *text = malloc((17 << 20) + 1);
    assert_non_null(text);
    memset(text, 'v', 17 << 20);
    text[17 << 20] = '\0';
    gguf_set_string(w, "general.name", text);
    free(text);
}

static const struct {
    const char *name;
    edit_fn *edit;
    int32_t status;
    const char *part; /* of the message */
    uint32_t append;  /* bytes after the end */
} containers[] = {
    {"as it is", nothing, AFMOE_OK, "", 0},
    {"trailing bytes", nothing, AFMOE_OK, "", 77},
    {"version 0", version_0, AFMOE_FORMAT, "version 0", 0},
    {"version 1", version_1, AFMOE_UNSUPPORTED, "version 1", 0},
    {"version 2", version_2, AFMOE_OK, "", 0},
    {"version 4", version_4, AFMOE_UNSUPPORTED, "version 4", 0},
    {"big-endian", version_swapped, AFMOE_UNSUPPORTED, "big-endian", 0},
    {"negative tensor count", tensors_negative, AFMOE_FORMAT, "18446744073709551614 tensors", 0},
    {"2^63 tensors", tensors_2_63, AFMOE_FORMAT, "9223372036854775808 tensors", 0},
    {"2^63 keys", keys_2_63, AFMOE_FORMAT, "9223372036854775808 keys", 0},
    {"more keys said than there", keys_more, AFMOE_TRUNCATED, "tiny.gguf", 0},
    {"string of 2^64-1", string_endless, AFMOE_TRUNCATED, "18446744073709551615", 0},
    {"string past the end", string_past_end, AFMOE_TRUNCATED, "1048576 bytes", 0},
    {"key of 70,000 bytes", key_long, AFMOE_LIMIT, "a key of 70000 bytes, allowed are 65536", 0},
    {"value of 17 MiB", value_long, AFMOE_LIMIT, "allowed are 16777216", 0},
    {"value type 13", type_13, AFMOE_FORMAT, "\"general.name\": value type 13", 0},
    {"value type -1", type_negative, AFMOE_FORMAT, "value type 4294967295", 0},
    {"arrays of arrays", array_of_arrays, AFMOE_UNSUPPORTED, "\"x\": arrays of arrays", 0},
    {"element type 13", array_element_13, AFMOE_FORMAT, "\"x\": value type 13", 0},
    {"array bytes wrap", array_wraps, AFMOE_TRUNCATED, "\"x\": 2305843009213693953 elements", 0},
    {"array past the end", array_past_end, AFMOE_TRUNCATED, "\"x\": 1048576 elements", 0},
    {"strings past the end", strings_past_end, AFMOE_TRUNCATED, "\"x\": 1152921504606846976 strings", 0},
    {"key twice", key_twice, AFMOE_FORMAT, "\"afmoe.block_count\" occurs twice", 0},
    {"empty key", key_empty, AFMOE_FORMAT, "empty name", 0},
    {"alignment 0", align_0, AFMOE_FORMAT, "general.alignment 0", 0},
    {"alignment 48", align_48, AFMOE_FORMAT, "general.alignment 48", 0},
    {"alignment 128 KiB", align_128k, AFMOE_FORMAT, "general.alignment 131072", 0},
    {"alignment as text", align_text, AFMOE_FORMAT, "\"general.alignment\" is a string", 0},
    {"alignment 64", align_64, AFMOE_OK, "", 0},
    {"0 dimensions", dims_0, AFMOE_FORMAT, "blk.1.attn_q.weight\": 0 dimensions", 0},
    {"5 dimensions", dims_5, AFMOE_FORMAT, "blk.1.attn_q.weight\": 5 dimensions", 0},
    {"2^32-1 dimensions", dims_huge, AFMOE_TRUNCATED, "tiny.gguf", 0},
    {"elements wrap", shape_wraps, AFMOE_FORMAT, "blk.1.attn_q.weight\": dimensions [9223372036854775807, 2", 0},
    {"bytes wrap", shape_wraps_bytes, AFMOE_FORMAT, "blk.1.attn_q.weight\": dimensions", 0},
    {"elements wrap to 0", shape_wraps_to_0, AFMOE_FORMAT, "blk.1.attn_q.weight\": dimensions", 0},
    {"dimension 0", shape_0, AFMOE_FORMAT,
     "blk.1.attn_q.weight\": shape [32, 0], expected [32, 32] ([head_count * key_length, embedding_length])", 0},
    {"other shape", shape_other, AFMOE_FORMAT, "blk.1.attn_q.weight\": shape [31, 32], expected [32, 32]", 0},
    {"part of a block", half_block, AFMOE_FORMAT, "rows of 48 elements", 0},
    {"removed type", type_removed, AFMOE_UNSUPPORTED, "blk.1.attn_q.weight\": type 4 (Q4_2)", 0},
    {"unknown type", type_unknown, AFMOE_UNSUPPORTED, "blk.1.attn_q.weight\": type 999", 0},
    {"negative type", tensor_type_negative, AFMOE_UNSUPPORTED, "blk.1.attn_q.weight\": type 4294967295", 0},
    {"type I8", type_i8, AFMOE_UNSUPPORTED, "blk.1.attn_q.weight\" has format I8", 0},
    {"unaligned offset", offset_odd, AFMOE_FORMAT, "blk.1.attn_q.weight\": offset", 0},
    {"offset past the end", offset_past_end, AFMOE_TRUNCATED, "blk.1.attn_q.weight\": offset", 0},
    {"offset wraps", offset_wraps, AFMOE_TRUNCATED, "blk.1.attn_q.weight\": offset", 0},
    {"offset before the data", offset_before, AFMOE_TRUNCATED, "token_embd.weight\": offset 18446744073709551584", 0},
    {"padded size wraps", padding_wraps, AFMOE_TRUNCATED, "18446744073709551612 bytes", 0},
    {"bytes wrap to a few", bytes_wrap_to_part, AFMOE_FORMAT, "blk.1.attn_q.weight\": dimensions", 0},
    {"gap at the end", gap, AFMOE_OK, "", 0},
    {"offsets not rising", unsorted, AFMOE_OK, "", 0},
    {"empty tensor nobody needs", surplus_empty, AFMOE_OK, "", 0},
    {"no tensors", no_tensors, AFMOE_FORMAT, "afmoe.vocab_size is missing", 0},
    {"no keys", no_keys, AFMOE_FORMAT, "general.architecture is missing", 0},
    {"fewer keys said than there", keys_fewer, AFMOE_TRUNCATED, "tiny.gguf", 0},
    {"fewer tensors said than there", tensors_fewer, AFMOE_FORMAT, "is missing", 0},
    {"NUL in a value", name_with_nul, AFMOE_OK, "", 0},
    {"count as i8", layers_as_i8, AFMOE_OK, "", 0},
    {"count as u64", layers_as_u64, AFMOE_OK, "", 0},
    {"count of -1", layers_as_i64, AFMOE_FORMAT, "afmoe.block_count is", 0},
    {"count as a list", layers_as_list, AFMOE_UNSUPPORTED, "afmoe.block_count is an array", 0},
    {"epsilon as f64", epsilon_as_f64, AFMOE_OK, "", 0},
    {"bool of 2", bool_of_2, AFMOE_FORMAT, "sliding_window_pattern", 0},
    {"pattern too short", pattern_short, AFMOE_FORMAT, "sliding_window_pattern has 1 entries", 0},
    {"pattern of numbers", pattern_of_numbers, AFMOE_FORMAT, "sliding_window_pattern", 0},
    {"overlap", offset_overlaps, AFMOE_FORMAT, "overlap", 0},
    {"last byte missing", data_short, AFMOE_TRUNCATED, "blk.1.ffn_down_shexp.weight\": offset", 0},
    {"tensor twice", tensor_twice, AFMOE_FORMAT, "blk.1.attn_k.weight\" occurs twice", 0},
    {"tensor without name", tensor_unnamed, AFMOE_FORMAT, "empty", 0},
    {"tensor missing", tensor_missing, AFMOE_FORMAT, "\"blk.1.attn_k.weight\" is missing", 0},
    {"output missing: tied", head_missing, AFMOE_OK, "", 0},
    {"norm as Q8_0", vector_q8_0, AFMOE_UNSUPPORTED, "\"blk.0.attn_norm.weight\" has format Q8_0", 0},
    {"exp_probs_b.weight", bias_as_weight, AFMOE_OK, "", 0},
    {"rope_freqs", rope_factors, AFMOE_UNSUPPORTED, "rope_freqs.weight", 0},
    {"vocab_size other than rows", embedding_rows, AFMOE_FORMAT,
     "\"token_embd.weight\": shape [40, 32], expected [41, 32] ([vocab_size, embedding_length])", 0},
    {"more tokens than rows", tokens_above_rows, AFMOE_FORMAT, "41 entries, the model has 40 rows", 0},
};

static void test_containers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof containers / sizeof *containers; i++) {
        struct gguf_writer w;
        struct buffer bytes;
        uint64_t n_header;
        gguf_writer_init(&w, FORMAT_F32);
        containers[i].edit(&w);
        gguf_serialise(&w, &bytes, &n_header);
        for (uint32_t n = 0; n < containers[i].append; n++) buffer_put(&bytes, "x", 1);
        check_refused(save(&bytes), containers[i].status, containers[i].part, containers[i].name);
        gguf_writer_free(&w);
        buffer_free(&bytes);
    }
}

static void test_no_gguf(void **state)
{
    (void)state;
    const char *path = scratch_path(&scratch, "tiny.gguf");
    scratch_write(&scratch, "tiny.gguf", "GGML....", 8);
    check_refused(path, AFMOE_FORMAT, "is no GGUF file", "magic");
    scratch_write(&scratch, "tiny.gguf", "", 0);
    check_refused(path, AFMOE_FORMAT, "is no GGUF file", "empty file");
}

/* Nothing but header: as many of the smallest keys and tensors as fit some megabytes. Neither memory nor time may be of
 * another order than the file. */
static void put_name(struct buffer *bytes, uint32_t i)
{
    char name[16];
    buffer_put_u64(bytes, (uint64_t)snprintf(name, sizeof name, "%x", i));
    buffer_put(bytes, name, strlen(name));
}

static void test_many_names(void **state)
{
    (void)state;
    enum { N_TENSORS = 300000, MOST_KEYS = 65536 };
    for (int round = 0; round < 3; round++) {
        uint32_t tensors = round == 2, n = round == 0 ? MOST_KEYS : round == 1 ? MOST_KEYS + 1 : N_TENSORS;
        struct buffer bytes = {0};
        struct timespec begin, end;
        buffer_put(&bytes, "GGUF\3\0\0\0", 8);
        buffer_put_u64(&bytes, tensors ? n : 0);
        buffer_put_u64(&bytes, tensors ? 0 : n);
        for (uint32_t i = 0; i < n; i++) {
            put_name(&bytes, i);
            buffer_put_u32(&bytes, tensors ? 1 : GGUF_U8);
            if (tensors) buffer_put(&bytes, "\0\0\0\0\0\0\0\0" "\0\0\0\0" "\0\0\0\0\0\0\0\0", 20); /* no elements */
            else buffer_put(&bytes, "x", 1);
        }
        buffer_pad(&bytes, 32);
        const char *path = save(&bytes);
        buffer_free(&bytes);
        clock_gettime(CLOCK_MONOTONIC, &begin);
        if (round == 1) check_refused(path, AFMOE_LIMIT, "65537 keys, allowed are 1048576 and 65536", "many keys");
        else check_refused(path, AFMOE_FORMAT, "general.architecture is missing", "many names");
        clock_gettime(CLOCK_MONOTONIC, &end);
        assert_true(end.tv_sec - begin.tv_sec < 20);
    }
}

/* ---- Metadata --------------------------------------------------------------------------------------------------- */

enum value_kind { DROP, U32, F32, TEXT, YES };

static const struct {
    const char *key;
    enum value_kind kind;
    double number;
    const char *text;
    int32_t status;
    const char *part;
} values[] = {
    {"general.architecture", TEXT, 0, "llama", AFMOE_UNSUPPORTED, "general.architecture \"llama\""},
    {"general.architecture", DROP, 0, "", AFMOE_FORMAT, "general.architecture is missing"},
    {"general.architecture", U32, 1, "", AFMOE_FORMAT, "general.architecture is a value of type u32"},
    {"afmoe.block_count", DROP, 0, "", AFMOE_FORMAT, "afmoe.block_count is missing"},
    {"afmoe.block_count", U32, 0, "", AFMOE_FORMAT, "afmoe.block_count is 0, expected 1..1024"},
    {"afmoe.block_count", U32, 1e9, "", AFMOE_FORMAT, "afmoe.block_count is 1000000000, expected 1..1024"},
    {"afmoe.block_count", TEXT, 0, "2", AFMOE_FORMAT, "afmoe.block_count is a value of type string"},
    {"afmoe.block_count", F32, 2.5, "", AFMOE_FORMAT, "afmoe.block_count is a value of type f32"},
    {"afmoe.block_count", F32, 2, "", AFMOE_OK, ""},
    {"afmoe.block_count", U32, 3, "", AFMOE_FORMAT, "sliding_window_pattern has 2 entries, afmoe.block_count is 3"},
    {"afmoe.context_length", DROP, 0, "", AFMOE_FORMAT, "afmoe.context_length is missing"},
    {"afmoe.embedding_length", U32, 0, "", AFMOE_FORMAT, "afmoe.embedding_length is 0"},
    {"afmoe.embedding_length", U32, 64, "", AFMOE_FORMAT, "\"token_embd.weight\": shape [40, 32], expected [40, 64]"},
    {"afmoe.attention.head_count", U32, 0, "", AFMOE_FORMAT, "afmoe.attention.head_count is 0"},
    {"afmoe.attention.head_count_kv", U32, 0, "", AFMOE_FORMAT, "afmoe.attention.head_count_kv is 0"},
    {"afmoe.attention.head_count_kv", U32, 4, "", AFMOE_FORMAT, "is no multiple of afmoe.attention.head_count_kv (4)"},
    {"afmoe.attention.head_count_kv", DROP, 0, "", AFMOE_FORMAT, "\"blk.0.attn_k.weight\": shape [16, 32]"},
    {"afmoe.attention.key_length", DROP, 0, "", AFMOE_FORMAT, "afmoe.attention.key_length is missing"},
    {"afmoe.attention.key_length", U32, 15, "", AFMOE_FORMAT, "afmoe.attention.key_length is 15, expected an even"},
    {"afmoe.attention.value_length", U32, 8, "", AFMOE_UNSUPPORTED, "afmoe.attention.value_length is 8"},
    {"afmoe.rope.dimension_count", U32, 8, "", AFMOE_UNSUPPORTED, "afmoe.rope.dimension_count is 8"},
    {"afmoe.attention.layer_norm_rms_epsilon", F32, 0, "", AFMOE_FORMAT, "layer_norm_rms_epsilon is 0"},
    {"afmoe.attention.layer_norm_rms_epsilon", DROP, 0, "", AFMOE_FORMAT, "layer_norm_rms_epsilon is missing"},
    {"afmoe.expert_count", U32, 0, "", AFMOE_FORMAT, "afmoe.expert_count is 0 or missing"},
    {"afmoe.expert_count", DROP, 0, "", AFMOE_FORMAT, "afmoe.expert_count is 0 or missing"},
    {"afmoe.expert_count", U32, 1e6, "", AFMOE_FORMAT, "afmoe.expert_count is 1000000, expected 0..65536"},
    {"afmoe.expert_used_count", U32, 5, "", AFMOE_FORMAT,
     "afmoe.expert_used_count (5) is above afmoe.expert_count (4)"},
    {"afmoe.expert_used_count", U32, 0, "", AFMOE_FORMAT, "afmoe.expert_used_count is 0"},
    {"afmoe.expert_shared_count", DROP, 0, "", AFMOE_FORMAT,
     "\"blk.1.ffn_gate_shexp.weight\": shape [32, 32], expected [0, 32]"},
    {"afmoe.expert_group_count", U32, 3, "", AFMOE_FORMAT, "no multiple of afmoe.expert_group_count (3)"},
    {"afmoe.expert_group_used_count", U32, 2, "", AFMOE_FORMAT, "afmoe.expert_group_used_count (2) is above"},
    {"afmoe.leading_dense_block_count", U32, 3, "", AFMOE_FORMAT, "(3) is above afmoe.block_count (2)"},
    {"afmoe.leading_dense_block_count", DROP, 0, "", AFMOE_FORMAT, "\"blk.0.ffn_gate_inp.weight\" is missing"},
    {"afmoe.expert_gating_func", U32, 1, "", AFMOE_OK, ""},
    {"afmoe.expert_gating_func", U32, 3, "", AFMOE_UNSUPPORTED, "afmoe.expert_gating_func 3"},
    {"afmoe.expert_weights_norm", YES, 0, "", AFMOE_OK, ""},
    {"afmoe.expert_weights_norm", YES, 2, "", AFMOE_FORMAT, "afmoe.expert_weights_norm is a value of type bool"},
    {"afmoe.expert_weights_norm", U32, 1, "", AFMOE_FORMAT, "afmoe.expert_weights_norm is a value of type u32"},
    {"afmoe.expert_weights_scale", F32, -1, "", AFMOE_FORMAT, "afmoe.expert_weights_scale is -1"},
    {"afmoe.attention.sliding_window", U32, 0, "", AFMOE_FORMAT, "afmoe.attention.sliding_window is 0 or missing"},
    {"afmoe.attention.sliding_window", DROP, 0, "", AFMOE_FORMAT, "afmoe.attention.sliding_window is 0 or missing"},
    {"afmoe.attention.sliding_window_pattern", DROP, 0, "", AFMOE_OK, ""},
    {"afmoe.attention.sliding_window_pattern", U32, 2, "", AFMOE_OK, ""},
    {"afmoe.attention.sliding_window_pattern", U32, 0, "", AFMOE_FORMAT, "sliding_window_pattern is 0"},
    {"afmoe.attention.sliding_window_pattern", TEXT, 0, "x", AFMOE_FORMAT, "sliding_window_pattern is a value of type"},
    {"afmoe.rope.freq_base", F32, (double)NAN, "", AFMOE_FORMAT, "rope_theta is nan"},
    {"afmoe.rope.freq_base", F32, 0, "", AFMOE_FORMAT, "rope_theta is 0"},
    {"afmoe.rope.freq_base", F32, 5e5, "", AFMOE_OK, ""},
    {"afmoe.rope.scaling.factor", F32, 2, "", AFMOE_OK, ""},
    {"afmoe.rope.scaling.type", TEXT, 0, "yarn", AFMOE_FORMAT, "afmoe.rope.scaling.factor is missing"},
    {"afmoe.rope.scaling.type", TEXT, 0, "longrope", AFMOE_UNSUPPORTED, "afmoe.rope.scaling.type \"longrope\""},
    {"afmoe.vocab_size", U32, 0, "", AFMOE_FORMAT, "afmoe.vocab_size is 0"},
    {"tokenizer.ggml.bos_token_id", U32, 40, "", AFMOE_FORMAT, "tokenizer.ggml.bos_token_id is 40, expected -1..39"},
    {"tokenizer.ggml.eos_token_id", U32, 39, "", AFMOE_OK, ""},
    {"tokenizer.ggml.padding_token_id", U32, 4294967295.0, "", AFMOE_OK, ""},
    {"tokenizer.ggml.eos_token_id", TEXT, 0, "x", AFMOE_FORMAT,
     "tokenizer.ggml.eos_token_id is a value of type string"},
    {"tokenizer.ggml.add_bos_token", U32, 1, "", AFMOE_FORMAT, "tokenizer.ggml.add_bos_token"},
    {"general.sampling.temp", F32, -1, "", AFMOE_FORMAT, "general.sampling.temp is -1"},
    {"general.sampling.top_k", TEXT, 0, "x", AFMOE_FORMAT, "general.sampling.top_k"},
};

static void set_value(struct gguf_writer *w, size_t i)
{
    switch (values[i].kind) {
    case DROP: gguf_drop(w, values[i].key); break;
    case U32: gguf_set_u32(w, values[i].key, (uint32_t)values[i].number); break;
    case F32: gguf_set_f32(w, values[i].key, (float)values[i].number); break;
    case TEXT: gguf_set_string(w, values[i].key, values[i].text); break;
    case YES: gguf_set_bool(w, values[i].key, (uint8_t)values[i].number); break;
    }
}

static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct gguf_writer w;
        struct buffer bytes;
        uint64_t n_header;
        gguf_writer_init(&w, FORMAT_F32);
        set_value(&w, i);
        gguf_serialise(&w, &bytes, &n_header);
        check_refused(save(&bytes), values[i].status, values[i].part, values[i].key);
        gguf_writer_free(&w);
        buffer_free(&bytes);
    }
}

static void test_values_read(void **state)
{
    (void)state;
    struct gguf_writer w;
    struct buffer bytes;
    uint64_t n_header;
    struct checkpoint c;
    struct checkpoint_options options = plain_options();
    gguf_writer_init(&w, FORMAT_F32);
    gguf_set_string(&w, "afmoe.rope.scaling.type", "yarn");
    gguf_set_f32(&w, "afmoe.rope.scaling.factor", 4);
    gguf_set_f32(&w, "afmoe.rope.scaling.attn_factor", 0.5f);
    gguf_set_u32(&w, "afmoe.rope.scaling.original_context_length", 32);
    gguf_set_f32(&w, "afmoe.rope.freq_base", 20000);
    gguf_set_f32(&w, "afmoe.rope.freq_base_swa", 30000);
    gguf_set_f32(&w, "afmoe.expert_weights_scale", 2.5f);
    gguf_set_bool(&w, "afmoe.expert_weights_norm", 0);
    gguf_set_u32(&w, "afmoe.expert_gating_func", 1);
    gguf_set_u32(&w, "tokenizer.ggml.bos_token_id", 1);
    gguf_set_bool(&w, "tokenizer.ggml.add_bos_token", 1);
    gguf_set_f32(&w, "general.sampling.temp", 0.5f);
    gguf_set_u32(&w, "general.sampling.top_k", 7);
    gguf_serialise(&w, &bytes, &n_header);
    check_open(&c, save(&bytes), &options, AFMOE_OK, "", "values");
    assert_int_equal(c.config.rope.kind, ROPE_YARN);
    assert_true(c.config.rope.factor == 4 && c.config.rope.theta == 30000 && c.config.rope.beta_fast == 32);
    assert_true(c.config.rope.has_attention_factor && c.config.rope.truncate);
    assert_true(c.config.rope.attention_factor > 0.5693 && c.config.rope.attention_factor < 0.5694);
    assert_int_equal(c.config.rope.original_max_positions, 32);
    assert_true(c.config.route_scale == 2.5 && !c.config.route_norm);
    assert_int_equal(c.config.score, SCORE_SOFTMAX);
    assert_int_equal(c.config.bos_token, 1);
    assert_true(c.add_bos && c.generation.has_temperature && c.generation.temperature == 0.5);
    assert_true(c.generation.has_top_k && c.generation.top_k == 7 && !c.generation.has_min_p);
    afmoe__checkpoint_close(&c);
    gguf_writer_free(&w);
    buffer_free(&bytes);
}

/* ---- Every cut, every flipped bit ------------------------------------------------------------------------------- */

static uint64_t write_tiny(struct buffer *bytes)
{
    struct gguf_writer w;
    uint64_t n_header;
    gguf_writer_init(&w, FORMAT_Q8_0);
    gguf_serialise(&w, bytes, &n_header);
    gguf_writer_free(&w);
    save(bytes);
    return n_header;
}

static void test_truncated_everywhere(void **state)
{
    (void)state;
    struct buffer bytes;
    uint64_t n_header = write_tiny(&bytes);
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path(&scratch, "tiny.gguf"));
    for (uint64_t n = bytes.n; n-- > 0;) {
        if (n > n_header + 64 && n % 61 != 0) continue;
        assert_int_equal(truncate(path, (off_t)n), 0);
        check_refused(path, n < 4 ? AFMOE_FORMAT : AFMOE_TRUNCATED, n < 4 ? "no GGUF file" : "tiny.gguf", "cut");
    }
    buffer_free(&bytes);
}

static void test_every_bit_flipped(void **state)
{
    (void)state;
    struct buffer bytes;
    uint64_t n_header = write_tiny(&bytes);
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path(&scratch, "tiny.gguf"));
    struct flips flips = flip_every_bit(path, path, 8 * n_header);
    buffer_free(&bytes);
    assert_true(flips.n_opened > 0 && flips.n_opened < 4 * n_header);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),     cmocka_unit_test(test_mixed_formats),
        cmocka_unit_test(test_containers),  cmocka_unit_test(test_no_gguf),
        cmocka_unit_test(test_many_names),  cmocka_unit_test(test_values),
        cmocka_unit_test(test_values_read), cmocka_unit_test(test_truncated_everywhere),
        cmocka_unit_test(test_every_bit_flipped),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
