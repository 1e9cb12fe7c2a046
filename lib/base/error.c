/* Status and error text, see error.h. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A caller may be built against a later, larger struct; a smaller one than ours never existed. */
static int writable(const afmoe_error *error)
{
    return error && error->size >= sizeof *error;
}

static void write_message(afmoe_error *error, afmoe_status code, const char *format, va_list arguments)
{
    error->code = code;
    vsnprintf(error->message, sizeof error->message, format, arguments);
    /* Names from files may hold anything; a message is one line. */
    for (char *c = error->message; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7F) *c = '?';
    }
}

afmoe_status afmoe__fail(afmoe_error *error, afmoe_status code, const char *format, ...)
{
    if (writable(error)) {
        va_list arguments;
        va_start(arguments, format);
        write_message(error, code, format, arguments);
        va_end(arguments);
    }
    return code;
}

afmoe_status afmoe__fail_errno(afmoe_error *error, afmoe_status code, int error_number, const char *format, ...)
{
    if (writable(error)) {
        va_list arguments;
        va_start(arguments, format);
        write_message(error, code, format, arguments);
        va_end(arguments);
        char reason[128];
        /* The POSIX strerror_r; _POSIX_C_SOURCE selects it, see meson.build. */
        if (strerror_r(error_number, reason, sizeof reason) != 0) snprintf(reason, sizeof reason, "unknown error");
        size_t used = strlen(error->message);
        snprintf(error->message + used, sizeof error->message - used, ": %s (errno %d)", reason, error_number);
    }
    return code;
}

afmoe_status afmoe__fail_memory(afmoe_error *error, uint64_t n_bytes, const char *what)
{
    return afmoe__fail(error, AFMOE_NO_MEMORY, "out of memory: %llu bytes for %s", (unsigned long long)n_bytes, what);
}

afmoe_status afmoe__check_flag(int32_t value, const char *name, afmoe_error *error)
{
    if (value == 0 || value == 1) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_INVALID, "%s is %d, allowed are 0 and 1", name, value);
}

void afmoe__error_clear(afmoe_error *error)
{
    if (!writable(error)) return;
    error->code = AFMOE_OK;
    error->message[0] = '\0';
}
