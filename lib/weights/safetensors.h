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
    uint64_t names_bytes;
};

/* Adds the file's tensors to `table`. Takes the file over on success only; it must live as long as the table. Only the
 * header is asked for: the tensors' bytes are there once the file is loaded. */
afmoe_status afmoe__safetensors_open(struct safetensors *out, struct mapped_file *file, struct tensor_table *table,
                                     uint64_t max_json_bytes, afmoe_error *error);
void afmoe__safetensors_close(struct safetensors *safetensors);

#endif
