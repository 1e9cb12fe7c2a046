/* afmoe eval: perplexity exp(-mean log p) of a text in windows that do not overlap. */
#include "cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct score {
    uint64_t n_tokens, n_predicted;
    double sum; /* of log-probabilities */
};

/* Score one window that stands alone; an exit code. */
static int score_window(struct score *score, afmoe_session *session, const afmoe_token *ids, uint64_t window,
                        float *logprobs)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_append_options options;
    afmoe_append_options_init(&options, sizeof options);
    options.logprob_begin = 1;
    options.logprob_end = window;
    options.out_logprobs = logprobs;
    if (afmoe_session_rewind(session, 0, NULL, NULL, &error) != AFMOE_OK ||
        afmoe_session_append(session, ids, window, &options, NULL, &error) != AFMOE_OK)
        return complain_error(&error);
    for (uint64_t i = 0; i < window - 1; i++) score->sum += (double)logprobs[i];
    score->n_predicted += window - 1;
    return EXIT_OK;
}

static int score_windows(struct score *score, const struct settings *settings, afmoe_session *session,
                         const struct tokens *tokens, uint64_t window)
{
    static char label[] = "scoring";
    float *logprobs = malloc((window - 1) * sizeof *logprobs);
    if (!logprobs) {
        complain("out of memory");
        return EXIT_FAILED;
    }
    int code = EXIT_OK;
    for (uint64_t begin = 0; code == EXIT_OK && window <= tokens->n - begin; begin += window) {
        code = score_window(score, session, tokens->ids + begin, window, logprobs);
        if (!settings->quiet) show_progress(label, begin + window, tokens->n);
    }
    hide_progress();
    free(logprobs);
    return code;
}

static int evaluate(struct score *score, const struct settings *settings, afmoe_model *model,
                    const struct tokens *tokens, uint64_t window)
{
    afmoe_context *context = NULL;
    afmoe_session *session = NULL;
    afmoe_context_options options;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    if (!context_options(settings, &options)) return EXIT_USAGE;
    options.max_tokens = window;
    int code = EXIT_OK;
    if (afmoe_context_create(&context, model, &options, &error) != AFMOE_OK ||
        afmoe_session_create(&session, context, &error) != AFMOE_OK)
        code = complain_error(&error);
    if (code == EXIT_OK) code = score_windows(score, settings, session, tokens, window);
    afmoe_session_free(session);
    afmoe_context_free(context);
    return code;
}

static void print_score(const struct score *score, bool json)
{
    double mean = -score->sum / (double)score->n_predicted;
    printf(json ? "{\"tokens\": %" PRIu64 ", \"predicted\": %" PRIu64 ", \"mean_nll\": %.15g, \"perplexity\": %.15g}\n"
                : "tokens      %" PRIu64 "\npredicted   %" PRIu64 "\nmean_nll    %.9f\nperplexity  %.9f\n",
           score->n_tokens, score->n_predicted, mean, exp(mean));
}

static int evaluate_text(const struct settings *settings, afmoe_model *model, const struct buffer *text)
{
    uint64_t window = settings->window == UINT64_MAX ? 256 : settings->window;
    struct tokens tokens;
    int code = tokenize_text(&tokens, model, text->bytes, text->n);
    if (code != EXIT_OK) return code;
    struct score score = {.n_tokens = tokens.n};
    if (tokens.n < window) {
        complain("the text has %" PRIu64 " tokens, fewer than one window of %" PRIu64, tokens.n, window);
        code = EXIT_FAILED;
    }
    if (code == EXIT_OK) code = evaluate(&score, settings, model, &tokens, window);
    if (code == EXIT_OK) print_score(&score, settings->json);
    free(tokens.ids);
    return code;
}

int command_eval(const struct settings *settings)
{
    if (settings->n_arguments != 1) {
        complain("eval takes one FILE (- for standard input), not %d", settings->n_arguments);
        return EXIT_USAGE;
    }
    if (settings->window < 2) {
        complain("--window is %" PRIu64 ", must be 2 or more", settings->window);
        return EXIT_USAGE;
    }
    afmoe_model *model;
    int code = open_model(&model, settings, false);
    if (code != EXIT_OK) return code;
    struct buffer text;
    code = EXIT_FAILED;
    if (read_all(&text, settings->arguments[0])) {
        code = evaluate_text(settings, model, &text);
        free(text.bytes);
    }
    afmoe_model_free(model);
    return code;
}
