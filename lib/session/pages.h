/* The store of key/value pages of a context: reference counted, recycled, capped.
 *
 * A page is `page_bytes` bytes, 64-byte aligned (core/cells.h says what lies in them). The cap works by promises: a
 * session has the store promise as many pages as it will hold at most before it begins, so that it meets CONTEXT_FULL
 * before anything has changed, never half-way. Free pages are kept for the next taker until nobody holds any. Thread
 * safe; in a child of fork nothing waits, and what another thread was changing at the fork stays allocated. */
#ifndef AFMOE_SESSION_PAGES_H
#define AFMOE_SESSION_PAGES_H

#include "afmoe.h"

struct page_store;

afmoe_status afmoe__pages_create(struct page_store **out, uint64_t page_bytes, uint64_t max_bytes, afmoe_error *error);
/* All pages must have been released. */
void afmoe__pages_free(struct page_store *store);
uint64_t afmoe__pages_page_bytes(const struct page_store *store);
uint64_t afmoe__pages_bytes(struct page_store *store); /* held by sessions and by the free list */
/* The same with what each page takes besides its bytes. */
uint64_t afmoe__pages_memory(struct page_store *store);
/* Memory of one page of so many bytes. */
uint64_t afmoe__pages_block_bytes(uint64_t page_bytes);

/* Change a promise from *promised to n pages. Raising it above the cap: CONTEXT_FULL with the numbers, *promised stays.
 * Lowering never fails. */
afmoe_status afmoe__pages_promise(struct page_store *store, uint64_t *promised, uint64_t n, afmoe_error *error);

/* Take a page within one's promise, with one reference. NULL: out of memory. */
uint8_t *afmoe__pages_take(struct page_store *store);
void afmoe__pages_retain(struct page_store *store, uint8_t *page);
/* Drop a reference; NULL is fine. */
void afmoe__pages_release(struct page_store *store, uint8_t *page);

#endif
