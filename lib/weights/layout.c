/* The names and shapes of tensors in each layout, one table each, and the walk that binds them, see layout.h.
 *
 * In a pattern the first '%' stands for the layer, the second for the expert. Shapes are listed slowest dimension
 * first, so rows before columns; GGUF files list them the other way round. */
#include "layout.h"

#include "bytes.h"
#include "checked.h"
#include "error.h"
#include "half.h"
#include "memory.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- Tables ----------------------------------------------------------------------------------------------------- */

enum size { NO_SIZE, VOCAB, HIDDEN, HEAD_DIM, QUERIES, KEYS, DENSE_WIDTH, EXPERT_WIDTH, GATE_UP_WIDTH, SHARED_WIDTH,
            EXPERTS, N_SIZES };

static const struct {
    const char *hub, *gguf;
} size_texts[N_SIZES] = {
    [VOCAB] = {"vocab_size", "vocab_size"},
    [HIDDEN] = {"hidden_size", "embedding_length"},
    [HEAD_DIM] = {"head_dim", "key_length"},
    [QUERIES] = {"num_attention_heads * head_dim", "head_count * key_length"},
    [KEYS] = {"num_key_value_heads * head_dim", "head_count_kv * key_length"},
    [DENSE_WIDTH] = {"intermediate_size", "feed_forward_length"},
    [EXPERT_WIDTH] = {"moe_intermediate_size", "expert_feed_forward_length"},
    [GATE_UP_WIDTH] = {"2 * moe_intermediate_size", "2 * expert_feed_forward_length"},
    [SHARED_WIDTH] = {"num_shared_experts * moe_intermediate_size", "expert_shared_count * expert_feed_forward_length"},
    [EXPERTS] = {"num_experts", "expert_count"},
};

/* Which layers have the tensor; MODEL: outside of layers. */
enum scope { MODEL, LAYER, DENSE, MIXTURE };

enum kind {
    MATRIX,
    VECTOR,
    EXPERT_MATRIX, /* one tensor for each expert */
    EXPERT_STACK,  /* one tensor [experts, rows, columns] */
    EXPERT_GATE_UP /* the same, gate rows before up rows */
};

enum condition { ALWAYS, UNLESS_TIED, WITH_BIAS, WITH_SHARED, IGNORED };

struct binding {
    const char *name, *other_name;
    enum scope scope;
    enum kind kind;
    enum condition condition;
    enum size shape[3];
    size_t offset; /* in model_weights (MODEL), ffn_weights (EXPERT_*) or layer_weights */
};

#define IN_MODEL(member) offsetof(struct model_weights, member)
#define IN_LAYER(member) offsetof(struct layer_weights, member)
#define IN_FFN(member) offsetof(struct ffn_weights, member)
#define HUB "model.layers.%."

static const struct binding hub_common[] = {
    {"model.embed_tokens.weight", 0, MODEL, MATRIX, ALWAYS, {VOCAB, HIDDEN}, IN_MODEL(embedding)},
    {"model.norm.weight", 0, MODEL, VECTOR, ALWAYS, {HIDDEN}, IN_MODEL(norm)},
    {"lm_head.weight", 0, MODEL, MATRIX, UNLESS_TIED, {VOCAB, HIDDEN}, IN_MODEL(head)},
    {HUB "input_layernorm.weight", 0, LAYER, VECTOR, ALWAYS, {HIDDEN}, IN_LAYER(input_norm)},
    {HUB "post_attention_layernorm.weight", 0, LAYER, VECTOR, ALWAYS, {HIDDEN}, IN_LAYER(post_attention_norm)},
    {HUB "pre_mlp_layernorm.weight", 0, LAYER, VECTOR, ALWAYS, {HIDDEN}, IN_LAYER(pre_mlp_norm)},
    {HUB "post_mlp_layernorm.weight", 0, LAYER, VECTOR, ALWAYS, {HIDDEN}, IN_LAYER(post_mlp_norm)},
    {HUB "self_attn.q_norm.weight", 0, LAYER, VECTOR, ALWAYS, {HEAD_DIM}, IN_LAYER(q_norm)},
    {HUB "self_attn.k_norm.weight", 0, LAYER, VECTOR, ALWAYS, {HEAD_DIM}, IN_LAYER(k_norm)},
    {HUB "self_attn.q_proj.weight", 0, LAYER, MATRIX, ALWAYS, {QUERIES, HIDDEN}, IN_LAYER(q)},
    {HUB "self_attn.k_proj.weight", 0, LAYER, MATRIX, ALWAYS, {KEYS, HIDDEN}, IN_LAYER(k)},
    {HUB "self_attn.v_proj.weight", 0, LAYER, MATRIX, ALWAYS, {KEYS, HIDDEN}, IN_LAYER(v)},
    {HUB "self_attn.gate_proj.weight", 0, LAYER, MATRIX, ALWAYS, {QUERIES, HIDDEN}, IN_LAYER(gate)},
    {HUB "self_attn.o_proj.weight", 0, LAYER, MATRIX, ALWAYS, {HIDDEN, QUERIES}, IN_LAYER(o)},
    {HUB "self_attn.q_proj.bias", 0, LAYER, VECTOR, WITH_BIAS, {QUERIES}, IN_LAYER(q_bias)},
    {HUB "self_attn.k_proj.bias", 0, LAYER, VECTOR, WITH_BIAS, {KEYS}, IN_LAYER(k_bias)},
    {HUB "self_attn.v_proj.bias", 0, LAYER, VECTOR, WITH_BIAS, {KEYS}, IN_LAYER(v_bias)},
    {HUB "self_attn.o_proj.bias", 0, LAYER, VECTOR, WITH_BIAS, {HIDDEN}, IN_LAYER(o_bias)},
    {HUB "mlp.gate_proj.weight", 0, DENSE, MATRIX, ALWAYS, {DENSE_WIDTH, HIDDEN}, IN_LAYER(mlp.gate)},
    {HUB "mlp.up_proj.weight", 0, DENSE, MATRIX, ALWAYS, {DENSE_WIDTH, HIDDEN}, IN_LAYER(mlp.up)},
    {HUB "mlp.down_proj.weight", 0, DENSE, MATRIX, ALWAYS, {HIDDEN, DENSE_WIDTH}, IN_LAYER(mlp.down)},
    {HUB "mlp.router.gate.weight", 0, MIXTURE, MATRIX, ALWAYS, {EXPERTS, HIDDEN}, IN_LAYER(router)},
    {HUB "mlp.expert_bias", 0, MIXTURE, VECTOR, ALWAYS, {EXPERTS}, IN_LAYER(expert_bias)},
    /* A counter of training. */
    {HUB "mlp.tokens_per_expert", 0, MIXTURE, VECTOR, IGNORED, {EXPERTS}, 0},
};

static const struct binding hub_shared[] = {
    {HUB "mlp.shared_experts.gate_proj.weight", 0, MIXTURE, MATRIX, WITH_SHARED, {SHARED_WIDTH, HIDDEN},
     IN_LAYER(shared.gate)},
    {HUB "mlp.shared_experts.up_proj.weight", 0, MIXTURE, MATRIX, WITH_SHARED, {SHARED_WIDTH, HIDDEN},
     IN_LAYER(shared.up)},
    {HUB "mlp.shared_experts.down_proj.weight", 0, MIXTURE, MATRIX, WITH_SHARED, {HIDDEN, SHARED_WIDTH},
     IN_LAYER(shared.down)},
};

static const struct binding hub_experts[] = {
    {HUB "mlp.experts.%.gate_proj.weight", 0, MIXTURE, EXPERT_MATRIX, ALWAYS, {EXPERT_WIDTH, HIDDEN}, IN_FFN(gate)},
    {HUB "mlp.experts.%.up_proj.weight", 0, MIXTURE, EXPERT_MATRIX, ALWAYS, {EXPERT_WIDTH, HIDDEN}, IN_FFN(up)},
    {HUB "mlp.experts.%.down_proj.weight", 0, MIXTURE, EXPERT_MATRIX, ALWAYS, {HIDDEN, EXPERT_WIDTH}, IN_FFN(down)},
};

static const struct binding stacked_experts[] = {
    {HUB "mlp.experts.gate_up_proj", 0, MIXTURE, EXPERT_GATE_UP, ALWAYS, {EXPERTS, GATE_UP_WIDTH, HIDDEN}, 0},
    {HUB "mlp.experts.down_proj", 0, MIXTURE, EXPERT_STACK, ALWAYS, {EXPERTS, HIDDEN, EXPERT_WIDTH}, IN_FFN(down)},
};

static const struct binding prime_rl_experts[] = {
    {HUB "mlp.experts.w1", 0, MIXTURE, EXPERT_STACK, ALWAYS, {EXPERTS, EXPERT_WIDTH, HIDDEN}, IN_FFN(gate)},
    {HUB "mlp.experts.w3", 0, MIXTURE, EXPERT_STACK, ALWAYS, {EXPERTS, EXPERT_WIDTH, HIDDEN}, IN_FFN(up)},
    {HUB "mlp.experts.w2", 0, MIXTURE, EXPERT_STACK, ALWAYS, {EXPERTS, HIDDEN, EXPERT_WIDTH}, IN_FFN(down)},
    {HUB "mlp.shared_expert.w1.weight", 0, MIXTURE, MATRIX, WITH_SHARED, {SHARED_WIDTH, HIDDEN},
     IN_LAYER(shared.gate)},
    {HUB "mlp.shared_expert.w3.weight", 0, MIXTURE, MATRIX, WITH_SHARED, {SHARED_WIDTH, HIDDEN}, IN_LAYER(shared.up)},
    {HUB "mlp.shared_expert.w2.weight", 0, MIXTURE, MATRIX, WITH_SHARED, {HIDDEN, SHARED_WIDTH},
     IN_LAYER(shared.down)},
};

static const struct binding gguf_tensors[] = {
    {"token_embd.weight", 0, MODEL, MATRIX, ALWAYS, {VOCAB, HIDDEN}, IN_MODEL(embedding)},
    {"output_norm.weight", 0, MODEL, VECTOR, ALWAYS, {HIDDEN}, IN_MODEL(norm)},
    {"output.weight", 0, MODEL, MATRIX, UNLESS_TIED, {VOCAB, HIDDEN}, IN_MODEL(head)},
    {"blk.%.attn_norm.weight", 0, LAYER, VECTOR, ALWAYS, {HIDDEN}, IN_LAYER(input_norm)},
    {"blk.%.post_attention_norm.weight", 0, LAYER, VECTOR, ALWAYS, {HIDDEN}, IN_LAYER(post_attention_norm)},
    {"blk.%.ffn_norm.weight", 0, LAYER, VECTOR, ALWAYS, {HIDDEN}, IN_LAYER(pre_mlp_norm)},
    {"blk.%.post_ffw_norm.weight", 0, LAYER, VECTOR, ALWAYS, {HIDDEN}, IN_LAYER(post_mlp_norm)},
    {"blk.%.attn_q_norm.weight", 0, LAYER, VECTOR, ALWAYS, {HEAD_DIM}, IN_LAYER(q_norm)},
    {"blk.%.attn_k_norm.weight", 0, LAYER, VECTOR, ALWAYS, {HEAD_DIM}, IN_LAYER(k_norm)},
    {"blk.%.attn_q.weight", 0, LAYER, MATRIX, ALWAYS, {QUERIES, HIDDEN}, IN_LAYER(q)},
    {"blk.%.attn_k.weight", 0, LAYER, MATRIX, ALWAYS, {KEYS, HIDDEN}, IN_LAYER(k)},
    {"blk.%.attn_v.weight", 0, LAYER, MATRIX, ALWAYS, {KEYS, HIDDEN}, IN_LAYER(v)},
    {"blk.%.attn_gate.weight", 0, LAYER, MATRIX, ALWAYS, {QUERIES, HIDDEN}, IN_LAYER(gate)},
    {"blk.%.attn_output.weight", 0, LAYER, MATRIX, ALWAYS, {HIDDEN, QUERIES}, IN_LAYER(o)},
    {"blk.%.ffn_gate.weight", 0, DENSE, MATRIX, ALWAYS, {DENSE_WIDTH, HIDDEN}, IN_LAYER(mlp.gate)},
    {"blk.%.ffn_up.weight", 0, DENSE, MATRIX, ALWAYS, {DENSE_WIDTH, HIDDEN}, IN_LAYER(mlp.up)},
    {"blk.%.ffn_down.weight", 0, DENSE, MATRIX, ALWAYS, {HIDDEN, DENSE_WIDTH}, IN_LAYER(mlp.down)},
    {"blk.%.ffn_gate_inp.weight", 0, MIXTURE, MATRIX, ALWAYS, {EXPERTS, HIDDEN}, IN_LAYER(router)},
    {"blk.%.exp_probs_b.bias", "blk.%.exp_probs_b.weight", MIXTURE, VECTOR, ALWAYS, {EXPERTS}, IN_LAYER(expert_bias)},
    {"blk.%.ffn_gate_exps.weight", 0, MIXTURE, EXPERT_STACK, ALWAYS, {EXPERTS, EXPERT_WIDTH, HIDDEN}, IN_FFN(gate)},
    {"blk.%.ffn_up_exps.weight", 0, MIXTURE, EXPERT_STACK, ALWAYS, {EXPERTS, EXPERT_WIDTH, HIDDEN}, IN_FFN(up)},
    {"blk.%.ffn_down_exps.weight", 0, MIXTURE, EXPERT_STACK, ALWAYS, {EXPERTS, HIDDEN, EXPERT_WIDTH}, IN_FFN(down)},
    {"blk.%.ffn_gate_shexp.weight", 0, MIXTURE, MATRIX, WITH_SHARED, {SHARED_WIDTH, HIDDEN}, IN_LAYER(shared.gate)},
    {"blk.%.ffn_up_shexp.weight", 0, MIXTURE, MATRIX, WITH_SHARED, {SHARED_WIDTH, HIDDEN}, IN_LAYER(shared.up)},
    {"blk.%.ffn_down_shexp.weight", 0, MIXTURE, MATRIX, WITH_SHARED, {HIDDEN, SHARED_WIDTH}, IN_LAYER(shared.down)},
};

#define PART(table) {table, sizeof table / sizeof *table}

/* Parts are bound in this order, layer by layer; a part that is not there has no rows. */
static const struct {
    struct {
        const struct binding *rows;
        size_t n;
    } parts[3];
} layouts[] = {
    [AFMOE_LAYOUT_HUB] = {{PART(hub_common), PART(hub_shared), PART(hub_experts)}},
    [AFMOE_LAYOUT_STACKED] = {{PART(hub_common), PART(hub_shared), PART(stacked_experts)}},
    [AFMOE_LAYOUT_PRIME_RL] = {{PART(hub_common), PART(prime_rl_experts)}},
    [AFMOE_LAYOUT_GGUF] = {{PART(gguf_tensors)}},
};

/* Tensors that only quantised checkpoints have, the most telling first: their presence names the format. */
static const struct {
    const char *suffix, *format;
} quantised_signs[] = {
    {".weight_scale_inv", "FP8 blocks (weight_scale_inv)"},
    {".weight_global_scale", "NVFP4 (compressed-tensors)"},
    {".weight_scale_2", "NVFP4 (ModelOpt)"},
    {".weight_zero_point", "packed 4-bit integers with zero points (compressed-tensors)"},
    {".weight_packed", "packed 4-bit integers (compressed-tensors)"},
    {".weight_scale", "FP8 blocks (compressed-tensors)"},
    {".scales", "MLX"},
    {".qweight", "GPTQ or AWQ"},
};

/* ---- Owned memory ----------------------------------------------------------------------------------------------- */

struct bound_block {
    struct bound_block *next;
    const struct tensor *vector; /* of which this is the copy; NULL: of none */
    union {
        float floats[1];
        void *pointers[1];
        uint64_t numbers[1];
    } data; /* aligned for everything stored here; runs on past its end */
};

static void *own(struct bound_memory *memory, uint64_t n, uint64_t element_bytes)
{
    uint64_t total;
    if (!checked_mul(n, element_bytes, &total) || !checked_add(total, sizeof(struct bound_block), &total)) return NULL;
    struct bound_block *block = afmoe__alloc_zeroed(total, 1);
    if (!block) return NULL;
    block->next = memory->blocks;
    memory->blocks = block;
    memory->n_bytes += total;
    return &block->data;
}

void afmoe__layout_free(struct bound_memory *memory)
{
    while (memory->blocks) {
        struct bound_block *next = memory->blocks->next;
        afmoe__free(memory->blocks);
        memory->blocks = next;
    }
    memory->n_bytes = 0;
}

/* ---- Binding ---------------------------------------------------------------------------------------------------- */

enum { MAX_PATTERN_BYTES = 96 };

struct binder {
    struct model_weights *model;
    struct bound_memory *memory;
    struct tensor_table *table;
    const struct model_config *config;
    bool is_gguf;
    uint64_t sizes[N_SIZES];
    afmoe_error *error;
};

static void fill_sizes(uint64_t sizes[N_SIZES], const struct model_config *c)
{
    /* The ranges of the configuration keep every product below 2^41. */
    sizes[VOCAB] = c->vocab_size;
    sizes[HIDDEN] = c->hidden_size;
    sizes[HEAD_DIM] = c->head_dim;
    sizes[QUERIES] = (uint64_t)c->n_heads * c->head_dim;
    sizes[KEYS] = (uint64_t)c->n_kv_heads * c->head_dim;
    sizes[DENSE_WIDTH] = c->intermediate_size;
    sizes[EXPERT_WIDTH] = c->moe_intermediate_size;
    sizes[GATE_UP_WIDTH] = 2 * c->moe_intermediate_size;
    sizes[SHARED_WIDTH] = c->n_shared_experts * c->moe_intermediate_size;
    sizes[EXPERTS] = c->n_experts;
}

static void format_name(char out[MAX_PATTERN_BYTES], const char *pattern, uint32_t layer, uint32_t expert)
{
    char *end = out + MAX_PATTERN_BYTES;
    uint32_t number = layer;
    for (; *pattern && out < end - 1; pattern++) {
        if (*pattern == '%') {
            out += snprintf(out, (size_t)(end - out), "%u", number); /* fits: the longest pattern has 50 letters */
            number = expert;
        } else {
            *out++ = *pattern;
        }
    }
    *out = '\0';
}

static uint32_t n_dims_of(const struct binding *row)
{
    return row->shape[2] != NO_SIZE ? 3 : row->shape[1] != NO_SIZE ? 2 : 1;
}

/* ggml's writers leave out slowest dimensions of 1. */
static bool has_shape(const struct binder *b, const struct tensor *t, const struct binding *row)
{
    uint32_t n = n_dims_of(row);
    if (t->n_dims > n || (t->n_dims < n && !b->is_gguf)) return false;
    for (uint32_t d = 0; d < n; d++) {
        uint32_t absent = n - t->n_dims;
        uint64_t there = d < absent ? 1 : t->shape[d - absent];
        if (there != b->sizes[row->shape[d]]) return false;
    }
    return true;
}

struct text {
    char bytes[200];
    size_t n;
};

static void append_number(struct text *text, uint32_t d, uint64_t number)
{
    text->n += (size_t)snprintf(text->bytes + text->n, sizeof text->bytes - text->n, "%s%llu", d ? ", " : "",
                                (unsigned long long)number); /* at most 8 numbers of 22 bytes */
}

static afmoe_status fail_shape(const struct binder *b, const struct tensor *t, const struct binding *row)
{
    struct text there = {0}, expected = {0};
    const char *texts[3] = {"", "", ""};
    uint32_t n = n_dims_of(row);
    for (uint32_t d = 0; d < t->n_dims; d++) append_number(&there, d, t->shape[d]);
    for (uint32_t d = 0; d < n; d++) {
        append_number(&expected, d, b->sizes[row->shape[d]]);
        texts[d] = b->is_gguf ? size_texts[row->shape[d]].gguf : size_texts[row->shape[d]].hub;
    }
    return afmoe__fail(b->error, AFMOE_FORMAT, "%.80s: tensor \"%s\": shape [%s], expected [%s] ([%s%s%s%s%s])",
                       t->file, t->name, there.bytes, expected.bytes, texts[0], n > 1 ? ", " : "", texts[1],
                       n > 2 ? ", " : "", texts[2]);
}

static afmoe_status fail_format(const struct binder *b, const struct tensor *t, const char *supported)
{
    return afmoe__fail(b->error, AFMOE_UNSUPPORTED,
                       "%.80s: tensor \"%s\" has format %s, supported in this version are %s", t->file, t->name,
                       t->type_name, supported);
}

static afmoe_status bind_matrix(const struct binder *b, const struct tensor *t, struct matrix *out, uint64_t first_row,
                                uint64_t n_rows)
{
    if (t->format == N_FORMATS) return fail_format(b, t, "F32, F16, BF16 and the block formats of GGUF");
    uint64_t n_columns = t->shape[t->n_dims - 1];
    uint64_t row_bytes = format_row_bytes(t->format, n_columns); /* whole blocks: the container checked */
    *out = (struct matrix){t->data + first_row * row_bytes, t->format, n_rows, n_columns, row_bytes};
    return AFMOE_OK;
}

static afmoe_status bind_vector(const struct binder *b, const struct tensor *t, const float **out)
{
    if (t->format != FORMAT_F32 && t->format != FORMAT_F16 && t->format != FORMAT_BF16) {
        return fail_format(b, t, "F32, F16 and BF16 for a vector");
    }
    *out = own(b->memory, t->n_elements, sizeof **out);
    if (!*out) return afmoe__fail_memory(b->error, t->n_elements * sizeof **out, t->name);
    b->memory->blocks->vector = t;
    return AFMOE_OK;
}

static void convert_vector(float *out, const struct tensor *t)
{
    for (uint64_t i = 0; i < t->n_elements; i++) {
        if (t->format == FORMAT_F32) out[i] = float_from_bits(load_le32(t->data + 4 * i));
        else if (t->format == FORMAT_F16) out[i] = f16_to_f32(load_le16(t->data + 2 * i));
        else out[i] = bf16_to_f32(load_le16(t->data + 2 * i));
    }
}

void afmoe__layout_read_vectors(struct bound_memory *memory)
{
    for (struct bound_block *block = memory->blocks; block; block = block->next) {
        if (block->vector) convert_vector(block->data.floats, block->vector);
    }
}

static afmoe_status own_experts(const struct binder *b, struct layer_weights *layer)
{
    if (layer->experts) return AFMOE_OK;
    layer->experts = own(b->memory, b->config->n_experts, sizeof *layer->experts);
    if (layer->experts) return AFMOE_OK;
    return afmoe__fail_memory(b->error, b->config->n_experts * sizeof *layer->experts, "experts");
}

static struct matrix *matrix_at(void *base, size_t offset)
{
    return (struct matrix *)((char *)base + offset);
}

/* Cut one tensor into the experts' matrices. */
static afmoe_status bind_stack(const struct binder *b, const struct tensor *t, const struct binding *row,
                               struct layer_weights *layer)
{
    uint64_t n_rows = b->sizes[row->shape[1]], half = n_rows / 2;
    afmoe_status status = own_experts(b, layer);
    for (uint32_t e = 0; e < b->config->n_experts && !status; e++) {
        struct ffn_weights *expert = &layer->experts[e];
        uint64_t first = e * n_rows;
        if (row->kind == EXPERT_STACK) {
            status = bind_matrix(b, t, matrix_at(expert, row->offset), first, n_rows);
        } else {
            status = bind_matrix(b, t, &expert->gate, first, half);
            if (!status) status = bind_matrix(b, t, &expert->up, first + half, half);
        }
    }
    return status;
}

/* May the tensor be absent, and is it left out of the view even when it is there? */
static bool is_optional(const struct binder *b, enum condition condition)
{
    switch (condition) {
    case ALWAYS: break;
    case UNLESS_TIED: return b->config->tie_word_embeddings;
    case WITH_BIAS: return !b->config->attention_bias;
    case WITH_SHARED: return b->config->n_shared_experts == 0;
    case IGNORED: return true;
    }
    return false;
}

static afmoe_status bind_row(const struct binder *b, const struct binding *row, uint32_t l, uint32_t e)
{
    char name[MAX_PATTERN_BYTES];
    struct layer_weights *layer = row->scope == MODEL ? NULL : &b->model->layers[l];
    void *base = layer ? (void *)layer : (void *)b->model;
    if (row->condition == WITH_BIAS && !b->config->attention_bias) return AFMOE_OK; /* a bias there is surplus */
    format_name(name, row->name, l, e);
    struct tensor *t = afmoe__tensors_find(b->table, name);
    if (!t && row->other_name) {
        char other[MAX_PATTERN_BYTES];
        format_name(other, row->other_name, l, e);
        t = afmoe__tensors_find(b->table, other);
    }
    if (!t) {
        if (is_optional(b, row->condition)) return AFMOE_OK;
        return afmoe__fail(b->error, AFMOE_FORMAT, "tensor \"%s\" is missing", name);
    }
    t->is_used = true;
    if (row->condition == IGNORED) return AFMOE_OK;
    if (!has_shape(b, t, row)) return fail_shape(b, t, row);
    if (is_optional(b, row->condition)) return AFMOE_OK;
    b->model->n_parameters += t->n_elements;
    b->model->weight_bytes += t->n_bytes;
    switch (row->kind) {
    case MATRIX: return bind_matrix(b, t, matrix_at(base, row->offset), 0, b->sizes[row->shape[0]]);
    case VECTOR: return bind_vector(b, t, (const float **)((char *)base + row->offset));
    case EXPERT_MATRIX:
        return bind_matrix(b, t, matrix_at(&layer->experts[e], row->offset), 0, b->sizes[row->shape[0]]);
    case EXPERT_STACK:
    case EXPERT_GATE_UP: return bind_stack(b, t, row, layer);
    }
    return AFMOE_INTERNAL;
}

static bool is_in_scope(const struct binder *b, const struct binding *row, bool of_model, uint32_t l)
{
    bool is_dense = l < b->config->n_dense_layers;
    switch (row->scope) {
    case MODEL: return of_model;
    case LAYER: return !of_model;
    case DENSE: return !of_model && is_dense;
    case MIXTURE: return !of_model && !is_dense;
    }
    return false;
}

static afmoe_status bind_scope(const struct binder *b, int32_t layout, bool of_model, uint32_t l)
{
    for (int part = 0; part < 3; part++) {
        const struct binding *rows = layouts[layout].parts[part].rows;
        for (size_t i = 0; i < layouts[layout].parts[part].n; i++) {
            afmoe_status status = AFMOE_OK;
            if (!is_in_scope(b, &rows[i], of_model, l)) continue;
            if (rows[i].kind != EXPERT_MATRIX) {
                status = bind_row(b, &rows[i], l, 0);
            } else {
                status = own_experts(b, &b->model->layers[l]);
                for (uint32_t e = 0; e < b->config->n_experts && !status; e++) status = bind_row(b, &rows[i], l, e);
            }
            if (status) return status;
        }
    }
    return AFMOE_OK;
}

/* ---- Which layout ----------------------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *suffix)
{
    size_t n = strlen(text), n_suffix = strlen(suffix);
    return n >= n_suffix && strcmp(text + n - n_suffix, suffix) == 0;
}

static afmoe_status refuse_quantised(const struct tensor_table *table, afmoe_error *error)
{
    for (size_t s = 0; s < sizeof quantised_signs / sizeof *quantised_signs; s++) {
        for (uint64_t i = 0; i < table->n; i++) {
            if (!ends_with(table->tensors[i].name, quantised_signs[s].suffix)) continue;
            return afmoe__fail(error, AFMOE_UNSUPPORTED,
                               "%.80s: tensor \"%.200s\": weights quantised as %s are not supported in this version, "
                               "only F32, F16 and BF16", table->tensors[i].file, table->tensors[i].name,
                               quantised_signs[s].format);
        }
    }
    return AFMOE_OK;
}

/* By the experts of the first mixture layer; without one all three are the same. */
int32_t afmoe__layout_find(const struct tensor_table *table, const struct model_config *config, bool is_gguf)
{
    char name[MAX_PATTERN_BYTES];
    if (is_gguf) return AFMOE_LAYOUT_GGUF;
    format_name(name, stacked_experts[0].name, config->n_dense_layers, 0);
    if (afmoe__tensors_find(table, name)) return AFMOE_LAYOUT_STACKED;
    format_name(name, prime_rl_experts[0].name, config->n_dense_layers, 0);
    if (afmoe__tensors_find(table, name)) return AFMOE_LAYOUT_PRIME_RL;
    return AFMOE_LAYOUT_HUB;
}

static afmoe_status report_surplus(const struct tensor_table *table, const struct layout_options *options,
                                   afmoe_error *error)
{
    char first[330] = "";
    size_t used = 0;
    uint64_t n = 0;
    afmoe_error text = {.size = sizeof text};
    for (uint64_t i = 0; i < table->n; i++) {
        if (table->tensors[i].is_used) continue;
        if (n < 3) { /* at most 3 times 104 bytes */
            used += (size_t)snprintf(first + used, sizeof first - used, "%s\"%.100s\"", n ? ", " : "",
                                     table->tensors[i].name);
        }
        n++;
    }
    if (n == 0) return AFMOE_OK;
    afmoe__fail(&text, AFMOE_FORMAT, "%llu tensors in the file are not part of the model: %s%s", (unsigned long long)n,
                first, n > 3 ? ", ..." : "");
    if (options->strict) return afmoe__fail(error, AFMOE_FORMAT, "%s", text.message);
    if (options->log) options->log(options->log_data, AFMOE_LOG_WARNING, text.message);
    return AFMOE_OK;
}

afmoe_status afmoe__layout_bind(struct model_weights *out, struct bound_memory *memory, int32_t *out_layout,
                                struct tensor_table *table, const struct model_config *config,
                                const struct layout_options *options, afmoe_error *error)
{
    struct binder b = {.model = out, .memory = memory, .table = table, .config = config, .is_gguf = options->is_gguf,
                       .error = error};
    *out = (struct model_weights){0};
    *memory = (struct bound_memory){0};
    fill_sizes(b.sizes, config);
    int32_t layout = afmoe__layout_find(table, config, options->is_gguf);
    afmoe_status status = options->is_gguf ? AFMOE_OK : refuse_quantised(table, error);
    if (!status) {
        out->layers = own(memory, config->n_layers, sizeof *out->layers);
        if (!out->layers) status = afmoe__fail_memory(error, config->n_layers * sizeof *out->layers, "layers");
    }
    if (!status) status = bind_scope(&b, layout, true, 0);
    for (uint32_t l = 0; l < config->n_layers && !status; l++) status = bind_scope(&b, layout, false, l);
    if (!status) status = report_surplus(table, options, error);
    if (status) {
        afmoe__layout_free(memory);
        *out = (struct model_weights){0};
        return status;
    }
    if (config->tie_word_embeddings) out->head = out->embedding;
    *out_layout = layout;
    return AFMOE_OK;
}
