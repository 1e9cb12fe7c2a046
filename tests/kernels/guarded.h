/* Memory for kernel tests: inputs end at a page that may not be touched, outputs lie between poisoned bytes. */
#ifndef AFMOE_TESTS_GUARDED_H
#define AFMOE_TESTS_GUARDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct guarded {
    uint8_t *map;
    size_t map_bytes, usable_bytes; /* the guard page follows the usable ones */
};

void guarded_create(struct guarded *g, size_t capacity);
void guarded_free(struct guarded *g);

/* `bytes` bytes that end where the guard page begins. Valid until the next call. */
void *guarded_place(struct guarded *g, size_t bytes);

/* `bytes` poisoned bytes with poison around them (not guarded); `bytes` <= capacity - 256. */
void *poisoned_place(struct guarded *g, size_t bytes);
/* Is the poison around the last poisoned_place whole? */
bool poison_whole(const struct guarded *g, size_t bytes);

enum { POISON = 0xa5, POISON_BYTES = 128 };

#endif
