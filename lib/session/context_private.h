/* Inside of a context, for this floor only. */
#ifndef AFMOE_SESSION_CONTEXT_PRIVATE_H
#define AFMOE_SESSION_CONTEXT_PRIVATE_H

#include "context.h"
#include "decoder.h"
#include "page_plan.h"
#include "pages.h"
#include "prefix_folder.h"
#include "prefixes.h"
#include "turns.h"

#include <stdatomic.h>
#include <sys/types.h>

/* The batch of a pass, for whoever has the turn: one row at least an item. */
struct pass_buffers {
    struct batch_item *items;  /* [chunk_tokens] */
    struct session **sessions; /* [chunk_tokens] */
};

struct context {
    const struct model_config *config;
    const struct model_weights *weights;
    struct decoder *decoder; /* used by whoever has the turn */
    struct pass_buffers pass;
    uint8_t *pass_block; /* what they lie in */
    struct page_store *pages;
    struct prefixes *prefixes;
    struct prefix_folder *prefix_folder; /* NULL: none */
    struct turns turns;
    pid_t owner; /* the process it was created in */
    bool has_turns;
    uint32_t n_threads;
    int32_t precision, cells; /* AFMOE_PRECISION_*, AFMOE_CELLS_* */
    enum cell_format cell_format;
    uint64_t max_tokens;
    struct page_plan plan;
    _Atomic uint64_t n_sessions, n_draft_bytes;
    _Atomic uint64_t session_bytes; /* of all sessions, pages and drafts left out */
};

#endif
