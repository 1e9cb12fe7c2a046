/* What the files of `afmoe synth` share: the shape of a model, its tensors, how their bytes are made. */
#ifndef AFMOE_CLI_SYNTH_H
#define AFMOE_CLI_SYNTH_H

#include "cli.h"

struct shape {
    const char *name;
    unsigned n_layers, n_dense_layers, n_heads, n_kv_heads, head_dim;
    unsigned n_experts, n_experts_per_token;
    uint64_t vocab, hidden, dense_width, expert_width, window, max_positions;
};

enum { N_ADDED = 32, N_BYTES = 256, N_UNUSED = 192, MIN_VOCAB = 512, MAX_VOCAB = 1000000 };

/* How the values of a row lie in memory, and how random bytes become blocks of about the wanted size: see
 * synth_fill.c. */
struct format {
    const char *name;       /* on the command line */
    const char *container;  /* safetensors' name of it; NULL: GGUF only */
    unsigned gguf_type;     /* ggml's number */
    unsigned gguf_ftype;    /* general.file_type of a file of it */
    unsigned elements, bytes;
    const struct format *better; /* of a mix: what the tensors that count more are in */
    int d_at, m_at;         /* where the f16 factors d and m are in a block; -1: none */
    float rms, m_ratio;     /* of values with d = 1; m = m_ratio * d */
    void (*repair)(uint8_t *block, uint16_t d); /* what else random bytes need; NULL: nothing */
};

extern const struct format *const format_f32;
/* NULL after a message. */
const struct format *format_find(const char *name);

enum content { CONTENT_WEIGHTS, CONTENT_NORM, CONTENT_BIAS };

struct tensor {
    char name[80];
    unsigned n_dims;
    uint64_t dims[3]; /* slowest first */
    const struct format *format;
    enum content content;
};

struct plan {
    struct tensor *tensors; /* plan_free */
    size_t n, capacity;
    uint64_t n_bytes; /* of all of them */
};

/* The tensors of a model in file order; hub: under the names of safetensors files, one for each expert. False after a
 * message. */
bool plan_make(struct plan *plan, const struct shape *shape, const struct format *format, bool hub);
void plan_free(struct plan *plan);
uint64_t tensor_bytes(const struct tensor *tensor);

/* Writes tensors of random values: the same bytes for the same seed and name. */
struct filler {
    uint64_t seed, done, total; /* bytes, for the bar */
    bool quiet;
    uint64_t *block; /* where bytes are made */
    uint32_t *gauss; /* values of a normal distribution as F32, F16 and BF16, for each content */
};

bool filler_init(struct filler *filler, uint64_t seed, uint64_t total, bool quiet);
void filler_free(struct filler *filler);
bool filler_write(struct filler *filler, struct out_file *file, const struct tensor *tensor);

/* All of a model; an exit code, nothing stays when it is not EXIT_OK. */
int synth_gguf(const char *path, const struct shape *shape, const struct format *format, const struct plan *plan,
               struct filler *filler);
int synth_safetensors(const char *folder, const struct shape *shape, const struct format *format,
                      const struct plan *plan, struct filler *filler, uint64_t shard_bytes);

#endif
