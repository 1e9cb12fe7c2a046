/* Files mapped read-only: opened, measured and mapped once, shared by reference count.
 *
 * The mapping is private to reading; a file that shrinks while mapped raises SIGBUS on access, which no library can
 * catch without owning the signal: callers are told not to change files of an open model. */
#ifndef AFMOE_BASE_FILE_H
#define AFMOE_BASE_FILE_H

#include "afmoe.h"

struct mapped_file {
    const uint8_t *data; /* NULL when size is 0 */
    uint64_t size;
    char *path; /* for messages */
};

/* Map a regular file. NOT_FOUND, IO (errno), FORMAT (not a regular file). */
afmoe_status afmoe__file_map(struct mapped_file *out, const char *path, afmoe_error *error);
void afmoe__file_unmap(struct mapped_file *file);

#endif
