/* Byte-level BPE, see bpe.h. The merges and their order are those of tokenizer.json ("model": {"type": "BPE"}) or of
 * tokenizer.ggml.merges.
 *
 * Four ways to the same ids, the cheapest first: a piece met before in this call; a piece that is itself a token which
 * its own merges lead to (checked once at load); a short piece, by scanning its few pairs for the lowest rank; a long
 * one, by a linked list and a heap of pairs, O(n log n). */
#include "bpe.h"

#include "cancel.h"
#include "error.h"

#include <string.h>

enum {
    SHORT_PIECE_BYTES = 48,   /* the scan of pairs is quadratic; about here the heap becomes as fast */
    MAX_CACHED_PIECES = 4096, /* 256 KiB: half of a common L2 */
    TEXT_BYTES_PER_CACHED_PIECE = 16,
    CACHED_PIECE_BYTES = 24,
    CACHED_PIECE_IDS = 8,
    MERGES_PER_CANCEL_CHECK = 65536
};
#define MAX_PIECE_BYTES ((uint64_t)INT32_MAX)
#define NO_RANK         UINT32_MAX
#define NO_SYMBOL       UINT32_MAX

/* One cache line. */
struct bpe_cached {
    uint8_t n_bytes; /* 0: empty */
    uint8_t n_ids;
    uint8_t bytes[CACHED_PIECE_BYTES];
    afmoe_token ids[CACHED_PIECE_IDS];
};

/* A run of bytes of a long piece that has become one token. Neighbours are indices; NO_SYMBOL past the ends. */
struct bpe_symbol {
    uint32_t id;
    uint32_t previous, next;
    uint32_t rank; /* of the pair with the next symbol; NO_RANK also when this one has been merged away */
};

static inline uint64_t hash_pair(uint64_t pair)
{
    pair *= 0x9e3779b97f4a7c15u;
    return pair ^ pair >> 32;
}

/* The slot of the pair or an empty one, whose rank is NO_RANK. */
static inline struct bpe_slot *find_pair(const struct bpe *bpe, uint32_t left, uint32_t right)
{
    uint64_t pair = (uint64_t)left << 32 | right;
    uint64_t at = hash_pair(pair) & bpe->slot_mask;
    while (bpe->slots[at].pair != pair && bpe->slots[at].pair != UINT64_MAX) at = (at + 1) & bpe->slot_mask;
    return &bpe->slots[at];
}

/* ---- Encoding ---------------------------------------------------------------------------------------------------- */

/* `ids` has room for n_bytes ids. Returns how many there are. */
static uint32_t merge_short(const struct bpe *bpe, const uint8_t *piece, uint32_t n_bytes, uint32_t *ids)
{
    const struct bpe_slot *pairs[SHORT_PIECE_BYTES]; /* of symbols i and i + 1 */
    uint32_t n = n_bytes;
    for (uint32_t i = 0; i < n; i++) ids[i] = bpe->byte_ids[piece[i]];
    for (uint32_t i = 0; i + 1 < n; i++) pairs[i] = find_pair(bpe, ids[i], ids[i + 1]);

    while (n > 1) {
        uint32_t best = 0;
        for (uint32_t i = 1; i + 1 < n; i++) {
            if (pairs[i]->rank < pairs[best]->rank) best = i;
        }
        if (pairs[best]->rank == NO_RANK) break;
        ids[best] = pairs[best]->result;
        n--;
        for (uint32_t i = best + 1; i < n; i++) ids[i] = ids[i + 1];
        for (uint32_t i = best; i + 1 < n; i++) pairs[i] = pairs[i + 1];
        if (best + 1 < n) pairs[best] = find_pair(bpe, ids[best], ids[best + 1]);
        if (best > 0) pairs[best - 1] = find_pair(bpe, ids[best - 1], ids[best]);
    }
    return n;
}

/* Restore heap order downwards from `at`. Entries are rank << 32 | symbol: the smallest is the leftmost of the lowest
 * rank. */
static void sift_down(uint64_t *queue, uint64_t n, uint64_t at)
{
    uint64_t moving = queue[at];
    for (;;) {
        uint64_t child = 2 * at + 1;
        if (child >= n) break;
        if (child + 1 < n && queue[child + 1] < queue[child]) child++;
        if (queue[child] >= moving) break;
        queue[at] = queue[child];
        at = child;
    }
    queue[at] = moving;
}

static void sift_up(uint64_t *queue, uint64_t at)
{
    uint64_t moving = queue[at];
    while (at > 0 && queue[(at - 1) / 2] > moving) {
        queue[at] = queue[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    queue[at] = moving;
}

/* Rank the pair that begins at `symbol` anew and put it in the queue. */
static void queue_pair(const struct bpe *bpe, struct bpe_scratch *scratch, uint64_t *n_queued, uint32_t symbol)
{
    struct bpe_symbol *s = &scratch->symbols[symbol];
    s->rank = s->next == NO_SYMBOL ? NO_RANK : find_pair(bpe, s->id, scratch->symbols[s->next].id)->rank;
    if (s->rank == NO_RANK) return;
    scratch->queue[*n_queued] = (uint64_t)s->rank << 32 | symbol;
    sift_up(scratch->queue, (*n_queued)++);
}

static afmoe_status reserve_symbols(struct bpe_scratch *scratch, uint64_t n, afmoe_error *error)
{
    if (n <= scratch->n_symbols) return AFMOE_OK;
    afmoe__free(scratch->symbols);
    afmoe__free(scratch->queue);
    scratch->n_symbols = 0;
    scratch->symbols = afmoe__alloc_array(n, sizeof *scratch->symbols);
    scratch->queue = afmoe__alloc_array(2 * n, sizeof *scratch->queue);
    if (!scratch->symbols || !scratch->queue) return afmoe__fail_memory(error, 32 * n, "merging a long piece");
    scratch->n_symbols = n;
    return AFMOE_OK;
}

/* Symbols of the bytes and a heap of their pairs; returns the entries of the heap. */
static uint64_t start_long(const struct bpe *bpe, struct bpe_scratch *scratch, const uint8_t *piece, uint32_t n)
{
    uint64_t n_queued = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct bpe_symbol *s = &scratch->symbols[i];
        s->id = bpe->byte_ids[piece[i]];
        s->previous = i ? i - 1 : NO_SYMBOL;
        s->next = i + 1 < n ? i + 1 : NO_SYMBOL;
        s->rank = NO_RANK;
        if (i + 1 < n) s->rank = find_pair(bpe, s->id, bpe->byte_ids[piece[i + 1]])->rank;
        if (s->rank != NO_RANK) scratch->queue[n_queued++] = (uint64_t)s->rank << 32 | i;
    }
    for (uint64_t i = n_queued / 2; i-- > 0;) sift_down(scratch->queue, n_queued, i);
    return n_queued;
}

/* The queue never outgrows 2 * n entries: it starts with n - 1 at most, and each of at most n - 1 merges takes one out
 * and puts two in. An entry whose pair has changed since is known by its rank. */
static afmoe_status merge_long(const struct bpe *bpe, struct bpe_scratch *scratch, const uint8_t *piece, uint32_t n,
                               struct token_sink *sink, afmoe_error *error)
{
    afmoe_status status = reserve_symbols(scratch, n, error);
    if (status != AFMOE_OK) return status;
    struct bpe_symbol *symbols = scratch->symbols;
    uint64_t n_queued = start_long(bpe, scratch, piece, n);

    for (uint64_t n_taken = 1; n_queued > 0; n_taken++) {
        if (n_taken % MERGES_PER_CANCEL_CHECK == 0 && cancel_requested(scratch->cancel)) {
            return afmoe__fail(error, AFMOE_CANCELLED, "tokenizing was cancelled");
        }
        uint64_t top = scratch->queue[0];
        scratch->queue[0] = scratch->queue[--n_queued];
        sift_down(scratch->queue, n_queued, 0);
        uint32_t at = (uint32_t)top;
        if (symbols[at].rank != (uint32_t)(top >> 32)) continue;

        uint32_t right = symbols[at].next, after = symbols[right].next;
        symbols[at].id = find_pair(bpe, symbols[at].id, symbols[right].id)->result;
        symbols[at].next = after;
        symbols[right].rank = NO_RANK;
        if (after != NO_SYMBOL) symbols[after].previous = at;
        queue_pair(bpe, scratch, &n_queued, at);
        if (symbols[at].previous != NO_SYMBOL) queue_pair(bpe, scratch, &n_queued, symbols[at].previous);
    }
    for (uint32_t at = 0; at != NO_SYMBOL; at = symbols[at].next) {
        if (!token_sink_put(sink, (afmoe_token)symbols[at].id)) return afmoe__fail_memory(error, sink->n * 8, "ids");
    }
    return AFMOE_OK;
}

static bool is_whole(const struct bpe *bpe, afmoe_token id)
{
    return bpe->whole[id >> 3] >> (id & 7) & 1;
}

static bool put_all(struct token_sink *sink, const uint32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!token_sink_put(sink, (afmoe_token)ids[i])) return false;
    }
    return true;
}

afmoe_status afmoe__bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const uint8_t *piece,
                               uint64_t n_bytes, struct token_sink *sink, afmoe_error *error)
{
    if (n_bytes > MAX_PIECE_BYTES) {
        return afmoe__fail(error, AFMOE_LIMIT, "a piece of %llu bytes without a break; at most %llu are merged",
                           (unsigned long long)n_bytes, (unsigned long long)MAX_PIECE_BYTES);
    }
    uint32_t ids[SHORT_PIECE_BYTES], n_ids = 0;
    uint64_t hash = n_bytes <= MAX_TOKEN_BYTES ? afmoe__hash_bytes(piece, n_bytes) : 0;
    struct bpe_cached *cached = NULL;
    if (scratch->cache && n_bytes <= CACHED_PIECE_BYTES) {
        cached = &scratch->cache[hash >> 32 & scratch->cache_mask];
        if (cached->n_bytes == n_bytes && memcmp(cached->bytes, piece, n_bytes) == 0) {
            for (uint32_t i = 0; i < cached->n_ids; i++) {
                if (!token_sink_put(sink, cached->ids[i])) return afmoe__fail_memory(error, sink->n * 8, "ids");
            }
            return AFMOE_OK;
        }
    }

    afmoe_token whole =
        n_bytes <= MAX_TOKEN_BYTES ? afmoe__vocabulary_find_hashed(bpe->vocabulary, hash, piece, n_bytes) : -1;
    if (whole >= 0 && is_whole(bpe, whole)) {
        ids[n_ids++] = (uint32_t)whole;
    } else if (n_bytes <= SHORT_PIECE_BYTES) {
        n_ids = merge_short(bpe, piece, (uint32_t)n_bytes, ids);
    } else {
        return merge_long(bpe, scratch, piece, (uint32_t)n_bytes, sink, error);
    }
    if (cached && n_ids <= CACHED_PIECE_IDS) {
        cached->n_bytes = (uint8_t)n_bytes;
        cached->n_ids = (uint8_t)n_ids;
        memcpy(cached->bytes, piece, n_bytes);
        for (uint32_t i = 0; i < n_ids; i++) cached->ids[i] = (afmoe_token)ids[i];
    }
    return put_all(sink, ids, n_ids) ? AFMOE_OK : afmoe__fail_memory(error, sink->n * 8, "ids");
}

void afmoe__bpe_scratch_use_cache(struct bpe_scratch *scratch, uint64_t text_bytes)
{
    /* Clearing the cache must stay cheap beside the work it saves. */
    uint32_t n = 1;
    while (n < MAX_CACHED_PIECES && n < text_bytes / TEXT_BYTES_PER_CACHED_PIECE) n *= 2;
    scratch->cache = afmoe__alloc_zeroed(n, sizeof *scratch->cache);
    scratch->cache_mask = n - 1;
}

void afmoe__bpe_scratch_free(struct bpe_scratch *scratch)
{
    afmoe__free(scratch->cache);
    afmoe__free(scratch->symbols);
    afmoe__free(scratch->queue);
}

/* ---- Building ---------------------------------------------------------------------------------------------------- */

bool afmoe__merge_split(const uint8_t *text, uint64_t n_text, struct merge_source *out)
{
    const uint8_t *space = n_text ? memchr(text, ' ', n_text) : NULL;
    if (!space) return false;
    uint64_t n_left = (uint64_t)(space - text);
    *out = (struct merge_source){text, space + 1, n_left, n_text - n_left - 1};
    return memchr(out->right, ' ', out->n_right) == NULL;
}

/* The first ordinary token of each byte. */
static afmoe_status find_byte_ids(struct bpe *bpe, const char *name, afmoe_error *error)
{
    const struct vocabulary *v = bpe->vocabulary;
    for (unsigned byte = 0; byte < 256; byte++) bpe->byte_ids[byte] = UINT32_MAX;
    for (uint64_t id = 0; id < v->n_ids; id++) {
        if (v->kinds[id] != AFMOE_TOKEN_NORMAL || v->offsets[id + 1] - v->offsets[id] != 1) continue;
        uint32_t *slot = &bpe->byte_ids[v->bytes[v->offsets[id]]];
        if (*slot == UINT32_MAX) *slot = (uint32_t)id;
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        if (bpe->byte_ids[byte] == UINT32_MAX) {
            /* The reference would drop such bytes from the text without a word. */
            return afmoe__fail(error, AFMOE_FORMAT, "%s: the vocabulary has no token for the byte 0x%02x", name, byte);
        }
    }
    return AFMOE_OK;
}

/* `bytes`: room for two tokens. */
static afmoe_status add_merge(struct bpe *bpe, const struct merge_source *merge, uint64_t rank, uint8_t *bytes,
                              const char *name, afmoe_error *error)
{
    const struct vocabulary *v = bpe->vocabulary;
    unsigned long long number = rank;
    uint64_t n_left, n_right;
    afmoe_token left = -1, right = -1, result = -1;
    if (merge->n_left <= MAX_TOKEN_BYTES && merge->n_right <= MAX_TOKEN_BYTES &&
        afmoe__byte_alphabet_decode(merge->left, merge->n_left, bytes, &n_left) &&
        afmoe__byte_alphabet_decode(merge->right, merge->n_right, bytes + n_left, &n_right)) {
        left = n_left ? afmoe__vocabulary_find(v, bytes, n_left) : -1;
        right = n_right ? afmoe__vocabulary_find(v, bytes + n_left, n_right) : -1;
        result = afmoe__vocabulary_find(v, bytes, n_left + n_right);
    }
    if (left < 0 || right < 0) {
        return afmoe__fail(error, AFMOE_FORMAT, "%s: merge %llu: its %s part is no token of the vocabulary", name,
                           number, left < 0 ? "left" : "right");
    }
    if (result < 0) {
        return afmoe__fail(error, AFMOE_FORMAT, "%s: merge %llu (tokens %d and %d) gives no token of the vocabulary",
                           name, number, left, right);
    }
    if (v->kinds[result] == AFMOE_TOKEN_CONTROL) {
        return afmoe__fail(error, AFMOE_UNSUPPORTED,
                           "%s: merge %llu gives control token %d: ordinary text could forge it", name, number, result);
    }
    struct bpe_slot *slot = find_pair(bpe, (uint32_t)left, (uint32_t)right);
    if (slot->pair != UINT64_MAX) {
        return afmoe__fail(error, AFMOE_FORMAT, "%s: merge %llu repeats merge %u (tokens %d and %d)", name, number,
                           slot->rank, left, right);
    }
    *slot = (struct bpe_slot){(uint64_t)(uint32_t)left << 32 | (uint32_t)right, (uint32_t)rank, (uint32_t)result};
    if ((((uint64_t)(slot - bpe->slots) - hash_pair(slot->pair)) & bpe->slot_mask) >= MAX_HASH_CHAIN) {
        return afmoe__fail(error, AFMOE_LIMIT, "%s: merge %llu: more than %d merges collide in the table", name, number,
                           (int)MAX_HASH_CHAIN);
    }
    return AFMOE_OK;
}

static afmoe_status add_merges(struct bpe *bpe, const struct merge_source *merges, uint64_t n_merges, const char *name,
                               afmoe_error *error)
{
    uint64_t n_slots = 16; /* at most half full */
    while (n_slots < 2 * n_merges) n_slots *= 2;
    bpe->slot_mask = n_slots - 1;
    bpe->slots = afmoe__alloc_aligned(n_slots, sizeof *bpe->slots);
    uint8_t *bytes = afmoe__alloc_array(2, MAX_TOKEN_BYTES);
    afmoe_status status = AFMOE_OK;
    if (!bpe->slots || !bytes) {
        status = afmoe__fail_memory(error, n_slots * sizeof *bpe->slots, "merges");
    } else {
        for (uint64_t i = 0; i < n_slots; i++) bpe->slots[i] = (struct bpe_slot){UINT64_MAX, NO_RANK, 0};
    }
    for (uint64_t i = 0; i < n_merges && status == AFMOE_OK; i++) {
        status = add_merge(bpe, &merges[i], i, bytes, name, error);
    }
    afmoe__free(bytes);
    return status;
}

/* Which tokens do their own bytes lead to? Nearly all; some vocabularies have a few that their merges never reach. */
static afmoe_status find_whole_tokens(struct bpe *bpe, afmoe_error *error)
{
    const struct vocabulary *v = bpe->vocabulary;
    bpe->whole = afmoe__alloc_zeroed(v->n_ids / 8 + 1, 1);
    if (!bpe->whole) return afmoe__fail_memory(error, v->n_ids / 8 + 1, "the vocabulary");
    for (uint64_t id = 0; id < v->n_ids; id++) {
        uint64_t n;
        const uint8_t *bytes = vocabulary_bytes(v, (afmoe_token)id, &n);
        if (n == 0 || n > SHORT_PIECE_BYTES) continue; /* long ones are merged each time */
        uint32_t ids[SHORT_PIECE_BYTES];
        if (merge_short(bpe, bytes, (uint32_t)n, ids) == 1 && ids[0] == id) bpe->whole[id >> 3] |= 1 << (id & 7);
    }
    return AFMOE_OK;
}

afmoe_status afmoe__bpe_build(struct bpe *out, const struct vocabulary *vocabulary, const struct merge_source *merges,
                              uint64_t n_merges, const char *name, afmoe_error *error)
{
    struct bpe bpe = {.vocabulary = vocabulary};
    if (n_merges > MAX_MERGES) {
        return afmoe__fail(error, AFMOE_LIMIT, "%s: %llu merges; at most %d are allowed", name,
                           (unsigned long long)n_merges, (int)MAX_MERGES);
    }
    afmoe_status status = find_byte_ids(&bpe, name, error);
    if (status == AFMOE_OK) status = add_merges(&bpe, merges, n_merges, name, error);
    if (status == AFMOE_OK) status = find_whole_tokens(&bpe, error);
    if (status != AFMOE_OK) {
        afmoe__bpe_free(&bpe);
        return status;
    }
    *out = bpe;
    return AFMOE_OK;
}

void afmoe__bpe_move(struct bpe *bpe, const struct vocabulary *vocabulary,
                     void *(*move)(void *table, uint64_t n_bytes))
{
    bpe->vocabulary = vocabulary;
    bpe->slots = move(bpe->slots, (bpe->slot_mask + 1) * sizeof *bpe->slots);
    bpe->whole = move(bpe->whole, vocabulary->n_ids / 8 + 1);
}

uint64_t afmoe__bpe_table_bytes(const struct bpe *bpe)
{
    return (bpe->slot_mask + 1) * sizeof *bpe->slots + bpe->vocabulary->n_ids / 8 + 1;
}

void afmoe__bpe_free(struct bpe *bpe)
{
    afmoe__free(bpe->slots);
    afmoe__free(bpe->whole);
    memset(bpe, 0, sizeof *bpe);
}
