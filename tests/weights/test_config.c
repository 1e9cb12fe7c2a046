/* config.json: every spelling and default read, everything else refused with the key named. */
#include "cmocka_all.h"
#include "config.h"
#include "fixture_writer.h"
#include "memory_peak.h"

#include <math.h>

/* The tiny configuration with keys set from a JSON object; a value of "DROP" takes the key away. */
static afmoe_status read_with(struct model_config *out, const char *changes, afmoe_error *error)
{
    json_t *config = tiny_config(), *set = json_loads(changes, 0, NULL), *value;
    const char *key;
    assert_non_null(set);
    json_object_foreach(set, key, value) {
        const char *text = json_string_value(value);
        if (text && strcmp(text, "DROP") == 0) json_object_del(config, key);
        else json_object_set(config, key, value);
    }
    *error = (afmoe_error){.size = sizeof *error};
    afmoe_status status = afmoe__config_from_json(out, config, "config.json", error);
    json_decref(set);
    json_decref(config);
    return status;
}

#define RANGE(key, value, text) {"{\"" key "\": " value "}", AFMOE_FORMAT, key " is " text}
#define TYPE(key, value, text) {"{\"" key "\": " value "}", AFMOE_FORMAT, key " is " text}
#define ROPE(block) "{\"rope_scaling\": " block "}"

static const struct {
    const char *changes;
    int32_t status;
    const char *part;
} cases[] = {
    {"{}", AFMOE_OK, ""},
    /* which model */
    {"{\"model_type\": \"llama\"}", AFMOE_UNSUPPORTED, "model_type \"llama\" is not supported, only \"afmoe\""},
    {"{\"model_type\": \"DROP\"}", AFMOE_FORMAT, "model_type is missing"},
    {"{\"model_type\": 3}", AFMOE_FORMAT, "model_type is an integer, expected a string"},
    {"{\"hidden_act\": \"gelu\"}", AFMOE_UNSUPPORTED, "hidden_act \"gelu\""},
    {"{\"hidden_act\": null}", AFMOE_FORMAT, "hidden_act is null"},
    {"{\"score_func\": \"topk\"}", AFMOE_UNSUPPORTED, "score_func \"topk\""},
    /* wrong types */
    TYPE("num_hidden_layers", "\"2\"", "a string, expected an integer"),
    TYPE("num_hidden_layers", "2.0", "a fraction, expected an integer"),
    TYPE("num_hidden_layers", "null", "null, expected an integer"),
    TYPE("head_dim", "null", "null, expected an integer"),
    TYPE("hidden_size", "[32]", "an array"),
    TYPE("rms_norm_eps", "\"1e-5\"", "a string, expected a number"),
    TYPE("mup_enabled", "1", "an integer, expected a boolean"),
    TYPE("mup_enabled", "null", "null, expected a boolean"),
    TYPE("tie_word_embeddings", "\"true\"", "a string"),
    TYPE("layer_types", "\"full_attention\"", "a string, expected an array"),
    TYPE("rope_scaling", "[]", "an array, expected an object or null"),
    TYPE("rope_theta", "\"10000\"", "a string, expected a number"),
    TYPE("n_group", "null", "null"),
    /* ranges */
    RANGE("vocab_size", "0", "0, expected 1..2147483647"),
    RANGE("vocab_size", "4294967296", "4294967296"),
    RANGE("hidden_size", "0", "0, expected 1..1048576"),
    RANGE("hidden_size", "-1", "-1"),
    RANGE("num_hidden_layers", "0", "0, expected 1..1024"),
    RANGE("num_hidden_layers", "1000000000", "1000000000, expected 1..1024"),
    RANGE("num_hidden_layers", "9223372036854775807", "9.22337203685478e+18"),
    RANGE("num_dense_layers", "-1", "-1"),
    RANGE("num_attention_heads", "0", "0"),
    RANGE("num_key_value_heads", "0", "0, expected 1..4096"),
    RANGE("head_dim", "0", "0, expected 2..4096"),
    RANGE("intermediate_size", "0", "0"),
    RANGE("moe_intermediate_size", "16777217", "16777217"),
    RANGE("num_experts", "65537", "65537, expected 0..65536"),
    RANGE("num_shared_experts", "-1", "-1"),
    RANGE("n_group", "0", "0, expected 1..65536"),
    RANGE("topk_group", "0", "0"),
    RANGE("route_scale", "-0.5", "-0.5"),
    RANGE("rms_norm_eps", "0", "0"),
    RANGE("max_position_embeddings", "0", "0"),
    RANGE("global_attn_every_n_layers", "0", "0, expected 1.."),
    /* between fields */
    {"{\"head_dim\": 15}", AFMOE_FORMAT, "head_dim is 15, expected an even number"},
    {"{\"num_attention_heads\": 3, \"num_key_value_heads\": 2}", AFMOE_FORMAT,
     "num_attention_heads (3) is no multiple of num_key_value_heads (2)"},
    {"{\"num_key_value_heads\": 4}", AFMOE_FORMAT, "no multiple of num_key_value_heads (4)"},
    {"{\"num_dense_layers\": 3}", AFMOE_FORMAT, "num_dense_layers (3) is above num_hidden_layers (2)"},
    {"{\"num_experts_per_tok\": 5}", AFMOE_FORMAT, "num_experts_per_tok (5) is above num_experts (4)"},
    {"{\"num_experts_per_tok\": 0}", AFMOE_FORMAT, "num_experts_per_tok is 0"},
    {"{\"num_experts\": 0}", AFMOE_FORMAT, "num_experts is 0"},
    {"{\"num_experts\": 65536, \"num_hidden_layers\": 9, \"layer_types\": null}", AFMOE_LIMIT, "allowed are 262144"},
    {"{\"n_group\": 3}", AFMOE_FORMAT, "num_experts (4) is no multiple of n_group (3)"},
    {"{\"n_group\": 2, \"topk_group\": 3}", AFMOE_FORMAT, "topk_group (3) is above n_group (2)"},
    {"{\"n_group\": 4, \"topk_group\": 1}", AFMOE_FORMAT, "num_experts_per_tok (2) is above the 1 experts of 1 groups"},
    {"{\"n_group\": 2, \"num_expert_groups\": 1}", AFMOE_FORMAT, "num_expert_groups, its other name, is 1"},
    {"{\"num_dense_layers\": 2, \"num_experts\": 0, \"num_experts_per_tok\": 0}", AFMOE_OK, ""},
    {"{\"sliding_window\": null}", AFMOE_FORMAT, "sliding_window is 0 or missing, but layer 0"},
    {"{\"sliding_window\": 0}", AFMOE_FORMAT, "sliding_window is 0"},
    {"{\"sliding_window\": null, \"layer_types\": [\"full_attention\", \"full_attention\"]}", AFMOE_OK, ""},
    {"{\"layer_types\": [\"full_attention\"]}", AFMOE_FORMAT, "layer_types has 1 entries, num_hidden_layers is 2"},
    {"{\"layer_types\": [\"full_attention\", \"chunked_attention\"]}", AFMOE_FORMAT,
     "layer_types[1] is \"chunked_attention\""},
    {"{\"layer_types\": [\"full_attention\", 1]}", AFMOE_FORMAT, "an entry of layer_types is an integer"},
    /* tokens */
    {"{\"bos_token_id\": 40}", AFMOE_FORMAT, "bos_token_id is 40, expected -1..39"},
    {"{\"pad_token_id\": -2}", AFMOE_FORMAT, "pad_token_id is -2"},
    {"{\"eos_token_id\": \"3\"}", AFMOE_FORMAT, "eos_token_id is a string"},
    {"{\"bos_token_id\": [1]}", AFMOE_FORMAT, "bos_token_id is an array"},
    /* rope */
    {ROPE("{\"rope_type\": \"longrope\", \"factor\": 2}"), AFMOE_UNSUPPORTED, "rope_type \"longrope\""},
    {ROPE("{\"rope_type\": \"yarn\"}"), AFMOE_FORMAT, "no factor"},
    {ROPE("{\"rope_type\": \"linear\"}"), AFMOE_FORMAT, "no factor"},
    {ROPE("{\"rope_type\": \"dynamic\"}"), AFMOE_FORMAT, "no factor"},
    {ROPE("{\"rope_type\": \"llama3\", \"factor\": 2, \"low_freq_factor\": 1}"), AFMOE_FORMAT, "no high_freq_factor"},
    {ROPE("{\"rope_type\": \"llama3\", \"factor\": 2, \"low_freq_factor\": 4, \"high_freq_factor\": 4}"), AFMOE_FORMAT,
     "high_freq_factor 4 is not above low_freq_factor 4"},
    {ROPE("{\"rope_type\": \"linear\", \"factor\": 0}"), AFMOE_FORMAT, "factor is 0"},
    {ROPE("{\"rope_type\": \"linear\", \"factor\": null}"), AFMOE_FORMAT, "factor is null"},
    {ROPE("{\"rope_type\": \"linear\", \"factor\": 2, \"partial_rotary_factor\": 0.5}"), AFMOE_UNSUPPORTED,
     "partial_rotary_factor 0.5"},
    {ROPE("{\"rope_type\": \"yarn\", \"factor\": 2, \"original_max_position_embeddings\": 0}"), AFMOE_FORMAT,
     "original_max_position_embeddings is 0"},
    {ROPE("{\"rope_type\": \"yarn\", \"factor\": 2, \"beta_fast\": -1}"), AFMOE_FORMAT, "beta_fast is -1"},
    {ROPE("{\"rope_type\": 1}"), AFMOE_FORMAT, "rope_type is an integer"},
    {ROPE("{\"sliding_attention\": {\"rope_type\": \"default\"}}"), AFMOE_UNSUPPORTED, "\"sliding_attention\""},
    {ROPE("{\"rope_theta\": 1}"), AFMOE_FORMAT, "rope_theta is 1"},
    {"{\"rope_theta\": 0}", AFMOE_FORMAT, "rope_theta is 0"},
    {"{\"rope_theta\": null}", AFMOE_FORMAT, "rope_theta is null"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_config config;
        afmoe_error error;
        uint64_t before = memory_peak_begin();
        afmoe_status status = read_with(&config, cases[i].changes, &error);
        assert_true(memory_peak_growth_kib(before) <= memory_allowed_kib(0));
        if (status != cases[i].status || (status && !strstr(error.message, cases[i].part))) {
            print_error("%s: %d, expected %d: \"%s\", expected \"%s\"\n", cases[i].changes, status, cases[i].status,
                        error.message, cases[i].part);
        }
        assert_int_equal(status, cases[i].status);
        if (!status) continue;
        assert_non_null(strstr(error.message, cases[i].part));
        assert_non_null(strstr(error.message, "config.json"));
    }
}

static struct model_config read_good(const char *changes)
{
    struct model_config config;
    afmoe_error error;
    afmoe_status status = read_with(&config, changes, &error);
    if (status) print_error("%s: %s\n", changes, error.message);
    assert_int_equal(status, AFMOE_OK);
    return config;
}

/* The defaults of transformers' AfmoeConfig. */
static void test_defaults(void **state)
{
    (void)state;
    struct model_config c;
    json_t *config = json_pack("{s:s}", "model_type", "afmoe");
    afmoe_error error = {.size = sizeof error};
    assert_int_equal(afmoe__config_from_json(&c, config, "config.json", &error), AFMOE_OK);
    json_decref(config);
    assert_int_equal(c.vocab_size, 200192);
    assert_int_equal(c.hidden_size, 2048);
    assert_int_equal(c.n_layers, 32);
    assert_int_equal(c.n_dense_layers, 1);
    assert_int_equal(c.n_heads, 16);
    assert_int_equal(c.n_kv_heads, 16);
    assert_int_equal(c.head_dim, 128);
    assert_int_equal(c.intermediate_size, 6144);
    assert_int_equal(c.moe_intermediate_size, 1408);
    assert_int_equal(c.n_experts, 64);
    assert_int_equal(c.n_experts_per_token, 6);
    assert_int_equal(c.n_shared_experts, 2);
    assert_int_equal(c.n_groups, 1);
    assert_int_equal(c.n_groups_chosen, 1);
    assert_int_equal(c.score, SCORE_SIGMOID);
    assert_true(c.route_norm && c.route_scale == 1 && c.rms_norm_eps == 1e-5);
    assert_false(c.mup_enabled || c.tie_word_embeddings || c.attention_bias);
    assert_int_equal(c.sliding_window, 1024);
    assert_int_equal(c.max_positions, 16384);
    assert_int_equal(c.rope.kind, ROPE_DEFAULT);
    assert_true(c.rope.theta == 10000);
    for (uint32_t l = 0; l < 32; l++) assert_int_equal(c.layer_is_full[l], l % 4 == 3);
    assert_int_equal(c.bos_token, -1);
    assert_int_equal(c.eos_token, -1);
    assert_int_equal(c.pad_token, -1);
}

static void test_spellings(void **state)
{
    (void)state;
    struct model_config c = read_good("{\"num_key_value_heads\": null}");
    assert_int_equal(c.n_kv_heads, 2);
    c = read_good("{\"num_key_value_heads\": \"DROP\"}");
    assert_int_equal(c.n_kv_heads, 2);
    c = read_good("{\"num_expert_groups\": 2, \"num_limited_groups\": 2}");
    assert_int_equal(c.n_groups, 2);
    assert_int_equal(c.n_groups_chosen, 2);
    c = read_good("{\"layer_types\": null, \"global_attn_every_n_layers\": 1}");
    assert_true(c.layer_is_full[0] && c.layer_is_full[1]);
    c = read_good("{\"layer_types\": [\"full_attention\", \"sliding_attention\"], \"global_attn_every_n_layers\": 2}");
    assert_true(c.layer_is_full[0] && !c.layer_is_full[1]); /* the list decides */
    c = read_good("{\"score_func\": \"softmax\", \"route_norm\": false, \"route_scale\": 2, \"mup_enabled\": true}");
    assert_int_equal(c.score, SCORE_SOFTMAX);
    assert_true(!c.route_norm && c.route_scale == 2 && c.mup_enabled);
    c = read_good("{\"eos_token_id\": [5, 6], \"bos_token_id\": 0, \"pad_token_id\": null}");
    assert_int_equal(c.eos_token, 5);
    assert_int_equal(c.bos_token, 0);
    assert_int_equal(c.pad_token, -1);
}

static void test_rope_precedence(void **state)
{
    (void)state;
    struct model_config c = read_good("{\"rope_theta\": 5000}");
    assert_true(c.rope.kind == ROPE_DEFAULT && c.rope.theta == 5000);
    c = read_good("{\"rope_theta\": 5000, \"rope_parameters\": {\"rope_theta\": 7000, \"rope_type\": \"default\"}}");
    assert_true(c.rope.theta == 7000); /* the block wins */
    c = read_good("{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2},"
                  " \"rope_parameters\": {\"rope_theta\": 7000, \"rope_type\": \"default\"}}");
    assert_true(c.rope.kind == ROPE_LINEAR && c.rope.factor == 2 && c.rope.theta == 10000); /* and replaces */
    c = read_good("{\"rope_scaling\": {}, \"rope_parameters\": {\"rope_theta\": 7000}}");
    assert_true(c.rope.kind == ROPE_DEFAULT && c.rope.theta == 7000);
    c = read_good("{\"rope_scaling\": {\"rope_type\": \"dynamic\", \"type\": \"yarn\", \"factor\": 3}}");
    assert_true(c.rope.kind == ROPE_DYNAMIC && c.rope.factor == 3); /* rope_type before type */
    c = read_good("{\"partial_rotary_factor\": 0.5}"); /* no effect in default rope */
    assert_true(c.rope.kind == ROPE_DEFAULT);
}

static void test_rope_yarn(void **state)
{
    (void)state;
    struct model_config c = read_good("{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4}}");
    assert_int_equal(c.rope.kind, ROPE_YARN);
    assert_true(c.rope.beta_fast == 32 && c.rope.beta_slow == 1 && c.rope.truncate && !c.rope.has_attention_factor);
    assert_int_equal(c.rope.original_max_positions, 128);
    c = read_good("{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 0, \"beta_slow\": null,"
                  " \"truncate\": false, \"attention_factor\": 0, \"mscale\": 0.7, \"mscale_all_dim\": 1,"
                  " \"original_max_position_embeddings\": 64}}");
    assert_true(c.rope.beta_fast == 32 && c.rope.beta_slow == 1 && !c.rope.truncate);
    assert_true(c.rope.has_attention_factor && c.rope.attention_factor == 0);
    assert_true(c.rope.mscale == 0.7 && c.rope.mscale_all_dim == 1);
    assert_int_equal(c.rope.original_max_positions, 64);
    c = read_good("{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1,"
                  " \"high_freq_factor\": 4}}");
    assert_true(c.rope.kind == ROPE_LLAMA3 && c.rope.low_freq_factor == 1 && c.rope.high_freq_factor == 4);
    assert_int_equal(c.rope.original_max_positions, 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_defaults),  cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_rope_precedence), cmocka_unit_test(test_rope_yarn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
