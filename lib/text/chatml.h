/* ChatML: <|im_start|>ROLE\nCONTENT<|im_end|>\n for each message, then perhaps <|im_start|>assistant\n. */
#ifndef AFMOE_TEXT_CHATML_H
#define AFMOE_TEXT_CHATML_H

#include "tokenizer.h"

/* As afmoe_chat_tokenize; `options` is a full struct, validated here. */
afmoe_status afmoe__chatml_encode(const struct tokenizer *tokenizer, const char *const *roles,
                                  const char *const *contents, uint64_t n_messages, const afmoe_chat_options *options,
                                  afmoe_token *out, uint64_t capacity, uint64_t *out_n, afmoe_error *error);

#endif
