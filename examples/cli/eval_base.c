/* Base files: the distributions one model gives to every scored position of a text, for comparing another with it.
 *
 *     "AFMOEKLD"                         magic, 8 bytes
 *     u32 version (1), u32 type (1: f32)
 *     u64 vocab, u64 window, u64 n_windows
 *     i32 ids[n_windows * window]        the tokens
 *     f32 rows[n_windows * (window - 1)][vocab]    natural log-probabilities
 *
 * All little endian. Row i of a window holds the probabilities of what follows its token i. Nothing is left out or
 * rounded further: a model compared with its own file has a divergence of exactly 0.
 *
 *     KL(base || this) = sum over tokens of exp(base) * (base - this) */
#include "eval.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "base files are written as they lie in memory, which must be little endian"
#endif

struct header {
    char magic[8];
    uint32_t version, type;
    uint64_t vocab, window, n_windows;
};

static const struct header header_wanted = {.magic = {'A', 'F', 'M', 'O', 'E', 'K', 'L', 'D'}, .version = 1, .type = 1};

static struct header header_of(const struct windows *w)
{
    struct header header = header_wanted;
    header.vocab = w->vocab;
    header.window = w->window;
    header.n_windows = w->n_windows;
    return header;
}

int base_create(struct base_file *base, const char *path, const struct windows *w)
{
    struct header header = header_of(w);
    *base = (struct base_file){.path = path, .windows = w};
    if (!out_open(&base->out, path)) return EXIT_FAILED;
    bool good = out_write(&base->out, &header, sizeof header) &&
                out_write(&base->out, w->ids, (size_t)(w->n_windows * w->window) * sizeof *w->ids);
    if (!good) out_close(&base->out, false);
    return good ? EXIT_OK : EXIT_FAILED;
}

/* ---- Reading: nothing in the file is believed -------------------------------------------------------------------- */

static bool read_exactly(const struct base_file *base, void *out, size_t n)
{
    errno = 0;
    if (fread(out, 1, n, base->in) == n) return true;
    complain("%s: %s", base->path, ferror(base->in) && errno ? strerror(errno) : "the file ends early");
    return false;
}

static bool equal(const struct base_file *base, const char *what, uint64_t value, uint64_t wanted)
{
    if (value != wanted)
        complain("%s: %s is %" PRIu64 ", here it is %" PRIu64, base->path, what, value, wanted);
    return value == wanted;
}

/* A regular file has the size its header says. The numbers are our own by now: no product comes near 2^64, for the
 * ids are in memory. */
static bool check_size(const struct base_file *base)
{
    const struct windows *w = base->windows;
    struct stat status;
    if (fstat(fileno(base->in), &status) != 0 || !S_ISREG(status.st_mode)) return true;
    uint64_t wanted = sizeof(struct header) + w->n_windows * w->window * sizeof(afmoe_token) +
                      w->n_windows * (w->window - 1) * w->vocab * sizeof(float);
    return equal(base, "the size of the file", (uint64_t)status.st_size, wanted);
}

static bool check_ids(const struct base_file *base)
{
    afmoe_token ids[1024];
    uint64_t n = base->windows->n_windows * base->windows->window;
    for (uint64_t at = 0; at < n;) {
        size_t part = n - at < 1024 ? (size_t)(n - at) : 1024;
        if (!read_exactly(base, ids, part * sizeof *ids)) return false;
        if (memcmp(ids, base->windows->ids + at, part * sizeof *ids) != 0) {
            complain("%s: it was written for other tokens than this text has, from one of %" PRIu64 "..%" PRIu64 " on",
                     base->path, at, at + part - 1);
            return false;
        }
        at += part;
    }
    return true;
}

static bool check_header(const struct base_file *base)
{
    struct header header;
    if (!read_exactly(base, &header, sizeof header)) return false;
    if (memcmp(header.magic, header_wanted.magic, sizeof header.magic) != 0) {
        complain("%s: it is no base file of afmoe eval", base->path);
        return false;
    }
    const struct windows *w = base->windows;
    return equal(base, "the version", header.version, header_wanted.version) &&
           equal(base, "the type of values", header.type, header_wanted.type) &&
           equal(base, "the vocabulary", header.vocab, w->vocab) &&
           equal(base, "the window", header.window, w->window) &&
           equal(base, "the number of windows", header.n_windows, w->n_windows) && check_size(base) &&
           check_ids(base);
}

int base_open(struct base_file *base, const char *path, const struct windows *w)
{
    *base = (struct base_file){.path = path, .windows = w, .in = fopen(path, "rb")};
    if (!base->in) {
        complain("%s: %s", path, strerror(errno));
        return EXIT_FAILED;
    }
    base->row = malloc((size_t)w->vocab * sizeof *base->row);
    if (!base->row) complain("out of memory");
    if (base->row && check_header(base)) return EXIT_OK;
    base_close(base, false);
    return EXIT_FAILED;
}

bool base_put(struct base_file *base, const float *logprobs)
{
    return out_write(&base->out, logprobs, (size_t)base->windows->vocab * sizeof *logprobs);
}

/* Log-probabilities: at most 0, none NaN, and together 1. */
bool base_get(struct base_file *base, const float **out)
{
    uint64_t vocab = base->windows->vocab;
    double sum = 0;
    bool below = true;
    if (!read_exactly(base, base->row, (size_t)vocab * sizeof *base->row)) return false;
    for (uint64_t i = 0; i < vocab; i++) {
        below = below && base->row[i] <= 0; /* false for NaN */
        sum += exp((double)base->row[i]);
    }
    if (!below || !(fabs(sum - 1) < 1e-3)) {
        complain("%s: row %" PRIu64 " holds no log-probabilities (the sum of probabilities is %.9g)", base->path,
                 base->n_rows, sum);
        return false;
    }
    base->n_rows++;
    *out = base->row;
    return true;
}

bool base_close(struct base_file *base, bool keep)
{
    bool good = !base->out.stream || out_close(&base->out, keep);
    if (base->in) fclose(base->in);
    free(base->row);
    base->in = NULL;
    base->row = NULL;
    return good;
}

/* ---- Divergence -------------------------------------------------------------------------------------------------- */

bool to_logprobs(float *row, uint64_t vocab)
{
    double best = -INFINITY, sum = 0;
    for (uint64_t i = 0; i < vocab; i++)
        if (isnan(row[i])) return false;
        else if ((double)row[i] > best) best = (double)row[i];
    if (!isfinite(best)) return false;
    for (uint64_t i = 0; i < vocab; i++) sum += exp((double)row[i] - best);
    double shift = best + log(sum);
    for (uint64_t i = 0; i < vocab; i++) row[i] = (float)((double)row[i] - shift);
    return true;
}

bool divergence_init(struct divergence *d, uint64_t n_positions)
{
    *d = (struct divergence){.capacity = n_positions, .values = calloc((size_t)n_positions, sizeof *d->values)};
    if (!d->values) complain("out of memory: %" PRIu64 " positions", n_positions);
    return d->values != NULL;
}

void divergence_add(struct divergence *d, const float *base, const float *other, uint64_t vocab)
{
    double sum = 0;
    uint64_t base_top = 0, other_top = 0;
    for (uint64_t i = 0; i < vocab; i++) {
        if (base[i] > base[base_top]) base_top = i;
        if (other[i] > other[other_top]) other_top = i;
        if (base[i] == other[i] || base[i] == -INFINITY) continue; /* also 0 * infinity */
        sum += exp((double)base[i]) * ((double)base[i] - (double)other[i]);
    }
    d->n_same_top += base_top == other_top;
    if (d->n < d->capacity) d->values[d->n++] = sum;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value a share of all is at most, between neighbours in proportion. */
static double quantile(const struct divergence *d, double share)
{
    double at = share * (double)(d->n - 1);
    uint64_t below = (uint64_t)at, above = below + 1 < d->n ? below + 1 : below;
    return d->values[below] == d->values[above]
               ? d->values[below] /* also infinities */
               : d->values[below] + (at - (double)below) * (d->values[above] - d->values[below]);
}

static void print_number(const char *name, double value, bool json)
{
    if (json && !isfinite(value)) printf(", \"%s\": null", name); /* JSON has no infinity */
    else if (json) printf(", \"%s\": %.9g", name, value);
    else printf("%-11s %.9f\n", name, value);
}

void divergence_print(struct divergence *d, bool json)
{
    double sum = 0;
    for (uint64_t i = 0; i < d->n; i++) sum += d->values[i];
    qsort(d->values, d->n, sizeof *d->values, by_value);
    print_number("kl_mean", sum / (double)d->n, json);
    print_number("kl_median", quantile(d, 0.5), json);
    print_number("kl_99", quantile(d, 0.99), json);
    print_number("kl_max", d->values[d->n - 1], json);
    print_number("same_top", (double)d->n_same_top / (double)d->n, json);
}
