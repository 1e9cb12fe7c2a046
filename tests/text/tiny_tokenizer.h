/* The smallest tokenizer worth testing: 256 bytes, some merges, the added tokens of ChatML, a gap of ids. */
#ifndef AFMOE_TESTS_TINY_TOKENIZER_H
#define AFMOE_TESTS_TINY_TOKENIZER_H

#include "fixture_writer.h"

/* A tokenizer.json: a new reference. The description of its pre-tokenizer is that of tests/data. */
json_t *tiny_tokenizer(void);
/* The same as keys of a GGUF file. */
void gguf_add_tiny_tokenizer(struct gguf_writer *w);

#endif
