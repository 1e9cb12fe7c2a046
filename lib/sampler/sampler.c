/* The chain of filters up to the draw, see sampler.h. */
#include "sampler.h"

#include "draw.h"
#include "error.h"
#include "logprob.h"
#include "memory.h"

#include <math.h>
#include <string.h>

struct sampler {
    uint64_t vocab_size;
    const uint8_t *usable;
    uint8_t *own_usable; /* NULL when borrowed */
    float *z;            /* [vocab_size] adjusted logits */
    uint32_t *counts;    /* [vocab_size] zero between calls */
    uint64_t seed;
    float repetition_penalty, presence_penalty, frequency_penalty;
    uint64_t n_bias;
    afmoe_token *bias_tokens;
    float *bias_values;
    struct draw draw; /* temperature 0: greedy, no scratch */
};

static const uint64_t TOP_K_OFF = (uint64_t)1 << 32;

struct range {
    const char *name;
    float value, least, most;
};

/* Also refuses NaN. */
static afmoe_status check_range(const struct range *range, afmoe_error *error)
{
    if (range->value >= range->least && range->value <= range->most) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_INVALID, "%s is %g, allowed are %g..%g", range->name, (double)range->value,
                       (double)range->least, (double)range->most);
}

static afmoe_status check_options(const afmoe_sampler_options *o, afmoe_error *error)
{
    const struct range ranges[] = {
        {"temperature", o->temperature, 0.0f, 100.0f},
        {"top_p", o->top_p, 0.0f, 1.0f},
        {"min_p", o->min_p, 0.0f, 1.0f},
        {"repetition_penalty", o->repetition_penalty, 0.01f, 100.0f},
        {"presence_penalty", o->presence_penalty, -100.0f, 100.0f},
        {"frequency_penalty", o->frequency_penalty, -100.0f, 100.0f},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        afmoe_status status = check_range(&ranges[i], error);
        if (status != AFMOE_OK) return status;
    }
    if (o->top_k < 1 || o->top_k > TOP_K_OFF)
        return afmoe__fail(error, AFMOE_INVALID, "top_k is %llu, allowed are 1..%llu (off)",
                           (unsigned long long)o->top_k,
                           (unsigned long long)TOP_K_OFF);
    return afmoe__check_reserved(o->reserved, "afmoe_sampler_options", error);
}

/* `counts` is zeroed; it is used to find tokens given twice, and left in disorder on failure only. */
static afmoe_status check_bias(const afmoe_sampler_options *o, uint64_t vocab_size, uint32_t *counts,
                               afmoe_error *error)
{
    if (o->n_bias > 0 && (!o->bias_tokens || !o->bias_values))
        return afmoe__fail(error, AFMOE_INVALID, "n_bias is %llu but bias_%s is NULL", (unsigned long long)o->n_bias,
                           o->bias_tokens ? "values" : "tokens");
    for (uint64_t i = 0; i < o->n_bias; i++) {
        afmoe_token token = o->bias_tokens[i];
        float value = o->bias_values[i];
        if (token < 0 || (uint64_t)token >= vocab_size)
            return afmoe__fail(error, AFMOE_INVALID, "bias_tokens[%llu] is %d, allowed are 0..%llu",
                               (unsigned long long)i,
                               (int)token, (unsigned long long)(vocab_size - 1));
        if (!(value >= -1e30f && value <= 1e30f) && value != -INFINITY)
            return afmoe__fail(error, AFMOE_INVALID, "bias_values[%llu] is %g, allowed are -1e30..1e30 or -infinity",
                               (unsigned long long)i, (double)value);
        if (counts[token]++)
            return afmoe__fail(error, AFMOE_INVALID, "bias_tokens[%llu]: token %d was given before",
                               (unsigned long long)i, (int)token);
    }
    for (uint64_t i = 0; i < o->n_bias; i++) counts[o->bias_tokens[i]] = 0;
    return AFMOE_OK;
}

static afmoe_status take_memory(struct sampler *s, int borrows_usable, afmoe_error *error)
{
    uint64_t n = s->vocab_size;
    s->z = afmoe__alloc_aligned(n, sizeof *s->z);
    s->counts = afmoe__alloc_zeroed(n, sizeof *s->counts);
    int complete = s->z && s->counts;
    if (!borrows_usable) {
        s->own_usable = afmoe__alloc_array(n, 1);
        complete = complete && s->own_usable;
    }
    if (s->draw.temperature > 0.0f) {
        s->draw.keys = afmoe__alloc_array(n, sizeof *s->draw.keys);
        s->draw.weights = afmoe__alloc_array(n, sizeof *s->draw.weights);
        s->draw.indices = afmoe__alloc_array(n, sizeof *s->draw.indices);
        complete = complete && s->draw.keys && s->draw.weights && s->draw.indices;
    }
    return complete ? AFMOE_OK : afmoe__fail_memory(error, n * 28, "a sampler");
}

static afmoe_status copy_bias(struct sampler *s, const afmoe_sampler_options *options, afmoe_error *error)
{
    uint64_t n = options->n_bias;
    if (n == 0) return AFMOE_OK;
    s->bias_tokens = afmoe__alloc_array(n, sizeof *s->bias_tokens);
    s->bias_values = afmoe__alloc_array(n, sizeof *s->bias_values);
    if (!s->bias_tokens || !s->bias_values) return afmoe__fail_memory(error, n * 8, "the bias of a sampler");
    memcpy(s->bias_tokens, options->bias_tokens, n * sizeof *s->bias_tokens);
    memcpy(s->bias_values, options->bias_values, n * sizeof *s->bias_values);
    s->n_bias = n;
    return AFMOE_OK;
}

afmoe_status afmoe__sampler_create(struct sampler **out, uint64_t vocab_size, const uint8_t *usable,
                                   const afmoe_sampler_options *options, afmoe_error *error)
{
    *out = NULL;
    afmoe_status status = check_options(options, error);
    if (status != AFMOE_OK) return status;
    if (vocab_size < 1 || vocab_size > DRAW_MAX_ROWS)
        return afmoe__fail(error, AFMOE_LIMIT, "a sampler for %llu rows, allowed are 1..%d",
                           (unsigned long long)vocab_size, DRAW_MAX_ROWS);
    struct sampler *s = afmoe__alloc_zeroed(1, sizeof *s);
    if (!s) return afmoe__fail_memory(error, sizeof *s, "a sampler");
    s->vocab_size = vocab_size;
    s->seed = options->seed;
    s->repetition_penalty = options->repetition_penalty;
    s->presence_penalty = options->presence_penalty;
    s->frequency_penalty = options->frequency_penalty;
    s->draw.temperature = options->temperature;
    s->draw.top_k = options->top_k;
    s->draw.top_p = options->top_p;
    s->draw.min_p = options->min_p;
    status = take_memory(s, usable != NULL, error);
    if (status == AFMOE_OK) status = check_bias(options, vocab_size, s->counts, error);
    if (status == AFMOE_OK) status = copy_bias(s, options, error);
    if (status != AFMOE_OK) {
        afmoe__sampler_free(s);
        return status;
    }
    if (s->own_usable) memset(s->own_usable, 1, vocab_size);
    s->usable = usable ? usable : s->own_usable;
    *out = s;
    return AFMOE_OK;
}

void afmoe__sampler_free(struct sampler *sampler)
{
    if (!sampler) return;
    afmoe__free(sampler->own_usable);
    afmoe__free(sampler->z);
    afmoe__free(sampler->counts);
    afmoe__free(sampler->bias_tokens);
    afmoe__free(sampler->bias_values);
    afmoe__free(sampler->draw.keys);
    afmoe__free(sampler->draw.weights);
    afmoe__free(sampler->draw.indices);
    afmoe__free(sampler);
}

static afmoe_status check_history(const struct sampler *s, const afmoe_token *history, uint64_t n, afmoe_error *error)
{
    for (uint64_t i = 0; i < n; i++)
        if (history[i] < 0 || (uint64_t)history[i] >= s->vocab_size)
            return afmoe__fail(error, AFMOE_INVALID, "history[%llu] is token %d, allowed are 0..%llu",
                               (unsigned long long)i, (int)history[i], (unsigned long long)(s->vocab_size - 1));
    return AFMOE_OK;
}

/* z = logits where there is a token. */
static afmoe_status load(struct sampler *s, const float *logits, afmoe_error *error)
{
    float *z = s->z;
    const uint8_t *usable = s->usable;
    int bad = 0;
    for (uint64_t i = 0; i < s->vocab_size; i++) {
        float x = usable[i] ? logits[i] : -INFINITY;
        bad |= !(x < INFINITY);
        z[i] = x;
    }
    if (!bad) return AFMOE_OK;
    uint64_t i = 0;
    while (z[i] < INFINITY) i++;
    return afmoe__fail(error, AFMOE_NUMERIC, "the logit of token %llu is %s", (unsigned long long)i,
                       isnan(z[i]) ? "NaN" : "infinite");
}

static void add_bias(struct sampler *s)
{
    for (uint64_t i = 0; i < s->n_bias; i++) s->z[s->bias_tokens[i]] += s->bias_values[i];
}

/* Each token once, however often it occurs. */
static void penalise_repetition(struct sampler *s, const afmoe_token *history, uint64_t n)
{
    if (s->repetition_penalty == 1.0f) return;
    for (uint64_t i = 0; i < n; i++) {
        float *z = &s->z[history[i]];
        if (s->counts[history[i]]++) continue;
        *z = *z > 0.0f ? *z / s->repetition_penalty : *z * s->repetition_penalty;
    }
    for (uint64_t i = 0; i < n; i++) s->counts[history[i]] = 0;
}

static void penalise_generated(struct sampler *s, const afmoe_token *generated, uint64_t n)
{
    if (s->presence_penalty == 0.0f && s->frequency_penalty == 0.0f) return;
    for (uint64_t i = 0; i < n; i++) s->counts[generated[i]]++;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t *count = &s->counts[generated[i]];
        if (*count == 0) continue;
        float *z = &s->z[generated[i]];
        *z = *z - s->presence_penalty;
        *z = *z - s->frequency_penalty * (float)*count;
        *count = 0;
    }
}

static afmoe_token first_equal(const float *z, float value)
{
    uint64_t i = 0;
    while (z[i] != value) i++;
    return (afmoe_token)i;
}

afmoe_status afmoe__sampler_sample(struct sampler *s, const float *logits, const afmoe_token *history,
                                   uint64_t n_history, uint64_t n_prompt, afmoe_token *out_token, float *out_logprob,
                                   afmoe_error *error)
{
    afmoe_status status = check_history(s, history, n_history, error);
    if (status == AFMOE_OK) status = load(s, logits, error);
    if (status != AFMOE_OK) return status;

    add_bias(s);
    penalise_repetition(s, history, n_history);
    if (n_history > n_prompt) penalise_generated(s, history + n_prompt, n_history - n_prompt);

    /* No NaN can have come up: the only infinity so far is -infinity, and finite values were added or multiplied. */
    float max = afmoe__max_logit(s->z, s->vocab_size);
    if (max == INFINITY)
        return afmoe__fail(error, AFMOE_NUMERIC, "bias and penalties made the logit of token %d infinite",
                           (int)first_equal(s->z, max));
    if (max == -INFINITY)
        return afmoe__fail(error, AFMOE_NUMERIC, "no token is left: all %llu logits are -infinity",
                           (unsigned long long)s->vocab_size);

    struct log_normaliser normaliser;
    if (out_logprob) {
        status = afmoe__log_normaliser(&normaliser, logits, s->vocab_size, error);
        if (status != AFMOE_OK) return status;
    }
    afmoe_token token = s->draw.temperature == 0.0f
                            ? first_equal(s->z, max)
                            : afmoe__draw(&s->draw, s->z, s->vocab_size, max, s->seed, n_history);
    *out_token = token;
    if (out_logprob) *out_logprob = log_probability(&normaliser, logits[token]);
    return AFMOE_OK;
}

const uint8_t *afmoe__sampler_usable(const struct sampler *sampler)
{
    return sampler->usable;
}

uint64_t afmoe__sampler_vocab_size(const struct sampler *sampler)
{
    return sampler->vocab_size;
}
