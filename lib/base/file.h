/* Files mapped read-only: opened, measured and mapped once, shared by reference count.
 *
 * The mapping is private to reading; a file that shrinks while mapped raises SIGBUS on access, which no library can
 * catch without owning the signal: callers are told not to change files of an open model. */
#ifndef AFMOE_BASE_FILE_H
#define AFMOE_BASE_FILE_H

#include "afmoe.h"

#include <stdbool.h>

struct mapped_file {
    const uint8_t *data; /* NULL when size is 0 */
    uint64_t size;
    char *path; /* for messages */
};

/* Map a regular file; links in `path` are followed, it is the caller's own. NOT_FOUND, IO (errno), FORMAT (not a
 * regular file). */
afmoe_status afmoe__file_map(struct mapped_file *out, const char *path, afmoe_error *error);

/* Map the file `name` of `folder`, where the name may come from an untrusted file. FORMAT unless the name is made of
 * A-Z a-z 0-9 . _ - and does not begin with a dot. A symbolic link is followed only where its target lies inside the
 * folder or, for a folder X/snapshots/REVISION, inside X: the hub's cache is built that way (X/blobs). */
afmoe_status afmoe__file_map_in(struct mapped_file *out, const char *folder, const char *name, afmoe_error *error);

/* Safe on a zeroed struct, which it leaves behind. */
void afmoe__file_unmap(struct mapped_file *file);

enum path_kind { PATH_MISSING, PATH_FILE, PATH_FOLDER, PATH_OTHER };

/* IO when the system cannot tell. */
afmoe_status afmoe__path_kind(enum path_kind *out, const char *path, afmoe_error *error);

#endif
