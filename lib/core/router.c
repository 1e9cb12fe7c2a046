/* Token-choice routing, all in float32:
 *
 *   s = sigmoid(z), or softmax(z) over all experts
 *   b = s + expert_bias                      the bias only selects, it never weighs
 *   n_group G > 1: experts lie in G groups of E/G consecutive ones; a group's score is the sum of its two largest b
 *                  (of one, where it has one); experts outside the topk_group best groups are out
 *   chosen = k largest b, ties to the lower id
 *   w = s[chosen]; if route_norm w /= sum(w) + 1e-20; w *= route_scale
 *
 * NaN counts as the largest, as the reference's topk has it: broken weights must show in the output, not be routed
 * around. */
#include "router.h"

#include <math.h>

static const float OUT = -INFINITY;

static bool is_before(float a, float b)
{
    return a > b || (isnan(a) && !isnan(b));
}

/* Sum of the two largest of n values. */
static float top_two_sum(const float *b, uint32_t n)
{
    float first = OUT, second = OUT;
    for (uint32_t i = 0; i < n; i++) {
        if (is_before(b[i], first)) {
            second = first;
            first = b[i];
        } else if (is_before(b[i], second)) {
            second = b[i];
        }
    }
    return n > 1 ? first + second : first;
}

/* Index of the largest value, the lowest on a tie; `n` when every value is out. */
static uint32_t largest(const float *values, uint32_t n)
{
    uint32_t best = n;
    for (uint32_t i = 0; i < n; i++)
        if (values[i] != OUT && (best == n || is_before(values[i], values[best]))) best = i;
    return best;
}

/* Put out all experts of groups that are not among the best. Group scores reuse `scores` (n_groups <= n_experts). */
static void keep_best_groups(float *b, float *scores, const struct model_config *config)
{
    uint32_t size = config->n_experts / config->n_groups;
    for (uint32_t g = 0; g < config->n_groups; g++) scores[g] = top_two_sum(b + g * size, size);
    for (uint32_t i = 0; i < config->n_groups_chosen; i++) {
        uint32_t g = largest(scores, config->n_groups);
        if (g == config->n_groups) break;
        scores[g] = OUT;
    }
    /* The chosen groups are those now out in `scores`; a group whose score was -inf by itself has no expert to lose. */
    for (uint32_t g = 0; g < config->n_groups; g++)
        if (scores[g] != OUT)
            for (uint32_t i = 0; i < size; i++) b[g * size + i] = OUT;
}

/* The lowest id not chosen yet: where infinite scores left too few candidates. */
static uint32_t lowest_free(const uint32_t *ids, uint32_t n_chosen)
{
    for (uint32_t id = 0;; id++) {
        uint32_t i = 0;
        while (i < n_chosen && ids[i] != id) i++;
        if (i == n_chosen) return id;
    }
}

void afmoe__router_choose(uint32_t *out_ids, float *out_weights, const float *z, const float *expert_bias,
                          const struct model_config *config, const struct kernels *kernels, float *scratch)
{
    uint32_t n = config->n_experts, k = config->n_experts_per_token;
    float *s = scratch, *b = scratch + n;
    if (config->score == SCORE_SOFTMAX)
        kernels->softmax(s, z, n);
    else
        kernels->sigmoid(s, z, n);

    for (uint32_t e = 0; e < n; e++) b[e] = s[e] + expert_bias[e];
    if (config->n_groups > 1) keep_best_groups(b, scratch + 2 * n, config);
    float sum = 0;
    for (uint32_t i = 0; i < k; i++) {
        uint32_t e = largest(b, n);
        if (e == n) e = lowest_free(out_ids, i);
        out_ids[i] = e;
        out_weights[i] = s[e];
        sum += s[e];
        b[e] = OUT;
    }
    for (uint32_t i = 0; i < k; i++) {
        if (config->route_norm) out_weights[i] /= sum + 1e-20f;
        out_weights[i] *= (float)config->route_scale;
    }
}
