/* Runs what test_shift_reference.py asks for: shift_cases MODEL MAX_TOKENS. On standard input: how many tokens, the
 * tokens, then steps "append N", "shift KEEP DROP", "rewind N". On standard output: the logits of every token appended,
 * float32, in the order they came. */
#include "afmoe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static afmoe_error error;

static void check(afmoe_status status)
{
    if (status == AFMOE_OK) return;
    fprintf(stderr, "%s: %s\n", afmoe_status_name(status), error.message);
    exit(1);
}

static afmoe_session *open_session(const char *path, uint64_t max_tokens, uint64_t *out_vocab)
{
    afmoe_model *model;
    afmoe_context *context;
    afmoe_session *session;
    afmoe_model_info info;
    afmoe_context_options options;
    afmoe_context_options_init(&options, sizeof options);
    options.precision = AFMOE_PRECISION_EXACT;
    options.cells = AFMOE_CELLS_F32;
    options.n_threads = 2;
    options.max_tokens = max_tokens;
    check(afmoe_model_open(&model, path, NULL, &error));
    afmoe_model_info_init(&info, sizeof info);
    check(afmoe_model_get_info(model, &info, &error));
    *out_vocab = info.vocab_size;
    check(afmoe_context_create(&context, model, &options, &error));
    check(afmoe_session_create(&session, context, &error));
    afmoe_context_free(context);
    afmoe_model_free(model);
    return session;
}

static void append(afmoe_session *session, const afmoe_token *tokens, uint64_t begin, uint64_t n, uint64_t vocab)
{
    uint64_t *positions = malloc(n * sizeof *positions);
    float *logits = malloc(n * vocab * sizeof *logits);
    afmoe_append_options options;
    afmoe_append_options_init(&options, sizeof options);
    if (!positions || !logits) exit(1);
    for (uint64_t i = 0; i < n; i++) positions[i] = begin + i;
    options.positions = positions;
    options.n_positions = n;
    options.out_logits = logits;
    options.logits_capacity = n * vocab;
    check(afmoe_session_append(session, tokens + begin, n, &options, NULL, &error));
    if (fwrite(logits, vocab * sizeof *logits, n, stdout) != n) exit(1);
    free(positions);
    free(logits);
}

int main(int argc, char **argv)
{
    uint64_t n_tokens, vocab, at = 0, a, b;
    char step[16];
    afmoe_error_init(&error, sizeof error);
    if (argc != 3 || scanf("%" SCNu64, &n_tokens) != 1) return 2;
    afmoe_token *tokens = calloc(n_tokens, sizeof *tokens);
    if (!tokens) return 1;
    for (uint64_t i = 0; i < n_tokens; i++)
        if (scanf("%" SCNd32, &tokens[i]) != 1) return 2;
    afmoe_session *session = open_session(argv[1], strtoull(argv[2], NULL, 10), &vocab);
    while (scanf("%15s %" SCNu64, step, &a) == 2) {
        if (strcmp(step, "append") == 0) {
            if (a > n_tokens - at) return 2;
            append(session, tokens, at, a, vocab);
            at += a;
        } else if (strcmp(step, "shift") == 0 && scanf("%" SCNu64, &b) == 1) {
            check(afmoe_session_shift(session, a, b, NULL, &error));
        } else if (strcmp(step, "rewind") == 0) {
            check(afmoe_session_rewind(session, a, NULL, NULL, &error));
            at = a;
        } else {
            return 2;
        }
    }
    afmoe_session_free(session);
    free(tokens);
    return 0;
}
