/* Recommended settings, see generation_config.h. Ranges are those of afmoe_sampler_options. */
#include "generation_config.h"

#include "error.h"
#include "json_fields.h"
#include "memory.h"

#include <stddef.h>

#define AT(member) offsetof(struct generation_config, member)

/* transformers and llama.cpp both take a top_k of 0 (llama.cpp: or less) as "off". */
static const struct {
    const char *hub, *gguf;
    size_t has, value; /* value: a double; top_k apart */
    double min, max;
} numbers[] = {
    {"temperature", "general.sampling.temp", AT(has_temperature), AT(temperature), 0, 100},
    {"top_p", "general.sampling.top_p", AT(has_top_p), AT(top_p), 0, 1},
    {"min_p", "general.sampling.min_p", AT(has_min_p), AT(min_p), 0, 1},
    {"repetition_penalty", "general.sampling.penalty_repeat", AT(has_repetition_penalty), AT(repetition_penalty), 0.01,
     100},
};
enum { N_NUMBERS = sizeof numbers / sizeof *numbers };

enum { MAX_EOS_TOKENS = 1024 };
static const double max_top_k = 4294967296.0;

static afmoe_status store_number(struct generation_config *out, int i, double value, const char *file, const char *key,
                                 afmoe_error *error)
{
    if (!(value >= numbers[i].min && value <= numbers[i].max)) {
        return afmoe__fail(error, AFMOE_FORMAT, "%.120s: %s is %.15g, expected %.15g..%.15g", file, key, value,
                           numbers[i].min, numbers[i].max);
    }
    *(bool *)((char *)out + numbers[i].has) = true;
    *(double *)((char *)out + numbers[i].value) = value;
    return AFMOE_OK;
}

static afmoe_status store_top_k(struct generation_config *out, int64_t value, const char *file, const char *key,
                                afmoe_error *error)
{
    if (value < 0 || (double)value > max_top_k) {
        return afmoe__fail(error, AFMOE_FORMAT, "%.120s: %s is %lld, expected 0..%.0f", file, key, (long long)value,
                           max_top_k);
    }
    out->has_top_k = value > 0;
    out->top_k = (uint64_t)value;
    return AFMOE_OK;
}

static afmoe_status read_eos(struct generation_config *out, const struct json_object *from, const json_t *value,
                             uint64_t vocab_size)
{
    uint64_t n = json_is_array(value) ? json_array_size(value) : 1;
    int64_t limit = vocab_size ? (int64_t)vocab_size : INT32_MAX;
    if (n == 0) return AFMOE_OK;
    if (n > MAX_EOS_TOKENS) { /* every generated token is looked for among them */
        return afmoe__fail(from->error, AFMOE_LIMIT, "%.120s: eos_token_id lists %llu tokens, allowed are %d",
                           from->file,
                           (unsigned long long)n, MAX_EOS_TOKENS);
    }
    int32_t *tokens = afmoe__alloc_array(n, sizeof *tokens);
    if (!tokens) return afmoe__fail_memory(from->error, n * sizeof *tokens, "stop tokens");
    for (uint64_t i = 0; i < n; i++) {
        const json_t *token = json_is_array(value) ? json_array_get(value, i) : value;
        afmoe_status status = AFMOE_OK;
        if (!json_is_integer(token)) {
            status = afmoe__json_fail_type(from, "eos_token_id", token, "an integer or a list of them");
        } else if (json_integer_value(token) < 0 || json_integer_value(token) >= limit) {
            status = afmoe__fail(from->error, AFMOE_FORMAT, "%.120s: eos_token_id is %lld, expected 0..%lld",
                                 from->file, (long long)json_integer_value(token), (long long)limit - 1);
        }
        if (status) {
            afmoe__free(tokens);
            return status;
        }
        tokens[i] = (int32_t)json_integer_value(token);
    }
    out->eos_tokens = tokens;
    out->n_eos_tokens = n;
    return AFMOE_OK;
}

afmoe_status afmoe__generation_from_json(struct generation_config *out, const json_t *document, uint64_t vocab_size,
                                         const char *file, afmoe_error *error)
{
    const struct json_object from = {document, file, error};
    int64_t top_k = 0;
    bool has;
    *out = (struct generation_config){0};
    if (!json_is_object(document)) return afmoe__json_fail_type(&from, "the document", document, "an object");
    /* transformers writes null for settings that are not made. */
    for (int i = 0; i < N_NUMBERS; i++) {
        double value;
        afmoe_status status = afmoe__json_number(&from, numbers[i].hub, NULL_IS_ABSENT, &has, &value);
        if (!status && has) status = store_number(out, i, value, file, numbers[i].hub, error);
        if (status) return status;
    }
    afmoe_status status = afmoe__json_integer(&from, "top_k", NULL_IS_ABSENT, &has, &top_k);
    if (!status && has) status = store_top_k(out, top_k, file, "top_k", error);
    if (!status) status = afmoe__json_bool(&from, "do_sample", NULL_IS_ABSENT, &out->has_do_sample, &out->do_sample);
    const json_t *eos = json_object_get(document, "eos_token_id");
    if (!status && eos && !json_is_null(eos)) status = read_eos(out, &from, eos, vocab_size);
    return status;
}

afmoe_status afmoe__generation_add_config_eos(struct generation_config *out, const json_t *config_document,
                                              uint64_t vocab_size, const char *file, afmoe_error *error)
{
    const struct json_object from = {config_document, file, error};
    const json_t *eos = json_object_get(config_document, "eos_token_id");
    if (out->eos_tokens || !json_is_array(eos)) return AFMOE_OK;
    return read_eos(out, &from, eos, vocab_size);
}

afmoe_status afmoe__generation_from_gguf(struct generation_config *out, const struct gguf *gguf, afmoe_error *error)
{
    static const char top_k_key[] = "general.sampling.top_k";
    const char *file = afmoe__gguf_name(gguf);
    struct gguf_value value;
    *out = (struct generation_config){0};
    for (int i = 0; i < N_NUMBERS; i++) {
        double number;
        if (!afmoe__gguf_find(gguf, numbers[i].gguf, &value)) continue;
        if (value.type == GGUF_ARRAY || !afmoe__gguf_get_f64(&value, 0, &number)) {
            return afmoe__fail(error, AFMOE_FORMAT, "%.120s: %s is no number", file, numbers[i].gguf);
        }
        afmoe_status status = store_number(out, i, number, file, numbers[i].gguf, error);
        if (status) return status;
    }
    if (afmoe__gguf_find(gguf, top_k_key, &value)) {
        int64_t top_k;
        if (value.type == GGUF_ARRAY || !afmoe__gguf_get_i64(&value, 0, &top_k)) {
            return afmoe__fail(error, AFMOE_FORMAT, "%.120s: %s is no integer", file, top_k_key);
        }
        return store_top_k(out, top_k < 0 ? 0 : top_k, file, top_k_key, error);
    }
    return AFMOE_OK;
}

void afmoe__generation_free(struct generation_config *config)
{
    afmoe__free(config->eos_tokens);
    *config = (struct generation_config){0};
}
