/* A random model as a folder of the hub's layout: config.json, and model.safetensors or shards with their index.
 * A safetensors file is the length of its header (8 bytes, little endian), a JSON object that says for each tensor its
 * dtype, shape and place, and the data. There is no tokenizer.json. */
#include "synth.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct shard {
    size_t begin, end; /* tensors */
};

struct folder {
    const char *path;
    const struct plan *plan;
    struct shard *shards;
    unsigned n_shards;
};

/* As many tensors as fit, one at least. */
static bool cut(struct folder *folder, uint64_t shard_bytes)
{
    const struct plan *plan = folder->plan;
    uint64_t n_bytes = 0;
    folder->shards = malloc(plan->n * sizeof *folder->shards);
    if (!folder->shards) {
        complain("out of memory");
        return false;
    }
    for (size_t i = 0; i < plan->n; i++) {
        uint64_t n = tensor_bytes(&plan->tensors[i]);
        if (i == 0 || n_bytes + n > shard_bytes) {
            folder->shards[folder->n_shards++].begin = i;
            n_bytes = 0;
        }
        folder->shards[folder->n_shards - 1].end = i + 1;
        n_bytes += n;
    }
    return true;
}

static void shard_name(char out[64], unsigned i, unsigned n)
{
    if (n == 1) strcpy(out, "model.safetensors");
    else snprintf(out, 64, "model-%05u-of-%05u.safetensors", i + 1, n);
}

static bool path_of(char out[PATH_MAX], const struct folder *folder, const char *name)
{
    if ((size_t)snprintf(out, PATH_MAX, "%s/%s", folder->path, name) < PATH_MAX) return true;
    complain("%s: the name is too long", folder->path);
    return false;
}

/* The JSON header in memory of its own, free() it; padded with spaces to a multiple of 8. */
static bool make_header(char **out, size_t *out_n, const struct folder *folder, const struct shard *shard)
{
    *out = NULL;
    struct out_file file = {.path = "header", .stream = open_memstream(out, out_n)};
    if (!file.stream) {
        complain("out of memory");
        return false;
    }
    uint64_t offset = 0;
    out_print(&file, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = shard->begin; i < shard->end; i++) {
        const struct tensor *t = &folder->plan->tensors[i];
        out_print(&file, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, t->format->container);
        for (unsigned k = 0; k < t->n_dims; k++) out_print(&file, "%s%" PRIu64, k ? "," : "", t->dims[k]);
        out_print(&file, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", offset, offset + tensor_bytes(t));
        offset += tensor_bytes(t);
    }
    out_print(&file, "}");
    while (file.n_bytes % 8 && out_print(&file, " ")) {}
    bool good = fclose(file.stream) == 0 && !file.failed;
    if (!good && !file.failed) complain("out of memory");
    return good;
}

static bool write_shard(const struct folder *folder, unsigned i, struct filler *filler)
{
    char name[64], path[PATH_MAX], *header;
    size_t n;
    struct out_file file;
    const struct shard *shard = &folder->shards[i];
    shard_name(name, i, folder->n_shards);
    if (!path_of(path, folder, name) || !out_open(&file, path)) return false;
    bool good = make_header(&header, &n, folder, shard);
    uint8_t length[8];
    for (int k = 0; good && k < 8; k++) length[k] = (uint8_t)((uint64_t)n >> 8 * k);
    good = good && out_write(&file, length, sizeof length) && out_write(&file, header, n);
    free(header);
    for (size_t k = shard->begin; good && k < shard->end; k++)
        good = filler_write(filler, &file, &folder->plan->tensors[k]);
    return out_close(&file, good);
}

static bool write_index(const struct folder *folder)
{
    char path[PATH_MAX], name[64];
    struct out_file file;
    if (!path_of(path, folder, "model.safetensors.index.json") || !out_open(&file, path)) return false;
    out_print(&file, "{\"metadata\": {\"total_size\": %" PRIu64 "}, \"weight_map\": {", folder->plan->n_bytes);
    for (unsigned i = 0; i < folder->n_shards; i++) {
        shard_name(name, i, folder->n_shards);
        for (size_t k = folder->shards[i].begin; k < folder->shards[i].end; k++)
            out_print(&file, "%s\n\"%s\": \"%s\"", k ? "," : "", folder->plan->tensors[k].name, name);
    }
    out_print(&file, "\n}}\n");
    return out_close(&file, true);
}

static void print_config(struct out_file *file, const struct shape *s, const struct format *format)
{
    const char *dtype = strcmp(format->container, "F32") == 0 ? "float32"
                      : strcmp(format->container, "F16") == 0 ? "float16" : "bfloat16";
    out_print(file,
              "{\n  \"architectures\": [\"AfmoeForCausalLM\"],\n  \"model_type\": \"afmoe\",\n  \"dtype\": \"%s\",\n"
              "  \"hidden_act\": \"silu\",\n  \"attention_bias\": false,\n  \"attention_dropout\": 0.0,\n"
              "  \"bos_token_id\": 0,\n  \"eos_token_id\": 3,\n  \"pad_token_id\": 12,\n  \"mup_enabled\": true,\n"
              "  \"tie_word_embeddings\": false,\n  \"initializer_range\": 0.02,\n  \"use_cache\": true,\n",
              dtype);
    out_print(file,
              "  \"vocab_size\": %" PRIu64 ",\n  \"hidden_size\": %" PRIu64 ",\n  \"intermediate_size\": %" PRIu64
              ",\n  \"moe_intermediate_size\": %" PRIu64 ",\n  \"num_hidden_layers\": %u,\n"
              "  \"num_dense_layers\": %u,\n  \"num_attention_heads\": %u,\n  \"num_key_value_heads\": %u,\n"
              "  \"head_dim\": %u,\n  \"num_experts\": %u,\n  \"num_experts_per_tok\": %u,\n",
              s->vocab, s->hidden, s->dense_width, s->expert_width, s->n_layers, s->n_dense_layers, s->n_heads,
              s->n_kv_heads, s->head_dim, s->n_experts, s->n_experts_per_token);
    out_print(file,
              "  \"num_shared_experts\": 1,\n  \"n_group\": 1,\n  \"topk_group\": 1,\n  \"num_expert_groups\": 1,\n"
              "  \"num_limited_groups\": 1,\n  \"score_func\": \"sigmoid\",\n  \"route_norm\": true,\n"
              "  \"route_scale\": 2.826,\n  \"rms_norm_eps\": 1e-05,\n  \"rope_theta\": 10000,\n"
              "  \"rope_scaling\": null,\n  \"sliding_window\": %" PRIu64 ",\n  \"max_position_embeddings\": %" PRIu64
              ",\n  \"global_attn_every_n_layers\": 4,\n  \"layer_types\": [",
              s->window, s->max_positions);
    for (unsigned i = 0; i < s->n_layers; i++)
        out_print(file, "%s\"%s\"", i ? ", " : "", i % 4 == 3 ? "full_attention" : "sliding_attention");
    out_print(file, "]\n}\n");
}

static bool write_config(const struct folder *folder, const struct shape *shape, const struct format *format)
{
    char path[PATH_MAX];
    struct out_file file;
    if (!path_of(path, folder, "config.json") || !out_open(&file, path)) return false;
    print_config(&file, shape, format);
    return out_close(&file, true);
}

static void remove_file(const struct folder *folder, const char *name)
{
    char path[PATH_MAX];
    if (path_of(path, folder, name)) unlink(path);
}

/* The folder is ours: it was not there before. */
static void remove_all(const struct folder *folder)
{
    char name[64];
    for (unsigned i = 0; i < folder->n_shards; i++) {
        shard_name(name, i, folder->n_shards);
        remove_file(folder, name);
    }
    remove_file(folder, "config.json");
    remove_file(folder, "model.safetensors.index.json");
    rmdir(folder->path);
}

int synth_safetensors(const char *path, const struct shape *shape, const struct format *format,
                      const struct plan *plan, struct filler *filler, uint64_t shard_bytes)
{
    struct folder folder = {.path = path, .plan = plan};
    if (mkdir(path, 0777) != 0) {
        complain("%s: %s", path, strerror(errno));
        return EXIT_FAILED;
    }
    bool good = cut(&folder, shard_bytes) && write_config(&folder, shape, format);
    for (unsigned i = 0; good && i < folder.n_shards; i++) good = write_shard(&folder, i, filler);
    if (good && folder.n_shards > 1) good = write_index(&folder);
    if (!good) remove_all(&folder);
    free(folder.shards);
    return good ? EXIT_OK : EXIT_FAILED;
}
