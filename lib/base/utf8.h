/* UTF-8, one code point at a time (Unicode 16, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF).
 *
 * What is not valid is cut into maximal subparts, as Unicode recommends and Rust's from_utf8_lossy does: the longest
 * prefix of a valid sequence that is there, at least one byte. */
#ifndef AFMOE_BASE_UTF8_H
#define AFMOE_BASE_UTF8_H

#include <stdint.h>

enum utf8_kind { UTF8_VALID, UTF8_INVALID, UTF8_INCOMPLETE /* the text ends inside a sequence that is valid so far */ };

struct utf8_step {
    uint32_t code_point; /* of UTF8_VALID only */
    uint32_t n_bytes;    /* >= 1 */
    enum utf8_kind kind;
};

/* `n` >= 1 bytes are there. */
static inline struct utf8_step utf8_decode(const uint8_t *text, uint64_t n)
{
    struct utf8_step step = {text[0], 1, UTF8_VALID};
    if (text[0] < 0x80) return step;
    step.kind = UTF8_INVALID;
    if (text[0] < 0xc2 || text[0] > 0xf4) return step;

    uint32_t n_wanted = text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : 4;
    uint8_t low = text[0] == 0xe0 ? 0xa0 : text[0] == 0xf0 ? 0x90 : 0x80; /* of the second byte */
    uint8_t high = text[0] == 0xed ? 0x9f : text[0] == 0xf4 ? 0x8f : 0xbf;
    step.code_point = text[0] & (0x7fu >> n_wanted);
    while (step.n_bytes < n_wanted) {
        if (step.n_bytes == n) {
            step.kind = UTF8_INCOMPLETE;
            return step;
        }
        uint8_t byte = text[step.n_bytes];
        if (byte < low || byte > high) return step;
        step.code_point = step.code_point << 6 | (byte & 0x3f);
        step.n_bytes++;
        low = 0x80;
        high = 0xbf;
    }
    step.kind = UTF8_VALID;
    return step;
}

#endif
