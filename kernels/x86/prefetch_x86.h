/* Prefetch hints: memory that will be read is asked for before it is, one hint a cache line. Hints change no result and
 * may be for any address. Static only: it is compiled with the flags of its level. */
#ifndef AFMOE_KERNELS_PREFETCH_X86_H
#define AFMOE_KERNELS_PREFETCH_X86_H

#include "vector_avx2.h"

/* One hint a cache line of the n_bytes from p + offset on; they may lie past the end of the memory. */
FORCE_INLINE void prefetch_bytes(const void *p, uint64_t offset, uint64_t n_bytes)
{
    for (uint64_t i = 0; i < n_bytes; i += 64) _mm_prefetch((const char *)((uintptr_t)p + offset + i), _MM_HINT_T0);
}

/* While rows are read in the order of the memory, what lies so many bytes further on is asked for, and where they end,
 * what is read after them. */
struct hints {
    uintptr_t end; /* of the rows */
    uint64_t ahead;
    uint64_t jump; /* from `end` to what is read next, modulo 2^64 */
};

FORCE_INLINE struct hints hints_of(const uint8_t *rows, uint64_t n_bytes, const void *next, uint64_t ahead)
{
    uintptr_t end = (uintptr_t)rows + n_bytes;
    return (struct hints){end, ahead, (uintptr_t)next - end};
}

/* What to ask for when the rows are read at `at`. Both are numbers: no pointer may be so far from what it came from,
 * and the steps of fewer rows than go together end behind them. */
FORCE_INLINE uintptr_t hinted(struct hints hints, uintptr_t at)
{
    uintptr_t p = at + hints.ahead;
    return p < hints.end ? p : p + hints.jump;
}

FORCE_INLINE void prefetch_hinted(struct hints hints, uintptr_t at, uint64_t n_bytes)
{
    prefetch_bytes((const void *)hinted(hints, at), 0, n_bytes);
}

#endif
