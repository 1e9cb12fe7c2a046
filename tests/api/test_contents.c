/* What a model tells about its files: tensors, layers, configuration, chat template; and opening to inspect only. */
#include "harness.h"

#include <stdio.h>
#include <string.h>

static afmoe_error error;

static afmoe_tensor_info tensor_at(const afmoe_model *model, uint64_t index)
{
    afmoe_tensor_info info;
    afmoe_tensor_info_init(&info, sizeof info);
    CHECK_STATUS(AFMOE_OK, afmoe_model_get_tensor(model, index, &info, &error));
    assert_int_equal(info.size, sizeof info);
    return info;
}

static afmoe_status open_as(afmoe_model **out, const char *path, int32_t inspect_only, int32_t tokenizer_only)
{
    afmoe_model_options options;
    afmoe_model_options_init(&options, sizeof options);
    options.inspect_only = inspect_only;
    options.tokenizer_only = tokenizer_only;
    return afmoe_model_open(out, path, &options, &error);
}

/* All tensors of a whole model: sorted, used, and adding up to what the info says. */
static void check_tensors(const afmoe_model *model)
{
    afmoe_model_info info = info_of(model);
    uint64_t n = afmoe_model_n_tensors(model), n_elements = 0, n_bytes = 0;
    char last[256] = "";
    assert_true(n > 10);
    for (uint64_t i = 0; i < n; i++) {
        afmoe_tensor_info tensor = tensor_at(model, i);
        assert_true(strcmp(last, tensor.name) < 0);
        snprintf(last, sizeof last, "%s", tensor.name);
        assert_int_equal(tensor.is_used, 1);
        assert_int_equal(tensor.is_supported, 1);
        assert_true(tensor.n_dims >= 1 && tensor.n_dims <= 3 && tensor.file_offset > 0);
        uint64_t product = 1;
        for (uint32_t d = 0; d < 8; d++) {
            if (d < tensor.n_dims) product *= tensor.shape[d];
            else assert_int_equal(tensor.shape[d], 0);
        }
        assert_int_equal(product, tensor.n_elements);
        n_elements += tensor.n_elements;
        n_bytes += tensor.n_bytes;
    }
    assert_int_equal(n_elements, info.n_parameters);
    assert_int_equal(n_bytes, info.weight_bytes);
}

static void tensors_of_both_containers(void **state)
{
    char path[PATH_BYTES];
    (void)state;
    afmoe_model *hub = open_model(small_model_path(path, "nano")), *gguf = open_model(text_model_path(path));
    check_tensors(hub);
    check_tensors(gguf);
    afmoe_tensor_info last = tensor_at(gguf, afmoe_model_n_tensors(gguf) - 1);
    assert_string_equal(last.name, "token_embd.weight");
    assert_string_equal(last.format, "Q8_0");
    assert_string_equal(last.file, "pico-q8_0.gguf");
    assert_true(last.shape[0] == 2112 && last.shape[1] == 256 && last.n_bytes == 2112 * 256 / 32 * 34);
    afmoe_model_free(hub);
    afmoe_model_free(gguf);
}

/* The bytes at the place told are the tensor's: a norm's first value, as the reference file has it, through the file. */
static void tensors_lie_where_they_are_said_to(void **state)
{
    char path[PATH_BYTES], poisoned[PATH_BYTES], file_path[PATH_BYTES];
    float value = 0;
    (void)state;
    make_variant(poisoned, small_model_path(path, "nano"), NULL, NULL);
    poison_variant(poisoned, "model.norm.weight"); /* its first element becomes NaN */
    afmoe_model *model = open_model(poisoned);
    uint64_t i = 0;
    while (strcmp(tensor_at(model, i).name, "model.norm.weight") != 0) i++;
    assert_true((size_t)snprintf(file_path, sizeof file_path, "%.4000s/model.safetensors", poisoned) < sizeof file_path);
    FILE *file = fopen(file_path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)tensor_at(model, i).file_offset, SEEK_SET), 0);
    assert_int_equal(fread(&value, sizeof value, 1, file), 1);
    fclose(file);
    assert_true(value != value);
    afmoe_model_free(model);
    remove_variant(poisoned);
}

static void arguments_of_tensors(void **state)
{
    char path[PATH_BYTES];
    afmoe_tensor_info info;
    (void)state;
    afmoe_model *model = open_model(small_model_path(path, "nano"));
    uint64_t n = afmoe_model_n_tensors(model);
    afmoe_tensor_info_init(&info, sizeof info);
    CHECK_STATUS(AFMOE_INVALID, afmoe_model_get_tensor(model, n, &info, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_model_get_tensor(model, UINT64_MAX, &info, &error));
    assert_non_null(strstr(error.message, "18446744073709551615"));
    assert_null(info.name);
    CHECK_STATUS(AFMOE_INVALID, afmoe_model_get_tensor(model, 0, NULL, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_model_get_tensor(NULL, 0, &info, &error));
    assert_int_equal(afmoe_model_n_tensors(NULL), 0);
    afmoe_model_free(model);
}

static void layers(void **state)
{
    char path[PATH_BYTES];
    int32_t is_full = -1;
    uint32_t n_full = 0;
    (void)state;
    afmoe_model *model = open_model(small_model_path(path, "nano")), *tokenizer;
    afmoe_model_info info = info_of(model);
    for (uint32_t layer = 0; layer < info.n_layers; layer++) {
        CHECK_STATUS(AFMOE_OK, afmoe_model_layer_is_full(model, layer, &is_full, &error));
        assert_int_equal(is_full, layer == 3);
        n_full += (uint32_t)is_full;
    }
    assert_int_equal(n_full, info.n_full_layers);
    CHECK_STATUS(AFMOE_INVALID, afmoe_model_layer_is_full(model, info.n_layers, &is_full, &error));
    assert_non_null(strstr(error.message, "0..5"));
    CHECK_STATUS(AFMOE_INVALID, afmoe_model_layer_is_full(model, 0, NULL, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_model_layer_is_full(NULL, 0, &is_full, &error));
    CHECK_STATUS(AFMOE_OK, open_as(&tokenizer, text_model_path(path), 0, 1));
    CHECK_STATUS(AFMOE_STATE, afmoe_model_layer_is_full(tokenizer, 0, &is_full, &error));
    assert_int_equal(afmoe_model_n_tensors(tokenizer), 0);
    afmoe_model_free(tokenizer);
    afmoe_model_free(model);
}

static void configurations(void **state)
{
    char path[PATH_BYTES];
    (void)state;
    static const char *const names[] = {"nano", "yarn", "grouped-router", "tied", "tiny-bias", "tiny-softmax-router"};
    for (int i = 0; i < 6; i++) {
        afmoe_model *model = open_model(small_model_path(path, names[i]));
        afmoe_model_info info = info_of(model);
        assert_int_equal(info.rope_kind, i == 1 ? AFMOE_ROPE_YARN : AFMOE_ROPE_DEFAULT);
        assert_int_equal(info.rope_original_positions > 0, i == 1);
        assert_int_equal(info.rope_factor > 1, i == 1);
        assert_int_equal(info.n_groups > 1, i == 2);
        assert_int_equal(info.tied_embeddings, i == 3);
        assert_int_equal(info.attention_bias, i == 4);
        assert_int_equal(info.score_function, i == 5 ? AFMOE_SCORE_SOFTMAX : AFMOE_SCORE_SIGMOID);
        assert_true(info.intermediate_size > 0 && info.moe_intermediate_size > 0 && info.rms_norm_eps > 0);
        assert_true(info.rope_theta > 1 && info.route_scale > 0);
        afmoe_model_free(model);
    }
}

static void templates(void **state)
{
    char path[PATH_BYTES], variant[PATH_BYTES];
    const char *text = NULL;
    uint64_t n = 7;
    (void)state;
    afmoe_model *model = open_model(text_model_path(path));
    CHECK_STATUS(AFMOE_OK, afmoe_model_chat_template(model, &text, &n, &error));
    assert_true(n > 100 && memcmp(text, "{%", 2) == 0);
    CHECK_STATUS(AFMOE_INVALID, afmoe_model_chat_template(model, NULL, &n, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_model_chat_template(model, &text, NULL, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_model_chat_template(NULL, &text, &n, &error));
    afmoe_model_free(model);

    make_variant(variant, small_model_path(path, "nano"), NULL, NULL);
    model = open_model(variant);
    n = 7;
    CHECK_STATUS(AFMOE_NOT_FOUND, afmoe_model_chat_template(model, &text, &n, &error));
    assert_int_equal(n, 7);
    afmoe_model_free(model);
    add_to_variant(variant, "tokenizer_config.json", "{\"chat_template\": \"of the config\"}");
    model = open_model(variant);
    CHECK_STATUS(AFMOE_OK, afmoe_model_chat_template(model, &text, &n, &error));
    assert_int_equal(n, 13);
    assert_memory_equal(text, "of the config", 13);
    afmoe_model_free(model);
    add_to_variant(variant, "chat_template.jinja", "");
    model = open_model(variant);
    CHECK_STATUS(AFMOE_OK, afmoe_model_chat_template(model, &text, &n, &error));
    assert_true(n == 0 && text);
    afmoe_model_free(model);
    remove_variant(variant);
}

static void check_inspected(const afmoe_model *whole, afmoe_model *inspected)
{
    afmoe_context *context;
    afmoe_model_info info = info_of(inspected), expected = info_of(whole);
    assert_int_equal(info.has_weights, 0);
    info.has_weights = 1;
    assert_memory_equal(&info, &expected, sizeof info);
    assert_int_equal(afmoe_model_n_tensors(inspected), afmoe_model_n_tensors(whole));
    for (uint64_t i = 0; i < afmoe_model_n_tensors(whole); i++) {
        afmoe_tensor_info a = tensor_at(whole, i), b = tensor_at(inspected, i);
        assert_string_equal(a.name, b.name);
        assert_string_equal(a.format, b.format);
        assert_memory_equal(a.shape, b.shape, sizeof a.shape);
        assert_int_equal(a.file_offset, b.file_offset);
        assert_int_equal(b.is_used, -1);
    }
    CHECK_STATUS(AFMOE_STATE, afmoe_context_create(&context, inspected, NULL, &error));
    assert_non_null(strstr(error.message, "inspect_only"));
}

static void inspect_only(void **state)
{
    char path[PATH_BYTES];
    afmoe_token ids[8];
    uint64_t n;
    afmoe_model *inspected;
    (void)state;
    for (int i = 0; i < 2; i++) {
        if (i == 0) small_model_path(path, "nano");
        else text_model_path(path);
        afmoe_model *whole = open_model(path);
        CHECK_STATUS(AFMOE_OK, open_as(&inspected, path, 1, 0));
        check_inspected(whole, inspected);
        afmoe_model_free(whole);
        if (i == 1) CHECK_STATUS(AFMOE_OK, afmoe_tokenize(inspected, "Hello", 5, NULL, ids, 8, &n, &error));
        afmoe_model_free(inspected);
    }
    CHECK_STATUS(AFMOE_INVALID, open_as(&inspected, path, 1, 1));
    assert_non_null(strstr(error.message, "tokenizer_only and inspect_only"));
    CHECK_STATUS(AFMOE_INVALID, open_as(&inspected, path, 2, 0));
    assert_non_null(strstr(error.message, "inspect_only is 2"));
    /* The configuration must be right all the same. */
    char variant[PATH_BYTES];
    make_variant(variant, small_model_path(path, "nano"), "head_dim", "3");
    CHECK_STATUS(AFMOE_FORMAT, open_as(&inspected, variant, 1, 0));
    assert_null(inspected);
    remove_variant(variant);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_of_both_containers), cmocka_unit_test(tensors_lie_where_they_are_said_to),
        cmocka_unit_test(arguments_of_tensors),       cmocka_unit_test(layers),
        cmocka_unit_test(configurations),             cmocka_unit_test(templates),
        cmocka_unit_test(inspect_only),
    };
    afmoe_error_init(&error, sizeof error);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
