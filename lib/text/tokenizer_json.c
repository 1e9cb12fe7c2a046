/* Tokenizer from a tokenizer.json (Hugging Face tokenizers, version 1.0).
 *
 *     added_tokens    [{id, content, special, normalized, lstrip, rstrip, single_word}]
 *     normalizer      null or an empty Sequence
 *     pre_tokenizer   Trinity's, see pretokenizer.c
 *     post_processor  null, ByteLevel, TemplateProcessing or a Sequence of these. They add tokens around a text or
 *                     touch offsets; nothing is ever added here, so they are checked for their kind and not applied
 *     decoder         ByteLevel
 *     model           {type BPE, vocab {token: id}, merges [[left, right]] or ["left right"], ...}
 *     truncation, padding  describe batches, not the tokenizer; the reference's callers turn them off. Ignored
 *
 * Where it differs from the reference: every byte must have a token (there, bytes without one vanish), an added token
 * must have the id the file gives it (there, ids are handed out anew), and repeated merges are refused. */
#include "tokenizer.h"

#include "error.h"
#include "json.h"
#include "pretokenizer.h"
#include "quote.h"

#include <string.h>

/* What is collected before afmoe__tokenizer_build; strings are borrowed from `root`. */
struct json_reader {
    const char *name;
    json_t *root;
    struct token_source *tokens;
    uint64_t n_ids;
    struct merge_source *merges;
    uint64_t n_merges;
    afmoe_error *error;
};

static bool is_string(const json_t *value, const char *wanted)
{
    return json_is_string(value) && strcmp(json_string_value(value), wanted) == 0;
}

static bool is_type(const json_t *part, const char *wanted)
{
    return is_string(json_object_get(part, "type"), wanted);
}

static bool is_absent(const json_t *value)
{
    return !value || json_is_null(value);
}

static afmoe_status check_normalizer(const struct json_reader *r)
{
    const json_t *normalizer = json_object_get(r->root, "normalizer");
    if (is_absent(normalizer)) return AFMOE_OK;
    const json_t *parts = json_object_get(normalizer, "normalizers");
    if (is_type(normalizer, "Sequence") && json_is_array(parts) && json_array_size(parts) == 0) return AFMOE_OK;
    return afmoe__fail(r->error, AFMOE_UNSUPPORTED, "%s: normalizer \"%s\"; supported is none", r->name,
                       quote_type(is_type(normalizer, "Sequence") ? json_array_get(parts, 0) : normalizer).text);
}

static bool is_harmless_processor(const json_t *part)
{
    return is_type(part, "ByteLevel") || is_type(part, "TemplateProcessing");
}

static afmoe_status check_post_processor(const struct json_reader *r)
{
    const json_t *processor = json_object_get(r->root, "post_processor");
    if (is_absent(processor) || is_harmless_processor(processor)) return AFMOE_OK;
    const json_t *parts = json_object_get(processor, "processors"), *odd = processor;
    if (is_type(processor, "Sequence") && json_is_array(parts)) {
        size_t i = 0;
        while (i < json_array_size(parts) && is_harmless_processor(json_array_get(parts, i))) i++;
        if (i == json_array_size(parts)) return AFMOE_OK;
        odd = json_array_get(parts, i);
    }
    return afmoe__fail(r->error, AFMOE_UNSUPPORTED,
                       "%s: post_processor \"%s\"; supported are ByteLevel and TemplateProcessing", r->name,
                       quote_type(odd).text);
}

static afmoe_status check_parts(const struct json_reader *r)
{
    if (!json_is_object(r->root)) {
        return afmoe__fail(r->error, AFMOE_FORMAT, "%s: the document is no JSON object", r->name);
    }
    afmoe_status status = check_normalizer(r);
    if (status == AFMOE_OK) {
        status = afmoe__pretokenizer_recognise(json_object_get(r->root, "pre_tokenizer"), r->name, r->error);
    }
    if (status == AFMOE_OK) status = check_post_processor(r);
    if (status == AFMOE_OK && !is_type(json_object_get(r->root, "decoder"), "ByteLevel")) {
        status = afmoe__fail(r->error, AFMOE_UNSUPPORTED, "%s: decoder \"%s\"; supported is ByteLevel", r->name,
                             quote_type(json_object_get(r->root, "decoder")).text);
    }
    return status;
}

static afmoe_status check_model(const struct json_reader *r, const json_t *model)
{
    if (!json_is_object(model)) return afmoe__fail(r->error, AFMOE_FORMAT, "%s: \"model\" is no object", r->name);
    if (!is_type(model, "BPE")) {
        return afmoe__fail(r->error, AFMOE_UNSUPPORTED, "%s: model type \"%s\"; supported is BPE", r->name,
                           quote_type(model).text);
    }
    /* unk_token, fuse_unk and byte_fallback are about characters without a token, of which there are none. */
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *affix = json_object_get(model, affixes[i]);
        if (!is_absent(affix) && !is_string(affix, "")) {
            return afmoe__fail(r->error, AFMOE_UNSUPPORTED, "%s: model.%s is set; supported is none", r->name,
                               affixes[i]);
        }
    }
    const json_t *dropout = json_object_get(model, "dropout");
    if (!is_absent(dropout) && !(json_is_number(dropout) && json_number_value(dropout) == 0)) {
        return afmoe__fail(r->error, AFMOE_UNSUPPORTED, "%s: model.dropout is set; supported is none", r->name);
    }
    if (json_is_true(json_object_get(model, "ignore_merges"))) {
        return afmoe__fail(r->error, AFMOE_UNSUPPORTED, "%s: model.ignore_merges is true; supported is false", r->name);
    }
    return AFMOE_OK;
}

/* Ids may leave gaps, but a table by id must not cost more than a table of the tokens. */
static uint64_t highest_id_allowed(uint64_t n_named)
{
    uint64_t highest = 2 * n_named + 1023;
    return highest < MAX_TOKENS ? highest : MAX_TOKENS - 1;
}

static afmoe_status check_id(const struct json_reader *r, const json_t *id, uint64_t highest, const char *text,
                             uint64_t n_text)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 || (uint64_t)json_integer_value(id) > highest) {
        return afmoe__fail(r->error, AFMOE_FORMAT,
                           "%s: token \"%s\" has the id %lld; allowed are integers from 0 to %llu", r->name,
                           quote(text, n_text).text, (long long)json_integer_value(id), (unsigned long long)highest);
    }
    return AFMOE_OK;
}

static void use_id(struct json_reader *r, uint64_t id, struct token_source token)
{
    r->tokens[id] = token;
    if (id >= r->n_ids) r->n_ids = id + 1;
}

static afmoe_status read_vocab(struct json_reader *r, json_t *vocab, uint64_t highest)
{
    const char *text;
    json_t *value;
    json_object_foreach (vocab, text, value) {
        uint64_t n_text = strlen(text); /* keys have no NUL in them: jansson refuses those */
        afmoe_status status = check_id(r, value, highest, text, n_text);
        if (status != AFMOE_OK) return status;
        uint64_t id = (uint64_t)json_integer_value(value);
        if (r->tokens[id].text) {
            return afmoe__fail(r->error, AFMOE_FORMAT, "%s: tokens \"%s\" and \"%s\" have the same id %llu", r->name,
                               quote((const char *)r->tokens[id].text, r->tokens[id].n_text).text,
                               quote(text, n_text).text, (unsigned long long)id);
        }
        use_id(r, id, (struct token_source){(const uint8_t *)text, n_text, AFMOE_TOKEN_NORMAL, false, false});
    }
    return AFMOE_OK;
}

static afmoe_status read_added_token(struct json_reader *r, const json_t *added, size_t index, const json_t *vocab,
                                     uint64_t highest)
{
    const json_t *content = json_object_get(added, "content"), *id = json_object_get(added, "id");
    if (!json_is_string(content) || json_string_length(content) == 0) {
        return afmoe__fail(r->error, AFMOE_FORMAT, "%s: added_tokens[%zu].content is no string with a byte at least",
                           r->name, index);
    }
    const char *text = json_string_value(content);
    uint64_t n_text = json_string_length(content);
    afmoe_status status = check_id(r, id, highest, text, n_text);
    if (status != AFMOE_OK) return status;

    static const char *const flags[] = {"lstrip", "rstrip", "single_word"};
    for (size_t i = 0; i < 3; i++) {
        if (json_is_true(json_object_get(added, flags[i]))) {
            return afmoe__fail(r->error, AFMOE_UNSUPPORTED, "%s: added token \"%s\" has %s; supported is false",
                               r->name, quote(text, n_text).text, flags[i]);
        }
    }
    uint64_t number = (uint64_t)json_integer_value(id);
    const json_t *in_vocab = strlen(text) == n_text ? json_object_get(vocab, text) : NULL;
    bool clashes = in_vocab ? json_integer_value(in_vocab) != (json_int_t)number : r->tokens[number].text != NULL;
    if (clashes) {
        return afmoe__fail(r->error, AFMOE_FORMAT,
                           "%s: added token \"%s\" has the id %llu; the vocabulary says otherwise", r->name,
                           quote(text, n_text).text, (unsigned long long)number);
    }
    bool special = json_is_true(json_object_get(added, "special"));
    bool normalized = json_is_true(json_object_get(added, "normalized"));
    int32_t kind = special ? AFMOE_TOKEN_CONTROL : AFMOE_TOKEN_ADDED;
    use_id(r, number, (struct token_source){(const uint8_t *)text, n_text, kind, true, normalized});
    return AFMOE_OK;
}

static afmoe_status read_tokens(struct json_reader *r, const json_t *model)
{
    json_t *vocab = json_object_get(model, "vocab");
    const json_t *added = json_object_get(r->root, "added_tokens");
    if (!json_is_object(vocab)) return afmoe__fail(r->error, AFMOE_FORMAT, "%s: model.vocab is no object", r->name);
    if (!is_absent(added) && !json_is_array(added)) {
        return afmoe__fail(r->error, AFMOE_FORMAT, "%s: added_tokens is no array", r->name);
    }
    uint64_t n_named = json_object_size(vocab) + json_array_size(added);
    if (n_named > MAX_TOKENS) {
        return afmoe__fail(r->error, AFMOE_LIMIT, "%s: %llu tokens; at most %d are allowed", r->name,
                           (unsigned long long)n_named, (int)MAX_TOKENS);
    }
    uint64_t highest = highest_id_allowed(n_named);
    r->tokens = afmoe__alloc_zeroed(highest + 1, sizeof *r->tokens);
    if (!r->tokens) return afmoe__fail_memory(r->error, (highest + 1) * sizeof *r->tokens, "the vocabulary");
    afmoe_status status = read_vocab(r, vocab, highest);
    for (size_t i = 0; i < json_array_size(added) && status == AFMOE_OK; i++) {
        status = read_added_token(r, json_array_get(added, i), i, vocab, highest);
    }
    return status;
}

/* ["left", "right"] or "left right" with exactly one space. */
static bool read_merge(const json_t *merge, struct merge_source *out)
{
    if (json_is_array(merge)) {
        const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
        if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right)) return false;
        out->left = (const uint8_t *)json_string_value(left);
        out->right = (const uint8_t *)json_string_value(right);
        out->n_left = json_string_length(left);
        out->n_right = json_string_length(right);
        return true;
    }
    return json_is_string(merge) &&
           afmoe__merge_split((const uint8_t *)json_string_value(merge), json_string_length(merge), out);
}

static afmoe_status read_merges(struct json_reader *r, const json_t *model)
{
    const json_t *merges = json_object_get(model, "merges");
    if (!json_is_array(merges)) return afmoe__fail(r->error, AFMOE_FORMAT, "%s: model.merges is no array", r->name);
    r->n_merges = json_array_size(merges);
    r->merges = afmoe__alloc_array(r->n_merges, sizeof *r->merges);
    if (!r->merges) return afmoe__fail_memory(r->error, r->n_merges * sizeof *r->merges, "merges");
    for (uint64_t i = 0; i < r->n_merges; i++) {
        if (!read_merge(json_array_get(merges, i), &r->merges[i])) {
            return afmoe__fail(r->error, AFMOE_FORMAT,
                               "%s: merge %llu is neither two strings nor a string with one space", r->name,
                               (unsigned long long)i);
        }
    }
    return AFMOE_OK;
}

afmoe_status afmoe__tokenizer_from_json(struct tokenizer **out, const uint8_t *text, uint64_t n_bytes,
                                        uint64_t max_json_bytes, const char *name, afmoe_error *error)
{
    const struct json_caps caps = {max_json_bytes, JSON_MAX_VALUES, JSON_MAX_DEPTH};
    struct json_reader r = {.name = name, .error = error};
    afmoe_status status = afmoe__json_parse(&r.root, text, n_bytes, &caps, name, error);
    if (status != AFMOE_OK) return status;

    status = check_parts(&r);
    const json_t *model = json_object_get(r.root, "model");
    if (status == AFMOE_OK) status = check_model(&r, model);
    if (status == AFMOE_OK) status = read_tokens(&r, model);
    if (status == AFMOE_OK) status = read_merges(&r, model);
    if (status == AFMOE_OK) {
        const struct tokenizer_source source = {r.tokens, r.n_ids, r.merges, r.n_merges};
        status = afmoe__tokenizer_build(out, &source, name, error);
    }
    afmoe__free(r.tokens);
    afmoe__free(r.merges);
    json_decref(r.root);
    if (status == AFMOE_OK) afmoe__tokenizer_move(out);
    return status;
}
