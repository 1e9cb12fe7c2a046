/* The store of key/value pages of a context: reference counted, recycled, capped.
 *
 * A page is `page_bytes` bytes, 64-byte aligned (core/cells.h says what lies in them). Timelines share pages by
 * reference; a page counts once, however many hold it, and whoever wants to write into one that is shared takes a copy.
 * The cap works by promises: before a change begins, the store promises as many pages as it will take at most on top of
 * those there, so that CONTEXT_FULL comes before anything has changed, never half-way. A page taken leaves the promise,
 * a page that is freed meanwhile goes back to it. Free pages are kept for the next taker until nobody holds any. Thread
 * safe; in a child of fork nothing waits, and what another thread was changing at the fork stays allocated. */
#ifndef AFMOE_SESSION_PAGES_H
#define AFMOE_SESSION_PAGES_H

#include "afmoe.h"

#include <stdbool.h>

struct page_store;

afmoe_status afmoe__pages_create(struct page_store **out, uint64_t page_bytes, uint64_t max_bytes, afmoe_error *error);
/* All pages must have been released. */
void afmoe__pages_free(struct page_store *store);
uint64_t afmoe__pages_page_bytes(const struct page_store *store);
uint64_t afmoe__pages_bytes(struct page_store *store); /* held by anyone and by the free list */
/* The same with what each page takes besides its bytes; those of prefixes apart. */
uint64_t afmoe__pages_memory(struct page_store *store, uint64_t *out_prefixes);
/* Give the free pages back to the system. */
void afmoe__pages_trim(struct page_store *store);
/* Memory of one page of so many bytes. */
uint64_t afmoe__pages_block_bytes(uint64_t page_bytes);

/* Change a promise from *promised to n pages. Raising it above the cap: CONTEXT_FULL with the numbers, *promised stays.
 * Lowering never fails. */
afmoe_status afmoe__pages_promise(struct page_store *store, uint64_t *promised, uint64_t n, afmoe_error *error);

/* Take a page out of one's promise, with one reference. NULL: out of memory. */
uint8_t *afmoe__pages_take(struct page_store *store, uint64_t *promised);
/* Drop a reference to each of n pages, and set the pointers to NULL; those that are NULL are skipped. Pages that nobody
 * holds any more go back to the promise. */
void afmoe__pages_release(struct page_store *store, uint8_t **pages, uint64_t n, uint64_t *promised);
/* Add a reference to each of n pages, but those that are NULL. */
void afmoe__pages_retain(struct page_store *store, uint8_t *const *pages, uint64_t n);
/* Say of n pages, but those that are NULL, that one more (`keep` false: one less) of their references is that of a
 * prefix; how many pages have one. */
void afmoe__pages_keep(struct page_store *store, uint8_t *const *pages, uint64_t n, bool keep);
uint64_t afmoe__pages_n_kept(struct page_store *store);
/* How many of n pages have another reference besides this one. */
uint64_t afmoe__pages_n_shared(struct page_store *store, uint8_t *const *pages, uint64_t n);

#endif
