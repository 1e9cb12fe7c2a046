/* afmoe synth: models of random weights with the shapes of Trinity's, at the speed of the disk.
 *
 * What a model computes does not matter for its speed, how large its tensors are and how they are stored does. Values
 * have the deviation a real model starts from (0.02), so that all that is computed from them stays finite. */
#include "synth.h"

#include <inttypes.h>
#include <string.h>

/* pico is small enough for tests. */
static const struct shape shapes[] = {
    {"nano", 56, 2, 8, 2, 128, 128, 8, 200192, 1024, 3072, 256, 2048, 131072},
    {"mini", 32, 2, 32, 4, 128, 128, 8, 200192, 2048, 6144, 1024, 2048, 131072},
    {"large", 60, 6, 48, 8, 128, 256, 4, 200192, 3072, 12288, 3072, 4096, 262144},
    {"pico", 4, 1, 4, 2, 64, 8, 2, 2112, 256, 512, 256, 128, 2048},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static bool find_shape(struct shape *out, const char *name)
{
    for (int i = 0; i < N_SHAPES; i++)
        if (strcmp(shapes[i].name, name) == 0) {
            *out = shapes[i];
            return true;
        }
    complain("--shape takes nano, mini, large or pico, not '%s'", name);
    return false;
}

static bool within(const char *option, uint64_t value, uint64_t min, uint64_t max)
{
    if (value >= min && value <= max) return true;
    complain("--%s is %" PRIu64 ", must be %" PRIu64 "..%" PRIu64, option, value, min, max);
    return false;
}

static bool choose_shape(struct shape *out, const struct settings *s)
{
    if (!find_shape(out, s->shape ? s->shape : "nano")) return false;
    if (s->layers != UINT64_MAX) {
        if (!within("layers", s->layers, 1, out->n_layers)) return false;
        out->n_layers = (unsigned)s->layers;
        if (out->n_dense_layers >= out->n_layers) out->n_dense_layers = out->n_layers - 1;
    }
    if (s->vocab != UINT64_MAX) {
        if (!within("vocab", s->vocab, MIN_VOCAB, MAX_VOCAB)) return false;
        out->vocab = s->vocab;
    }
    return true;
}

/* safetensors or not; false after a message. */
static bool choose_container(bool *out_hub, const struct settings *s)
{
    *out_hub = s->container && strcmp(s->container, "safetensors") == 0;
    if (!s->container || *out_hub || strcmp(s->container, "gguf") == 0) return true;
    complain("--container takes gguf or safetensors, not '%s'", s->container);
    return false;
}

static const struct format *choose_format(const struct settings *s, bool hub)
{
    const struct format *format = format_find(s->format ? s->format : hub ? "bf16" : "q8_0");
    if (!format || !hub || format->container) return format;
    complain("safetensors files hold f32, f16 or bf16; '%s' is a format of GGUF files", format->name);
    return NULL;
}

int command_synth(const struct settings *s)
{
    struct shape shape;
    bool hub;
    if (s->n_arguments != 1) {
        complain("synth takes one OUT, not %d", s->n_arguments);
        return EXIT_USAGE;
    }
    if (!choose_shape(&shape, s) || !choose_container(&hub, s)) return EXIT_USAGE;
    const struct format *format = choose_format(s, hub);
    if (!format) return EXIT_USAGE;

    uint64_t shard_mb = s->shard_mb == UINT64_MAX ? 5000 : s->shard_mb;
    if (!within("shard-mb", shard_mb, 1, 1000000)) return EXIT_USAGE;

    if (!hub && !s->force && replaces_file(s->arguments[0])) {
        complain("%s exists; --force writes over it", s->arguments[0]);
        return EXIT_FAILED;
    }

    struct plan plan = {0};
    struct filler filler = {0};
    int code = EXIT_FAILED;
    uint64_t seed = s->seed_given ? s->seed : 0;
    if (plan_make(&plan, &shape, format, hub) && filler_init(&filler, seed, plan.n_bytes, s->quiet)) {
        code = hub ? synth_safetensors(s->arguments[0], &shape, format, &plan, &filler, shard_mb * 1000000)
                   : synth_gguf(s->arguments[0], &shape, format, &plan, &filler);
        hide_progress();
    }
    if (code == EXIT_OK && !s->quiet)
        complain("%s: %s, %u layers, %s, %zu tensors, %.1f MB", s->arguments[0], shape.name, shape.n_layers,
                 format->name, plan.n, (double)plan.n_bytes / 1e6);
    filler_free(&filler);
    plan_free(&plan);
    return code;
}
