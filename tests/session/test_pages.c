/* The page store: promises under a cap, reference counts, recycling. */
#include "pages.h"

#include "error.h"
#include "memory.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PAGE_BYTES = 192 };

static struct page_store *store_of(uint64_t max_bytes)
{
    struct page_store *store;
    assert_int_equal(afmoe__pages_create(&store, PAGE_BYTES, max_bytes, NULL), AFMOE_OK);
    return store;
}

static uint8_t *take(struct page_store *store)
{
    uint64_t promised = 0;
    assert_int_equal(afmoe__pages_promise(store, &promised, 1, NULL), AFMOE_OK);
    uint8_t *page = afmoe__pages_take(store, &promised);
    assert_non_null(page);
    assert_int_equal(promised, 0);
    return page;
}

static void release(struct page_store *store, uint8_t *page)
{
    uint64_t promised = 0;
    afmoe__pages_release(store, &page, 1, &promised);
    assert_null(page);
    assert_int_equal(afmoe__pages_promise(store, &promised, 0, NULL), AFMOE_OK);
}

static void promises_share_the_cap(void **state)
{
    struct page_store *store = store_of(10 * PAGE_BYTES + PAGE_BYTES - 1); /* room for ten */
    uint64_t a = 0, b = 0;
    afmoe_error error;
    (void)state;
    afmoe_error_init(&error, sizeof error);
    assert_int_equal(afmoe__pages_promise(store, &a, 11, &error), AFMOE_CONTEXT_FULL);
    assert_int_equal(a, 0);
    assert_int_equal(afmoe__pages_promise(store, &a, 6, &error), AFMOE_OK);
    assert_int_equal(afmoe__pages_promise(store, &b, 5, &error), AFMOE_CONTEXT_FULL);
    assert_non_null(strstr(error.message, "5 more pages of 192 bytes"));
    assert_non_null(strstr(error.message, "6 of at most 10"));
    assert_int_equal(b, 0);
    assert_int_equal(afmoe__pages_promise(store, &b, 4, &error), AFMOE_OK);
    assert_int_equal(afmoe__pages_promise(store, &a, 7, &error), AFMOE_CONTEXT_FULL);
    assert_int_equal(a, 6);
    assert_int_equal(afmoe__pages_promise(store, &a, 6, &error), AFMOE_OK);
    assert_int_equal(afmoe__pages_promise(store, &a, 2, NULL), AFMOE_OK);
    assert_int_equal(afmoe__pages_promise(store, &b, 9, NULL), AFMOE_CONTEXT_FULL);
    assert_int_equal(afmoe__pages_promise(store, &b, 8, NULL), AFMOE_OK);
    assert_int_equal(afmoe__pages_promise(store, &b, UINT64_MAX, NULL), AFMOE_CONTEXT_FULL);
    afmoe__pages_free(store);
}

static void caps_at_both_ends(void **state)
{
    static const uint64_t nothing[] = {0, 1, PAGE_BYTES - 1};
    uint64_t promised = 0;
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct page_store *store = store_of(nothing[i]);
        assert_int_equal(afmoe__pages_promise(store, &promised, 0, NULL), AFMOE_OK);
        assert_int_equal(afmoe__pages_promise(store, &promised, 1, NULL), AFMOE_CONTEXT_FULL);
        afmoe__pages_free(store);
    }
    struct page_store *store = store_of(UINT64_MAX);
    assert_int_equal(afmoe__pages_promise(store, &promised, UINT64_MAX / PAGE_BYTES, NULL), AFMOE_OK);
    assert_int_equal(afmoe__pages_promise(store, &promised, UINT64_MAX, NULL), AFMOE_CONTEXT_FULL);
    assert_int_equal(promised, UINT64_MAX / PAGE_BYTES);
    afmoe__pages_free(store);
}

/* What is held and what is promised never exceed the cap together; a page freed goes back to the promise. */
static void pages_held_count(void **state)
{
    struct page_store *store = store_of(4 * PAGE_BYTES);
    uint64_t a = 0, b = 0;
    uint8_t *pages[3];
    afmoe_error error;
    (void)state;
    afmoe_error_init(&error, sizeof error);
    assert_int_equal(afmoe__pages_promise(store, &a, 3, NULL), AFMOE_OK);
    for (int i = 0; i < 3; i++) pages[i] = afmoe__pages_take(store, &a);
    assert_int_equal(a, 0);
    assert_int_equal(afmoe__pages_promise(store, &b, 2, &error), AFMOE_CONTEXT_FULL);
    assert_non_null(strstr(error.message, "3 of at most 4"));
    afmoe__pages_release(store, pages, 1, &a);
    assert_int_equal(a, 1);
    assert_int_equal(afmoe__pages_promise(store, &b, 2, NULL), AFMOE_CONTEXT_FULL); /* a may still take it */
    assert_int_equal(afmoe__pages_promise(store, &a, 0, NULL), AFMOE_OK);
    assert_int_equal(afmoe__pages_promise(store, &b, 2, NULL), AFMOE_OK);
    assert_int_equal(afmoe__pages_promise(store, &b, 0, NULL), AFMOE_OK);
    afmoe__pages_release(store, pages, 3, &a); /* the first one is NULL by now */
    assert_int_equal(a, 2);
    assert_int_equal(afmoe__pages_promise(store, &a, 0, NULL), AFMOE_OK);
    afmoe__pages_free(store);
}

static void pages_are_aligned_and_recycled(void **state)
{
    struct page_store *store = store_of(UINT64_MAX);
    uint8_t *a = take(store), *b = take(store);
    (void)state;
    assert_int_equal(afmoe__pages_page_bytes(store), PAGE_BYTES);
    assert_true(a != b && (uintptr_t)a % CACHE_LINE_BYTES == 0 && (uintptr_t)b % CACHE_LINE_BYTES == 0);
    memset(a, 1, PAGE_BYTES); /* under ASan: all of it is ours */
    memset(b, 2, PAGE_BYTES);
    assert_int_equal(afmoe__pages_bytes(store), 2 * PAGE_BYTES);
    release(store, a);
    assert_int_equal(afmoe__pages_bytes(store), 2 * PAGE_BYTES); /* kept for the next taker */
    assert_ptr_equal(take(store), a);
    assert_int_equal(afmoe__pages_bytes(store), 2 * PAGE_BYTES);
    release(store, a);
    release(store, b);
    assert_int_equal(afmoe__pages_bytes(store), 0); /* nobody holds any */
    release(store, NULL);
    afmoe__pages_free(store);
}

static void references_keep_a_page(void **state)
{
    struct page_store *store = store_of(2 * PAGE_BYTES);
    uint8_t *page = take(store), *const list[3] = {page, NULL, page};
    uint64_t promised = 0;
    (void)state;
    page[0] = 77;
    assert_int_equal(afmoe__pages_n_shared(store, list, 2), 0);
    afmoe__pages_retain(store, list, 2);
    assert_int_equal(afmoe__pages_n_shared(store, list, 3), 2);
    uint8_t *first = page;
    afmoe__pages_release(store, &first, 1, &promised);
    assert_int_equal(promised, 0); /* it was not freed */
    assert_int_equal(afmoe__pages_n_shared(store, list, 3), 0);
    assert_int_equal(afmoe__pages_bytes(store), PAGE_BYTES);
    uint8_t *other = take(store); /* a page counts once, however many hold it */
    assert_ptr_not_equal(other, page);
    assert_int_equal(page[0], 77);
    release(store, page);
    release(store, other);
    assert_int_equal(afmoe__pages_bytes(store), 0);
    afmoe__pages_free(store);
}

static void *take_and_release(void *user)
{
    struct page_store *store = user;
    uint64_t promised = 0;
    for (int round = 0; round < 500; round++) {
        uint8_t *pages[4];
        if (afmoe__pages_promise(store, &promised, 4, NULL) != AFMOE_OK) continue;
        for (int i = 0; i < 4; i++) {
            pages[i] = afmoe__pages_take(store, &promised);
            memset(pages[i], i, PAGE_BYTES);
        }
        afmoe__pages_release(store, pages, 4, &promised);
        afmoe__pages_promise(store, &promised, 0, NULL);
    }
    return NULL;
}

static void threads_share_a_store(void **state)
{
    enum { N_THREADS = 4 };
    struct page_store *store = store_of(10 * PAGE_BYTES);
    pthread_t threads[N_THREADS];
    uint64_t promised = 0;
    (void)state;
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_release, store), 0);
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(afmoe__pages_bytes(store), 0);
    assert_int_equal(afmoe__pages_promise(store, &promised, 10, NULL), AFMOE_OK); /* all promises were given back */
    afmoe__pages_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(promises_share_the_cap), cmocka_unit_test(caps_at_both_ends),
        cmocka_unit_test(pages_held_count),
        cmocka_unit_test(pages_are_aligned_and_recycled), cmocka_unit_test(references_keep_a_page),
        cmocka_unit_test(threads_share_a_store)};
    return cmocka_run_group_tests_name("pages", tests, NULL, NULL);
}
