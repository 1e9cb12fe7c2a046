/* Public calls of the model: a checkpoint, its tokenizer, and what both together say - which rows of the output have a
 * token, where an answer ends, how to sample. */
#include "handles.h"
#include "memory.h"
#include "structs.h"

#include <stdio.h>
#include <string.h>

enum { MAX_JSON_BYTES = 1 << 30 };

/* ---- Open ---- */

static afmoe_status load_tokenizer(afmoe_model *model, uint64_t max_json_bytes, afmoe_error *error)
{
    const struct checkpoint *checkpoint = &model->checkpoint;
    const struct mapped_file *json = &checkpoint->tokenizer_json;
    if (checkpoint->gguf) return afmoe__tokenizer_from_gguf(&model->tokenizer, checkpoint->gguf, error);
    if (!json->path) return AFMOE_OK; /* an empty file has a path, but no data: the parser says what is wrong */
    return afmoe__tokenizer_from_json(&model->tokenizer, json->data, json->size, max_json_bytes, json->path, error);
}

/* A tokenizer of a kind not known leaves a model that computes: its reason is kept, and what text calls answer. */
static afmoe_status open_tokenizer(afmoe_model *model, const afmoe_model_options *options, afmoe_error *error)
{
    afmoe_error reason;
    afmoe_error_init(&reason, sizeof reason);
    snprintf(model->no_tokenizer, sizeof model->no_tokenizer,
             "the checkpoint has no tokenizer.json, so it has no text");
    afmoe_status status = load_tokenizer(model, options->max_json_bytes, &reason);
    if (status != AFMOE_UNSUPPORTED || !model->checkpoint.has_config)
        return status == AFMOE_OK ? status : afmoe__fail(error, status, "%s", reason.message);
    memcpy(model->no_tokenizer, reason.message, sizeof model->no_tokenizer);
    if (options->log) options->log(options->log_data, AFMOE_LOG_WARNING, reason.message);
    return AFMOE_OK;
}

static afmoe_status check_vocabulary(const afmoe_model *model, afmoe_error *error)
{
    if (!model->tokenizer || !model->checkpoint.has_config) return AFMOE_OK;
    uint64_t n_ids = afmoe__tokenizer_n_ids(model->tokenizer);
    if (n_ids <= model->vocab_size) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_FORMAT, "the tokenizer has ids up to %llu, the embedding only %llu rows",
                       (unsigned long long)(n_ids - 1), (unsigned long long)model->vocab_size);
}

static afmoe_status mark_usable(afmoe_model *model, afmoe_error *error)
{
    if (!model->tokenizer) return AFMOE_OK;
    model->usable = afmoe__alloc_array(model->vocab_size, 1);
    if (!model->usable) return afmoe__fail_memory(error, model->vocab_size, "the list of usable tokens");
    for (uint64_t id = 0; id < model->vocab_size; id++) {
        const uint8_t *bytes;
        uint64_t n;
        int32_t kind = afmoe__tokenizer_token(model->tokenizer, (afmoe_token)id, &bytes, &n);
        model->usable[id] = kind != AFMOE_TOKEN_UNUSED;
    }
    return AFMOE_OK;
}

static void add_stop_token(afmoe_model *model, int64_t id)
{
    if (id < 0 || (uint64_t)id >= model->vocab_size) return;
    for (uint64_t i = 0; i < model->n_stop_tokens; i++)
        if (model->stop_tokens[i] == id) return;
    model->stop_tokens[model->n_stop_tokens++] = (afmoe_token)id;
}

/* The stop set as the header states it. */
static afmoe_status choose_stop_tokens(afmoe_model *model, afmoe_error *error)
{
    static const char *const ends[] = {"<|im_end|>", "<|end_of_text|>"};
    enum { N_ENDS = sizeof ends / sizeof *ends };
    const struct generation_config *generation = &model->checkpoint.generation;
    uint64_t most = generation->n_eos_tokens + 1 + N_ENDS;
    model->stop_tokens = afmoe__alloc_array(most, sizeof(afmoe_token));
    if (!model->stop_tokens) return afmoe__fail_memory(error, most * sizeof(afmoe_token), "the stop set");
    for (uint64_t i = 0; i < generation->n_eos_tokens; i++) add_stop_token(model, generation->eos_tokens[i]);
    if (generation->n_eos_tokens) return AFMOE_OK;
    add_stop_token(model, model->checkpoint.config.eos_token);
    for (int i = 0; i < N_ENDS && model->tokenizer; i++)
        add_stop_token(model, afmoe__tokenizer_find(model->tokenizer, (const uint8_t *)ends[i], strlen(ends[i])));
    return AFMOE_OK;
}

static void destroy(afmoe_model *model)
{
    afmoe_release_fn release = model->release;
    void *release_data = model->release_data;
    afmoe__tokenizer_free(model->tokenizer);
    afmoe__checkpoint_close(&model->checkpoint);
    afmoe__free(model->usable);
    afmoe__free(model->stop_tokens);
    afmoe__free(model);
    if (release) release(release_data);
}

static afmoe_status open_parts(afmoe_model *model, const struct checkpoint_source *source,
                               const afmoe_model_options *options, bool headers_only, afmoe_error *error)
{
    struct checkpoint_options files = {.tokenizer_only = options->tokenizer_only,
                                       .inspect_only = options->inspect_only, .strict = options->strict,
                                       .read = options->load == AFMOE_LOAD_READ, .lock = options->lock,
                                       .headers_only = headers_only, .progress = options->progress,
                                       .progress_data = options->progress_data, .cancel = options->cancel,
                                       .max_json_bytes = options->max_json_bytes, .log = options->log,
                                       .log_data = options->log_data};
    afmoe_status status = afmoe__checkpoint_open_source(&model->checkpoint, source, &files, error);
    if (status == AFMOE_OK) status = open_tokenizer(model, options, error);
    if (status != AFMOE_OK) return status;
    model->vocab_size = model->checkpoint.has_config ? model->checkpoint.config.vocab_size
                                                     : afmoe__tokenizer_n_ids(model->tokenizer);
    status = check_vocabulary(model, error);
    if (status == AFMOE_OK) status = mark_usable(model, error);
    if (status == AFMOE_OK) status = choose_stop_tokens(model, error);
    return status;
}

static afmoe_status check_options(const afmoe_model_options *options, afmoe_error *error)
{
    afmoe_status status = afmoe__check_flag(options->tokenizer_only, "tokenizer_only", error);
    if (status == AFMOE_OK) status = afmoe__check_flag(options->strict, "strict", error);
    if (status == AFMOE_OK) status = afmoe__check_flag(options->lock, "lock", error);
    if (status == AFMOE_OK) status = afmoe__check_flag(options->inspect_only, "inspect_only", error);
    if (status == AFMOE_OK) status = afmoe__check_reserved(options->reserved, "afmoe_model_options", error);
    if (status == AFMOE_OK) status = afmoe__check_reserved(options->reserved_2, "afmoe_model_options", error);
    if (status != AFMOE_OK) return status;
    if (options->load != AFMOE_LOAD_MAP && options->load != AFMOE_LOAD_READ)
        return afmoe__fail(error, AFMOE_INVALID, "load is %d, allowed are %d..%d", options->load, AFMOE_LOAD_MAP,
                           AFMOE_LOAD_READ);
    if (options->tokenizer_only && options->inspect_only)
        return afmoe__fail(error, AFMOE_INVALID, "tokenizer_only and inspect_only are both 1, allowed is one of them");
    if (options->max_json_bytes >= 1 && options->max_json_bytes <= MAX_JSON_BYTES) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_INVALID, "max_json_bytes is %llu, allowed are 1..%d",
                       (unsigned long long)options->max_json_bytes, MAX_JSON_BYTES);
}

afmoe_status afmoe__model_open(afmoe_model **out, const struct checkpoint_source *source,
                               const afmoe_model_options *options, bool headers_only, afmoe_error *error)
{
    afmoe_model_options full;
    afmoe_model_options_init(&full, sizeof full);
    afmoe_status status = STRUCT_READ(&full, options, afmoe_model_options, error);
    if (status == AFMOE_OK) status = check_options(&full, error);
    if (status != AFMOE_OK) return status;
    afmoe_model *model = afmoe__alloc_zeroed(1, sizeof *model);
    if (!model) return afmoe__fail_memory(error, sizeof *model, "a model");
    atomic_init(&model->n_references, 1);
    status = open_parts(model, source, &full, headers_only, error);
    if (status != AFMOE_OK)
        destroy(model);
    else
        *out = model;
    return status;
}

afmoe_status afmoe_model_open(afmoe_model **out, const char *path, const afmoe_model_options *options,
                              afmoe_error *error)
{
    const struct checkpoint_source source = {.kind = SOURCE_PATH, .path = path};
    afmoe_status status = afmoe__check_argument(out, "out", error);
    if (status != AFMOE_OK) return status;
    *out = NULL;
    status = afmoe__check_argument(path, "path", error);
    return status == AFMOE_OK ? afmoe__model_open(out, &source, options, false, error) : status;
}

afmoe_status afmoe_model_open_fd(afmoe_model **out, int32_t fd, uint64_t offset, uint64_t length,
                                 const afmoe_model_options *options, afmoe_error *error)
{
    const struct checkpoint_source source = {.kind = SOURCE_RANGE, .descriptor = fd, .offset = offset,
                                             .length = length};
    afmoe_status status = afmoe__check_argument(out, "out", error);
    if (status != AFMOE_OK) return status;
    *out = NULL;
    if (fd < 0) return afmoe__fail(error, AFMOE_INVALID, "fd is %d, allowed are 0..2^31-1", fd);
    return afmoe__model_open(out, &source, options, false, error);
}

afmoe_status afmoe_model_open_memory(afmoe_model **out, const void *data, uint64_t n_bytes, afmoe_release_fn release,
                                     void *release_data, const afmoe_model_options *options, afmoe_error *error)
{
    const struct checkpoint_source source = {.kind = SOURCE_MEMORY, .data = data, .length = n_bytes};
    afmoe_status status = afmoe__check_argument(out, "out", error);
    if (status != AFMOE_OK) return status;
    *out = NULL;
    status = afmoe__check_argument(data, "data", error);
    if (status == AFMOE_OK) status = afmoe__model_open(out, &source, options, false, error);
    if (status != AFMOE_OK) return status;
    (*out)->release = release;
    (*out)->release_data = release_data;
    return AFMOE_OK;
}

void afmoe__model_memory(const afmoe_model *model, uint64_t *out_mapped, uint64_t *out_private)
{
    afmoe__checkpoint_memory(&model->checkpoint, out_mapped, out_private);
    *out_private += sizeof *model + model->n_stop_tokens * sizeof *model->stop_tokens;
    if (model->usable) *out_private += model->vocab_size;
    if (model->tokenizer) *out_private += afmoe__tokenizer_bytes(model->tokenizer);
}

void afmoe_model_retain(afmoe_model *model)
{
    if (model) atomic_fetch_add(&model->n_references, 1);
}

void afmoe_model_free(afmoe_model *model)
{
    if (model && atomic_fetch_sub(&model->n_references, 1) == 1) destroy(model);
}

/* ---- What it is ---- */

static const int32_t rope_kinds[] = {
    [ROPE_DEFAULT] = AFMOE_ROPE_DEFAULT, [ROPE_LINEAR] = AFMOE_ROPE_LINEAR, [ROPE_DYNAMIC] = AFMOE_ROPE_DYNAMIC,
    [ROPE_LLAMA3] = AFMOE_ROPE_LLAMA3, [ROPE_YARN] = AFMOE_ROPE_YARN,
};

static void fill_config(afmoe_model_info *info, const struct model_config *config)
{
    info->n_layers = config->n_layers;
    info->n_dense_layers = config->n_dense_layers;
    for (uint32_t layer = 0; layer < config->n_layers; layer++) info->n_full_layers += config->layer_is_full[layer];
    info->n_heads = config->n_heads;
    info->n_kv_heads = config->n_kv_heads;
    info->head_dim = config->head_dim;
    info->n_experts = config->n_experts;
    info->n_experts_per_token = config->n_experts_per_token;
    info->n_shared_experts = config->n_shared_experts;
    info->sliding_window = (uint32_t)config->sliding_window;
    info->hidden_size = config->hidden_size;
    info->max_positions = config->max_positions;
    info->intermediate_size = config->intermediate_size;
    info->moe_intermediate_size = config->moe_intermediate_size;
    info->n_groups = config->n_groups;
    info->n_groups_chosen = config->n_groups_chosen;
    info->score_function = config->score == SCORE_SOFTMAX ? AFMOE_SCORE_SOFTMAX : AFMOE_SCORE_SIGMOID;
    info->route_norm = config->route_norm;
    info->route_scale = (float)config->route_scale;
    info->rms_norm_eps = (float)config->rms_norm_eps;
    info->mup_enabled = config->mup_enabled;
    info->tied_embeddings = config->tie_word_embeddings;
    info->attention_bias = config->attention_bias;
    info->rope_kind = rope_kinds[config->rope.kind];
    info->rope_theta = (float)config->rope.theta;
    info->rope_factor = config->rope.kind == ROPE_DEFAULT ? 1 : (float)config->rope.factor;
    if (config->rope.kind == ROPE_LLAMA3 || config->rope.kind == ROPE_YARN)
        info->rope_original_positions = config->rope.original_max_positions;
}

afmoe_status afmoe_model_get_info(const afmoe_model *model, afmoe_model_info *info, afmoe_error *error)
{
    afmoe_model_info full;
    afmoe_model_info_init(&full, sizeof full);
    afmoe_status status = afmoe__check_argument(model, "model", error);
    if (status == AFMOE_OK) status = afmoe__check_argument(info, "info", error);
    if (status == AFMOE_OK) status = STRUCT_CHECK_OUT(info, afmoe_model_info, error);
    if (status != AFMOE_OK) return status;
    const struct checkpoint *checkpoint = &model->checkpoint;
    full.container = checkpoint->container;
    full.layout = checkpoint->layout;
    full.has_weights = checkpoint->has_weights;
    full.has_tokenizer = model->tokenizer != NULL;
    full.add_bos = checkpoint->add_bos;
    full.bos_token = checkpoint->config.bos_token;
    full.eos_token = checkpoint->config.eos_token;
    full.pad_token = checkpoint->config.pad_token;
    full.vocab_size = model->vocab_size;
    full.n_tokens = model->tokenizer ? afmoe__tokenizer_n_tokens(model->tokenizer) : 0;
    if (checkpoint->has_config) fill_config(&full, &checkpoint->config);
    full.n_parameters = checkpoint->weights.n_parameters;
    full.weight_bytes = checkpoint->weights.weight_bytes;
    afmoe__struct_write(info, &full, sizeof full);
    return AFMOE_OK;
}

afmoe_status afmoe_model_layer_is_full(const afmoe_model *model, uint32_t layer, int32_t *out, afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(model, "model", error);
    if (status == AFMOE_OK) status = afmoe__check_argument(out, "out", error);
    if (status != AFMOE_OK) return status;
    const struct model_config *config = &model->checkpoint.config;
    if (!model->checkpoint.has_config)
        return afmoe__fail(error, AFMOE_STATE, "the model was opened as a tokenizer only: it has no layers");
    if (layer >= config->n_layers)
        return afmoe__fail(error, AFMOE_INVALID, "layer is %u, allowed are 0..%u", layer, config->n_layers - 1);
    *out = config->layer_is_full[layer];
    return AFMOE_OK;
}

/* ---- What its files hold ---- */

uint64_t afmoe_model_n_tensors(const afmoe_model *model)
{
    return model ? model->checkpoint.tensors.n : 0;
}

static void fill_tensor(afmoe_tensor_info *info, const struct tensor *tensor, bool is_bound)
{
    info->n_dims = tensor->n_dims;
    for (uint32_t d = 0; d < tensor->n_dims; d++) info->shape[d] = tensor->shape[d];
    info->name = tensor->name;
    info->format = tensor->type_name;
    info->file = tensor->file;
    info->file_offset = tensor->file_offset;
    info->n_bytes = tensor->n_bytes;
    info->n_elements = tensor->n_elements;
    info->is_supported = tensor_is_supported(tensor);
    info->is_used = is_bound ? tensor->is_used : -1;
}

afmoe_status afmoe_model_get_tensor(const afmoe_model *model, uint64_t index, afmoe_tensor_info *info,
                                    afmoe_error *error)
{
    afmoe_tensor_info full;
    afmoe_tensor_info_init(&full, sizeof full);
    afmoe_status status = afmoe__check_argument(model, "model", error);
    if (status == AFMOE_OK) status = afmoe__check_argument(info, "info", error);
    if (status == AFMOE_OK) status = STRUCT_CHECK_OUT(info, afmoe_tensor_info, error);
    if (status != AFMOE_OK) return status;
    const struct tensor_table *table = &model->checkpoint.tensors;
    if (index >= table->n)
        return afmoe__fail(error, AFMOE_INVALID, "index is %llu, the files have %llu tensors",
                           (unsigned long long)index, (unsigned long long)table->n);
    fill_tensor(&full, &table->tensors[index], model->checkpoint.has_weights);
    afmoe__struct_write(info, &full, sizeof full);
    return AFMOE_OK;
}

afmoe_status afmoe_model_chat_template(const afmoe_model *model, const char **out_text, uint64_t *out_n,
                                       afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(model, "model", error);
    if (status == AFMOE_OK) status = afmoe__check_argument(out_text, "out_text", error);
    if (status == AFMOE_OK) status = afmoe__check_argument(out_n, "out_n", error);
    if (status != AFMOE_OK) return status;
    const struct checkpoint *checkpoint = &model->checkpoint;
    if (!checkpoint->chat_template)
        return afmoe__fail(error, AFMOE_NOT_FOUND, "the checkpoint has no chat template");
    *out_text = (const char *)checkpoint->chat_template;
    *out_n = checkpoint->chat_template_bytes;
    return AFMOE_OK;
}

afmoe_status afmoe_model_stop_tokens(const afmoe_model *model, afmoe_token *out, uint64_t capacity, uint64_t *out_n,
                                     afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(model, "model", error);
    if (status == AFMOE_OK) status = afmoe__check_capacity(out, capacity, model->n_stop_tokens, out_n, error);
    if (status == AFMOE_OK && model->n_stop_tokens)
        memcpy(out, model->stop_tokens, model->n_stop_tokens * sizeof *out);
    return status;
}

/* do_sample false means greedy whatever else is written; a file that only names a temperature means to sample. */
afmoe_status afmoe_model_sampler_options(const afmoe_model *model, afmoe_sampler_options *options, afmoe_error *error)
{
    afmoe_sampler_options full;
    afmoe_sampler_options_init(&full, sizeof full);
    afmoe_status status = afmoe__check_argument(model, "model", error);
    if (status == AFMOE_OK) status = afmoe__check_argument(options, "options", error);
    if (status == AFMOE_OK) status = STRUCT_CHECK_OUT(options, afmoe_sampler_options, error);
    if (status != AFMOE_OK) return status;
    const struct generation_config *generation = &model->checkpoint.generation;
    if (generation->has_temperature) full.temperature = (float)generation->temperature;
    if (generation->has_do_sample && generation->do_sample && !generation->has_temperature) full.temperature = 1;
    if (generation->has_do_sample && !generation->do_sample) full.temperature = 0;
    if (generation->has_top_p) full.top_p = (float)generation->top_p;
    if (generation->has_top_k && generation->top_k > 0) full.top_k = generation->top_k; /* 0 is off there */
    if (generation->has_min_p) full.min_p = (float)generation->min_p;
    if (generation->has_repetition_penalty) full.repetition_penalty = (float)generation->repetition_penalty;
    afmoe__struct_write(options, &full, sizeof full);
    return AFMOE_OK;
}

afmoe_status afmoe__model_need_tokenizer(const afmoe_model *model, afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(model, "model", error);
    if (status != AFMOE_OK || model->tokenizer) return status;
    return afmoe__fail(error, AFMOE_UNSUPPORTED, "%s", model->no_tokenizer);
}
