/* A checkpoint: finds out what a path is, opens its files, reads the config and binds the weights.
 *
 * Path kinds: a .gguf file (told by its magic, not its name), the first part of a split one; a folder with config.json
 * and safetensors; a tokenizer.json or a folder with one (tokenizer only). What is a single file may also be a part of
 * a file or lie in memory. The tokenizer's own data is handed on unread: the text floor builds the tokenizer from it.
 * Everything here lives until afmoe__checkpoint_close. */
#ifndef AFMOE_WEIGHTS_CHECKPOINT_H
#define AFMOE_WEIGHTS_CHECKPOINT_H

#include "file.h"
#include "generation_config.h"
#include "gguf.h"
#include "tensor_table.h"
#include "weights.h"

enum checkpoint_source_kind { SOURCE_PATH, SOURCE_RANGE, SOURCE_MEMORY };

struct checkpoint_source {
    enum checkpoint_source_kind kind;
    const char *path;
    int descriptor; /* SOURCE_RANGE: with offset and length, as afmoe__file_open_range */
    uint64_t offset, length;
    const void *data; /* SOURCE_MEMORY: length bytes, borrowed until the checkpoint is closed */
};

struct checkpoint_options {
    bool tokenizer_only;
    bool inspect_only; /* list the tensors, bind none: any format will do */
    bool strict;
    bool read;         /* into private memory, instead of mapping */
    bool lock;         /* weights only */
    bool headers_only; /* to be measured, not used: weights are neither read nor locked */
    afmoe_progress_fn progress;
    void *progress_data;
    const afmoe_cancel *cancel;
    uint64_t max_json_bytes;
    afmoe_log_fn log;
    void *log_data;
};

struct checkpoint {
    int32_t container; /* AFMOE_CONTAINER_* */
    int32_t layout;    /* AFMOE_LAYOUT_* */
    bool has_config, has_weights;
    struct model_config config;   /* without has_config: whatever could be read of bos/eos/pad, the rest zero */
    struct tensor_table tensors;  /* all of the files, sorted by name; empty with tokenizer_only */
    struct model_weights weights; /* without has_weights only the sums, of all tensors */
    struct generation_config generation;
    bool add_bos; /* tokenizer_config.json add_bos_token, tokenizer.ggml.add_bos_token; absent: false */
    const uint8_t *chat_template;      /* not run here, only shown; NULL: none */
    uint64_t chat_template_bytes;
    struct gguf *gguf;                 /* GGUF: its (first part's) metadata, else NULL */
    struct mapped_file tokenizer_json; /* folder: tokenizer.json, all of it; data NULL when there is none */
    void *owned;                       /* files and memory behind the view */
};

afmoe_status afmoe__checkpoint_open_source(struct checkpoint *out, const struct checkpoint_source *source,
                                           const struct checkpoint_options *options, afmoe_error *error);
/* SOURCE_PATH. */
afmoe_status afmoe__checkpoint_open(struct checkpoint *out, const char *path, const struct checkpoint_options *options,
                                    afmoe_error *error);
/* Safe on a zeroed struct. */
void afmoe__checkpoint_close(struct checkpoint *checkpoint);

/* Bytes of weights and tokenizer used where they lie (mapped files, the caller's memory), and bytes of memory of its
 * own, files that are read counted in full. */
void afmoe__checkpoint_memory(const struct checkpoint *checkpoint, uint64_t *out_mapped, uint64_t *out_private);

#endif
