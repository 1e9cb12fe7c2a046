/* GGUF v2 and v3, see gguf.h; format: docs/gguf.md of the ggml repository.
 *
 * Every length is compared with the bytes that remain before it is used, every count with what could still fit before
 * memory is taken for it; the file's size is known once. */
#include "gguf.h"

#include "bytes.h"
#include "checked.h"
#include "error.h"
#include "gguf_types.h"
#include "memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_KEYS = 65536,
    MAX_TENSORS = 1048576,
    MAX_NAME_BYTES = 65536,            /* keys and tensor names */
    MAX_STRING_BYTES = 16 * 1048576,   /* string values */
    MAX_ALIGNMENT = 65536,
    DEFAULT_ALIGNMENT = 32,
    MIN_KEY_BYTES = 8 + 1 + 4 + 1,     /* name of one byte, type, value of one byte */
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8
};

struct key {
    const uint8_t *name;
    uint64_t n_name;
    struct gguf_value value;
};

struct gguf {
    struct mapped_file file;
    struct key *keys; /* sorted by name */
    uint64_t n_keys;
    struct gguf_tensor *tensors; /* in the order of the file */
    uint64_t n_tensors;
    uint64_t *offsets; /* of each tensor within the data, while opening */
    char *names;       /* all tensor names, NUL-terminated */
    uint64_t names_bytes;
    uint64_t alignment;
};

/* What is left to read: the one place that moves through the header. */
struct reader {
    struct mapped_file *file;
    const uint8_t *data;
    uint64_t at, size;
    const char *path;
    afmoe_error *error;
};

static const uint32_t type_bytes[N_GGUF_TYPES] = {
    [GGUF_U8] = 1, [GGUF_I8] = 1, [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4,
    [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8, /* strings and arrays have no fixed size: 0 */
};

const char *afmoe__gguf_type_name(enum gguf_type type)
{
    static const char *const names[N_GGUF_TYPES] = {"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string",
                                                    "array", "u64", "i64", "f64"};
    return (uint32_t)type < N_GGUF_TYPES ? names[type] : "unknown";
}

/* A name that has no NUL at its end, for messages. */
struct label {
    char text[120];
};

static struct label label_of(const uint8_t *name, uint64_t n)
{
    struct label out = {0};
    memcpy(out.text, name, n < sizeof out.text ? (size_t)n : sizeof out.text - 1);
    return out;
}

static afmoe_status fail_short(const struct reader *r, const char *what)
{
    return afmoe__fail(r->error, AFMOE_TRUNCATED, "%.120s: ends at byte %llu, inside of %s at %llu", r->path,
                       (unsigned long long)r->size, what, (unsigned long long)r->at);
}

/* Go on by n bytes, which lie in the file; they are there then. */
static afmoe_status advance(struct reader *r, uint64_t n)
{
    afmoe_status status = afmoe__file_need(r->file, r->at + n, r->error);
    if (!status) r->at += n;
    return status;
}

static afmoe_status take(struct reader *r, uint64_t n, const char *what, const uint8_t **out)
{
    if (!range_fits(r->at, n, r->size)) return fail_short(r, what);
    *out = r->data + r->at;
    return advance(r, n);
}

static afmoe_status take_u32(struct reader *r, const char *what, uint32_t *out)
{
    const uint8_t *p = NULL;
    afmoe_status status = take(r, 4, what, &p);
    if (!status) *out = load_le32(p);
    return status;
}

static afmoe_status take_u64(struct reader *r, const char *what, uint64_t *out)
{
    const uint8_t *p = NULL;
    afmoe_status status = take(r, 8, what, &p);
    if (!status) *out = load_le64(p);
    return status;
}

static afmoe_status take_string(struct reader *r, uint64_t max, const char *what, const uint8_t **out, uint64_t *out_n)
{
    afmoe_status status = take_u64(r, what, out_n);
    if (status) return status;
    if (*out_n > r->size - r->at) {
        return afmoe__fail(r->error, AFMOE_TRUNCATED, "%.120s: %s of %llu bytes at %llu, the file ends at %llu",
                           r->path, what, (unsigned long long)*out_n, (unsigned long long)r->at,
                           (unsigned long long)r->size);
    }
    if (*out_n > max) {
        return afmoe__fail(r->error, AFMOE_LIMIT, "%.120s: %s of %llu bytes, allowed are %llu", r->path, what,
                           (unsigned long long)*out_n, (unsigned long long)max);
    }
    return take(r, *out_n, what, out);
}

bool afmoe__gguf_probe(const uint8_t *data, uint64_t size)
{
    return size >= 4 && memcmp(data, "GGUF", 4) == 0;
}

static afmoe_status read_header(struct reader *r, struct gguf *g)
{
    const uint8_t *magic = NULL;
    uint32_t version = 0;
    afmoe_status status = take(r, 4, "the magic", &magic);
    if (!status && !afmoe__gguf_probe(magic, 4)) {
        return afmoe__fail(r->error, AFMOE_FORMAT, "%.120s: does not begin with \"GGUF\"", r->path);
    }
    if (!status) status = take_u32(r, "the version", &version);
    if (status) return status;
    if ((version & 0xFFFF) == 0 && version != 0) {
        return afmoe__fail(r->error, AFMOE_UNSUPPORTED, "%.120s: version 0x%08x; is this a big-endian file?", r->path,
                           version);
    }
    if (version == 0) return afmoe__fail(r->error, AFMOE_FORMAT, "%.120s: version 0", r->path);
    if (version != 2 && version != 3) {
        return afmoe__fail(r->error, AFMOE_UNSUPPORTED, "%.120s: GGUF version %u, supported are 2 and 3", r->path,
                           version);
    }
    status = take_u64(r, "the number of tensors", &g->n_tensors);
    if (!status) status = take_u64(r, "the number of keys", &g->n_keys);
    if (status) return status;
    uint64_t left = r->size - r->at;
    bool plausible = g->n_keys <= MAX_KEYS && g->n_tensors <= MAX_TENSORS;
    if (g->n_keys > left / MIN_KEY_BYTES || g->n_tensors > left / MIN_TENSOR_BYTES) {
        return afmoe__fail(r->error, plausible ? AFMOE_TRUNCATED : AFMOE_FORMAT,
                           "%.120s: %llu tensors and %llu keys cannot lie in the %llu bytes that follow", r->path,
                           (unsigned long long)g->n_tensors, (unsigned long long)g->n_keys, (unsigned long long)left);
    }
    if (!plausible) {
        return afmoe__fail(r->error, AFMOE_LIMIT, "%.120s: %llu tensors and %llu keys, allowed are %u and %u", r->path,
                           (unsigned long long)g->n_tensors, (unsigned long long)g->n_keys, MAX_TENSORS, MAX_KEYS);
    }
    return AFMOE_OK;
}

static afmoe_status skip_elements(struct reader *r, struct gguf_value *v, const char *key)
{
    uint64_t n_bytes;
    if (v->element_type != GGUF_STRING) {
        if (!checked_mul(v->n, type_bytes[v->element_type], &n_bytes)) n_bytes = UINT64_MAX;
        if (!range_fits(r->at, n_bytes, r->size)) {
            return afmoe__fail(r->error, AFMOE_TRUNCATED,
                               "%.120s: key \"%s\": %llu elements of %u bytes at %llu, the file "
                               "ends at %llu",
                               r->path, key, (unsigned long long)v->n, type_bytes[v->element_type],
                               (unsigned long long)r->at, (unsigned long long)r->size);
        }
        return advance(r, n_bytes);
    }
    if (v->n > (r->size - r->at) / 8) {
        return afmoe__fail(r->error, AFMOE_TRUNCATED,
                           "%.120s: key \"%s\": %llu strings cannot lie in the %llu bytes that "
                           "follow",
                           r->path, key, (unsigned long long)v->n, (unsigned long long)(r->size - r->at));
    }
    for (uint64_t i = 0; i < v->n; i++) {
        const uint8_t *string;
        uint64_t n;
        afmoe_status status = take_string(r, MAX_STRING_BYTES, "a string value", &string, &n);
        if (status) return status;
    }
    return AFMOE_OK;
}

static afmoe_status read_value(struct reader *r, struct gguf_value *v, const char *key)
{
    uint32_t type = 0, element_type = 0;
    afmoe_status status = take_u32(r, "a value type", &type);
    v->n = 1;
    element_type = type;
    if (!status && type == GGUF_ARRAY) {
        status = take_u32(r, "an element type", &element_type);
        if (!status) status = take_u64(r, "an array length", &v->n);
    }
    if (status) return status;
    if (type >= N_GGUF_TYPES || element_type >= N_GGUF_TYPES) {
        return afmoe__fail(r->error, AFMOE_FORMAT, "%.120s: key \"%s\": value type %u, known are 0..%u", r->path, key,
                           type >= N_GGUF_TYPES ? type : element_type, N_GGUF_TYPES - 1);
    }
    if (type == GGUF_ARRAY && element_type == GGUF_ARRAY) {
        return afmoe__fail(r->error, AFMOE_UNSUPPORTED, "%.120s: key \"%s\": arrays of arrays are not supported",
                           r->path, key);
    }
    v->type = (enum gguf_type)type;
    v->element_type = (enum gguf_type)element_type;
    v->data = r->data + r->at;
    return skip_elements(r, v, key);
}

static int compare_names(const uint8_t *a, uint64_t n_a, const uint8_t *b, uint64_t n_b)
{
    int order = memcmp(a, b, n_a < n_b ? n_a : n_b);
    return order ? order : (n_a > n_b) - (n_a < n_b);
}

static int compare_keys(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    return compare_names(x->name, x->n_name, y->name, y->n_name);
}

static afmoe_status read_keys(struct reader *r, struct gguf *g)
{
    g->keys = afmoe__alloc_array(g->n_keys, sizeof *g->keys);
    if (!g->keys) return afmoe__fail_memory(r->error, g->n_keys * sizeof *g->keys, "GGUF keys");
    for (uint64_t i = 0; i < g->n_keys; i++) {
        struct key *k = &g->keys[i];
        afmoe_status status = take_string(r, MAX_NAME_BYTES, "a key", &k->name, &k->n_name);
        if (status) return status;
        if (k->n_name == 0) return afmoe__fail(r->error, AFMOE_FORMAT, "%.120s: key %llu has an empty name", r->path,
                                               (unsigned long long)i);
        status = read_value(r, &k->value, label_of(k->name, k->n_name).text);
        if (status) return status;
    }
    qsort(g->keys, (size_t)g->n_keys, sizeof *g->keys, compare_keys);
    for (uint64_t i = 1; i < g->n_keys; i++) {
        if (compare_keys(&g->keys[i - 1], &g->keys[i]) == 0) {
            return afmoe__fail(r->error, AFMOE_FORMAT, "%.120s: key \"%s\" occurs twice", r->path,
                               label_of(g->keys[i].name, g->keys[i].n_name).text);
        }
    }
    return AFMOE_OK;
}

static afmoe_status read_alignment(struct reader *r, struct gguf *g)
{
    struct gguf_value value;
    g->alignment = DEFAULT_ALIGNMENT;
    if (!afmoe__gguf_find(g, "general.alignment", &value)) return AFMOE_OK;
    if (value.type != GGUF_U32) {
        return afmoe__fail(r->error, AFMOE_FORMAT, "%.120s: key \"general.alignment\" is a %s, expected u32", r->path,
                           afmoe__gguf_type_name(value.type));
    }
    uint32_t alignment = load_le32(value.data);
    if (alignment == 0 || (alignment & (alignment - 1)) || alignment > MAX_ALIGNMENT) {
        return afmoe__fail(r->error, AFMOE_FORMAT, "%.120s: general.alignment %u, expected a power of two in 1..%u",
                           r->path, alignment, MAX_ALIGNMENT);
    }
    g->alignment = alignment;
    return AFMOE_OK;
}

static afmoe_status read_type_and_size(struct reader *r, struct gguf_tensor *t, uint32_t code)
{
    const struct gguf_tensor_type *type = afmoe__gguf_tensor_type(code);
    if (type->block_elements == 0) {
        return afmoe__fail(r->error, AFMOE_UNSUPPORTED, "%.120s: tensor \"%.200s\": type %u (%s)", r->path, t->name,
                           code, type->name ? type->name : "unknown");
    }
    t->format = type->format;
    t->type_name = type->name;
    uint64_t n = t->dims[0] / type->block_elements;
    if (t->dims[0] % type->block_elements) {
        return afmoe__fail(r->error, AFMOE_FORMAT,
                           "%.120s: tensor \"%.200s\": rows of %llu elements are no multiple of the "
                           "%u of a %s block",
                           r->path, t->name, (unsigned long long)t->dims[0], type->block_elements, type->name);
    }
    bool fits = checked_mul(n, type->block_bytes, &n);
    for (uint32_t d = 1; d < 4; d++) fits = fits && checked_mul(n, t->dims[d], &n);
    if (!fits) {
        return afmoe__fail(r->error, AFMOE_FORMAT,
                           "%.120s: tensor \"%.200s\": dimensions [%llu, %llu, %llu, %llu] overflow", r->path, t->name,
                           (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                           (unsigned long long)t->dims[2], (unsigned long long)t->dims[3]);
    }
    t->n_bytes = n;
    return AFMOE_OK;
}

static afmoe_status read_tensor(struct reader *r, struct gguf_tensor *t, char *name_out, uint64_t *n_name,
                                uint64_t *offset)
{
    const uint8_t *name = NULL;
    uint32_t code = 0;
    afmoe_status status = take_string(r, MAX_NAME_BYTES, "a tensor name", &name, n_name);
    if (status) return status;
    struct label label = label_of(name, *n_name);
    if (*n_name == 0 || memchr(name, 0, (size_t)*n_name)) {
        return afmoe__fail(r->error, AFMOE_FORMAT, "%.120s: tensor name \"%.200s\" is empty or has a NUL in it",
                           r->path, label.text);
    }
    memcpy(name_out, name, (size_t)*n_name);
    name_out[*n_name] = '\0';
    t->name = name_out;
    status = take_u32(r, "a tensor's dimensions", &t->n_dims);
    if (status) return status;
    if (t->n_dims < 1 || t->n_dims > 4) {
        return afmoe__fail(r->error, AFMOE_FORMAT, "%.120s: tensor \"%.200s\": %u dimensions, expected 1..4", r->path,
                           label.text, t->n_dims);
    }
    for (uint32_t d = 0; d < 4; d++) {
        t->dims[d] = 1;
        if (!status && d < t->n_dims) status = take_u64(r, "a tensor's dimensions", &t->dims[d]);
    }
    if (!status) status = take_u32(r, "a tensor's type", &code);
    if (!status) status = take_u64(r, "a tensor's offset", offset);
    return status ? status : read_type_and_size(r, t, code);
}

/* All names together are at most what is left of the file, which bounds the block they are copied into: the sum of the
 * lengths is found in a first pass. */
static afmoe_status measure_names(struct reader r, uint64_t n_tensors, uint64_t *out)
{
    *out = 0;
    for (uint64_t i = 0; i < n_tensors; i++) {
        const uint8_t *p;
        uint64_t n;
        uint32_t n_dims = 0;
        afmoe_status status = take_string(&r, MAX_NAME_BYTES, "a tensor name", &p, &n);
        if (!status) status = take_u32(&r, "a tensor's dimensions", &n_dims);
        if (!status) status = take(&r, (uint64_t)n_dims * 8 + 12, "a tensor's entry", &p);
        if (status) return status;
        *out += n + 1;
    }
    return AFMOE_OK;
}

static afmoe_status read_tensors(struct reader *r, struct gguf *g)
{
    uint64_t n_names;
    afmoe_status status = measure_names(*r, g->n_tensors, &n_names);
    if (status) return status;
    g->tensors = afmoe__alloc_zeroed(g->n_tensors, sizeof *g->tensors);
    g->offsets = afmoe__alloc_array(g->n_tensors, sizeof *g->offsets);
    g->names = afmoe__alloc_array(n_names, 1);
    g->names_bytes = n_names;
    if (!g->tensors || !g->offsets || !g->names) {
        return afmoe__fail_memory(r->error, g->n_tensors * (sizeof *g->tensors + sizeof *g->offsets) + n_names,
                                  "the GGUF tensor table");
    }
    char *name = g->names;
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        uint64_t n_name;
        status = read_tensor(r, &g->tensors[i], name, &n_name, &g->offsets[i]);
        if (status) return status;
        name += n_name + 1;
    }
    return AFMOE_OK;
}

static afmoe_status place_tensors(struct reader *r, struct gguf *g)
{
    if (g->n_tensors == 0) return AFMOE_OK; /* nothing has to follow, not even the padding */
    const uint8_t *padding;
    afmoe_status status = take(r, (g->alignment - r->at % g->alignment) % g->alignment, "the padding", &padding);
    if (status) return status;
    uint64_t data_bytes = r->size - r->at;
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        uint64_t offset = g->offsets[i];
        if (offset % g->alignment) {
            return afmoe__fail(r->error, AFMOE_FORMAT,
                               "%.120s: tensor \"%.200s\": offset %llu is no multiple of the alignment "
                               "%llu",
                               r->path, t->name, (unsigned long long)offset, (unsigned long long)g->alignment);
        }
        if (!range_fits(offset, t->n_bytes, data_bytes)) {
            return afmoe__fail(r->error, AFMOE_TRUNCATED,
                               "%.120s: tensor \"%.200s\": offset %llu and %llu bytes, the data has %llu (file %llu)",
                               r->path, t->name, (unsigned long long)offset, (unsigned long long)t->n_bytes,
                               (unsigned long long)data_bytes, (unsigned long long)r->size);
        }
        t->data = r->data + r->at + offset;
        t->file_offset = r->at + offset;
    }
    return AFMOE_OK;
}

static int compare_places(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a, *y = *(const struct gguf_tensor *const *)b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes);
}

static int compare_tensor_names(const void *a, const void *b)
{
    return strcmp((*(const struct gguf_tensor *const *)a)->name, (*(const struct gguf_tensor *const *)b)->name);
}

static afmoe_status check_overlaps_and_names(struct reader *r, struct gguf *g)
{
    const struct gguf_tensor **order = afmoe__alloc_array(g->n_tensors, sizeof *order);
    if (!order) return afmoe__fail_memory(r->error, g->n_tensors * sizeof *order, "sorting GGUF tensors");
    afmoe_status status = AFMOE_OK;
    for (uint64_t i = 0; i < g->n_tensors; i++) order[i] = &g->tensors[i];
    qsort(order, (size_t)g->n_tensors, sizeof *order, compare_places);
    for (uint64_t i = 1; i < g->n_tensors && !status; i++) {
        if (order[i - 1]->data + order[i - 1]->n_bytes > order[i]->data) {
            status = afmoe__fail(r->error, AFMOE_FORMAT, "%.120s: tensors \"%.180s\" and \"%.180s\" overlap", r->path,
                                 order[i - 1]->name, order[i]->name);
        }
    }
    qsort(order, (size_t)g->n_tensors, sizeof *order, compare_tensor_names);
    for (uint64_t i = 1; i < g->n_tensors && !status; i++) {
        if (strcmp(order[i - 1]->name, order[i]->name) == 0) {
            status =
                afmoe__fail(r->error, AFMOE_FORMAT, "%.120s: tensor \"%.200s\" occurs twice", r->path, order[i]->name);
        }
    }
    afmoe__free(order);
    return status;
}

afmoe_status afmoe__gguf_open(struct gguf **out, struct mapped_file *file, afmoe_error *error)
{
    struct gguf *g = afmoe__alloc_zeroed(1, sizeof *g);
    if (!g) return afmoe__fail_memory(error, sizeof *g, "a GGUF file");
    struct reader r = {.file = file, .data = file->data, .size = file->size, .path = afmoe__file_name(file),
                       .error = error};
    afmoe_status status = read_header(&r, g);
    if (!status) status = read_keys(&r, g);
    if (!status) status = read_alignment(&r, g);
    if (!status) status = read_tensors(&r, g);
    if (!status) status = place_tensors(&r, g);
    if (!status) status = check_overlaps_and_names(&r, g);
    afmoe__free(g->offsets);
    g->offsets = NULL;
    if (status) {
        afmoe__gguf_close(g);
        return status;
    }
    g->file = *file;
    *file = (struct mapped_file){0};
    *out = g;
    return AFMOE_OK;
}

void afmoe__gguf_close(struct gguf *gguf)
{
    if (!gguf) return;
    afmoe__file_close(&gguf->file);
    afmoe__free(gguf->keys);
    afmoe__free(gguf->tensors);
    afmoe__free(gguf->names);
    afmoe__free(gguf);
}

bool afmoe__gguf_find(const struct gguf *gguf, const char *key, struct gguf_value *out)
{
    uint64_t low = 0, high = gguf->n_keys, n_key = strlen(key);
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const struct key *k = &gguf->keys[middle];
        int order = compare_names(k->name, k->n_name, (const uint8_t *)key, n_key);
        if (order == 0) {
            *out = k->value;
            return true;
        }
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return false;
}

/* An element as what its type holds: integers as magnitude and sign, or a double. */
struct number {
    bool is_float, is_negative;
    uint64_t magnitude;
    double f;
};

static struct number signed_number(int64_t x)
{
    return (struct number){.is_negative = x < 0, .magnitude = x < 0 ? 0 - (uint64_t)x : (uint64_t)x};
}

static struct number float_number(double f)
{
    return (struct number){.is_float = true, .f = f};
}

static bool get_number(const struct gguf_value *value, uint64_t index, struct number *out)
{
    if (index >= value->n || (uint32_t)value->element_type >= N_GGUF_TYPES) return false;
    const uint8_t *p = value->data + index * type_bytes[value->element_type];
    float f;
    double d;
    uint32_t u32;
    uint64_t u64;
    switch (value->element_type) {
    case GGUF_U8: *out = (struct number){.magnitude = p[0]}; return true;
    case GGUF_I8: *out = signed_number((int8_t)p[0]); return true;
    case GGUF_U16: *out = (struct number){.magnitude = load_le16(p)}; return true;
    case GGUF_I16: *out = signed_number((int16_t)load_le16(p)); return true;
    case GGUF_U32: *out = (struct number){.magnitude = load_le32(p)}; return true;
    case GGUF_I32: *out = signed_number((int32_t)load_le32(p)); return true;
    case GGUF_U64: *out = (struct number){.magnitude = load_le64(p)}; return true;
    case GGUF_I64: *out = signed_number((int64_t)load_le64(p)); return true;
    case GGUF_F32:
        u32 = load_le32(p);
        memcpy(&f, &u32, sizeof f);
        *out = float_number(f);
        return true;
    case GGUF_F64:
        u64 = load_le64(p);
        memcpy(&d, &u64, sizeof d);
        *out = float_number(d);
        return true;
    default: return false;
    }
}

bool afmoe__gguf_get_u64(const struct gguf_value *value, uint64_t index, uint64_t *out)
{
    struct number x;
    if (!get_number(value, index, &x)) return false;
    if (!x.is_float) {
        if (x.is_negative) return false;
        *out = x.magnitude;
        return true;
    }
    if (!(x.f >= 0 && x.f < 0x1p64) || x.f != floor(x.f)) return false;
    *out = (uint64_t)x.f;
    return true;
}

bool afmoe__gguf_get_i64(const struct gguf_value *value, uint64_t index, int64_t *out)
{
    struct number x;
    if (!get_number(value, index, &x)) return false;
    if (!x.is_float) {
        if (x.magnitude > (uint64_t)INT64_MAX + x.is_negative) return false;
        *out = x.is_negative ? (int64_t)(0 - x.magnitude) : (int64_t)x.magnitude;
        return true;
    }
    if (!(x.f >= -0x1p63 && x.f < 0x1p63) || x.f != floor(x.f)) return false;
    *out = (int64_t)x.f;
    return true;
}

bool afmoe__gguf_get_f64(const struct gguf_value *value, uint64_t index, double *out)
{
    struct number x;
    if (!get_number(value, index, &x)) return false;
    *out = x.is_float ? x.f : x.is_negative ? -(double)x.magnitude : (double)x.magnitude;
    return true;
}

bool afmoe__gguf_get_bool(const struct gguf_value *value, uint64_t index, bool *out)
{
    if (value->element_type != GGUF_BOOL || index >= value->n || value->data[index] > 1) return false;
    *out = value->data[index] != 0;
    return true;
}

bool afmoe__gguf_get_string(const struct gguf_value *value, const uint8_t **out, uint64_t *out_n)
{
    if (value->type != GGUF_STRING) return false;
    const uint8_t *cursor = value->data;
    afmoe__gguf_next_string(&cursor, out, out_n);
    return true;
}

void afmoe__gguf_next_string(const uint8_t **cursor, const uint8_t **out, uint64_t *out_n)
{
    *out_n = load_le64(*cursor);
    *out = *cursor + 8;
    *cursor += 8 + *out_n;
}

uint64_t afmoe__gguf_n_tensors(const struct gguf *gguf)
{
    return gguf->n_tensors;
}

const struct gguf_tensor *afmoe__gguf_tensor(const struct gguf *gguf, uint64_t index)
{
    return &gguf->tensors[index];
}

struct mapped_file *afmoe__gguf_file(struct gguf *gguf)
{
    return &gguf->file;
}

uint64_t afmoe__gguf_table_bytes(const struct gguf *gguf)
{
    return sizeof *gguf + gguf->n_keys * sizeof *gguf->keys + gguf->n_tensors * sizeof *gguf->tensors +
           gguf->names_bytes;
}

const char *afmoe__gguf_name(const struct gguf *gguf)
{
    return afmoe__file_name(&gguf->file);
}
