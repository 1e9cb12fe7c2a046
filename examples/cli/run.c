/* afmoe run: a prompt in, the answer out while it is made; with --state behind what was said before. */
#include "cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct run {
    const struct settings *settings;
    afmoe_model *model;
    afmoe_context *context;
    afmoe_session *session;
    afmoe_sampler *sampler;
    struct buffer prompt;
    struct tokens tokens;
    bool raw;     /* no template */
    bool goes_on; /* a state was loaded */
};

/* ---- The prompt ---- */

static bool join_arguments(struct buffer *out, const struct settings *settings)
{
    for (int i = 0; i < settings->n_arguments; i++) {
        const char *word = settings->arguments[i];
        if ((i && !buffer_append(out, " ", 1)) || !buffer_append(out, word, strlen(word))) return false;
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
        good = buffer_append(&run->prompt, s->prompt, strlen(s->prompt));
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

static int tokenize_chat(struct run *run)
{
    const struct settings *s = run->settings;
    const char *const roles[2] = {"system", "user"};
    const char *const contents[2] = {s->system, run->prompt.bytes};
    uint64_t first = s->system ? 0 : 1, n_messages = 2 - first;
    if (memchr(run->prompt.bytes, '\0', run->prompt.n)) {
        complain("the prompt has a byte of zero; only --raw takes that");
        return EXIT_FAILED;
    }
    return tokenize_messages(&run->tokens, run->model, roles + first, contents + first, n_messages,
                             true);
}

/* The text as it is, special tokens recognised, behind the token the file asks for. */
static int tokenize_raw(struct run *run)
{
    int code = tokenize_text(&run->tokens, run->model, run->prompt.bytes, run->prompt.n);
    if (code != EXIT_OK) return code;
    afmoe_model_info info;
    afmoe_model_info_init(&info, sizeof info);
    afmoe_model_get_info(run->model, &info, NULL);
    if (!info.add_bos || info.bos_token < 0 || run->goes_on) return EXIT_OK;
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
    if (!s->raw && run->raw && !s->quiet)
        complain("the vocabulary has no ChatML tokens: the prompt is continued as it is");
    if (!run->raw) return tokenize_chat(run);
    if (s->system) {
        complain("a system message needs the ChatML template, which a raw prompt does without");
        return EXIT_USAGE;
    }
    return tokenize_raw(run);
}

/* ---- Objects ---- */

static int make_objects(struct run *run)
{
    const struct settings *s = run->settings;
    afmoe_sampler_options sampling;
    afmoe_context_options computing;
    int code = sampler_options(&sampling, run->model, s);
    if (code == EXIT_OK) code = make_sampler(&run->sampler, run->model, s, &sampling);
    if (code != EXIT_OK) return code;
    if (!context_options(s, &computing)) return EXIT_USAGE;
    return make_session(&run->context, &run->session, run->model, &computing);
}

/* ---- What was said before ---- */

static int load_state(struct run *run)
{
    const struct settings *s = run->settings;
    afmoe_error error;
    struct tokens tokens;
    afmoe_error_init(&error, sizeof error);
    run->raw = s->raw || !has_template(run->model);
    if (!s->state) return EXIT_OK;
    afmoe_status status = afmoe_session_load(run->session, s->state, &error);
    if (status == AFMOE_NOT_FOUND) return EXIT_OK;
    if (status != AFMOE_OK) return complain_error(&error);
    int code = session_tokens(&tokens, run->session);
    run->goes_on = code == EXIT_OK && tokens.n > 0;
    if (run->goes_on && s->system) {
        complain("%s has the beginning of the talk: a system message comes too late", s->state);
        code = EXIT_USAGE;
    } else if (run->goes_on && !run->raw && !is_talk(run->model, &tokens)) {
        code = EXIT_FAILED;
    }
    free(tokens.ids);
    return code;
}

/* ---- The answer ---- */

/* Where the room ends, and whether there could be more. */
static const char *advice(const struct run *run)
{
    afmoe_model_info model;
    afmoe_context_info context;
    afmoe_model_info_init(&model, sizeof model);
    afmoe_context_info_init(&context, sizeof context);
    afmoe_model_get_info(run->model, &model, NULL);
    afmoe_context_get_info(run->context, &context, NULL);
    return context.max_tokens < model.max_positions ? "-c allows more" : "the most this model reads";
}

static int read_prompt(struct run *run, afmoe_error *error)
{
    afmoe_append_options options;
    reading_options(&options, run->settings, run->tokens.n);
    afmoe_status status = afmoe_session_append(run->session, run->tokens.ids, run->tokens.n, &options, NULL, error);
    hide_progress();
    if (status == AFMOE_OK) return EXIT_OK;
    if (status == AFMOE_CANCELLED)
        complain("interrupted before an answer began: %s", error->message);
    else if (status == AFMOE_CONTEXT_FULL)
        complain("the prompt is too long: %s (%s)", error->message, advice(run));
    else
        return complain_error(error);
    return EXIT_FAILED;
}

static int answer(struct run *run, afmoe_error *error)
{
    const struct settings *s = run->settings;
    struct answer answer = {0};
    afmoe_generate_options options;
    answer_options(&options, s, &answer);
    afmoe_status status = afmoe_generate(run->session, run->sampler, &options, NULL, error);
    if (answer.failed) return EXIT_FAILED;
    bool good = status >= 0 || status == AFMOE_CANCELLED || status == AFMOE_CONTEXT_FULL;
    if ((good || answer.wrote) && !end_answer(&answer)) return EXIT_FAILED;
    if (!good) return complain_error(error);
    if (status == AFMOE_CONTEXT_FULL && !s->quiet) complain("the answer was cut: %s (%s)", error->message, advice(run));
    return EXIT_OK;
}

/* The answer is a message like the others: its end belongs to it, whatever it was cut by. */
static int save_state(struct run *run, afmoe_error *error)
{
    static const char end[] = "<|im_end|>\n";
    const char *path = run->settings->state;
    struct tokens tokens = {NULL, 0};
    if (!path) return EXIT_OK;
    int code = run->raw ? EXIT_OK : tokenize_text(&tokens, run->model, end, sizeof end - 1);
    if (code != EXIT_OK) return code;
    afmoe_status status = afmoe_session_append(run->session, tokens.ids, tokens.n, NULL, NULL, error);
    if (status == AFMOE_OK) status = afmoe_session_save(run->session, path, error);
    free(tokens.ids);
    if (status != AFMOE_CONTEXT_FULL) return status == AFMOE_OK ? EXIT_OK : complain_error(error);
    complain("%s stays as it was, for there is no room to end the answer: %s (%s)", path, error->message, advice(run));
    return EXIT_FAILED;
}

static void tell_speeds(const struct run *run)
{
    afmoe_session_stats stats;
    afmoe_session_stats_init(&stats, sizeof stats);
    if (run->settings->quiet || afmoe_session_get_stats(run->session, &stats, NULL) != AFMOE_OK) return;
    uint64_t n_answer = stats.n_decode_computed + stats.n_draft_accepted;
    if (stats.n_drafted)
        complain("guessed ahead %" PRIu64 " tokens, %" PRIu64 " right", stats.n_drafted, stats.n_draft_accepted);
    complain("prompt %" PRIu64 " tokens, %.1f tokens/s; answer %" PRIu64 " tokens, %.1f tokens/s",
             stats.n_prompt_computed, rate(stats.n_prompt_computed, stats.prompt_ns), n_answer,
             rate(n_answer, stats.decode_ns));
}

static int run_all(struct run *run)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    int code = open_model(&run->model, run->settings, false);
    if (code == EXIT_OK) code = make_objects(run);
    if (code == EXIT_OK) code = load_state(run);
    if (code == EXIT_OK) code = get_prompt(run);
    if (code == EXIT_OK) code = tokenize_prompt(run);
    if (code == EXIT_OK) code = watch_interrupt(INTERRUPT_ONCE);
    if (code == EXIT_OK) code = read_prompt(run, &error);
    if (code != EXIT_OK || afmoe_cancel_is_set(interrupt)) return code;
    code = answer(run, &error);
    if (code == EXIT_OK) tell_speeds(run);
    if (code == EXIT_OK) code = save_state(run, &error);
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
