/* Token tables, see vocabulary.h.
 *
 * The byte alphabet (GPT-2's bytes_to_unicode): the printable bytes 0x21-0x7e, 0xa1-0xac and 0xae-0xff are the code
 * points of the same number; the 68 others, in rising order, are U+0100 to U+0143. */
#include "vocabulary.h"

#include "error.h"
#include "memory.h"

#include <string.h>

static bool is_printable(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* The byte that a code point above U+00FF stands for, or -1: 0x00-0x20, 0x7f-0xa0, 0xad in this order. */
static int unprintable_byte(unsigned code_point)
{
    unsigned nth = code_point - 0x100;
    if (nth <= 0x20) return (int)nth;
    if (nth <= 0x42) return (int)(nth - 0x21 + 0x7f);
    return nth == 0x43 ? 0xad : -1;
}

bool afmoe__byte_alphabet_decode(const uint8_t *text, uint64_t n_text, uint8_t *out, uint64_t *out_n)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < n_text; i++) {
        unsigned code_point = text[i];
        if (code_point >= 0x80) { /* the alphabet needs two bytes at most: C2..C5 and a continuation */
            if (code_point < 0xc2 || code_point > 0xc5 || i + 1 == n_text || (text[i + 1] & 0xc0) != 0x80) return false;
            code_point = (code_point & 0x1f) << 6 | (text[++i] & 0x3f);
        }
        int byte = code_point >= 0x100 ? unprintable_byte(code_point) : is_printable(code_point) ? (int)code_point : -1;
        if (byte < 0) return false;
        out[n++] = (uint8_t)byte;
    }
    *out_n = n;
    return true;
}

uint64_t afmoe__hash_bytes(const uint8_t *bytes, uint64_t n_bytes)
{
    /* Eight bytes at a time, each mixed by a multiplication; the constants are odd digits of the golden ratio and of
     * splitmix64. */
    uint64_t hash = n_bytes * 0x9e3779b97f4a7c15u;
    for (; n_bytes >= 8; bytes += 8, n_bytes -= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        hash = (hash ^ word) * 0xbf58476d1ce4e5b9u;
        hash ^= hash >> 32;
    }
    uint64_t word = 0;
    if (n_bytes >= 4) {
        uint32_t low, high;
        memcpy(&low, bytes, 4);
        memcpy(&high, bytes + n_bytes - 4, 4);
        word = (uint64_t)high << 32 | low;
    } else if (n_bytes > 0) {
        word = bytes[0] | (uint64_t)bytes[n_bytes / 2] << 8 | (uint64_t)bytes[n_bytes - 1] << 16;
    }
    hash = (hash ^ word) * 0x94d049bb133111ebu;
    hash = (hash ^ hash >> 32) * 0xbf58476d1ce4e5b9u; /* low bits are used as well: let the high ones reach them */
    return hash ^ hash >> 32;
}

/* The slot that has these bytes or, when there is none, the empty one where they belong. */
static struct vocabulary_slot *probe(const struct vocabulary *v, uint64_t hash, const uint8_t *bytes, uint64_t n_bytes)
{
    uint64_t at = hash & v->slot_mask;
    for (;; at = (at + 1) & v->slot_mask) {
        struct vocabulary_slot *slot = &v->slots[at];
        if (slot->id_plus_1 == 0) return slot;
        if (slot->hash_high != (uint32_t)(hash >> 32)) continue;
        uint64_t n;
        const uint8_t *found = vocabulary_bytes(v, (afmoe_token)(slot->id_plus_1 - 1), &n);
        if (n == n_bytes && memcmp(found, bytes, n_bytes) == 0) return slot;
    }
}

/* False: so many tokens share a hash that only an attack on it explains them. */
static bool insert(struct vocabulary *v, uint64_t id)
{
    uint64_t n;
    const uint8_t *bytes = vocabulary_bytes(v, (afmoe_token)id, &n);
    uint64_t hash = afmoe__hash_bytes(bytes, n);
    struct vocabulary_slot *slot = probe(v, hash, bytes, n);
    if (slot->id_plus_1 == 0) *slot = (struct vocabulary_slot){(uint32_t)(hash >> 32), (uint32_t)id + 1};
    return (((uint64_t)(slot - v->slots) - hash) & v->slot_mask) < MAX_HASH_CHAIN;
}

static bool is_added(int32_t kind)
{
    return kind == AFMOE_TOKEN_CONTROL || kind == AFMOE_TOKEN_ADDED;
}

/* Ordinary tokens with letters outside the byte alphabet, marked in `kinds` while building: text never becomes one. */
enum { KIND_ODD = 0x80 };

/* Who is found first: added tokens, ordinary ones, odd ones. */
static int precedence(uint8_t kind)
{
    return kind & KIND_ODD ? 2 : is_added(kind) ? 0 : 1;
}

afmoe_status afmoe__vocabulary_build(struct vocabulary *out, const struct token_source *sources, uint64_t n_ids,
                                     const char *name, afmoe_error *error)
{
    struct vocabulary v = {.n_ids = n_ids};
    uint64_t total_bytes = 0; /* n_ids * MAX_TOKEN_BYTES cannot wrap */
    for (uint64_t id = 0; id < n_ids; id++) {
        if (sources[id].text && (sources[id].n_text == 0 || sources[id].n_text > MAX_TOKEN_BYTES)) {
            return afmoe__fail(error, sources[id].n_text ? AFMOE_LIMIT : AFMOE_FORMAT,
                               "%s: token %llu has %llu bytes; allowed are 1 to %d", name, (unsigned long long)id,
                               (unsigned long long)sources[id].n_text, (int)MAX_TOKEN_BYTES);
        }
        total_bytes += sources[id].text ? sources[id].n_text : 0;
    }

    uint64_t n_slots = 16; /* at most half full: chains stay short */
    while (n_slots < 2 * n_ids) n_slots *= 2;
    v.slot_mask = n_slots - 1;
    v.offsets = afmoe__alloc_array(n_ids + 1, sizeof *v.offsets);
    v.bytes = afmoe__alloc_array(total_bytes, 1);
    v.kinds = afmoe__alloc_array(n_ids, 1);
    v.slots = afmoe__alloc_zeroed(n_slots, sizeof *v.slots);
    if (!v.offsets || !v.bytes || !v.kinds || !v.slots) {
        afmoe__vocabulary_free(&v);
        return afmoe__fail_memory(error, total_bytes + n_ids * 9 + n_slots * sizeof *v.slots, "the vocabulary");
    }

    v.offsets[0] = 0;
    for (uint64_t id = 0; id < n_ids; id++) {
        const struct token_source *source = &sources[id];
        uint64_t at = v.offsets[id], n = 0;
        v.kinds[id] = (uint8_t)(source->text ? source->kind : AFMOE_TOKEN_UNUSED);
        if (v.kinds[id] != AFMOE_TOKEN_UNUSED) {
            /* The reference's decoder, too, takes a token with other letters as it is. */
            if (source->raw || !afmoe__byte_alphabet_decode(source->text, source->n_text, v.bytes + at, &n)) {
                n = source->n_text;
                memcpy(v.bytes + at, source->text, n);
                if (!source->raw) v.kinds[id] |= KIND_ODD;
            }
            v.n_tokens++;
            v.n_added += is_added(source->kind);
        }
        v.offsets[id + 1] = at + n;
    }
    for (int turn = 0; turn < 3; turn++) {
        for (uint64_t id = 0; id < n_ids; id++) {
            if (v.kinds[id] == AFMOE_TOKEN_UNUSED || precedence(v.kinds[id]) != turn || insert(&v, id)) continue;
            afmoe__vocabulary_free(&v);
            return afmoe__fail(error, AFMOE_LIMIT, "%s: token %llu: more than %d tokens collide in the table", name,
                               (unsigned long long)id, (int)MAX_HASH_CHAIN);
        }
    }
    for (uint64_t id = 0; id < n_ids; id++) v.kinds[id] &= (uint8_t)~KIND_ODD;
    *out = v;
    return AFMOE_OK;
}

void afmoe__vocabulary_move(struct vocabulary *v, void *(*move)(void *table, uint64_t n_bytes))
{
    v->bytes = move(v->bytes, v->offsets[v->n_ids]);
    v->offsets = move(v->offsets, (v->n_ids + 1) * sizeof *v->offsets);
    v->kinds = move(v->kinds, v->n_ids * sizeof *v->kinds);
    v->slots = move(v->slots, (v->slot_mask + 1) * sizeof *v->slots);
}

uint64_t afmoe__vocabulary_table_bytes(const struct vocabulary *v)
{
    return (v->n_ids + 1) * sizeof *v->offsets + v->offsets[v->n_ids] + v->n_ids * sizeof *v->kinds +
           (v->slot_mask + 1) * sizeof *v->slots;
}

void afmoe__vocabulary_free(struct vocabulary *vocabulary)
{
    afmoe__free(vocabulary->offsets);
    afmoe__free(vocabulary->bytes);
    afmoe__free(vocabulary->kinds);
    afmoe__free(vocabulary->slots);
    memset(vocabulary, 0, sizeof *vocabulary);
}

afmoe_token afmoe__vocabulary_find_hashed(const struct vocabulary *vocabulary, uint64_t hash, const uint8_t *bytes,
                                          uint64_t n_bytes)
{
    return (afmoe_token)probe(vocabulary, hash, bytes, n_bytes)->id_plus_1 - 1;
}

afmoe_token afmoe__vocabulary_find(const struct vocabulary *vocabulary, const uint8_t *bytes, uint64_t n_bytes)
{
    return afmoe__vocabulary_find_hashed(vocabulary, afmoe__hash_bytes(bytes, n_bytes), bytes, n_bytes);
}
