/* What C computes, for the tests of a binding to compare with bit for bit.
 *
 *     values_from_c MODEL N_GENERATE TOKEN...
 *
 * Appends the tokens and generates greedily, the stop set ignored. Writes to standard output, in this machine's bytes:
 * log-probabilities of the tokens from the second on, logits and hidden state of the last, experts chosen and their
 * weights, then the tokens generated and their log-probabilities. */
#include <afmoe.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_TOKENS = 512, MAX_VALUES = 1 << 20 };

struct generated {
    afmoe_token tokens[MAX_TOKENS];
    float logprobs[MAX_TOKENS];
    uint64_t n;
};

static int32_t keep(void *user_data, const afmoe_piece *piece)
{
    struct generated *generated = user_data;
    if (piece->token < 0) return 0;
    if (generated->n == MAX_TOKENS) return 1;
    generated->tokens[generated->n] = piece->token;
    generated->logprobs[generated->n++] = piece->logprob;
    return 0;
}

static int write_all(const void *values, size_t n_bytes)
{
    return fwrite(values, 1, n_bytes, stdout) != n_bytes;
}

/* The values of the prompt, from buffers that hold anything a test model has. */
static int read_prompt(afmoe_session *session, const afmoe_model_info *info, const afmoe_token *tokens, uint64_t n,
                       afmoe_error *error)
{
    static float logprobs[MAX_TOKENS], values[MAX_VALUES], weights[MAX_VALUES];
    static int32_t experts[MAX_VALUES];
    const uint64_t n_chosen = n * (info->n_layers - info->n_dense_layers) * info->n_experts_per_token;
    uint64_t n_values;
    afmoe_append_options options;
    afmoe_append_options_init(&options, sizeof options);
    options.logprob_begin = 1;
    options.logprob_end = n;
    options.out_logprobs = logprobs;
    options.out_expert_ids = experts;
    options.out_expert_weights = weights;
    options.expert_capacity = MAX_VALUES;
    if (afmoe_session_append(session, tokens, n, &options, NULL, error) < 0) return 1;
    if (write_all(logprobs, (n - 1) * sizeof *logprobs)) return 1;
    if (afmoe_session_logits(session, values, MAX_VALUES, &n_values, error) < 0) return 1;
    if (write_all(values, n_values * sizeof *values)) return 1;
    if (afmoe_session_hidden(session, values, MAX_VALUES, &n_values, error) < 0) return 1;
    return write_all(values, n_values * sizeof *values) || write_all(experts, n_chosen * sizeof *experts) ||
           write_all(weights, n_chosen * sizeof *weights);
}

static int generate(afmoe_session *session, uint64_t n, afmoe_error *error)
{
    static struct generated generated;
    afmoe_generate_options options;
    afmoe_generate_options_init(&options, sizeof options);
    options.max_tokens = n;
    options.ignore_eos = 1;
    options.on_piece = keep;
    options.on_piece_data = &generated;
    return afmoe_generate(session, NULL, &options, NULL, error) < 0 ||
           write_all(generated.tokens, generated.n * sizeof *generated.tokens) ||
           write_all(generated.logprobs, generated.n * sizeof *generated.logprobs);
}

int main(int argc, char **argv)
{
    afmoe_token tokens[MAX_TOKENS];
    afmoe_model *model = NULL;
    afmoe_context *context = NULL;
    afmoe_session *session = NULL;
    afmoe_model_info info;
    afmoe_error error;
    if (argc < 5 || argc > MAX_TOKENS) {
        fprintf(stderr, "usage: values_from_c MODEL N_GENERATE TOKEN TOKEN...\n");
        return 2;
    }
    afmoe_error_init(&error, sizeof error);
    afmoe_model_info_init(&info, sizeof info);
    const uint64_t n = (uint64_t)argc - 3;
    for (uint64_t i = 0; i < n; i++) tokens[i] = (afmoe_token)atoi(argv[i + 3]);
    int failed = afmoe_model_open(&model, argv[1], NULL, &error) < 0 ||
                 afmoe_model_get_info(model, &info, &error) < 0 ||
                 afmoe_context_create(&context, model, NULL, &error) < 0 ||
                 afmoe_session_create(&session, context, &error) < 0 ||
                 read_prompt(session, &info, tokens, n, &error) ||
                 generate(session, (uint64_t)atoi(argv[2]), &error) || fflush(stdout) != 0;
    if (failed) fprintf(stderr, "values_from_c: %s: %s\n", afmoe_status_name(error.code), error.message);
    afmoe_session_free(session);
    afmoe_context_free(context);
    afmoe_model_free(model);
    return failed;
}
