/* afmoe run: a prompt in, the answer out while it is made. */
#include "cli.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BAR_FROM_TOKENS = 64 };

struct run {
    const struct settings *settings;
    afmoe_model *model;
    afmoe_context *context;
    afmoe_session *session;
    afmoe_sampler *sampler;
    struct buffer prompt;
    struct tokens tokens;
    bool wrote, wrote_newline, write_failed;
};

/* ---- Ctrl-C: the first stops the answer, a second one has the default action again (SA_RESETHAND) ---- */

static afmoe_cancel *interrupt;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    afmoe_cancel_set(interrupt);
}

static int watch_interrupt(afmoe_error *error)
{
    if (afmoe_cancel_create(&interrupt, error) != AFMOE_OK) return complain_error(error);
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    return EXIT_OK;
}

static void unwatch_interrupt(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigemptyset(&action.sa_mask);
    if (interrupt) sigaction(SIGINT, &action, NULL);
    afmoe_cancel_free(interrupt);
    interrupt = NULL;
}

/* ---- The prompt ---- */

static bool join_arguments(struct buffer *out, const struct settings *settings)
{
    size_t n = 0;
    for (int i = 0; i < settings->n_arguments; i++) n += strlen(settings->arguments[i]) + 1;
    *out = (struct buffer){calloc(n + 1, 1), 0};
    if (!out->bytes) {
        complain("out of memory");
        return false;
    }
    for (int i = 0; i < settings->n_arguments; i++) {
        if (i) out->bytes[out->n++] = ' ';
        size_t length = strlen(settings->arguments[i]);
        memcpy(out->bytes + out->n, settings->arguments[i], length);
        out->n += length;
    }
    return true;
}

static bool read_standard_input(struct buffer *out, const struct settings *settings)
{
    if (!settings->quiet && isatty(STDIN_FILENO)) complain("type the prompt, then Ctrl-D");
    if (!read_all(out, NULL)) return false;
    if (out->n && out->bytes[out->n - 1] == '\n') out->n--; /* echo and editors add one */
    if (out->n && out->bytes[out->n - 1] == '\r') out->n--;
    out->bytes[out->n] = '\0'; /* read_all leaves room: it stops at a short read */
    return true;
}

static int get_prompt(struct run *run)
{
    const struct settings *s = run->settings;
    bool good;
    if (s->prompt && s->n_arguments) {
        complain("the prompt is given twice, by -p and as '%s'", s->arguments[0]);
        return EXIT_USAGE;
    }
    if (s->prompt) {
        run->prompt = (struct buffer){strdup(s->prompt), strlen(s->prompt)};
        good = run->prompt.bytes != NULL;
        if (!good) complain("out of memory");
    } else if (s->n_arguments) {
        good = join_arguments(&run->prompt, s);
    } else {
        good = read_standard_input(&run->prompt, s);
    }
    if (!good) return EXIT_FAILED;
    if (run->prompt.n > 0) return EXIT_OK;
    complain("the prompt is empty");
    return EXIT_USAGE;
}

static bool has_template(const afmoe_model *model)
{
    static const char start[] = "<|im_start|>", end[] = "<|im_end|>";
    afmoe_token token;
    return afmoe_token_find(model, start, sizeof start - 1, &token, NULL) == AFMOE_OK &&
           afmoe_token_find(model, end, sizeof end - 1, &token, NULL) == AFMOE_OK;
}

static int tokenize_chat(struct run *run)
{
    const struct settings *s = run->settings;
    const char *const roles[2] = {"system", "user"};
    const char *const contents[2] = {s->system, run->prompt.bytes};
    uint64_t first = s->system ? 0 : 1, n_messages = 2 - first;
    struct tokens *out = &run->tokens;
    if (memchr(run->prompt.bytes, '\0', run->prompt.n)) {
        complain("the prompt has a byte of zero; only --raw takes that");
        return EXIT_FAILED;
    }
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_status status =
        afmoe_chat_tokenize(run->model, roles + first, contents + first, n_messages, NULL, NULL, 0, &out->n, &error);
    if (status == AFMOE_CAPACITY) {
        out->ids = malloc(out->n * sizeof *out->ids);
        if (!out->ids) {
            complain("out of memory: %" PRIu64 " tokens", out->n);
            return EXIT_FAILED;
        }
        status = afmoe_chat_tokenize(run->model, roles + first, contents + first, n_messages, NULL, out->ids, out->n,
                                     &out->n, &error);
    }
    return status == AFMOE_OK ? EXIT_OK : complain_error(&error);
}

/* The text as it is, special tokens recognised, behind the token the file asks for. */
static int tokenize_raw(struct run *run)
{
    int code = tokenize_text(&run->tokens, run->model, run->prompt.bytes, run->prompt.n);
    if (code != EXIT_OK) {
        run->tokens.ids = NULL;
        return code;
    }
    afmoe_model_info info;
    afmoe_model_info_init(&info, sizeof info);
    afmoe_model_get_info(run->model, &info, NULL);
    if (!info.add_bos || info.bos_token < 0) return EXIT_OK;
    struct tokens *tokens = &run->tokens;
    if (tokens->n && tokens->ids[0] == info.bos_token) return EXIT_OK;
    afmoe_token *ids = realloc(tokens->ids, (tokens->n + 1) * sizeof *ids);
    if (!ids) {
        complain("out of memory");
        return EXIT_FAILED;
    }
    memmove(ids + 1, ids, tokens->n * sizeof *ids);
    ids[0] = info.bos_token;
    tokens->ids = ids;
    tokens->n++;
    return EXIT_OK;
}

static int tokenize_prompt(struct run *run)
{
    const struct settings *s = run->settings;
    bool raw = s->raw;
    if (!raw && !has_template(run->model)) {
        if (!s->quiet) complain("the vocabulary has no ChatML tokens: the prompt is continued as it is");
        raw = true;
    }
    if (!raw) return tokenize_chat(run);
    if (s->system) {
        complain("a system message needs the ChatML template, which a raw prompt does without");
        return EXIT_USAGE;
    }
    return tokenize_raw(run);
}

/* ---- Objects ---- */

static void override(float *value, float given)
{
    if (!isnan(given)) *value = given;
}

static int make_sampler(struct run *run, afmoe_error *error)
{
    const struct settings *s = run->settings;
    afmoe_sampler_options options;
    afmoe_sampler_options_init(&options, sizeof options);
    if (afmoe_model_sampler_options(run->model, &options, error) != AFMOE_OK) return complain_error(error);
    override(&options.temperature, s->temperature);
    override(&options.top_p, s->top_p);
    override(&options.min_p, s->min_p);
    override(&options.repetition_penalty, s->repeat_penalty);
    override(&options.presence_penalty, s->presence_penalty);
    override(&options.frequency_penalty, s->frequency_penalty);
    if (s->top_k != UINT64_MAX) options.top_k = s->top_k;
    if (s->seed_given) options.seed = s->seed;
    if (afmoe_sampler_create(&run->sampler, run->model, &options, error) != AFMOE_OK) return complain_error(error);
    if (s->verbose)
        complain("temperature %g, top_k %" PRIu64 ", top_p %g, min_p %g, seed %" PRIu64, (double)options.temperature,
                 options.top_k, (double)options.top_p, (double)options.min_p, options.seed);
    return EXIT_OK;
}

static int make_session(struct run *run, afmoe_error *error)
{
    afmoe_context_options options;
    if (!context_options(run->settings, &options)) return EXIT_USAGE;
    if (afmoe_context_create(&run->context, run->model, &options, error) != AFMOE_OK) return complain_error(error);
    if (afmoe_session_create(&run->session, run->context, error) != AFMOE_OK) return complain_error(error);
    return EXIT_OK;
}

/* ---- The answer ---- */

static int read_prompt(struct run *run, afmoe_error *error)
{
    static char label[] = "reading the prompt";
    afmoe_append_options options;
    afmoe_append_options_init(&options, sizeof options);
    options.cancel = interrupt;
    if (!run->settings->quiet && run->tokens.n >= BAR_FROM_TOKENS) {
        options.progress = show_progress;
        options.progress_data = label;
    }
    afmoe_status status = afmoe_session_append(run->session, run->tokens.ids, run->tokens.n, &options, NULL, error);
    hide_progress();
    if (status == AFMOE_OK || status == AFMOE_CANCELLED) return EXIT_OK;
    if (status != AFMOE_CONTEXT_FULL) return complain_error(error);
    complain("the prompt is too long: %s (-c allows more)", error->message);
    return EXIT_FAILED;
}

static int32_t on_piece(void *user_data, const afmoe_piece *piece)
{
    struct run *run = user_data;
    if (piece->text_bytes == 0) return 0;
    run->wrote = true;
    run->wrote_newline = piece->text[piece->text_bytes - 1] == '\n';
    run->write_failed = !write_out(piece->text, piece->text_bytes) || !flush_out();
    return run->write_failed;
}

static int answer(struct run *run, afmoe_error *error)
{
    const struct settings *s = run->settings;
    afmoe_generate_options options;
    afmoe_generate_options_init(&options, sizeof options);
    options.ignore_eos = s->ignore_eos;
    options.max_tokens = s->n_predict;
    options.stop_strings = s->stops;
    options.n_stop_strings = s->n_stops;
    options.on_piece = on_piece;
    options.on_piece_data = run;
    options.cancel = interrupt;
    afmoe_status status = afmoe_generate(run->session, run->sampler, &options, NULL, error);
    if (run->write_failed) return EXIT_FAILED;
    bool good = status >= 0 || status == AFMOE_CANCELLED || status == AFMOE_CONTEXT_FULL;
    if ((good || run->wrote) && !run->wrote_newline && (!write_out("\n", 1) || !flush_out())) return EXIT_FAILED;
    if (!good) return complain_error(error);
    if (status == AFMOE_CONTEXT_FULL && !s->quiet) complain("the answer was cut: %s (-c allows more)", error->message);
    return EXIT_OK;
}

static double rate(uint64_t n, uint64_t ns)
{
    return ns ? (double)n * 1e9 / (double)ns : 0.0;
}

static void tell_speeds(const struct run *run)
{
    afmoe_session_stats stats;
    afmoe_session_stats_init(&stats, sizeof stats);
    if (run->settings->quiet || afmoe_session_get_stats(run->session, &stats, NULL) != AFMOE_OK) return;
    complain("prompt %" PRIu64 " tokens, %.1f tokens/s; answer %" PRIu64 " tokens, %.1f tokens/s",
             stats.n_prompt_computed, rate(stats.n_prompt_computed, stats.prompt_ns), stats.n_decode_computed,
             rate(stats.n_decode_computed, stats.decode_ns));
}

static int run_all(struct run *run)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    int code = open_model(&run->model, run->settings, false);
    if (code == EXIT_OK) code = make_sampler(run, &error);
    if (code == EXIT_OK) code = make_session(run, &error);
    if (code == EXIT_OK) code = get_prompt(run);
    if (code == EXIT_OK) code = tokenize_prompt(run);
    if (code == EXIT_OK) code = watch_interrupt(&error);
    if (code == EXIT_OK) code = read_prompt(run, &error);
    if (code == EXIT_OK && !afmoe_cancel_is_set(interrupt)) code = answer(run, &error);
    if (code == EXIT_OK) tell_speeds(run);
    return code;
}

int command_run(const struct settings *settings)
{
    struct run run = {.settings = settings};
    int code = run_all(&run);
    unwatch_interrupt();
    free(run.tokens.ids);
    free(run.prompt.bytes);
    afmoe_sampler_free(run.sampler);
    afmoe_session_free(run.session);
    afmoe_context_free(run.context);
    afmoe_model_free(run.model);
    return code;
}
