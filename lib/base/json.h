/* JSON documents from hostile files: a pre-scan with caps, then jansson.
 *
 * The pre-scan walks the text once and checks UTF-8, nesting depth, the number of values and an upper estimate of the
 * memory jansson will take (64 MiB + 4 bytes for every byte of text is allowed), so that no document can cost more.
 * Duplicate keys are FORMAT. Numbers and strings are jansson's. Never touches jansson's global state. */
#ifndef AFMOE_BASE_JSON_H
#define AFMOE_BASE_JSON_H

#include "afmoe.h"

#include <jansson.h>
#include <stdbool.h>

struct json_caps {
    uint64_t max_bytes;  /* LIMIT above */
    uint64_t max_values; /* LIMIT above */
    uint32_t max_depth;  /* LIMIT above */
};

enum { JSON_MAX_VALUES = 4000000, JSON_MAX_DEPTH = 64 };

/* `name` names the document in messages ("config.json"). *out: a new reference, json_decref it. */
afmoe_status afmoe__json_parse(json_t **out, const uint8_t *text, uint64_t n_bytes, const struct json_caps *caps,
                               const char *name, afmoe_error *error);

#endif
