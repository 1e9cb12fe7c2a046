/* What smaller key/value cells change: KL(f32 cells || others) of the next-token distribution, in nats, over every
 * position of windows of a text, at both precisions. Prints one JSON object a line.
 *
 * Usage: cell_divergence MODEL TEXT_FILE [WINDOWS]      (windows of 256 tokens, default 32) */
#include "measuring.h"

#include <math.h>
#include <string.h>

enum { WINDOW = 256 };

struct run {
    afmoe_context *context;
    afmoe_session *session;
    float *logits; /* [WINDOW][vocab] */
};

static afmoe_error error;

static void check(afmoe_status status)
{
    if (status >= 0) return;
    fprintf(stderr, "cell_divergence: %s: %s\n", afmoe_status_name(status), error.message);
    exit(1);
}

static char *read_file(const char *path, uint64_t *out_n)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    uint64_t n = 0, got;
    do {
        text = file ? realloc(text, n + 65536) : NULL;
        if (!text) {
            fprintf(stderr, "cell_divergence: cannot read %s\n", path);
            exit(1);
        }
        got = fread(text + n, 1, 65536, file);
        n += got;
    } while (got > 0);
    fclose(file);
    *out_n = n;
    return text;
}

static void start(struct run *run, afmoe_model *model, int32_t precision, int32_t cells, uint64_t vocab)
{
    afmoe_context_options options;
    afmoe_context_options_init(&options, sizeof options);
    options.precision = precision;
    options.cells = cells;
    options.max_tokens = WINDOW;
    check(afmoe_context_create(&run->context, model, &options, &error));
    check(afmoe_session_create(&run->session, run->context, &error));
    run->logits = malloc(WINDOW * vocab * sizeof *run->logits);
    if (!run->logits) exit(1);
}

static void end(struct run *run)
{
    afmoe_session_free(run->session);
    afmoe_context_free(run->context);
    free(run->logits);
}

static void compute(struct run *run, const afmoe_token *tokens, uint64_t vocab)
{
    uint64_t positions[WINDOW];
    afmoe_append_options options;
    for (uint64_t i = 0; i < WINDOW; i++) positions[i] = i;
    afmoe_append_options_init(&options, sizeof options);
    options.positions = positions;
    options.n_positions = WINDOW;
    options.out_logits = run->logits;
    options.logits_capacity = WINDOW * vocab;
    check(afmoe_session_rewind(run->session, 0, NULL, NULL, &error));
    check(afmoe_session_append(run->session, tokens, WINDOW, &options, NULL, &error));
}

static double log_sum_exp(const float *z, uint64_t n)
{
    double max = z[0], sum = 0;
    for (uint64_t i = 1; i < n; i++) max = z[i] > max ? z[i] : max;
    for (uint64_t i = 0; i < n; i++) sum += exp(z[i] - max);
    return max + log(sum);
}

static double divergence(const float *p, const float *q, uint64_t n)
{
    double log_p = log_sum_exp(p, n), log_q = log_sum_exp(q, n), sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += exp(p[i] - log_p) * (p[i] - log_p - (q[i] - log_q));
    return sum;
}

static uint64_t largest(const float *z, uint64_t n)
{
    uint64_t best = 0;
    for (uint64_t i = 1; i < n; i++)
        if (z[i] > z[best]) best = i;
    return best;
}

static void report(const char *precision, const char *cells, double *values, uint64_t n, uint64_t n_same)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += values[i];
    qsort(values, n, sizeof *values, bench_by_value);
    printf("{\"precision\": \"%s\", \"cells\": \"%s\", \"positions\": %llu, \"mean\": %.3g, \"median\": %.3g, "
           "\"p99\": %.3g, \"max\": %.3g, \"same_top\": %.5f}\n",
           precision, cells, (unsigned long long)n, sum / (double)n, values[n / 2], values[n * 99 / 100], values[n - 1],
           (double)n_same / (double)n);
}

/* values: room for n_windows * WINDOW */
static void measure(afmoe_model *model, int32_t precision, const afmoe_token *tokens, uint64_t n_windows,
                    uint64_t vocab, double *values)
{
    static const struct {
        int32_t cells;
        const char *name;
    } kinds[] = {{AFMOE_CELLS_F16, "f16"}, {AFMOE_CELLS_BF16, "bf16"}, {AFMOE_CELLS_Q8_0, "q8_0"}};
    struct run exact, other;
    start(&exact, model, precision, AFMOE_CELLS_F32, vocab);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        uint64_t n = 0, n_same = 0;
        start(&other, model, precision, kinds[kind].cells, vocab);
        for (uint64_t w = 0; w < n_windows; w++) {
            compute(&exact, tokens + w * WINDOW, vocab);
            compute(&other, tokens + w * WINDOW, vocab);
            for (uint64_t i = 0; i < WINDOW; i++) {
                const float *p = exact.logits + i * vocab, *q = other.logits + i * vocab;
                values[n++] = divergence(p, q, vocab);
                n_same += largest(p, vocab) == largest(q, vocab);
            }
        }
        report(precision == AFMOE_PRECISION_EXACT ? "exact" : "fast", kinds[kind].name, values, n, n_same);
        end(&other);
    }
    end(&exact);
}

int main(int argc, char **argv)
{
    afmoe_model *model;
    afmoe_model_info info;
    uint64_t n_bytes, n_tokens, n_windows = argc > 3 ? strtoull(argv[3], NULL, 10) : 32;
    if (argc < 3 || argc > 4 || n_windows == 0) {
        fprintf(stderr, "usage: cell_divergence MODEL TEXT_FILE [WINDOWS]\n");
        return 2;
    }
    afmoe_error_init(&error, sizeof error);
    afmoe_model_info_init(&info, sizeof info);
    check(afmoe_model_open(&model, argv[1], NULL, &error));
    check(afmoe_model_get_info(model, &info, &error));
    char *text = read_file(argv[2], &n_bytes);
    afmoe_token *tokens = malloc((n_bytes + 1) * sizeof *tokens); /* a token has at least a byte */
    if (!tokens) return 1;
    check(afmoe_tokenize(model, text, n_bytes, NULL, tokens, n_bytes, &n_tokens, &error));
    if (n_windows > n_tokens / WINDOW) n_windows = n_tokens / WINDOW;

    double *values = malloc((n_windows * WINDOW + 1) * sizeof *values);
    if (!values) return 1;
    for (int32_t precision = AFMOE_PRECISION_EXACT; n_windows && precision <= AFMOE_PRECISION_FAST; precision++)
        measure(model, precision, tokens, n_windows, info.vocab_size, values);
    afmoe_model_free(model);
    free(values);
    free(tokens);
    free(text);
    return 0;
}
