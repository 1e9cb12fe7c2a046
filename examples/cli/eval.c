/* afmoe eval: perplexity exp(-mean log p) of a text in windows that do not overlap, and the divergence of what the
 * model predicts from what another did (base files: eval_base.c). */
#include "eval.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { ROWS_BYTES = 64 << 20 }; /* of logits at a time */

struct evaluation {
    const struct settings *settings;
    struct windows windows;
    uint64_t n_tokens, n_predicted;
    double sum; /* of log-probabilities */
    struct base_file save, base;
    struct divergence divergence;
    afmoe_session *session;
    float *logprobs;     /* of the tokens of a window */
    float *rows;         /* logits of `stretch` positions, only with base files */
    uint64_t *positions; /* `stretch` of them */
    uint64_t stretch;    /* tokens appended in one call */
};

static bool needs_rows(const struct settings *settings)
{
    return settings->base || settings->save_base;
}

/* ---- One window -------------------------------------------------------------------------------------------------- */

static bool use_row(struct evaluation *e, float *row)
{
    uint64_t vocab = e->windows.vocab;
    const float *base;
    if (!to_logprobs(row, vocab)) {
        complain("the logits of a position are NaN or infinite");
        return false;
    }
    if (e->settings->save_base && !base_put(&e->save, row)) return false;
    if (!e->settings->base) return true;
    if (!base_get(&e->base, &base)) return false;
    divergence_add(&e->divergence, base, row, vocab);
    return true;
}

/* Append tokens begin .. end - 1 of a window and score those after its first; an exit code. */
static int score_stretch(struct evaluation *e, const afmoe_token *ids, uint64_t begin, uint64_t end)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_append_options options;
    afmoe_append_options_init(&options, sizeof options);
    options.logprob_begin = begin ? begin : 1;
    options.logprob_end = end;
    options.out_logprobs = e->logprobs;
    if (e->rows) {
        uint64_t last = e->windows.window - 1; /* what follows it is not known */
        options.n_positions = (end < last ? end : last) - begin;
        for (uint64_t i = 0; i < options.n_positions; i++) e->positions[i] = begin + i;
        options.positions = e->positions;
        options.out_logits = e->rows;
        options.logits_capacity = e->stretch * e->windows.vocab;
    }
    if (options.logprob_begin == end) options.logprob_begin = options.logprob_end = 0; /* the first token alone */
    if (afmoe_session_append(e->session, ids + begin, end - begin, &options, NULL, &error) != AFMOE_OK)
        return complain_error(&error);
    for (uint64_t i = options.logprob_begin; i < options.logprob_end; i++)
        e->sum += (double)e->logprobs[i - options.logprob_begin];
    for (uint64_t i = 0; i < options.n_positions; i++)
        if (!use_row(e, e->rows + i * e->windows.vocab)) return EXIT_FAILED;
    return EXIT_OK;
}

/* A window stands alone. */
static int score_window(struct evaluation *e, const afmoe_token *ids)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    uint64_t window = e->windows.window;
    if (afmoe_session_rewind(e->session, 0, NULL, NULL, &error) != AFMOE_OK) return complain_error(&error);
    int code = EXIT_OK;
    for (uint64_t begin = 0; code == EXIT_OK && begin < window; begin += e->stretch)
        code = score_stretch(e, ids, begin, window - begin < e->stretch ? window : begin + e->stretch);
    e->n_predicted += window - 1;
    return code;
}

/* ---- All windows ------------------------------------------------------------------------------------------------- */

static int score_windows(struct evaluation *e)
{
    static char label[] = "scoring";
    int code = EXIT_OK;
    const struct windows *w = &e->windows;
    for (uint64_t i = 0; code == EXIT_OK && i < w->n_windows; i++) {
        code = score_window(e, w->ids + i * w->window);
        if (!e->settings->quiet) show_progress(label, (i + 1) * w->window, w->n_windows * w->window);
    }
    hide_progress();
    return code;
}

static bool allocate(struct evaluation *e)
{
    uint64_t window = e->windows.window, row_bytes = e->windows.vocab * sizeof *e->rows;
    bool rows = needs_rows(e->settings);
    e->stretch = window;
    if (rows && window > ROWS_BYTES / row_bytes) e->stretch = ROWS_BYTES > row_bytes ? ROWS_BYTES / row_bytes : 1;
    e->logprobs = malloc((size_t)e->stretch * sizeof *e->logprobs);
    if (rows) {
        e->rows = malloc((size_t)(e->stretch * row_bytes));
        e->positions = malloc((size_t)e->stretch * sizeof *e->positions);
    }
    if (e->logprobs && (!rows || (e->rows && e->positions))) return true;
    complain("out of memory");
    return false;
}

/* Scoring, with the base files opened before the first window. */
static int score_with_bases(struct evaluation *e)
{
    const struct settings *s = e->settings;
    uint64_t n_positions = e->windows.n_windows * (e->windows.window - 1);
    if (s->base && (base_open(&e->base, s->base, &e->windows) != EXIT_OK ||
                    !divergence_init(&e->divergence, n_positions)))
        return EXIT_FAILED;
    if (s->save_base && base_create(&e->save, s->save_base, &e->windows) != EXIT_OK) return EXIT_FAILED;
    return score_windows(e);
}

static int evaluate(struct evaluation *e, afmoe_model *model)
{
    afmoe_context *context = NULL;
    afmoe_context_options options;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    if (!context_options(e->settings, &options)) return EXIT_USAGE;
    options.max_tokens = e->windows.window;
    int code = allocate(e) ? EXIT_OK : EXIT_FAILED;
    if (code == EXIT_OK && (afmoe_context_create(&context, model, &options, &error) != AFMOE_OK ||
                            afmoe_session_create(&e->session, context, &error) != AFMOE_OK))
        code = complain_error(&error);
    if (code == EXIT_OK) code = score_with_bases(e);
    afmoe_session_free(e->session);
    afmoe_context_free(context);
    base_close(&e->base, false);
    if (!base_close(&e->save, code == EXIT_OK) && code == EXIT_OK) code = EXIT_FAILED;
    free(e->logprobs);
    free(e->rows);
    free(e->positions);
    return code;
}

static void print_result(struct evaluation *e)
{
    bool json = e->settings->json;
    double mean = -e->sum / (double)e->n_predicted;
    printf(json ? "{\"tokens\": %" PRIu64 ", \"predicted\": %" PRIu64 ", \"mean_nll\": %.15g, \"perplexity\": %.15g"
                : "tokens      %" PRIu64 "\npredicted   %" PRIu64 "\nmean_nll    %.9f\nperplexity  %.9f\n",
           e->n_tokens, e->n_predicted, mean, exp(mean));
    if (e->settings->base) divergence_print(&e->divergence, json);
    if (json) printf("}\n");
}

static int evaluate_text(const struct settings *settings, afmoe_model *model, const struct buffer *text)
{
    uint64_t window = settings->window == UINT64_MAX ? 256 : settings->window;
    afmoe_model_info info;
    struct tokens tokens;
    afmoe_model_info_init(&info, sizeof info);
    afmoe_model_get_info(model, &info, NULL); /* cannot fail with these arguments */
    int code = tokenize_text(&tokens, model, text->bytes, text->n);
    if (code != EXIT_OK) return code;
    uint64_t n_windows = tokens.n / window;
    struct evaluation e = {.settings = settings, .n_tokens = tokens.n};
    e.windows = (struct windows){tokens.ids, window, n_windows, info.vocab_size};
    if (n_windows > settings->chunks) e.windows.n_windows = settings->chunks;
    if (n_windows == 0) {
        complain("the text has %" PRIu64 " tokens, fewer than one window of %" PRIu64, tokens.n, window);
        code = EXIT_FAILED;
    }
    if (code == EXIT_OK) code = evaluate(&e, model);
    if (code == EXIT_OK) print_result(&e);
    free(e.divergence.values);
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
        complain("%s is %" PRIu64 ", must be 2 or more", option_as_typed("window"), settings->window);
        return EXIT_USAGE;
    }
    if (settings->chunks == 0) {
        complain("--chunks is 0, must be 1 or more");
        return EXIT_USAGE;
    }
    if (settings->base && settings->save_base) {
        complain("--base and --save-base exclude each other");
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
