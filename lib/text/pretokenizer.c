/* Trinity's pre-tokenizer as one scanner.
 *
 * The format is the "pre_tokenizer" of Trinity's tokenizer.json, a Sequence of seven steps (verbatim in `steps`
 * below), each of which cuts the pieces of the step before:
 *
 *   1    numeric runs (Rust's char::is_numeric: Nd, Nl, No) are cut out;
 *   2-4  within them, runs of decimal digits are cut out and grouped in threes from the right. (Step 2 cuts long runs
 *        from the right into 510s; 510 is a multiple of 3, and after it every piece is all digits or has none. So
 *        step 3 cuts off the one or two leading digits and step 4 the threes.)
 *   5    runs of one script group (CJK with kana, Thai, Lao, Khmer, Myanmar, Hangul) are cut out, also between digits;
 *   6    what is not numeric is cut by the main expression; the first alternative that matches counts:
 *          a  an ASCII punctuation mark and ASCII letters
 *          b  [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
 *          c   ?[\p{P}\p{S}]+[\r\n]*
 *          d  \s*[\r\n]+
 *          e  \s+(?!\S)
 *          f  \s+
 *        and what no alternative matches stays together;
 *   7    bytes become letters of the byte alphabet, which changes no boundary.
 *
 * Every step sees its piece only: lookahead ends there. So the scanner keeps the segment it is in (a run of
 * non-numeric code points of one script group) and treats all else as the end of the text. */
#include "pretokenizer.h"

#include "error.h"
#include "quote.h"
#include "unicode_table.h"
#include "utf8.h"

#include <string.h>

/* Property of what is not in the text; no script, so in no segment. */
enum { PROPERTY_END = 0x100 };

struct character {
    unsigned property;
    uint32_t n_bytes;
};

static inline struct character look(const struct pretokenizer *p, uint64_t at)
{
    if (at >= p->n_bytes) return (struct character){PROPERTY_END, 0};
    if (p->text[at] < 0x80) return (struct character){afmoe__unicode_class[p->text[at]], 1};
    struct utf8_step step = utf8_decode(p->text + at, p->n_bytes - at);
    return (struct character){step.kind == UTF8_VALID ? unicode_property(step.code_point) : CLASS_OTHER, step.n_bytes};
}

static inline unsigned class_of(unsigned property)
{
    return property & PROPERTY_CLASS;
}

static inline unsigned script_of(unsigned property)
{
    return property & ~(unsigned)PROPERTY_CLASS; /* PROPERTY_END's is no script's */
}

/* The class of `c` as step 6 sees it in a segment of `script`; CLASS_NUMBER stands for "outside". */
static inline unsigned class_in(struct character c, unsigned script)
{
    return script_of(c.property) == script && class_of(c.property) < CLASS_NUMBER ? class_of(c.property) : CLASS_NUMBER;
}

static inline bool is_word(unsigned class)
{
    return class == CLASS_LETTER || class == CLASS_MARK;
}

static inline bool is_sign(unsigned class)
{
    return class == CLASS_PUNCTUATION || class == CLASS_SYMBOL;
}

static inline bool is_line_end(uint8_t byte)
{
    return byte == '\r' || byte == '\n';
}

static inline bool is_ascii_letter(uint8_t byte)
{
    return (uint8_t)((byte | 0x20) - 'a') < 26;
}

/* Steps 2 to 5 on a run of decimal digits: a group ends where a multiple of three is left or the script changes. */
static uint64_t digit_group(struct pretokenizer *p)
{
    uint64_t at = p->at;
    struct character c = look(p, at);
    if (p->n_digits == 0) {
        for (struct character next = c; class_of(next.property) == CLASS_DIGIT; next = look(p, at)) {
            at += next.n_bytes;
            p->n_digits++;
        }
        at = p->at;
    }
    unsigned script = script_of(c.property);
    do {
        at += c.n_bytes;
        p->n_digits--;
        if (p->n_digits % 3 == 0) break;
        c = look(p, at);
    } while (script_of(c.property) == script);
    return at;
}

/* Steps 2 and 5 on other numbers. */
static uint64_t number_run(const struct pretokenizer *p, struct character c)
{
    uint64_t at = p->at;
    unsigned property = c.property;
    do {
        at += c.n_bytes;
        c = look(p, at);
    } while (c.property == property);
    return at;
}

static uint64_t word_end(const struct pretokenizer *p, uint64_t at, unsigned script)
{
    for (;;) {
        struct character c = look(p, at);
        if (!is_word(class_in(c, script))) return at;
        at += c.n_bytes;
    }
}

/* [\p{P}\p{S}]+[\r\n]*; line ends are of no script. */
static uint64_t sign_end(const struct pretokenizer *p, uint64_t at, unsigned script)
{
    for (;;) {
        struct character c = look(p, at);
        if (!is_sign(class_in(c, script))) break;
        at += c.n_bytes;
    }
    if (script == 0) {
        while (at < p->n_bytes && is_line_end(p->text[at])) at++;
    }
    return at;
}

/* Alternatives d to f. Each call scans the run of white space once and takes all of it up to its last line end, or all
 * but its last code point: a run is scanned three times at most. */
static uint64_t space_end(const struct pretokenizer *p, unsigned script)
{
    uint64_t at = p->at, last = at, after_line_end = 0;
    struct character c = look(p, at);
    do {
        if (is_line_end(p->text[at])) after_line_end = at + 1;
        last = at;
        at += c.n_bytes;
        c = look(p, at);
    } while (class_in(c, script) == CLASS_SPACE);
    if (after_line_end) return after_line_end;
    if (class_in(c, script) == CLASS_NUMBER) return at; /* nothing follows in this segment */
    return last > p->at ? last : at;
}

/* What no alternative matches: up to a code point at which one does, or the end of the segment. */
static uint64_t unmatched_end(const struct pretokenizer *p, uint64_t at, unsigned script)
{
    struct character c = look(p, at);
    while (class_in(c, script) == CLASS_OTHER) {
        struct character next = look(p, at + c.n_bytes);
        if (is_word(class_in(next, script))) break;
        at += c.n_bytes;
        c = next;
    }
    return at;
}

/* Step 6 at p->at, whose code point is `c`, not numeric. */
static uint64_t main_piece(const struct pretokenizer *p, struct character c)
{
    unsigned script = script_of(c.property), class = class_of(c.property);
    const uint8_t *text = p->text;
    uint64_t next = p->at + c.n_bytes;

    if (is_word(class)) return word_end(p, next, script);
    unsigned next_class = class_in(look(p, next), script);
    if (is_sign(class)) {
        if (text[p->at] < 0x80 && next < p->n_bytes && is_ascii_letter(text[next])) {
            while (next < p->n_bytes && is_ascii_letter(text[next])) next++;
            return next;
        }
        return sign_end(p, next, script);
    }
    if (is_word(next_class) && !is_line_end(text[p->at])) return word_end(p, next, script);
    if (class == CLASS_OTHER) return unmatched_end(p, next, script);
    if (text[p->at] == ' ' && is_sign(next_class)) return sign_end(p, next, script);
    return space_end(p, script);
}

bool afmoe__pretokenizer_next(struct pretokenizer *p, uint64_t *out_begin, uint64_t *out_end)
{
    struct character c = look(p, p->at);
    *out_begin = p->at;
    if (c.property == PROPERTY_END) return false;
    if (class_of(c.property) == CLASS_DIGIT) {
        p->at = digit_group(p);
    } else if (class_of(c.property) == CLASS_NUMBER) {
        p->at = number_run(p, c);
    } else {
        p->at = main_piece(p, c);
    }
    *out_end = p->at;
    return true;
}

/* ---- Recognising it ---------------------------------------------------------------------------------------------- */

/* The expressions of steps 2 to 6 as tokenizer.json has them, after JSON's own escapes. */
static const char *const step_patterns[] = {
    "\\p{Nd}{1,510}(?=(?>\\p{Nd}{510})*(?:\\P{Nd}|$))|\\G\\p{Nd}{510}",
    "\\A\\p{Nd}{1,2}(?=\\p{Nd}{3}+\\z)",
    "\\A\\p{Nd}{3}|\\G\\p{Nd}{3}",
    ("(?:[\\u4E00-\\u9FFF\\u3040-\\u309F\\u30A0-\\u30FF\\u3400-\\u4DBF\\uf900-\\uFAFF\\uFF65-\\uFF9F\\u2F00-\\u2FDF]+|"
     "[\\u0E00-\\u0E7F]+|[\\u0E80-\\u0EFF]+|[\\u1780-\\u17FF]+|[\\u1000-\\u109F\\uAA60-\\uAA7F\\uA9E0-\\uA9FF]+|"
     "[\\uAC00-\\uD7AF\\u1100-\\u11FF]+)"),
    ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
     "[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"),
};
enum { N_STEP_PATTERNS = sizeof step_patterns / sizeof step_patterns[0], N_STEPS = N_STEP_PATTERNS + 2 };

static bool string_is(const json_t *value, const char *wanted)
{
    return json_is_string(value) && json_string_length(value) == strlen(wanted) &&
           memcmp(json_string_value(value), wanted, strlen(wanted)) == 0;
}

static bool has_type(const json_t *step, const char *type)
{
    return string_is(json_object_get(step, "type"), type);
}

static bool is_step(const json_t *step, size_t index)
{
    if (index == 0) return has_type(step, "Digits") && json_is_false(json_object_get(step, "individual_digits"));
    if (index <= N_STEP_PATTERNS) {
        const json_t *pattern = json_object_get(step, "pattern");
        return has_type(step, "Split") && string_is(json_object_get(pattern, "Regex"), step_patterns[index - 1]) &&
               string_is(json_object_get(step, "behavior"), "Isolated") &&
               json_is_false(json_object_get(step, "invert"));
    }
    /* trim_offsets changes offsets only, which nobody asks for. */
    return has_type(step, "ByteLevel") && json_is_false(json_object_get(step, "add_prefix_space")) &&
           json_is_false(json_object_get(step, "use_regex"));
}

afmoe_status afmoe__pretokenizer_recognise(const json_t *description, const char *name, afmoe_error *error)
{
    if (!has_type(description, "Sequence")) {
        return afmoe__fail(error, AFMOE_UNSUPPORTED,
                           "%s: pre_tokenizer is \"%s\"; supported is Trinity's Sequence of %d steps", name,
                           quote_type(description).text, (int)N_STEPS);
    }
    const json_t *steps = json_object_get(description, "pretokenizers");
    if (!json_is_array(steps) || json_array_size(steps) != N_STEPS) {
        return afmoe__fail(error, AFMOE_UNSUPPORTED, "%s: pre_tokenizer has %zu steps; supported are Trinity's %d",
                           name, json_array_size(steps), (int)N_STEPS);
    }
    for (size_t i = 0; i < N_STEPS; i++) {
        const json_t *step = json_array_get(steps, i);
        if (!is_step(step, i)) {
            return afmoe__fail(error, AFMOE_UNSUPPORTED, "%s: pre_tokenizer step %zu (\"%s\") differs from Trinity's",
                               name, i + 1, quote_type(step).text);
        }
    }
    return AFMOE_OK;
}
