/* Random values in every format. The blocks of the quantised formats are those of ggml-common.h.
 *
 * A block is random bytes with its factors put in: d such that the values have the deviation wanted, and m, where a
 * value is d * q - m, such that their mean is about 0. The `rms` of a format, with d = 1, was measured on 20000 blocks
 * with the decoders of the gguf Python package. F32, F16 and BF16 values come from a table of normal quantiles.
 *
 * The bytes come from xoshiro256++ (Blackman, Vigna), seeded by the seed and the tensor's name: a tensor is the same
 * whatever else the file holds. */
#include "synth.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER_BYTES = 1 << 20, N_GAUSS = 4096, N_CONTENTS = 3, N_PLAIN = 3 /* F32, F16, BF16 */ };

static const struct {
    double mean, deviation;
} contents[N_CONTENTS] = {
    [CONTENT_WEIGHTS] = {0, 0.02}, [CONTENT_NORM] = {1, 0.05}, [CONTENT_BIAS] = {0, 0.01},
};

/* ---- What random blocks need besides factors --------------------------------------------------------------------- */

/* Scale and minimum of a sub-block, four bits each: equal, 8..15. */
static void repair_q2_k(uint8_t *block, uint16_t d)
{
    (void)d;
    for (int i = 0; i < 16; i++) block[i] = (uint8_t)(((block[i] & 7) | 8) * 17);
}

/* Eight scales and minima of six bits: equal, 32..63. Bits 0..5 of bytes 4..7 are scales 0..3, of 8..11 minima 0..3,
 * bits 6..7 the high bits of scales and minima 4..7, whose low nibbles share bytes 12..15. */
static void repair_k(uint8_t *block, uint16_t d)
{
    (void)d;
    for (int i = 4; i < 8; i++) {
        block[i] |= 0xA0;
        block[i + 4] = block[i];
        block[i + 8] = (uint8_t)((block[i + 8] & 15) * 17);
    }
}

/* d is spread over the top nibbles of four scales. */
static void repair_iq1_m(uint8_t *block, uint16_t d)
{
    for (int i = 0; i < 4; i++) {
        uint8_t *high = block + 49 + 2 * i;
        *high = (uint8_t)((*high & 15) | (d >> 4 * i & 15) << 4);
    }
}

/* Of two bits, 0 1 2 mean -1 0 1; 3 becomes 1. */
static void repair_tq2_0(uint8_t *block, uint16_t d)
{
    (void)d;
    for (int i = 0; i < 64; i++) block[i] = (uint8_t)(block[i] & ~((block[i] & block[i] >> 1 & 0x55) << 1));
}

/* E8M0: 2^(120 - 128). */
static void repair_mxfp4(uint8_t *block, uint16_t d)
{
    (void)d;
    block[0] = 120;
}

/* UE4M3: 4 * 2^-9. */
static void repair_nvfp4(uint8_t *block, uint16_t d)
{
    (void)d;
    memset(block, 4, 4);
}

/* ---- Formats ----------------------------------------------------------------------------------------------------- */

static const struct format q6_k = {"q6_k", NULL, 14, 18, 256, 210, NULL, 208, -1, 1365.6f, 0, NULL};

static const struct format formats[] = {
    {"f32", "F32", 0, 0, 1, 4, NULL, -1, -1, 0, 0, NULL},
    {"f16", "F16", 1, 1, 1, 2, NULL, -1, -1, 0, 0, NULL},
    {"bf16", "BF16", 30, 32, 1, 2, NULL, -1, -1, 0, 0, NULL},
    {"q8_0", NULL, 8, 7, 32, 34, NULL, 0, -1, 73.87f, 0, NULL},
    {"q4_0", NULL, 2, 2, 32, 18, NULL, 0, -1, 4.637f, 0, NULL},
    {"q4_1", NULL, 3, 3, 32, 20, NULL, 0, 2, 4.609f, -7.5f, NULL},
    {"q5_0", NULL, 6, 8, 32, 22, NULL, 0, -1, 9.245f, 0, NULL},
    {"q5_1", NULL, 7, 9, 32, 24, NULL, 0, 2, 9.235f, -15.5f, NULL},
    {"q2_k", NULL, 10, 10, 256, 84, NULL, 80, 82, 13.11f, 1.5f, repair_q2_k},
    {"q3_k", NULL, 11, 11, 256, 110, NULL, 108, -1, 43.32f, 0, NULL},
    {"q4_k", NULL, 12, 14, 256, 144, NULL, 0, 2, 223.1f, 7.5f, repair_k},
    {"q5_k", NULL, 13, 16, 256, 176, NULL, 0, 2, 446.0f, 15.5f, repair_k},
    {"q6_k", NULL, 14, 18, 256, 210, NULL, 208, -1, 1365.6f, 0, NULL},
    {"q4_k_m", NULL, 12, 15, 256, 144, &q6_k, 0, 2, 223.1f, 7.5f, repair_k},
    {"q5_k_m", NULL, 13, 17, 256, 176, &q6_k, 0, 2, 446.0f, 15.5f, repair_k},
    {"iq1_s", NULL, 19, 24, 256, 50, NULL, 0, -1, 7.202f, 0, NULL},
    {"iq1_m", NULL, 29, 31, 256, 56, NULL, -1, -1, 7.21f, 0, repair_iq1_m},
    {"iq2_xxs", NULL, 16, 19, 256, 66, NULL, 0, -1, 53.39f, 0, NULL},
    {"iq2_xs", NULL, 17, 20, 256, 74, NULL, 0, -1, 55.86f, 0, NULL},
    {"iq2_s", NULL, 22, 28, 256, 82, NULL, 0, -1, 56.41f, 0, NULL},
    {"iq3_xxs", NULL, 18, 23, 256, 98, NULL, 0, -1, 142.5f, 0, NULL},
    {"iq3_s", NULL, 21, 26, 256, 110, NULL, 0, -1, 140.4f, 0, NULL},
    {"iq4_nl", NULL, 20, 25, 32, 18, NULL, 0, -1, 67.44f, 0, NULL},
    {"iq4_xs", NULL, 23, 30, 256, 136, NULL, 0, -1, 1244.6f, 0, NULL},
    {"tq1_0", NULL, 34, 36, 256, 54, NULL, 52, -1, 0.8173f, 0, NULL},
    {"tq2_0", NULL, 35, 37, 256, 66, NULL, 64, -1, 0.7071f, 0, repair_tq2_0},
    {"mxfp4", NULL, 39, 38, 32, 17, NULL, -1, -1, 1, 0, repair_mxfp4},
    {"nvfp4", NULL, 40, 39, 64, 36, NULL, -1, -1, 1, 0, repair_nvfp4},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

const struct format *const format_f32 = &formats[0];

const struct format *format_find(const char *name)
{
    for (int i = 0; i < N_FORMATS; i++)
        if (strcmp(formats[i].name, name) == 0) return &formats[i];
    char list[512];
    size_t n = 0;
    for (int i = 0; i < N_FORMATS; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, " %s", formats[i].name);
    complain("%s '%s' is not one of%s", option_as_typed("format"), name, list);
    return NULL;
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* To the nearest, |x| < 65504. Fields of exponent and fraction are one number, so a carry out of the fraction is
 * right. */
static uint16_t to_f16(double x)
{
    int exponent;
    double fraction = frexp(fabs(x), &exponent); /* 0.5 <= fraction < 1 */
    long bits = exponent < -13 ? lrint(ldexp(fabs(x), 24))
                               : (exponent + 14) * 1024L + lrint(ldexp(fraction, 11)) - 1024;
    return (uint16_t)(bits | (signbit(x) ? 0x8000 : 0));
}

static uint32_t to_f32(double x)
{
    float value = (float)x;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint16_t to_bf16(double x)
{
    uint32_t bits = to_f32(x);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* The x that a normal value is below with probability p, by halving. */
static double normal_quantile(double p)
{
    double low = -8, high = 8;
    for (int i = 0; i < 40; i++) {
        double middle = (low + high) / 2;
        if (erfc(-middle / sqrt(2)) / 2 < p) low = middle;
        else high = middle;
    }
    return (low + high) / 2;
}

static uint64_t rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static uint64_t draw(uint64_t s[4])
{
    uint64_t result = rotate(s[0] + s[3], 23) + s[0], t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

/* FNV-1a of the name, then splitmix64. */
static void seed_stream(uint64_t s[4], uint64_t seed, const char *name)
{
    uint64_t x = 0xcbf29ce484222325u ^ seed;
    for (; *name; name++) x = (x ^ (uint8_t)*name) * 0x100000001b3u;
    for (int i = 0; i < 4; i++) {
        uint64_t z = x += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        s[i] = z ^ z >> 31;
    }
}

/* ---- Filling ----------------------------------------------------------------------------------------------------- */

static uint32_t *gauss_table(const struct filler *filler, const struct format *format, enum content content)
{
    return filler->gauss + ((size_t)content * N_PLAIN + (size_t)(format - formats)) * N_GAUSS;
}

bool filler_init(struct filler *filler, uint64_t seed, uint64_t total, bool quiet)
{
    *filler = (struct filler){.seed = seed, .total = total, .quiet = quiet};
    filler->block = malloc(BUFFER_BYTES);
    filler->gauss = malloc(sizeof *filler->gauss * N_CONTENTS * N_PLAIN * N_GAUSS);
    if (!filler->block || !filler->gauss) {
        complain("out of memory");
        return false;
    }
    for (int i = 0; i < N_GAUSS; i++) {
        double x = normal_quantile((i + 0.5) / N_GAUSS);
        for (int content = 0; content < N_CONTENTS; content++) {
            double value = contents[content].mean + x * contents[content].deviation;
            gauss_table(filler, &formats[0], (enum content)content)[i] = to_f32(value);
            gauss_table(filler, &formats[1], (enum content)content)[i] = to_f16(value);
            gauss_table(filler, &formats[2], (enum content)content)[i] = to_bf16(value);
        }
    }
    return true;
}

void filler_free(struct filler *filler)
{
    free(filler->block);
    free(filler->gauss);
    *filler = (struct filler){0};
}

static void fill_random(uint64_t *out, size_t n_bytes, uint64_t s[4])
{
    for (size_t i = 0; i < (n_bytes + 7) / 8; i++) out[i] = draw(s); /* BUFFER_BYTES is a multiple of 8 */
}

static void fill_plain(void *out, size_t n_bytes, const uint32_t *table, unsigned element_bytes, uint64_t s[4])
{
    uint16_t *halves = out;
    uint32_t *singles = out;
    size_t n = n_bytes / element_bytes;
    for (size_t i = 0; i < n; i += 4) {
        uint64_t bits = draw(s);
        for (size_t j = i; j < i + 4 && j < n; j++, bits >>= 16) {
            if (element_bytes == 2) halves[j] = (uint16_t)table[bits % N_GAUSS];
            else singles[j] = table[bits % N_GAUSS];
        }
    }
}

static void put_u16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static void fill_blocks(uint64_t *out, size_t n_bytes, const struct format *f, uint64_t s[4])
{
    double d = contents[CONTENT_WEIGHTS].deviation / (double)f->rms;
    uint16_t d_bits = to_f16(d), m_bits = to_f16(d * (double)f->m_ratio);
    uint8_t *bytes = (uint8_t *)out;
    fill_random(out, n_bytes, s);
    for (size_t at = 0; at < n_bytes; at += f->bytes) {
        uint8_t *block = bytes + at;
        if (f->repair) f->repair(block, d_bits);
        if (f->d_at >= 0) put_u16(block + f->d_at, d_bits);
        if (f->m_at >= 0) put_u16(block + f->m_at, m_bits);
    }
}

bool filler_write(struct filler *filler, struct out_file *file, const struct tensor *tensor)
{
    static char label[] = "writing";
    const struct format *f = tensor->format;
    uint64_t left = tensor_bytes(tensor), stream[4];
    size_t most = BUFFER_BYTES / f->bytes * f->bytes; /* whole blocks */
    seed_stream(stream, filler->seed, tensor->name);
    while (left > 0) {
        size_t n = left < most ? (size_t)left : most;
        if (f->elements == 1)
            fill_plain(filler->block, n, gauss_table(filler, f, tensor->content), f->bytes, stream);
        else
            fill_blocks(filler->block, n, f, stream);
        if (!out_write(file, filler->block, n)) return false;
        left -= n;
        filler->done += n;
        if (!filler->quiet) show_progress(label, filler->done >> 20, (filler->total >> 20) + 1);
    }
    return true;
}
