/* Names out of files for messages: short, printable, one line. */
#ifndef AFMOE_TEXT_QUOTE_H
#define AFMOE_TEXT_QUOTE_H

#include <jansson.h>
#include <stdint.h>

struct quoted {
    char text[49];
};

/* The first bytes of `bytes`, what is not printable ASCII as '?'. Use it within one expression: quote(..).text */
static inline struct quoted quote(const char *bytes, uint64_t n_bytes)
{
    struct quoted out;
    uint64_t n = 0;
    for (; n < n_bytes && n < sizeof out.text - 1; n++) {
        out.text[n] = bytes[n] >= 0x20 && bytes[n] < 0x7f ? bytes[n] : '?';
    }
    out.text[n] = '\0';
    return out;
}

static inline struct quoted quote_json(const json_t *value)
{
    if (json_is_string(value)) return quote(json_string_value(value), json_string_length(value));
    return quote("(no string)", 11);
}

/* The "type" of a part of tokenizer.json. */
static inline struct quoted quote_type(const json_t *part)
{
    return quote_json(json_object_get(part, "type"));
}

#endif
