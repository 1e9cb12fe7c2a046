/* Drafts by lookup of n-grams, see draft.h. */
#include "draft.h"

enum { LEAST_MATCH = 3, LONGEST_MATCH = 16, UNIT = 32, FIRST_BUDGET = 2 * UNIT };

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void afmoe__draft_init(struct draft *draft, uint64_t max, uint64_t n_tokens, uint64_t n_tried, uint64_t n_correct)
{
    draft->max = max;
    draft->budget = FIRST_BUDGET;
    draft->n_tokens = n_tokens;
    draft->n_tried = n_tried;
    draft->n_correct = n_correct;
}

void afmoe__draft_settle(struct draft *draft, uint64_t n_tokens, uint64_t n_tried, uint64_t n_correct)
{
    uint64_t earned = n_tokens - draft->n_tokens + (n_correct - draft->n_correct) * (UNIT + UNIT / 2);
    uint64_t spent = (n_tried - draft->n_tried) * UNIT; /* no more than there was */
    draft->budget = least(draft->budget + earned - spent, draft->max * UNIT);
    draft->n_tokens = n_tokens;
    draft->n_tried = n_tried;
    draft->n_correct = n_correct;
}

/* How many tokens before position p, and the one at it, equal the last ones and `token`. */
static uint64_t match_length(const afmoe_token *tokens, uint64_t n_tokens, uint64_t p)
{
    uint64_t n = 1;
    while (n < LONGEST_MATCH && n <= p && tokens[p - n] == tokens[n_tokens - n]) n++;
    return n;
}

uint64_t afmoe__draft_find(struct draft *draft, const afmoe_token *tokens, uint64_t n_tokens, afmoe_token token,
                           uint64_t n_most)
{
    uint64_t n = least(least(draft->budget / UNIT, draft->max), n_most), best = 0, at = 0;
    if (n == 0) return 0;
    for (uint64_t p = n_tokens; p-- > 0 && best < LONGEST_MATCH;) {
        if (tokens[p] != token) continue;
        uint64_t length = match_length(tokens, n_tokens, p);
        if (length > best) best = length, at = p;
    }
    if (best < LEAST_MATCH) return 0;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t from = at + 1 + i;
        if (from < n_tokens) draft->tokens[i] = tokens[from];
        if (from == n_tokens) draft->tokens[i] = token;
        if (from > n_tokens) draft->tokens[i] = draft->tokens[from - n_tokens - 1];
    }
    return n;
}
