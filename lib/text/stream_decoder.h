/* Stream decoder: tokens in, whole code points out. Together its outputs are the bytes of all tokens with what is not
 * UTF-8 replaced by U+FFFD, one for each maximal subpart (as the reference's decode gives), however tokens cut it. */
#ifndef AFMOE_TEXT_STREAM_DECODER_H
#define AFMOE_TEXT_STREAM_DECODER_H

#include "tokenizer.h"

struct stream_decoder;

/* Ids are below `vocab_size`, as in afmoe__tokenizer_decode. `tokenizer` must outlive it. */
afmoe_status afmoe__stream_decoder_create(struct stream_decoder **out, const struct tokenizer *tokenizer,
                                          uint64_t vocab_size, int32_t skip_special, afmoe_error *error);
void afmoe__stream_decoder_free(struct stream_decoder *decoder);

/* As afmoe_stream_decoder_push and _finish: the text is borrowed until the next call. A push that fails changes
 * nothing. */
afmoe_status afmoe__stream_decoder_push(struct stream_decoder *decoder, afmoe_token token, const char **out_text,
                                        uint64_t *out_n, afmoe_error *error);
afmoe_status afmoe__stream_decoder_finish(struct stream_decoder *decoder, const char **out_text, uint64_t *out_n,
                                          afmoe_error *error);

#endif
