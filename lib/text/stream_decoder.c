/* Whole code points from tokens, see stream_decoder.h. What is held back is always the prefix of a valid sequence,
 * three bytes at most (utf8.h). */
#include "stream_decoder.h"

#include "error.h"
#include "utf8.h"

#include <string.h>

enum { MAX_HELD_BYTES = 3, REPLACEMENT_BYTES = 3 };
static const char replacement[REPLACEMENT_BYTES] = {'\xef', '\xbf', '\xbd'}; /* U+FFFD */

struct stream_decoder {
    const struct tokenizer *tokenizer;
    uint64_t vocab_size;
    int32_t skip_special;
    uint32_t n_held;
    uint8_t *input;  /* held bytes, then the token's */
    char *text;      /* room for REPLACEMENT_BYTES per byte of input */
    uint64_t n_room; /* bytes of input there is room for */
};

afmoe_status afmoe__stream_decoder_create(struct stream_decoder **out, const struct tokenizer *tokenizer,
                                          uint64_t vocab_size, int32_t skip_special, afmoe_error *error)
{
    struct stream_decoder *decoder = afmoe__alloc_zeroed(1, sizeof *decoder);
    if (!decoder) return afmoe__fail_memory(error, sizeof *decoder, "a stream decoder");
    decoder->tokenizer = tokenizer;
    decoder->vocab_size = vocab_size;
    decoder->skip_special = skip_special;
    *out = decoder;
    return AFMOE_OK;
}

void afmoe__stream_decoder_free(struct stream_decoder *decoder)
{
    if (!decoder) return;
    afmoe__free(decoder->input);
    afmoe__free(decoder->text);
    afmoe__free(decoder);
}

/* Room for n_bytes of input; both buffers or none are replaced. Tokens are short, so this happens a few times only. */
static afmoe_status reserve(struct stream_decoder *d, uint64_t n_bytes, afmoe_error *error)
{
    if (n_bytes <= d->n_room) return AFMOE_OK;
    uint64_t n_room = n_bytes < 64 ? 64 : 2 * n_bytes;
    uint8_t *input = afmoe__alloc_array(n_room, 1);
    char *text = afmoe__alloc_array(n_room, REPLACEMENT_BYTES);
    if (!input || !text) {
        afmoe__free(input);
        afmoe__free(text);
        return afmoe__fail_memory(error, n_room * (1 + REPLACEMENT_BYTES), "decoded text");
    }
    if (d->n_held) memcpy(input, d->input, d->n_held);
    afmoe__free(d->input);
    afmoe__free(d->text);
    d->input = input;
    d->text = text;
    d->n_room = n_room;
    return AFMOE_OK;
}

afmoe_status afmoe__stream_decoder_push(struct stream_decoder *d, afmoe_token token, const char **out_text,
                                        uint64_t *out_n, afmoe_error *error)
{
    if (!out_text || !out_n) return afmoe__fail(error, AFMOE_INVALID, "%s is NULL", out_n ? "out_text" : "out_n");
    if (token < 0 || (uint64_t)token >= d->vocab_size) {
        return afmoe__fail(error, AFMOE_INVALID, "token is %d; the vocabulary has 0 to %llu", token,
                           (unsigned long long)d->vocab_size - 1);
    }
    uint64_t n_token;
    const uint8_t *bytes = afmoe__tokenizer_shown(d->tokenizer, token, d->skip_special, &n_token);
    afmoe_status status = reserve(d, n_token + MAX_HELD_BYTES, error);
    if (status != AFMOE_OK) return status;
    if (n_token) memcpy(d->input + d->n_held, bytes, n_token);

    uint64_t n = d->n_held + n_token, at = 0, n_text = 0;
    while (at < n) {
        struct utf8_step step = utf8_decode(d->input + at, n - at);
        if (step.kind == UTF8_INCOMPLETE) break;
        if (step.kind == UTF8_VALID) {
            memcpy(d->text + n_text, d->input + at, step.n_bytes);
            n_text += step.n_bytes;
        } else {
            memcpy(d->text + n_text, replacement, REPLACEMENT_BYTES);
            n_text += REPLACEMENT_BYTES;
        }
        at += step.n_bytes;
    }
    d->n_held = (uint32_t)(n - at);
    memmove(d->input, d->input + at, d->n_held);
    *out_text = d->text;
    *out_n = n_text;
    return AFMOE_OK;
}

afmoe_status afmoe__stream_decoder_finish(struct stream_decoder *d, const char **out_text, uint64_t *out_n,
                                          afmoe_error *error)
{
    if (!out_text || !out_n) return afmoe__fail(error, AFMOE_INVALID, "%s is NULL", out_n ? "out_text" : "out_n");
    *out_text = replacement;
    *out_n = d->n_held ? REPLACEMENT_BYTES : 0;
    d->n_held = 0;
    return AFMOE_OK;
}
