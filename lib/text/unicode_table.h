/* Class and script group of every code point, as Trinity's pre-tokenizer tells them apart (a two-stage table made by
 * scripts/make_unicode_tables.py). */
#ifndef AFMOE_TEXT_UNICODE_TABLE_H
#define AFMOE_TEXT_UNICODE_TABLE_H

#include <stdint.h>

/* Low four bits of a property. CLASS_NUMBER: numeric (Nl, No), but no decimal digit. */
enum unicode_class {
    CLASS_OTHER,
    CLASS_LETTER,
    CLASS_MARK,
    CLASS_PUNCTUATION,
    CLASS_SYMBOL,
    CLASS_SPACE,
    CLASS_NUMBER,
    CLASS_DIGIT
};

/* High four bits: 0 or the alternative of the script step (1 CJK and kana, 2 Thai, 3 Lao, 4 Khmer, 5 Myanmar,
 * 6 Hangul) that the code point belongs to. */
enum { PROPERTY_CLASS = 0x0f, PROPERTY_SCRIPT = 0xf0 };

extern const uint8_t afmoe__unicode_block[];
extern const uint8_t afmoe__unicode_class[];

/* `code_point` <= 0x10ffff. */
static inline unsigned unicode_property(uint32_t code_point)
{
    return afmoe__unicode_class[(unsigned)afmoe__unicode_block[code_point >> 7] << 7 | (code_point & 127)];
}

#endif
