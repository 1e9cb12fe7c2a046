/* Where an encode puts its ids: counts all, keeps the first `limit` of them in memory that grows on demand. (Not the
 * caller's buffer: that stays untouched when it turns out too small.) */
#ifndef AFMOE_TEXT_TOKEN_SINK_H
#define AFMOE_TEXT_TOKEN_SINK_H

#include "afmoe.h"
#include "memory.h"

#include <stdbool.h>

struct token_sink {
    afmoe_token *ids;
    uint64_t n;      /* ids given, kept or not */
    uint64_t n_room; /* ids there is memory for */
    uint64_t limit;  /* ids worth keeping */
};

/* False: out of memory. */
static inline bool token_sink_put(struct token_sink *sink, afmoe_token id)
{
    if (sink->n < sink->limit) {
        if (sink->n == sink->n_room) {
            uint64_t n_room = sink->n_room ? sink->n_room * 2 : 256;
            if (n_room > sink->limit) n_room = sink->limit;
            afmoe_token *ids = afmoe__realloc_array(sink->ids, n_room, sizeof *ids);
            if (!ids) return false;
            sink->ids = ids;
            sink->n_room = n_room;
        }
        sink->ids[sink->n] = id;
    }
    sink->n++;
    return true;
}

#endif
