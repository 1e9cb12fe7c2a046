/* Activations to whole numbers or bfloat16, plain C; formula and layout: activations.h. */
#include "ref.h"

#include "half.h"
#include "quantize.h"

#include <stdbool.h>

static float quantize_group(int8_t *q, const float *x, uint64_t n)
{
    float max = largest(x, n);
    bool usable = max >= ACTIVATION_MIN && max < INFINITY;
    quantize(q, x, n, usable ? 127.0f / max : 0);
    return usable ? max / 127.0f : max < ACTIVATION_MIN ? 0 : NAN;
}

static void prepare(enum activation_kind kind, void *out, const float *x, uint64_t n)
{
    uint64_t group = activation_group(kind);
    uint8_t *base = out;
    int16_t *wide = out;
    int8_t *bytes = (int8_t *)base + activation_int8(kind, n);
    float *d = (float *)(void *)(base + activation_d(kind, n));
    int16_t *sum32 = (int16_t *)(void *)(base + activation_sum32(kind, n));
    int16_t *sum16 = (int16_t *)(void *)(base + activation_sum16(kind, n));
    for (uint64_t k = 0; k < n; k += group) {
        int8_t q[256];
        d[k / group] = quantize_group(q, x + k, group);
        for (uint64_t i = 0; i < group; i++) {
            if (activation_q_bytes(kind) == 2) wide[k + i] = q[i];
            bytes[k + i] = q[i];
            if (i % 16 == 0) sum16[(k + i) / 16] = 0;
            sum16[(k + i) / 16] = (int16_t)(sum16[(k + i) / 16] + q[i]);
        }
    }
    for (uint64_t j = 0; j < n / 32; j++) sum32[j] = (int16_t)(sum16[2 * j] + sum16[2 * j + 1]);
}

#define DEFINE_PREPARE(name, kind)                                                                                     \
    static void prepare_##name(void *out, const float *x, uint64_t n)                                                  \
    {                                                                                                                  \
        prepare(kind, out, x, n);                                                                                      \
    }

DEFINE_PREPARE(int8_32, ACTIVATION_INT8_32)
DEFINE_PREPARE(int16_32, ACTIVATION_INT16_32)
DEFINE_PREPARE(int8_256, ACTIVATION_INT8_256)
DEFINE_PREPARE(int16_256, ACTIVATION_INT16_256)

static void prepare_bf16(void *out, const float *x, uint64_t n)
{
    uint16_t *h = out;
    for (uint64_t k = 0; k < n; k++) h[k] = bf16_from_f32(x[k]);
}

void afmoe__prepare_ref(struct kernels *k)
{
    k->prepare[ACTIVATION_INT8_32] = prepare_int8_32;
    k->prepare[ACTIVATION_INT16_32] = prepare_int16_32;
    k->prepare[ACTIVATION_INT8_256] = prepare_int8_256;
    k->prepare[ACTIVATION_INT16_256] = prepare_int16_256;
    k->prepare[ACTIVATION_BF16] = prepare_bf16;
}
