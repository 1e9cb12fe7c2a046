/* All tensors of a checkpoint by name, whatever file they lie in: what layouts are bound from. */
#ifndef AFMOE_WEIGHTS_TENSOR_TABLE_H
#define AFMOE_WEIGHTS_TENSOR_TABLE_H

#include "format.h"
#include "gguf.h"

#include <stdbool.h>

enum { MAX_DIMS = 8 };

struct tensor {
    const char *name; /* borrowed from the file's own table */
    const char *file; /* its file's name, for messages */
    const uint8_t *data;
    uint64_t file_offset; /* of data, in the file */
    uint64_t n_bytes, n_elements;
    uint64_t shape[MAX_DIMS]; /* slowest first: rows before columns */
    uint32_t n_dims;
    enum tensor_format format; /* N_FORMATS: none we can compute with, see type_name */
    const char *type_name;     /* as the file spells it */
    bool is_used;
};

struct tensor_table {
    struct tensor *tensors;
    uint64_t n, capacity;
};

/* Kernels for its format exist. */
static inline bool tensor_is_supported(const struct tensor *tensor)
{
    return tensor->format != N_FORMATS;
}

/* Room for `n` more; NO_MEMORY. */
afmoe_status afmoe__tensors_reserve(struct tensor_table *table, uint64_t n, afmoe_error *error);
afmoe_status afmoe__tensors_add_gguf(struct tensor_table *table, const struct gguf *gguf, afmoe_error *error);
/* Sort by name, once all are in. FORMAT for a name that occurs twice. */
afmoe_status afmoe__tensors_sort(struct tensor_table *table, afmoe_error *error);
/* In a sorted table; NULL when there is none. */
struct tensor *afmoe__tensors_find(const struct tensor_table *table, const char *name);
void afmoe__tensors_free(struct tensor_table *table);

#endif
