/* The cancel flag: one atomic int, so that it may be set from a signal handler, and a reference count. */
#ifndef AFMOE_BASE_CANCEL_H
#define AFMOE_BASE_CANCEL_H

#include "afmoe.h"

/* NULL is never set. */
static inline int cancel_requested(const afmoe_cancel *cancel)
{
    return cancel && afmoe_cancel_is_set(cancel);
}

#endif
