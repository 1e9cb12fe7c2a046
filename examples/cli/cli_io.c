/* Input, output and messages of the commands. */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool bar_shown;

void complain(const char *format, ...)
{
    va_list arguments;
    hide_progress();
    fflush(stdout); /* what was written before the message stays before it */
    fputs("afmoe: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

int complain_error(const afmoe_error *error)
{
    complain("%s", in_options(error));
    return error->code == AFMOE_INVALID ? EXIT_USAGE : EXIT_FAILED;
}

static bool grow(struct buffer *buffer)
{
    size_t capacity = buffer->capacity ? 2 * buffer->capacity : 65536;
    char *bytes = realloc(buffer->bytes, capacity);
    if (!bytes) return false;
    buffer->bytes = bytes;
    buffer->capacity = capacity;
    return true;
}

bool buffer_append(struct buffer *buffer, const char *bytes, size_t n)
{
    while (n >= buffer->capacity - buffer->n)
        if (!grow(buffer)) {
            complain("out of memory");
            return false;
        }
    if (n) memcpy(buffer->bytes + buffer->n, bytes, n);
    buffer->n += n;
    buffer->bytes[buffer->n] = '\0';
    return true;
}

bool read_all(struct buffer *out, const char *path)
{
    bool standard = !path || strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "rb");
    const char *name = standard ? "standard input" : path;
    *out = (struct buffer){0};
    if (!file) {
        complain("%s: %s", name, strerror(errno));
        return false;
    }
    bool whole = false;
    while (grow(out)) {
        out->n += fread(out->bytes + out->n, 1, out->capacity - out->n, file);
        whole = out->n < out->capacity;
        if (whole) break;
    }
    if (!whole)
        complain("%s: out of memory", name);
    else if (ferror(file)) {
        complain("%s: %s", name, strerror(errno));
        whole = false;
    }
    if (!standard) fclose(file);
    if (!whole) {
        free(out->bytes);
        out->bytes = NULL;
    }
    return whole;
}

/* Once: the stream stays in error. */
static bool report_output(void)
{
    static bool reported;
    if (!reported && errno != EPIPE) complain("standard output: %s", errno ? strerror(errno) : "a write failed");
    reported = true;
    return false;
}

bool write_out(const char *bytes, size_t n)
{
    if (n == 0 || fwrite(bytes, 1, n, stdout) == n) return true;
    return report_output();
}

bool flush_out(void)
{
    errno = 0;
    return (fflush(stdout) == 0 && !ferror(stdout)) || report_output();
}

int32_t show_progress(void *user_data, uint64_t done, uint64_t total)
{
    static const char full[] = "##############################";
    enum { WIDTH = sizeof full - 1 };
    if (!isatty(STDERR_FILENO) || total == 0) return 0;
    int filled = (int)(done * WIDTH / total);
    fprintf(stderr, "\r%s [%.*s%*s] %" PRIu64 "/%" PRIu64, (const char *)user_data, filled, full, WIDTH - filled, "",
            done, total);
    fflush(stderr);
    bar_shown = true;
    return 0;
}

void hide_progress(void)
{
    if (!bar_shown) return;
    fputs("\r\033[K", stderr); /* erase the line; only ever sent to a terminal */
    fflush(stderr);
    bar_shown = false;
}
