/* Opens a checkpoint, see checkpoint.h: what the path is, its files, the configuration, the weights. */
#include "checkpoint.h"

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
                  weights_file[] = "model.safetensors", index_file[] = "model.safetensors.index.json";

/* Files and memory behind a checkpoint's view. */
struct owned {
    struct safetensors *shards;
    uint64_t n_shards;
    struct gguf_parts gguf_parts;
    struct bound_memory bound;
};

struct opening {
    struct checkpoint *out;
    struct owned *owned;
    const char *path;
    const struct checkpoint_options *options;
    struct tensor_table table;
    json_t *config_document;
    afmoe_error *error;
};

/* ---- JSON files of a folder ------------------------------------------------------------------------------------- */

static afmoe_status parse_file(const struct opening *o, const struct mapped_file *file, json_t **out)
{
    const struct json_caps caps = {o->options->max_json_bytes, JSON_MAX_VALUES, JSON_MAX_DEPTH};
    return afmoe__json_parse(out, file->data, file->size, &caps, afmoe__file_name(file), o->error);
}

/* *out stays NULL when there is no such file. */
static afmoe_status read_optional_json(const struct opening *o, const char *name, json_t **out)
{
    struct mapped_file file;
    afmoe_status status = afmoe__file_map_in(&file, o->path, name, o->error);
    if (status == AFMOE_NOT_FOUND) return AFMOE_OK;
    if (status) return status;
    status = parse_file(o, &file, out);
    afmoe__file_unmap(&file);
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

static afmoe_status read_tokenizer_config(const struct opening *o)
{
    json_t *document = NULL;
    bool has;
    afmoe_status status = read_optional_json(o, tokenizer_config_file, &document);
    if (status || !document) return status;
    const struct json_object from = {document, tokenizer_config_file, o->error};
    if (!json_is_object(document)) status = afmoe__json_fail_type(&from, "the document", document, "an object");
    else status = afmoe__json_bool(&from, "add_bos_token", NULL_IS_ABSENT, &has, &o->out->add_bos);
    json_decref(document);
    return status;
}

static afmoe_status read_tokenizer(const struct opening *o)
{
    afmoe_status status = afmoe__file_map_in(&o->out->tokenizer_json, o->path, tokenizer_file, o->error);
    if (status == AFMOE_NOT_FOUND && !o->options->tokenizer_only) status = AFMOE_OK;
    return status ? status : read_tokenizer_config(o);
}

/* ---- Weights of a folder ---------------------------------------------------------------------------------------- */

/* Takes the file over. */
static afmoe_status add_shard(struct opening *o, struct mapped_file *file)
{
    struct safetensors *shard = &o->owned->shards[o->owned->n_shards];
    afmoe_status status = afmoe__safetensors_open(shard, file, &o->table, o->options->max_json_bytes, o->error);
    if (status) afmoe__file_unmap(file);
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
        const struct tensor *t = afmoe__tensors_find(&o->table, name);
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
        status = afmoe__file_map_in(&file, o->path, names[i], o->error);
        if (status == AFMOE_NOT_FOUND) {
            status = afmoe__fail(o->error, AFMOE_FORMAT, "%s: shard \"%.255s\" is missing", index_file, names[i]);
        }
        if (!status) status = add_shard(o, &file);
    }
    if (!status) status = afmoe__tensors_sort(&o->table, o->error);
    if (!status) status = check_index(o, weight_map);
    afmoe__free(names);
    return status;
}

static afmoe_status open_folder_weights(struct opening *o)
{
    struct mapped_file file;
    json_t *index = NULL;
    afmoe_status status = afmoe__file_map_in(&file, o->path, weights_file, o->error);
    if (!status) {
        status = reserve_shards(o, 1);
        if (status) afmoe__file_unmap(&file);
        else status = add_shard(o, &file);
        return status ? status : afmoe__tensors_sort(&o->table, o->error);
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

/* ---- Path kinds ------------------------------------------------------------------------------------------------- */

static afmoe_status bind(struct opening *o, bool is_gguf)
{
    struct checkpoint *c = o->out;
    const struct layout_options layout = {is_gguf, o->options->strict, o->options->log, o->options->log_data};
    afmoe_status status =
        afmoe__layout_bind(&c->weights, &o->owned->bound, &c->layout, &o->table, &c->config, &layout, o->error);
    c->has_weights = status == AFMOE_OK;
    return status;
}

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
    if (!status) status = read_tokenizer(o);
    if (!status) status = read_generation(o);
    if (!status && !tokenizer_only) status = open_folder_weights(o);
    if (!status && !tokenizer_only) status = bind(o, false);
    return status;
}

static afmoe_status read_gguf_add_bos(const struct opening *o)
{
    static const char key[] = "tokenizer.ggml.add_bos_token";
    struct gguf_value value;
    if (!afmoe__gguf_find(o->out->gguf, key, &value)) return AFMOE_OK;
    if (value.type == GGUF_BOOL && afmoe__gguf_get_bool(&value, 0, &o->out->add_bos)) return AFMOE_OK;
    return afmoe__fail(o->error, AFMOE_FORMAT, "%.120s: %s is no boolean", afmoe__gguf_name(o->out->gguf), key);
}

/* The tensors of all parts, each part's names and bytes in its own file. */
static afmoe_status add_gguf_tensors(struct opening *o)
{
    const struct gguf_parts *parts = &o->owned->gguf_parts;
    afmoe_status status = afmoe__tensors_add_gguf(&o->table, o->out->gguf, o->error);
    for (uint64_t i = 0; i < parts->n && !status; i++)
        status = afmoe__tensors_add_gguf(&o->table, parts->parts[i], o->error);
    return status ? status : afmoe__tensors_sort(&o->table, o->error);
}

/* Takes the file over on success. */
static afmoe_status open_gguf(struct opening *o, struct mapped_file *file)
{
    struct checkpoint *c = o->out;
    afmoe_status status = afmoe__gguf_open(&c->gguf, file, o->error);
    if (status) return status;
    c->container = AFMOE_CONTAINER_GGUF;
    status = read_gguf_add_bos(o);
    if (!status) status = afmoe__generation_from_gguf(&c->generation, c->gguf, o->error);
    if (status) return status;
    if (o->options->tokenizer_only) return afmoe__config_tokens_from_gguf(&c->config, c->gguf, o->error);
    status = afmoe__gguf_open_parts(&o->owned->gguf_parts, c->gguf, o->path, o->error);
    if (!status) status = add_gguf_tensors(o);
    if (!status) status = afmoe__config_from_gguf(&c->config, c->gguf, &o->table, o->error);
    return status ? status : bind(o, true);
}

static afmoe_status open_file(struct opening *o)
{
    struct mapped_file file;
    afmoe_status status = afmoe__file_map(&file, o->path, o->error);
    if (status) return status;
    if (afmoe__gguf_probe(file.data, file.size)) {
        status = open_gguf(o, &file);
    } else if (o->options->tokenizer_only) {
        o->out->container = AFMOE_CONTAINER_TOKENIZER;
        o->out->tokenizer_json = file;
        return AFMOE_OK;
    } else {
        status = afmoe__fail(o->error, AFMOE_FORMAT,
                             "\"%.255s\" is no GGUF file; a safetensors checkpoint is opened by its folder, a "
                             "tokenizer.json with tokenizer_only", o->path);
    }
    afmoe__file_unmap(&file); /* already empty where it was taken over */
    return status;
}

static afmoe_status open_path(struct opening *o)
{
    enum path_kind kind;
    afmoe_status status = afmoe__path_kind(&kind, o->path, o->error);
    if (status) return status;
    switch (kind) {
    case PATH_FOLDER: return open_folder(o);
    case PATH_FILE: return open_file(o);
    case PATH_MISSING: return afmoe__fail(o->error, AFMOE_NOT_FOUND, "\"%.255s\" does not exist", o->path);
    case PATH_OTHER: break;
    }
    return afmoe__fail(o->error, AFMOE_FORMAT, "\"%.255s\" is neither a file nor a folder", o->path);
}

afmoe_status afmoe__checkpoint_open(struct checkpoint *out, const char *path, const struct checkpoint_options *options,
                                    afmoe_error *error)
{
    *out = (struct checkpoint){.config = {.bos_token = -1, .eos_token = -1, .pad_token = -1}};
    /* Files that may be missing are tried, and the caller's error is written on failure only. */
    afmoe_error found = {.size = sizeof found};
    struct opening o = {.out = out, .path = path, .options = options, .error = &found};
    o.owned = afmoe__alloc_zeroed(1, sizeof *o.owned);
    if (!o.owned) return afmoe__fail_memory(error, sizeof *o.owned, "a checkpoint");
    out->owned = o.owned;
    afmoe_status status = open_path(&o);
    json_decref(o.config_document);
    afmoe__tensors_free(&o.table);
    if (status == AFMOE_OK) return AFMOE_OK;
    afmoe__checkpoint_close(out);
    return afmoe__fail(error, status, "%s", found.message);
}

void afmoe__checkpoint_close(struct checkpoint *checkpoint)
{
    struct owned *owned = checkpoint->owned;
    if (owned) {
        afmoe__layout_free(&owned->bound);
        for (uint64_t i = 0; i < owned->n_shards; i++) afmoe__safetensors_close(&owned->shards[i]);
        afmoe__free(owned->shards);
        afmoe__gguf_close_parts(&owned->gguf_parts);
        afmoe__free(owned);
    }
    afmoe__gguf_close(checkpoint->gguf);
    afmoe__file_unmap(&checkpoint->tokenizer_json);
    afmoe__generation_free(&checkpoint->generation);
    *checkpoint = (struct checkpoint){0};
}
