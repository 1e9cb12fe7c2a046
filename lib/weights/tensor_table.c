/* A sorted array of tensors, see tensor_table.h. */
#include "tensor_table.h"

#include "checked.h"
#include "error.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

afmoe_status afmoe__tensors_reserve(struct tensor_table *table, uint64_t n, afmoe_error *error)
{
    uint64_t needed;
    struct tensor *grown = NULL;
    if (n <= table->capacity - table->n) return AFMOE_OK;
    if (checked_add(table->n, n, &needed)) {
        if (needed < 2 * table->capacity) needed = 2 * table->capacity; /* many shards: few copies */
        grown = afmoe__realloc_array(table->tensors, needed, sizeof *grown);
    }
    if (!grown) return afmoe__fail(error, AFMOE_NO_MEMORY, "out of memory for %llu tensors", (unsigned long long)n);
    table->tensors = grown;
    table->capacity = needed;
    return AFMOE_OK;
}

afmoe_status afmoe__tensors_add_gguf(struct tensor_table *table, const struct gguf *gguf, afmoe_error *error)
{
    uint64_t n = afmoe__gguf_n_tensors(gguf);
    afmoe_status status = afmoe__tensors_reserve(table, n, error);
    if (status) return status;
    for (uint64_t i = 0; i < n; i++) {
        const struct gguf_tensor *from = afmoe__gguf_tensor(gguf, i);
        struct tensor *to = &table->tensors[table->n++];
        *to = (struct tensor){.name = from->name, .file = afmoe__gguf_name(gguf), .data = from->data,
                              .file_offset = from->file_offset, .n_bytes = from->n_bytes, .n_dims = from->n_dims,
                               .format = from->format,
                              .type_name = from->type_name, .n_elements = 1};
        for (uint32_t d = 0; d < from->n_dims; d++) {
            to->shape[d] = from->dims[from->n_dims - 1 - d];
            to->n_elements *= to->shape[d]; /* cannot wrap: the bytes were counted, and every block has some */
        }
    }
    return AFMOE_OK;
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

afmoe_status afmoe__tensors_sort(struct tensor_table *table, afmoe_error *error)
{
    if (table->n == 0) return AFMOE_OK; /* nothing was allocated */
    qsort(table->tensors, (size_t)table->n, sizeof *table->tensors, compare);
    for (uint64_t i = 1; i < table->n; i++) {
        const struct tensor *a = &table->tensors[i - 1], *b = &table->tensors[i];
        if (strcmp(a->name, b->name) == 0) {
            return afmoe__fail(error, AFMOE_FORMAT, "tensor \"%.200s\" occurs twice, in %.80s and %.80s", b->name,
                               a->file, b->file);
        }
    }
    return AFMOE_OK;
}

struct tensor *afmoe__tensors_find(const struct tensor_table *table, const char *name)
{
    uint64_t low = 0, high = table->n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int order = strcmp(table->tensors[middle].name, name);
        if (order == 0) return &table->tensors[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

void afmoe__tensors_free(struct tensor_table *table)
{
    afmoe__free(table->tensors);
    *table = (struct tensor_table){0};
}
