/* safetensors, see safetensors.h; format: README.md of huggingface/safetensors. Stricter than the reference reader in
 * one place, where the specification asks for it: a name may occur once only. */
#include "safetensors.h"

#include "bytes.h"
#include "checked.h"
#include "error.h"
#include "json.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER_DEPTH = 4, MAX_TENSOR_NAME_BYTES = 1024 };

static const struct {
    const char *name;
    uint32_t bits;
    enum tensor_format format;
} dtypes[] = {
    {"F32", 32, FORMAT_F32},    {"F16", 16, FORMAT_F16},   {"BF16", 16, FORMAT_BF16},    {"F64", 64, N_FORMATS},
    {"F8_E4M3", 8, N_FORMATS},  {"F8_E5M2", 8, N_FORMATS}, {"F8_E8M0", 8, N_FORMATS},    {"F4", 4, N_FORMATS},
    {"F6_E2M3", 6, N_FORMATS},  {"F6_E3M2", 6, N_FORMATS}, {"BOOL", 8, N_FORMATS},       {"U8", 8, N_FORMATS},
    {"I8", 8, N_FORMATS},       {"U16", 16, N_FORMATS},    {"I16", 16, N_FORMATS},       {"U32", 32, N_FORMATS},
    {"I32", 32, N_FORMATS},     {"U64", 64, N_FORMATS},    {"I64", 64, N_FORMATS},       {"C64", 64, N_FORMATS},
};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

/* Where a tensor of this file lies, by offset: to check the cover. */
struct extent {
    uint64_t begin, end;
    const char *name;
};

struct header {
    const char *file;
    uint64_t data_offset, data_bytes;
    const uint8_t *data;
    afmoe_error *error;
};

static afmoe_status fail_tensor(const struct header *h, const char *name, const char *fault)
{
    return afmoe__fail(h->error, AFMOE_FORMAT, "%.120s: tensor \"%.200s\": %s", h->file, name, fault);
}

static afmoe_status read_dtype(const struct header *h, const char *name, const json_t *entry, struct tensor *t,
                               uint32_t *bits)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype) return fail_tensor(h, name, "\"dtype\" is missing or no string");
    for (uint32_t i = 0; i < N_DTYPES; i++) {
        if (strcmp(dtypes[i].name, dtype) != 0) continue;
        t->format = dtypes[i].format;
        t->type_name = dtypes[i].name;
        *bits = dtypes[i].bits;
        return AFMOE_OK;
    }
    return afmoe__fail(h->error, AFMOE_UNSUPPORTED, "%.120s: tensor \"%.200s\": unknown dtype \"%.40s\"", h->file, name,
                       dtype);
}

static bool read_count(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static afmoe_status read_shape(const struct header *h, const char *name, const json_t *entry, struct tensor *t)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape)) return fail_tensor(h, name, "\"shape\" is missing or no array");
    if (json_array_size(shape) > MAX_DIMS) return fail_tensor(h, name, "\"shape\" has more than 8 dimensions");
    t->n_dims = (uint32_t)json_array_size(shape);
    t->n_elements = 1;
    for (uint32_t d = 0; d < t->n_dims; d++) {
        if (!read_count(json_array_get(shape, d), &t->shape[d])) {
            return fail_tensor(h, name, "\"shape\" holds something else than integers from 0");
        }
        if (!checked_mul(t->n_elements, t->shape[d], &t->n_elements))
            return fail_tensor(h, name, "\"shape\" overflows");
    }
    return AFMOE_OK;
}

static afmoe_status read_extent(const struct header *h, const char *name, const json_t *entry, uint32_t bits,
                                struct tensor *t, struct extent *extent)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    uint64_t begin, end, n_bits;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 || !read_count(json_array_get(offsets, 0), &begin) ||
        !read_count(json_array_get(offsets, 1), &end) || end < begin) {
        return fail_tensor(h, name, "\"data_offsets\" is not [begin, end] with integers 0 <= begin <= end");
    }
    if (end > h->data_bytes) {
        return afmoe__fail(h->error, AFMOE_TRUNCATED,
                           "%.120s: tensor \"%.200s\": data_offsets [%llu, %llu], the data has %llu bytes", h->file,
                           name, (unsigned long long)begin, (unsigned long long)end, (unsigned long long)h->data_bytes);
    }
    if (!checked_mul(t->n_elements, bits, &n_bits) || n_bits % 8 || n_bits / 8 != end - begin) {
        return afmoe__fail(h->error, AFMOE_FORMAT,
                           "%.120s: tensor \"%.200s\": data_offsets [%llu, %llu] are %llu bytes, %llu elements of %s "
                           "take %u bits each", h->file, name, (unsigned long long)begin, (unsigned long long)end,
                           (unsigned long long)(end - begin), (unsigned long long)t->n_elements, t->type_name, bits);
    }
    t->data = h->data + begin;
    t->file_offset = h->data_offset + begin;
    t->n_bytes = end - begin;
    *extent = (struct extent){begin, end, t->name};
    return AFMOE_OK;
}

static afmoe_status read_entry(const struct header *h, const char *name, const json_t *entry, struct tensor *t,
                               struct extent *extent)
{
    uint32_t bits = 0;
    if (!json_is_object(entry)) return fail_tensor(h, name, "its entry is no object");
    afmoe_status status = read_dtype(h, name, entry, t, &bits);
    if (!status) status = read_shape(h, name, entry, t);
    if (!status) status = read_extent(h, name, entry, bits, t, extent);
    return status;
}

static int compare_extents(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end); /* empty ones first */
}

static afmoe_status check_cover(const struct header *h, struct extent *extents, uint64_t n)
{
    uint64_t at = 0;
    qsort(extents, (size_t)n, sizeof *extents, compare_extents);
    for (uint64_t i = 0; i < n; i++) {
        if (extents[i].begin != at) {
            return afmoe__fail(h->error, AFMOE_FORMAT, "%.120s: tensor \"%.200s\" begins at %llu, %s %llu", h->file,
                               extents[i].name, (unsigned long long)extents[i].begin,
                               extents[i].begin > at ? "leaving a hole from" : "overlapping what ends at",
                               (unsigned long long)at);
        }
        at = extents[i].end;
    }
    if (at == h->data_bytes) return AFMOE_OK;
    return afmoe__fail(h->error, AFMOE_FORMAT, "%.120s: the tensors end at byte %llu of the data, which has %llu",
                       h->file, (unsigned long long)at, (unsigned long long)h->data_bytes);
}

static const char metadata_key[] = "__metadata__";

static afmoe_status check_names_and_metadata(const struct header *h, json_t *header, uint64_t *n_names, uint64_t *n)
{
    const char *name, *key;
    json_t *entry, *value;
    *n_names = *n = 0;
    json_object_foreach(header, name, entry) {
        size_t n_name = strlen(name);
        if (strcmp(name, metadata_key) == 0) {
            if (!json_is_object(entry)) return fail_tensor(h, name, "metadata is no object");
            json_object_foreach(entry, key, value) {
                if (!json_is_string(value)) {
                    return afmoe__fail(h->error, AFMOE_FORMAT, "%.120s: __metadata__ \"%.200s\" is no string", h->file,
                                       key);
                }
            }
            continue;
        }
        if (n_name == 0 || n_name > MAX_TENSOR_NAME_BYTES) {
            return afmoe__fail(h->error, AFMOE_FORMAT,
                               "%.120s: a tensor name of %llu bytes (\"%.80s\"), allowed are 1..%u", h->file,
                               (unsigned long long)n_name, name, MAX_TENSOR_NAME_BYTES);
        }
        *n_names += n_name + 1;
        ++*n;
    }
    return AFMOE_OK;
}

static afmoe_status read_entries(const struct header *h, json_t *header, struct safetensors *out,
                                 struct tensor_table *table)
{
    uint64_t n_names, n, i = 0, n_before = table->n;
    struct extent *extents = NULL;
    afmoe_status status = check_names_and_metadata(h, header, &n_names, &n);
    if (!status) status = afmoe__tensors_reserve(table, n, h->error);
    if (status) return status;
    out->names = afmoe__alloc_array(n_names, 1);
    out->names_bytes = n_names;
    extents = afmoe__alloc_array(n, sizeof *extents);
    if (!out->names || !extents) {
        status = afmoe__fail_memory(h->error, n_names + n * sizeof *extents, "tensor names");
    }
    char *place = out->names;
    const char *name;
    json_t *entry;
    if (!status) {
        json_object_foreach(header, name, entry) {
            if (strcmp(name, metadata_key) == 0) continue;
            struct tensor *t = &table->tensors[table->n];
            *t = (struct tensor){.name = place, .file = h->file};
            place = stpcpy(place, name) + 1;
            status = read_entry(h, name, entry, t, &extents[i++]);
            if (status) break;
            table->n++;
        }
    }
    if (!status) status = check_cover(h, extents, n);
    if (status) table->n = n_before;
    afmoe__free(extents);
    return status;
}

/* The header's text, by the length before it. */
static afmoe_status find_header(struct mapped_file *file, uint64_t max_json_bytes, uint64_t *out_bytes,
                                afmoe_error *error)
{
    const char *name = afmoe__file_name(file);
    if (file->size < 8) {
        return afmoe__fail(error, AFMOE_TRUNCATED, "%.120s: %llu bytes, a safetensors file has 8 or more", name,
                           (unsigned long long)file->size);
    }
    afmoe_status status = afmoe__file_need(file, 8, error);
    if (status) return status;
    uint64_t n_bytes = load_le64(file->data);
    if (n_bytes > file->size - 8) {
        return afmoe__fail(error, AFMOE_TRUNCATED, "%.120s: header of %llu bytes in a file of %llu", name,
                           (unsigned long long)n_bytes, (unsigned long long)file->size);
    }
    if (n_bytes > max_json_bytes) {
        return afmoe__fail(error, AFMOE_LIMIT, "%.120s: header of %llu bytes, allowed are %llu", name,
                           (unsigned long long)n_bytes, (unsigned long long)max_json_bytes);
    }
    if ((status = afmoe__file_need(file, 8 + n_bytes, error)) != AFMOE_OK) return status;
    if (n_bytes == 0 || file->data[8] != '{') {
        return afmoe__fail(error, AFMOE_FORMAT, "%.120s: the header does not begin with '{'", name);
    }
    *out_bytes = n_bytes;
    return AFMOE_OK;
}

afmoe_status afmoe__safetensors_open(struct safetensors *out, struct mapped_file *file, struct tensor_table *table,
                                     uint64_t max_json_bytes, afmoe_error *error)
{
    uint64_t n_bytes = 0;
    json_t *header = NULL;
    const struct json_caps caps = {max_json_bytes, JSON_MAX_VALUES, MAX_HEADER_DEPTH};
    *out = (struct safetensors){0};
    afmoe_status status = find_header(file, max_json_bytes, &n_bytes, error);
    if (!status) status = afmoe__json_parse(&header, file->data + 8, n_bytes, &caps, afmoe__file_name(file), error);
    if (status) return status;
    const struct header h = {.file = afmoe__file_name(file), .data = file->data + 8 + n_bytes,
                             .data_offset = 8 + n_bytes, .data_bytes = file->size - 8 - n_bytes, .error = error};
    status = read_entries(&h, header, out, table);
    json_decref(header);
    if (status) {
        afmoe__safetensors_close(out);
        return status;
    }
    out->file = *file;
    *file = (struct mapped_file){0};
    return AFMOE_OK;
}

void afmoe__safetensors_close(struct safetensors *safetensors)
{
    afmoe__file_close(&safetensors->file);
    afmoe__free(safetensors->names);
    *safetensors = (struct safetensors){0};
}
