/* A checkpoint on disk: finds out what a path is, opens its files, reads the config and binds the weights.
 *
 * Path kinds: a .gguf file (told by its magic, not its name), the first part of a split one; a folder with config.json
 * and safetensors; a tokenizer.json or a folder with one (tokenizer only). The tokenizer's own data is handed on
 * unread: the text floor builds the tokenizer from it. Everything here lives until afmoe__checkpoint_close. */
#ifndef AFMOE_WEIGHTS_CHECKPOINT_H
#define AFMOE_WEIGHTS_CHECKPOINT_H

#include "file.h"
#include "generation_config.h"
#include "gguf.h"
#include "weights.h"

struct checkpoint_options {
    bool tokenizer_only;
    bool strict;
    uint64_t max_json_bytes;
    afmoe_log_fn log;
    void *log_data;
};

struct checkpoint {
    int32_t container; /* AFMOE_CONTAINER_* */
    int32_t layout;    /* AFMOE_LAYOUT_* */
    bool has_weights;
    struct model_config config; /* without weights: whatever could be read of bos/eos/pad, the rest zero */
    struct model_weights weights;
    struct generation_config generation;
    bool add_bos; /* tokenizer_config.json add_bos_token, tokenizer.ggml.add_bos_token; absent: false */
    struct gguf *gguf;                 /* GGUF: its (first part's) metadata, else NULL */
    struct mapped_file tokenizer_json; /* folder: tokenizer.json, data NULL when there is none */
    void *owned;                       /* files and memory behind the view */
};

afmoe_status afmoe__checkpoint_open(struct checkpoint *out, const char *path, const struct checkpoint_options *options,
                                    afmoe_error *error);
/* Safe on a zeroed struct. */
void afmoe__checkpoint_close(struct checkpoint *checkpoint);

#endif
