/* Prefix store, see prefixes.h: a list in order of use, looked through from end to end. Prefixes are few: each holds a
 * page of every layer at least. */
#include "prefixes.h"

#include "context_private.h"
#include "error.h"
#include "memory.h"

#include <pthread.h>
#include <unistd.h>

struct prefix {
    struct prefix *older;
    struct timeline timeline; /* as long as its tokens */
    uint64_t n_bytes;         /* of this block, in which the timeline lies */
};

struct prefixes {
    pthread_mutex_t lock;
    struct context *context;
    uint64_t max_pages;
    struct prefix *newest;
    uint64_t n_block_bytes; /* of all */
};

/* False in a child of fork where a thread that is not there held the lock: all is left as it is, see pages.c. */
static bool lock(struct prefixes *prefixes)
{
    bool here = getpid() == prefixes->context->owner;
    return (here ? pthread_mutex_lock(&prefixes->lock) : pthread_mutex_trylock(&prefixes->lock)) == 0;
}

static void unlock(struct prefixes *prefixes)
{
    pthread_mutex_unlock(&prefixes->lock);
}

afmoe_status afmoe__prefixes_create(struct prefixes **out, struct context *context, uint64_t budget_bytes,
                                    afmoe_error *error)
{
    struct prefixes *prefixes = afmoe__alloc_zeroed(1, sizeof *prefixes);
    *out = NULL;
    if (!prefixes) return afmoe__fail_memory(error, sizeof *prefixes, "the prefix store");
    if (pthread_mutex_init(&prefixes->lock, NULL) != 0) {
        afmoe__free(prefixes);
        return afmoe__fail_memory(error, sizeof prefixes->lock, "a mutex");
    }
    prefixes->context = context;
    prefixes->max_pages = budget_bytes / afmoe__pages_page_bytes(context->pages);
    *out = prefixes;
    return AFMOE_OK;
}

/* ---- The list; under the lock ---- */

/* Take it out of the list. */
static void unlink_prefix(struct prefixes *prefixes, struct prefix *prefix)
{
    struct prefix **link = &prefixes->newest;
    while (*link != prefix) link = &(*link)->older;
    *link = prefix->older;
}

static void put_first(struct prefixes *prefixes, struct prefix *prefix)
{
    prefix->older = prefixes->newest;
    prefixes->newest = prefix;
}

static void destroy(struct prefixes *prefixes, struct prefix *prefix)
{
    afmoe__timeline_keep(&prefix->timeline, false);
    afmoe__timeline_truncate(&prefix->timeline, 0);
    afmoe__timeline_settle(&prefix->timeline);
    prefixes->n_block_bytes -= prefix->n_bytes;
    afmoe__free(prefix);
}

static bool drop_oldest(struct prefixes *prefixes)
{
    struct prefix *oldest = prefixes->newest;
    while (oldest && oldest->older) oldest = oldest->older;
    if (!oldest) return false;
    unlink_prefix(prefixes, oldest);
    destroy(prefixes, oldest);
    return true;
}

/* Can all that `a` is good for be had from `b`? */
static bool is_covered(const struct prefix *a, const struct prefix *b)
{
    uint64_t n = a->timeline.n_tokens;
    return afmoe__timeline_common_prefix(&b->timeline, a->timeline.tokens, n) == n &&
           afmoe__timeline_restart(&b->timeline, n) == n;
}

/* ---- The calls ---- */

void afmoe__prefixes_free(struct prefixes *prefixes)
{
    if (!prefixes) return;
    if (lock(prefixes)) {
        while (drop_oldest(prefixes)) {}
        unlock(prefixes);
        pthread_mutex_destroy(&prefixes->lock);
    }
    afmoe__free(prefixes);
}

/* Of n_tokens, with its arrays behind it; NULL: out of memory. */
static struct prefix *make_prefix(struct context *context, uint64_t n_tokens)
{
    struct timeline timeline;
    uint64_t used = 0;
    carve(NULL, &used, 1, sizeof(struct prefix));
    uint64_t n_bytes = used + afmoe__timeline_layout(&timeline, context, n_tokens, NULL);
    struct prefix *prefix = afmoe__alloc_aligned(n_bytes, 1);
    if (!prefix) return NULL;
    *prefix = (struct prefix){.n_bytes = n_bytes, .timeline.context = context};
    afmoe__timeline_layout(&prefix->timeline, context, n_tokens, (uint8_t *)prefix + used);
    afmoe__timeline_clear(&prefix->timeline);
    return prefix;
}

void afmoe__prefixes_leave(struct prefixes *prefixes, struct timeline *timeline)
{
    if (prefixes->max_pages == 0 || timeline->n_tokens < PAGE_POSITIONS) return;
    struct prefix *prefix = make_prefix(prefixes->context, timeline->n_tokens);
    if (!prefix) return;
    afmoe__timeline_move(&prefix->timeline, timeline);
    afmoe__timeline_keep(&prefix->timeline, true);
    if (!lock(prefixes)) return;
    prefixes->n_block_bytes += prefix->n_bytes;
    bool is_known = false;
    for (struct prefix *other = prefixes->newest, *older; other && !is_known; other = older) {
        older = other->older;
        is_known = is_covered(prefix, other);
        if (is_known) {
            unlink_prefix(prefixes, other);
            put_first(prefixes, other);
        } else if (is_covered(other, prefix)) {
            unlink_prefix(prefixes, other);
            destroy(prefixes, other);
        }
    }
    if (is_known) destroy(prefixes, prefix);
    else put_first(prefixes, prefix);
    while (afmoe__pages_n_kept(prefixes->context->pages) > prefixes->max_pages && drop_oldest(prefixes)) {}
    unlock(prefixes);
}

uint64_t afmoe__prefixes_take(struct prefixes *prefixes, struct timeline *timeline, const afmoe_token *tokens,
                              uint64_t n_tokens)
{
    struct prefix *best = NULL;
    uint64_t n_best = 0;
    if (prefixes->max_pages == 0 || !lock(prefixes)) return 0;
    for (struct prefix *prefix = prefixes->newest; prefix; prefix = prefix->older) {
        uint64_t n = afmoe__timeline_common_prefix(&prefix->timeline, tokens, n_tokens);
        if (n > n_best) n = afmoe__timeline_restart(&prefix->timeline, n);
        if (n <= n_best) continue;
        n_best = n;
        best = prefix;
    }
    if (best) {
        afmoe__timeline_share(timeline, &best->timeline, n_best);
        unlink_prefix(prefixes, best);
        put_first(prefixes, best);
    }
    unlock(prefixes);
    return n_best;
}

bool afmoe__prefixes_drop_oldest(struct prefixes *prefixes)
{
    if (prefixes->max_pages == 0 || !lock(prefixes)) return false;
    bool dropped = drop_oldest(prefixes);
    unlock(prefixes);
    return dropped;
}

uint64_t afmoe__prefixes_memory(struct prefixes *prefixes)
{
    if (!lock(prefixes)) return 0;
    uint64_t n = prefixes->n_block_bytes;
    unlock(prefixes);
    return n;
}
