/* The store of key/value pages, see pages.h. In memory a page is one cache line of header and the page's bytes; the
 * pointer handed out is to the bytes. */
#include "pages.h"

#include "error.h"
#include "memory.h"

#include <assert.h>
#include <pthread.h>
#include <unistd.h>

struct page_header {
    uint64_t n_references;
    uint64_t n_prefixes; /* of them, those of prefixes */
    struct page_header *next; /* in the free list */
};

struct page_store {
    pthread_mutex_t lock;
    pid_t owner;
    uint64_t page_bytes, max_pages;
    uint64_t n_held, n_free, n_promised, n_kept;
    struct page_header *free;
};

_Static_assert(sizeof(struct page_header) <= CACHE_LINE_BYTES, "the header fits in front of the aligned bytes");

/* False in a child of fork where a thread that is not there held the lock: nobody can know what state the store is in,
 * so all of it is left as it is. */
static bool lock(struct page_store *store)
{
    return (getpid() == store->owner ? pthread_mutex_lock(&store->lock) : pthread_mutex_trylock(&store->lock)) == 0;
}

static void unlock(struct page_store *store)
{
    pthread_mutex_unlock(&store->lock);
}

static struct page_header *header_of(uint8_t *page)
{
    return (struct page_header *)(page - CACHE_LINE_BYTES);
}

afmoe_status afmoe__pages_create(struct page_store **out, uint64_t page_bytes, uint64_t max_bytes, afmoe_error *error)
{
    *out = NULL;
    struct page_store *store = afmoe__alloc_zeroed(1, sizeof *store);
    if (!store) return afmoe__fail_memory(error, sizeof *store, "the page store");
    if (pthread_mutex_init(&store->lock, NULL) != 0) {
        afmoe__free(store);
        return afmoe__fail_memory(error, sizeof store->lock, "a mutex");
    }
    store->owner = getpid();
    store->page_bytes = page_bytes;
    store->max_pages = max_bytes / page_bytes;
    *out = store;
    return AFMOE_OK;
}

static void drop_free_list(struct page_store *store)
{
    while (store->free) {
        struct page_header *page = store->free;
        store->free = page->next;
        afmoe__free(page);
    }
    store->n_free = 0;
}

void afmoe__pages_free(struct page_store *store)
{
    if (!store) return;
    if (lock(store)) {
        drop_free_list(store);
        unlock(store);
        pthread_mutex_destroy(&store->lock);
    }
    afmoe__free(store);
}

uint64_t afmoe__pages_page_bytes(const struct page_store *store)
{
    return store->page_bytes;
}

uint64_t afmoe__pages_bytes(struct page_store *store)
{
    if (!lock(store)) return 0;
    uint64_t n = store->n_held + store->n_free;
    unlock(store);
    return n * store->page_bytes;
}

uint64_t afmoe__pages_block_bytes(uint64_t page_bytes)
{
    return CACHE_LINE_BYTES + page_bytes;
}

uint64_t afmoe__pages_memory(struct page_store *store, uint64_t *out_prefixes)
{
    *out_prefixes = 0;
    if (!lock(store)) return 0;
    uint64_t n_kept = store->n_kept, n = store->n_held + store->n_free - n_kept;
    unlock(store);
    *out_prefixes = n_kept * afmoe__pages_block_bytes(store->page_bytes);
    return n * afmoe__pages_block_bytes(store->page_bytes);
}

void afmoe__pages_trim(struct page_store *store)
{
    if (!lock(store)) return;
    drop_free_list(store);
    unlock(store);
}

afmoe_status afmoe__pages_promise(struct page_store *store, uint64_t *promised, uint64_t n, afmoe_error *error)
{
    if (!lock(store)) return AFMOE_OK;
    uint64_t used = store->n_held + store->n_promised - *promised; /* never exceeds max_pages */
    bool fits = n <= *promised || n <= store->max_pages - used;
    if (fits) {
        store->n_promised += n - *promised;
        *promised = n;
    }
    unlock(store);
    if (fits) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_CONTEXT_FULL,
                       "key/value memory is full: %llu more pages of %llu bytes needed, in use %llu of at most %llu",
                       (unsigned long long)n, (unsigned long long)store->page_bytes, (unsigned long long)used,
                       (unsigned long long)store->max_pages);
}

uint8_t *afmoe__pages_take(struct page_store *store, uint64_t *promised)
{
    if (!lock(store)) return NULL;
    assert(*promised > 0 && *promised <= store->n_promised);
    struct page_header *page = store->free;
    if (page) {
        store->free = page->next;
        store->n_free--;
    } else {
        page = afmoe__alloc_aligned(1, afmoe__pages_block_bytes(store->page_bytes));
    }
    if (page) {
        page->n_references = 1;
        page->n_prefixes = 0;
        page->next = NULL;
        store->n_held++;
        store->n_promised--;
        --*promised;
    }
    unlock(store);
    return page ? (uint8_t *)page + CACHE_LINE_BYTES : NULL;
}

static void release_one(struct page_store *store, struct page_header *page, uint64_t *promised)
{
    if (--page->n_references > 0) return;
    page->next = store->free;
    store->free = page;
    store->n_held--;
    store->n_free++;
    store->n_promised++;
    ++*promised;
}

void afmoe__pages_release(struct page_store *store, uint8_t **pages, uint64_t n, uint64_t *promised)
{
    if (n == 0 || !lock(store)) return;
    for (uint64_t i = 0; i < n; i++) {
        if (pages[i]) release_one(store, header_of(pages[i]), promised);
        pages[i] = NULL;
    }
    if (store->n_held == 0) drop_free_list(store);
    unlock(store);
}

void afmoe__pages_retain(struct page_store *store, uint8_t *const *pages, uint64_t n)
{
    if (n == 0 || !lock(store)) return;
    for (uint64_t i = 0; i < n; i++)
        if (pages[i]) header_of(pages[i])->n_references++;
    unlock(store);
}

void afmoe__pages_keep(struct page_store *store, uint8_t *const *pages, uint64_t n, bool keep)
{
    if (n == 0 || !lock(store)) return;
    for (uint64_t i = 0; i < n; i++) {
        if (!pages[i]) continue;
        struct page_header *page = header_of(pages[i]);
        if (keep) store->n_kept += page->n_prefixes++ == 0;
        else store->n_kept -= --page->n_prefixes == 0;
    }
    unlock(store);
}

uint64_t afmoe__pages_n_kept(struct page_store *store)
{
    if (!lock(store)) return 0;
    uint64_t n = store->n_kept;
    unlock(store);
    return n;
}

uint64_t afmoe__pages_n_shared(struct page_store *store, uint8_t *const *pages, uint64_t n)
{
    uint64_t n_shared = 0;
    if (!lock(store)) return 0;
    for (uint64_t i = 0; i < n; i++) n_shared += pages[i] && header_of(pages[i])->n_references > 1;
    unlock(store);
    return n_shared;
}
