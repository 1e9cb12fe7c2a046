/* What the commands of `afmoe` share.
 *
 * Manners: results on standard output, everything else on standard error as "afmoe: MESSAGE"; no colours, and bars
 * only on a terminal. Exit codes: 0 done, 1 failed, 2 used wrongly. */
#ifndef AFMOE_CLI_H
#define AFMOE_CLI_H

#include "afmoe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* ---- Options: one table for all commands, cli_options.c ---- */

enum command {
    COMMAND_RUN = 1,
    COMMAND_TOKENIZE = 2,
    COMMAND_EVAL = 4,
    COMMAND_CHAT = 8,
    COMMAND_INSPECT = 16,
    COMMAND_BENCH = 32,
    COMMAND_SYNTH = 64
};

enum { MAX_STOPS = 64 };

struct settings {
    enum command command;
    const char *model, *prompt, *system, *precision, *cells, *cpu, *prefix_folder, *state;
    const char *stops[MAX_STOPS];
    uint64_t n_stops;
    uint64_t n_predict, n_draft, context, window; /* UINT64_MAX: not given */
    uint64_t threads;                    /* UINT64_MAX: not given */
    uint64_t seed, top_k;                /* UINT64_MAX: not given */
    bool seed_given;
    float temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty; /* NaN: not given */
    bool raw, ignore_eos, quiet, verbose, jsonl, json, tensors, help;
    /* bench: lists as given */
    const char *prompt_lengths, *gen_lengths, *depths, *session_counts, *thread_counts, *output;
    uint64_t repetitions, batch;
    /* eval */
    const char *base, *save_base;
    uint64_t chunks;
    /* synth */
    const char *shape, *format, *container;
    bool force;
    uint64_t layers, vocab, shard_mb;
    char **arguments; /* what is left of the command line */
    int n_arguments;
};

/* EXIT_OK, or EXIT_USAGE after a message. argv[0] is the command's name. */
int settings_parse(struct settings *settings, enum command command, int argc, char **argv);
void help_print(enum command command);
/* The option with this long name as the command line has it: "-t" or "--threads". */
const char *option_as_typed(const char *name);
/* A message of the library with the options' names in place of its own for what they set; good until the next call. */
const char *in_options(const afmoe_error *error);

/* A whole text as a number; false when it is none. */
bool parse_number(const char *text, uint64_t *out);
bool parse_real(const char *text, float *out);

/* ---- Input, output, messages: cli_io.c ---- */

void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Tell a failure of the library in the words of the command line; its exit code: EXIT_USAGE for INVALID, an option out
 * of its range. */
int complain_error(const afmoe_error *error);

struct buffer {
    char *bytes; /* free() it; a zero follows the last, once something was appended */
    size_t n, capacity;
};

/* False after a message. `bytes` NULL appends nothing. */
bool buffer_append(struct buffer *buffer, const char *bytes, size_t n);

/* All of a file; `path` NULL or "-": standard input. False after a message. */
bool read_all(struct buffer *out, const char *path);

/* Standard output; false after a message. A reader that went away (EPIPE) is no message. */
bool write_out(const char *bytes, size_t n);
bool flush_out(void);

/* `left`, and from column `indent` on `text` in lines as wide as the terminal; cli_wrap.c. */
void print_entry(FILE *out, const char *left, size_t indent, const char *text);

/* A bar on standard error if that is a terminal. Same signature as afmoe_progress_fn; user_data: the label. */
int32_t show_progress(void *user_data, uint64_t done, uint64_t total);
void hide_progress(void);

/* ---- Files that are written: cli_file.c ---- */

struct out_file {
    FILE *stream;
    const char *path; /* borrowed */
    char part[4096];  /* where it is written until it is whole; empty: at `path` itself */
    uint64_t n_bytes; /* written so far */
    bool failed;      /* and told; what follows does nothing and is false */
};

/* Is there a file that writing to this path would replace? */
bool replaces_file(const char *path);
bool out_open(struct out_file *file, const char *path);
bool out_write(struct out_file *file, const void *bytes, size_t n);
bool out_print(struct out_file *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Without `keep`, or when anything failed, what was written is removed. True: all of it is at `path`. */
bool out_close(struct out_file *file, bool keep);

/* ---- Models and contexts: cli_model.c ---- */

/* Where the model is: -m, $AFMOE_MODEL, the demo model; NULL after a message. The buffer may be used for it. */
const char *find_model(const struct settings *settings, char *buffer, size_t capacity);
/* afmoe_model_options whose warnings are told as the settings want. */
void model_options(const struct settings *settings, afmoe_model_options *out);
/* Find and open the model; an exit code. */
int open_model(afmoe_model **out, const struct settings *settings, bool tokenizer_only);
/* Of AFMOE_CELLS_F32 and so on, as --cells takes them. Static. */
const char *cells_name(int32_t cells);
/* settings -> context options; false after a message about a word not known. */
bool context_options(const struct settings *settings, afmoe_context_options *out);

/* Tokens of a text or a chat in memory of their own, free() them. */
struct tokens {
    afmoe_token *ids;
    uint64_t n;
};
int tokenize_text(struct tokens *out, const afmoe_model *model, const char *text, size_t n_bytes);
/* Messages, with the beginning of an answer behind them where one follows. */
int tokenize_messages(struct tokens *out, const afmoe_model *model, const char *const *roles,
                      const char *const *contents, uint64_t n_messages, bool answer_follows);
/* All tokens of a session. */
int session_tokens(struct tokens *out, afmoe_session *session);
/* Has the vocabulary what ChatML is made of? */
bool has_template(const afmoe_model *model);

/* ---- Answers, for run and chat: cli_answer.c ---- */

/* What the checkpoint recommends, and over it what the command line says; an exit code. */
int sampler_options(afmoe_sampler_options *out, const afmoe_model *model, const struct settings *settings);
int make_sampler(afmoe_sampler **out, afmoe_model *model, const struct settings *settings,
                 const afmoe_sampler_options *options);
int make_session(afmoe_context **out_context, afmoe_session **out_session, afmoe_model *model,
                 const afmoe_context_options *options);

/* Options for reading a prompt of n tokens: Ctrl-C, and a bar where it takes long. */
void reading_options(afmoe_append_options *out, const struct settings *settings, uint64_t n_tokens);

/* An answer on its way to standard output. */
struct answer {
    struct buffer *text; /* NULL, or where it is kept too, without bytes of zero */
    bool wrote, wrote_newline, failed;
};
/* Say what the settings say, write pieces by `answer`, stop at Ctrl-C. */
void answer_options(afmoe_generate_options *out, const struct settings *settings, struct answer *answer);
/* End its last line; false after a message. */
bool end_answer(struct answer *answer);

/* Tokens a second. */
double rate(uint64_t n_tokens, uint64_t ns);

/* ---- Saved talks, for run and chat: cli_talk.c ---- */

/* Takes `content` over, whose last token is the one before `end`; false after a message. Roles are static. */
typedef bool (*message_fn)(void *user_data, const char *role, char *content, uint64_t end);
/* The messages that tokens in ChatML are made of; false after a message when they are not. */
bool split_talk(const afmoe_model *model, const struct tokens *tokens, message_fn message, void *user_data);
/* Are they? False after a message. */
bool is_talk(const afmoe_model *model, const struct tokens *tokens);

/* ---- Ctrl-C: cli_interrupt.c ---- */

enum interrupts {
    INTERRUPT_NEVER, /* Ctrl-C ends the program as ever */
    INTERRUPT_ONCE, /* the second Ctrl-C has the default action again: it ends the program */
    INTERRUPT_ALWAYS
};

/* From watch to unwatch, Ctrl-C sets this. Exit code. */
extern afmoe_cancel *interrupt;
int watch_interrupt(enum interrupts interrupts);
void unwatch_interrupt(void);
/* As if no Ctrl-C had come. */
void clear_interrupt(void);
/* Until standard input can be read; false: Ctrl-C came. */
bool wait_for_input(void);

/* ---- Lines of standard input: cli_input.c ---- */

struct input; /* history is kept in memory only */

enum input_status {
    INPUT_LINE,
    INPUT_END,
    INPUT_INTERRUPTED,
    INPUT_DROPPED, /* interrupted, and what was typed is gone */
    INPUT_FAILED   /* after a message */
};

/* NULL after a message. With `is_terminal` lines are prompted for and, where libedit is there, edited. */
struct input *input_open(bool is_terminal);
/* *out: without its end, borrowed until the next call. */
enum input_status input_line(struct input *input, const char *prompt, const char **out, size_t *out_n);
void input_close(struct input *input);

/* ---- The commands; each returns the exit code ---- */

int command_run(const struct settings *settings);
int command_tokenize(const struct settings *settings);
int command_eval(const struct settings *settings);
int command_chat(const struct settings *settings);
int command_inspect(const struct settings *settings);
int command_bench(const struct settings *settings);
int command_synth(const struct settings *settings);

#endif
