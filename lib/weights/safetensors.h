/* One safetensors file: u64 header length, a JSON header {name: {dtype, shape, data_offsets}}, then the data.
 *
 * Checked against the file's size before anything is used: the tensors cover the data exactly, without hole, overlap
 * or rest. */
#ifndef AFMOE_WEIGHTS_SAFETENSORS_H
#define AFMOE_WEIGHTS_SAFETENSORS_H

#include "file.h"
#include "tensor_table.h"

struct safetensors {
    struct mapped_file file;
    char *names; /* of its tensors, NUL-terminated */
};

/* Adds the file's tensors to `table`. Takes the mapping over on success only; it must live as long as the table. */
afmoe_status afmoe__safetensors_open(struct safetensors *out, struct mapped_file *file, struct tensor_table *table,
                                     uint64_t max_json_bytes, afmoe_error *error);
void afmoe__safetensors_close(struct safetensors *safetensors);

#endif
