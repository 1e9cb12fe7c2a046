/* config.json, generation_config.json and tokenizer_config.json: valid ones with edits, or any bytes. A configuration
 * that is accepted keeps the promises of config.h. */
#include "fuzz.h"

#include "checkpoint.h"
#include "json.h"
#include "rope.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const configs[] = {
    ("{\"architectures\":[\"AfmoeForCausalLM\"],\"model_type\":\"afmoe\",\"vocab_size\":40,\"hidden_size\":32,"
     "\"num_hidden_layers\":4,\"num_dense_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
     "\"head_dim\":16,\"intermediate_size\":64,\"moe_intermediate_size\":32,\"num_experts\":8,"
     "\"num_experts_per_tok\":2,\"num_shared_experts\":1,\"n_group\":2,\"topk_group\":1,\"route_norm\":true,"
     "\"route_scale\":2.5,\"score_func\":\"sigmoid\",\"mup_enabled\":true,\"tie_word_embeddings\":false,"
     "\"attention_bias\":false,\"rms_norm_eps\":1e-05,\"sliding_window\":8,\"max_position_embeddings\":4096,"
     "\"hidden_act\":\"silu\",\"global_attn_every_n_layers\":4,\"layer_types\":[\"sliding_attention\","
     "\"sliding_attention\",\"sliding_attention\",\"full_attention\"],\"rope_theta\":10000.0,\"rope_scaling\":null,"
     "\"bos_token_id\":0,\"eos_token_id\":[3,4],\"pad_token_id\":12}"),
    ("{\"model_type\":\"afmoe\",\"vocab_size\":40,\"hidden_size\":32,\"num_hidden_layers\":2,\"head_dim\":16,"
     "\"layer_types\":[\"sliding_attention\",\"full_attention\"],\"max_position_embeddings\":131072,"
     "\"rope_parameters\":{\"rope_type\":\"yarn\",\"rope_theta\":10000.0,\"factor\":32.0,"
     "\"original_max_position_embeddings\":4096,\"beta_fast\":32.0,\"beta_slow\":1.0,\"mscale\":1.0,"
     "\"mscale_all_dim\":1.0,\"attention_factor\":1.1,\"truncate\":true}}"),
    ("{\"model_type\":\"afmoe\",\"num_hidden_layers\":2,\"rope_theta\":500000.0,\"rope_scaling\":{\"type\":\"llama3\","
     "\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}}"),
};

static const char generation[] = "{\"temperature\":0.15,\"top_p\":0.75,\"top_k\":50,\"min_p\":0.06,"
                                 "\"repetition_penalty\":1.1,\"do_sample\":true,\"eos_token_id\":[3,4],"
                                 "\"bos_token_id\":0}";
static const char tokenizer_config[] = "{\"add_bos_token\":true,\"bos_token\":\"<s>\",\"added\":{\"0\":[1]}}";

static const char *const words[] = {
    "afmoe", "llama", "AfmoeForCausalLM", "sliding_attention", "full_attention", "silu", "gelu", "sigmoid", "softmax",
    "default", "linear", "dynamic", "llama3", "yarn", "longrope", "rope_type", "type", "factor", "rope_scaling",
    "rope_parameters", "rope_theta", "num_expert_groups", "num_limited_groups", "n_group", "topk_group", "layer_types",
    "num_hidden_layers", "hidden_size", "head_dim", "vocab_size", "num_dense_layers", "eos_token_id", "attention_bias",
    "global_attn_every_n_layers", "max_position_embeddings", "original_max_position_embeddings", "quantization_config",
    "do_sample", "temperature", "auto_map", "attn_implementation",
};

enum { N_CONFIGS = sizeof configs / sizeof *configs, N_WORDS = sizeof words / sizeof *words };

static struct json_base config_bases[N_CONFIGS], generation_base, tokenizer_base;

static void check_numbers(const struct model_config *f)
{
    REQUIRE(f->vocab_size >= 1 && f->vocab_size <= INT32_MAX && f->hidden_size >= 1 && f->hidden_size <= 1048576);
    REQUIRE(f->n_layers >= 1 && f->n_layers <= MAX_LAYERS && f->n_dense_layers <= f->n_layers);
    REQUIRE(f->n_heads >= 1 && f->n_kv_heads >= 1 && f->n_heads % f->n_kv_heads == 0);
    REQUIRE(f->head_dim >= 2 && f->head_dim <= 4096 && f->head_dim % 2 == 0);
    REQUIRE(f->max_positions >= 1 && f->max_positions <= UINT64_C(1) << 32);
    REQUIRE(f->intermediate_size >= 1 && f->rms_norm_eps > 0 && isfinite(f->route_scale));
    for (uint32_t l = 0; l < f->n_layers; l++) REQUIRE(f->layer_is_full[l] || f->sliding_window >= 1);
    if (f->n_dense_layers < f->n_layers) {
        REQUIRE(f->n_experts >= 1 && f->n_experts_per_token >= 1 && f->n_experts_per_token <= f->n_experts);
        REQUIRE(f->n_groups >= 1 && f->n_experts % f->n_groups == 0 && f->n_groups_chosen <= f->n_groups);
        REQUIRE(f->moe_intermediate_size >= 1);
    }
    const int32_t tokens[] = {f->bos_token, f->eos_token, f->pad_token};
    for (int i = 0; i < 3; i++) REQUIRE(tokens[i] >= -1 && (tokens[i] < 0 || (uint64_t)tokens[i] < f->vocab_size));
}

static void check_rope(const struct model_config *f)
{
    static float frequencies[2048];
    float factor = afmoe__rope_frequencies(frequencies, f);
    REQUIRE(isfinite(factor));
    for (uint32_t i = 0; i < f->head_dim / 2; i++) REQUIRE(isfinite(frequencies[i]) && frequencies[i] >= 0);
}

static void read_config(const struct buffer *text)
{
    const struct json_caps caps = {1 << 20, JSON_MAX_VALUES, JSON_MAX_DEPTH};
    afmoe_error error = {.size = sizeof error};
    json_t *document = NULL;
    struct model_config config = {.bos_token = -1, .eos_token = -1, .pad_token = -1};
    struct generation_config more = {0};
    if (CHECK_ONE_OF(afmoe__json_parse(&document, text->data, text->n, &caps, "config.json", &error), AFMOE_OK,
                     AFMOE_FORMAT, AFMOE_TRUNCATED, AFMOE_LIMIT))
        return;
    afmoe_status status = CHECK_ONE_OF(afmoe__config_from_json(&config, document, "config.json", &error), AFMOE_OK,
                                       AFMOE_FORMAT, AFMOE_LIMIT, AFMOE_UNSUPPORTED);
    if (status == AFMOE_OK) {
        check_numbers(&config);
        check_rope(&config);
    }
    CHECK_ONE_OF(afmoe__config_tokens_from_json(&config, document, "config.json", &error), AFMOE_OK, AFMOE_FORMAT);
    CHECK_ONE_OF(afmoe__generation_add_config_eos(&more, document, 40, "config.json", &error), AFMOE_OK, AFMOE_FORMAT,
                 AFMOE_LIMIT);
    for (uint64_t i = 0; i < more.n_eos_tokens; i++) REQUIRE(more.eos_tokens[i] >= 0 && more.eos_tokens[i] < 40);
    afmoe__generation_free(&more);
    json_decref(document);
}

static void check_generation(const struct generation_config *g)
{
    REQUIRE(!g->has_temperature || (g->temperature >= 0 && g->temperature <= 100));
    REQUIRE(!g->has_top_p || (g->top_p >= 0 && g->top_p <= 1));
    REQUIRE(!g->has_min_p || (g->min_p >= 0 && g->min_p <= 1));
    REQUIRE(!g->has_repetition_penalty || (g->repetition_penalty >= 0.01 && g->repetition_penalty <= 100));
    for (uint64_t i = 0; i < g->n_eos_tokens; i++) REQUIRE(g->eos_tokens[i] >= 0 && g->eos_tokens[i] < 40);
}

static void read_generation(const struct buffer *text)
{
    const struct json_caps caps = {1 << 20, JSON_MAX_VALUES, JSON_MAX_DEPTH};
    afmoe_error error = {.size = sizeof error};
    json_t *document = NULL;
    struct generation_config config = {0};
    if (CHECK_ONE_OF(afmoe__json_parse(&document, text->data, text->n, &caps, "g.json", &error), AFMOE_OK, AFMOE_FORMAT,
                     AFMOE_TRUNCATED, AFMOE_LIMIT))
        return;
    if (CHECK_ONE_OF(afmoe__generation_from_json(&config, document, 40, "g.json", &error), AFMOE_OK, AFMOE_FORMAT,
                     AFMOE_LIMIT) == AFMOE_OK)
        check_generation(&config);
    afmoe__generation_free(&config);
    json_decref(document);
}

/* A whole folder without weights, as a host opens it for its tokenizer. */
static void open_folder(const struct buffer *config, const struct buffer *text, const struct buffer *tokenizer)
{
    afmoe_error error = {.size = sizeof error};
    struct checkpoint checkpoint;
    const struct checkpoint_options options = {.tokenizer_only = true, .max_json_bytes = 1 << 20};
    disk_clear();
    disk_put("config.json", config->data, config->n);
    disk_put("generation_config.json", text->data, text->n);
    disk_put("tokenizer_config.json", tokenizer->data, tokenizer->n);
    disk_put("tokenizer.json", "{}", 2);
    CHECK_ONE_OF(afmoe__checkpoint_open(&checkpoint, DISK, &options, &error), AFMOE_OK, AFMOE_FORMAT, AFMOE_TRUNCATED,
                 AFMOE_LIMIT, AFMOE_UNSUPPORTED);
    afmoe__checkpoint_close(&checkpoint);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices c = {data, size};
    struct buffer config = {0}, text = {0}, tokenizer = {0};
    if (!tokenizer_base.n) {
        for (int i = 0; i < N_CONFIGS; i++) json_base_init(&config_bases[i], configs[i]);
        json_base_init(&generation_base, generation);
        json_base_init(&tokenizer_base, tokenizer_config);
    }
    uint8_t how = choose_u8(&c);
    if (how == 255) {
        buffer_put(&config, c.at, c.n);
        buffer_put(&text, c.at, c.n);
    } else {
        json_edit(&config, &config_bases[how % N_CONFIGS], &c, words, N_WORDS);
        json_edit(&text, &generation_base, &c, words, N_WORDS);
        json_edit(&tokenizer, &tokenizer_base, &c, words, N_WORDS);
    }
    read_config(&config);
    read_generation(&text);
    open_folder(&config, &text, &tokenizer);
    buffer_free(&config);
    buffer_free(&text);
    buffer_free(&tokenizer);
    return 0;
}
