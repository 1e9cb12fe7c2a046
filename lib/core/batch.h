/* The rows of one pass over the layers: tokens of one or more sessions, side by side.
 *
 * Item i brings n_tokens tokens that continue its timeline at position n_past; its rows lie one after the other. Rows
 * of different items never meet: a pass over a list gives each item the bits it would get alone. */
#ifndef AFMOE_CORE_BATCH_H
#define AFMOE_CORE_BATCH_H

#include "afmoe.h"
#include "cells.h"

#include <stdbool.h>

struct batch_item {
    const struct cells *cells; /* with a page for every position that is written or seen */
    const afmoe_token *tokens;
    uint64_t n_tokens;
    uint64_t n_past;
    const uint64_t *wanted; /* rows of this item as it came (0..n_tokens-1), rising, that want the head */
    uint64_t n_wanted;
    bool hidden_only; /* of those rows: the final norm, no logits */
    uint64_t n_dropped; /* of the n_past, those that full layers see no more, whole pages: see cells.h */
    /* Set by the decoder, which in the last layer narrows tokens, n_tokens and n_past to the rows from the first to the
     * last wanted one, or to none: */
    uint64_t first_row;
    uint64_t n_skipped; /* rows left out before them */
};

struct batch {
    struct batch_item *items;
    uint64_t n_items;
    uint64_t n_rows; /* set by the decoder */
};

/* The item that row belongs to. Lists are short. */
static inline const struct batch_item *batch_item_of(const struct batch *batch, uint64_t row)
{
    const struct batch_item *item = batch->items;
    while (row >= item->first_row + item->n_tokens) item++;
    return item;
}

/* Rows follow each other, item by item. */
static inline void batch_number_rows(struct batch *batch)
{
    batch->n_rows = 0;
    for (uint64_t i = 0; i < batch->n_items; i++) {
        batch->items[i].first_row = batch->n_rows;
        batch->n_rows += batch->items[i].n_tokens;
    }
}

static inline uint64_t batch_position(const struct batch_item *item, uint64_t row)
{
    return item->n_past + (row - item->first_row);
}

#endif
