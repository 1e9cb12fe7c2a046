/* A file that is replaced as a whole, see replace_file.h: temporary file, fsync, rename, fsync of the folder. */
#include "replace_file.h"

#include "clock.h"
#include "error.h"
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_ATTEMPTS = 16 };

static afmoe_status open_folder(struct replace_file *file, afmoe_error *error)
{
    size_t n = (size_t)(file->name - file->path);
    char *folder = afmoe__strdup(n ? file->path : ".");
    if (!folder) return afmoe__fail_memory(error, n + 1, "the name of a folder");
    if (n) folder[n] = '\0';
    file->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    afmoe_status status = AFMOE_OK;
    if (file->folder < 0)
        status = afmoe__fail_errno(error, errno == ENOENT || errno == ENOTDIR ? AFMOE_NOT_FOUND : AFMOE_IO, errno,
                                   "cannot open the folder %s", folder);
    afmoe__free(folder);
    return status;
}

static afmoe_status check_target(const struct replace_file *file, afmoe_error *error)
{
    struct stat info;
    if (file->name[0] == '\0') return afmoe__fail(error, AFMOE_INVALID, "'%s' does not name a file", file->path);
    if (fstatat(file->folder, file->name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT) return AFMOE_OK;
        return afmoe__fail_errno(error, AFMOE_IO, errno, "cannot look at %s", file->path);
    }
    if (S_ISREG(info.st_mode)) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_INVALID, "%s is there and is not a regular file: it is not replaced", file->path);
}

/* The name is only a first guess at one that is free: O_EXCL decides. */
static afmoe_status open_temporary(struct replace_file *file, afmoe_error *error)
{
    uint64_t number = clock_now_ns();
    for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        snprintf(file->temporary, sizeof file->temporary, REPLACE_FILE_PREFIX "%ld-%llx.tmp", (long)getpid(),
                 (unsigned long long)(number + (uint64_t)attempt));
        file->descriptor = openat(file->folder, file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (file->descriptor >= 0) return AFMOE_OK;
        if (errno != EEXIST) break;
    }
    return afmoe__fail_errno(error, AFMOE_IO, errno, "cannot make a file beside %s", file->path);
}

afmoe_status afmoe__replace_file_begin(struct replace_file *out, const char *path, afmoe_error *error)
{
    const char *slash = strrchr(path, '/');
    *out = (struct replace_file){.path = path, .name = slash ? slash + 1 : path, .folder = -1, .descriptor = -1};
    afmoe_status status = open_folder(out, error);
    if (status == AFMOE_OK) status = check_target(out, error);
    if (status == AFMOE_OK) status = open_temporary(out, error);
    if (status != AFMOE_OK && out->folder >= 0) close(out->folder);
    return status;
}

afmoe_status afmoe__replace_file_write(struct replace_file *file, const void *bytes, uint64_t n, uint64_t offset,
                                       afmoe_error *error)
{
    enum { MAX_WRITE_BYTES = 1 << 30 };
    const char *from = bytes;
    while (n) {
        ssize_t written = pwrite(file->descriptor, from, n < MAX_WRITE_BYTES ? n : MAX_WRITE_BYTES, (off_t)offset);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0)
            return afmoe__fail_errno(error, AFMOE_IO, written ? errno : ENOSPC, "cannot write %s", file->path);
        from += written;
        n -= (uint64_t)written;
        offset += (uint64_t)written;
    }
    return AFMOE_OK;
}

afmoe_status afmoe__replace_file_commit(struct replace_file *file, bool durable, afmoe_error *error)
{
    int failed = durable && fsync(file->descriptor) != 0 ? errno : 0;
    if (close(file->descriptor) != 0 && !failed) failed = errno;
    file->descriptor = -1;
    if (!failed && renameat(file->folder, file->temporary, file->folder, file->name) != 0) failed = errno;
    if (failed) {
        afmoe__replace_file_discard(file);
        return afmoe__fail_errno(error, AFMOE_IO, failed, "cannot write %s", file->path);
    }
    failed = durable && fsync(file->folder) != 0 ? errno : 0;
    close(file->folder);
    if (!failed) return AFMOE_OK;
    return afmoe__fail_errno(error, AFMOE_IO, failed, "%s is written, but its folder could not be synced", file->path);
}

void afmoe__replace_file_discard(struct replace_file *file)
{
    if (file->descriptor >= 0) close(file->descriptor);
    unlinkat(file->folder, file->temporary, 0);
    close(file->folder);
}
