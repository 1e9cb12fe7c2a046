/* Status and error text, see error.h. */
#include "error.h"

#include "utf8.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Bytes of message the caller's struct holds, 0 for none: callers built against an earlier or later header have a
 * smaller or larger one, and a struct whose size was never set gets nothing. */
static size_t message_room(const afmoe_error *error)
{
    const size_t head = offsetof(afmoe_error, message);
    if (!error || error->size <= head) return 0;
    return error->size - head < sizeof error->message ? error->size - head : sizeof error->message;
}

/* Names from files may hold anything, and the end may cut a character: a message is one line of UTF-8. */
static void clean_message(char *message)
{
    size_t n = strlen(message);
    for (size_t i = 0; i < n;) {
        struct utf8_step step = utf8_decode((const uint8_t *)message + i, n - i);
        bool shown = step.kind == UTF8_VALID && step.code_point >= 0x20 && step.code_point != 0x7F;
        if (!shown) memset(message + i, '?', step.n_bytes);
        i += step.n_bytes;
    }
}

static void write_message(afmoe_error *error, size_t room, afmoe_status code, const char *format, va_list arguments)
{
    error->code = code;
    vsnprintf(error->message, room, format, arguments);
    clean_message(error->message);
}

afmoe_status afmoe__fail(afmoe_error *error, afmoe_status code, const char *format, ...)
{
    size_t room = message_room(error);
    if (room) {
        va_list arguments;
        va_start(arguments, format);
        write_message(error, room, code, format, arguments);
        va_end(arguments);
    }
    return code;
}

afmoe_status afmoe__fail_errno(afmoe_error *error, afmoe_status code, int error_number, const char *format, ...)
{
    size_t room = message_room(error);
    if (room) {
        va_list arguments;
        va_start(arguments, format);
        write_message(error, room, code, format, arguments);
        va_end(arguments);
        char reason[128];
        /* The POSIX strerror_r; _POSIX_C_SOURCE selects it, see meson.build. */
        if (strerror_r(error_number, reason, sizeof reason) != 0) snprintf(reason, sizeof reason, "unknown error");
        size_t used = strlen(error->message);
        snprintf(error->message + used, room - used, ": %s (errno %d)", reason, error_number);
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

afmoe_status afmoe__check_reserved(int32_t value, const char *name, afmoe_error *error)
{
    return value == 0 ? AFMOE_OK : afmoe__fail(error, AFMOE_INVALID, "%s: reserved is %d, must be 0", name, value);
}
