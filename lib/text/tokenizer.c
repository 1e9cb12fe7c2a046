/* Text to ids and back, see tokenizer.h. */
#include "tokenizer.h"

#include "added_tokens.h"
#include "cancel.h"
#include "error.h"
#include "pretokenizer.h"

#include <string.h>

enum {
    N_ROUNDS = 2, /* of added tokens, see added_tokens.h */
    PIECES_PER_CANCEL_CHECK = 4096,
    CACHE_FROM_TEXT_BYTES = 1024 /* below, setting the cache up costs more than it saves */
};

struct tokenizer {
    struct vocabulary vocabulary;
    struct bpe bpe;
    struct added_tokens added[N_ROUNDS];
};

afmoe_status afmoe__tokenizer_build(struct tokenizer **out, const struct tokenizer_source *source, const char *name,
                                    afmoe_error *error)
{
    struct tokenizer *t = afmoe__alloc_zeroed(1, sizeof *t);
    if (!t) return afmoe__fail_memory(error, sizeof *t, "the tokenizer");
    afmoe_status status = afmoe__vocabulary_build(&t->vocabulary, source->tokens, source->n_ids, name, error);
    if (status == AFMOE_OK) {
        status = afmoe__bpe_build(&t->bpe, &t->vocabulary, source->merges, source->n_merges, name, error);
    }
    for (int round = 0; round < N_ROUNDS && status == AFMOE_OK; round++) {
        status = afmoe__added_tokens_build(&t->added[round], &t->vocabulary, source->tokens, round == 1, name, error);
    }
    if (status != AFMOE_OK) {
        afmoe__tokenizer_free(t);
        return status;
    }
    *out = t;
    return AFMOE_OK;
}

void afmoe__tokenizer_free(struct tokenizer *tokenizer)
{
    if (!tokenizer) return;
    for (int round = 0; round < N_ROUNDS; round++) afmoe__added_tokens_free(&tokenizer->added[round]);
    afmoe__bpe_free(&tokenizer->bpe);
    afmoe__vocabulary_free(&tokenizer->vocabulary);
    afmoe__free(tokenizer);
}

uint64_t afmoe__tokenizer_n_ids(const struct tokenizer *tokenizer)
{
    return tokenizer->vocabulary.n_ids;
}

static void *moved(void *p, uint64_t n_bytes)
{
    void *copy = afmoe__alloc_aligned(n_bytes, 1);
    if (!copy) return p;
    memcpy(copy, p, n_bytes);
    afmoe__free(p);
    return copy;
}

void afmoe__tokenizer_move(struct tokenizer **tokenizer)
{
    struct tokenizer *t = *tokenizer = moved(*tokenizer, sizeof **tokenizer);
    afmoe__vocabulary_move(&t->vocabulary, moved);
    afmoe__bpe_move(&t->bpe, &t->vocabulary, moved);
    for (int round = 0; round < N_ROUNDS; round++) {
        struct added_tokens *added = &t->added[round];
        added->vocabulary = &t->vocabulary;
        if (added->sorted) added->sorted = moved(added->sorted, added->n * sizeof *added->sorted);
    }
}

uint64_t afmoe__tokenizer_bytes(const struct tokenizer *tokenizer)
{
    const struct tokenizer *t = tokenizer;
    return sizeof *t + afmoe__vocabulary_table_bytes(&t->vocabulary) + afmoe__bpe_table_bytes(&t->bpe) +
           ((uint64_t)t->added[0].n + t->added[1].n) * sizeof *t->added[0].sorted;
}

uint64_t afmoe__tokenizer_n_tokens(const struct tokenizer *tokenizer)
{
    return tokenizer->vocabulary.n_tokens;
}

/* ---- Encoding ---------------------------------------------------------------------------------------------------- */

struct encoder {
    const struct tokenizer *tokenizer;
    const uint8_t *text;
    struct byte_ranges ranges;
    struct bpe_scratch scratch;
    struct token_sink sink;
    afmoe_error *error;
};

/* text[begin, end) without added tokens. */
static afmoe_status encode_plain(struct encoder *e, uint64_t begin, uint64_t end)
{
    struct pretokenizer walk = pretokenizer_start(e->text + begin, end - begin);
    uint64_t piece_begin, piece_end;
    for (uint64_t n = 0;; n++) {
        if (n % PIECES_PER_CANCEL_CHECK == 0 && cancel_requested(e->scratch.cancel)) {
            return afmoe__fail(e->error, AFMOE_CANCELLED, "tokenizing was cancelled");
        }
        if (!afmoe__pretokenizer_next(&walk, &piece_begin, &piece_end)) return AFMOE_OK;
        afmoe_status status = afmoe__bpe_encode(&e->tokenizer->bpe, &e->scratch, walk.text + piece_begin,
                                                piece_end - piece_begin, &e->sink, e->error);
        if (status != AFMOE_OK) return status;
    }
}

/* text[begin, end) where only tokens of the second round may be left. */
static afmoe_status encode_second_round(struct encoder *e, uint64_t begin, uint64_t end)
{
    struct added_match match;
    while (afmoe__added_tokens_next(&e->tokenizer->added[1], e->text, begin, end, &e->ranges, &match)) {
        afmoe_status status = encode_plain(e, begin, match.begin);
        if (status != AFMOE_OK) return status;
        if (!token_sink_put(&e->sink, match.id)) return afmoe__fail_memory(e->error, e->sink.n * 8, "ids");
        begin = match.end;
    }
    return encode_plain(e, begin, end);
}

static afmoe_status encode_text(struct encoder *e, uint64_t end)
{
    struct added_match match;
    uint64_t begin = 0;
    while (afmoe__added_tokens_next(&e->tokenizer->added[0], e->text, begin, end, &e->ranges, &match)) {
        afmoe_status status = encode_second_round(e, begin, match.begin);
        if (status != AFMOE_OK) return status;
        if (!token_sink_put(&e->sink, match.id)) return afmoe__fail_memory(e->error, e->sink.n * 8, "ids");
        begin = match.end;
    }
    return encode_second_round(e, begin, end);
}

static afmoe_status check_options(const afmoe_tokenize_options *options, uint64_t text_bytes, afmoe_error *error)
{
    if (options->special < AFMOE_SPECIAL_ALL || options->special > AFMOE_SPECIAL_RANGES) {
        return afmoe__fail(error, AFMOE_INVALID, "special is %d; allowed are %d to %d", options->special,
                           AFMOE_SPECIAL_ALL, AFMOE_SPECIAL_RANGES);
    }
    if (text_bytes > options->max_text_bytes) {
        return afmoe__fail(error, AFMOE_LIMIT, "the text has %llu bytes; max_text_bytes is %llu",
                           (unsigned long long)text_bytes, (unsigned long long)options->max_text_bytes);
    }
    if (options->special != AFMOE_SPECIAL_RANGES || options->n_special_ranges == 0) return AFMOE_OK;
    if (!options->special_ranges) {
        return afmoe__fail(error, AFMOE_INVALID, "special_ranges is NULL, n_special_ranges is %llu",
                           (unsigned long long)options->n_special_ranges);
    }
    uint64_t before = 0;
    for (uint64_t i = 0; i < options->n_special_ranges; i++) {
        uint64_t begin = options->special_ranges[2 * i], end = options->special_ranges[2 * i + 1];
        if (begin < before || end < begin || end > text_bytes) {
            return afmoe__fail(error, AFMOE_INVALID,
                               "special range %llu is (%llu, %llu); it must rise, begin at %llu or later and end at "
                               "%llu at most",
                               (unsigned long long)i, (unsigned long long)begin, (unsigned long long)end,
                               (unsigned long long)before, (unsigned long long)text_bytes);
        }
        before = end;
    }
    return AFMOE_OK;
}

/* The ids of `e` into the caller's buffer. */
static afmoe_status hand_out(const struct encoder *e, afmoe_token *out, uint64_t capacity, uint64_t *out_n)
{
    *out_n = e->sink.n;
    if (e->sink.n > capacity) {
        return afmoe__fail(e->error, AFMOE_CAPACITY, "%llu tokens; the buffer has room for %llu",
                           (unsigned long long)e->sink.n, (unsigned long long)capacity);
    }
    if (e->sink.n) memcpy(out, e->sink.ids, e->sink.n * sizeof *out);
    return AFMOE_OK;
}

afmoe_status afmoe__tokenizer_encode(const struct tokenizer *tokenizer, const char *text, uint64_t text_bytes,
                                     const afmoe_tokenize_options *options, afmoe_token *out, uint64_t capacity,
                                     uint64_t *out_n, afmoe_error *error)
{
    const afmoe_tokenize_options defaults = {.special = AFMOE_SPECIAL_ALL, .max_text_bytes = DEFAULT_MAX_TEXT_BYTES};
    if (!options) options = &defaults;
    if (!out_n || (!text && text_bytes) || (!out && capacity)) {
        return afmoe__fail(error, AFMOE_INVALID, "%s is NULL", !out_n ? "out_n" : !out && capacity ? "out" : "text");
    }
    afmoe_status status = check_options(options, text_bytes, error);
    if (status != AFMOE_OK) return status;

    const uint64_t everything[2] = {0, text_bytes};
    struct encoder e = {.tokenizer = tokenizer,
                        .text = (const uint8_t *)text,
                        .error = error,
                        .scratch.cancel = options->cancel,
                        .sink.limit = capacity};
    if (options->special == AFMOE_SPECIAL_ALL) {
        e.ranges = (struct byte_ranges){everything, 1};
    } else if (options->special == AFMOE_SPECIAL_RANGES) {
        e.ranges = (struct byte_ranges){options->special_ranges, options->n_special_ranges};
    }
    if (text_bytes >= CACHE_FROM_TEXT_BYTES) afmoe__bpe_scratch_use_cache(&e.scratch, text_bytes);
    if (text_bytes) status = encode_text(&e, text_bytes);
    if (status == AFMOE_OK) status = hand_out(&e, out, capacity, out_n);
    afmoe__bpe_scratch_free(&e.scratch);
    afmoe__free(e.sink.ids);
    return status;
}

/* ---- Decoding ---------------------------------------------------------------------------------------------------- */

int32_t afmoe__tokenizer_token(const struct tokenizer *tokenizer, afmoe_token id, const uint8_t **out_bytes,
                               uint64_t *out_n)
{
    const struct vocabulary *v = &tokenizer->vocabulary;
    if (id < 0 || (uint64_t)id >= v->n_ids) {
        *out_bytes = v->bytes;
        *out_n = 0;
        return AFMOE_TOKEN_UNUSED;
    }
    *out_bytes = vocabulary_bytes(v, id, out_n);
    return v->kinds[id];
}

afmoe_token afmoe__tokenizer_find(const struct tokenizer *tokenizer, const uint8_t *bytes, uint64_t n_bytes)
{
    return afmoe__vocabulary_find(&tokenizer->vocabulary, bytes, n_bytes);
}

const uint8_t *afmoe__tokenizer_shown(const struct tokenizer *tokenizer, afmoe_token id, int32_t skip_special,
                                      uint64_t *out_n)
{
    const uint8_t *bytes;
    int32_t kind = afmoe__tokenizer_token(tokenizer, id, &bytes, out_n);
    if (skip_special && kind == AFMOE_TOKEN_CONTROL) *out_n = 0;
    return bytes;
}

afmoe_status afmoe__tokenizer_decode(const struct tokenizer *tokenizer, uint64_t vocab_size, const afmoe_token *tokens,
                                     uint64_t n_tokens, int32_t skip_special, char *out, uint64_t capacity,
                                     uint64_t *out_n, afmoe_error *error)
{
    if (!out_n || (!tokens && n_tokens) || (!out && capacity)) {
        return afmoe__fail(error, AFMOE_INVALID, "%s is NULL", !out_n ? "out_n" : !out && capacity ? "out" : "tokens");
    }
    uint64_t n_bytes = 0, n; /* below 2^64: a token has at most MAX_TOKEN_BYTES, and takes four itself */
    for (uint64_t i = 0; i < n_tokens; i++) {
        if (tokens[i] < 0 || (uint64_t)tokens[i] >= vocab_size) {
            return afmoe__fail(error, AFMOE_INVALID, "token %llu is %d; the vocabulary has 0 to %llu",
                               (unsigned long long)i, tokens[i], (unsigned long long)vocab_size - 1);
        }
        afmoe__tokenizer_shown(tokenizer, tokens[i], skip_special, &n);
        n_bytes += n;
    }
    *out_n = n_bytes;
    if (n_bytes > capacity) {
        return afmoe__fail(error, AFMOE_CAPACITY, "%llu bytes; the buffer has room for %llu",
                           (unsigned long long)n_bytes, (unsigned long long)capacity);
    }
    for (uint64_t i = 0; i < n_tokens; i++) {
        const uint8_t *bytes = afmoe__tokenizer_shown(tokenizer, tokens[i], skip_special, &n);
        if (n == 0) continue; /* `out` may be NULL then */
        memcpy(out, bytes, n);
        out += n;
    }
    return AFMOE_OK;
}
