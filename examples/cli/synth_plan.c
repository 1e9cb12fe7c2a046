/* The tensors of an AFMoE model: names, shapes and order as llama.cpp's converter and the hub's checkpoints have them.
 *
 * In a name '%' stands for the layer, then for the expert. Norms, the router and its bias are F32 in every file. */
#include "synth.h"

#include <stdlib.h>
#include <string.h>

enum scope { MODEL, LAYER, DENSE, MIXTURE };
enum part { PLAIN, OUTPUT, VALUES_OR_DOWN, SINGLE /* F32 always */ };

/* A size by its place in the array that sizes_of fills. */
enum size { NONE, VOCAB, HIDDEN, HEAD_DIM, QUERIES, KEYS, DENSE_WIDTH, EXPERT_WIDTH, EXPERTS, N_SIZES };

static const struct row {
    const char *gguf, *hub;
    enum scope scope;
    enum size rows, columns; /* a vector has no columns */
    enum part part;
    enum content content;
    bool expert; /* stacked in GGUF, one each in safetensors */
} rows[] = {
    {"token_embd.weight", "model.embed_tokens.weight", MODEL, VOCAB, HIDDEN, PLAIN, CONTENT_WEIGHTS, false},
    {"output_norm.weight", "model.norm.weight", MODEL, HIDDEN, NONE, SINGLE, CONTENT_NORM, false},
    {"output.weight", "lm_head.weight", MODEL, VOCAB, HIDDEN, OUTPUT, CONTENT_WEIGHTS, false},
#define ROW(gguf, hub) "blk.%." gguf, "model.layers.%." hub
    {ROW("attn_norm.weight", "input_layernorm.weight"), LAYER, HIDDEN, NONE, SINGLE, CONTENT_NORM, false},
    {ROW("post_attention_norm.weight", "post_attention_layernorm.weight"), LAYER, HIDDEN, NONE, SINGLE, CONTENT_NORM,
     false},
    {ROW("ffn_norm.weight", "pre_mlp_layernorm.weight"), LAYER, HIDDEN, NONE, SINGLE, CONTENT_NORM, false},
    {ROW("post_ffw_norm.weight", "post_mlp_layernorm.weight"), LAYER, HIDDEN, NONE, SINGLE, CONTENT_NORM, false},
    {ROW("attn_q_norm.weight", "self_attn.q_norm.weight"), LAYER, HEAD_DIM, NONE, SINGLE, CONTENT_NORM, false},
    {ROW("attn_k_norm.weight", "self_attn.k_norm.weight"), LAYER, HEAD_DIM, NONE, SINGLE, CONTENT_NORM, false},
    {ROW("attn_q.weight", "self_attn.q_proj.weight"), LAYER, QUERIES, HIDDEN, PLAIN, CONTENT_WEIGHTS, false},
    {ROW("attn_k.weight", "self_attn.k_proj.weight"), LAYER, KEYS, HIDDEN, PLAIN, CONTENT_WEIGHTS, false},
    {ROW("attn_v.weight", "self_attn.v_proj.weight"), LAYER, KEYS, HIDDEN, VALUES_OR_DOWN, CONTENT_WEIGHTS, false},
    {ROW("attn_gate.weight", "self_attn.gate_proj.weight"), LAYER, QUERIES, HIDDEN, PLAIN, CONTENT_WEIGHTS, false},
    {ROW("attn_output.weight", "self_attn.o_proj.weight"), LAYER, HIDDEN, QUERIES, PLAIN, CONTENT_WEIGHTS, false},
    {ROW("ffn_gate.weight", "mlp.gate_proj.weight"), DENSE, DENSE_WIDTH, HIDDEN, PLAIN, CONTENT_WEIGHTS, false},
    {ROW("ffn_up.weight", "mlp.up_proj.weight"), DENSE, DENSE_WIDTH, HIDDEN, PLAIN, CONTENT_WEIGHTS, false},
    {ROW("ffn_down.weight", "mlp.down_proj.weight"), DENSE, HIDDEN, DENSE_WIDTH, VALUES_OR_DOWN, CONTENT_WEIGHTS,
     false},
    {ROW("ffn_gate_inp.weight", "mlp.router.gate.weight"), MIXTURE, EXPERTS, HIDDEN, SINGLE, CONTENT_WEIGHTS, false},
    {ROW("exp_probs_b.bias", "mlp.expert_bias"), MIXTURE, EXPERTS, NONE, SINGLE, CONTENT_BIAS, false},
    {ROW("ffn_gate_exps.weight", "mlp.experts.%.gate_proj.weight"), MIXTURE, EXPERT_WIDTH, HIDDEN, PLAIN,
     CONTENT_WEIGHTS, true},
    {ROW("ffn_up_exps.weight", "mlp.experts.%.up_proj.weight"), MIXTURE, EXPERT_WIDTH, HIDDEN, PLAIN, CONTENT_WEIGHTS,
     true},
    {ROW("ffn_down_exps.weight", "mlp.experts.%.down_proj.weight"), MIXTURE, HIDDEN, EXPERT_WIDTH, VALUES_OR_DOWN,
     CONTENT_WEIGHTS, true},
    {ROW("ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight"), MIXTURE, EXPERT_WIDTH, HIDDEN, PLAIN,
     CONTENT_WEIGHTS, false},
    {ROW("ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight"), MIXTURE, EXPERT_WIDTH, HIDDEN, PLAIN,
     CONTENT_WEIGHTS, false},
    {ROW("ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight"), MIXTURE, HIDDEN, EXPERT_WIDTH,
     VALUES_OR_DOWN, CONTENT_WEIGHTS, false},
#undef ROW
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static void sizes_of(const struct shape *s, uint64_t sizes[N_SIZES])
{
    sizes[NONE] = 0;
    sizes[VOCAB] = s->vocab;
    sizes[HIDDEN] = s->hidden;
    sizes[HEAD_DIM] = s->head_dim;
    sizes[QUERIES] = (uint64_t)s->n_heads * s->head_dim;
    sizes[KEYS] = (uint64_t)s->n_kv_heads * s->head_dim;
    sizes[DENSE_WIDTH] = s->dense_width;
    sizes[EXPERT_WIDTH] = s->expert_width;
    sizes[EXPERTS] = s->n_experts;
}

uint64_t tensor_bytes(const struct tensor *t)
{
    uint64_t n = 1;
    for (unsigned i = 0; i < t->n_dims; i++) n *= t->dims[i];
    return n / t->format->elements * t->format->bytes; /* all shapes are known: no product comes near 2^64 */
}

/* The layers where llama.cpp's mixes spend more bits (use_more_bits in its quantiser). */
static bool counts_more(unsigned layer, unsigned n_layers)
{
    unsigned eighth = n_layers / 8;
    return layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2;
}

static const struct format *format_of(const struct row *row, const struct format *format, unsigned layer,
                                      unsigned n_layers)
{
    if (row->part == SINGLE) return format_f32;
    if (!format->better || row->part == PLAIN) return format;
    return row->part == OUTPUT || counts_more(layer, n_layers) ? format->better : format;
}

static bool add(struct plan *plan, const struct tensor *tensor)
{
    if (plan->n == plan->capacity) {
        plan->capacity = plan->capacity ? 2 * plan->capacity : 1024;
        struct tensor *tensors = realloc(plan->tensors, plan->capacity * sizeof *tensors);
        if (!tensors) {
            complain("out of memory: %zu tensors", plan->capacity);
            return false;
        }
        plan->tensors = tensors;
    }
    plan->tensors[plan->n++] = *tensor;
    plan->n_bytes += tensor_bytes(tensor);
    return true;
}

/* `pattern` with its first '%' as layer and the second as expert. */
static void print_name(char *out, size_t capacity, const char *pattern, unsigned layer, unsigned expert)
{
    unsigned numbers[2] = {layer, expert};
    size_t n = 0, n_numbers = 0;
    for (; *pattern && n + 16 < capacity; pattern++) {
        if (*pattern != '%') out[n++] = *pattern;
        else n += (size_t)snprintf(out + n, capacity - n, "%u", numbers[n_numbers++ % 2]);
    }
    out[n] = '\0';
}

static bool add_row(struct plan *plan, const struct row *row, const struct shape *shape, const struct format *format,
                    bool hub, unsigned layer)
{
    uint64_t sizes[N_SIZES];
    sizes_of(shape, sizes);
    struct tensor t = {.content = row->content, .format = format_of(row, format, layer, shape->n_layers)};
    if (row->expert && !hub) t.dims[t.n_dims++] = shape->n_experts;
    t.dims[t.n_dims++] = sizes[row->rows];
    if (row->columns) t.dims[t.n_dims++] = sizes[row->columns];
    unsigned n = row->expert && hub ? shape->n_experts : 1;
    for (unsigned expert = 0; expert < n; expert++) {
        print_name(t.name, sizeof t.name, hub ? row->hub : row->gguf, layer, expert);
        if (!add(plan, &t)) return false;
    }
    return true;
}

static bool has_row(const struct row *row, const struct shape *shape, unsigned layer)
{
    if (row->scope == LAYER) return true;
    return row->scope == (layer < shape->n_dense_layers ? DENSE : MIXTURE);
}

bool plan_make(struct plan *plan, const struct shape *shape, const struct format *format, bool hub)
{
    for (int i = 0; i < N_ROWS; i++)
        if (rows[i].scope == MODEL && !add_row(plan, &rows[i], shape, format, hub, 0)) return false;
    for (unsigned layer = 0; layer < shape->n_layers; layer++)
        for (int i = 0; i < N_ROWS; i++)
            if (has_row(&rows[i], shape, layer) && !add_row(plan, &rows[i], shape, format, hub, layer)) return false;
    return true;
}

void plan_free(struct plan *plan)
{
    free(plan->tensors);
    *plan = (struct plan){0};
}
