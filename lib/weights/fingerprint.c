/* Fingerprint, see fingerprint.h: XXH3 of
 *
 *   every field of the configuration that computing depends on; name, format, shape and bytes of each tensor used; and
 *   64 bytes from the middle of at most 512 of them, evenly spread over the names
 *
 * so that it costs no more than opening does, whatever the size of the model. Two trainings differ in nearly every
 * weight, hence in what is looked at; a file that was changed on purpose, elsewhere, is not noticed. Names of files do
 * not count. */
#include "fingerprint.h"

#include "bytes.h"
#include "checksum.h"

#include <string.h>

enum { MAX_SAMPLES = 512, SAMPLE_BYTES = 64 };

static void add_number(struct checksum *checksum, uint64_t value)
{
    uint8_t bytes[8];
    store_le64(bytes, value);
    checksum_add(checksum, bytes, sizeof bytes);
}

static void add_real(struct checksum *checksum, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_number(checksum, bits);
}

static void add_text(struct checksum *checksum, const char *text)
{
    checksum_add(checksum, text, strlen(text) + 1);
}

static void add_config(struct checksum *checksum, const struct model_config *config)
{
    const struct rope_config *rope = &config->rope;
    const uint64_t numbers[] = {
        config->vocab_size, config->hidden_size, config->n_layers, config->n_dense_layers, config->n_heads,
        config->n_kv_heads, config->head_dim, config->intermediate_size, config->moe_intermediate_size,
        config->n_experts, config->n_experts_per_token, config->n_shared_experts, config->n_groups,
        config->n_groups_chosen, config->score, config->route_norm, config->mup_enabled, config->tie_word_embeddings,
        config->attention_bias, config->sliding_window, config->max_positions, rope->kind,
        rope->original_max_positions, rope->has_attention_factor, rope->truncate};
    const double reals[] = {config->route_scale, config->rms_norm_eps, rope->theta, rope->factor, rope->low_freq_factor,
                            rope->high_freq_factor, rope->beta_fast, rope->beta_slow, rope->attention_factor,
                            rope->mscale, rope->mscale_all_dim};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) add_number(checksum, numbers[i]);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) add_real(checksum, reals[i]);
    for (uint32_t layer = 0; layer < config->n_layers; layer++) add_number(checksum, config->layer_is_full[layer]);
}

static void add_tensor(struct checksum *checksum, const struct tensor *tensor)
{
    add_text(checksum, tensor->name);
    add_text(checksum, tensor->type_name);
    add_number(checksum, tensor->n_dims);
    for (uint32_t i = 0; i < tensor->n_dims; i++) add_number(checksum, tensor->shape[i]);
    add_number(checksum, tensor->n_bytes);
}

static void add_sample(struct checksum *checksum, const struct tensor *tensor)
{
    uint64_t n = tensor->n_bytes < SAMPLE_BYTES ? tensor->n_bytes : SAMPLE_BYTES;
    checksum_add(checksum, tensor->data + (tensor->n_bytes - n) / 2, n);
}

uint64_t afmoe__checkpoint_fingerprint(const struct checkpoint *checkpoint)
{
    const struct tensor_table *table = &checkpoint->tensors;
    uint64_t step = table->n > MAX_SAMPLES ? table->n / MAX_SAMPLES + 1 : 1;
    struct checksum checksum;
    checksum_begin(&checksum);
    add_config(&checksum, &checkpoint->config);
    for (uint64_t i = 0; i < table->n; i++) {
        if (!table->tensors[i].is_used) continue;
        add_tensor(&checksum, &table->tensors[i]);
        if (i % step == 0) add_sample(&checksum, &table->tensors[i]);
    }
    return checksum_end(&checksum);
}
