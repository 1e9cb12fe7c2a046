/* Files in memory, see file.h. */
#define _GNU_SOURCE /* realpath, MAP_ANONYMOUS, MAP_NORESERVE, mlock */

#include "file.h"

#include "cancel.h"
#include "error.h"
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static afmoe_status fail_open(afmoe_error *error, int error_number, const char *path)
{
    bool missing = error_number == ENOENT || error_number == ENOTDIR;
    return afmoe__fail_errno(error, missing ? AFMOE_NOT_FOUND : AFMOE_IO, error_number, "cannot open \"%s\"", path);
}

/* ---- Where the bytes lie ---------------------------------------------------------------------------------------- */

static uint64_t page_size(void)
{
    long n = sysconf(_SC_PAGESIZE);
    return n > 0 ? (uint64_t)n : 4096;
}

/* A mapping begins at a page of the file, so that `data` may lie anywhere within the first. */
static afmoe_status map_range(struct mapped_file *file, int descriptor, afmoe_error *error)
{
    uint64_t before = file->offset % page_size();
    file->pages_bytes = before + file->size; /* both lie within the file */
    void *pages = mmap(NULL, (size_t)file->pages_bytes, PROT_READ, MAP_PRIVATE, descriptor,
                       (off_t)(file->offset - before));
    if (pages == MAP_FAILED) {
        return afmoe__fail_errno(error, errno == ENOMEM ? AFMOE_NO_MEMORY : AFMOE_IO, errno,
                                 "cannot map \"%s\" (%llu bytes)", file->path, (unsigned long long)file->size);
    }
    file->pages = pages;
    file->data = file->pages + before;
    file->n_filled = file->size;
    return AFMOE_OK;
}

/* Zero pages of our own, of which only those that are filled take memory. */
static afmoe_status reserve(struct mapped_file *file, afmoe_error *error)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (file->mode == FILE_PEEKED ? MAP_NORESERVE : 0);
    void *pages = mmap(NULL, (size_t)file->size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (pages == MAP_FAILED) return afmoe__fail_memory(error, file->size, "the bytes of a file");
    file->pages = pages;
    file->pages_bytes = file->size;
    file->data = pages;
    return AFMOE_OK;
}

/* Takes `descriptor` over, also on failure. */
static afmoe_status use_descriptor(struct mapped_file *out, int descriptor, uint64_t offset, uint64_t length,
                                   const char *path, enum file_mode mode, afmoe_error *error)
{
    struct mapped_file file = {.mode = mode, .offset = offset, .descriptor = descriptor, .has_descriptor = true};
    struct stat info;
    afmoe_status status = AFMOE_OK;
    if (fstat(descriptor, &info) != 0) {
        status = afmoe__fail_errno(error, AFMOE_IO, errno, "cannot measure \"%s\"", path);
    } else if (!S_ISREG(info.st_mode)) {
        status = afmoe__fail(error, AFMOE_FORMAT, "\"%s\" is not a regular file", path);
    } else if (offset > (uint64_t)info.st_size ||
               (length != UINT64_MAX && length > (uint64_t)info.st_size - offset)) {
        status = afmoe__fail(error, AFMOE_TRUNCATED, "\"%s\": %llu bytes from %llu on, the file has %llu", path,
                             (unsigned long long)(length == UINT64_MAX ? 0 : length), (unsigned long long)offset,
                             (unsigned long long)info.st_size);
    } else {
        file.size = length == UINT64_MAX ? (uint64_t)info.st_size - offset : length;
        if (file.size > PTRDIFF_MAX - page_size()) {
            status = afmoe__fail(error, AFMOE_LIMIT, "\"%s\": %llu bytes do not fit the address space", path,
                                 (unsigned long long)file.size);
        } else if (!(file.path = afmoe__strdup(path))) {
            status = afmoe__fail_memory(error, strlen(path) + 1, "a path");
        }
    }
    if (!status && file.size > 0) {
        status = mode == FILE_MAPPED ? map_range(&file, descriptor, error) : reserve(&file, error);
    }
    if (status || mode == FILE_MAPPED || file.size == 0) {
        close(descriptor); /* a mapping outlives it */
        file.has_descriptor = false;
    }
    if (status) afmoe__file_close(&file);
    else *out = file;
    return status;
}

afmoe_status afmoe__file_open(struct mapped_file *out, const char *path, enum file_mode mode, afmoe_error *error)
{
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return fail_open(error, errno, path);
    return use_descriptor(out, descriptor, 0, UINT64_MAX, path, mode, error);
}

afmoe_status afmoe__file_open_range(struct mapped_file *out, int descriptor, uint64_t offset, uint64_t length,
                                    enum file_mode mode, afmoe_error *error)
{
    char name[64];
    snprintf(name, sizeof name, "descriptor %d at byte %llu", descriptor, (unsigned long long)offset);
    int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (own < 0) return afmoe__fail_errno(error, AFMOE_IO, errno, "cannot duplicate descriptor %d", descriptor);
    return use_descriptor(out, own, offset, length, name, mode, error);
}

afmoe_status afmoe__file_open_memory(struct mapped_file *out, const void *data, uint64_t n_bytes, enum file_mode mode,
                                     afmoe_error *error)
{
    struct mapped_file file = {.mode = mode, .size = n_bytes, .source = data, .path = afmoe__strdup("memory")};
    if (!file.path) return afmoe__fail_memory(error, sizeof "memory", "a name");
    afmoe_status status = AFMOE_OK;
    if (mode == FILE_MAPPED) {
        file.data = n_bytes ? data : NULL;
        file.n_filled = n_bytes;
    } else if (n_bytes > PTRDIFF_MAX) {
        status = afmoe__fail(error, AFMOE_LIMIT, "%llu bytes of memory do not fit the address space",
                             (unsigned long long)n_bytes);
    } else if (n_bytes) {
        status = reserve(&file, error);
    }
    if (status) afmoe__file_close(&file);
    else *out = file;
    return status;
}

/* ---- Names that come from files --------------------------------------------------------------------------------- */

static bool is_plain_name(const char *name)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    return name[0] != '\0' && name[0] != '.' && name[strspn(name, allowed)] == '\0';
}

/* The folder links may point into: the folder itself, or X when it is X/snapshots/REVISION. Shortens `folder`, an
 * absolute path without links. */
static void widen_to_cache_root(char *folder)
{
    static const char snapshots[] = "/snapshots";
    char *revision = strrchr(folder, '/');
    if (!revision) return;
    size_t n = (size_t)(revision - folder), n_snapshots = sizeof snapshots - 1;
    if (n > n_snapshots && memcmp(folder + n - n_snapshots, snapshots, n_snapshots) == 0)
        folder[n - n_snapshots] = '\0';
}

static bool is_inside(const char *path, const char *root)
{
    size_t n = strlen(root);
    while (n > 0 && root[n - 1] == '/') n--;
    return strncmp(path, root, n) == 0 && path[n] == '/';
}

static afmoe_status open_link(struct mapped_file *out, const char *folder, const char *path, enum file_mode mode,
                              afmoe_error *error)
{
    char *target = realpath(path, NULL), *root = NULL;
    afmoe_status status;
    if (!target) return fail_open(error, errno, path);
    root = realpath(folder, NULL);
    if (!root) {
        status = fail_open(error, errno, folder);
        goto end;
    }
    widen_to_cache_root(root);
    if (!is_inside(target, root)) {
        status = afmoe__fail(error, AFMOE_FORMAT, "\"%s\" is a link to \"%s\", outside of \"%s\"", path, target, root);
        goto end;
    }
    int descriptor = open(target, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    status = descriptor < 0 ? fail_open(error, errno, path)
                            : use_descriptor(out, descriptor, 0, UINT64_MAX, path, mode, error);
end:
    free(target);
    free(root);
    return status;
}

afmoe_status afmoe__file_open_in(struct mapped_file *out, const char *folder, const char *name, enum file_mode mode,
                                 afmoe_error *error)
{
    if (!is_plain_name(name)) {
        return afmoe__fail(error, AFMOE_FORMAT,
                           "\"%.255s\" is no file name allowed here: letters, digits, '.', '_' and '-', not beginning "
                           "with '.'", name);
    }
    uint64_t n_path = strlen(folder) + strlen(name) + 2;
    char *path = afmoe__alloc_array(n_path, 1);
    if (!path) return afmoe__fail_memory(error, n_path, "a path");
    snprintf(path, n_path, "%s/%s", folder, name);
    afmoe_status status;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (descriptor >= 0) {
        status = use_descriptor(out, descriptor, 0, UINT64_MAX, path, mode, error);
    } else if (errno == ELOOP) {
        status = open_link(out, folder, path, mode, error);
    } else {
        status = fail_open(error, errno, path);
    }
    afmoe__free(path);
    return status;
}

void afmoe__file_close(struct mapped_file *file)
{
    if (file->has_descriptor) close(file->descriptor);
    if (file->pages) munmap(file->pages, (size_t)file->pages_bytes); /* takes locks away, too */
    afmoe__free(file->path);
    *file = (struct mapped_file){0};
}

/* ---- Getting the bytes ------------------------------------------------------------------------------------------ */

enum { PIECE_BYTES = 4 << 20 }; /* between two looks at cancel and progress */

/* One pread of up to n bytes at `at`: *got of them, at least one or, interrupted, none. */
static afmoe_status read_some(const struct mapped_file *file, void *out, uint64_t n, uint64_t at, uint64_t *got,
                              afmoe_error *error)
{
    ssize_t read = pread(file->descriptor, out, n < PIECE_BYTES ? (size_t)n : PIECE_BYTES, (off_t)(file->offset + at));
    *got = read > 0 ? (uint64_t)read : 0;
    if (read > 0 || (read < 0 && errno == EINTR)) return AFMOE_OK;
    if (read < 0)
        return afmoe__fail_errno(error, AFMOE_IO, errno, "cannot read \"%s\" at byte %llu", file->path,
                                 (unsigned long long)at);
    return afmoe__fail(error, AFMOE_TRUNCATED, "\"%s\" ends at byte %llu, it had %llu when it was opened", file->path,
                       (unsigned long long)at, (unsigned long long)file->size);
}

static afmoe_status read_up_to(struct mapped_file *file, uint64_t end, afmoe_error *error)
{
    while (file->n_filled < end) {
        uint64_t got;
        afmoe_status status = read_some(file, file->pages + file->n_filled, end - file->n_filled, file->n_filled, &got,
                                        error);
        if (status) return status;
        file->n_filled += got;
    }
    return AFMOE_OK;
}

afmoe_status afmoe__file_copy(const struct mapped_file *file, void *out, uint64_t n, uint64_t offset,
                              afmoe_error *error)
{
    const uint8_t *memory = file->source ? file->source : file->mode == FILE_MAPPED ? file->data : NULL;
    if (memory && n) memcpy(out, memory + offset, (size_t)n);
    for (uint64_t done = 0, got; !memory && done < n; done += got) {
        afmoe_status status = read_some(file, (uint8_t *)out + done, n - done, offset + done, &got, error);
        if (status) return status;
    }
    return AFMOE_OK;
}

afmoe_status afmoe__file_need(struct mapped_file *file, uint64_t n_bytes, afmoe_error *error)
{
    if (n_bytes <= file->n_filled) return AFMOE_OK;
    uint64_t end = n_bytes;
    /* Headers are asked for word by word: read on in larger steps. */
    if (end - file->n_filled < PIECE_BYTES / 4) end = file->n_filled + PIECE_BYTES / 4;
    if (end > file->size) end = file->size;
    if (file->source) {
        memcpy(file->pages + file->n_filled, file->source + file->n_filled, (size_t)(end - file->n_filled));
        file->n_filled = end;
        return AFMOE_OK;
    }
    afmoe_status status = read_up_to(file, end, error);
    if (!status && file->n_filled == file->size) {
        close(file->descriptor);
        file->has_descriptor = false;
    }
    return status;
}

static afmoe_status fail_lock(const struct mapped_file *file, int error_number, afmoe_error *error)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    char allowed[40] = "has no limit";
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur != RLIM_INFINITY) {
        snprintf(allowed, sizeof allowed, "is %llu bytes", (unsigned long long)limit.rlim_cur);
    }
    return afmoe__fail_errno(error, AFMOE_IO, error_number, "cannot lock the %llu bytes of \"%.200s\" in memory, "
                             "RLIMIT_MEMLOCK %s", (unsigned long long)file->size, file->path, allowed);
}

/* The pages under data[begin, end). */
static afmoe_status lock_pages(const struct mapped_file *file, uint64_t begin, uint64_t end, afmoe_error *error)
{
    uint64_t before = (uint64_t)(file->data - file->pages), first = (before + begin) & ~(page_size() - 1);
    if (mlock(file->pages + first, (size_t)(before + end - first)) == 0) return AFMOE_OK;
    return fail_lock(file, errno, error);
}

uint64_t afmoe__file_bytes_to_load(const struct mapped_file *file, bool lock)
{
    return file->pages && (lock || file->mode != FILE_MAPPED) ? file->size : 0;
}

afmoe_status afmoe__file_load(struct mapped_file *file, struct file_loading *loading, afmoe_error *error)
{
    uint64_t n = afmoe__file_bytes_to_load(file, loading->lock);
    for (uint64_t begin = 0; begin < n;) {
        uint64_t end = n - begin < PIECE_BYTES ? n : begin + PIECE_BYTES;
        if (cancel_requested(loading->cancel)) {
            return afmoe__fail(error, AFMOE_CANCELLED, "cancelled after %llu of %llu bytes",
                               (unsigned long long)loading->done, (unsigned long long)loading->total);
        }
        afmoe_status status = afmoe__file_need(file, end, error);
        if (!status && loading->lock) status = lock_pages(file, begin, end, error);
        if (status) return status;
        loading->done += end - begin;
        begin = end;
        if (loading->progress && loading->progress(loading->progress_data, loading->done, loading->total) != 0) {
            return afmoe__fail(error, AFMOE_CANCELLED, "stopped by the progress callback after %llu of %llu bytes",
                               (unsigned long long)loading->done, (unsigned long long)loading->total);
        }
    }
    return AFMOE_OK;
}

/* ---- Names ------------------------------------------------------------------------------------------------------ */

const char *afmoe__file_name(const struct mapped_file *file)
{
    const char *slash = strrchr(file->path, '/');
    return slash ? slash + 1 : file->path;
}

afmoe_status afmoe__path_kind(enum path_kind *out, const char *path, afmoe_error *error)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        if (errno != ENOENT && errno != ENOTDIR) {
            return afmoe__fail_errno(error, AFMOE_IO, errno, "cannot look at \"%s\"", path);
        }
        *out = PATH_MISSING;
    } else {
        *out = S_ISREG(info.st_mode) ? PATH_FILE : S_ISDIR(info.st_mode) ? PATH_FOLDER : PATH_OTHER;
    }
    return AFMOE_OK;
}
