/* Temperature, top-k, top-p, min-p and the draw, see draw.h. */
#include "draw.h"

#include "exp_block.h"

#include <math.h>

enum { DIGIT_BITS = 11, N_DIGITS = 1 << DIGIT_BITS };

void afmoe__philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0, p1 = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* floor(a b / 2^64) */
static uint64_t multiply_high(uint64_t a, uint64_t b)
{
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
    uint64_t middle2 = a0 * b1 + (uint32_t)middle;
    return a1 * b1 + (middle >> 32) + (middle2 >> 32);
}

/* A key orders tokens by one integer comparison: larger z first, then lower id. Keys are all distinct. */
static uint64_t key_of(float z, uint64_t id)
{
    z += 0.0f; /* -0 becomes +0: they tie */
    uint32_t bits;
    memcpy(&bits, &z, sizeof bits);
    bits ^= (uint32_t)-(int32_t)(bits >> 31) | 0x80000000u;
    return (uint64_t)bits << 32 | (0xffffffffu - (uint32_t)id);
}

static float key_value(uint64_t key)
{
    uint32_t bits = (uint32_t)(key >> 32);
    bits ^= (bits >> 31) ? 0x80000000u : 0xffffffffu;
    float z;
    memcpy(&z, &bits, sizeof z);
    return z;
}

static afmoe_token key_token(uint64_t key)
{
    return (afmoe_token)(0xffffffffu - (uint32_t)key);
}

/* Tokens whose weight may be above 0, by rising id. exp(-27.1) is below 2^-39 by more than the error of
 * exp_f32, so nothing is lost; at low temperatures hardly any row is left. */
static uint64_t gather(uint64_t *keys, const float *z, uint64_t n, float max, float temperature)
{
    uint64_t n_kept = 0;
    for (uint64_t i = 0; i < n; i++) {
        keys[n_kept] = key_of(z[i], i);
        n_kept += (z[i] - max) / temperature >= -27.1f;
    }
    return n_kept;
}

static void weigh(uint64_t *weights, const uint64_t *keys, uint64_t n, float max, float temperature)
{
    float terms[EXP_BLOCK];
    for (uint64_t begin = 0; begin < n; begin += EXP_BLOCK) {
        uint64_t count = n - begin < EXP_BLOCK ? n - begin : EXP_BLOCK;
        for (uint64_t i = 0; i < count; i++) terms[i] = (key_value(keys[begin + i]) - max) / temperature;
        exp_block(terms, count);
        for (uint64_t i = 0; i < count; i++)
            weights[begin + i] = (uint64_t)(int64_t)(terms[i] * (float)((uint64_t)1 << DRAW_WEIGHT_BITS));
    }
}

static uint64_t sum(const uint64_t *weights, uint64_t n)
{
    uint64_t total = 0;
    for (uint64_t i = 0; i < n; i++) total += weights[i];
    return total;
}

static uint64_t digit_of(uint64_t key, int shift)
{
    return key >> shift & (N_DIGITS - 1);
}

/* The digit at which the sums, taken from the highest digit down, reach *need; *need becomes what is left of it. */
static uint64_t crossing_digit(const uint64_t sums[N_DIGITS], uint64_t *need)
{
    uint64_t digit = N_DIGITS - 1;
    for (; sums[digit] < *need; digit--) *need -= sums[digit];
    return digit;
}

/* The key of the token at which the sum of weights (1 each where `weights` is NULL), taken in falling order of keys,
 * reaches `need`; 1 <= need <= the sum of all. Radix selection: each level looks only at the tokens that share the
 * digits found so far. */
static uint64_t select_key(const uint64_t *keys, const uint64_t *weights, uint64_t n, uint64_t need,
                           uint32_t *indices)
{
    uint64_t sums[N_DIGITS] = {0};
    int shift = 64 - DIGIT_BITS;
    for (uint64_t i = 0; i < n; i++) sums[digit_of(keys[i], shift)] += weights ? weights[i] : 1;
    uint64_t digit = crossing_digit(sums, &need);
    uint64_t n_left = 0;
    for (uint64_t i = 0; i < n; i++) {
        indices[n_left] = (uint32_t)i;
        n_left += digit_of(keys[i], shift) == digit;
    }
    /* At shift 0 all digits are fixed and keys are distinct, so this ends. */
    while (n_left > 1) {
        shift = shift > DIGIT_BITS ? shift - DIGIT_BITS : 0;
        memset(sums, 0, sizeof sums);
        for (uint64_t j = 0; j < n_left; j++)
            sums[digit_of(keys[indices[j]], shift)] += weights ? weights[indices[j]] : 1;
        digit = crossing_digit(sums, &need);
        n = n_left;
        n_left = 0;
        for (uint64_t j = 0; j < n; j++) {
            uint32_t index = indices[j];
            indices[n_left] = index;
            n_left += digit_of(keys[index], shift) == digit;
        }
    }
    return keys[indices[0]];
}

/* Keep the tokens with keys from `last` on; `weights` may be NULL. */
static uint64_t cut(uint64_t *keys, uint64_t *weights, uint64_t n, uint64_t last)
{
    uint64_t n_kept = 0;
    for (uint64_t i = 0; i < n; i++) {
        keys[n_kept] = keys[i];
        if (weights) weights[n_kept] = weights[i];
        n_kept += keys[i] >= last;
    }
    return n_kept;
}

/* The smallest integer sum that reaches the share top_p of total, at least 1. */
static uint64_t top_p_need(float top_p, uint64_t total)
{
    double share = (double)top_p * (double)total;
    uint64_t need = (uint64_t)share;
    if ((double)need < share) need++;
    return need < 1 ? 1 : need > total ? total : need;
}

/* min_p is compared with the weights' own scale: w_i < min_p 2^39. The best token has weight 2^39 and stays. */
static uint64_t drop_below(uint64_t *keys, uint64_t *weights, uint64_t n, float min_p)
{
    double least = (double)min_p * (double)((uint64_t)1 << DRAW_WEIGHT_BITS);
    uint64_t n_kept = 0;
    for (uint64_t i = 0; i < n; i++) {
        keys[n_kept] = keys[i];
        weights[n_kept] = weights[i];
        n_kept += (double)weights[i] >= least;
    }
    return n_kept;
}

static uint64_t draw_below(uint64_t total, uint64_t seed, uint64_t position)
{
    const uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t words[4];
    afmoe__philox(words, counter, key);
    return multiply_high((uint64_t)words[1] << 32 | words[0], total);
}

afmoe_token afmoe__draw(struct draw *draw, const float *z, uint64_t n, float max, uint64_t seed, uint64_t position)
{
    uint64_t *keys = draw->keys, *weights = draw->weights;
    uint64_t n_kept = gather(keys, z, n, max, draw->temperature);
    if (draw->top_k < n_kept) {
        uint64_t last = select_key(keys, NULL, n_kept, draw->top_k, draw->indices);
        n_kept = cut(keys, NULL, n_kept, last);
    }
    weigh(weights, keys, n_kept, max, draw->temperature);
    if (draw->top_p < 1.0f) {
        uint64_t need = top_p_need(draw->top_p, sum(weights, n_kept));
        n_kept = cut(keys, weights, n_kept, select_key(keys, weights, n_kept, need, draw->indices));
    }
    if (draw->min_p > 0.0f) n_kept = drop_below(keys, weights, n_kept, draw->min_p);
    uint64_t target = draw_below(sum(weights, n_kept), seed, position);
    uint64_t i = 0;
    for (; weights[i] <= target; i++) target -= weights[i];
    return key_token(keys[i]);
}
