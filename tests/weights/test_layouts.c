/* The layouts: the same weights under every naming give the same view; missing, surplus and odd tensors. */
#include "fixture_writer.h"
#include "opening.h"
#include "test_paths.h"

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

static void check_same_matrix(const struct matrix *a, const struct matrix *b)
{
    assert_int_equal(a->format, b->format);
    assert_int_equal(a->n_rows, b->n_rows);
    assert_int_equal(a->n_columns, b->n_columns);
    assert_int_equal(a->row_bytes, b->row_bytes);
    assert_true((a->data == NULL) == (b->data == NULL));
    if (a->data) assert_memory_equal(a->data, b->data, a->n_rows * a->row_bytes);
}

static void check_same_vector(const float *a, const float *b, uint64_t n)
{
    assert_memory_equal(a, b, n * sizeof *a);
}

static void check_same_ffn(const struct ffn_weights *a, const struct ffn_weights *b)
{
    check_same_matrix(&a->gate, &b->gate);
    check_same_matrix(&a->up, &b->up);
    check_same_matrix(&a->down, &b->down);
}

static void check_same_view(const struct checkpoint *a, const struct checkpoint *b)
{
    const struct model_config *f = &a->config;
    assert_int_equal(a->weights.n_parameters, b->weights.n_parameters);
    assert_int_equal(a->weights.weight_bytes, b->weights.weight_bytes);
    check_same_matrix(&a->weights.embedding, &b->weights.embedding);
    check_same_matrix(&a->weights.head, &b->weights.head);
    check_same_vector(a->weights.norm, b->weights.norm, f->hidden_size);
    for (uint32_t l = 0; l < f->n_layers; l++) {
        const struct layer_weights *x = &a->weights.layers[l], *y = &b->weights.layers[l];
        check_same_vector(x->input_norm, y->input_norm, f->hidden_size);
        check_same_vector(x->post_attention_norm, y->post_attention_norm, f->hidden_size);
        check_same_vector(x->pre_mlp_norm, y->pre_mlp_norm, f->hidden_size);
        check_same_vector(x->post_mlp_norm, y->post_mlp_norm, f->hidden_size);
        check_same_vector(x->q_norm, y->q_norm, f->head_dim);
        check_same_vector(x->k_norm, y->k_norm, f->head_dim);
        check_same_matrix(&x->q, &y->q);
        check_same_matrix(&x->k, &y->k);
        check_same_matrix(&x->v, &y->v);
        check_same_matrix(&x->gate, &y->gate);
        check_same_matrix(&x->o, &y->o);
        check_same_ffn(&x->mlp, &y->mlp);
        check_same_matrix(&x->router, &y->router);
        check_same_ffn(&x->shared, &y->shared);
        if (l < f->n_dense_layers) continue;
        check_same_vector(x->expert_bias, y->expert_bias, f->n_experts);
        for (uint32_t e = 0; e < f->n_experts; e++) check_same_ffn(&x->experts[e], &y->experts[e]);
    }
}

/* ---- The stacked and prime-rl layouts, written from a hub checkpoint -------------------------------------------- */

/* Tensors named without experts keep their name and bytes, read from the hub file itself. */
static void copy_others(struct safetensors_writer *w, const char *hub_file, int32_t layout)
{
    struct mapped_file file;
    json_t *header, *entry;
    const char *name;
    assert_int_equal(afmoe__file_open(&file, hub_file, FILE_MAPPED, NULL), AFMOE_OK);
    uint64_t n_header = 0;
    memcpy(&n_header, file.data, 8);
    header = json_loadb((const char *)file.data + 8, n_header, 0, NULL);
    assert_non_null(header);
    json_object_foreach(header, name, entry) {
        char renamed[128];
        uint64_t shape[3], begin, end;
        json_t *dims = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
        if (!dims || strstr(name, ".experts.")) continue;
        for (size_t d = 0; d < json_array_size(dims); d++) {
            shape[d] = (uint64_t)json_integer_value(json_array_get(dims, d));
        }
        begin = (uint64_t)json_integer_value(json_array_get(offsets, 0));
        end = (uint64_t)json_integer_value(json_array_get(offsets, 1));
        snprintf(renamed, sizeof renamed, "%s", name);
        const char *shared = strstr(name, "shared_experts.");
        if (shared && layout == AFMOE_LAYOUT_PRIME_RL) {
            const char *part = strstr(name, "gate_proj") ? "w1" : strstr(name, "down_proj") ? "w2" : "w3";
            snprintf(renamed, sizeof renamed, "%.*sshared_expert.%s.weight", (int)(shared - name), name, part);
        }
        safetensors_add(w, renamed, json_string_value(json_object_get(entry, "dtype")), (uint32_t)json_array_size(dims),
                        shape, file.data + 8 + n_header + begin, end - begin);
    }
    json_decref(header);
    afmoe__file_close(&file);
}

enum part { GATE, UP, DOWN };

static const struct matrix *part_of(const struct ffn_weights *expert, enum part part)
{
    return part == GATE ? &expert->gate : part == UP ? &expert->up : &expert->down;
}

/* One tensor of all experts; with a second part, each expert's rows of the first come before its second's. */
static void add_stack(struct safetensors_writer *w, const struct checkpoint *c, uint32_t l, const char *name,
                      enum part first, int n_parts)
{
    struct buffer bytes = {0};
    char full[128];
    const struct matrix *m = part_of(&c->weights.layers[l].experts[0], first);
    const uint64_t shape[3] = {c->config.n_experts, m->n_rows * (uint64_t)n_parts, m->n_columns};
    for (uint32_t e = 0; e < c->config.n_experts; e++) {
        for (int p = 0; p < n_parts; p++) {
            const struct matrix *from = part_of(&c->weights.layers[l].experts[e], (enum part)((int)first + p));
            buffer_put(&bytes, from->data, from->n_rows * from->row_bytes);
        }
    }
    snprintf(full, sizeof full, "model.layers.%u.mlp.experts.%s", l, name);
    safetensors_add(w, full, afmoe__format_traits[m->format].name, 3, shape, bytes.data, bytes.n);
    buffer_free(&bytes);
}

static void write_layout(const struct checkpoint *c, const char *hub_file, int32_t layout)
{
    struct safetensors_writer w;
    struct buffer bytes;
    safetensors_writer_init(&w);
    copy_others(&w, hub_file, layout);
    for (uint32_t l = c->config.n_dense_layers; l < c->config.n_layers; l++) {
        if (layout == AFMOE_LAYOUT_STACKED) {
            add_stack(&w, c, l, "gate_up_proj", GATE, 2);
            add_stack(&w, c, l, "down_proj", DOWN, 1);
        } else {
            char name[64];
            const uint64_t n = c->config.n_experts;
            add_stack(&w, c, l, "w1", GATE, 1);
            add_stack(&w, c, l, "w2", DOWN, 1);
            add_stack(&w, c, l, "w3", UP, 1);
            snprintf(name, sizeof name, "model.layers.%u.mlp.tokens_per_expert", l);
            safetensors_add(&w, name, "F32", 1, &n, c->weights.layers[l].expert_bias, 4 * n);
        }
    }
    safetensors_serialise(&w, &bytes);
    scratch_write(&scratch, "model.safetensors", bytes.data, bytes.n);
    buffer_free(&bytes);
    safetensors_writer_free(&w);
}

static void test_rewritten_nano(void **state)
{
    (void)state;
    char folder[512], file[600];
    struct checkpoint hub, other;
    struct heard heard = {0};
    struct checkpoint_options options = {.max_json_bytes = 32 << 20, .log = hear, .log_data = &heard};
    data_path(folder, sizeof folder, "nano");
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    check_open(&hub, folder, &options, AFMOE_OK, "", "nano");
    assert_int_equal(hub.layout, AFMOE_LAYOUT_HUB);
    struct mapped_file config;
    data_path(folder, sizeof folder, "nano/config.json");
    assert_int_equal(afmoe__file_open(&config, folder, FILE_MAPPED, NULL), AFMOE_OK);
    scratch_write(&scratch, "config.json", config.data, config.size);
    afmoe__file_close(&config);
    for (int32_t layout = AFMOE_LAYOUT_STACKED; layout <= AFMOE_LAYOUT_PRIME_RL; layout++) {
        write_layout(&hub, file, layout);
        check_open(&other, scratch.path, &options, AFMOE_OK, "", "rewritten");
        assert_int_equal(other.layout, layout);
        check_same_view(&hub, &other);
        afmoe__checkpoint_close(&other);
    }
    assert_int_equal(heard.n, 0); /* tokens_per_expert is known */
    afmoe__checkpoint_close(&hub);
}

/* The fixtures in tests/data open, with the values of their own script. */
static void test_data_folder(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t n_parameters, weight_bytes;
    } fixtures[] = {{"nano", 401184, 1604736},   {"tied", 429856, 1719424}, {"bf16", 401184, 802432},
                    {"ragged", 401184, 1604736}, {"yarn", 401184, 1604736}, {"grouped-router", 599872, 2399488}};
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        char folder[512];
        struct checkpoint c;
        struct checkpoint_options options = plain_options();
        options.strict = true;
        data_path(folder, sizeof folder, fixtures[i].name);
        check_open(&c, folder, &options, AFMOE_OK, "", fixtures[i].name);
        assert_int_equal(c.weights.n_parameters, fixtures[i].n_parameters);
        assert_int_equal(c.weights.weight_bytes, fixtures[i].weight_bytes);
        assert_true(touch_view(&c) != 0);
        afmoe__checkpoint_close(&c);
    }
}

/* ---- Formats and alignment -------------------------------------------------------------------------------------- */

/* Elements as stored, at any address: the header's length decides where the data begins. */
static void test_formats_and_alignment(void **state)
{
    (void)state;
    static const enum tensor_format formats[] = {FORMAT_F32, FORMAT_F16, FORMAT_BF16};
    for (int i = 0; i < 3; i++) {
        for (int shift = 0; shift < 4; shift++) {
            struct safetensors_writer w;
            struct checkpoint c;
            struct checkpoint_options options = plain_options();
            json_t *config = tiny_config();
            struct buffer expected = {0};
            char spaces[8] = "    ";
            safetensors_writer_init(&w);
            safetensors_add_tiny(&w, formats[i]);
            spaces[shift] = '\0';
            json_object_set_new(w.header, "__metadata__", json_pack("{s:s}", "pad", spaces));
            write_tiny_hub(&scratch, config, &w);
            check_open(&c, scratch.path, &options, AFMOE_OK, "", afmoe__format_traits[formats[i]].name);
            const struct matrix *down = &c.weights.layers[0].mlp.down;
            buffer_put_elements(&expected, formats[i], 32 * 64);
            assert_int_equal(down->format, formats[i]);
            assert_memory_equal(down->data, expected.data, expected.n);
            for (uint64_t e = 0; e < 32; e++) assert_true(c.weights.layers[1].post_mlp_norm[e] == tiny_element(e));
            for (uint64_t e = 0; e < 4; e++) assert_true(c.weights.layers[1].expert_bias[e] == tiny_element(e));
            afmoe__checkpoint_close(&c);
            safetensors_writer_free(&w);
            buffer_free(&expected);
            json_decref(config);
        }
    }
}

/* Halves of every kind as a vector: subnormal, infinite, NaN, negative zero. */
static void test_half_vectors(void **state)
{
    (void)state;
    static const uint16_t halves[8] = {0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0x7C00, 0x7E00, 0x8000};
    static const float values[8] = {0x1p-24f, -0x1p-24f, 0x1.ff8p-15f, 0x1p-14f, 65504, 0, 0, -0.0f};
    struct safetensors_writer w;
    struct checkpoint c;
    struct checkpoint_options options = plain_options();
    json_t *config = tiny_config();
    safetensors_writer_init(&w);
    safetensors_add_tiny(&w, FORMAT_F16);
    json_t *offsets = json_object_get(json_object_get(w.header, "model.norm.weight"), "data_offsets");
    memcpy(w.data.data + json_integer_value(json_array_get(offsets, 0)), halves, sizeof halves);
    write_tiny_hub(&scratch, config, &w);
    check_open(&c, scratch.path, &options, AFMOE_OK, "", "halves");
    for (int i = 0; i < 5; i++) assert_true(c.weights.norm[i] == values[i]);
    assert_true(c.weights.norm[5] > 3e38f);
    assert_true(c.weights.norm[6] != c.weights.norm[6]);
    assert_memory_equal(&c.weights.norm[7], &values[7], 4);
    afmoe__checkpoint_close(&c);
    safetensors_writer_free(&w);
    json_decref(config);
}

/* ---- Missing, surplus, optional --------------------------------------------------------------------------------- */

struct change {
    const char *name;
    const char *config;             /* merged into config.json */
    const char *drop;               /* tensors whose name holds this are left away */
    const char *add;                /* a tensor, F32 */
    uint32_t n_dims;
    uint64_t shape[2];
    bool strict;
    int32_t status;
    const char *part;    /* of the message */
    const char *warning; /* part of the one warning; NULL: none */
};

static const struct change changes[] = {
    {.name = "as it is", .config = "{}"},
    {.name = "first of many missing", .config = "{}", .drop = "mlp.", .status = AFMOE_FORMAT,
     .part = "tensor \"model.layers.0.mlp.gate_proj.weight\" is missing"},
    {.name = "router missing", .config = "{}", .drop = "router", .status = AFMOE_FORMAT,
     .part = "tensor \"model.layers.1.mlp.router.gate.weight\" is missing"},
    {.name = "expert missing", .config = "{}", .drop = "experts.2.up", .status = AFMOE_FORMAT,
     .part = "tensor \"model.layers.1.mlp.experts.2.up_proj.weight\" is missing"},
    {.name = "expert_bias missing", .config = "{}", .drop = "expert_bias", .status = AFMOE_FORMAT,
     .part = "tensor \"model.layers.1.mlp.expert_bias\" is missing"},
    {.name = "head missing", .config = "{}", .drop = "lm_head", .status = AFMOE_FORMAT,
     .part = "tensor \"lm_head.weight\" is missing"},
    {.name = "tied", .config = "{\"tie_word_embeddings\": true}", .drop = "lm_head"},
    {.name = "tied, head there", .config = "{\"tie_word_embeddings\": true}"},
    {.name = "hidden_size other", .config = "{\"hidden_size\": 64}", .status = AFMOE_FORMAT,
     .part = "shape [40, 32], expected [40, 64] ([vocab_size, hidden_size])"},
    {.name = "vocab_size other", .config = "{\"vocab_size\": 48}", .status = AFMOE_FORMAT,
     .part = "\"model.embed_tokens.weight\": shape [40, 32], expected [48, 32]"},
    {.name = "more layers", .config = "{\"num_hidden_layers\": 3, \"layer_types\": null}", .status = AFMOE_FORMAT,
     .part = "tensor \"model.layers.2.input_layernorm.weight\" is missing"},
    {.name = "no shared expert, tensors there", .config = "{\"num_shared_experts\": 0}", .status = AFMOE_FORMAT,
     .part = "shared_experts.gate_proj.weight\": shape [32, 32], expected [0, 32]"},
    {.name = "no shared expert", .config = "{\"num_shared_experts\": 0}", .drop = "shared_experts"},
    {.name = "no shared expert, an empty tensor", .config = "{\"num_shared_experts\": 0}", .drop = "shared_experts",
     .add = "model.layers.1.mlp.shared_experts.gate_proj.weight", .n_dims = 2, .shape = {0, 32}, .strict = true},
    {.name = "surplus", .config = "{}", .add = "model.rotary.inv_freq", .n_dims = 1, .shape = {8},
     .warning = "1 tensors in the file are not part of the model: \"model.rotary.inv_freq\""},
    {.name = "surplus, strict", .config = "{}", .add = "model.rotary.inv_freq", .n_dims = 1, .shape = {8},
     .strict = true, .status = AFMOE_FORMAT, .part = "\"model.rotary.inv_freq\""},
    {.name = "counter of training", .config = "{}", .add = "model.layers.1.mlp.tokens_per_expert", .n_dims = 1,
     .shape = {4}, .strict = true},
    {.name = "a layer too many", .config = "{\"num_hidden_layers\": 1, \"layer_types\": null}",
     .warning = "28 tensors in the file are not part of the model: \"model.layers.1."},
    /* Large counts without the tensors: nothing is laid out for what is not there. */
    {.name = "65536 experts", .config = "{\"num_experts\": 65536}", .status = AFMOE_FORMAT,
     .part = "\"model.layers.1.mlp.router.gate.weight\": shape [4, 32], expected [65536, 32]"},
    {.name = "65536 experts, no router", .config = "{\"num_experts\": 65536}", .drop = "router", .status = AFMOE_FORMAT,
     .part = "router"},
    {.name = "65536 experts in each of 1024 layers", .status = AFMOE_LIMIT, .part = "67043328 experts",
     .config = "{\"num_experts\": 65536, \"num_hidden_layers\": 1024, \"layer_types\": null}"},
    {.name = "2^31-1 tokens", .config = "{\"vocab_size\": 2147483647}", .status = AFMOE_FORMAT,
     .part = "\"model.embed_tokens.weight\": shape [40, 32], expected [2147483647, 32]"},
    {.name = "all sizes at their limits", .status = AFMOE_FORMAT,
     .part = "\"model.embed_tokens.weight\": shape [40, 32]",
     .config = "{\"vocab_size\": 2147483647, \"hidden_size\": 1048576, \"num_attention_heads\": 4096, "
               "\"num_key_value_heads\": 4096, \"head_dim\": 4096, \"intermediate_size\": 16777216, "
               "\"moe_intermediate_size\": 16777216, \"num_experts\": 256, \"num_experts_per_tok\": 256, "
               "\"num_shared_experts\": 65536, \"num_hidden_layers\": 1024, \"layer_types\": null, "
               "\"sliding_window\": 4294967295, \"max_position_embeddings\": 4294967296}"},
    {.name = "bias asked for", .config = "{\"attention_bias\": true}", .status = AFMOE_FORMAT,
     .part = "tensor \"model.layers.0.self_attn.q_proj.bias\" is missing"},
    {.name = "bias not asked for", .config = "{}", .add = "model.layers.0.self_attn.q_proj.bias", .n_dims = 1,
     .shape = {32}, .warning = "q_proj.bias"},
};

static void drop_tensors(struct safetensors_writer *from, struct safetensors_writer *to, const char *part)
{
    const char *name;
    json_t *entry;
    json_object_foreach(from->header, name, entry) {
        uint64_t shape[2];
        json_t *dims = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
        uint64_t begin = (uint64_t)json_integer_value(json_array_get(offsets, 0));
        if (part && strstr(name, part)) continue;
        for (size_t d = 0; d < json_array_size(dims); d++) {
            shape[d] = (uint64_t)json_integer_value(json_array_get(dims, d));
        }
        safetensors_add(to, name, "F32", (uint32_t)json_array_size(dims), shape, from->data.data + begin,
                        (uint64_t)json_integer_value(json_array_get(offsets, 1)) - begin);
    }
}

static void write_change(const struct change *t)
{
    struct safetensors_writer all, w;
    json_t *config = tiny_config(), *set = json_loads(t->config, 0, NULL);
    static const float zeros[64];
    safetensors_writer_init(&all);
    safetensors_writer_init(&w);
    safetensors_add_tiny(&all, FORMAT_F32);
    drop_tensors(&all, &w, t->drop);
    uint64_t n = t->n_dims == 0 ? 0 : t->n_dims == 1 ? t->shape[0] : t->shape[0] * t->shape[1];
    if (t->add) safetensors_add(&w, t->add, "F32", t->n_dims, t->shape, zeros, 4 * n);
    json_object_update(config, set);
    write_tiny_hub(&scratch, config, &w);
    json_decref(set);
    json_decref(config);
    safetensors_writer_free(&all);
    safetensors_writer_free(&w);
}

static void test_changes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const struct change *t = &changes[i];
        struct heard heard = {0};
        struct checkpoint c;
        const struct checkpoint_options options = {
            .max_json_bytes = 32 << 20, .strict = t->strict, .log = hear, .log_data = &heard};
        write_change(t);
        check_open(&c, scratch.path, &options, t->status, t->part, t->name);
        if (t->warning && !strstr(heard.text, t->warning)) print_error("%s: heard %s\n", t->name, heard.text);
        assert_int_equal(heard.n, t->warning ? 1 : 0);
        if (t->warning) assert_non_null(strstr(heard.text, t->warning));
        if (!t->status) assert_true(touch_view(&c) != 0);
        if (!t->status && c.config.n_shared_experts == 0) assert_null(c.weights.layers[1].shared.up.data);
        afmoe__checkpoint_close(&c);
    }
}

static void test_biases(void **state)
{
    (void)state;
    static const float bias[32] = {1, 2, 3};
    static const char *const names[] = {"q", "k", "v", "o"};
    static const uint64_t sizes[] = {32, 16, 16, 32};
    struct safetensors_writer w;
    struct checkpoint c;
    struct checkpoint_options options = plain_options();
    json_t *config = tiny_config();
    safetensors_writer_init(&w);
    safetensors_add_tiny(&w, FORMAT_F32);
    for (int l = 0; l < 2; l++) {
        for (int i = 0; i < 4; i++) {
            char name[80];
            snprintf(name, sizeof name, "model.layers.%d.self_attn.%s_proj.bias", l, names[i]);
            safetensors_add(&w, name, "F32", 1, &sizes[i], bias, 4 * sizes[i]);
        }
    }
    json_object_set_new(config, "attention_bias", json_true());
    write_tiny_hub(&scratch, config, &w);
    options.strict = true;
    check_open(&c, scratch.path, &options, AFMOE_OK, "", "biases");
    assert_true(c.weights.layers[1].q_bias[2] == 3 && c.weights.layers[0].o_bias[0] == 1);
    assert_true(c.weights.layers[0].k_bias[1] == 2 && c.weights.layers[0].v_bias[15] == 0);
    afmoe__checkpoint_close(&c);
    safetensors_writer_free(&w);
    json_decref(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rewritten_nano), cmocka_unit_test(test_data_folder),
        cmocka_unit_test(test_formats_and_alignment), cmocka_unit_test(test_half_vectors),
        cmocka_unit_test(test_changes), cmocka_unit_test(test_biases),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
