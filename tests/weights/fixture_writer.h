/* Writes tiny checkpoints for tests: GGUF and safetensors files, right or wrong in any detail.
 *
 * The tiny model has 2 layers (1 dense with sliding attention, 1 mixture with full attention), hidden size 32, 2 heads
 * of 16 over 1 key/value head, 4 experts of width 32 (2 chosen, 1 shared), 40 tokens. Element i of a tensor is
 * ((i * 37) % 128 - 64) / 64: exact in F32, F16, BF16 and Q8_0. Out of memory ends the test program. */
#ifndef AFMOE_TESTS_FIXTURE_WRITER_H
#define AFMOE_TESTS_FIXTURE_WRITER_H

#include "format.h"
#include "gguf.h"

#include <jansson.h>

struct buffer {
    uint8_t *data;
    uint64_t n, capacity;
};

void buffer_put(struct buffer *buffer, const void *bytes, uint64_t n);
void buffer_put_u32(struct buffer *buffer, uint32_t x);
void buffer_put_u64(struct buffer *buffer, uint64_t x);
/* Zeros up to a multiple. */
void buffer_pad(struct buffer *buffer, uint64_t multiple);
void buffer_free(struct buffer *buffer);

/* Files in a folder of their own under $TMPDIR or /tmp. */
struct scratch {
    char path[256];
};

void scratch_make(struct scratch *scratch);
/* With everything in it. */
void scratch_remove(struct scratch *scratch);
/* FOLDER/NAME; static, until the next call. */
const char *scratch_path(const struct scratch *scratch, const char *name);
void scratch_write(const struct scratch *scratch, const char *name, const void *bytes, uint64_t n);
void scratch_write_json(const struct scratch *scratch, const char *name, json_t *document);

/* The i-th element of every tensor. */
float tiny_element(uint64_t i);
/* n elements in a format, of whole blocks. Those of formats after Q8_0 stand for nothing: the bytes are 37 i. */
void buffer_put_elements(struct buffer *buffer, enum tensor_format format, uint64_t n);

/* ---- GGUF ------------------------------------------------------------------------------------------------------- */

enum { MAX_TINY_KEYS = 64, MAX_TINY_TENSORS = 64 };

struct gguf_writer {
    uint32_t version;
    uint64_t n_tensors_said, n_keys_said; /* UINT64_MAX: the truth */
    uint64_t alignment;                   /* of data and offsets as written; the key is separate */
    uint64_t drop_tail;                   /* bytes left away at the end */
    uint64_t noise; /* not 0: bytes of blocks are random ones that begin here, and with noise_mask */
    uint8_t noise_mask;
    struct written_key {
        char name[80];
        struct buffer value; /* type and bytes */
    } keys[MAX_TINY_KEYS];
    uint32_t n_keys;
    struct written_tensor {
        char name[80];
        uint32_t n_dims;
        uint64_t dims[8]; /* fastest first */
        uint32_t type;
        int64_t move; /* added to the offset written */
        uint64_t n_elements;
        enum tensor_format format; /* of the bytes written */
    } tensors[MAX_TINY_TENSORS];
    uint32_t n_tensors;
};

/* The tiny model, matrices in `format`. */
void gguf_writer_init(struct gguf_writer *w, enum tensor_format format);
void gguf_writer_free(struct gguf_writer *w);
/* Setting replaces a key of that name. */
void gguf_set(struct gguf_writer *w, const char *name, uint32_t type, const void *bytes, uint64_t n);
void gguf_set_u32(struct gguf_writer *w, const char *name, uint32_t x);
void gguf_set_f32(struct gguf_writer *w, const char *name, float x);
void gguf_set_bool(struct gguf_writer *w, const char *name, uint8_t x);
void gguf_set_string(struct gguf_writer *w, const char *name, const char *text);
void gguf_set_array(struct gguf_writer *w, const char *name, uint32_t element_type, uint64_t n, const void *bytes,
                    uint64_t n_bytes);
/* An array of n strings, each `text`. */
void gguf_set_strings(struct gguf_writer *w, const char *name, uint64_t n, const char *text);
/* A second key of the same name is what this one can make. */
void gguf_append_u32(struct gguf_writer *w, const char *name, uint32_t x);
void gguf_drop(struct gguf_writer *w, const char *name);
struct written_tensor *gguf_writer_tensor(struct gguf_writer *w, const char *name);
void gguf_drop_tensor(struct gguf_writer *w, const char *name);
struct written_tensor *gguf_add_tensor(struct gguf_writer *w, const char *name, enum tensor_format format,
                                       uint32_t n_dims, uint64_t d0, uint64_t d1, uint64_t d2);
/* Another format, with the elements there are. */
void gguf_set_format(struct written_tensor *tensor, enum tensor_format format);
/* Part `part` of `n_parts` of a model: of its tensors those with i % n_parts == part, with part 0 all of its keys, and
 * the split.* keys in each. */
void gguf_writer_init_part(struct gguf_writer *w, enum tensor_format format, uint32_t part, uint32_t n_parts);
/* Bytes of the header are out->n before data; *out_header its length. */
void gguf_serialise(const struct gguf_writer *w, struct buffer *out, uint64_t *out_header);

/* ---- safetensors ------------------------------------------------------------------------------------------------ */

struct safetensors_writer {
    json_t *header;
    struct buffer data;
};

void safetensors_writer_init(struct safetensors_writer *w);
void safetensors_writer_free(struct safetensors_writer *w);
void safetensors_add(struct safetensors_writer *w, const char *name, const char *dtype, uint32_t n_dims,
                     const uint64_t *shape, const void *bytes, uint64_t n);
void safetensors_serialise(const struct safetensors_writer *w, struct buffer *out);
/* The tiny model's tensors in the hub's names; `format` F32, F16 or BF16. */
void safetensors_add_tiny(struct safetensors_writer *w, enum tensor_format format);
/* Its config.json: a new reference. */
json_t *tiny_config(void);
/* config.json and model.safetensors. */
void write_tiny_hub(const struct scratch *scratch, json_t *config, const struct safetensors_writer *w);

#endif
