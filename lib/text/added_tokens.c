/* Matching added tokens, see added_tokens.h: tokens sorted by their bytes, so that those with a common prefix are a
 * range, which each byte of text narrows. */
#include "added_tokens.h"

#include "error.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

struct sort_item {
    const uint8_t *bytes;
    uint64_t n_bytes;
    afmoe_token id;
};

static int compare_items(const void *a, const void *b)
{
    const struct sort_item *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->n_bytes < y->n_bytes ? x->n_bytes : y->n_bytes);
    if (order != 0) return order;
    if (x->n_bytes != y->n_bytes) return x->n_bytes < y->n_bytes ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool are_equal(const struct sort_item *a, const struct sort_item *b)
{
    return a->n_bytes == b->n_bytes && memcmp(a->bytes, b->bytes, a->n_bytes) == 0;
}

static bool is_wanted(const struct vocabulary *v, const struct token_source *source, uint64_t id, bool normalized)
{
    return (v->kinds[id] == AFMOE_TOKEN_CONTROL || v->kinds[id] == AFMOE_TOKEN_ADDED) &&
           source->normalized == normalized;
}

afmoe_status afmoe__added_tokens_build(struct added_tokens *out, const struct vocabulary *vocabulary,
                                       const struct token_source *sources, bool normalized, const char *name,
                                       afmoe_error *error)
{
    struct added_tokens added = {.vocabulary = vocabulary, .only_first_byte = -1};
    uint64_t n = 0;
    for (uint64_t id = 0; id < vocabulary->n_ids; id++) {
        if (!is_wanted(vocabulary, &sources[id], id, normalized)) continue;
        if (sources[id].n_text > MAX_ADDED_TOKEN_BYTES) {
            return afmoe__fail(error, AFMOE_LIMIT, "%s: added token %llu has %llu bytes; at most %d are allowed", name,
                               (unsigned long long)id, (unsigned long long)sources[id].n_text,
                               (int)MAX_ADDED_TOKEN_BYTES);
        }
        n++;
    }
    struct sort_item *items = afmoe__alloc_array(n, sizeof *items);
    added.sorted = afmoe__alloc_array(n, sizeof *added.sorted);
    if (!items || !added.sorted) {
        afmoe__free(items);
        afmoe__free(added.sorted);
        return afmoe__fail_memory(error, n * (sizeof *items + sizeof *added.sorted), "added tokens");
    }
    for (uint64_t id = 0, i = 0; id < vocabulary->n_ids; id++) {
        if (!is_wanted(vocabulary, &sources[id], id, normalized)) continue;
        items[i].id = (afmoe_token)id;
        items[i].bytes = vocabulary_bytes(vocabulary, (afmoe_token)id, &items[i].n_bytes);
        i++;
    }
    qsort(items, n, sizeof *items, compare_items);
    for (uint64_t i = 0; i < n; i++) {
        /* Of equal ones the first id. The others would have to be stepped over at every place that matches. */
        if (i > 0 && are_equal(&items[i - 1], &items[i])) continue;
        added.sorted[added.n++] = items[i].id;
        added.first[items[i].bytes[0] + 1] = added.n;
    }
    for (int byte = 0; byte < 256; byte++) {
        if (added.first[byte + 1] < added.first[byte]) added.first[byte + 1] = added.first[byte];
    }
    if (n > 0 && items[0].bytes[0] == items[n - 1].bytes[0]) added.only_first_byte = items[0].bytes[0];
    afmoe__free(items);
    *out = added;
    return AFMOE_OK;
}

void afmoe__added_tokens_free(struct added_tokens *added)
{
    afmoe__free(added->sorted);
    memset(added, 0, sizeof *added);
}

/* The first of sorted[low, high) that has a byte >= `byte` at `depth`; all of them are longer than that. */
static uint32_t lower_bound(const struct added_tokens *added, uint32_t low, uint32_t high, uint64_t depth,
                            unsigned byte)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (added->vocabulary->bytes[added->vocabulary->offsets[added->sorted[middle]] + depth] < byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The longest token that text[0, n) begins with; its length, or 0. */
static uint64_t longest_at(const struct added_tokens *added, const uint8_t *text, uint64_t n, afmoe_token *out_id)
{
    uint32_t low = added->first[text[0]], high = added->first[text[0] + 1];
    uint64_t longest = 0;
    for (uint64_t depth = 1; low < high; depth++) {
        uint64_t n_token;
        vocabulary_bytes(added->vocabulary, added->sorted[low], &n_token);
        if (n_token == depth) { /* the shortest of a range is its first, and there are no equal ones */
            longest = depth;
            *out_id = added->sorted[low];
            if (++low == high) return longest;
        }
        if (depth == n) break;
        low = lower_bound(added, low, high, depth, text[depth]);
        high = lower_bound(added, low, high, depth, text[depth] + 1u);
    }
    return longest;
}

static bool next_in_range(const struct added_tokens *added, const uint8_t *text, uint64_t begin, uint64_t end,
                          struct added_match *out)
{
    for (uint64_t at = begin; at < end; at++) {
        if (added->only_first_byte >= 0) {
            const uint8_t *found = memchr(text + at, added->only_first_byte, end - at);
            if (!found) return false;
            at = (uint64_t)(found - text);
        } else if (added->first[text[at]] == added->first[text[at] + 1]) {
            continue;
        }
        uint64_t n = longest_at(added, text + at, end - at, &out->id);
        if (n) {
            out->begin = at;
            out->end = at + n;
            return true;
        }
    }
    return false;
}

bool afmoe__added_tokens_next(const struct added_tokens *added, const uint8_t *text, uint64_t begin, uint64_t end,
                              const struct byte_ranges *ranges, struct added_match *out)
{
    if (added->n == 0) return false;
    uint64_t low = 0, high = ranges->n; /* the first range that ends after `begin` */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (ranges->pairs[2 * middle + 1] <= begin) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low < ranges->n && ranges->pairs[2 * low] < end; low++) {
        uint64_t from = ranges->pairs[2 * low], to = ranges->pairs[2 * low + 1];
        if (next_in_range(added, text, from > begin ? from : begin, to < end ? to : end, out)) return true;
    }
    return false;
}
