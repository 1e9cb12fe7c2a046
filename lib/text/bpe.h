/* Byte-level BPE: the bytes of one piece, merged in pairs, lowest rank first and leftmost among equals, until no
 * neighbours have a merge. */
#ifndef AFMOE_TEXT_BPE_H
#define AFMOE_TEXT_BPE_H

#include "token_sink.h"
#include "vocabulary.h"

/* One merge as a file has it: two tokens in the byte alphabet, borrowed. Their order in the file is the rank. */
struct merge_source {
    const uint8_t *left, *right;
    uint64_t n_left, n_right;
};

/* "left right" with exactly one space; false otherwise. */
bool afmoe__merge_split(const uint8_t *text, uint64_t n_text, struct merge_source *out);

struct bpe_slot {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: empty */
    uint32_t rank;
    uint32_t result;
};

struct bpe {
    const struct vocabulary *vocabulary;
    uint32_t byte_ids[256];
    struct bpe_slot *slots;
    uint64_t slot_mask;
    uint8_t *whole; /* one bit per id: merging the bytes of this token gives it, so a piece can be looked up whole */
};

/* FORMAT: a byte without a token, a merge of or to an unknown token, the same merge twice. `vocabulary` must stay. */
afmoe_status afmoe__bpe_build(struct bpe *out, const struct vocabulary *vocabulary, const struct merge_source *merges,
                              uint64_t n_merges, const char *name, afmoe_error *error);
/* Safe on a zeroed struct. */
void afmoe__bpe_free(struct bpe *bpe);

/* As afmoe__vocabulary_move; the vocabulary has moved as well. */
void afmoe__bpe_move(struct bpe *bpe, const struct vocabulary *vocabulary,
                     void *(*move)(void *table, uint64_t n_bytes));

/* Memory of the tables. */
uint64_t afmoe__bpe_table_bytes(const struct bpe *bpe);

/* Working memory of one encode: zero it first, free it after. */
struct bpe_scratch {
    struct bpe_cached *cache; /* pieces met before; NULL: none is kept */
    uint32_t cache_mask;
    struct bpe_symbol *symbols;
    uint64_t *queue;
    uint64_t n_symbols; /* room in `symbols`; `queue` has twice as much */
    const afmoe_cancel *cancel;
};

/* Once, for a text of this size; without memory for it, encoding only gets slower. */
void afmoe__bpe_scratch_use_cache(struct bpe_scratch *scratch, uint64_t text_bytes);
void afmoe__bpe_scratch_free(struct bpe_scratch *scratch);

/* NO_MEMORY, CANCELLED, LIMIT (a piece of 2^31 bytes or more). */
afmoe_status afmoe__bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const uint8_t *piece,
                               uint64_t n_bytes, struct token_sink *sink, afmoe_error *error);

#endif
