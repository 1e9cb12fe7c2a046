/* Stop strings, see stop_strings.h. For a string s, fail[i] is the length of the longest proper prefix of s that ends
 * s[0..i]; `matched` is the length of the longest prefix of s that ends the text so far. */
#include "stop_strings.h"

#include "checked.h"
#include "error.h"
#include "memory.h"
#include "utf8.h"

#include <string.h>

enum { PIECE_BYTES = 4096 };

struct stop_string {
    const uint8_t *bytes;
    uint64_t n_bytes;
    uint64_t *fail;
    uint64_t matched;
};

struct stop_strings {
    uint64_t n;
    struct stop_string strings[STOP_STRINGS_MAX];
    uint8_t *bytes; /* of all strings */
    uint64_t *fail; /* of all strings */
    uint8_t *buffer; /* given out last, then what is held back */
    uint64_t capacity;
    uint64_t n_given, n_held;
};

static afmoe_status check_string(const char *string, uint64_t n_bytes, uint64_t index, afmoe_error *error)
{
    if (n_bytes == 0)
        return afmoe__fail(error, AFMOE_INVALID, "stop_strings[%llu] is empty", (unsigned long long)index);
    for (uint64_t i = 0; i < n_bytes;) {
        struct utf8_step step = utf8_decode((const uint8_t *)string + i, n_bytes - i);
        if (step.kind != UTF8_VALID)
            return afmoe__fail(error, AFMOE_INVALID, "stop_strings[%llu] is not valid UTF-8 at byte %llu",
                               (unsigned long long)index, (unsigned long long)i);
        i += step.n_bytes;
    }
    return AFMOE_OK;
}

static void fill_fail(struct stop_string *s)
{
    s->fail[0] = 0;
    for (uint64_t i = 1, k = 0; i < s->n_bytes; i++) {
        while (k > 0 && s->bytes[i] != s->bytes[k]) k = s->fail[k - 1];
        k += s->bytes[i] == s->bytes[k];
        s->fail[i] = k;
    }
}

/* Lengths into strings[], all checked; *out_total gets their sum, *out_longest the largest. */
static afmoe_status measure(struct stop_strings *stops, const char *const *strings, const uint64_t *bytes,
                            uint64_t *out_total, uint64_t *out_longest, afmoe_error *error)
{
    *out_total = *out_longest = 0;
    for (uint64_t i = 0; i < stops->n; i++) {
        if (!strings[i])
            return afmoe__fail(error, AFMOE_INVALID, "stop_strings[%llu] is NULL", (unsigned long long)i);
        uint64_t n_bytes = bytes ? bytes[i] : strlen(strings[i]);
        afmoe_status status = check_string(strings[i], n_bytes, i, error);
        if (status != AFMOE_OK) return status;
        if (!checked_add(*out_total, n_bytes, out_total))
            return afmoe__fail(error, AFMOE_LIMIT, "stop strings of more than 2^64 bytes");
        stops->strings[i].n_bytes = n_bytes;
        if (n_bytes > *out_longest) *out_longest = n_bytes;
    }
    return AFMOE_OK;
}

static afmoe_status fill(struct stop_strings *stops, const char *const *strings, const uint64_t *bytes,
                         afmoe_error *error)
{
    uint64_t total, longest;
    afmoe_status status = measure(stops, strings, bytes, &total, &longest, error);
    if (status != AFMOE_OK) return status;
    stops->bytes = afmoe__alloc_array(total, 1);
    stops->fail = afmoe__alloc_array(total, sizeof *stops->fail);
    if (!checked_add(longest, PIECE_BYTES, &stops->capacity)) stops->capacity = UINT64_MAX;
    stops->buffer = afmoe__alloc_array(stops->capacity, 1);
    if (!stops->bytes || !stops->fail || !stops->buffer) return afmoe__fail_memory(error, total, "stop strings");
    uint64_t offset = 0;
    for (uint64_t i = 0; i < stops->n; i++) {
        struct stop_string *s = &stops->strings[i];
        memcpy(stops->bytes + offset, strings[i], s->n_bytes);
        s->bytes = stops->bytes + offset;
        s->fail = stops->fail + offset;
        fill_fail(s);
        offset += s->n_bytes;
    }
    return AFMOE_OK;
}

afmoe_status afmoe__stop_strings_create(struct stop_strings **out, const char *const *strings, const uint64_t *bytes,
                                        uint64_t n, afmoe_error *error)
{
    *out = NULL;
    if (n > STOP_STRINGS_MAX)
        return afmoe__fail(error, AFMOE_INVALID, "n_stop_strings is %llu, allowed are 0..%d", (unsigned long long)n,
                           STOP_STRINGS_MAX);
    if (n > 0 && !strings)
        return afmoe__fail(error, AFMOE_INVALID, "n_stop_strings is %llu but stop_strings is NULL",
                           (unsigned long long)n);
    struct stop_strings *stops = afmoe__alloc_zeroed(1, sizeof *stops);
    if (!stops) return afmoe__fail_memory(error, sizeof *stops, "stop strings");
    stops->n = n;
    afmoe_status status = fill(stops, strings, bytes, error);
    if (status != AFMOE_OK) {
        afmoe__stop_strings_free(stops);
        return status;
    }
    *out = stops;
    return AFMOE_OK;
}

void afmoe__stop_strings_free(struct stop_strings *stops)
{
    if (!stops) return;
    afmoe__free(stops->bytes);
    afmoe__free(stops->fail);
    afmoe__free(stops->buffer);
    afmoe__free(stops);
}

/* True when the byte completes the string. */
static bool advance(struct stop_string *s, uint8_t byte)
{
    uint64_t k = s->matched; /* < n_bytes: after a match nothing is added */
    while (k > 0 && s->bytes[k] != byte) k = s->fail[k - 1];
    k += s->bytes[k] == byte;
    s->matched = k;
    return k == s->n_bytes;
}

/* Index of the string that the byte completes, the longest if several, else -1. */
static int32_t advance_all(struct stop_strings *stops, uint8_t byte)
{
    int32_t found = -1;
    for (uint64_t i = 0; i < stops->n; i++)
        if (advance(&stops->strings[i], byte) &&
            (found < 0 || stops->strings[i].n_bytes > stops->strings[found].n_bytes))
            found = (int32_t)i;
    return found;
}

static uint64_t longest_matched(const struct stop_strings *stops)
{
    uint64_t longest = 0;
    for (uint64_t i = 0; i < stops->n; i++)
        if (stops->strings[i].matched > longest) longest = stops->strings[i].matched;
    return longest;
}

/* Held text to the front of the buffer, the piece behind it. */
static afmoe_status append(struct stop_strings *stops, const char *piece, uint64_t piece_bytes, afmoe_error *error)
{
    memmove(stops->buffer, stops->buffer + stops->n_given, stops->n_held);
    stops->n_given = 0;
    uint64_t need;
    if (!checked_add(stops->n_held, piece_bytes, &need)) need = UINT64_MAX;
    if (need > stops->capacity) {
        uint8_t *grown = afmoe__realloc_array(stops->buffer, need, 1);
        if (!grown) return afmoe__fail_memory(error, need, "text held back for stop strings");
        stops->buffer = grown;
        stops->capacity = need;
    }
    if (piece_bytes) memcpy(stops->buffer + stops->n_held, piece, piece_bytes);
    return AFMOE_OK;
}

afmoe_status afmoe__stop_strings_push(struct stop_strings *stops, const char *piece, uint64_t piece_bytes,
                                      struct stop_text *out, afmoe_error *error)
{
    afmoe_status status = append(stops, piece, piece_bytes, error);
    if (status != AFMOE_OK) return status;
    uint64_t n_held = stops->n_held, n = n_held + piece_bytes;
    *out = (struct stop_text){(const char *)stops->buffer, 0, -1};
    for (uint64_t i = n_held; i < n; i++) {
        out->stop_string = advance_all(stops, stops->buffer[i]);
        if (out->stop_string < 0) continue;
        /* The string began at or behind the front: what is held back covers every prefix matched so far. */
        out->n_bytes = i + 1 - stops->strings[out->stop_string].n_bytes;
        stops->n_given = stops->n_held = 0;
        return AFMOE_OK;
    }
    stops->n_held = longest_matched(stops);
    stops->n_given = out->n_bytes = n - stops->n_held;
    return AFMOE_OK;
}

void afmoe__stop_strings_finish(struct stop_strings *stops, struct stop_text *out)
{
    *out = (struct stop_text){(const char *)stops->buffer + stops->n_given, stops->n_held, -1};
    stops->n_held = 0;
}
