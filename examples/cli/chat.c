/* afmoe chat: messages and answers in turn. The whole talk is put into the template anew for every answer; the session
 * keeps what it has read already (afmoe_session_sync), so a turn costs its own tokens only. */
#include "cli.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How far back /undo and /regen are free, and answers whose text does not give their tokens again. */
enum { REWIND_TOKENS = 4096 };

struct chat {
    const struct settings *settings;
    afmoe_model *model;
    afmoe_context *context;
    afmoe_session *session;
    afmoe_sampler *sampler;
    afmoe_sampler_options sampling;
    struct input *input;
    bool is_terminal;
    bool done;
    bool a_turn_failed; /* through a pipe nobody looks: told by the exit code */
    const char **roles; /* "system" first where there is one, then "user" and "assistant" in turn */
    char **contents;
    uint64_t *ends; /* tokens of the timeline up to an answer's end; a question's are those before it */
    uint64_t n_messages, capacity;
};

/* ---- Messages ---- */

/* That what was said takes up: after /undo the session goes back only when it reads on. */
static uint64_t n_timeline_tokens(const struct chat *chat)
{
    return chat->n_messages ? chat->ends[chat->n_messages - 1] : 0;
}

/* Takes the text over. */
static bool add_message(struct chat *chat, const char *role, char *content)
{
    if (chat->n_messages == chat->capacity) {
        uint64_t capacity = 2 * chat->capacity + 16;
        const char **roles = realloc(chat->roles, capacity * sizeof *roles);
        if (roles) chat->roles = roles;
        char **contents = realloc(chat->contents, capacity * sizeof *contents);
        if (contents) chat->contents = contents;
        uint64_t *ends = realloc(chat->ends, capacity * sizeof *ends);
        if (ends) chat->ends = ends;
        if (!roles || !contents || !ends) {
            complain("out of memory");
            free(content);
            return false;
        }
        chat->capacity = capacity;
    }
    chat->roles[chat->n_messages] = role;
    chat->contents[chat->n_messages] = content;
    chat->ends[chat->n_messages] = n_timeline_tokens(chat);
    chat->n_messages++;
    return true;
}

static uint64_t n_system_messages(const struct chat *chat)
{
    return chat->n_messages > 0 && strcmp(chat->roles[0], "system") == 0;
}

static void cut_messages(struct chat *chat, uint64_t n)
{
    while (chat->n_messages > n) free(chat->contents[--chat->n_messages]);
}

/* ---- A turn ---- */

static const char ways_out[] = "/undo takes back the last exchange, /reset begins anew; -c allows more";

static void tell_turn(const struct chat *chat, uint64_t n_prompt, const afmoe_append_result *read,
                      const afmoe_generate_result *made)
{
    if (!chat->settings->verbose) return;
    complain("prompt %" PRIu64 " tokens, %" PRIu64 " kept, %" PRIu64 " computed; answer %" PRIu64
             " tokens, %.1f tokens/s", n_prompt, read->n_reused, read->n_computed, made->n_generated,
             rate(made->n_generated, made->elapsed_ns));
}

/* Read the whole talk; the answer may come now when this is true. */
static bool read_talk(struct chat *chat, const struct tokens *tokens, afmoe_append_result *result)
{
    afmoe_error error;
    afmoe_append_options options;
    afmoe_error_init(&error, sizeof error);
    afmoe_append_result_init(result, sizeof *result);
    reading_options(&options, chat->settings, tokens->n);
    afmoe_status status = afmoe_session_sync(chat->session, tokens->ids, tokens->n, &options, result, &error);
    hide_progress();
    if (status == AFMOE_OK) return true;
    if (status == AFMOE_CANCELLED)
        complain("stopped before the answer began: the message is taken back");
    else if (status == AFMOE_CONTEXT_FULL)
        complain("the talk is full: %s; the message is taken back (%s)", error.message, ways_out);
    else
        complain_error(&error);
    return false;
}

/* True: there is an answer, whole or in part, in `text`. */
static bool make_answer(struct chat *chat, const struct tokens *tokens, struct buffer *text)
{
    afmoe_append_result read;
    afmoe_generate_result made;
    afmoe_generate_options options;
    afmoe_error error;
    struct answer answer = {.text = text};
    if (!read_talk(chat, tokens, &read)) return false;
    afmoe_error_init(&error, sizeof error);
    afmoe_generate_result_init(&made, sizeof made);
    answer_options(&options, chat->settings, &answer);
    afmoe_status status = afmoe_generate(chat->session, chat->sampler, &options, &made, &error);
    bool good = status >= 0 || status == AFMOE_CANCELLED || status == AFMOE_CONTEXT_FULL;
    if (answer.failed || ((good || answer.wrote) && !end_answer(&answer))) {
        chat->done = chat->a_turn_failed = true; /* standard output is gone, or memory */
        return false;
    }
    if (!good) complain_error(&error);
    if (status == AFMOE_CONTEXT_FULL) complain("the answer was cut: %s (%s)", error.message, ways_out);
    tell_turn(chat, tokens->n, &read, &made);
    return good;
}

/* Answer the last message, or take it back. */
static void answer_last(struct chat *chat)
{
    struct tokens tokens = {NULL, 0};
    struct buffer text = {0};
    clear_interrupt();
    int code = tokenize_messages(&tokens, chat->model, chat->roles, (const char *const *)chat->contents,
                                 chat->n_messages, true);
    bool good = code == EXIT_OK && make_answer(chat, &tokens, &text) && buffer_append(&text, NULL, 0);
    free(tokens.ids);
    if (good && add_message(chat, "assistant", text.bytes)) {
        afmoe_session_stats stats;
        afmoe_session_stats_init(&stats, sizeof stats);
        if (afmoe_session_get_stats(chat->session, &stats, NULL) == AFMOE_OK)
            chat->ends[chat->n_messages - 1] = stats.n_tokens;
        return;
    }
    if (!good) free(text.bytes);
    chat->a_turn_failed = true;
    cut_messages(chat, chat->n_messages - 1);
}

static void say(struct chat *chat, const char *bytes, size_t n)
{
    if (memchr(bytes, '\0', n)) {
        complain("a message cannot have a byte of zero");
        chat->a_turn_failed = true;
        return;
    }
    struct buffer text = {0};
    if (buffer_append(&text, bytes, n) && add_message(chat, "user", text.bytes)) answer_last(chat);
    else chat->a_turn_failed = true;
}

/* ---- Commands ---- */

static void print_commands(struct chat *chat, const char *argument);

static void reset(struct chat *chat, const char *argument)
{
    (void)argument;
    cut_messages(chat, n_system_messages(chat));
    if (!chat->settings->quiet) complain("the talk begins anew");
}

static void undo(struct chat *chat, const char *argument)
{
    (void)argument;
    if (chat->n_messages == n_system_messages(chat)) {
        complain("there is nothing to take back");
        return;
    }
    cut_messages(chat, chat->n_messages - 2);
    if (!chat->settings->quiet) complain("the last exchange is taken back");
}

/* A draw depends on seed and position only, so another answer needs another seed. */
static void regenerate(struct chat *chat, const char *argument)
{
    (void)argument;
    if (chat->n_messages == n_system_messages(chat)) {
        complain("there is no answer to make again");
        return;
    }
    if (chat->sampling.temperature == 0) complain("temperature is 0: the answer stays the same; try /set temp 0.8");
    chat->sampling.seed++;
    afmoe_sampler *sampler;
    if (make_sampler(&sampler, chat->model, chat->settings, &chat->sampling) != EXIT_OK) return;
    afmoe_sampler_free(chat->sampler);
    chat->sampler = sampler;
    cut_messages(chat, chat->n_messages - 1);
    answer_last(chat);
}

static const struct {
    const char *name;
    bool is_real;
    size_t offset;
} parameters[] = {
    {"temp", true, offsetof(afmoe_sampler_options, temperature)},
    {"top-p", true, offsetof(afmoe_sampler_options, top_p)},
    {"top-k", false, offsetof(afmoe_sampler_options, top_k)},
    {"min-p", true, offsetof(afmoe_sampler_options, min_p)},
    {"repeat-penalty", true, offsetof(afmoe_sampler_options, repetition_penalty)},
    {"presence-penalty", true, offsetof(afmoe_sampler_options, presence_penalty)},
    {"frequency-penalty", true, offsetof(afmoe_sampler_options, frequency_penalty)},
    {"seed", false, offsetof(afmoe_sampler_options, seed)},
};
enum { N_PARAMETERS = sizeof parameters / sizeof *parameters };

static void print_parameters(const struct chat *chat)
{
    for (int i = 0; i < N_PARAMETERS; i++) {
        const char *field = (const char *)&chat->sampling + parameters[i].offset;
        if (parameters[i].is_real) fprintf(stderr, "%-18s %g\n", parameters[i].name, (double)*(const float *)field);
        else fprintf(stderr, "%-18s %" PRIu64 "\n", parameters[i].name, *(const uint64_t *)field);
    }
}

static void set_parameter(struct chat *chat, const char *argument)
{
    char name[32] = "";
    size_t n_name = strcspn(argument, " \t");
    if (n_name == 0) {
        print_parameters(chat);
        return;
    }
    snprintf(name, sizeof name, "%.*s", (int)(n_name < sizeof name ? n_name : sizeof name - 1), argument);
    const char *value = argument + n_name + strspn(argument + n_name, " \t");
    for (int i = 0; i < N_PARAMETERS; i++) {
        if (strcmp(parameters[i].name, name) != 0) continue;
        afmoe_sampler_options changed = chat->sampling;
        void *field = (char *)&changed + parameters[i].offset;
        if (!(parameters[i].is_real ? parse_real(value, field) : parse_number(value, field))) {
            complain("/set %s takes a number, not '%s'", name, value);
            return;
        }
        afmoe_sampler *sampler;
        if (make_sampler(&sampler, chat->model, chat->settings, &changed) != EXIT_OK) return;
        afmoe_sampler_free(chat->sampler);
        chat->sampler = sampler;
        chat->sampling = changed;
        return;
    }
    complain("/set knows no '%s'; /set alone lists what there is", name);
}

/* What the session has read becomes the whole talk, no more, and goes into a file with it. */
static void save(struct chat *chat, const char *path)
{
    struct tokens tokens;
    afmoe_append_options options;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    bool failed_before = chat->a_turn_failed;
    chat->a_turn_failed = true; /* unless all goes well */
    if (path[0] == '\0' || chat->n_messages == 0) {
        complain(path[0] ? "there is nothing to save" : "/save needs the name of a file");
        return;
    }
    if (tokenize_messages(&tokens, chat->model, chat->roles, (const char *const *)chat->contents, chat->n_messages,
                          false) != EXIT_OK)
        return;
    reading_options(&options, chat->settings, tokens.n);
    afmoe_status status = afmoe_session_sync(chat->session, tokens.ids, tokens.n, &options, NULL, &error);
    hide_progress();
    free(tokens.ids);
    if (status == AFMOE_OK) status = afmoe_session_save(chat->session, path, &error);
    if (status != AFMOE_OK) complain_error(&error);
    else if (!chat->settings->quiet) complain("saved %" PRIu64 " messages", chat->n_messages);
    chat->a_turn_failed = failed_before || status != AFMOE_OK;
}

static bool take_message(void *user_data, const char *role, char *content, uint64_t end)
{
    struct chat *chat = user_data;
    if (!add_message(chat, role, content)) return false;
    if (strcmp(role, "assistant") == 0) chat->ends[chat->n_messages - 1] = end;
    return true;
}

static void load(struct chat *chat, const char *path)
{
    struct tokens tokens;
    struct chat loaded = {.n_messages = 0};
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    bool failed_before = chat->a_turn_failed;
    chat->a_turn_failed = true; /* unless all goes well */
    if (path[0] == '\0') {
        complain("/load needs the name of a file");
        return;
    }
    if (afmoe_session_load(chat->session, path, &error) != AFMOE_OK) {
        complain_error(&error);
        return;
    }
    bool good = session_tokens(&tokens, chat->session) == EXIT_OK &&
                split_talk(chat->model, &tokens, take_message, &loaded);
    free(tokens.ids);
    struct chat *dropped = good ? chat : &loaded;
    cut_messages(dropped, 0);
    free(dropped->roles);
    free(dropped->contents);
    free(dropped->ends);
    if (!good) return; /* the session reads the talk there is again */
    chat->roles = loaded.roles;
    chat->contents = loaded.contents;
    chat->ends = loaded.ends;
    chat->n_messages = loaded.n_messages;
    chat->capacity = loaded.capacity;
    chat->a_turn_failed = failed_before;
    if (!chat->settings->quiet) complain("loaded %" PRIu64 " messages", chat->n_messages);
}

static void print_stats(struct chat *chat, const char *argument)
{
    (void)argument;
    afmoe_session_stats stats;
    afmoe_context_info info;
    afmoe_session_stats_init(&stats, sizeof stats);
    afmoe_context_info_init(&info, sizeof info);
    if (afmoe_session_get_stats(chat->session, &stats, NULL) != AFMOE_OK ||
        afmoe_context_get_info(chat->context, &info, NULL) != AFMOE_OK)
        return;
    fprintf(stderr, "messages  %" PRIu64 "\ntimeline  %" PRIu64 " of %" PRIu64 " tokens, %.1f MB\n", chat->n_messages,
            n_timeline_tokens(chat), info.max_tokens, (double)stats.page_bytes / 1e6);
    fprintf(stderr, "prompts   %" PRIu64 " tokens computed, %.1f tokens/s; %" PRIu64 " kept\n", stats.n_prompt_computed,
            rate(stats.n_prompt_computed, stats.prompt_ns), stats.n_reused);
    fprintf(stderr, "answers   %" PRIu64 " tokens, %.1f tokens/s; %d threads\n", stats.n_decode_computed,
            rate(stats.n_decode_computed, stats.decode_ns), info.n_threads);
}

static void leave(struct chat *chat, const char *argument)
{
    (void)argument;
    chat->done = true;
}

static const struct {
    const char *name, *arguments;
    void (*run)(struct chat *chat, const char *argument);
    const char *what; /* NULL: another name of the one above */
} chat_commands[] = {
    {"/help", "", print_commands, "print this"},
    {"/undo", "", undo, "take back the last message and its answer"},
    {"/regen", "", regenerate, "make the last answer again, with the next seed"},
    {"/reset", "", reset, "forget everything but the system message; also /clear"},
    {"/clear", "", reset, NULL},
    {"/set", "[NAME VALUE]", set_parameter, "change how answers are drawn; alone: print what is set"},
    {"/save", "FILE", save, "save the talk with all that was computed for it"},
    {"/load", "FILE", load, "go on with a talk that was saved"},
    {"/stats", "", print_stats, "print tokens, speeds and memory"},
    {"/exit", "", leave, "leave; also /quit, /bye and Ctrl-D"},
    {"/quit", "", leave, NULL},
    {"/bye", "", leave, NULL},
};
enum { N_CHAT_COMMANDS = sizeof chat_commands / sizeof *chat_commands };

static void print_commands(struct chat *chat, const char *argument)
{
    (void)chat;
    (void)argument;
    for (int i = 0; i < N_CHAT_COMMANDS; i++) {
        char left[40];
        if (!chat_commands[i].what) continue;
        snprintf(left, sizeof left, "  %-6s %s", chat_commands[i].name, chat_commands[i].arguments);
        print_entry(stderr, left, 23, chat_commands[i].what);
    }
    print_entry(stderr, "", 0, "A message of several lines goes between \"\"\" and \"\"\"; it is never a command.");
}

static void run_chat_command(struct chat *chat, const char *line)
{
    size_t n_name = strcspn(line, " \t");
    const char *argument = line + n_name + strspn(line + n_name, " \t");
    for (int i = 0; i < N_CHAT_COMMANDS; i++)
        if (strlen(chat_commands[i].name) == n_name && strncmp(chat_commands[i].name, line, n_name) == 0) {
            chat_commands[i].run(chat, argument);
            return;
        }
    complain("unknown command '%.*s'; /help lists them, \"\"\"%s\"\"\" would be a message", (int)n_name, line, line);
    chat->a_turn_failed = true;
}

/* ---- What is typed ---- */

static const char fence[] = "\"\"\"";
enum { FENCE_BYTES = sizeof fence - 1 };

static bool ends_with_fence(const char *bytes, size_t n)
{
    return n >= FENCE_BYTES && memcmp(bytes + n - FENCE_BYTES, fence, FENCE_BYTES) == 0;
}

/* The lines from an opening fence (given, its fence taken off) to the closing one. */
static enum input_status read_block(struct chat *chat, const char *bytes, size_t n, struct buffer *out)
{
    for (;;) {
        bool is_last = ends_with_fence(bytes, n);
        if (!buffer_append(out, bytes, is_last ? n - FENCE_BYTES : n)) return INPUT_FAILED;
        if (is_last) return INPUT_LINE;
        if (!buffer_append(out, "\n", 1)) return INPUT_FAILED;
        enum input_status status = input_line(chat->input, ". ", &bytes, &n);
        if (status == INPUT_END) complain("the input ended inside of a message, before \"\"\"");
        if (status == INPUT_INTERRUPTED) return INPUT_DROPPED; /* with the lines before */
        if (status != INPUT_LINE) return status == INPUT_END ? INPUT_FAILED : status;
    }
}

static bool is_blank(const struct buffer *text)
{
    return strspn(text->bytes, " \t\n") == text->n; /* a byte of zero is not blank */
}

/* One message or command. */
static enum input_status take_turn(struct chat *chat)
{
    const char *line;
    size_t n;
    struct buffer text = {0};
    clear_interrupt();
    enum input_status status = input_line(chat->input, "> ", &line, &n);
    if (status != INPUT_LINE) return status;
    bool is_block = n >= FENCE_BYTES && memcmp(line, fence, FENCE_BYTES) == 0;
    if (is_block) status = read_block(chat, line + FENCE_BYTES, n - FENCE_BYTES, &text);
    else if (!buffer_append(&text, line, n)) status = INPUT_FAILED;
    if (status == INPUT_LINE && !is_blank(&text)) {
        if (!is_block && text.bytes[0] == '/') run_chat_command(chat, text.bytes);
        else say(chat, text.bytes, text.n);
    }
    free(text.bytes);
    return status;
}

/* Ctrl-C at an empty prompt: the second in a row leaves. */
static int talk(struct chat *chat)
{
    int n_interrupts = 0;
    while (!chat->done) {
        enum input_status status = take_turn(chat);
        if (status == INPUT_FAILED) return EXIT_FAILED;
        if (status == INPUT_LINE) {
            n_interrupts = 0;
            continue;
        }
        if (chat->is_terminal) fputc('\n', stderr);
        if (status == INPUT_DROPPED) {
            n_interrupts = 0;
            continue;
        }
        if (status == INPUT_END || ++n_interrupts == 2) break;
        complain("Ctrl-C again or Ctrl-D leaves");
    }
    return chat->a_turn_failed && !chat->is_terminal ? EXIT_FAILED : EXIT_OK;
}

/* ---- Beginning and end ---- */

static int begin(struct chat *chat)
{
    const struct settings *s = chat->settings;
    afmoe_context_options computing;
    int code = open_model(&chat->model, s, false);
    if (code != EXIT_OK) return code;
    if (!has_template(chat->model)) {
        complain("the vocabulary has no <|im_start|> and <|im_end|>, so there is no chat; afmoe run continues a text");
        return EXIT_FAILED;
    }
    code = sampler_options(&chat->sampling, chat->model, s);
    if (code == EXIT_OK) code = make_sampler(&chat->sampler, chat->model, s, &chat->sampling);
    if (code != EXIT_OK) return code;
    if (!context_options(s, &computing)) return EXIT_USAGE;
    computing.rewind_tokens = REWIND_TOKENS;
    code = make_session(&chat->context, &chat->session, chat->model, &computing);
    if (code != EXIT_OK || !s->system) return code;
    struct buffer text = {0};
    return buffer_append(&text, s->system, strlen(s->system)) && add_message(chat, "system", text.bytes) ? EXIT_OK
                                                                                                      : EXIT_FAILED;
}

int command_chat(const struct settings *settings)
{
    struct chat chat = {.settings = settings, .is_terminal = isatty(STDIN_FILENO)};
    if (settings->n_arguments) {
        complain("unexpected argument '%s': messages are read from standard input", settings->arguments[0]);
        return EXIT_USAGE;
    }
    int code = begin(&chat);
    if (code == EXIT_OK) code = watch_interrupt(chat.is_terminal ? INTERRUPT_ALWAYS : INTERRUPT_NEVER);
    if (code == EXIT_OK) {
        chat.input = input_open(chat.is_terminal);
        if (chat.is_terminal && !settings->quiet) complain("/help lists the commands, Ctrl-D leaves");
        code = chat.input ? talk(&chat) : EXIT_FAILED;
    }
    input_close(chat.input);
    unwatch_interrupt();
    cut_messages(&chat, 0);
    free(chat.roles);
    free(chat.contents);
    free(chat.ends);
    afmoe_sampler_free(chat.sampler);
    afmoe_session_free(chat.session);
    afmoe_context_free(chat.context);
    afmoe_model_free(chat.model);
    return code;
}
