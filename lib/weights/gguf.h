/* GGUF v2 and v3: header, metadata and tensor table of one file, used where they lie in memory.
 *
 * File: "GGUF", u32 version, u64 n_tensors, u64 n_keys; keys {string name, u32 type, value}; tensors {string name,
 * u32 n_dims, u64 dims[n_dims] (fastest first), u32 type, u64 offset}; padding to general.alignment (32); data.
 * Strings are u64 length and bytes. All little-endian, nothing aligned in the header. */
#ifndef AFMOE_WEIGHTS_GGUF_H
#define AFMOE_WEIGHTS_GGUF_H

#include "file.h"
#include "format.h"

#include <stdbool.h>

enum gguf_type {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY, GGUF_U64,
    GGUF_I64, GGUF_F64, N_GGUF_TYPES
};

struct gguf;

/* One metadata value, borrowed from the mapping. */
struct gguf_value {
    enum gguf_type type;         /* GGUF_ARRAY: see element_type */
    enum gguf_type element_type; /* of an array; else the same as type */
    uint64_t n;                  /* elements of an array; 1 otherwise */
    const uint8_t *data;         /* unaligned little-endian bytes; strings as (u64 length, bytes)* */
};

struct gguf_tensor {
    const char *name; /* NUL-terminated copy */
    uint64_t dims[4]; /* fastest first; absent ones are 1 */
    uint32_t n_dims;
    enum tensor_format format; /* N_FORMATS: known to GGUF, not to the kernels */
    const char *type_name;     /* "Q4_K" */
    const uint8_t *data;
    uint64_t file_offset; /* of data, in the file */
    uint64_t n_bytes;
};

/* Takes the file over on success only; checks everything against its size. Only the header is asked for: the tensors'
 * bytes are there once the file is loaded. */
afmoe_status afmoe__gguf_open(struct gguf **out, struct mapped_file *file, afmoe_error *error);
void afmoe__gguf_close(struct gguf *gguf);

/* Is this the start of a GGUF file? */
bool afmoe__gguf_probe(const uint8_t *data, uint64_t size);

/* False when the key is absent. */
bool afmoe__gguf_find(const struct gguf *gguf, const char *key, struct gguf_value *out);

/* Value readers: a number of any numeric type converted (never cast), false when it is no number, does not fit or the
 * index is out of range. `index` is 0 for a scalar. */
bool afmoe__gguf_get_u64(const struct gguf_value *value, uint64_t index, uint64_t *out);
bool afmoe__gguf_get_i64(const struct gguf_value *value, uint64_t index, int64_t *out);
bool afmoe__gguf_get_f64(const struct gguf_value *value, uint64_t index, double *out);
bool afmoe__gguf_get_bool(const struct gguf_value *value, uint64_t index, bool *out);
/* A scalar string. */
bool afmoe__gguf_get_string(const struct gguf_value *value, const uint8_t **out, uint64_t *out_n);

/* "u32", "string", ...: for messages. */
const char *afmoe__gguf_type_name(enum gguf_type type);

/* Walk the strings of an array: start with *cursor = value->data, call exactly value->n times (lengths were checked at
 * open). */
void afmoe__gguf_next_string(const uint8_t **cursor, const uint8_t **out, uint64_t *out_n);

uint64_t afmoe__gguf_n_tensors(const struct gguf *gguf);
const struct gguf_tensor *afmoe__gguf_tensor(const struct gguf *gguf, uint64_t index);
struct mapped_file *afmoe__gguf_file(struct gguf *gguf);
/* Memory of the tables. */
uint64_t afmoe__gguf_table_bytes(const struct gguf *gguf);
/* The file's name without folders. */
const char *afmoe__gguf_name(const struct gguf *gguf);

#endif
