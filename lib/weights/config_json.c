/* config.json of the hub, in the spelling of every published checkpoint and of transformers 4 and 5. */
#include "config_fields.h"

#include "error.h"
#include "json_fields.h"

#include <math.h>
#include <string.h>

struct reader {
    struct config_source source;
    struct json_object root;
};

static afmoe_status fail_unsupported(const struct reader *r, const char *key, const char *value, const char *supported)
{
    return afmoe__fail(r->source.error, AFMOE_UNSUPPORTED, "%.120s: %s \"%.80s\" is not supported, only %s",
                       r->source.file, key, value, supported);
}

static afmoe_status check_architecture(const struct reader *r)
{
    const char *type = NULL;
    bool has;
    afmoe_status status = afmoe__json_string(&r->root, "model_type", NULL_IS_FAULT, &has, &type);
    if (status) return status;
    if (!has) return afmoe__fail(r->source.error, AFMOE_FORMAT, "%.120s: model_type is missing", r->source.file);
    return strcmp(type, "afmoe") == 0 ? AFMOE_OK : fail_unsupported(r, "model_type", type, "\"afmoe\"");
}

/* null means the default for these alone. */
static enum json_null null_rule(enum config_key key)
{
    return key == KEY_N_KV_HEADS ? NULL_IS_ABSENT : NULL_IS_FAULT;
}

static afmoe_status read_value(const struct reader *r, const char *key, enum field_type type, enum json_null null,
                               bool *has, double *out)
{
    int64_t integer = 0;
    bool boolean = false;
    afmoe_status status;
    switch (type) {
    case FIELD_BOOL:
        status = afmoe__json_bool(&r->root, key, null, has, &boolean);
        *out = boolean;
        return status;
    case FIELD_U32:
    case FIELD_U64:
        status = afmoe__json_integer(&r->root, key, null, has, &integer);
        *out = (double)integer; /* every range ends far below 2^53 */
        return status;
    case FIELD_F64:
        break;
    }
    return afmoe__json_number(&r->root, key, null, has, out);
}

/* A second spelling of the same field must not say something else. */
static afmoe_status read_alias(const struct reader *r, const struct config_field *f, bool *has, double *value)
{
    bool has_alias;
    double alias = 0;
    if (!f->hub_alias) return AFMOE_OK;
    afmoe_status status = read_value(r, f->hub_alias, f->type, NULL_IS_FAULT, &has_alias, &alias);
    if (status || !has_alias) return status;
    if (*has && alias != *value) {
        return afmoe__fail(r->source.error, AFMOE_FORMAT, "%.120s: %s is %.15g but %s, its other name, is %.15g",
                           r->source.file, f->hub, *value, f->hub_alias, alias);
    }
    *has = true;
    *value = alias;
    return AFMOE_OK;
}

static afmoe_status read_fields(const struct reader *r, struct model_config *c)
{
    for (int key = 0; key < N_CONFIG_KEYS; key++) {
        const struct config_field *f = &afmoe__config_fields[key];
        const json_t *raw = json_object_get(r->root.object, f->hub);
        double value = 0;
        bool has = false;
        if (key == KEY_SLIDING_WINDOW && json_is_null(raw)) { /* no window: an error if a layer slides */
            c->sliding_window = 0;
            continue;
        }
        afmoe_status status = read_value(r, f->hub, f->type, null_rule((enum config_key)key), &has, &value);
        if (!status) status = read_alias(r, f, &has, &value);
        if (!status && !has && key == KEY_N_KV_HEADS) {
            c->n_kv_heads = c->n_heads;
            continue;
        }
        if (!status) status = afmoe__config_store(&r->source, c, (enum config_key)key, has ? value : f->hub_default);
        if (status) return status;
    }
    return AFMOE_OK;
}

static afmoe_status read_score(const struct reader *r, struct model_config *c)
{
    const char *text = "sigmoid", *activation = "silu";
    bool has;
    afmoe_status status = afmoe__json_string(&r->root, "score_func", NULL_IS_FAULT, &has, &text);
    if (!status) status = afmoe__json_string(&r->root, "hidden_act", NULL_IS_FAULT, &has, &activation);
    if (status) return status;
    if (strcmp(activation, "silu") != 0) return fail_unsupported(r, "hidden_act", activation, "\"silu\"");
    if (strcmp(text, "sigmoid") == 0) c->score = SCORE_SIGMOID;
    else if (strcmp(text, "softmax") == 0) c->score = SCORE_SOFTMAX;
    else return fail_unsupported(r, "score_func", text, "\"sigmoid\" and \"softmax\"");
    return AFMOE_OK;
}

static afmoe_status read_period(const struct reader *r, struct model_config *c)
{
    int64_t period = 4;
    bool has;
    afmoe_status status = afmoe__json_integer(&r->root, "global_attn_every_n_layers", NULL_IS_FAULT, &has, &period);
    if (status) return status;
    if (period < 1 || period > MAX_PERIOD) {
        return afmoe__fail(r->source.error, AFMOE_FORMAT, "%.120s: global_attn_every_n_layers is %lld, expected 1..%d",
                           r->source.file, (long long)period, MAX_PERIOD);
    }
    afmoe__config_apply_period(c, (uint64_t)period);
    return AFMOE_OK;
}

static afmoe_status read_layer_types(const struct reader *r, struct model_config *c)
{
    const json_t *list = json_object_get(r->root.object, "layer_types");
    afmoe_status status = read_period(r, c);
    if (status || !list || json_is_null(list)) return status;
    if (!json_is_array(list)) return afmoe__json_fail_type(&r->root, "layer_types", list, "an array");
    if (json_array_size(list) != c->n_layers) {
        return afmoe__fail(r->source.error, AFMOE_FORMAT,
                           "%.120s: layer_types has %llu entries, num_hidden_layers is %u", r->source.file,
                           (unsigned long long)json_array_size(list), c->n_layers);
    }
    for (uint32_t l = 0; l < c->n_layers; l++) {
        const json_t *entry = json_array_get(list, l);
        const char *text = json_string_value(entry);
        if (!text) return afmoe__json_fail_type(&r->root, "an entry of layer_types", entry, "a string");
        c->layer_is_full[l] = strcmp(text, "full_attention") == 0;
        if (c->layer_is_full[l] || strcmp(text, "sliding_attention") == 0) continue;
        return afmoe__fail(r->source.error, AFMOE_FORMAT,
                           "%.120s: layer_types[%u] is \"%.80s\", expected \"full_attention\" or \"sliding_attention\"",
                           r->source.file, l, text);
    }
    return AFMOE_OK;
}

/* ---- Rope ------------------------------------------------------------------------------------------------------- */

static const char *const rope_kinds[] = {[ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear",
                                         [ROPE_DYNAMIC] = "dynamic", [ROPE_LLAMA3] = "llama3", [ROPE_YARN] = "yarn"};

/* rope_scaling if it is an object with something in it, else rope_parameters: the first replaces the second. */
static afmoe_status find_rope_block(const struct reader *r, const char **key, const json_t **out)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    for (int i = 0; i < 2; i++) {
        const json_t *block = json_object_get(r->root.object, keys[i]);
        if (!block || json_is_null(block)) continue;
        if (!json_is_object(block)) return afmoe__json_fail_type(&r->root, keys[i], block, "an object or null");
        if (json_object_size(block) == 0) continue;
        *key = keys[i];
        *out = block;
        return AFMOE_OK;
    }
    return AFMOE_OK;
}

static afmoe_status read_rope_kind(const struct reader *r, const struct json_object *block, const char *block_key,
                                   struct rope_config *rope)
{
    const char *text = "default", *key;
    json_t *value;
    bool has;
    json_object_foreach((json_t *)block->object, key, value) {
        if (!json_is_object(value)) continue;
        return afmoe__fail(
            r->source.error, AFMOE_UNSUPPORTED,
            "%.120s: %s has a block for \"%.80s\"; rope per layer type is not supported, as only sliding "
            "layers rotate",
            r->source.file, block_key, key);
    }
    afmoe_status status = afmoe__json_string(block, "rope_type", NULL_IS_FAULT, &has, &text);
    if (!status && !has) status = afmoe__json_string(block, "type", NULL_IS_FAULT, &has, &text);
    if (status) return status;
    for (int kind = ROPE_DEFAULT; kind <= ROPE_YARN; kind++) {
        if (strcmp(text, rope_kinds[kind]) != 0) continue;
        rope->kind = (enum rope_kind)kind;
        return AFMOE_OK;
    }
    return fail_unsupported(r, "rope_type", text, "default, linear, dynamic, llama3 and yarn");
}

static afmoe_status read_required(const struct reader *r, const struct json_object *block, const char *key, double *out)
{
    bool has;
    afmoe_status status = afmoe__json_number(block, key, NULL_IS_FAULT, &has, out);
    if (status || has) return status;
    return afmoe__fail(r->source.error, AFMOE_FORMAT, "%.120s: the rope block has no %s, which its type needs",
                       r->source.file, key);
}

/* transformers takes null and 0 alike as "not given" for the betas. */
static afmoe_status read_beta(const struct json_object *block, const char *key, double fallback, double *out)
{
    bool has;
    afmoe_status status = afmoe__json_number(block, key, NULL_IS_ABSENT, &has, out);
    if (!status && (!has || *out == 0)) *out = fallback;
    return status;
}

static afmoe_status read_yarn(const struct json_object *block, struct rope_config *rope)
{
    bool has;
    rope->truncate = true;
    afmoe_status status = read_beta(block, "beta_fast", 32, &rope->beta_fast);
    if (!status) status = read_beta(block, "beta_slow", 1, &rope->beta_slow);
    if (!status) status = afmoe__json_bool(block, "truncate", NULL_IS_FAULT, &has, &rope->truncate);
    if (!status) status = afmoe__json_number(block, "mscale", NULL_IS_ABSENT, &has, &rope->mscale);
    if (!status) status = afmoe__json_number(block, "mscale_all_dim", NULL_IS_ABSENT, &has, &rope->mscale_all_dim);
    if (!status) {
        status = afmoe__json_number(block, "attention_factor", NULL_IS_ABSENT, &rope->has_attention_factor,
                                    &rope->attention_factor);
    }
    return status;
}

static afmoe_status read_scaling(const struct reader *r, const struct json_object *block, struct model_config *c)
{
    struct rope_config *rope = &c->rope;
    int64_t original = (int64_t)c->max_positions;
    double partial = 1;
    bool has;
    if (rope->kind == ROPE_DEFAULT) return AFMOE_OK;
    afmoe_status status = afmoe__json_number(block, "partial_rotary_factor", NULL_IS_ABSENT, &has, &partial);
    if (!status && !has) status = afmoe__json_number(&r->root, "partial_rotary_factor", NULL_IS_ABSENT, &has, &partial);
    if (!status && partial != 1) {
        return afmoe__fail(r->source.error, AFMOE_UNSUPPORTED,
                           "%.120s: partial_rotary_factor %.15g with rope type %s is not supported, only 1",
                           r->source.file, partial, rope_kinds[rope->kind]);
    }
    if (!status) status = read_required(r, block, "factor", &rope->factor);
    if (!status) {
        status = afmoe__json_integer(block, "original_max_position_embeddings", NULL_IS_FAULT, &has, &original);
    }
    if (status) return status;
    rope->original_max_positions = original < 0 ? 0 : (uint64_t)original; /* 0 is out of its range */
    if (rope->kind == ROPE_LLAMA3) {
        status = read_required(r, block, "low_freq_factor", &rope->low_freq_factor);
        if (!status) status = read_required(r, block, "high_freq_factor", &rope->high_freq_factor);
    } else if (rope->kind == ROPE_YARN) {
        status = read_yarn(block, rope);
    }
    return status;
}

static afmoe_status read_rope(const struct reader *r, struct model_config *c)
{
    struct json_object block = {.file = r->source.file, .error = r->source.error};
    const char *block_key = NULL;
    bool has = false;
    c->rope = (struct rope_config){.theta = 10000, .factor = 1, .original_max_positions = c->max_positions};
    afmoe_status status = find_rope_block(r, &block_key, &block.object);
    if (!status && block.object) {
        status = read_rope_kind(r, &block, block_key, &c->rope);
        if (!status) status = afmoe__json_number(&block, "rope_theta", NULL_IS_FAULT, &has, &c->rope.theta);
        if (!status) status = read_scaling(r, &block, c);
    }
    if (!status && !has) status = afmoe__json_number(&r->root, "rope_theta", NULL_IS_FAULT, &has, &c->rope.theta);
    return status;
}

/* ---- Token ids -------------------------------------------------------------------------------------------------- */

static afmoe_status read_token(const struct reader *r, const char *key, uint64_t vocab_size, int32_t *out)
{
    const json_t *value = json_object_get(r->root.object, key);
    *out = -1;
    if (!value || json_is_null(value)) return AFMOE_OK;
    if (json_is_array(value) && strcmp(key, "eos_token_id") == 0) {
        if (json_array_size(value) == 0) return AFMOE_OK;
        value = json_array_get(value, 0);
    }
    if (!json_is_integer(value)) return afmoe__json_fail_type(&r->root, key, value, "an integer or null");
    return afmoe__config_check_token(&r->source, key, json_integer_value(value), vocab_size, out);
}

static afmoe_status read_tokens(const struct reader *r, uint64_t vocab_size, struct model_config *c)
{
    afmoe_status status = read_token(r, "bos_token_id", vocab_size, &c->bos_token);
    if (!status) status = read_token(r, "eos_token_id", vocab_size, &c->eos_token);
    if (!status) status = read_token(r, "pad_token_id", vocab_size, &c->pad_token);
    return status;
}

static afmoe_status start(struct reader *r, const json_t *document, const char *file, afmoe_error *error)
{
    *r = (struct reader){.source = {file, false, error}, .root = {document, file, error}};
    if (json_is_object(document)) return AFMOE_OK;
    return afmoe__json_fail_type(&r->root, "the document", document, "an object");
}

afmoe_status afmoe__config_tokens_from_json(struct model_config *out, const json_t *document, const char *file,
                                            afmoe_error *error)
{
    struct reader r;
    afmoe_status status = start(&r, document, file, error);
    return status ? status : read_tokens(&r, 0, out);
}

afmoe_status afmoe__config_from_json(struct model_config *out, const json_t *document, const char *file,
                                     afmoe_error *error)
{
    struct reader r;
    *out = (struct model_config){0};
    afmoe_status status = start(&r, document, file, error);
    if (!status) status = check_architecture(&r);
    if (!status) status = read_fields(&r, out);
    if (!status) status = read_score(&r, out);
    if (!status) status = read_layer_types(&r, out);
    if (!status) status = read_rope(&r, out);
    if (!status) status = read_tokens(&r, out->vocab_size, out);
    return status ? status : afmoe__config_check(&r.source, out);
}
