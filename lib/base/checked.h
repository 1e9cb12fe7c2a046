/* Checked arithmetic on sizes that come from files and callers. Never form a sum that may wrap: compare with the
 * remainder. All functions return false when the result does not fit and leave *out alone. */
#ifndef AFMOE_BASE_CHECKED_H
#define AFMOE_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool checked_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool checked_add(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Does [offset, offset + length) lie inside [0, total)? */
static inline bool range_fits(uint64_t offset, uint64_t length, uint64_t total)
{
    return offset <= total && length <= total - offset;
}

#endif
