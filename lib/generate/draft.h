/* Drafts: a guess of the tokens to come, from the text that is there already.
 *
 * The longest earlier occurrence of the last tokens (3 to 16 of them, the latest of those equally long) is looked up,
 * and what followed it is guessed to follow again; where that runs into the end, it goes on with its own period.
 *
 * How many are tried is a budget, in tokens: 2 at first, a draft costs 1, one that comes true gives back 1.5, and every
 * token generated adds 1/32. So wrong drafts cost at most 2 tokens computed, one in 32, and those that right ones have
 * paid for, whatever the text; where text repeats, the budget grows until max_draft are tried at once. */
#ifndef AFMOE_GENERATE_DRAFT_H
#define AFMOE_GENERATE_DRAFT_H

#include "afmoe.h"

enum { DRAFT_MAX_TOKENS = 64 };

struct draft {
    uint64_t max, budget;        /* budget in 1/32 tokens */
    uint64_t n_tried, n_correct; /* of the session, when the budget was last settled */
    uint64_t n_tokens;           /* likewise */
    afmoe_token tokens[DRAFT_MAX_TOKENS];
};

/* Drafts of at most `max` tokens; the other figures are those of the session now. */
void afmoe__draft_init(struct draft *draft, uint64_t max, uint64_t n_tokens, uint64_t n_tried, uint64_t n_correct);

/* Settle the budget by the session's figures: length of the timeline, drafts computed and accepted. */
void afmoe__draft_settle(struct draft *draft, uint64_t n_tokens, uint64_t n_tried, uint64_t n_correct);

/* Guess what follows the n_tokens of the timeline and `token`, at most n_most tokens; returns how many are in
 * draft->tokens. */
uint64_t afmoe__draft_find(struct draft *draft, const afmoe_token *tokens, uint64_t n_tokens, afmoe_token token,
                           uint64_t n_most);

#endif
