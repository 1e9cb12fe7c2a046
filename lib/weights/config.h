/* Configuration of an AFMoE model, from config.json (every published spelling) or GGUF metadata.
 *
 * Defaults, spellings and ranges: docs/checkpoints.md and the table in config.c. Both containers fill the same struct
 * and pass one validation with one table of ranges, so nothing behind it divides by file data or meets an unchecked
 * size. */
#ifndef AFMOE_WEIGHTS_CONFIG_H
#define AFMOE_WEIGHTS_CONFIG_H

#include "gguf.h"
#include "tensor_table.h"

#include <jansson.h>
#include <stdbool.h>

enum { MAX_LAYERS = 1024 };

enum rope_kind { ROPE_DEFAULT, ROPE_LINEAR, ROPE_DYNAMIC, ROPE_LLAMA3, ROPE_YARN };
enum router_score { SCORE_SIGMOID, SCORE_SOFTMAX };

struct rope_config {
    enum rope_kind kind;
    double theta;
    double factor;
    uint64_t original_max_positions;
    double low_freq_factor, high_freq_factor;           /* llama3 */
    double beta_fast, beta_slow;                        /* yarn */
    bool has_attention_factor;                          /* yarn: attention_factor given */
    double attention_factor, mscale, mscale_all_dim;    /* yarn; 0 when absent */
    bool truncate;                                      /* yarn */
};

struct model_config {
    uint64_t vocab_size, hidden_size;
    uint32_t n_layers, n_dense_layers;
    uint32_t n_heads, n_kv_heads, head_dim;
    uint64_t intermediate_size, moe_intermediate_size;
    uint32_t n_experts, n_experts_per_token, n_shared_experts;
    uint32_t n_groups, n_groups_chosen; /* n_group, topk_group */
    enum router_score score;
    bool route_norm;
    double route_scale;
    bool mup_enabled, tie_word_embeddings, attention_bias;
    double rms_norm_eps;
    uint64_t sliding_window; /* 0 only when no layer slides */
    uint64_t max_positions;
    struct rope_config rope;
    bool layer_is_full[MAX_LAYERS]; /* layer_types: the list decides, never the period */
    int32_t bos_token, eos_token, pad_token; /* -1: none; a list of eos: its first, see generation config */
};

/* `document`: the whole config.json. UNSUPPORTED for another architecture or a variant not known, FORMAT naming the
 * key for everything malformed or out of range. */
afmoe_status afmoe__config_from_json(struct model_config *out, const json_t *document, const char *file,
                                     afmoe_error *error);
/* tie_word_embeddings and vocab_size (where no key says it) follow from `tensors`, sorted, of all parts. */
afmoe_status afmoe__config_from_gguf(struct model_config *out, const struct gguf *gguf,
                                     const struct tensor_table *tensors, afmoe_error *error);

/* bos, eos and pad alone, for opening without weights; other fields stay as they are. */
afmoe_status afmoe__config_tokens_from_json(struct model_config *out, const json_t *document, const char *file,
                                            afmoe_error *error);
afmoe_status afmoe__config_tokens_from_gguf(struct model_config *out, const struct gguf *gguf, afmoe_error *error);

#endif
