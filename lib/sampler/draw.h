/* A draw: from adjusted logits to one token through temperature, top-k, top-p and min-p.
 *
 * Exact by construction: the weight of a token is an integer,
 *
 *   w_i = floor(2^39 exp((z_i - max) / temperature)),
 *
 * with exp_f32 and float32 arithmetic, and sums of integers do not depend on their order. So the kept set and
 * the draw are the same on every machine, and no sort is needed: top-k and top-p find their last token by radix
 * selection. A token less likely than 2^-39 of the best has weight 0 and is never drawn.
 *
 * The order of tokens is by z falling, then id rising. With r the first 64 bits of Philox-4x32-10 (key = seed,
 * counter = position; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) and W the sum of the kept
 * weights, the token drawn is the first, by rising id, whose running sum exceeds floor(r W / 2^64). */
#ifndef AFMOE_SAMPLER_DRAW_H
#define AFMOE_SAMPLER_DRAW_H

#include "afmoe.h"

enum { DRAW_WEIGHT_BITS = 39, DRAW_MAX_ROWS = 1 << 24 /* the sum of all weights stays within 63 bits */ };

struct draw {
    float temperature; /* > 0 */
    float top_p;
    float min_p;
    uint64_t top_k;
    /* Scratch for n rows each. */
    uint64_t *keys;
    uint64_t *weights;
    uint32_t *indices;
};

/* Philox-4x32-10: four words from a counter of four and a key of two. */
void afmoe__philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/* z: n logits below +infinity, no NaN; max: the largest of them, finite. */
afmoe_token afmoe__draw(struct draw *draw, const float *z, uint64_t n, float max, uint64_t seed, uint64_t position);

#endif
