/* logits MODEL N_GENERATED ID...: what C gets, for the tests of the Rust crate to compare with: vocab_size logits
 * (float) after the tokens, then N_GENERATED greedy tokens (afmoe_token) and their log-probabilities (float), as bytes
 * on standard output. */
#include <afmoe.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_TOKENS = 1024 };

struct answer {
    uint64_t n;
    afmoe_token tokens[MAX_TOKENS];
    float logprobs[MAX_TOKENS];
};

static int32_t keep(void *user_data, const afmoe_piece *piece)
{
    struct answer *answer = user_data;
    if (piece->token < 0) return 0;
    if (answer->n == MAX_TOKENS) return 1;
    answer->tokens[answer->n] = piece->token;
    answer->logprobs[answer->n++] = piece->logprob;
    return 0;
}

static int write_all(const void *data, size_t size, uint64_t n)
{
    return fwrite(data, size, n, stdout) == n ? 0 : 1;
}

static int run(afmoe_session *session, const afmoe_token *tokens, uint64_t n_tokens, uint64_t n_generated,
               afmoe_error *error)
{
    static struct answer answer;
    const float *logits;
    uint64_t n_logits;
    afmoe_generate_options options;
    afmoe_generate_options_init(&options, sizeof options);
    options.ignore_eos = 1;
    options.max_tokens = n_generated;
    options.on_piece = keep;
    options.on_piece_data = &answer;
    if (afmoe_session_append(session, tokens, n_tokens, NULL, NULL, error) < 0 ||
        afmoe_session_logits_view(session, &logits, &n_logits, error) < 0)
        return 1;
    if (write_all(logits, sizeof *logits, n_logits)) return 1;
    if (afmoe_generate(session, NULL, &options, NULL, error) < 0) return 1;
    return write_all(answer.tokens, sizeof *answer.tokens, answer.n) ||
           write_all(answer.logprobs, sizeof *answer.logprobs, answer.n) || fflush(stdout) != 0;
}

int main(int argc, char **argv)
{
    afmoe_model *model = NULL;
    afmoe_context *context = NULL;
    afmoe_session *session = NULL;
    afmoe_token tokens[MAX_TOKENS];
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    if (argc < 4 || argc - 3 > MAX_TOKENS) return fprintf(stderr, "usage: logits MODEL N_GENERATED ID...\n"), 2;
    for (int i = 3; i < argc; i++) tokens[i - 3] = (afmoe_token)strtol(argv[i], NULL, 10);

    int failed = afmoe_model_open(&model, argv[1], NULL, &error) < 0 ||
                 afmoe_context_create(&context, model, NULL, &error) < 0 ||
                 afmoe_session_create(&session, context, &error) < 0 ||
                 run(session, tokens, (uint64_t)argc - 3, strtoull(argv[2], NULL, 10), &error);
    if (failed) fprintf(stderr, "logits: %s\n", error.message);
    afmoe_session_free(session);
    afmoe_context_free(context);
    afmoe_model_free(model);
    return failed;
}
