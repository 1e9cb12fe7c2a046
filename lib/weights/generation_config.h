/* What a checkpoint recommends for generating: generation_config.json, or GGUF's general.sampling.* keys. */
#ifndef AFMOE_WEIGHTS_GENERATION_H
#define AFMOE_WEIGHTS_GENERATION_H

#include "gguf.h"

#include <jansson.h>

/* has_* tell which were there. */
struct generation_config {
    bool has_temperature, has_top_p, has_top_k, has_min_p, has_repetition_penalty, has_do_sample;
    double temperature, top_p, min_p, repetition_penalty;
    uint64_t top_k;
    bool do_sample;
    int32_t *eos_tokens; /* the stop set the file names; NULL when it names none */
    uint64_t n_eos_tokens;
};

/* `document`: generation_config.json. `vocab_size` bounds its tokens, 0: not known. */
afmoe_status afmoe__generation_from_json(struct generation_config *out, const json_t *document, uint64_t vocab_size,
                                         const char *file, afmoe_error *error);
afmoe_status afmoe__generation_from_gguf(struct generation_config *out, const struct gguf *gguf, afmoe_error *error);
/* The list in config.json's eos_token_id, where nothing names a stop set yet; a single id there is the config's. */
afmoe_status afmoe__generation_add_config_eos(struct generation_config *out, const json_t *config_document,
                                              uint64_t vocab_size, const char *file, afmoe_error *error);
void afmoe__generation_free(struct generation_config *config);

#endif
