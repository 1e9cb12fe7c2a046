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
char *afmoe__strdup(const char *s);
void afmoe__free(void *p);

#endif
