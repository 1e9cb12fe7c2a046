/* Parts of a split GGUF file, see gguf_split.h; format: tools/gguf-split of llama.cpp. */
#include "gguf_split.h"

#include "error.h"
#include "memory.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PARTS = 65535 }; /* split.count is a u16 */

static const char number_key[] = "split.no", count_key[] = "split.count", tensors_key[] = "split.tensors.count";

/* Whole numbers that place a part. */
struct place {
    uint64_t number, count, n_tensors;
};

static afmoe_status read_key(const struct gguf *part, const char *key, uint64_t *out, afmoe_error *error)
{
    struct gguf_value value;
    if (!afmoe__gguf_find(part, key, &value))
        return afmoe__fail(error, AFMOE_FORMAT, "%.120s: key %s of a split file is missing", afmoe__gguf_name(part),
                           key);
    if (value.type != GGUF_ARRAY && afmoe__gguf_get_u64(&value, 0, out)) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_FORMAT, "%.120s: key %s is no whole number", afmoe__gguf_name(part), key);
}

static afmoe_status read_place(const struct gguf *part, struct place *out, afmoe_error *error)
{
    afmoe_status status = read_key(part, number_key, &out->number, error);
    if (!status) status = read_key(part, count_key, &out->count, error);
    return status ? status : read_key(part, tensors_key, &out->n_tensors, error);
}

/* "-00001-of-00003.gguf" at the end of the path of the first of `count` parts. */
static afmoe_status find_suffix(const char *path, uint64_t count, uint64_t *out_n_prefix, afmoe_error *error)
{
    char suffix[64];
    size_t n_path = strlen(path);
    size_t n_suffix = (size_t)snprintf(suffix, sizeof suffix, "-00001-of-%05llu.gguf", (unsigned long long)count);
    if (n_path > n_suffix && strcmp(path + n_path - n_suffix, suffix) == 0) {
        *out_n_prefix = n_path - n_suffix;
        return AFMOE_OK;
    }
    return afmoe__fail(error, AFMOE_FORMAT,
                       "\"%.255s\": key %s says %llu parts, but the name does not end in \"%s\", so that the others "
                       "cannot be found", path, count_key, (unsigned long long)count, suffix);
}

/* *out is set even where the part is refused, unless it could not be opened. */
static afmoe_status open_part(struct gguf **out, const char *part_path, uint64_t number, const struct place *first,
                              enum file_mode mode, afmoe_error *error)
{
    struct mapped_file file;
    struct place place;
    afmoe_status status = afmoe__file_open(&file, part_path, mode, error);
    if (status == AFMOE_NOT_FOUND)
        return afmoe__fail(error, AFMOE_FORMAT, "part \"%.255s\" (%llu of %llu) is missing", part_path,
                           (unsigned long long)number + 1, (unsigned long long)first->count);
    if (status) return status;
    status = afmoe__gguf_open(out, &file, error);
    if (status) {
        afmoe__file_close(&file);
        return status;
    }
    status = read_place(*out, &place, error);
    if (status) return status;
    if (place.number != number || place.count != first->count || place.n_tensors != first->n_tensors)
        return afmoe__fail(error, AFMOE_FORMAT,
                           "%.120s: says it is part %llu of %llu with %llu tensors in all (%s, %s, %s), expected part "
                           "%llu of %llu with %llu", afmoe__gguf_name(*out), (unsigned long long)place.number,
                           (unsigned long long)place.count, (unsigned long long)place.n_tensors, number_key, count_key,
                           tensors_key, (unsigned long long)number, (unsigned long long)first->count,
                           (unsigned long long)first->n_tensors);
    return AFMOE_OK;
}

static afmoe_status open_all(struct gguf_parts *out, const struct place *first, const char *path, uint64_t n_prefix,
                             enum file_mode mode, afmoe_error *error)
{
    uint64_t n_path = n_prefix + 64; /* the suffix has at most 30 bytes */
    char *part_path = afmoe__alloc_array(n_path, 1);
    out->parts = afmoe__alloc_zeroed(first->count - 1, sizeof *out->parts);
    afmoe_status status = AFMOE_OK;
    if (!part_path || !out->parts)
        status = afmoe__fail_memory(error, n_path + first->count * sizeof *out->parts, "the parts of a split file");
    else
        memcpy(part_path, path, (size_t)n_prefix);
    for (uint64_t i = 1; i < first->count && !status; i++) {
        snprintf(part_path + n_prefix, 64, "-%05llu-of-%05llu.gguf", (unsigned long long)i + 1,
                 (unsigned long long)first->count);
        status = open_part(&out->parts[out->n], part_path, i, first, mode, error);
        if (out->parts[out->n]) out->n++;
    }
    afmoe__free(part_path);
    return status;
}

/* Every tensor is somewhere: names that occur twice are found when the table of all is sorted. */
static afmoe_status check_total(const struct gguf_parts *parts, const struct gguf *first, uint64_t said,
                                afmoe_error *error)
{
    uint64_t n = afmoe__gguf_n_tensors(first); /* each below 2^20, so the sum cannot wrap */
    for (uint64_t i = 0; i < parts->n; i++) n += afmoe__gguf_n_tensors(parts->parts[i]);
    if (n == said) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_FORMAT, "%.120s: key %s says %llu tensors, the %llu parts have %llu",
                       afmoe__gguf_name(first), tensors_key, (unsigned long long)said, (unsigned long long)parts->n + 1,
                       (unsigned long long)n);
}

afmoe_status afmoe__gguf_open_parts(struct gguf_parts *out, const struct gguf *first, const char *path,
                                    enum file_mode mode, afmoe_error *error)
{
    struct gguf_value value;
    struct place place;
    uint64_t n_prefix = 0;
    *out = (struct gguf_parts){0};
    if (!afmoe__gguf_find(first, count_key, &value)) return AFMOE_OK;
    if (afmoe__gguf_get_u64(&value, 0, &place.count) && place.count <= 1) return AFMOE_OK; /* whole after all */
    afmoe_status status = read_place(first, &place, error);
    if (status) return status;
    if (place.count > MAX_PARTS)
        return afmoe__fail(error, AFMOE_FORMAT, "%.120s: key %s is %llu, expected 1..%d", afmoe__gguf_name(first),
                           count_key, (unsigned long long)place.count, MAX_PARTS);
    if (place.number != 0)
        return afmoe__fail(error, AFMOE_FORMAT,
                           "%.120s: is part %llu of %llu (key %s from 0); open the first one, whose name ends in "
                           "-00001-of-%05llu.gguf", afmoe__gguf_name(first), (unsigned long long)place.number + 1,
                           (unsigned long long)place.count, number_key, (unsigned long long)place.count);
    if (!path)
        return afmoe__fail(error, AFMOE_UNSUPPORTED,
                           "%.120s: is the first of %llu parts; a split file is opened by its path, beside which the "
                           "others are", afmoe__gguf_name(first), (unsigned long long)place.count);
    status = find_suffix(path, place.count, &n_prefix, error);
    if (!status) status = open_all(out, &place, path, n_prefix, mode, error);
    if (!status) status = check_total(out, first, place.n_tensors, error);
    if (status) afmoe__gguf_close_parts(out);
    return status;
}

void afmoe__gguf_close_parts(struct gguf_parts *parts)
{
    for (uint64_t i = 0; i < parts->n; i++) afmoe__gguf_close(parts->parts[i]);
    afmoe__free(parts->parts);
    *parts = (struct gguf_parts){0};
}
