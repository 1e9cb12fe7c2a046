/* The decoder: one pass of a batch of rows through all layers, and the head for the rows that want it.
 *
 * Owns the engine and all scratch, sized once for `max_rows`; a pass allocates nothing. One pass at a time. */
#ifndef AFMOE_CORE_DECODER_H
#define AFMOE_CORE_DECODER_H

#include "batch.h"
#include "pool.h"
#include "weights.h"

struct decoder;

struct decoder_options {
    int32_t cpu_level; /* a level the CPU has */
    enum precision precision;
    struct pool_options threads;
    enum cell_format cells;
    uint64_t max_rows;
};

/* `config` and `weights` must outlive the decoder. */
afmoe_status afmoe__decoder_create(struct decoder **out, const struct model_config *config,
                                   const struct model_weights *weights, const struct decoder_options *options,
                                   afmoe_error *error);
void afmoe__decoder_free(struct decoder *decoder);
int32_t afmoe__decoder_cpu_level(const struct decoder *decoder);
const struct kernels *afmoe__decoder_kernels(const struct decoder *decoder);
/* Of a decoder that is there, or would be made with these options: the same number. */
uint64_t afmoe__decoder_scratch_bytes(const struct decoder *decoder);
uint64_t afmoe__decoder_scratch_needed(const struct model_config *config, const struct decoder_options *options);

/* Receives the head of one wanted row: `hidden` after the final norm and `logits` (NULL for hidden_only), both borrowed
 * for the call. Rows come item by item, rising. */
typedef void (*decoder_row_fn)(void *user, uint64_t item, uint64_t row, const float *hidden, const float *logits);

/* For instruments: sees inside a pass. Any pointer may be NULL. */
struct decoder_trace {
    void *user;
    /* The residual stream entering `layer`: [n_rows][hidden_size]. */
    void (*residual)(void *user, uint32_t layer, const float *h, uint64_t n_rows);
    /* Router of a mixture layer: logits [n_rows][n_experts], ids and weights [n_rows][k]. */
    void (*router)(void *user, uint32_t layer, const float *logits, const uint32_t *ids, const float *weights,
                   uint64_t n_rows);
};

/* Compute the batch (at most max_rows) and store the cells of all its rows; wanted ones are given to `on_row`. Items
 * are changed (batch.h): fill them anew for each pass. CANCELLED when `cancel` is set or the host's parallel-for says
 * stop: cells of this pass are then worthless, everything before it is untouched; the head of rows before the last one
 * may have been given out. */
afmoe_status afmoe__decoder_pass(struct decoder *decoder, struct batch *batch, decoder_row_fn on_row, void *user,
                                 const struct decoder_trace *trace, const afmoe_cancel *cancel, afmoe_error *error);

#endif
