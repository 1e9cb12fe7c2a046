/* Reference values of a fixture, see expected.h. */
#include "expected.h"

#include "error.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void path_beside(char *out, size_t n, const char *checkpoint_path)
{
    struct stat info;
    size_t length = strlen(checkpoint_path);
    if (stat(checkpoint_path, &info) == 0 && S_ISDIR(info.st_mode))
        snprintf(out, n, "%s/expected.safetensors", checkpoint_path);
    else if (length > 5 && strcmp(checkpoint_path + length - 5, ".gguf") == 0)
        snprintf(out, n, "%.*s.expected.safetensors", (int)(length - 5), checkpoint_path);
    else
        snprintf(out, n, "%s.expected.safetensors", checkpoint_path);
}

static const struct tensor *find(const struct expected *expected, const char *name, int layer)
{
    char full[64];
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "%s.%d", name, layer);
    return afmoe__tensors_find(&expected->table, full);
}

afmoe_status expected_open(struct expected *out, const char *checkpoint_path, afmoe_error *error)
{
    char path[4096];
    struct mapped_file file;
    memset(out, 0, sizeof *out);
    path_beside(path, sizeof path, checkpoint_path);
    afmoe_status status = afmoe__file_open(&file, path, FILE_MAPPED, error);
    if (status != AFMOE_OK) return status;
    status = afmoe__safetensors_open(&out->file, &file, &out->table, 32u << 20, error);
    if (status != AFMOE_OK) {
        afmoe__file_close(&file);
        return status;
    }
    status = afmoe__tensors_sort(&out->table, error);
    const struct tensor *ids = status == AFMOE_OK ? find(out, "input_ids", -1) : NULL;
    if (status == AFMOE_OK && (!ids || ids->n_dims != 2 || strcmp(ids->type_name, "I64") != 0))
        status = afmoe__fail(error, AFMOE_FORMAT, "%s: no input_ids", path);
    if (status != AFMOE_OK) {
        expected_close(out);
        return status;
    }
    out->n_sequences = ids->shape[0];
    out->n_positions = ids->shape[1];
    return AFMOE_OK;
}

void expected_close(struct expected *expected)
{
    afmoe__tensors_free(&expected->table);
    afmoe__safetensors_close(&expected->file);
    memset(expected, 0, sizeof *expected);
}

/* The reference files keep their data aligned, as their writer does. */
static const void *data_of(const struct expected *expected, const char *name, int layer, const char *type,
                           size_t alignment)
{
    const struct tensor *tensor = find(expected, name, layer);
    if (!tensor || strcmp(tensor->type_name, type) != 0 || (uintptr_t)tensor->data % alignment != 0) return NULL;
    return tensor->data;
}

const float *expected_floats(const struct expected *expected, const char *name, int layer)
{
    return data_of(expected, name, layer, "F32", _Alignof(float));
}

const int64_t *expected_ints(const struct expected *expected, const char *name, int layer)
{
    return data_of(expected, name, layer, "I64", _Alignof(int64_t));
}

uint64_t expected_n(const struct expected *expected, const char *name, int layer)
{
    const struct tensor *tensor = find(expected, name, layer);
    return tensor ? tensor->n_elements : 0;
}

uint64_t expected_first(const struct expected *expected, uint64_t sequence)
{
    const int64_t *mask = expected_ints(expected, "attention_mask", -1);
    uint64_t first = 0;
    while (mask && first < expected->n_positions && !mask[sequence * expected->n_positions + first]) first++;
    return first;
}

afmoe_token expected_token(const struct expected *expected, uint64_t sequence, uint64_t position)
{
    return (afmoe_token)expected_ints(expected, "input_ids", -1)[sequence * expected->n_positions + position];
}
