/* GGUF files as a host opens them: by path, in parts, as a range of a larger file, from memory. What opens is listed, or
 * computed with: matrices are in every format there is, wide enough for its blocks, and full of random bytes. */
#define _GNU_SOURCE /* memfd_create */
#include "fuzz.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum way { BY_PATH, IN_PARTS, AS_RANGE, FROM_MEMORY };
enum { WIDE = 256, ROWS = 40, MAX_PARTS = 4, MAX_EDITS = 4, MAX_ROOM = 5000, MAX_TOKENS = 9 };

/* ---- The files -------------------------------------------------------------------------------------------------- */

static bool has(const struct written_tensor *t, const char *word)
{
    return strstr(t->name, word) != NULL;
}

/* From 32 to 256 columns, a whole block of every format, where a matrix takes the hidden vector; the others that are
 * too narrow for the format become F32. */
static void widen(struct gguf_writer *w)
{
    for (uint32_t i = 0; i < w->n_tensors; i++) {
        struct written_tensor *t = &w->tensors[i];
        if (has(t, "_q_norm") || has(t, "_k_norm") || has(t, "exp_probs")) continue;
        t->dims[has(t, "down") || has(t, "attn_output")] = WIDE;
        t->n_elements = t->dims[0] * t->dims[1] * t->dims[2];
        if (t->dims[0] % afmoe__format_traits[t->format].block_elements) gguf_set_format(t, FORMAT_F32);
    }
}

/* What tells where a part belongs, and what any header may get wrong. */
static void edit(struct gguf_writer *w, struct choices *c)
{
    static const char *const keys[] = {"split.no", "split.count", "split.tensors.count"};
    const char *key = keys[choose_below(c, 3)];
    struct written_tensor *t = w->n_tensors ? &w->tensors[choose_below(c, w->n_tensors)] : NULL;
    uint64_t bits;
    switch (choose_below(c, 7)) {
    case 0: gguf_drop(w, key); break;
    case 1:
        bits = choose_size(c);
        gguf_set(w, key, GGUF_U64, &bits, 8);
        break;
    case 2: gguf_set_u32(w, key, choose_below(c, MAX_PARTS + 2)); break;
    case 3:
        if (t) gguf_drop_tensor(w, t->name);
        break;
    case 4:
        if (t) t->move = choose_u8(c) - 128;
        break;
    case 5:
        if (t) gguf_set_format(t, (enum tensor_format)choose_below(c, N_FORMATS)); /* maybe of no whole blocks */
        break;
    default: w->drop_tail = choose_u16(c);
    }
}

static void build_part(struct buffer *out, struct choices *c, enum tensor_format format, uint32_t part, uint32_t n_parts)
{
    static const uint8_t masks[] = {0xbf, 0xff, 0x3f, 0x0f}; /* halves below 2, any, positive, tiny */
    struct gguf_writer w;
    uint64_t n_header;
    if (n_parts > 1) gguf_writer_init_part(&w, format, part, n_parts);
    else gguf_writer_init(&w, format);
    if (part == 0) gguf_set_u32(&w, "afmoe.embedding_length", WIDE);
    widen(&w);
    w.noise = choose_u8(c);
    w.noise_mask = masks[choose_below(c, 4)];
    for (size_t n = choose_below(c, 2 * MAX_EDITS); n > MAX_EDITS; n--) edit(&w, c);
    gguf_serialise(&w, out, &n_header);
    gguf_writer_free(&w);
}

static void put_parts(char path[64], struct choices *c, enum tensor_format format)
{
    uint32_t n_parts = 1 + choose_below(c, MAX_PARTS);
    for (uint32_t part = 0; part < n_parts; part++) {
        struct buffer bytes;
        char name[40];
        build_part(&bytes, c, format, part, n_parts);
        snprintf(name, sizeof name, "x-%05u-of-%05u.gguf", part + 1, n_parts);
        if (part == 0 || choose_u8(c) < 250) disk_put(name, bytes.data, bytes.n);
        buffer_free(&bytes);
    }
    snprintf(path, 64, DISK "/x-%05u-of-%05u.gguf", choose_u8(c) < 250 ? 1u : 2u, n_parts);
}

/* ---- Opening ---------------------------------------------------------------------------------------------------- */

static const afmoe_status open_statuses[] = {AFMOE_OK,    AFMOE_FORMAT,      AFMOE_TRUNCATED,
                                             AFMOE_LIMIT, AFMOE_UNSUPPORTED, AFMOE_NOT_FOUND};
#define CHECK_OPEN(call)                                                                                               \
    fuzz_check_status(call, &error, open_statuses, sizeof open_statuses / sizeof *open_statuses, #call)

/* The file with room before and behind, and where in it one looks: mostly at the right place. */
static void open_range(afmoe_model **out, struct choices *c, const struct buffer *bytes,
                       const afmoe_model_options *options)
{
    static const uint8_t room[MAX_ROOM];
    static int descriptor = -1;
    afmoe_error error = {.size = sizeof error};
    uint64_t before = choose_u16(c) % MAX_ROOM, behind = choose_u8(c);
    if (descriptor < 0) descriptor = memfd_create("range", MFD_CLOEXEC);
    REQUIRE(descriptor >= 0 && ftruncate(descriptor, 0) == 0);
    REQUIRE(pwrite(descriptor, bytes->data, bytes->n, (off_t)before) == (ssize_t)bytes->n);
    REQUIRE(pwrite(descriptor, room, behind, (off_t)(before + bytes->n)) == (ssize_t)behind);
    uint64_t offset = before, length = bytes->n;
    uint8_t how = choose_u8(c);
    if (how >= 240) offset = choose_size(c);
    if (how >= 220 && how < 250) length = choose_size(c);
    if (how >= 200 && how < 220) length = UINT64_MAX;
    afmoe_status status = CHECK_OPEN(afmoe_model_open_fd(out, descriptor, offset, length, options, &error));
    REQUIRE(status != AFMOE_OK || offset <= before + bytes->n + behind);
}

static void open_model(afmoe_model **out, struct choices *c, enum way way, enum tensor_format format,
                       const afmoe_model_options *options)
{
    afmoe_error error = {.size = sizeof error};
    static struct buffer bytes; /* borrowed by a model from memory, which is closed before the next input */
    char path[64] = DISK "/x.gguf";
    buffer_free(&bytes);
    if (way == IN_PARTS) put_parts(path, c, format);
    else build_part(&bytes, c, format, 0, 1);
    if (way == BY_PATH) disk_put("x.gguf", bytes.data, bytes.n);
    if (way == AS_RANGE) open_range(out, c, &bytes, options);
    else if (way == FROM_MEMORY)
        CHECK_OPEN(afmoe_model_open_memory(out, bytes.data, bytes.n, NULL, NULL, options, &error));
    else CHECK_OPEN(afmoe_model_open(out, path, options, &error));
}

/* ---- Using what opened ------------------------------------------------------------------------------------------ */

static void list(const afmoe_model *model, const afmoe_model_info *info)
{
    uint64_t n = afmoe_model_n_tensors(model), n_elements = 0, n_bytes = 0;
    char before[128] = "";
    afmoe_error error = {.size = sizeof error};
    afmoe_tensor_info t;
    afmoe_tensor_info_init(&t, sizeof t);
    for (uint64_t i = 0; i < n; i++) {
        CHECK_ONE_OF(afmoe_model_get_tensor(model, i, &t, &error), AFMOE_OK);
        REQUIRE(strcmp(before, t.name) < 0 && t.n_dims <= 8 && t.is_supported >= 0 && t.is_supported <= 1);
        REQUIRE(strncmp(t.file, "x", 1) == 0 || strstr(t.file, "descriptor") || strcmp(t.file, "memory") == 0);
        REQUIRE(t.is_used == (info->has_weights ? 1 : -1) || t.is_used == 0);
        uint64_t product = 1;
        for (uint32_t d = 0; d < t.n_dims; d++) product *= t.shape[d];
        REQUIRE(product == t.n_elements && t.file_offset + t.n_bytes < UINT32_MAX);
        snprintf(before, sizeof before, "%s", t.name);
        n_elements += t.n_elements;
        n_bytes += t.n_bytes;
    }
    REQUIRE(info->has_weights || (n_elements == info->n_parameters && n_bytes == info->weight_bytes));
    CHECK_ONE_OF(afmoe_model_get_tensor(model, n, &t, &error), AFMOE_INVALID);
}

/* Weights may be infinite or NaN, and so may logits be; then there are no probabilities, else they sum to 1. */
static void check_logits(afmoe_session *session)
{
    const float *logits;
    float logprobs[ROWS];
    double sum = 0;
    uint64_t n, n_finite = 0;
    afmoe_error error = {.size = sizeof error};
    CHECK_ONE_OF(afmoe_session_logits_view(session, &logits, &n, &error), AFMOE_OK);
    REQUIRE(n == ROWS);
    for (uint64_t i = 0; i < n; i++) n_finite += isfinite(logits[i]) != 0;
    afmoe_status status =
        CHECK_ONE_OF(afmoe_session_logprobs(session, logprobs, ROWS, &n, &error), AFMOE_OK, AFMOE_NUMERIC);
    REQUIRE(status == AFMOE_OK ? n_finite > 0 : n_finite < ROWS);
    for (uint64_t i = 0; i < ROWS && status == AFMOE_OK; i++) sum += exp((double)logprobs[i]);
    REQUIRE(status != AFMOE_OK || fabs(sum - 1) < 1e-3);
}

/* Several tokens together, then one: the two ways through every product. */
static void compute(afmoe_model *model, struct choices *c)
{
    afmoe_context *context = NULL;
    afmoe_session *session = NULL;
    afmoe_token tokens[MAX_TOKENS];
    afmoe_context_options options;
    afmoe_error error = {.size = sizeof error};
    afmoe_context_options_init(&options, sizeof options);
    options.n_threads = 1;
    options.cpu_level = (int32_t)choose_below(c, (uint32_t)afmoe_cpu_level() + 1);
    options.chunk_tokens = 1 + choose_below(c, MAX_TOKENS);
    uint64_t n = 1 + choose_below(c, MAX_TOKENS);
    for (int i = 0; i < MAX_TOKENS; i++) tokens[i] = (afmoe_token)choose_below(c, ROWS);
    if (CHECK_ONE_OF(afmoe_context_create(&context, model, &options, &error), AFMOE_OK, AFMOE_UNSUPPORTED) == AFMOE_OK) {
        CHECK_ONE_OF(afmoe_session_create(&session, context, &error), AFMOE_OK);
        const uint64_t lengths[] = {n, 1};
        for (int i = 0; i < 2; i++) {
            CHECK_ONE_OF(afmoe_session_append(session, tokens, lengths[i], NULL, NULL, &error), AFMOE_OK);
            check_logits(session);
        }
    }
    afmoe_session_free(session);
    afmoe_context_free(context);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices c = {data, size};
    afmoe_model *model = NULL;
    afmoe_model_options options;
    uint8_t how = choose_u8(&c);
    enum tensor_format format = (enum tensor_format)choose_below(&c, N_FORMATS);
    afmoe_model_options_init(&options, sizeof options);
    options.load = how & 4 ? AFMOE_LOAD_READ : AFMOE_LOAD_MAP;
    options.strict = (how & 8) != 0;
    options.inspect_only = (how & 0x30) == 0x30;
    disk_clear();
    open_model(&model, &c, (enum way)(how & 3), format, &options);
    if (!model) return 0;
    afmoe_model_info info;
    afmoe_model_info_init(&info, sizeof info);
    REQUIRE(afmoe_model_get_info(model, &info, NULL) == AFMOE_OK && info.has_weights == !options.inspect_only);
    list(model, &info);
    if (info.has_weights) compute(model, &c);
    afmoe_model_free(model);
    return 0;
}
