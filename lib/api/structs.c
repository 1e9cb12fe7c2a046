/* Structs that cross the border, see structs.h. */
#include "structs.h"

#include "error.h"

#include <string.h>

/* No version will come near it: a size above is a struct that was never initialised, and is not read. */
enum { MAX_STRUCT_BYTES = 4096 };

static uint32_t given_size(const void *given)
{
    uint32_t size;
    memcpy(&size, given, sizeof size);
    return size;
}

static afmoe_status check_size(const void *given, const struct struct_type *type, afmoe_error *error)
{
    uint32_t size = given_size(given);
    if (size > sizeof size && size <= MAX_STRUCT_BYTES && size % type->alignment == 0) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_INVALID, "%s: size is %u; call %s_init first", type->name, size, type->name);
}

afmoe_status afmoe__struct_read(void *full, const void *given, const struct struct_type *type, afmoe_error *error)
{
    if (!given) return AFMOE_OK;
    afmoe_status status = check_size(given, type, error);
    if (status != AFMOE_OK) return status;
    uint32_t size = given_size(given), known = type->n_bytes;
    for (uint32_t i = known; i < size; i++)
        if (((const unsigned char *)given)[i] != 0)
            return afmoe__fail(error, AFMOE_UNSUPPORTED,
                               "%s: byte %u is set, but this library (version %s) knows only %u bytes of it",
                               type->name, i, afmoe_version_string(), known);
    memcpy(full, given, size < known ? size : known);
    memcpy(full, &known, sizeof known);
    return AFMOE_OK;
}

afmoe_status afmoe__struct_check_out(const void *given, const struct struct_type *type, afmoe_error *error)
{
    return given ? check_size(given, type, error) : AFMOE_OK;
}

void afmoe__struct_write(void *given, const void *full, uint32_t full_bytes)
{
    if (!given) return;
    uint32_t size = given_size(given);
    uint32_t fits = size < full_bytes ? size : full_bytes;
    if (fits > sizeof size)
        memcpy((char *)given + sizeof size, (const char *)full + sizeof size, fits - sizeof size);
}

afmoe_status afmoe__check_capacity(const void *buffer, uint64_t capacity, uint64_t n, uint64_t *out_n,
                                   afmoe_error *error)
{
    if (!buffer && capacity)
        return afmoe__fail(error, AFMOE_INVALID, "the buffer is NULL, its capacity %llu", (unsigned long long)capacity);
    if (out_n) *out_n = n;
    if (n <= capacity) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_CAPACITY, "the buffer holds %llu, needed are %llu", (unsigned long long)capacity,
                       (unsigned long long)n);
}

afmoe_status afmoe__check_argument(const void *p, const char *name, afmoe_error *error)
{
    return p ? AFMOE_OK : afmoe__fail(error, AFMOE_INVALID, "%s is NULL", name);
}
