/* Tokenizer: text to ids and back, from tokenizer.json or GGUF metadata. Immutable after load, any thread.
 *
 * Steps of an encode: cut out added tokens (longest of those starting at the leftmost place, as the reference does),
 * split what lies between (pretokenizer.h), merge bytes of each piece (bpe.h). */
#ifndef AFMOE_TEXT_TOKENIZER_H
#define AFMOE_TEXT_TOKENIZER_H

#include "afmoe.h"
#include "bpe.h"
#include "gguf.h"

enum { DEFAULT_MAX_TEXT_BYTES = 64 << 20 }; /* of afmoe_tokenize_options */

struct tokenizer;

/* What a file says, in memory of the caller's. `tokens` has one entry per id. */
struct tokenizer_source {
    const struct token_source *tokens;
    uint64_t n_ids;
    const struct merge_source *merges;
    uint64_t n_merges;
};

/* `name` names the document in messages. FORMAT, LIMIT, UNSUPPORTED, NO_MEMORY. */
afmoe_status afmoe__tokenizer_build(struct tokenizer **out, const struct tokenizer_source *source, const char *name,
                                    afmoe_error *error);

/* `text`: a tokenizer.json. UNSUPPORTED (with the reason) for another model type, pre-tokenizer, normalizer or
 * decoder than Trinity's. See tokenizer_json.c. */
afmoe_status afmoe__tokenizer_from_json(struct tokenizer **out, const uint8_t *text, uint64_t n_bytes,
                                        uint64_t max_json_bytes, const char *name, afmoe_error *error);
/* tokenizer.ggml.*: model gpt2, pre afmoe. See tokenizer_gguf.c. */
afmoe_status afmoe__tokenizer_from_gguf(struct tokenizer **out, const struct gguf *gguf, afmoe_error *error);
void afmoe__tokenizer_free(struct tokenizer *tokenizer);

/* Copy it to where memory is free now. Tables made beside a parsed document lie behind it in the heap, and malloc could
 * not give the document's memory back to the system. What cannot be copied stays where it is. */
void afmoe__tokenizer_move(struct tokenizer **tokenizer);

/* Ids are below this (highest id + 1; rows without a token lie in between or above). */
uint64_t afmoe__tokenizer_n_ids(const struct tokenizer *tokenizer);
/* Memory of all its tables. */
uint64_t afmoe__tokenizer_bytes(const struct tokenizer *tokenizer);
uint64_t afmoe__tokenizer_n_tokens(const struct tokenizer *tokenizer);

/* As afmoe_tokenize; `options` (NULL: the defaults) is validated here, but for its size. */
afmoe_status afmoe__tokenizer_encode(const struct tokenizer *tokenizer, const char *text, uint64_t text_bytes,
                                     const afmoe_tokenize_options *options, afmoe_token *out, uint64_t capacity,
                                     uint64_t *out_n, afmoe_error *error);

/* As afmoe_detokenize; ids are below `vocab_size` (rows of the model's output, may exceed n_ids), else INVALID. */
afmoe_status afmoe__tokenizer_decode(const struct tokenizer *tokenizer, uint64_t vocab_size, const afmoe_token *tokens,
                                     uint64_t n_tokens, int32_t skip_special, char *out, uint64_t capacity,
                                     uint64_t *out_n, afmoe_error *error);

/* Raw bytes of a token and its AFMOE_TOKEN_* kind; an id without a token: no bytes, UNUSED. Any id is accepted. */
int32_t afmoe__tokenizer_token(const struct tokenizer *tokenizer, afmoe_token id, const uint8_t **out_bytes,
                               uint64_t *out_n);

/* The bytes that a token adds to the text: as above, none of a CONTROL token with `skip_special`. */
const uint8_t *afmoe__tokenizer_shown(const struct tokenizer *tokenizer, afmoe_token id, int32_t skip_special,
                                      uint64_t *out_n);

/* The id whose bytes these are (added tokens first), or -1. */
afmoe_token afmoe__tokenizer_find(const struct tokenizer *tokenizer, const uint8_t *bytes, uint64_t n_bytes);

#endif
