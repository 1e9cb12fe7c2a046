/* Added tokens (<|im_end|>, <think>, ...) in text: the leftmost match, of those the longest.
 *
 * The reference matches in two rounds: first the tokens that are not "normalized", then, in the text between, those
 * that are. Hence one matcher for each round. */
#ifndef AFMOE_TEXT_ADDED_TOKENS_H
#define AFMOE_TEXT_ADDED_TOKENS_H

#include "vocabulary.h"

/* A longer added token is LIMIT: matching costs up to this much for every byte of text. */
enum { MAX_ADDED_TOKEN_BYTES = 1024 };

struct added_tokens {
    const struct vocabulary *vocabulary;
    afmoe_token *sorted; /* by bytes, each once */
    uint32_t n;
    uint32_t first[257]; /* those that begin with byte b: sorted[first[b]] up to sorted[first[b + 1]] */
    int only_first_byte; /* when all begin with the same byte (mostly '<'): that; else -1 */
};

/* Where tokens may be recognised: pairs (begin, end) of bytes, rising, not overlapping. A token must lie within one. */
struct byte_ranges {
    const uint64_t *pairs;
    uint64_t n;
};

struct added_match {
    uint64_t begin, end;
    afmoe_token id;
};

/* Of the added tokens in the vocabulary those whose source has this `normalized`. */
afmoe_status afmoe__added_tokens_build(struct added_tokens *out, const struct vocabulary *vocabulary,
                                       const struct token_source *sources, bool normalized, const char *name,
                                       afmoe_error *error);
/* Safe on a zeroed struct. */
void afmoe__added_tokens_free(struct added_tokens *added);

/* The first match within text[begin, end) and `ranges`. */
bool afmoe__added_tokens_next(const struct added_tokens *added, const uint8_t *text, uint64_t begin, uint64_t end,
                              const struct byte_ranges *ranges, struct added_match *out);

#endif
