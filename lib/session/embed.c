/* Embeddings: final hidden states of a timeline pooled into one vector,
 *
 *   mean: v = (h_0 + ... + h_(n-1)) / n      last: v = h_(n-1)      normalized: v / |v|
 *
 * summed in float64, in the order of positions. */
#include "append_check.h"
#include "context_private.h"
#include "error.h"
#include "memory.h"
#include "session_private.h"

#include <math.h>

/* The total over n positions as one vector: divided, and scaled to length 1 where asked for. */
static afmoe_status finish_pooling(const struct pooling *pooling, uint64_t n, uint64_t hidden_size, bool normalize,
                                   float *out, afmoe_error *error)
{
    double scale = pooling->kind == AFMOE_POOL_MEAN ? 1.0 / (double)n : 1.0, squares = 0;
    for (uint64_t i = 0; i < hidden_size; i++) squares += pooling->total[i] * pooling->total[i];
    if (!isfinite(squares)) return afmoe__fail(error, AFMOE_NUMERIC, "the pooled hidden state is not finite");
    if (normalize) {
        if (squares == 0)
            return afmoe__fail(error, AFMOE_NUMERIC, "the pooled hidden state is zero and has no direction");
        scale = 1.0 / sqrt(squares);
    }
    for (uint64_t i = 0; i < hidden_size; i++) out[i] = (float)(pooling->total[i] * scale);
    return AFMOE_OK;
}

/* Hidden states of the positions kept are not kept: for a mean all are computed, for the last one as sync would. */
afmoe_status afmoe__session_embed(struct session *session, const afmoe_token *tokens, uint64_t n_tokens,
                                  int32_t pooling, bool normalize, const afmoe_cancel *cancel, float *out,
                                  afmoe_error *error)
{
    const afmoe_append_options options = {.size = sizeof options, .cancel = cancel};
    uint64_t hidden_size = session->timeline.context->config->hidden_size, keep = 0;
    afmoe_append_result result;
    const struct timeline *timeline = &session->timeline;
    afmoe_status status = afmoe__append_check_room(timeline, timeline->n_tokens, 0, n_tokens, error);
    if (status == AFMOE_OK) status = afmoe__append_check_tokens(timeline, tokens, n_tokens, error);
    if (status != AFMOE_OK) return status;
    if (pooling == AFMOE_POOL_LAST) keep = afmoe__timeline_common_prefix(timeline, tokens, n_tokens);
    if (keep == n_tokens) keep--;
    keep = afmoe__timeline_restart(timeline, keep);
    status = afmoe__append_check_room(timeline, keep, 0, n_tokens, error);
    if (status != AFMOE_OK) return status;
    struct pooling pooled = {.kind = pooling, .total = afmoe__alloc_zeroed(hidden_size, sizeof(double))};
    if (!pooled.total) return afmoe__fail_memory(error, hidden_size * sizeof(double), "a pooled hidden state");
    status =
        afmoe__session_grow(session, keep, tokens + keep, n_tokens - keep, &options, &pooled, &result, error);
    if (status != AFMOE_CONTEXT_FULL) session->stats.n_reused += keep;
    if (status == AFMOE_OK) status = finish_pooling(&pooled, n_tokens, hidden_size, normalize, out, error);
    afmoe__free(pooled.total);
    return status;
}
