/* Log softmax, see logprob.h. The sum is that of the kernels' portable level, the logarithm is computed here: neither
 * CPU level nor compiler nor libm has a say in the result. */
#include "logprob.h"

#include "error.h"
#include "kernels.h"

#include <math.h>
#include <string.h>

float afmoe__max_logit(const float *logits, uint64_t n)
{
    enum { N_LANES = 8 };
    float lane[N_LANES];
    for (int l = 0; l < N_LANES; l++) lane[l] = -INFINITY;
    uint64_t i = 0;
    for (; i + N_LANES <= n; i += N_LANES)
        for (int l = 0; l < N_LANES; l++) lane[l] = logits[i + l] > lane[l] ? logits[i + l] : lane[l];
    for (; i < n; i++) lane[0] = logits[i] > lane[0] ? logits[i] : lane[0];
    for (int l = 1; l < N_LANES; l++) lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
    return lane[0];
}

/* log x for a normal x > 0: x = 2^e m, sqrt(1/2) <= m < sqrt(2), log m = 2 artanh s = 2 (s + s^3/3 + ...) with
 * s = (m-1)/(m+1), |s| < 0.172; twelve terms leave less than 1e-19. */
static double log_portable(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | (uint64_t)1023 << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m >= 1.4142135623730951) {
        m *= 0.5;
        exponent++;
    }
    double s = (m - 1.0) / (m + 1.0);
    double series = 0.0;
    for (int k = 23; k >= 1; k -= 2) series = series * (s * s) + 1.0 / k;
    return exponent * 0.6931471805599453 + 2.0 * s * series;
}

afmoe_status afmoe__log_normaliser(struct log_normaliser *out, const float *logits, uint64_t n, afmoe_error *error)
{
    int bad = 0;
    for (uint64_t i = 0; i < n; i++) bad |= !(logits[i] < INFINITY);
    if (bad) {
        uint64_t i = 0;
        while (logits[i] < INFINITY) i++;
        return afmoe__fail(error, AFMOE_NUMERIC, "the logit of token %llu is %s", (unsigned long long)i,
                           isnan(logits[i]) ? "NaN" : "infinite");
    }
    struct kernels portable;
    double sum;
    afmoe__kernels_select(&portable, AFMOE_CPU_C);
    portable.log_sum_exp(logits, n, &out->max, &sum);
    if (out->max == -INFINITY)
        return afmoe__fail(error, AFMOE_NUMERIC, "none of %llu logits is finite", (unsigned long long)n);
    out->log_sum = log_portable(sum);
    return AFMOE_OK;
}

afmoe_status afmoe__logprobs(float *out, const float *logits, uint64_t n, afmoe_error *error)
{
    struct log_normaliser normaliser;
    afmoe_status status = afmoe__log_normaliser(&normaliser, logits, n, error);
    if (status != AFMOE_OK) return status;
    for (uint64_t i = 0; i < n; i++) out[i] = log_probability(&normaliser, logits[i]);
    return AFMOE_OK;
}

/* The best tokens so far as a binary heap with the worst on top. */
struct best {
    afmoe_token *tokens;
    float *values;
    uint64_t n;
};

static int worse(const struct best *best, uint64_t a, uint64_t b)
{
    if (best->values[a] != best->values[b]) return best->values[a] < best->values[b];
    return best->tokens[a] > best->tokens[b];
}

static void swap(struct best *best, uint64_t a, uint64_t b)
{
    float value = best->values[a];
    afmoe_token token = best->tokens[a];
    best->values[a] = best->values[b];
    best->tokens[a] = best->tokens[b];
    best->values[b] = value;
    best->tokens[b] = token;
}

static void sift_up(struct best *best, uint64_t i)
{
    while (i > 0 && worse(best, i, (i - 1) / 2)) {
        swap(best, i, (i - 1) / 2);
        i = (i - 1) / 2;
    }
}

static void sift_down(struct best *best, uint64_t i)
{
    for (;;) {
        uint64_t child = 2 * i + 1;
        if (child >= best->n) return;
        if (child + 1 < best->n && worse(best, child + 1, child)) child++;
        if (!worse(best, child, i)) return;
        swap(best, i, child);
        i = child;
    }
}

uint64_t afmoe__top_logprobs(const struct log_normaliser *normaliser, const float *logits, const uint8_t *usable,
                             uint64_t n, uint64_t k, afmoe_token *out_tokens, float *out_logprobs)
{
    struct best best = {out_tokens, out_logprobs, 0};
    if (k == 0) return 0;
    for (uint64_t i = 0; i < n; i++) {
        if (logits[i] == -INFINITY || (usable && !usable[i])) continue;
        if (best.n < k) {
            best.tokens[best.n] = (afmoe_token)i;
            best.values[best.n] = logits[i];
            sift_up(&best, best.n++);
        } else if (logits[i] > best.values[0]) { /* on a tie the one inside has the lower id */
            best.tokens[0] = (afmoe_token)i;
            best.values[0] = logits[i];
            sift_down(&best, 0);
        }
    }
    uint64_t n_best = best.n;
    while (best.n > 1) { /* heap sort: the worst of those left goes to the end */
        best.n--;
        swap(&best, 0, best.n);
        sift_down(&best, 0);
    }
    for (uint64_t i = 0; i < n_best; i++) out_logprobs[i] = log_probability(normaliser, out_logprobs[i]);
    return n_best;
}
