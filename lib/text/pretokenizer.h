/* Trinity's pre-tokenizer: cuts text into the pieces within which bytes are merged.
 *
 * A walk over the text that looks ahead as far as one piece, in time linear in the bytes and with no memory of its
 * own. Bytes that are not UTF-8 count as code points of no class (each maximal subpart as one). */
#ifndef AFMOE_TEXT_PRETOKENIZER_H
#define AFMOE_TEXT_PRETOKENIZER_H

#include "afmoe.h"

#include <jansson.h>
#include <stdbool.h>

struct pretokenizer {
    const uint8_t *text;
    uint64_t n_bytes;
    uint64_t at;       /* where the next piece begins */
    uint64_t n_digits; /* decimal digits (code points) left of the run at `at`; 0 outside one */
};

static inline struct pretokenizer pretokenizer_start(const uint8_t *text, uint64_t n_bytes)
{
    return (struct pretokenizer){.text = text, .n_bytes = n_bytes};
}

/* The next piece is text[*out_begin, *out_end), not empty; pieces follow each other without gaps. False at the end. */
bool afmoe__pretokenizer_next(struct pretokenizer *pretokenizer, uint64_t *out_begin, uint64_t *out_end);

/* OK when `description` (the value of "pre_tokenizer" in a tokenizer.json, may be NULL) is exactly this one; else
 * UNSUPPORTED, naming the step that differs. `name` names the document. */
afmoe_status afmoe__pretokenizer_recognise(const json_t *description, const char *name, afmoe_error *error);

#endif
