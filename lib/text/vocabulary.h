/* Vocabulary: the bytes and the kind of every token id, and the way back from bytes to an id.
 *
 * Ordinary tokens are written in the GPT-2 byte alphabet, in which every byte has a printable letter; here they are
 * kept as the raw bytes they stand for. Added tokens are raw text in the file already. */
#ifndef AFMOE_TEXT_VOCABULARY_H
#define AFMOE_TEXT_VOCABULARY_H

#include "afmoe.h"

#include <stdbool.h>

/* Ids and merges a file may have; Trinity has 200,192 and 199,712. */
enum { MAX_TOKENS = 4000000, MAX_MERGES = 4000000, MAX_TOKEN_BYTES = 65535 };

/* Steps from where the hash points that an entry of a table may lie; Trinity's longest are some dozen. */
enum { MAX_HASH_CHAIN = 1024 };

/* One token as a file names it; `text` is borrowed. */
struct token_source {
    const uint8_t *text; /* NULL: this id has no token */
    uint64_t n_text;
    int32_t kind;    /* AFMOE_TOKEN_* */
    bool raw;        /* `text` is raw bytes, not the byte alphabet */
    bool normalized; /* added tokens: matched in the second round, see added_tokens.h */
};

struct vocabulary_slot {
    uint32_t hash_high;
    uint32_t id_plus_1; /* 0: empty */
};

struct vocabulary {
    uint64_t n_ids;
    uint64_t n_tokens;
    uint64_t n_added;
    uint64_t *offsets; /* n_ids + 1, into bytes */
    uint8_t *bytes;
    uint8_t *kinds; /* AFMOE_TOKEN_* */
    struct vocabulary_slot *slots;
    uint64_t slot_mask;
};

/* Tables from `sources`, one per id below n_ids <= MAX_TOKENS. Of tokens with the same bytes the first id is found, an
 * added one before others. */
afmoe_status afmoe__vocabulary_build(struct vocabulary *out, const struct token_source *sources, uint64_t n_ids,
                                     const char *name, afmoe_error *error);
/* Safe on a zeroed struct. */
void afmoe__vocabulary_free(struct vocabulary *vocabulary);

/* Pass every table through `move`, which frees it and returns its copy, or returns it as it is. */
void afmoe__vocabulary_move(struct vocabulary *vocabulary, void *(*move)(void *table, uint64_t n_bytes));

/* Memory of the tables. */
uint64_t afmoe__vocabulary_table_bytes(const struct vocabulary *vocabulary);

/* The id of exactly these bytes, or -1. */
afmoe_token afmoe__vocabulary_find(const struct vocabulary *vocabulary, const uint8_t *bytes, uint64_t n_bytes);

/* The same where the caller has afmoe__hash_bytes of them already. */
afmoe_token afmoe__vocabulary_find_hashed(const struct vocabulary *vocabulary, uint64_t hash, const uint8_t *bytes,
                                          uint64_t n_bytes);

/* From the byte alphabet to raw bytes, at most n_text of them. False, with nothing of use in `out`, when the text has
 * other letters. */
bool afmoe__byte_alphabet_decode(const uint8_t *text, uint64_t n_text, uint8_t *out, uint64_t *out_n);

static inline const uint8_t *vocabulary_bytes(const struct vocabulary *vocabulary, afmoe_token id, uint64_t *out_n)
{
    *out_n = vocabulary->offsets[id + 1] - vocabulary->offsets[id];
    return vocabulary->bytes + vocabulary->offsets[id];
}

/* A fast hash of short byte strings for tables in memory; not the same on machines of another byte order. */
uint64_t afmoe__hash_bytes(const uint8_t *bytes, uint64_t n_bytes);

#endif
