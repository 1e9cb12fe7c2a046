/* Fields of the configuration: spellings, defaults, ranges, and the rules between them. Spelling and defaults of
 * config.json are those of Hugging Face's AfmoeConfig, of GGUF those of llama.cpp's afmoe reader. */
#include "config_fields.h"

#include "error.h"

#include <math.h>
#include <stddef.h>

#define AT(member) offsetof(struct model_config, member)

/* Each expert takes some hundred bytes of views at open, whatever its file does. Large has 13,824; this allows 30 MiB. */
enum { MAX_ALL_EXPERTS = 1 << 18 };

static const double max_tokens = 4294967296.0;

const struct config_field afmoe__config_fields[N_CONFIG_KEYS] = {
    [KEY_VOCAB_SIZE] = {"vocab_size", NULL, "afmoe.vocab_size", AT(vocab_size), FIELD_U64, 200192, NAN, 1, 0x7FFFFFFF},
    [KEY_HIDDEN_SIZE] = {"hidden_size", NULL, "afmoe.embedding_length", AT(hidden_size), FIELD_U64, 2048, NAN, 1,
                         1048576},
    [KEY_N_LAYERS] = {"num_hidden_layers", NULL, "afmoe.block_count", AT(n_layers), FIELD_U32, 32, NAN, 1, MAX_LAYERS},
    [KEY_N_DENSE_LAYERS] = {"num_dense_layers", NULL, "afmoe.leading_dense_block_count", AT(n_dense_layers), FIELD_U32,
                            1, 0, 0, MAX_LAYERS},
    [KEY_N_HEADS] = {"num_attention_heads", NULL, "afmoe.attention.head_count", AT(n_heads), FIELD_U32, 16, NAN, 1,
                     4096},
    /* The default of 0 stands for "as many as heads"; 0 in a file is out of range. */
    [KEY_N_KV_HEADS] = {"num_key_value_heads", NULL, "afmoe.attention.head_count_kv", AT(n_kv_heads), FIELD_U32, 0, 0,
                        1, 4096},
    [KEY_HEAD_DIM] = {"head_dim", NULL, "afmoe.attention.key_length", AT(head_dim), FIELD_U32, 128, NAN, 2, 4096},
    [KEY_INTERMEDIATE_SIZE] = {"intermediate_size", NULL, "afmoe.feed_forward_length", AT(intermediate_size), FIELD_U64,
                               6144, NAN, 1, 16777216},
    /* Those of mixture layers may be 0 where there are none: see check_experts. */
    [KEY_MOE_INTERMEDIATE_SIZE] = {"moe_intermediate_size", NULL, "afmoe.expert_feed_forward_length",
                                   AT(moe_intermediate_size), FIELD_U64, 1408, 0, 0, 16777216},
    [KEY_N_EXPERTS] = {"num_experts", NULL, "afmoe.expert_count", AT(n_experts), FIELD_U32, 64, 0, 0, 65536},
    [KEY_N_EXPERTS_PER_TOKEN] = {"num_experts_per_tok", NULL, "afmoe.expert_used_count", AT(n_experts_per_token),
                                 FIELD_U32, 6, 0, 0, 65536},
    [KEY_N_SHARED_EXPERTS] = {"num_shared_experts", NULL, "afmoe.expert_shared_count", AT(n_shared_experts), FIELD_U32,
                              2, 0, 0, 65536},
    [KEY_N_GROUPS] = {"n_group", "num_expert_groups", "afmoe.expert_group_count", AT(n_groups), FIELD_U32, 1, 1, 1,
                      65536},
    [KEY_N_GROUPS_CHOSEN] = {"topk_group", "num_limited_groups", "afmoe.expert_group_used_count", AT(n_groups_chosen),
                             FIELD_U32, 1, 1, 1, 65536},
    [KEY_ROUTE_NORM] = {"route_norm", NULL, "afmoe.expert_weights_norm", AT(route_norm), FIELD_BOOL, 1, 1, 0, 1},
    [KEY_ROUTE_SCALE] = {"route_scale", NULL, "afmoe.expert_weights_scale", AT(route_scale), FIELD_F64, 1, 1, 0, 1e6},
    [KEY_MUP_ENABLED] = {"mup_enabled", NULL, NULL, AT(mup_enabled), FIELD_BOOL, 0, 1, 0, 1},
    [KEY_TIE_WORD_EMBEDDINGS] = {"tie_word_embeddings", NULL, NULL, AT(tie_word_embeddings), FIELD_BOOL, 0, 0, 0, 1},
    [KEY_ATTENTION_BIAS] = {"attention_bias", NULL, NULL, AT(attention_bias), FIELD_BOOL, 0, 0, 0, 1},
    [KEY_RMS_NORM_EPS] = {"rms_norm_eps", NULL, "afmoe.attention.layer_norm_rms_epsilon", AT(rms_norm_eps), FIELD_F64,
                          1e-5, NAN, 1e-30, 1},
    /* 0 or null is refused by check_layers where a layer slides. */
    [KEY_SLIDING_WINDOW] = {"sliding_window", NULL, "afmoe.attention.sliding_window", AT(sliding_window), FIELD_U64,
                            1024, 0, 0, 4294967295.0},
    [KEY_MAX_POSITIONS] = {"max_position_embeddings", NULL, "afmoe.context_length", AT(max_positions), FIELD_U64, 16384,
                           NAN, 1, 4294967296.0},
};

const char *afmoe__config_key(const struct config_source *source, enum config_key key)
{
    const struct config_field *field = &afmoe__config_fields[key];
    return source->is_gguf && field->gguf ? field->gguf : field->hub;
}

static afmoe_status fail_range(const struct config_source *source, const char *key, double value, double min,
                               double max)
{
    return afmoe__fail(source->error, AFMOE_FORMAT, "%.120s: %s is %.15g, expected %.15g..%.15g", source->file, key,
                       value, min, max);
}

afmoe_status afmoe__config_store(const struct config_source *source, struct model_config *config, enum config_key key,
                                 double value)
{
    const struct config_field *field = &afmoe__config_fields[key];
    char *place = (char *)config + field->offset;
    if (!(value >= field->min && value <= field->max)) {
        return fail_range(source, afmoe__config_key(source, key), value, field->min, field->max);
    }
    switch (field->type) {
    case FIELD_BOOL: *(bool *)place = value != 0; break;
    case FIELD_U32: *(uint32_t *)place = (uint32_t)value; break;
    case FIELD_U64: *(uint64_t *)place = (uint64_t)value; break;
    case FIELD_F64: *(double *)place = value; break;
    }
    return AFMOE_OK;
}

void afmoe__config_apply_period(struct model_config *config, uint64_t period)
{
    for (uint32_t l = 0; l < config->n_layers; l++) config->layer_is_full[l] = (l + 1) % period == 0;
}

afmoe_status afmoe__config_check_token(const struct config_source *source, const char *key, int64_t token,
                                       uint64_t vocab_size, int32_t *out)
{
    int64_t limit = vocab_size ? (int64_t)vocab_size : INT32_MAX;
    if (token < -1 || token >= limit) {
        return afmoe__fail(source->error, AFMOE_FORMAT, "%.120s: %s is %lld, expected -1..%lld", source->file, key,
                           (long long)token, (long long)limit - 1);
    }
    *out = (int32_t)token;
    return AFMOE_OK;
}

/* ---- Rope ------------------------------------------------------------------------------------------------------- */

afmoe_status afmoe__config_check_rope(const struct config_source *source, const struct rope_config *rope)
{
    bool yarn = rope->kind == ROPE_YARN, llama3 = rope->kind == ROPE_LLAMA3, scaled = rope->kind != ROPE_DEFAULT;
    const struct {
        const char *name;
        bool matters;
        double value, min, max;
    } numbers[] = {
        /* Above 1, as yarn divides by ln(theta). */
        {"rope_theta", true, rope->theta, 1.0001, 1e15},
        {"factor", scaled, rope->factor, 1e-3, 1e6},
        {"original_max_position_embeddings", yarn || llama3, (double)rope->original_max_positions, 1, max_tokens},
        {"low_freq_factor", llama3, rope->low_freq_factor, 1e-6, 1e6},
        {"high_freq_factor", llama3, rope->high_freq_factor, 1e-6, 1e6},
        {"beta_fast", yarn, rope->beta_fast, 1e-6, 1e6},
        {"beta_slow", yarn, rope->beta_slow, 1e-6, 1e6},
        {"attention_factor", yarn && rope->has_attention_factor, rope->attention_factor, 0, 1e6},
        {"mscale", yarn, rope->mscale, 0, 1e6},
        {"mscale_all_dim", yarn, rope->mscale_all_dim, 0, 1e6},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].matters && !(numbers[i].value >= numbers[i].min && numbers[i].value <= numbers[i].max)) {
            return fail_range(source, numbers[i].name, numbers[i].value, numbers[i].min, numbers[i].max);
        }
    }
    if (llama3 && rope->high_freq_factor <= rope->low_freq_factor) {
        return afmoe__fail(source->error, AFMOE_FORMAT, "%.120s: high_freq_factor %.15g is not above low_freq_factor "
                           "%.15g", source->file, rope->high_freq_factor, rope->low_freq_factor);
    }
    return AFMOE_OK;
}

/* ---- Rules between fields --------------------------------------------------------------------------------------- */

static afmoe_status fail_rule(const struct config_source *source, enum config_key a, uint64_t value_a, const char *rule,
                              enum config_key b, uint64_t value_b)
{
    return afmoe__fail(source->error, AFMOE_FORMAT, "%.120s: %s (%llu) %s %s (%llu)", source->file,
                       afmoe__config_key(source, a), (unsigned long long)value_a, rule, afmoe__config_key(source, b),
                       (unsigned long long)value_b);
}

static afmoe_status check_layers(const struct config_source *source, const struct model_config *c)
{
    if (c->n_dense_layers > c->n_layers) {
        return fail_rule(source, KEY_N_DENSE_LAYERS, c->n_dense_layers, "is above", KEY_N_LAYERS, c->n_layers);
    }
    for (uint32_t l = 0; l < c->n_layers && c->sliding_window == 0; l++) {
        if (c->layer_is_full[l]) continue;
        return afmoe__fail(source->error, AFMOE_FORMAT,
                           "%.120s: %s is 0 or missing, but layer %u has sliding attention", source->file,
                           afmoe__config_key(source, KEY_SLIDING_WINDOW), l);
    }
    return AFMOE_OK;
}

static afmoe_status check_heads(const struct config_source *source, const struct model_config *c)
{
    if (c->n_heads % c->n_kv_heads) {
        return fail_rule(source, KEY_N_HEADS, c->n_heads, "is no multiple of", KEY_N_KV_HEADS, c->n_kv_heads);
    }
    if (c->head_dim % 2) {
        return afmoe__fail(source->error, AFMOE_FORMAT, "%.120s: %s is %u, expected an even number", source->file,
                           afmoe__config_key(source, KEY_HEAD_DIM), c->head_dim);
    }
    return AFMOE_OK;
}

static afmoe_status check_experts(const struct config_source *source, const struct model_config *c)
{
    if (c->n_dense_layers == c->n_layers) return AFMOE_OK; /* no mixture layer: the fields are not used */
    const struct {
        enum config_key key;
        uint64_t value;
    } needed[] = {{KEY_N_EXPERTS, c->n_experts},
                  {KEY_N_EXPERTS_PER_TOKEN, c->n_experts_per_token},
                  {KEY_MOE_INTERMEDIATE_SIZE, c->moe_intermediate_size}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        if (needed[i].value) continue;
        return afmoe__fail(source->error, AFMOE_FORMAT, "%.120s: %s is 0 or missing, expected 1..%.0f", source->file,
                           afmoe__config_key(source, needed[i].key), afmoe__config_fields[needed[i].key].max);
    }
    uint64_t n_all = (uint64_t)c->n_experts * (c->n_layers - c->n_dense_layers);
    if (n_all > MAX_ALL_EXPERTS) {
        return afmoe__fail(source->error, AFMOE_LIMIT, "%.120s: %u layers of %s %u are %llu experts, allowed are %d",
                           source->file, c->n_layers - c->n_dense_layers, afmoe__config_key(source, KEY_N_EXPERTS),
                           c->n_experts, (unsigned long long)n_all, MAX_ALL_EXPERTS);
    }
    if (c->n_experts_per_token > c->n_experts) {
        return fail_rule(source, KEY_N_EXPERTS_PER_TOKEN, c->n_experts_per_token, "is above", KEY_N_EXPERTS,
                         c->n_experts);
    }
    if (c->n_experts % c->n_groups) {
        return fail_rule(source, KEY_N_EXPERTS, c->n_experts, "is no multiple of", KEY_N_GROUPS, c->n_groups);
    }
    if (c->n_groups_chosen > c->n_groups) {
        return fail_rule(source, KEY_N_GROUPS_CHOSEN, c->n_groups_chosen, "is above", KEY_N_GROUPS, c->n_groups);
    }
    uint64_t eligible = (uint64_t)c->n_groups_chosen * (c->n_experts / c->n_groups);
    if (c->n_experts_per_token > eligible) {
        return afmoe__fail(source->error, AFMOE_FORMAT, "%.120s: %s (%u) is above the %llu experts of %u groups",
                           source->file, afmoe__config_key(source, KEY_N_EXPERTS_PER_TOKEN), c->n_experts_per_token,
                           (unsigned long long)eligible, c->n_groups_chosen);
    }
    return AFMOE_OK;
}

afmoe_status afmoe__config_check(const struct config_source *source, const struct model_config *config)
{
    afmoe_status status = check_layers(source, config);
    if (!status) status = check_heads(source, config);
    if (!status) status = check_experts(source, config);
    if (!status) status = afmoe__config_check_rope(source, &config->rope);
    return status;
}
