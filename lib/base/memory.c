/* Allocation with checked sizes, see memory.h. */
#include "memory.h"

#include "checked.h"

#include <stdlib.h>
#include <string.h>

static int total_bytes(uint64_t n, uint64_t element_bytes, size_t *out)
{
    uint64_t total;
    if (!checked_mul(n, element_bytes, &total) || total > PTRDIFF_MAX - CACHE_LINE_BYTES) return 0;
    *out = total ? (size_t)total : 1;
    return 1;
}

void *afmoe__alloc_array(uint64_t n, uint64_t element_bytes)
{
    size_t total;
    return total_bytes(n, element_bytes, &total) ? malloc(total) : NULL;
}

void *afmoe__alloc_zeroed(uint64_t n, uint64_t element_bytes)
{
    size_t total;
    return total_bytes(n, element_bytes, &total) ? calloc(total, 1) : NULL;
}

void *afmoe__alloc_aligned(uint64_t n, uint64_t element_bytes)
{
    size_t total;
    void *p;
    if (!total_bytes(n, element_bytes, &total)) return NULL;
    return posix_memalign(&p, CACHE_LINE_BYTES, total) == 0 ? p : NULL;
}

void *afmoe__realloc_array(void *p, uint64_t n, uint64_t element_bytes)
{
    size_t total;
    return total_bytes(n, element_bytes, &total) ? realloc(p, total) : NULL;
}

char *afmoe__strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = afmoe__alloc_array(n, 1);
    if (copy) memcpy(copy, s, n);
    return copy;
}

void afmoe__free(void *p)
{
    free(p);
}
