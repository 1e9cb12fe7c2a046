/* Allocation: malloc with checked sizes. NULL means out of memory or a size that does not fit; a size of 0 gives a
 * valid pointer. Everything is freed with afmoe__free. */
#ifndef AFMOE_BASE_MEMORY_H
#define AFMOE_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

enum { CACHE_LINE_BYTES = 64 };

void *afmoe__alloc_array(uint64_t n, uint64_t element_bytes);        /* not zeroed */
void *afmoe__alloc_zeroed(uint64_t n, uint64_t element_bytes);       /* zeroed */
void *afmoe__alloc_aligned(uint64_t n, uint64_t element_bytes);      /* 64-byte aligned, not zeroed */
void *afmoe__realloc_array(void *p, uint64_t n, uint64_t element_bytes);
/* Lay out one block in pieces: the next piece of n elements, on its own cache lines. With `base` NULL only *used, the
 * size so far, is counted; call the same sequence again with the allocated block. The caller knows that sizes fit. */
static inline void *carve(uint8_t *base, uint64_t *used, uint64_t n, uint64_t element_bytes)
{
    void *p = base ? base + *used : NULL;
    *used += (n * element_bytes + CACHE_LINE_BYTES - 1) & ~(uint64_t)(CACHE_LINE_BYTES - 1);
    return p;
}

char *afmoe__strdup(const char *s);
void afmoe__free(void *p);

#endif
