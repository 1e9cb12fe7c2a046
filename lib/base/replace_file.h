/* A file that is replaced as a whole: whoever opens its path, at any moment and also after the process or the machine
 * has died, finds the old file or the new one.
 *
 * The bytes go into a temporary file beside it, which takes the name at the end; where it is to be durable, both the
 * file and the folder are synced. A process that dies on the way leaves the temporary file, ".afmoe-*.tmp", behind. */
#ifndef AFMOE_BASE_REPLACE_FILE_H
#define AFMOE_BASE_REPLACE_FILE_H

#include "afmoe.h"

#include <stdbool.h>

#define REPLACE_FILE_PREFIX ".afmoe-" /* of temporary files */

struct replace_file {
    const char *path; /* borrowed */
    const char *name; /* its part behind the folders */
    int folder, descriptor;
    char temporary[64];
};

/* Only the owner may read the new file. INVALID when `path` is there and not a regular file: a link is not followed.
 * NOT_FOUND: the folder is not there. */
afmoe_status afmoe__replace_file_begin(struct replace_file *out, const char *path, afmoe_error *error);
afmoe_status afmoe__replace_file_write(struct replace_file *file, const void *bytes, uint64_t n, uint64_t offset,
                                       afmoe_error *error);
/* End it well: the new file is there, and with `durable` on the disk: without, the death of the machine may leave any
 * bytes under its name. On failure the old one is still there, but for one case, which the message tells: the new one
 * is in place, and whether it would survive a power cut is not known. */
afmoe_status afmoe__replace_file_commit(struct replace_file *file, bool durable, afmoe_error *error);
/* End it: nothing has happened. */
void afmoe__replace_file_discard(struct replace_file *file);

#endif
