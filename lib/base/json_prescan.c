/* The scan before jansson: the grammar of RFC 8259, UTF-8, and the cost of the tree.
 *
 * Memory is counted as jansson 2.14 on a 64-bit glibc takes it, chunk by chunk: the tree as it grows, the copy of a
 * table while it doubles, and the token buffer. What passes is valid JSON, so that of jansson's own faults only those
 * remain that have a code: duplicate keys, NUL, numbers too large. No recursion: open containers lie on a stack of
 * JSON_MAX_DEPTH. */
#include "json_prescan.h"

#include "error.h"

#include <string.h>
#include "utf8.h"

enum {
    /* malloc chunks (request + 8, rounded up to 16, at least 32) of jansson's structs. */
    NUMBER_BYTES = 32,
    STRING_BYTES = 48,
    ARRAY_BYTES = 48,
    OBJECT_BYTES = 80,
    PAIR_BYTES = 56,          /* struct pair up to its key, before rounding */
    FIRST_ARRAY_SLOTS = 8,    /* pointers */
    FIRST_OBJECT_BUCKETS = 8, /* 16 bytes each */
    SLOT_BYTES = 8,
    BUCKET_BYTES = 16
};

static const uint64_t allowed_base = 64u << 20, allowed_per_byte = 4;

enum expectation { VALUE, VALUE_OR_CLOSE, KEY, KEY_OR_CLOSE, COLON, COMMA_OR_CLOSE, END };

struct container {
    bool is_object;
    uint64_t n_children, n_slots;
};

struct scan {
    const uint8_t *text;
    uint64_t n_bytes, at;
    enum expectation expects;
    uint32_t depth;
    struct container open[JSON_MAX_DEPTH];
    uint64_t n_values;
    uint64_t tree_bytes, peak_bytes;
    uint64_t longest_token;
};

static uint64_t chunk_bytes(uint64_t request)
{
    uint64_t chunk = (request + 8 + 15) / 16 * 16;
    return chunk < 32 ? 32 : chunk;
}

static void grow_tree(struct scan *s, uint64_t n_bytes)
{
    s->tree_bytes += n_bytes;
    if (s->tree_bytes > s->peak_bytes) s->peak_bytes = s->tree_bytes;
}

/* A table doubles: for a moment the old and the new one exist. */
static void grow_table(struct scan *s, struct container *c)
{
    uint64_t old_bytes = c->n_slots * (c->is_object ? BUCKET_BYTES : SLOT_BYTES);
    grow_tree(s, 2 * old_bytes);
    s->tree_bytes -= old_bytes;
    c->n_slots *= 2;
}

/* Called for each child before it is there; n_slots stays below 2^32 as every child takes a byte of text or more. */
static void count_child(struct scan *s)
{
    if (s->depth == 0) return;
    struct container *c = &s->open[s->depth - 1];
    if (c->n_children++ == c->n_slots) grow_table(s, c);
}

static uint32_t utf8_length(const uint8_t *p, uint64_t n)
{
    struct utf8_step step = utf8_decode(p, n);
    return step.kind == UTF8_VALID ? step.n_bytes : 0;
}

/* The four hex digits of an escape at p, or -1. */
static int32_t hex4(const uint8_t *p)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        uint8_t c = p[i];
        int32_t digit;
        if (c >= '0' && c <= '9') digit = c - '0';
        else if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
        else if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
        else return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* Bytes of the escape at p, of n that remain; 0: none. Surrogates come in pairs. */
static uint32_t escape_length(const uint8_t *p, uint64_t n)
{
    if (n < 2) return 0;
    if (p[1] != 'u') return p[1] && strchr("\"\\/bfnrt", p[1]) ? 2 : 0;
    int32_t unit = n >= 6 ? hex4(p + 2) : -1;
    if (unit < 0xD800 || unit > 0xDFFF) return unit < 0 ? 0 : 6;
    int32_t second = unit <= 0xDBFF && n >= 12 && p[6] == '\\' && p[7] == 'u' ? hex4(p + 8) : -1;
    return second >= 0xDC00 && second <= 0xDFFF ? 12 : 0;
}

/* From the opening quote past the closing one; false at a fault, with s->at on it. */
static bool scan_string(struct scan *s)
{
    uint64_t begin = s->at++;
    while (s->at < s->n_bytes) {
        const uint8_t *p = s->text + s->at;
        uint64_t left = s->n_bytes - s->at;
        if (*p == '"') {
            s->at++;
            if (s->at - begin > s->longest_token) s->longest_token = s->at - begin;
            return true;
        }
        uint32_t n = *p < 0x20 ? 0 : *p == '\\' ? escape_length(p, left) : utf8_length(p, left);
        if (n == 0) return false;
        s->at += n;
    }
    return false;
}

static uint64_t skip_digits(const struct scan *s, uint64_t at)
{
    while (at < s->n_bytes && s->text[at] >= '0' && s->text[at] <= '9') at++;
    return at;
}

/* Past the number at s->at, or s->at where there is none: -? (0 | 1-9 digits) (. digits)? ([eE] [+-]? digits)? */
static uint64_t skip_number(const struct scan *s)
{
    uint64_t at = s->at, next;
    if (s->text[at] == '-') at++;
    next = skip_digits(s, at);
    if (next == at || (s->text[at] == '0' && next > at + 1)) return s->at;
    at = next;
    if (at < s->n_bytes && s->text[at] == '.') {
        next = skip_digits(s, at + 1);
        if (next == at + 1) return s->at;
        at = next;
    }
    if (at < s->n_bytes && (s->text[at] == 'e' || s->text[at] == 'E')) {
        at++;
        if (at < s->n_bytes && (s->text[at] == '+' || s->text[at] == '-')) at++;
        next = skip_digits(s, at);
        if (next == at) return s->at;
        at = next;
    }
    return at;
}

static bool scan_scalar(struct scan *s)
{
    static const char *const constants[] = {"true", "false", "null"}; /* constants of jansson, no memory */
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(constants[i]);
        if (s->n_bytes - s->at < n || memcmp(s->text + s->at, constants[i], n) != 0) continue;
        s->at += n;
        return true;
    }
    uint64_t end = skip_number(s);
    if (end == s->at) return false;
    if (end - s->at > s->longest_token) s->longest_token = end - s->at;
    s->at = end;
    grow_tree(s, NUMBER_BYTES);
    return true;
}

static void after_value(struct scan *s)
{
    s->expects = s->depth ? COMMA_OR_CLOSE : END;
}

static afmoe_status open_container(struct scan *s, bool is_object, const struct json_caps *caps, const char *name,
                                   afmoe_error *error)
{
    uint32_t max_depth = caps->max_depth < JSON_MAX_DEPTH ? caps->max_depth : JSON_MAX_DEPTH;
    if (s->depth == max_depth) {
        return afmoe__fail(error, AFMOE_LIMIT, "%.160s: nested deeper than %u at byte %llu", name, max_depth,
                           (unsigned long long)s->at);
    }
    uint64_t n_slots = is_object ? FIRST_OBJECT_BUCKETS : FIRST_ARRAY_SLOTS;
    s->open[s->depth++] = (struct container){is_object, 0, n_slots};
    grow_tree(s, is_object ? OBJECT_BYTES + chunk_bytes(n_slots * BUCKET_BYTES)
                           : ARRAY_BYTES + chunk_bytes(n_slots * SLOT_BYTES));
    s->expects = is_object ? KEY_OR_CLOSE : VALUE_OR_CLOSE;
    s->at++;
    return AFMOE_OK;
}

static afmoe_status fail_at(const struct scan *s, const char *name, afmoe_error *error)
{
    static const char *const expected[] = {
        [VALUE] = "a value", [VALUE_OR_CLOSE] = "a value or ']'", [KEY] = "a key",
        [KEY_OR_CLOSE] = "a key or '}'", [COLON] = "':'", [COMMA_OR_CLOSE] = "',' or a closing bracket",
        [END] = "nothing more",
    };
    unsigned long long at = s->at;
    if (s->at >= s->n_bytes) {
        return afmoe__fail(error, AFMOE_FORMAT, "%.160s: ends at byte %llu where %s is expected", name, at,
                           expected[s->expects]);
    }
    return afmoe__fail(error, AFMOE_FORMAT, "%.160s: byte 0x%02X at %llu, expected %s (in valid UTF-8)", name,
                       s->text[s->at], at, expected[s->expects]);
}

static afmoe_status scan_value(struct scan *s, const struct json_caps *caps, const char *name, afmoe_error *error)
{
    uint64_t begin = s->at;
    uint8_t byte = s->text[begin];
    if (++s->n_values > caps->max_values) {
        return afmoe__fail(error, AFMOE_LIMIT, "%.160s: more than %llu values", name,
                           (unsigned long long)caps->max_values);
    }
    count_child(s);
    if (byte == '{' || byte == '[') return open_container(s, byte == '{', caps, name, error);
    if (byte == '"') {
        if (!scan_string(s)) return fail_at(s, name, error);
        grow_tree(s, STRING_BYTES + chunk_bytes(s->at - begin + 1)); /* kept at the size of the token */
    } else if (!scan_scalar(s)) {
        return fail_at(s, name, error);
    }
    after_value(s);
    return AFMOE_OK;
}

/* The next token, whitespace skipped. */
static afmoe_status scan_token(struct scan *s, const struct json_caps *caps, const char *name, afmoe_error *error)
{
    uint8_t byte = s->text[s->at];
    bool in_object = s->depth && s->open[s->depth - 1].is_object;
    bool may_close = s->expects == COMMA_OR_CLOSE || s->expects == KEY_OR_CLOSE || s->expects == VALUE_OR_CLOSE;
    if (may_close && byte == (in_object ? '}' : ']')) {
        s->depth--;
        s->at++;
        after_value(s);
        return AFMOE_OK;
    }
    switch (s->expects) {
    case VALUE:
    case VALUE_OR_CLOSE:
        return scan_value(s, caps, name, error);
    case KEY:
    case KEY_OR_CLOSE: {
        uint64_t begin = s->at;
        if (byte != '"' || !scan_string(s)) return fail_at(s, name, error);
        grow_tree(s, chunk_bytes(PAIR_BYTES + (s->at - begin) - 1)); /* quotes off, NUL on */
        s->expects = COLON;
        return AFMOE_OK;
    }
    case COLON:
        if (byte != ':') return fail_at(s, name, error);
        s->at++;
        s->expects = VALUE;
        return AFMOE_OK;
    case COMMA_OR_CLOSE:
        if (byte != ',') return fail_at(s, name, error);
        s->at++;
        s->expects = in_object ? KEY : VALUE;
        return AFMOE_OK;
    case END:
        break;
    }
    return fail_at(s, name, error);
}

static bool is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

afmoe_status afmoe__json_prescan(const uint8_t *text, uint64_t n_bytes, const struct json_caps *caps,
                                 uint64_t *out_longest, const char *name, afmoe_error *error)
{
    struct scan s = {.text = text, .n_bytes = n_bytes, .expects = VALUE};
    uint64_t allowed = allowed_base + allowed_per_byte * n_bytes;
    for (;;) {
        while (s.at < n_bytes && is_space(text[s.at])) s.at++;
        if (s.at >= n_bytes) break;
        afmoe_status status = scan_token(&s, caps, name, error);
        if (status) return status;
        /* json.c's filler is up to twice the longest token, the token buffer up to 4/3 of that. */
        if (s.peak_bytes + 5 * s.longest_token > allowed) {
            return afmoe__fail(error, AFMOE_LIMIT,
                               "%.160s: parsing it takes more than the %llu bytes allowed for %llu bytes of text", name,
                               (unsigned long long)allowed, (unsigned long long)n_bytes);
        }
    }
    *out_longest = s.longest_token;
    return s.expects == END ? AFMOE_OK : fail_at(&s, name, error);
}
