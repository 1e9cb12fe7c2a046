/* Binds the tensors of a checkpoint to the model's weights: how each layout names them and what shape they have. */
#ifndef AFMOE_WEIGHTS_LAYOUT_H
#define AFMOE_WEIGHTS_LAYOUT_H

#include "tensor_table.h"
#include "weights.h"

/* Memory behind a bound view: float32 copies of the vectors and the lists of layers and experts. */
struct bound_memory {
    struct bound_block *blocks;
    uint64_t n_bytes;
};

struct layout_options {
    bool is_gguf; /* else one of the hub's, told apart by the names */
    bool strict;  /* surplus tensors are FORMAT instead of a warning */
    afmoe_log_fn log;
    void *log_data;
};

/* `table` is sorted; marks what is used. FORMAT for a tensor that is missing or has another shape than the
 * configuration asks for, UNSUPPORTED for a format there are no kernels for. On failure `memory` holds nothing. Looks at
 * no byte of a tensor. */
afmoe_status afmoe__layout_bind(struct model_weights *out, struct bound_memory *memory, int32_t *out_layout,
                                struct tensor_table *table, const struct model_config *config,
                                const struct layout_options *options, afmoe_error *error);
/* Fill the vectors, which are zero until then: what a bound view needs of the tensors' bytes, once these are there. The
 * table must be as it was bound. */
void afmoe__layout_read_vectors(struct bound_memory *memory);
/* AFMOE_LAYOUT_* by the names alone. */
int32_t afmoe__layout_find(const struct tensor_table *table, const struct model_config *config, bool is_gguf);
void afmoe__layout_free(struct bound_memory *memory);

#endif
