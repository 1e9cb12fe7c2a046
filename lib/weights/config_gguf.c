/* The configuration in GGUF metadata (afmoe.*), as llama.cpp's converter writes it. */
#include "config_fields.h"

#include "error.h"

#include <math.h>
#include <string.h>

struct reader {
    struct config_source source;
    const struct gguf *gguf;
    const struct tensor_table *tensors; /* NULL where only tokens are read */
};

static afmoe_status fail_type(const struct reader *r, const char *key, const struct gguf_value *value,
                              const char *expected)
{
    return afmoe__fail(r->source.error, AFMOE_FORMAT, "%.120s: %s is %s%s, expected %s", r->source.file, key,
                       value->type == GGUF_ARRAY ? "an array of " : "a value of type ",
                       afmoe__gguf_type_name(value->element_type), expected);
}

/* A scalar; an array where one is expected would mean a value for each layer, which AFMoE files do not have. */
static afmoe_status find_scalar(const struct reader *r, const char *key, bool *has, struct gguf_value *out)
{
    *has = afmoe__gguf_find(r->gguf, key, out);
    if (!*has || out->type != GGUF_ARRAY) return AFMOE_OK;
    return afmoe__fail(r->source.error, AFMOE_UNSUPPORTED, "%.120s: %s is an array; a value for each layer is not "
                       "supported", r->source.file, key);
}

static afmoe_status read_number(const struct reader *r, const char *key, bool *has, double *out)
{
    struct gguf_value value;
    afmoe_status status = find_scalar(r, key, has, &value);
    if (status || !*has) return status;
    return afmoe__gguf_get_f64(&value, 0, out) ? AFMOE_OK : fail_type(r, key, &value, "a number");
}

static afmoe_status read_integer(const struct reader *r, const char *key, bool *has, int64_t *out)
{
    struct gguf_value value;
    afmoe_status status = find_scalar(r, key, has, &value);
    if (status || !*has) return status;
    return afmoe__gguf_get_i64(&value, 0, out) ? AFMOE_OK : fail_type(r, key, &value, "an integer");
}

static afmoe_status read_string(const struct reader *r, const char *key, bool *has, const char **out, uint64_t *out_n)
{
    struct gguf_value value;
    const uint8_t *bytes;
    afmoe_status status = find_scalar(r, key, has, &value);
    if (status || !*has) return status;
    if (!afmoe__gguf_get_string(&value, &bytes, out_n)) return fail_type(r, key, &value, "a string");
    *out = (const char *)bytes;
    return AFMOE_OK;
}

static bool equals(const char *text, uint64_t n, const char *other)
{
    return n == strlen(other) && memcmp(text, other, n) == 0;
}

static int shown(uint64_t n)
{
    return n < 80 ? (int)n : 80;
}

static afmoe_status fail_missing(const struct reader *r, const char *key)
{
    return afmoe__fail(r->source.error, AFMOE_FORMAT, "%.120s: key %s is missing", r->source.file, key);
}

static afmoe_status check_architecture(const struct reader *r)
{
    static const char key[] = "general.architecture";
    const char *text;
    uint64_t n;
    bool has;
    afmoe_status status = read_string(r, key, &has, &text, &n);
    if (status) return status;
    if (!has) return fail_missing(r, key);
    if (equals(text, n, "afmoe")) return AFMOE_OK;
    return afmoe__fail(r->source.error, AFMOE_UNSUPPORTED, "%.120s: %s \"%.*s\" is not supported, only \"afmoe\"",
                       r->source.file, key, shown(n), text);
}

static afmoe_status read_field(const struct reader *r, enum config_key key, bool *has, double *out)
{
    const struct config_field *f = &afmoe__config_fields[key];
    struct gguf_value value;
    int64_t integer = 0;
    bool boolean = false;
    afmoe_status status;
    *has = false;
    if (!f->gguf) return AFMOE_OK;
    switch (f->type) {
    case FIELD_BOOL:
        status = find_scalar(r, f->gguf, has, &value);
        if (status || !*has) return status;
        if (!afmoe__gguf_get_bool(&value, 0, &boolean)) return fail_type(r, f->gguf, &value, "a boolean");
        *out = boolean;
        return AFMOE_OK;
    case FIELD_U32:
    case FIELD_U64:
        status = read_integer(r, f->gguf, has, &integer);
        *out = (double)integer;
        return status;
    case FIELD_F64:
        break;
    }
    return read_number(r, f->gguf, has, out);
}

static afmoe_status read_fields(const struct reader *r, struct model_config *c)
{
    for (int key = 0; key < N_CONFIG_KEYS; key++) {
        const struct config_field *f = &afmoe__config_fields[key];
        const struct tensor *embedding;
        double value = 0;
        bool has;
        afmoe_status status = read_field(r, (enum config_key)key, &has, &value);
        if (status) return status;
        if (!has && key == KEY_N_KV_HEADS) {
            c->n_kv_heads = c->n_heads;
            continue;
        }
        if (!has && key == KEY_VOCAB_SIZE && (embedding = afmoe__tensors_find(r->tensors, "token_embd.weight"))) {
            has = true;
            value = embedding->n_dims > 1 ? (double)embedding->shape[embedding->n_dims - 2] : 1;
        }
        if (!has && isnan(f->gguf_default)) return fail_missing(r, f->gguf);
        status = afmoe__config_store(&r->source, c, (enum config_key)key, has ? value : f->gguf_default);
        if (status) return status;
    }
    c->tie_word_embeddings = !afmoe__tensors_find(r->tensors, "output.weight");
    return AFMOE_OK;
}

static afmoe_status read_score(const struct reader *r, struct model_config *c)
{
    static const char key[] = "afmoe.expert_gating_func";
    int64_t code = 2;
    bool has;
    afmoe_status status = read_integer(r, key, &has, &code);
    if (status) return status;
    if (code != 1 && code != 2) {
        return afmoe__fail(r->source.error, AFMOE_UNSUPPORTED, "%.120s: %s %lld is not supported, only 1 (softmax) and "
                           "2 (sigmoid)", r->source.file, key, (long long)code);
    }
    c->score = code == 1 ? SCORE_SOFTMAX : SCORE_SIGMOID;
    return AFMOE_OK;
}

/* A period, or a boolean for each layer: true where it slides. */
static afmoe_status read_pattern(const struct reader *r, struct model_config *c)
{
    static const char key[] = "afmoe.attention.sliding_window_pattern";
    struct gguf_value value;
    uint64_t period = 4;
    if (!afmoe__gguf_find(r->gguf, key, &value)) {
        afmoe__config_apply_period(c, period);
        return AFMOE_OK;
    }
    if (value.type != GGUF_ARRAY) {
        if (!afmoe__gguf_get_u64(&value, 0, &period)) return fail_type(r, key, &value, "an integer or booleans");
        if (period < 1 || period > MAX_PERIOD) {
            return afmoe__fail(r->source.error, AFMOE_FORMAT, "%.120s: %s is %llu, expected 1..%d", r->source.file, key,
                               (unsigned long long)period, MAX_PERIOD);
        }
        afmoe__config_apply_period(c, period);
        return AFMOE_OK;
    }
    if (value.n != c->n_layers) {
        return afmoe__fail(r->source.error, AFMOE_FORMAT, "%.120s: %s has %llu entries, afmoe.block_count is %u",
                           r->source.file, key, (unsigned long long)value.n, c->n_layers);
    }
    for (uint32_t l = 0; l < c->n_layers; l++) {
        bool slides;
        if (!afmoe__gguf_get_bool(&value, l, &slides)) return fail_type(r, key, &value, "booleans");
        c->layer_is_full[l] = !slides;
    }
    return AFMOE_OK;
}

/* Sizes the file states a second time must say the same. */
static afmoe_status check_head_sizes(const struct reader *r, const struct model_config *c)
{
    static const char *const keys[] = {"afmoe.attention.value_length", "afmoe.rope.dimension_count"};
    for (int i = 0; i < 2; i++) {
        int64_t size;
        bool has;
        afmoe_status status = read_integer(r, keys[i], &has, &size);
        if (status) return status;
        if (has && size != c->head_dim) {
            return afmoe__fail(r->source.error, AFMOE_UNSUPPORTED,
                               "%.120s: %s is %lld, supported is only afmoe.attention.key_length (%u)", r->source.file,
                               keys[i], (long long)size, c->head_dim);
        }
    }
    return AFMOE_OK;
}

/* ---- Rope ------------------------------------------------------------------------------------------------------- */

static afmoe_status read_rope_kind(const struct reader *r, bool has_factor, struct rope_config *rope)
{
    static const char key[] = "afmoe.rope.scaling.type";
    const char *text;
    uint64_t n;
    bool has;
    afmoe_status status = read_string(r, key, &has, &text, &n);
    if (status) return status;
    /* llama.cpp: a factor without a type scales linearly. */
    if (!has) rope->kind = has_factor ? ROPE_LINEAR : ROPE_DEFAULT;
    else if (equals(text, n, "none")) rope->kind = ROPE_DEFAULT;
    else if (equals(text, n, "linear")) rope->kind = has_factor ? ROPE_LINEAR : ROPE_DEFAULT;
    else if (equals(text, n, "yarn")) rope->kind = ROPE_YARN;
    else return afmoe__fail(r->source.error, AFMOE_UNSUPPORTED, "%.120s: %s \"%.*s\" is not supported, only none, "
                            "linear and yarn", r->source.file, key, shown(n), text);
    return AFMOE_OK;
}

static afmoe_status read_yarn(const struct reader *r, struct model_config *c)
{
    struct rope_config *rope = &c->rope;
    int64_t original = (int64_t)c->max_positions;
    double attention = 1, multiplier = 0;
    bool has;
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    rope->truncate = true;
    afmoe_status status = read_integer(r, "afmoe.rope.scaling.original_context_length", &has, &original);
    if (!status) status = read_number(r, "afmoe.rope.scaling.yarn_beta_fast", &has, &rope->beta_fast);
    if (!status) status = read_number(r, "afmoe.rope.scaling.yarn_beta_slow", &has, &rope->beta_slow);
    if (!status) status = read_number(r, "afmoe.rope.scaling.attn_factor", &has, &attention);
    if (!status) status = read_number(r, "afmoe.rope.scaling.yarn_log_multiplier", &has, &multiplier);
    if (status) return status;
    if (multiplier != 0) {
        return afmoe__fail(r->source.error, AFMOE_UNSUPPORTED, "%.120s: afmoe.rope.scaling.yarn_log_multiplier %.15g "
                           "is not supported, only 0", r->source.file, multiplier);
    }
    rope->original_max_positions = original < 0 ? 0 : (uint64_t)original; /* 0 is out of its range */
    if (attention != 1) { /* here a factor on top of yarn's own, in config.json the whole */
        rope->has_attention_factor = true;
        rope->attention_factor = attention * (rope->factor <= 1 ? 1 : 0.1 * log(rope->factor) + 1);
    }
    return AFMOE_OK;
}

static afmoe_status read_rope(const struct reader *r, struct model_config *c)
{
    struct rope_config *rope = &c->rope;
    bool has, has_factor = false;
    *rope = (struct rope_config){.theta = 10000, .factor = 1, .original_max_positions = c->max_positions};
    afmoe_status status = read_number(r, "afmoe.rope.freq_base", &has, &rope->theta);
    /* Only sliding layers rotate, so a base of their own is the base. */
    if (!status) status = read_number(r, "afmoe.rope.freq_base_swa", &has, &rope->theta);
    if (!status) status = read_number(r, "afmoe.rope.scaling.factor", &has_factor, &rope->factor);
    if (!status) status = read_rope_kind(r, has_factor, rope);
    if (status) return status;
    if (afmoe__tensors_find(r->tensors, "rope_freqs.weight")) {
        return afmoe__fail(r->source.error, AFMOE_UNSUPPORTED, "%.120s: tensor \"rope_freqs.weight\" (llama3 rope in "
                           "GGUF) is not supported", r->source.file);
    }
    if (rope->kind != ROPE_YARN) return AFMOE_OK;
    if (!has_factor) return fail_missing(r, "afmoe.rope.scaling.factor");
    return read_yarn(r, c);
}

/* ---- Token ids -------------------------------------------------------------------------------------------------- */

static afmoe_status read_token(const struct reader *r, const char *key, uint64_t vocab_size, int32_t *out)
{
    int64_t token = -1;
    bool has;
    afmoe_status status = read_integer(r, key, &has, &token);
    if (token == UINT32_MAX) token = -1; /* how -1 looks in an unsigned key */
    return status ? status : afmoe__config_check_token(&r->source, key, token, vocab_size, out);
}

static afmoe_status read_tokens(const struct reader *r, uint64_t vocab_size, struct model_config *c)
{
    struct gguf_value tokens;
    if (vocab_size && afmoe__gguf_find(r->gguf, "tokenizer.ggml.tokens", &tokens) && tokens.n > vocab_size) {
        return afmoe__fail(r->source.error, AFMOE_FORMAT,
                           "%.120s: tokenizer.ggml.tokens has %llu entries, the model has %llu rows", r->source.file,
                           (unsigned long long)tokens.n, (unsigned long long)vocab_size);
    }
    afmoe_status status = read_token(r, "tokenizer.ggml.bos_token_id", vocab_size, &c->bos_token);
    if (!status) status = read_token(r, "tokenizer.ggml.eos_token_id", vocab_size, &c->eos_token);
    if (!status) status = read_token(r, "tokenizer.ggml.padding_token_id", vocab_size, &c->pad_token);
    return status;
}

afmoe_status afmoe__config_tokens_from_gguf(struct model_config *out, const struct gguf *gguf, afmoe_error *error)
{
    const struct reader r = {{afmoe__gguf_name(gguf), true, error}, gguf, NULL};
    return read_tokens(&r, 0, out);
}

afmoe_status afmoe__config_from_gguf(struct model_config *out, const struct gguf *gguf,
                                     const struct tensor_table *tensors, afmoe_error *error)
{
    const struct reader r = {{afmoe__gguf_name(gguf), true, error}, gguf, tensors};
    *out = (struct model_config){0};
    afmoe_status status = check_architecture(&r);
    if (!status) status = read_fields(&r, out);
    if (!status) status = read_score(&r, out);
    if (!status) status = read_pattern(&r, out);
    if (!status) status = check_head_sizes(&r, out);
    if (!status) status = read_rope(&r, out);
    if (!status) status = read_tokens(&r, out->vocab_size, out);
    return status ? status : afmoe__config_check(&r.source, out);
}
