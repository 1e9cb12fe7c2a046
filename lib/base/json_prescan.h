/* One pass over a JSON text before it is parsed: is it well formed, and what would its tree cost?
 *
 * See json_prescan.c for what is checked and how the memory is counted. */
#ifndef AFMOE_BASE_JSON_PRESCAN_H
#define AFMOE_BASE_JSON_PRESCAN_H

#include "json.h"

/* OK: jansson may have the text; what json.c puts before it is counted too. FORMAT with the byte
 * offset, or LIMIT. *out_longest: bytes of the longest string or number, quotes included. */
afmoe_status afmoe__json_prescan(const uint8_t *text, uint64_t n_bytes, const struct json_caps *caps,
                                 uint64_t *out_longest, const char *name, afmoe_error *error);

#endif
