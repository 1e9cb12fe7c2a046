/* safetensors folders: the tiny model in one file or in two with an index, with edits on the JSON texts, on the length
 * before a header and on bytes; or any bytes as a file. What opens is read to the last byte. */
#include "fuzz.h"

#include "checkpoint.h"

#include <stdlib.h>
#include <string.h>

static const char *const words[] = {
    "F32", "F16", "BF16", "F64", "I8", "U8", "BOOL", "F8_E4M3", "f32", "Q8_0", "dtype", "shape", "data_offsets",
    "__metadata__", "format", "pt", "weight_map", "metadata", "total_size", "a.safetensors", "b.safetensors",
    "../a.safetensors", "/etc/passwd", ".a", "a/b", "c.safetensors", "model.embed_tokens.weight", "model.norm.weight",
    "lm_head.weight", "model.layers.1.mlp.experts.0.gate_proj.weight", "model.layers.0.self_attn.q_proj.weight",
    "model.layers.1.mlp.experts.gate_proj.weight", "model.layers.1.mlp.router.gate.weight", "x",
};

enum { N_WORDS = sizeof words / sizeof *words };

/* Made once: a header and the data of both shards and of the whole. */
static struct {
    struct json_base header[3], index;
    struct buffer data[3];
    char *config;
} tiny;

static void take_shard(struct safetensors_writer *w, const struct safetensors_writer *whole, int shard, json_t *map)
{
    const char *name;
    json_t *entry;
    size_t i = 0;
    safetensors_writer_init(w);
    json_object_foreach(whole->header, name, entry) {
        if ((int)(i++ % 2) != shard) continue;
        uint64_t shape[2], n_dims = json_array_size(json_object_get(entry, "shape"));
        for (uint64_t d = 0; d < n_dims; d++) {
            shape[d] = (uint64_t)json_integer_value(json_array_get(json_object_get(entry, "shape"), d));
        }
        const json_t *offsets = json_object_get(entry, "data_offsets");
        json_int_t begin = json_integer_value(json_array_get(offsets, 0));
        json_int_t end = json_integer_value(json_array_get(offsets, 1));
        safetensors_add(w, name, "F32", (uint32_t)n_dims, shape, whole->data.data + begin, (uint64_t)(end - begin));
        json_object_set_new(map, name, json_string(shard ? "b.safetensors" : "a.safetensors"));
    }
}

static void keep(int which, struct safetensors_writer *w)
{
    json_base_init(&tiny.header[which], json_dumps(w->header, JSON_COMPACT));
    tiny.data[which] = w->data;
    json_decref(w->header);
}

static void make_tiny(void)
{
    struct safetensors_writer whole, shards[2];
    json_t *map = json_object(), *config = tiny_config();
    safetensors_writer_init(&whole);
    safetensors_add_tiny(&whole, FORMAT_F32);
    for (int i = 0; i < 2; i++) take_shard(&shards[i], &whole, i, map);
    json_t *index = json_pack("{s:{s:i},s:o}", "metadata", "total_size", 1, "weight_map", map);
    json_base_init(&tiny.index, json_dumps(index, JSON_COMPACT));
    for (int i = 0; i < 2; i++) keep(i, &shards[i]);
    keep(2, &whole);
    tiny.config = json_dumps(config, JSON_COMPACT);
    json_decref(index);
    json_decref(config);
}

static void put_shard(struct choices *c, const char *name, int which)
{
    struct buffer header = {0}, file = {0};
    uint8_t how = choose_u8(c);
    json_edit(&header, &tiny.header[which], c, words, N_WORDS);
    if (how & 1) buffer_pad(&header, 8 + (how & 8)); /* with NULs: not what pads a header */
    buffer_put_u64(&file, (how & 6) == 6 ? choose_size(c) : header.n);
    buffer_put(&file, header.data, header.n);
    buffer_put(&file, tiny.data[which].data, tiny.data[which].n);
    for (int n = (how & 0x70) == 0x70 ? choose_below(c, 8) : 0; n > 0; n--) {
        uint64_t at = choose_u16(c) % (header.n + 8);
        file.data[at] = choose_u8(c);
    }
    if ((how & 0x90) == 0x90) file.n -= choose_u16(c) % file.n;
    disk_put(name, file.data, file.n);
    buffer_free(&header);
    buffer_free(&file);
}

static void put_index(struct choices *c)
{
    struct buffer text = {0};
    json_edit(&text, &tiny.index, c, words, N_WORDS);
    disk_put("model.safetensors.index.json", text.data, text.n);
    buffer_free(&text);
}

static void build(struct choices *c)
{
    uint8_t how = choose_u8(c);
    disk_clear();
    disk_put("config.json", tiny.config, strlen(tiny.config));
    if (how == 255) {
        disk_put("model.safetensors", c->at, c->n);
    } else if (how == 254) {
        disk_put("model.safetensors.index.json", c->at, c->n);
    } else if (how & 1) {
        put_shard(c, "model.safetensors", 2);
    } else {
        if (how & 2) put_index(c);
        else disk_put("model.safetensors.index.json", tiny.index.text, tiny.index.n);
        put_shard(c, "a.safetensors", how & 0x20 ? 1 : 0);
        if ((how & 0xc) != 0xc) put_shard(c, "b.safetensors", 1);
    }
}

static uint32_t touch(const struct matrix *m)
{
    return m->data && m->n_rows ? m->data[0] + (uint32_t)m->data[m->n_rows * m->row_bytes - 1] : 0;
}

static uint32_t touch_weights(const struct checkpoint *c)
{
    const struct model_weights *w = &c->weights;
    uint32_t sum = touch(&w->embedding) + touch(&w->head) + (uint32_t)(w->norm[c->config.hidden_size - 1] > 0);
    for (uint32_t l = 0; l < c->config.n_layers; l++) {
        const struct layer_weights *y = &w->layers[l];
        sum += touch(&y->q) + touch(&y->k) + touch(&y->v) + touch(&y->gate) + touch(&y->o) + touch(&y->mlp.down);
        sum += touch(&y->router) + touch(&y->shared.down);
        for (uint32_t e = 0; y->experts && e < c->config.n_experts; e++) sum += touch(&y->experts[e].down);
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices c = {data, size};
    afmoe_error error = {.size = sizeof error};
    struct checkpoint checkpoint;
    const struct checkpoint_options options = {.strict = size & 1, .read = size & 2, .max_json_bytes = 1 << 20};
    if (!tiny.config) make_tiny();
    build(&c);
    afmoe_status status = CHECK_ONE_OF(afmoe__checkpoint_open(&checkpoint, DISK, &options, &error), AFMOE_OK,
                                       AFMOE_FORMAT, AFMOE_TRUNCATED, AFMOE_LIMIT, AFMOE_UNSUPPORTED);
    if (status == AFMOE_OK) fuzz_sink += touch_weights(&checkpoint);
    afmoe__checkpoint_close(&checkpoint);
    return 0;
}
