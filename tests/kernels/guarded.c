/* Guarded and poisoned memory, see guarded.h. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "guarded.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void guarded_create(struct guarded *g, size_t capacity)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    g->usable_bytes = (capacity + page - 1) / page * page;
    g->map_bytes = g->usable_bytes + page;
    g->map = mmap(NULL, g->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g->map == MAP_FAILED || mprotect(g->map + g->usable_bytes, page, PROT_NONE) != 0) abort();
}

void guarded_free(struct guarded *g)
{
    munmap(g->map, g->map_bytes);
}

void *guarded_place(struct guarded *g, size_t bytes)
{
    if (bytes > g->usable_bytes) abort();
    return g->map + g->usable_bytes - bytes;
}

void *poisoned_place(struct guarded *g, size_t bytes)
{
    if (bytes + 2 * POISON_BYTES > g->usable_bytes) abort();
    memset(g->map, POISON, bytes + 2 * POISON_BYTES);
    return g->map + POISON_BYTES;
}

bool poison_whole(const struct guarded *g, size_t bytes)
{
    for (size_t i = 0; i < POISON_BYTES; i++)
        if (g->map[i] != POISON || g->map[POISON_BYTES + bytes + i] != POISON) return false;
    return true;
}
