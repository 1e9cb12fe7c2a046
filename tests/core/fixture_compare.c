/* Compares a checkpoint with its fixture, see fixture_compare.h. */
#include "fixture_compare.h"

#include "checkpoint.h"
#include "error.h"
#include "expected.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Two experts whose biased scores are this close may change places: float32 sums of another order do that. */
static const double SCORE_MARGIN = 1e-5;

struct comparison {
    struct checkpoint checkpoint;
    struct expected expected;
    struct runner runner;
    struct fixture_result *result;
    double sum_logit;
    uint64_t n_logits;
    double *divergences; /* [n_divergences] */
    uint64_t n_divergences;
};

static void grow_to(double *most, double value)
{
    /* NaN in the values must not pass as small. */
    if (isnan(*most) || value > *most || isnan(value)) *most = isnan(value) ? INFINITY : value;
}

/* ---- One position ---- */

static double log_sum_exp(const float *z, uint64_t n)
{
    double max = -INFINITY, sum = 0;
    for (uint64_t i = 0; i < n; i++) max = z[i] > max ? z[i] : max;
    for (uint64_t i = 0; i < n; i++) sum += exp(z[i] - max);
    return max + log(sum);
}

static double divergence(const float *reference, const float *ours, uint64_t n)
{
    double a = log_sum_exp(reference, n), b = log_sum_exp(ours, n), sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += exp(reference[i] - a) * ((reference[i] - a) - (ours[i] - b));
    return sum;
}

static void compare_logits(struct comparison *c, const float *reference, const float *ours)
{
    uint64_t n = c->checkpoint.config.vocab_size;
    for (uint64_t i = 0; i < n; i++) {
        double difference = fabs((double)reference[i] - ours[i]);
        grow_to(&c->result->max_logit, difference);
        c->sum_logit += difference;
    }
    c->n_logits += n;
    c->divergences[c->n_divergences++] = divergence(reference, ours, n);
}

static void compare_residual(struct comparison *c, int layer, const float *reference, const float *ours)
{
    double difference = 0, norm = 0;
    for (uint64_t i = 0; i < c->checkpoint.config.hidden_size; i++) {
        difference += ((double)reference[i] - ours[i]) * ((double)reference[i] - ours[i]);
        norm += (double)reference[i] * reference[i];
    }
    double error = sqrt(difference) / sqrt(norm), before = c->result->worst_layer_error;
    grow_to(&c->result->worst_layer_error, error);
    if (c->result->worst_layer_error != before) c->result->worst_layer = layer;
}

/* The score that selects, from our router logits. Sigmoid or softmax is monotonic, so for softmax the exact value
 * needs all logits. */
static double biased_score(const struct comparison *c, int layer, const float *z, uint64_t expert)
{
    const struct model_config *config = &c->checkpoint.config;
    double score = config->score == SCORE_SIGMOID ? 1 / (1 + exp(-(double)z[expert]))
                                                  : exp(z[expert] - log_sum_exp(z, config->n_experts));
    return score + c->checkpoint.weights.layers[layer].expert_bias[expert];
}

static void compare_experts(struct comparison *c, int layer, const int64_t *ids, const float *weights, uint64_t at)
{
    const struct runner *r = &c->runner;
    uint64_t k = r->config->n_experts_per_token;
    uint64_t row = (uint64_t)layer * r->max_tokens + at;
    const float *z = r->router_logits + row * r->config->n_experts;
    if (c->result->expert_mismatches < 0) c->result->expert_mismatches = 0;
    for (uint64_t i = 0; i < k; i++) {
        uint64_t ours = r->ids[row * k + i];
        if ((int64_t)ours == ids[i]) {
            if (weights) grow_to(&c->result->max_route_weight, fabs((double)weights[i] - r->route_weights[row * k + i]));
        } else if (!(fabs(biased_score(c, layer, z, ours) - biased_score(c, layer, z, (uint64_t)ids[i])) <=
                     SCORE_MARGIN)) {
            c->result->expert_mismatches++;
        }
    }
}

/* ---- One sequence ---- */

/* Position `at` of the fixture's row is our position at - first. */
static void compare_position(struct comparison *c, uint64_t sequence, uint64_t at, uint64_t first)
{
    const struct expected *e = &c->expected;
    const struct model_config *config = &c->checkpoint.config;
    const struct runner *r = &c->runner;
    uint64_t row = sequence * e->n_positions + at, ours = at - first;
    const float *logits = expected_floats(e, "logits", -1);
    if (logits) compare_logits(c, logits + row * config->vocab_size, runner_logits(r, ours));
    for (int layer = 0; layer <= (int)config->n_layers; layer++) {
        const float *hidden = expected_floats(e, "hidden", layer);
        if (hidden)
            compare_residual(c, layer, hidden + row * config->hidden_size,
                             r->residual + ((uint64_t)layer * r->max_tokens + ours) * config->hidden_size);
        const int64_t *ids = expected_ints(e, "topk_ids", layer);
        const float *weights = expected_floats(e, "topk_weights", layer);
        uint64_t k = config->n_experts_per_token;
        if (ids) compare_experts(c, layer, ids + row * k, weights ? weights + row * k : NULL, ours);
    }
}

static afmoe_token argmax(const float *z, uint64_t n)
{
    uint64_t best = 0;
    for (uint64_t i = 1; i < n; i++)
        if (z[i] > z[best]) best = i;
    return (afmoe_token)best;
}

/* Go on greedily behind row 0 and compare with greedy_ids, which begins with the row itself. */
static afmoe_status compare_greedy(struct comparison *c, afmoe_error *error)
{
    const int64_t *greedy = expected_ints(&c->expected, "greedy_ids", -1);
    uint64_t n = expected_n(&c->expected, "greedy_ids", -1);
    if (!greedy) return AFMOE_OK;
    c->result->greedy_match = 1;
    for (uint64_t at = c->expected.n_positions; at < n; at++) {
        afmoe_token token = argmax(runner_logits(&c->runner, at - 1), c->checkpoint.config.vocab_size);
        if (token != greedy[at]) c->result->greedy_match = 0;
        token = (afmoe_token)greedy[at]; /* one early difference is one difference, not fifty */
        afmoe_status status = runner_feed(&c->runner, &token, 1, error);
        if (status != AFMOE_OK) return status;
    }
    return AFMOE_OK;
}

static afmoe_status compare_sequence(struct comparison *c, uint64_t sequence, afmoe_error *error)
{
    const struct expected *e = &c->expected;
    uint64_t first = expected_first(e, sequence);
    afmoe_token *tokens = malloc(e->n_positions * sizeof *tokens);
    if (!tokens) return afmoe__fail(error, AFMOE_NO_MEMORY, "no memory for tokens");
    for (uint64_t at = first; at < e->n_positions; at++) tokens[at - first] = expected_token(e, sequence, at);
    c->runner.n_tokens = 0;
    afmoe_status status = runner_feed(&c->runner, tokens, e->n_positions - first, error);
    free(tokens);
    if (status != AFMOE_OK) return status;
    for (uint64_t at = first; at < e->n_positions; at++) compare_position(c, sequence, at, first);
    return sequence == 0 && first == 0 ? compare_greedy(c, error) : AFMOE_OK;
}

/* ---- The whole fixture ---- */

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarise(struct comparison *c)
{
    struct fixture_result *result = c->result;
    double sum = 0;
    if (!c->n_logits) return;
    result->mean_logit = c->sum_logit / (double)c->n_logits;
    qsort(c->divergences, c->n_divergences, sizeof *c->divergences, rising);
    for (uint64_t i = 0; i < c->n_divergences; i++) sum += c->divergences[i];
    result->mean_divergence = sum / (double)c->n_divergences;
    uint64_t half = c->n_divergences / 2;
    result->median_divergence = c->n_divergences % 2 ? c->divergences[half]
                                                     : (c->divergences[half - 1] + c->divergences[half]) / 2;
}

static afmoe_status compare(struct comparison *c, const char *path, const struct runner_options *options,
                            afmoe_error *error)
{
    struct checkpoint_options open = {.max_json_bytes = 32u << 20};
    afmoe_status status = afmoe__checkpoint_open(&c->checkpoint, path, &open, error);
    if (status == AFMOE_OK) status = expected_open(&c->expected, path, error);
    if (status != AFMOE_OK) return status;
    uint64_t n_greedy = expected_n(&c->expected, "greedy_ids", -1);
    uint64_t n_most = n_greedy > c->expected.n_positions ? n_greedy : c->expected.n_positions;
    c->divergences = malloc(c->expected.n_sequences * c->expected.n_positions * sizeof *c->divergences);
    if (!c->divergences) return afmoe__fail(error, AFMOE_NO_MEMORY, "no memory for the divergences");
    status = runner_create(&c->runner, &c->checkpoint.config, &c->checkpoint.weights, options, n_most, error);
    for (uint64_t sequence = 0; status == AFMOE_OK && sequence < c->expected.n_sequences; sequence++)
        status = compare_sequence(c, sequence, error);
    if (status == AFMOE_OK) summarise(c);
    return status;
}

afmoe_status fixture_compare(struct fixture_result *out, const char *path, const struct runner_options *options,
                             afmoe_error *error)
{
    struct comparison c;
    memset(&c, 0, sizeof c);
    *out = (struct fixture_result){NAN, NAN, NAN, -1, -1, NAN, -1, NAN, NAN};
    c.result = out;
    afmoe_status status = compare(&c, path, options, error);
    runner_free(&c.runner);
    free(c.divergences);
    expected_close(&c.expected);
    afmoe__checkpoint_close(&c.checkpoint);
    return status;
}
