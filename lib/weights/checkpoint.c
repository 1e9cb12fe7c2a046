/* Opens a checkpoint, see checkpoint.h: what the path is, its files, the configuration, the weights. */
#include "checkpoint.h"

#include "bytes.h"
#include "cancel.h"
#include "error.h"
#include "gguf_split.h"
#include "json.h"
#include "json_fields.h"
#include "layout.h"
#include "memory.h"
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SHARDS = 10000 };

static const char config_file[] = "config.json", generation_file[] = "generation_config.json",
                  tokenizer_file[] = "tokenizer.json", tokenizer_config_file[] = "tokenizer_config.json",
                  template_file[] = "chat_template.jinja", weights_file[] = "model.safetensors",
                  index_file[] = "model.safetensors.index.json";

/* Files and memory behind a checkpoint's view. */
struct owned {
    struct safetensors *shards;
    uint64_t n_shards;
    struct gguf_parts gguf_parts;
    struct bound_memory bound;
    struct mapped_file template_file;
    char *template_text; /* of tokenizer_config.json */
};

struct opening {
    struct checkpoint *out;
    struct owned *owned;
    const struct checkpoint_source *source;
    const char *path; /* of a folder or file; NULL for other sources */
    const struct checkpoint_options *options;
    enum file_mode mode; /* of files with weights */
    json_t *config_document;
    afmoe_error *error;
};

/* ---- JSON files of a folder ------------------------------------------------------------------------------------- */

/* All of a document, unless it is too long to be parsed anyway: that is answered there. */
static afmoe_status need_document(const struct opening *o, struct mapped_file *file)
{
    return file->size <= o->options->max_json_bytes ? afmoe__file_need(file, file->size, o->error) : AFMOE_OK;
}

static afmoe_status open_document(const struct opening *o, const char *name, struct mapped_file *out)
{
    enum file_mode mode = o->options->read ? FILE_PEEKED : FILE_MAPPED;
    afmoe_status status = afmoe__file_open_in(out, o->path, name, mode, o->error);
    if (status) return status;
    status = need_document(o, out);
    if (status) afmoe__file_close(out);
    return status;
}

static afmoe_status parse_file(const struct opening *o, const struct mapped_file *file, json_t **out)
{
    const struct json_caps caps = {o->options->max_json_bytes, JSON_MAX_VALUES, JSON_MAX_DEPTH};
    return afmoe__json_parse(out, file->data, file->size, &caps, afmoe__file_name(file), o->error);
}

/* *out stays NULL when there is no such file. */
static afmoe_status read_optional_json(const struct opening *o, const char *name, json_t **out)
{
    struct mapped_file file;
    afmoe_status status = open_document(o, name, &file);
    if (status == AFMOE_NOT_FOUND) return AFMOE_OK;
    if (status) return status;
    status = parse_file(o, &file, out);
    afmoe__file_close(&file);
    return status;
}

static afmoe_status read_generation(const struct opening *o)
{
    struct generation_config *generation = &o->out->generation;
    uint64_t vocab_size = o->out->config.vocab_size;
    json_t *document = NULL;
    afmoe_status status = read_optional_json(o, generation_file, &document);
    if (!status && document) {
        status = afmoe__generation_from_json(generation, document, vocab_size, generation_file, o->error);
    }
    if (!status && o->config_document) {
        status = afmoe__generation_add_config_eos(generation, o->config_document, vocab_size, config_file, o->error);
    }
    json_decref(document);
    return status;
}

/* "chat_template": a text, or a list of {"name", "template"} with one named "default". */
static const json_t *find_template(const json_t *document)
{
    const json_t *value = json_object_get(document, "chat_template");
    if (!json_is_array(value)) return value;
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *entry = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && strcmp(name, "default") == 0) return json_object_get(entry, "template");
    }
    return NULL;
}

static afmoe_status keep_template(const struct opening *o, const struct json_object *from)
{
    const json_t *text = find_template(from->object);
    if (!text || json_is_null(text)) return AFMOE_OK;
    if (!json_is_string(text)) return afmoe__json_fail_type(from, "chat_template", text, "a string");
    uint64_t n = json_string_length(text);
    o->owned->template_text = afmoe__alloc_array(n + 1, 1);
    if (!o->owned->template_text) return afmoe__fail_memory(o->error, n + 1, "the chat template");
    memcpy(o->owned->template_text, json_string_value(text), n + 1);
    o->out->chat_template = (const uint8_t *)o->owned->template_text;
    o->out->chat_template_bytes = n;
    return AFMOE_OK;
}

/* A file of its own goes before the text in tokenizer_config.json, as in transformers. */
static afmoe_status read_template(const struct opening *o)
{
    struct mapped_file *file = &o->owned->template_file;
    afmoe_status status = open_document(o, template_file, file);
    if (status == AFMOE_NOT_FOUND) return AFMOE_OK;
    if (status) return status;
    if (file->size > o->options->max_json_bytes)
        return afmoe__fail(o->error, AFMOE_LIMIT, "%s has %llu bytes, allowed are %llu (max_json_bytes)", template_file,
                           (unsigned long long)file->size, (unsigned long long)o->options->max_json_bytes);
    o->out->chat_template = file->data ? file->data : (const uint8_t *)"";
    o->out->chat_template_bytes = file->size;
    return AFMOE_OK;
}

static afmoe_status read_tokenizer_config(const struct opening *o)
{
    json_t *document = NULL;
    bool has;
    afmoe_status status = read_optional_json(o, tokenizer_config_file, &document);
    if (status || !document) return status;
    const struct json_object from = {document, tokenizer_config_file, o->error};
    if (!json_is_object(document)) status = afmoe__json_fail_type(&from, "the document", document, "an object");
    else status = afmoe__json_bool(&from, "add_bos_token", NULL_IS_ABSENT, &has, &o->out->add_bos);
    if (!status) status = keep_template(o, &from);
    json_decref(document);
    return status;
}

static afmoe_status read_tokenizer(const struct opening *o)
{
    afmoe_status status = open_document(o, tokenizer_file, &o->out->tokenizer_json);
    if (status == AFMOE_NOT_FOUND && !o->options->tokenizer_only) status = AFMOE_OK;
    if (!status) status = read_tokenizer_config(o);
    return status ? status : read_template(o);
}

/* ---- Weights of a folder ---------------------------------------------------------------------------------------- */

/* Takes the file over. */
static afmoe_status add_shard(struct opening *o, struct mapped_file *file)
{
    struct safetensors *shard = &o->owned->shards[o->owned->n_shards];
    afmoe_status status = afmoe__safetensors_open(shard, file, &o->out->tensors, o->options->max_json_bytes, o->error);
    if (status) afmoe__file_close(file);
    else o->owned->n_shards++;
    return status;
}

static afmoe_status reserve_shards(const struct opening *o, uint64_t n)
{
    o->owned->shards = afmoe__alloc_zeroed(n, sizeof *o->owned->shards);
    if (o->owned->shards) return AFMOE_OK;
    return afmoe__fail_memory(o->error, n * sizeof *o->owned->shards, "the list of shards");
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The files an index names, each once, sorted; the texts are borrowed from it. */
static afmoe_status list_shards(const struct opening *o, json_t *weight_map, const char ***out, uint64_t *out_n)
{
    const char *tensor;
    json_t *file;
    uint64_t n = 0, n_unique = 0;
    const char **names = afmoe__alloc_array(json_object_size(weight_map), sizeof *names);
    if (!names) return afmoe__fail_memory(o->error, json_object_size(weight_map) * sizeof *names, "the list of shards");
    json_object_foreach(weight_map, tensor, file) {
        if (!json_is_string(file)) {
            afmoe__free(names);
            return afmoe__fail(o->error, AFMOE_FORMAT, "%s: the file of tensor \"%.200s\" is no string", index_file,
                               tensor);
        }
        names[n++] = json_string_value(file);
    }
    qsort(names, (size_t)n, sizeof *names, compare_texts);
    for (uint64_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0) names[n_unique++] = names[i];
    }
    if (n_unique == 0 || n_unique > MAX_SHARDS) {
        afmoe__free(names);
        return afmoe__fail(o->error, AFMOE_FORMAT, "%s: weight_map names %llu files, expected 1..%d", index_file,
                           (unsigned long long)n_unique, MAX_SHARDS);
    }
    *out = names;
    *out_n = n_unique;
    return AFMOE_OK;
}

/* Every tensor lies where the index says. */
static afmoe_status check_index(const struct opening *o, json_t *weight_map)
{
    const char *name;
    json_t *file;
    json_object_foreach(weight_map, name, file) {
        const struct tensor *t = afmoe__tensors_find(&o->out->tensors, name);
        if (t && strcmp(t->file, json_string_value(file)) == 0) continue;
        return afmoe__fail(o->error, AFMOE_FORMAT, "%s: tensor \"%.200s\" is said to be in \"%.120s\", which lacks it",
                           index_file, name, json_string_value(file));
    }
    return AFMOE_OK;
}

static afmoe_status open_shards(struct opening *o, json_t *index)
{
    const struct json_object from = {index, index_file, o->error};
    const char **names = NULL;
    uint64_t n = 0;
    json_t *weight_map = json_object_get(index, "weight_map");
    if (!json_is_object(weight_map)) {
        if (weight_map) return afmoe__json_fail_type(&from, "weight_map", weight_map, "an object");
        return afmoe__fail(o->error, AFMOE_FORMAT, "%s: weight_map is missing", index_file);
    }
    afmoe_status status = list_shards(o, weight_map, &names, &n);
    if (!status) status = reserve_shards(o, n);
    for (uint64_t i = 0; i < n && !status; i++) {
        struct mapped_file file;
        status = afmoe__file_open_in(&file, o->path, names[i], o->mode, o->error);
        if (status == AFMOE_NOT_FOUND) {
            status = afmoe__fail(o->error, AFMOE_FORMAT, "%s: shard \"%.255s\" is missing", index_file, names[i]);
        }
        if (!status) status = add_shard(o, &file);
    }
    if (!status) status = afmoe__tensors_sort(&o->out->tensors, o->error);
    if (!status) status = check_index(o, weight_map);
    afmoe__free(names);
    return status;
}

static afmoe_status open_folder_weights(struct opening *o)
{
    struct mapped_file file;
    json_t *index = NULL;
    afmoe_status status = afmoe__file_open_in(&file, o->path, weights_file, o->mode, o->error);
    if (!status) {
        status = reserve_shards(o, 1);
        if (status) afmoe__file_close(&file);
        else status = add_shard(o, &file);
        return status ? status : afmoe__tensors_sort(&o->out->tensors, o->error);
    }
    if (status != AFMOE_NOT_FOUND) return status;
    status = read_optional_json(o, index_file, &index);
    if (status) return status;
    if (!index) {
        return afmoe__fail(o->error, AFMOE_NOT_FOUND, "neither %s nor %s is in \"%.255s\"", weights_file, index_file,
                           o->path);
    }
    status = open_shards(o, index);
    json_decref(index);
    return status;
}

/* ---- Binding and loading ---------------------------------------------------------------------------------------- */

/* Names, shapes and formats, which need no byte of a tensor. */
static afmoe_status bind(struct opening *o, bool is_gguf)
{
    struct checkpoint *c = o->out;
    if (o->options->inspect_only) {
        c->layout = afmoe__layout_find(&c->tensors, &c->config, is_gguf);
        for (uint64_t i = 0; i < c->tensors.n; i++) { /* cannot wrap: all lie in mapped files */
            c->weights.n_parameters += c->tensors.tensors[i].n_elements;
            c->weights.weight_bytes += c->tensors.tensors[i].n_bytes;
        }
        return AFMOE_OK;
    }
    const struct layout_options layout = {is_gguf, o->options->strict, o->options->log, o->options->log_data};
    afmoe_status status =
        afmoe__layout_bind(&c->weights, &o->owned->bound, &c->layout, &o->out->tensors, &c->config, &layout, o->error);
    c->has_weights = status == AFMOE_OK;
    return status;
}

/* File i of those with weights; NULL past the last. */
static struct mapped_file *weights_file_at(const struct checkpoint *c, uint64_t i)
{
    struct owned *owned = c->owned;
    if (c->gguf && i == 0) return afmoe__gguf_file(c->gguf);
    if (c->gguf) return i <= owned->gguf_parts.n ? afmoe__gguf_file(owned->gguf_parts.parts[i - 1]) : NULL;
    return i < owned->n_shards ? &owned->shards[i].file : NULL;
}

static afmoe_status load(const struct opening *o)
{
    const struct checkpoint_options *options = o->options;
    struct file_loading loading = {.lock = options->lock, .progress = options->progress,
                                   .progress_data = options->progress_data, .cancel = options->cancel};
    struct mapped_file *file;
    afmoe_status status = AFMOE_OK;
    if (options->headers_only || options->inspect_only) return AFMOE_OK;
    for (uint64_t i = 0; (file = weights_file_at(o->out, i)); i++) /* sizes of files held at once: below 2^64 */
        loading.total += afmoe__file_bytes_to_load(file, options->lock);
    for (uint64_t i = 0; !status && (file = weights_file_at(o->out, i)); i++)
        status = afmoe__file_load(file, &loading, o->error);
    if (!status) afmoe__layout_read_vectors(&o->owned->bound);
    return status;
}

/* A checkpoint that does not fit its configuration is refused before its weights are read. */
static afmoe_status bind_and_load(struct opening *o, bool is_gguf)
{
    afmoe_status status = bind(o, is_gguf);
    return status ? status : load(o);
}

/* ---- Sources ---------------------------------------------------------------------------------------------------- */

static afmoe_status open_folder(struct opening *o)
{
    struct checkpoint *c = o->out;
    bool tokenizer_only = o->options->tokenizer_only;
    c->container = tokenizer_only ? AFMOE_CONTAINER_TOKENIZER : AFMOE_CONTAINER_SAFETENSORS;
    afmoe_status status = read_optional_json(o, config_file, &o->config_document);
    if (status) return status;
    if (tokenizer_only) {
        if (o->config_document) {
            status = afmoe__config_tokens_from_json(&c->config, o->config_document, config_file, o->error);
        }
    } else if (!o->config_document) {
        status = afmoe__fail(o->error, AFMOE_NOT_FOUND, "no %s in \"%.255s\"", config_file, o->path);
    } else {
        status = afmoe__config_from_json(&c->config, o->config_document, config_file, o->error);
    }
    c->has_config = !status && !tokenizer_only;
    if (!status) status = read_tokenizer(o);
    if (!status) status = read_generation(o);
    if (status || tokenizer_only) return status;
    status = open_folder_weights(o);
    return status ? status : bind_and_load(o, false);
}

static afmoe_status read_gguf_add_bos(const struct opening *o)
{
    static const char key[] = "tokenizer.ggml.add_bos_token";
    struct gguf_value value;
    if (!afmoe__gguf_find(o->out->gguf, key, &value)) return AFMOE_OK;
    if (value.type == GGUF_BOOL && afmoe__gguf_get_bool(&value, 0, &o->out->add_bos)) return AFMOE_OK;
    return afmoe__fail(o->error, AFMOE_FORMAT, "%.120s: %s is no boolean", afmoe__gguf_name(o->out->gguf), key);
}

static afmoe_status read_gguf_template(const struct opening *o)
{
    static const char key[] = "tokenizer.chat_template";
    struct gguf_value value;
    if (!afmoe__gguf_find(o->out->gguf, key, &value)) return AFMOE_OK;
    if (afmoe__gguf_get_string(&value, &o->out->chat_template, &o->out->chat_template_bytes)) return AFMOE_OK;
    return afmoe__fail(o->error, AFMOE_FORMAT, "%.120s: %s is no string", afmoe__gguf_name(o->out->gguf), key);
}

/* The tensors of all parts, each part's names and bytes in its own file. */
static afmoe_status add_gguf_tensors(struct opening *o)
{
    const struct gguf_parts *parts = &o->owned->gguf_parts;
    afmoe_status status = afmoe__tensors_add_gguf(&o->out->tensors, o->out->gguf, o->error);
    for (uint64_t i = 0; i < parts->n && !status; i++)
        status = afmoe__tensors_add_gguf(&o->out->tensors, parts->parts[i], o->error);
    return status ? status : afmoe__tensors_sort(&o->out->tensors, o->error);
}

/* Takes the file over on success. */
static afmoe_status open_gguf(struct opening *o, struct mapped_file *file)
{
    struct checkpoint *c = o->out;
    afmoe_status status = afmoe__gguf_open(&c->gguf, file, o->error);
    if (status) return status;
    c->container = AFMOE_CONTAINER_GGUF;
    status = read_gguf_add_bos(o);
    if (!status) status = read_gguf_template(o);
    if (!status) status = afmoe__generation_from_gguf(&c->generation, c->gguf, o->error);
    if (status) return status;
    if (o->options->tokenizer_only) return afmoe__config_tokens_from_gguf(&c->config, c->gguf, o->error);
    status = afmoe__gguf_open_parts(&o->owned->gguf_parts, c->gguf, o->path, o->mode, o->error);
    if (!status) status = add_gguf_tensors(o);
    if (!status) status = afmoe__config_from_gguf(&c->config, c->gguf, &c->tensors, o->error);
    c->has_config = !status;
    return status ? status : bind_and_load(o, true);
}

/* u64 length, a JSON object of that length */
static bool looks_like_safetensors(const struct mapped_file *file)
{
    return file->size > 8 && file->n_filled > 8 && load_le64(file->data) <= file->size - 8 && file->data[8] == '{';
}

static afmoe_status fail_kind(const struct opening *o, const struct mapped_file *file)
{
    if (looks_like_safetensors(file) && o->source->kind != SOURCE_PATH) {
        return afmoe__fail(o->error, AFMOE_UNSUPPORTED,
                           "%.120s holds safetensors, which lack the configuration; a safetensors checkpoint is "
                           "opened by the path of its folder", file->path);
    }
    if (file->size == 0)
        return afmoe__fail(o->error, AFMOE_FORMAT, "\"%.255s\" is no GGUF file: it is empty", file->path);
    return afmoe__fail(o->error, AFMOE_FORMAT,
                       "\"%.255s\" is no GGUF file; a safetensors checkpoint is opened by its folder, a tokenizer.json "
                       "with tokenizer_only", file->path);
}

/* Takes the file over, also on failure. */
static afmoe_status open_file(struct opening *o, struct mapped_file *file)
{
    enum { PROBE_BYTES = 16 };
    afmoe_status status = afmoe__file_need(file, file->size < PROBE_BYTES ? file->size : PROBE_BYTES, o->error);
    if (!status) {
        if (afmoe__gguf_probe(file->data, file->size)) {
            status = open_gguf(o, file);
        } else if (o->options->tokenizer_only && !(status = need_document(o, file))) {
            o->out->container = AFMOE_CONTAINER_TOKENIZER;
            o->out->tokenizer_json = *file;
            return AFMOE_OK;
        } else if (!status) {
            status = fail_kind(o, file);
        }
    }
    afmoe__file_close(file); /* already empty where it was taken over */
    return status;
}

static afmoe_status open_path(struct opening *o)
{
    enum path_kind kind;
    struct mapped_file file;
    o->path = o->source->path;
    afmoe_status status = afmoe__path_kind(&kind, o->path, o->error);
    if (status) return status;
    switch (kind) {
    case PATH_FOLDER: return open_folder(o);
    case PATH_FILE:
        status = afmoe__file_open(&file, o->path, o->mode, o->error);
        return status ? status : open_file(o, &file);
    case PATH_MISSING: return afmoe__fail(o->error, AFMOE_NOT_FOUND, "\"%.255s\" does not exist", o->path);
    case PATH_OTHER: break;
    }
    return afmoe__fail(o->error, AFMOE_FORMAT, "\"%.255s\" is neither a file nor a folder", o->path);
}

static afmoe_status open_source(struct opening *o)
{
    const struct checkpoint_source *source = o->source;
    struct mapped_file file;
    afmoe_status status;
    if (cancel_requested(o->options->cancel)) return afmoe__fail(o->error, AFMOE_CANCELLED, "cancelled");
    if (source->kind == SOURCE_PATH) return open_path(o);
    if (source->kind == SOURCE_RANGE) {
        status = afmoe__file_open_range(&file, source->descriptor, source->offset, source->length, o->mode, o->error);
    } else if (o->options->lock && !o->options->read) {
        status = afmoe__fail(o->error, AFMOE_UNSUPPORTED,
                             "memory that stays the caller's is the caller's to lock; with READ a copy is locked");
    } else {
        status = afmoe__file_open_memory(&file, source->data, source->length, o->mode, o->error);
    }
    return status ? status : open_file(o, &file);
}

afmoe_status afmoe__checkpoint_open_source(struct checkpoint *out, const struct checkpoint_source *source,
                                           const struct checkpoint_options *options, afmoe_error *error)
{
    *out = (struct checkpoint){.config = {.bos_token = -1, .eos_token = -1, .pad_token = -1}};
    /* Files that may be missing are tried, and the caller's error is written on failure only. */
    afmoe_error found = {.size = sizeof found};
    struct opening o = {.out = out, .source = source, .options = options, .error = &found};
    bool all = !options->tokenizer_only && !options->headers_only && !options->inspect_only;
    o.mode = !options->read ? FILE_MAPPED : all ? FILE_READ : FILE_PEEKED;
    o.owned = afmoe__alloc_zeroed(1, sizeof *o.owned);
    if (!o.owned) return afmoe__fail_memory(error, sizeof *o.owned, "a checkpoint");
    out->owned = o.owned;
    afmoe_status status = open_source(&o);
    json_decref(o.config_document);
    if (status == AFMOE_OK) return AFMOE_OK;
    afmoe__checkpoint_close(out);
    return afmoe__fail(error, status, "%s", found.message);
}

afmoe_status afmoe__checkpoint_open(struct checkpoint *out, const char *path, const struct checkpoint_options *options,
                                    afmoe_error *error)
{
    const struct checkpoint_source source = {.kind = SOURCE_PATH, .path = path};
    return afmoe__checkpoint_open_source(out, &source, options, error);
}

static void add_file(const struct mapped_file *file, uint64_t *mapped, uint64_t *private)
{
    *(file->mode == FILE_MAPPED ? mapped : private) += file->size;
}

void afmoe__checkpoint_memory(const struct checkpoint *checkpoint, uint64_t *out_mapped, uint64_t *out_private)
{
    const struct owned *owned = checkpoint->owned;
    const struct mapped_file *file;
    *out_mapped = 0;
    *out_private = sizeof *owned + owned->bound.n_bytes + owned->n_shards * sizeof *owned->shards +
                   checkpoint->tensors.capacity * sizeof(struct tensor);
    for (uint64_t i = 0; (file = weights_file_at(checkpoint, i)); i++) add_file(file, out_mapped, out_private);
    for (uint64_t i = 0; i < owned->n_shards; i++) *out_private += owned->shards[i].names_bytes;
    if (checkpoint->gguf) *out_private += afmoe__gguf_table_bytes(checkpoint->gguf);
    add_file(&checkpoint->tokenizer_json, out_mapped, out_private);
}

void afmoe__checkpoint_close(struct checkpoint *checkpoint)
{
    struct owned *owned = checkpoint->owned;
    if (owned) {
        afmoe__layout_free(&owned->bound);
        for (uint64_t i = 0; i < owned->n_shards; i++) afmoe__safetensors_close(&owned->shards[i]);
        afmoe__free(owned->shards);
        afmoe__gguf_close_parts(&owned->gguf_parts);
        afmoe__file_close(&owned->template_file);
        afmoe__free(owned->template_text);
        afmoe__free(owned);
    }
    afmoe__tensors_free(&checkpoint->tensors);
    afmoe__gguf_close(checkpoint->gguf);
    afmoe__file_close(&checkpoint->tokenizer_json);
    afmoe__generation_free(&checkpoint->generation);
    *checkpoint = (struct checkpoint){0};
}
