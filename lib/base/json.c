/* JSON documents with caps, see json.h.
 *
 * jansson 2.14 ignores a failed growth of its token buffer and drops the byte: {"size": 1} may come out as {"sze": 1}.
 * So it is given ["aaa...", DOCUMENT]: the filler makes the buffer as large as any token of the document needs, and a
 * byte lost in doing so shows in its length. The filler's closing quote must not be what is lost (jansson would read
 * on past the buffer): growth comes at 2^n - 1 bytes, so a length of 3 * 2^n keeps far from it. */
#include "json.h"

#include "error.h"
#include "json_prescan.h"

#include <string.h>

enum { FIRST_FILLER_BYTES = 768 };

/* Pieces of text that are read as one. */
struct feed {
    struct piece {
        const uint8_t *bytes; /* NULL: 'a' all through */
        uint64_t n;
    } pieces[5];
    uint32_t current;
};

static size_t read_feed(void *buffer, size_t capacity, void *data)
{
    struct feed *feed = data;
    while (feed->current < 5 && feed->pieces[feed->current].n == 0) feed->current++;
    if (feed->current == 5) return 0;
    struct piece *piece = &feed->pieces[feed->current];
    size_t n = piece->n < capacity ? (size_t)piece->n : capacity;
    if (piece->bytes) {
        memcpy(buffer, piece->bytes, n);
        piece->bytes += n;
    } else {
        memset(buffer, 'a', n);
    }
    piece->n -= n;
    return n;
}

/* NULL, with `fault` filled, when it fails. */
static json_t *load(const uint8_t *text, uint64_t n_bytes, uint64_t longest_token, json_error_t *fault)
{
    uint64_t n_filler = FIRST_FILLER_BYTES;
    while (n_filler <= longest_token) n_filler *= 2; /* below twice the text */
    struct feed feed = {{{(const uint8_t *)"[\"", 2}, {NULL, n_filler - 2}, {(const uint8_t *)"\",", 2},
                         {text, n_bytes}, {(const uint8_t *)"]", 1}}, 0};
    json_t *pair = json_load_callback(read_feed, &feed, JSON_REJECT_DUPLICATES, fault);
    json_t *document = NULL;
    if (pair && json_string_length(json_array_get(pair, 0)) == n_filler - 2) {
        document = json_incref(json_array_get(pair, 1));
    }
    json_decref(pair);
    return document;
}

afmoe_status afmoe__json_parse(json_t **out, const uint8_t *text, uint64_t n_bytes, const struct json_caps *caps,
                               const char *name, afmoe_error *error)
{
    if (n_bytes > caps->max_bytes) {
        return afmoe__fail(error, AFMOE_LIMIT, "%.160s: %llu bytes, allowed are %llu", name,
                           (unsigned long long)n_bytes, (unsigned long long)caps->max_bytes);
    }
    uint64_t longest_token = 0;
    afmoe_status status = afmoe__json_prescan(text, n_bytes, caps, &longest_token, name, error);
    if (status) return status;
    json_error_t fault = {0};
    json_t *document = load(text, n_bytes, longest_token, &fault);
    if (document) {
        *out = document;
        return AFMOE_OK;
    }
    /* The text is valid JSON, so a fault of any other kind is memory that ended: jansson 2.14 calls that a syntax error
     * in some places and nothing at all in others. */
    switch (json_error_code(&fault)) {
    case json_error_duplicate_key:
    case json_error_numeric_overflow:
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return afmoe__fail(error, AFMOE_FORMAT, "%.160s: %s", name, fault.text);
    default:
        return afmoe__fail(error, AFMOE_NO_MEMORY, "out of memory while parsing %.160s (%llu bytes)", name,
                           (unsigned long long)n_bytes);
    }
}
