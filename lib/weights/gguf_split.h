/* A GGUF file split into parts, as gguf-split writes them: NAME-00001-of-0000N.gguf to NAME-0000N-of-0000N.gguf.
 *
 * The first part has all metadata (and perhaps no tensor); each has split.no (from 0), split.count and
 * split.tensors.count, the tensors of all parts together. The first part's path is opened, the others are found
 * beside it. */
#ifndef AFMOE_WEIGHTS_GGUF_SPLIT_H
#define AFMOE_WEIGHTS_GGUF_SPLIT_H

#include "gguf.h"

/* The parts after the first; zeroed when the file is whole. */
struct gguf_parts {
    struct gguf **parts;
    uint64_t n;
};

/* `first` was opened from `path`; NULL (a descriptor or memory) is UNSUPPORTED for a split file. FORMAT naming the part
 * for one that is missing, belongs to another split or does not say where it belongs, and when `path` is not the
 * first. */
afmoe_status afmoe__gguf_open_parts(struct gguf_parts *out, const struct gguf *first, const char *path,
                                    enum file_mode mode, afmoe_error *error);
/* Safe on a zeroed struct. */
void afmoe__gguf_close_parts(struct gguf_parts *parts);

#endif
