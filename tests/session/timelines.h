/* What tests of sessions share: the small model, tokens for it, and everything a timeline gives out, to be compared
 * with that of a fresh one. */
#ifndef AFMOE_TESTS_TIMELINES_H
#define AFMOE_TESTS_TIMELINES_H

#include "harness.h"

enum { N_TOKENS = 300, VOCAB = 96, HIDDEN = 32, PAGE = 64, MAX_POSITIONS = 512 }; /* of the tiny models */

extern afmoe_error error;
extern afmoe_model *tiny;
extern afmoe_token tokens[MAX_POSITIONS];

/* Everything a timeline gives out, position by position. */
struct bits {
    float logits[N_TOKENS][VOCAB], hidden[N_TOKENS][HIDDEN], logprobs[N_TOKENS];
};

/* For the group: open and close `tiny`. */
int open_tiny(void **state);
int close_tiny(void **state);

/* Two threads, exact, with float32 cells. */
afmoe_context_options exact_options(void);
const afmoe_context_options *exact(void);
/* In a context of its own. */
afmoe_session *session_with(afmoe_model *model, const afmoe_context_options *options);
/* Append tokens[begin, end) and record all of them; with the logits before them also the first log-probability. */
void record(struct bits *bits, afmoe_session *session, uint64_t begin, uint64_t end);
/* N_TOKENS in a fresh session. */
struct bits *whole(afmoe_model *model, const afmoe_context_options *options);
void append(afmoe_session *session, uint64_t begin, uint64_t end);

/* The logits and hidden state the session has now are those of position n - 1 of the whole. */
void assert_last(const struct bits *bits, afmoe_session *session, uint64_t n);
void assert_no_logits(afmoe_session *session);
void assert_tokens(afmoe_session *session, const afmoe_token *expected, uint64_t n);
void assert_result(const afmoe_append_result *result, uint64_t n_tokens, uint64_t n_reused, uint64_t n_computed);
void assert_same_bits(const struct bits *a, const struct bits *b);

/* Threads on one context, each of which opens a session again and again and syncs it to some beginning of `tokens`: to
 * the bits of the whole. How many tokens were there already. */
enum { MAX_VISITORS = 3 };
uint64_t visit_together(afmoe_context *context, const struct bits *expected, uint32_t n_visitors, uint32_t seed);

/* Of float32 cells. */
uint64_t bytes_of_page(const afmoe_model *model);
/* exact(), for sessions that share a cap of `n_pages` pages; no way back is free. */
afmoe_context *capped_context(afmoe_model *model, uint64_t n_pages);

#endif
