/* The cancel flag: one atomic int, so that it may be set from a signal handler, and a reference count.
 *
 * Where several callers are served together, the library makes a flag of its own with a link to each of theirs: it is
 * set when one of them is, and the link remembers that it was seen, also when the flag is taken down again. */
#ifndef AFMOE_BASE_CANCEL_H
#define AFMOE_BASE_CANCEL_H

#include "afmoe.h"

#include <stdatomic.h>

struct cancel_link {
    const afmoe_cancel *cancel;
    struct cancel_link *next;
    atomic_int seen;
};

struct afmoe_cancel {
    atomic_int set; /* lock-free on every platform built for, hence usable in signal handlers */
    atomic_int n_references;
    struct cancel_link *links; /* written while nobody looks */
};

/* NULL is never set. */
static inline int cancel_requested(const afmoe_cancel *cancel)
{
    return cancel && afmoe_cancel_is_set(cancel);
}

#endif
