/* Checksums: XXH3 of 64 and 128 bits, little-endian machines and others alike. Only in builds with the option `state`:
 * the one header of the library that needs xxhash.h, which is compiled in whole. */
#ifndef AFMOE_BASE_CHECKSUM_H
#define AFMOE_BASE_CHECKSUM_H

/* Without its hints gcc decides itself, which it must at -Og: there it refuses what is always to be inlined. */
#define XXH_NO_INLINE_HINTS 1
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdint.h>

/* What is hashed comes piece by piece; the pieces do not show in the result. */
struct checksum {
    XXH3_state_t state;
};

static inline void checksum_begin(struct checksum *checksum)
{
    XXH3_64bits_reset(&checksum->state);
}

static inline void checksum_add(struct checksum *checksum, const void *bytes, uint64_t n)
{
    XXH3_64bits_update(&checksum->state, bytes, n);
}

static inline uint64_t checksum_end(const struct checksum *checksum)
{
    return XXH3_64bits_digest(&checksum->state);
}

static inline uint64_t checksum_of(const void *bytes, uint64_t n)
{
    return XXH3_64bits(bytes, n);
}

#endif
