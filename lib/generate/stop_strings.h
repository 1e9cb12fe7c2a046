/* Stop strings in a text that comes in pieces.
 *
 * Text goes in as it is made and comes out as soon as it is sure that it is not the beginning of a stop string: what
 * is held back is always the longest suffix that is one. The string that ends first stops; of several that end at the
 * same byte the longest, then the first in the list. However the text is cut into pieces, the same comes out.
 *
 * Each byte costs a constant amount for each string (Knuth, Morris and Pratt). Strings are valid UTF-8, so that text
 * given out is never cut within a code point. */
#ifndef AFMOE_GENERATE_STOP_STRINGS_H
#define AFMOE_GENERATE_STOP_STRINGS_H

#include "afmoe.h"

enum { STOP_STRINGS_MAX = 64 };

struct stop_strings;

/* `strings` are copied; `bytes` NULL: they are NUL-terminated. INVALID: more than 64, an empty one, NULL, or one that
 * is not valid UTF-8. */
afmoe_status afmoe__stop_strings_create(struct stop_strings **out, const char *const *strings, const uint64_t *bytes,
                                        uint64_t n, afmoe_error *error);
void afmoe__stop_strings_free(struct stop_strings *stops);

/* What may be given out now, borrowed until the next call. */
struct stop_text {
    const char *text;
    uint64_t n_bytes;
    int32_t stop_string; /* index of the string that stopped, which is not in the text; else -1 */
};

/* Add a piece. After a stop string nothing may be added. NO_MEMORY only for a piece of more than 4096 bytes. */
afmoe_status afmoe__stop_strings_push(struct stop_strings *stops, const char *piece, uint64_t piece_bytes,
                                      struct stop_text *out, afmoe_error *error);

/* The end of the text: what was held back. It lies in memory right behind the text that the last push gave out. */
void afmoe__stop_strings_finish(struct stop_strings *stops, struct stop_text *out);

#endif
