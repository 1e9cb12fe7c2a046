/* Structs that cross the border: read with any size an older or newer caller may have, written as far as they fit.
 *
 * Every such struct begins with `uint32_t size`, the caller's sizeof, and only ever grows at the end. */
#ifndef AFMOE_API_STRUCTS_H
#define AFMOE_API_STRUCTS_H

#include "afmoe.h"

/* What is known of a type. */
struct struct_type {
    const char *name;
    uint32_t n_bytes, alignment;
};
#define STRUCT_TYPE(type) (&(const struct struct_type){#type, sizeof(type), _Alignof(type)})

/* Copy the caller's struct over `full`, which holds the defaults. `given` NULL: the defaults. Smaller: the rest keeps
 * its defaults. Larger: UNSUPPORTED unless the unknown tail is zero. INVALID for a size no version of it can have:
 * below one field, or one that would cut a field (all are as wide as they are aligned). full->size ends as sizeof. */
#define STRUCT_READ(full, given, type, error) afmoe__struct_read(full, given, STRUCT_TYPE(type), error)

afmoe_status afmoe__struct_read(void *full, const void *given, const struct struct_type *type, afmoe_error *error);

/* Check that `given` (NULL is fine) can be written to: the size is set. */
#define STRUCT_CHECK_OUT(given, type, error) afmoe__struct_check_out(given, STRUCT_TYPE(type), error)

afmoe_status afmoe__struct_check_out(const void *given, const struct struct_type *type, afmoe_error *error);

/* Copy as much of `full` as the caller's size holds; its size field stays. NULL is fine. */
void afmoe__struct_write(void *given, const void *full, uint32_t full_bytes);

/* The caller's buffer of `capacity` elements for `n`: sets *out_n (when not NULL), then OK or CAPACITY; INVALID when it
 * is NULL and its capacity is not 0. */
afmoe_status afmoe__check_capacity(const void *buffer, uint64_t capacity, uint64_t n, uint64_t *out_n,
                                   afmoe_error *error);

/* INVALID naming the argument when p is NULL. */
afmoe_status afmoe__check_argument(const void *p, const char *name, afmoe_error *error);

#endif
