/* Files in memory, read-only: mapped, read, or borrowed from the caller.
 *
 * Mapped is the cheap way: nothing is copied, and the system shares and drops the pages. A file that shrinks while
 * mapped raises SIGBUS on access, which no library can catch without owning the signal. Read is the safe way: the
 * bytes are copied into private memory with pread, so that a failing disk or a file that ends early is a status. */
#ifndef AFMOE_BASE_FILE_H
#define AFMOE_BASE_FILE_H

#include "afmoe.h"

#include <stdbool.h>

enum file_mode {
    FILE_MAPPED, /* memory of the caller's: used where it lies */
    FILE_READ,   /* all of it will be */
    FILE_PEEKED  /* read, where most will never be asked for: memory is not reserved up front */
};

struct mapped_file {
    const uint8_t *data; /* NULL when size is 0; the first n_filled bytes may be looked at */
    uint64_t size;
    char *path; /* for messages */
    enum file_mode mode;
    uint64_t n_filled;     /* mapped: size */
    uint8_t *pages;        /* the mapping or private memory behind `data`; NULL for borrowed memory */
    uint64_t pages_bytes;
    /* Where bytes are read from until all are there. */
    bool has_descriptor;
    int descriptor;
    uint64_t offset;
    const uint8_t *source; /* memory of the caller's, instead of a descriptor */
};

/* A regular file; links in `path` are followed, it is the caller's own. NOT_FOUND, IO (errno), FORMAT (not a regular
 * file). */
afmoe_status afmoe__file_open(struct mapped_file *out, const char *path, enum file_mode mode, afmoe_error *error);

/* The file `name` of `folder`, where the name may come from an untrusted file. FORMAT unless the name is made of
 * A-Z a-z 0-9 . _ - and does not begin with a dot. A symbolic link is followed only where its target lies inside the
 * folder or, for a folder X/snapshots/REVISION, inside X: the hub's cache is built that way (X/blobs). */
afmoe_status afmoe__file_open_in(struct mapped_file *out, const char *folder, const char *name, enum file_mode mode,
                                 afmoe_error *error);

/* Bytes [offset, offset + length) of a regular file, any offset; UINT64_MAX: to its end. The descriptor is duplicated,
 * its position stays. TRUNCATED when the file is shorter. */
afmoe_status afmoe__file_open_range(struct mapped_file *out, int descriptor, uint64_t offset, uint64_t length,
                                    enum file_mode mode, afmoe_error *error);

/* Memory of the caller's, borrowed until closed. */
afmoe_status afmoe__file_open_memory(struct mapped_file *out, const void *data, uint64_t n_bytes, enum file_mode mode,
                                     afmoe_error *error);

/* Safe on a zeroed struct, which it leaves behind. */
void afmoe__file_close(struct mapped_file *file);

/* Have the first n_bytes <= size there. IO (errno), TRUNCATED: the file has become shorter. */
afmoe_status afmoe__file_need(struct mapped_file *file, uint64_t n_bytes, afmoe_error *error);

/* Bytes [offset, offset + n) of a file that is PEEKED at or lies in memory, into the caller's memory: none of the
 * file's own is filled. The range lies within size. IO (errno), TRUNCATED: the file has become shorter. */
afmoe_status afmoe__file_copy(const struct mapped_file *file, void *out, uint64_t n, uint64_t offset,
                              afmoe_error *error);

/* One loading of several files, with what it tells and listens to. */
struct file_loading {
    bool lock; /* keep the bytes in memory with mlock */
    afmoe_progress_fn progress;
    void *progress_data;
    const afmoe_cancel *cancel;
    uint64_t done, total; /* bytes; total is the caller's sum of afmoe__file_bytes_to_load */
};

/* Bytes afmoe__file_load will read or lock: all or none. */
uint64_t afmoe__file_bytes_to_load(const struct mapped_file *file, bool lock);

/* Have all bytes there, and locked where asked for, some MiB at a time. CANCELLED; IO naming RLIMIT_MEMLOCK when
 * locking is not allowed; else as afmoe__file_need. Borrowed memory is never locked: that is its owner's to do. */
afmoe_status afmoe__file_load(struct mapped_file *file, struct file_loading *loading, afmoe_error *error);

/* The path without its folders, for messages. */
const char *afmoe__file_name(const struct mapped_file *file);

enum path_kind { PATH_MISSING, PATH_FILE, PATH_FOLDER, PATH_OTHER };

/* IO when the system cannot tell. */
afmoe_status afmoe__path_kind(enum path_kind *out, const char *path, afmoe_error *error);

#endif
