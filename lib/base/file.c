/* Read-only mappings of whole files, see file.h. */
#define _XOPEN_SOURCE 700 /* realpath */

#include "file.h"

#include "error.h"
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static afmoe_status fail_open(afmoe_error *error, int error_number, const char *path)
{
    bool missing = error_number == ENOENT || error_number == ENOTDIR;
    return afmoe__fail_errno(error, missing ? AFMOE_NOT_FOUND : AFMOE_IO, error_number, "cannot open \"%s\"", path);
}

/* Takes `descriptor` over: a mapping outlives it. */
static afmoe_status map_descriptor(struct mapped_file *out, int descriptor, const char *path, afmoe_error *error)
{
    struct stat info;
    afmoe_status status = AFMOE_OK;
    void *data = NULL;
    char *path_copy = NULL;
    if (fstat(descriptor, &info) != 0) {
        status = afmoe__fail_errno(error, AFMOE_IO, errno, "cannot measure \"%s\"", path);
    } else if (!S_ISREG(info.st_mode)) {
        status = afmoe__fail(error, AFMOE_FORMAT, "\"%s\" is not a regular file", path);
    } else if ((uint64_t)info.st_size > SIZE_MAX) {
        status = afmoe__fail(error, AFMOE_LIMIT, "\"%s\": %llu bytes do not fit the address space", path,
                             (unsigned long long)info.st_size);
    } else if (!(path_copy = afmoe__strdup(path))) {
        status = afmoe__fail_memory(error, strlen(path) + 1, "a path");
    } else if (info.st_size > 0) {
        data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (data == MAP_FAILED) {
            status = afmoe__fail_errno(error, errno == ENOMEM ? AFMOE_NO_MEMORY : AFMOE_IO, errno,
                                       "cannot map \"%s\" (%llu bytes)", path, (unsigned long long)info.st_size);
        }
    }
    close(descriptor);
    if (status) {
        afmoe__free(path_copy);
        return status;
    }
    *out = (struct mapped_file){.data = data, .size = (uint64_t)info.st_size, .path = path_copy};
    return AFMOE_OK;
}

afmoe_status afmoe__file_map(struct mapped_file *out, const char *path, afmoe_error *error)
{
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return fail_open(error, errno, path);
    return map_descriptor(out, descriptor, path, error);
}

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

static afmoe_status open_link(struct mapped_file *out, const char *folder, const char *path, afmoe_error *error)
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
    status = descriptor < 0 ? fail_open(error, errno, path) : map_descriptor(out, descriptor, path, error);
end:
    free(target);
    free(root);
    return status;
}

afmoe_status afmoe__file_map_in(struct mapped_file *out, const char *folder, const char *name, afmoe_error *error)
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
        status = map_descriptor(out, descriptor, path, error);
    } else if (errno == ELOOP) {
        status = open_link(out, folder, path, error);
    } else {
        status = fail_open(error, errno, path);
    }
    afmoe__free(path);
    return status;
}

void afmoe__file_unmap(struct mapped_file *file)
{
    if (file->data) munmap((void *)file->data, (size_t)file->size);
    afmoe__free(file->path);
    *file = (struct mapped_file){0};
}

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
