/* Tokenizer from GGUF metadata.
 *
 *     tokenizer.ggml.model       "gpt2": byte-level BPE
 *     tokenizer.ggml.pre         "afmoe": Trinity's pre-tokenizer
 *     tokenizer.ggml.tokens      strings by id: ordinary tokens in the byte alphabet, added ones as raw text
 *     tokenizer.ggml.token_type  1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte ("<0x0A>")
 *     tokenizer.ggml.merges      strings "left right"
 *     tokenizer.ggml.{bos,eos,eot,padding,unknown,separator,mask}_token_id, .add_bos_token, .add_eos_token
 *
 * Of repeated tokens the first id is used for text; rows of type unused ("[PAD200001]") are no tokens. */
#include "tokenizer.h"

#include "error.h"
#include "quote.h"

#include <stdio.h>
#include <string.h>

struct gguf_reader {
    const struct gguf *gguf;
    const char *name;
    struct token_source *tokens;
    uint64_t n_ids;
    uint8_t *byte_values; /* what tokens of type byte point to */
    struct merge_source *merges;
    uint64_t n_merges;
    afmoe_error *error;
};

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };

static afmoe_status check_word(const struct gguf_reader *r, const char *key, const char *wanted)
{
    struct gguf_value value;
    const uint8_t *text = NULL;
    uint64_t n = 0;
    if (!afmoe__gguf_find(r->gguf, key, &value)) {
        return afmoe__fail(r->error, AFMOE_UNSUPPORTED, "%s: %s is missing; supported is \"%s\"", r->name, key, wanted);
    }
    if (!afmoe__gguf_get_string(&value, &text, &n)) {
        return afmoe__fail(r->error, AFMOE_FORMAT, "%s: %s is no string", r->name, key);
    }
    if (n != strlen(wanted) || memcmp(text, wanted, n) != 0) {
        return afmoe__fail(r->error, AFMOE_UNSUPPORTED, "%s: %s is \"%s\"; supported is \"%s\"", r->name, key,
                           quote((const char *)text, n).text, wanted);
    }
    return AFMOE_OK;
}

/* An array of strings with 0 to `max` of them. */
static afmoe_status find_strings(const struct gguf_reader *r, const char *key, uint64_t max, struct gguf_value *out)
{
    if (!afmoe__gguf_find(r->gguf, key, out)) {
        return afmoe__fail(r->error, AFMOE_FORMAT, "%s: %s is missing", r->name, key);
    }
    if (out->type != GGUF_ARRAY || out->element_type != GGUF_STRING) {
        return afmoe__fail(r->error, AFMOE_FORMAT, "%s: %s is no array of strings", r->name, key);
    }
    if (out->n > max) {
        return afmoe__fail(r->error, AFMOE_LIMIT, "%s: %s has %llu strings; at most %llu are allowed", r->name, key,
                           (unsigned long long)out->n, (unsigned long long)max);
    }
    return AFMOE_OK;
}

static int hex_digit(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* "<0x0A>" */
static bool parse_byte_token(const uint8_t *text, uint64_t n, uint8_t *out)
{
    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return false;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    if (high < 0 || low < 0) return false;
    *out = (uint8_t)(high << 4 | low);
    return true;
}

static struct token_source make_token(struct gguf_reader *r, uint64_t id, int64_t type, const uint8_t *text, uint64_t n)
{
    struct token_source token = {text, n, AFMOE_TOKEN_NORMAL, false, false};
    if (type == TYPE_UNUSED) token = (struct token_source){.kind = AFMOE_TOKEN_UNUSED};
    if (type == TYPE_CONTROL || type == TYPE_USER_DEFINED) {
        token.raw = true;
        token.kind = type == TYPE_CONTROL ? AFMOE_TOKEN_CONTROL : AFMOE_TOKEN_ADDED;
    }
    if (type == TYPE_BYTE && parse_byte_token(text, n, &r->byte_values[id])) {
        token = (struct token_source){&r->byte_values[id], 1, AFMOE_TOKEN_NORMAL, true, false};
    }
    return token;
}

static afmoe_status read_tokens(struct gguf_reader *r)
{
    struct gguf_value tokens, types;
    afmoe_status status = find_strings(r, "tokenizer.ggml.tokens", MAX_TOKENS, &tokens);
    if (status != AFMOE_OK) return status;
    bool has_types = afmoe__gguf_find(r->gguf, "tokenizer.ggml.token_type", &types);
    if (has_types && (types.type != GGUF_ARRAY || types.n != tokens.n)) {
        return afmoe__fail(r->error, AFMOE_FORMAT, "%s: tokenizer.ggml.token_type has %llu entries, tokens has %llu",
                           r->name, (unsigned long long)types.n, (unsigned long long)tokens.n);
    }
    r->n_ids = tokens.n;
    r->tokens = afmoe__alloc_array(tokens.n, sizeof *r->tokens);
    r->byte_values = afmoe__alloc_array(tokens.n, 1);
    if (!r->tokens || !r->byte_values) {
        return afmoe__fail_memory(r->error, tokens.n * (sizeof *r->tokens + 1), "the vocabulary");
    }
    const uint8_t *cursor = tokens.data, *text;
    uint64_t n;
    for (uint64_t id = 0; id < tokens.n; id++) {
        int64_t type = TYPE_NORMAL;
        afmoe__gguf_next_string(&cursor, &text, &n);
        if (has_types && (!afmoe__gguf_get_i64(&types, id, &type) || type < TYPE_NORMAL || type > TYPE_BYTE)) {
            return afmoe__fail(r->error, AFMOE_FORMAT,
                               "%s: tokenizer.ggml.token_type[%llu] is %lld; allowed are integers from %d to %d",
                               r->name, (unsigned long long)id, (long long)type, (int)TYPE_NORMAL, (int)TYPE_BYTE);
        }
        r->tokens[id] = make_token(r, id, type, text, n);
    }
    return AFMOE_OK;
}

static afmoe_status read_merges(struct gguf_reader *r)
{
    struct gguf_value merges;
    afmoe_status status = find_strings(r, "tokenizer.ggml.merges", MAX_MERGES, &merges);
    if (status != AFMOE_OK) return status;
    r->n_merges = merges.n;
    r->merges = afmoe__alloc_array(merges.n, sizeof *r->merges);
    if (!r->merges) return afmoe__fail_memory(r->error, merges.n * sizeof *r->merges, "merges");
    const uint8_t *cursor = merges.data, *text;
    uint64_t n;
    for (uint64_t i = 0; i < merges.n; i++) {
        afmoe__gguf_next_string(&cursor, &text, &n);
        if (!afmoe__merge_split(text, n, &r->merges[i])) {
            return afmoe__fail(r->error, AFMOE_FORMAT, "%s: tokenizer.ggml.merges[%llu] is no string with one space",
                               r->name, (unsigned long long)i);
        }
    }
    return AFMOE_OK;
}

static afmoe_status check_special_ids(const struct gguf_reader *r)
{
    static const char *const names[] = {"bos", "eos", "eot", "padding", "unknown", "seperator", "separator", "mask"};
    struct gguf_value value;
    char key[64];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", names[i]);
        if (!afmoe__gguf_find(r->gguf, key, &value)) continue;
        int64_t id = 0;
        bool is_number = value.type != GGUF_ARRAY && afmoe__gguf_get_i64(&value, 0, &id);
        if (is_number && (id == -1 || id == UINT32_MAX)) continue; /* "none", and how it looks in an unsigned key */
        if (!is_number || id < 0 || (uint64_t)id >= r->n_ids) {
            return afmoe__fail(r->error, AFMOE_FORMAT, "%s: %s is no id below %llu", r->name, key,
                               (unsigned long long)r->n_ids);
        }
    }
    static const char *const added[] = {"bos", "eos"};
    for (size_t i = 0; i < 2; i++) {
        bool add = false;
        snprintf(key, sizeof key, "tokenizer.ggml.add_%s_token", added[i]);
        if (afmoe__gguf_find(r->gguf, key, &value) && !afmoe__gguf_get_bool(&value, 0, &add)) {
            return afmoe__fail(r->error, AFMOE_FORMAT, "%s: %s is no bool", r->name, key);
        }
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", added[i]);
        if (add && !afmoe__gguf_find(r->gguf, key, &value)) {
            return afmoe__fail(r->error, AFMOE_FORMAT, "%s: tokenizer.ggml.add_%s_token is true, but %s is missing",
                               r->name, added[i], key);
        }
    }
    return AFMOE_OK;
}

afmoe_status afmoe__tokenizer_from_gguf(struct tokenizer **out, const struct gguf *gguf, afmoe_error *error)
{
    struct gguf_reader r = {.gguf = gguf, .name = afmoe__gguf_name(gguf), .error = error};
    afmoe_status status = check_word(&r, "tokenizer.ggml.model", "gpt2");
    if (status == AFMOE_OK) status = check_word(&r, "tokenizer.ggml.pre", "afmoe");
    if (status == AFMOE_OK) status = read_tokens(&r);
    if (status == AFMOE_OK) status = check_special_ids(&r);
    if (status == AFMOE_OK) status = read_merges(&r);
    if (status == AFMOE_OK) {
        const struct tokenizer_source source = {r.tokens, r.n_ids, r.merges, r.n_merges};
        status = afmoe__tokenizer_build(out, &source, r.name, error);
    }
    afmoe__free(r.tokens);
    afmoe__free(r.byte_values);
    afmoe__free(r.merges);
    return status;
}
