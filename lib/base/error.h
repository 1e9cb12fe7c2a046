/* Status and error text: the one way a failure travels.
 *
 * Every fallible function returns an afmoe_status and takes the caller's afmoe_error as its last argument (may be
 * NULL). The function that finds the fault writes the text, with the numbers in it; callers above pass it on. */
#ifndef AFMOE_BASE_ERROR_H
#define AFMOE_BASE_ERROR_H

#include "afmoe.h"

#if defined(__GNUC__)
#define AFMOE_PRINTF(format_index, first_index) __attribute__((format(printf, format_index, first_index)))
#else
#define AFMOE_PRINTF(format_index, first_index)
#endif

/* Fill `error` (NULL is fine) and return `code`: `return afmoe__fail(error, AFMOE_FORMAT, "...", ...)`. */
afmoe_status afmoe__fail(afmoe_error *error, afmoe_status code, const char *format, ...) AFMOE_PRINTF(3, 4);

/* Same, with ": <strerror(errno)> (errno N)" appended. */
afmoe_status afmoe__fail_errno(afmoe_error *error, afmoe_status code, int error_number, const char *format, ...)
    AFMOE_PRINTF(4, 5);

/* "out of memory: N bytes for WHAT" */
afmoe_status afmoe__fail_memory(afmoe_error *error, uint64_t n_bytes, const char *what);

/* OK, or INVALID when a flag is neither 0 nor 1. */
afmoe_status afmoe__check_flag(int32_t value, const char *name, afmoe_error *error);

/* OK, or INVALID when the reserved field of struct `name` is not 0. */
afmoe_status afmoe__check_reserved(int32_t value, const char *name, afmoe_error *error);

#endif
