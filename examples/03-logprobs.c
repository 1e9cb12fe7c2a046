/* Lesson 3: how likely a text is. Reading a prompt gives, where asked, the log-probability of each of its tokens; their
 * mean is the measure of language models (perplexity is exp of its negative).
 *
 *     03-logprobs [MODEL [TEXT]] */
#include <afmoe.h>
#include <stdio.h>
#include <string.h>

enum { MAX_TOKENS = 512 };

/* The first token has none before it, so the range begins at 1. */
static afmoe_status score(afmoe_session *session, const afmoe_token *tokens, uint64_t n_tokens, float *logprobs,
                          afmoe_error *error)
{
    afmoe_append_options options;
    afmoe_append_options_init(&options, sizeof options);
    options.logprob_begin = 1;
    options.logprob_end = n_tokens;
    options.out_logprobs = logprobs;
    return afmoe_session_append(session, tokens, n_tokens, &options, NULL, error);
}

/* One line for each token. Its bytes may be a part of a character: print only what is plain text. */
static afmoe_status print_scores(const afmoe_model *model, const afmoe_token *tokens, uint64_t n_tokens,
                                 const float *logprobs, afmoe_error *error)
{
    double sum = 0;
    for (uint64_t i = 0; i < n_tokens; i++) {
        const char *bytes;
        uint64_t n;
        afmoe_status status = afmoe_token_text(model, tokens[i], &bytes, &n, NULL, error);
        if (status < 0) return status;
        printf("%6d  ", (int)tokens[i]);
        if (i == 0) printf("       -  ");
        else printf("%8.3f  ", (double)logprobs[i - 1]);
        for (uint64_t b = 0; b < n; b++) putchar(bytes[b] >= ' ' && bytes[b] <= '~' ? bytes[b] : '.');
        putchar('\n');
        if (i > 0) sum += (double)logprobs[i - 1];
    }
    printf("mean log-probability %.4f\n", sum / (double)(n_tokens - 1));
    return AFMOE_OK;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "models/pico-q8_0.gguf";
    const char *text = argc > 2 ? argv[2] : "Once upon a time, Jack walked to the forest.";
    afmoe_model *model = NULL;
    afmoe_context *context = NULL;
    afmoe_session *session = NULL;
    afmoe_token tokens[MAX_TOKENS];
    float logprobs[MAX_TOKENS];
    uint64_t n_tokens = 0;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);

    int failed = afmoe_model_open(&model, path, NULL, &error) < 0 ||
                 afmoe_context_create(&context, model, NULL, &error) < 0 ||
                 afmoe_session_create(&session, context, &error) < 0 ||
                 afmoe_tokenize(model, text, strlen(text), NULL, tokens, MAX_TOKENS, &n_tokens, &error) < 0;
    if (!failed && n_tokens < 2) {
        fprintf(stderr, "the text has %llu tokens, two are needed\n", (unsigned long long)n_tokens);
        failed = 1;
    } else {
        failed = failed || score(session, tokens, n_tokens, logprobs, &error) < 0 ||
                 print_scores(model, tokens, n_tokens, logprobs, &error) < 0;
        if (failed) fprintf(stderr, "%s: %s\n", afmoe_status_name(error.code), error.message);
    }
    afmoe_session_free(session);
    afmoe_context_free(context);
    afmoe_model_free(model);
    return failed;
}
