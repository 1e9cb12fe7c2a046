/* How fast text becomes ids: tokenizer_bench TOKENIZER [FILE...]
 *
 * TOKENIZER is a tokenizer.json, a GGUF file or a folder. Prints MB/s (10^6 bytes, one thread) for each file and for
 * four runs of 2^20 equal bytes, which are what naive splitters and mergers fail at. Each figure is the fastest of as
 * many rounds as half a second allows; three at least. */
#include "measuring.h"

#include <string.h>

static char *read_file(const char *path, uint64_t *out_n)
{
    FILE *file = fopen(path, "rb");
    char *data = NULL;
    long n = -1;
    if (file && fseek(file, 0, SEEK_END) == 0 && (n = ftell(file)) >= 0 && fseek(file, 0, SEEK_SET) == 0) {
        data = malloc((size_t)n + 1);
        if (data && fread(data, 1, (size_t)n, file) != (size_t)n) {
            free(data);
            data = NULL;
        }
    }
    if (file) fclose(file);
    *out_n = (uint64_t)n;
    return data;
}

/* 0: could not be measured. */
static int measure(const afmoe_model *model, const char *name, const char *text, uint64_t n_bytes)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_token *ids = malloc((n_bytes + 1) * sizeof *ids);
    uint64_t n_ids = 0;
    double best = 1e30, total = 0;
    for (int round = 0; ids && (round < 3 || total < 0.5); round++) {
        double begin = bench_now();
        if (afmoe_tokenize(model, text, n_bytes, NULL, ids, n_bytes, &n_ids, &error) != AFMOE_OK) {
            fprintf(stderr, "%s: %s\n", name, error.message);
            free(ids);
            return 0;
        }
        double seconds = bench_now() - begin;
        total += seconds;
        if (seconds < best) best = seconds;
    }
    if (ids) {
        printf("%-32s %10llu bytes %9llu tokens %8.1f MB/s\n", name, (unsigned long long)n_bytes,
               (unsigned long long)n_ids, (double)n_bytes / best / 1e6);
    }
    free(ids);
    return ids != NULL;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: tokenizer_bench TOKENIZER [FILE...]\n");
        return 2;
    }
    afmoe_model *model;
    afmoe_model_options options;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_model_options_init(&options, sizeof options);
    options.tokenizer_only = 1;
    double begin = bench_now();
    if (afmoe_model_open(&model, argv[1], &options, &error) != AFMOE_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    printf("loaded in %.3f s\n", bench_now() - begin);

    int good = 1;
    for (int i = 2; i < argc; i++) {
        uint64_t n;
        char *text = read_file(argv[i], &n);
        if (!text) fprintf(stderr, "%s: cannot be read\n", argv[i]);
        good &= text && measure(model, argv[i], text, n);
        free(text);
    }
    static const char letters[] = {'a', ' ', '1', '.'};
    char *run = malloc(1 << 20);
    for (size_t i = 0; run && i < sizeof letters; i++) {
        char name[] = "a run of '?'";
        name[10] = letters[i];
        memset(run, letters[i], 1 << 20);
        good &= measure(model, name, run, 1 << 20);
    }
    free(run);
    afmoe_model_free(model);
    return good ? 0 : 1;
}
