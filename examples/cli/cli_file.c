/* Files the commands write: under the name PATH.part until they are whole, so that PATH is what it was or all of it.
 * Every failure is told once with its cause. */
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool fail(struct out_file *file)
{
    if (!file->failed) complain("%s: %s", file->path, errno ? strerror(errno) : "a write failed");
    file->failed = true;
    return false;
}

/* Devices and pipes are written to directly. */
static bool is_regular_or_new(const char *path)
{
    struct stat status;
    return stat(path, &status) != 0 || S_ISREG(status.st_mode);
}

bool replaces_file(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

bool out_open(struct out_file *file, const char *path)
{
    *file = (struct out_file){.path = path};
    int n = is_regular_or_new(path) ? snprintf(file->part, sizeof file->part, "%s.part", path) : 0;
    if (n >= (int)sizeof file->part) {
        errno = ENAMETOOLONG;
        return fail(file);
    }
    file->stream = fopen(n ? file->part : path, "wb");
    return file->stream || fail(file);
}

bool out_write(struct out_file *file, const void *bytes, size_t n)
{
    if (file->failed) return false;
    errno = 0;
    if (n && fwrite(bytes, 1, n, file->stream) != n) return fail(file);
    file->n_bytes += n;
    return true;
}

bool out_print(struct out_file *file, const char *format, ...)
{
    va_list arguments;
    if (file->failed) return false;
    errno = 0;
    va_start(arguments, format);
    int n = vfprintf(file->stream, format, arguments);
    va_end(arguments);
    if (n < 0) return fail(file);
    file->n_bytes += (uint64_t)n;
    return true;
}

bool out_close(struct out_file *file, bool keep)
{
    if (!file->stream) return false;
    errno = 0;
    if (fclose(file->stream) != 0 && keep) fail(file); /* when it is thrown away, nobody wants to know */
    file->stream = NULL;
    bool good = keep && !file->failed;
    if (!file->part[0]) return good;
    if (good && rename(file->part, file->path) != 0) good = fail(file);
    if (!good) unlink(file->part);
    return good;
}
