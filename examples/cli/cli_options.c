/* The command line: one table says what each option is called, which commands have it, what it sets and what --help
 * prints about it. */
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { FLAG, WORD, STOP, COUNT /* a number; -1: not given */, SEED, REAL };

struct row {
    int commands;
    char letter; /* 0: none */
    const char *name;
    enum kind kind;
    size_t offset;
    const char *argument, *help;
    const char *field; /* what the library's messages call it, where that is another word */
};

#define AT(field) offsetof(struct settings, field)
enum {
    RUN = COMMAND_RUN,
    TOKENIZE = COMMAND_TOKENIZE,
    EVAL = COMMAND_EVAL,
    CHAT = COMMAND_CHAT,
    INSPECT = COMMAND_INSPECT,
    BENCH = COMMAND_BENCH,
    SYNTH = COMMAND_SYNTH,
    ANSWER = RUN | CHAT,
    COMPUTE = ANSWER | EVAL,
    ALL = COMPUTE | TOKENIZE | INSPECT | BENCH /* that open a model */
};

static const struct row rows[] = {
    {ALL, 'm', "model", WORD, AT(model), "PATH", "GGUF file or folder; else $AFMOE_MODEL, else the demo model"},
    {RUN, 'p', "prompt", WORD, AT(prompt), "TEXT", "the prompt; else the arguments, else standard input"},
    {ANSWER, 0, "sys", WORD, AT(system), "TEXT", "system message (-sys works too)"},
    {RUN, 0, "raw", FLAG, AT(raw), NULL, "continue the text as it is, without the ChatML template"},
    {ANSWER, 'n', "predict", COUNT, AT(n_predict), "N", "most tokens to generate; default: until something stops"},
    {ANSWER, 0, "draft", COUNT, AT(n_draft), "N", "guess up to N tokens ahead where text repeats, 0..64; default 0",
     "max_draft"},
    {ANSWER, 'r', "stop", STOP, 0, "TEXT", "stop before this text; up to 64 times", "stop_strings"},
    {ANSWER, 0, "ignore-eos", FLAG, AT(ignore_eos), NULL, "do not stop where the model ends its turn"},
    {ANSWER | SYNTH, 's', "seed", SEED, AT(seed), "N", "of all that is random; default 0"},
    {ANSWER, 0, "temp", REAL, AT(temperature), "X", "temperature, 0..100; 0: the most likely token", "temperature"},
    {ANSWER, 0, "top-k", COUNT, AT(top_k), "K", "keep the K most likely tokens, 1..2^32", "top_k"},
    {ANSWER, 0, "top-p", REAL, AT(top_p), "P", "keep the most likely tokens up to this probability, 0..1", "top_p"},
    {ANSWER, 0, "min-p", REAL, AT(min_p), "P", "drop tokens below P times the best, 0..1", "min_p"},
    {ANSWER, 0, "repeat-penalty", REAL, AT(repeat_penalty), "X", "for tokens of prompt and answer, 0.01..100; 1: off",
     "repetition_penalty"},
    {ANSWER, 0, "presence-penalty", REAL, AT(presence_penalty), "X", "for tokens generated already, -100..100",
     "presence_penalty"},
    {ANSWER, 0, "frequency-penalty", REAL, AT(frequency_penalty), "X", "for every time they were, -100..100",
     "frequency_penalty"},
    {ANSWER, 'c', "ctx-size", COUNT, AT(context), "N", "longest timeline in tokens; default 4096, or the model's most",
     "max_tokens"},
    {RUN, 0, "state", WORD, AT(state), "FILE", "go on with what was saved in FILE, where there is one, and save to it"},
    {ANSWER, 0, "prefix-folder", WORD, AT(prefix_folder), "DIR",
     "keep what was computed in DIR, and begin with what is there", "prefix_folder"},
    {EVAL, 'w', "window", COUNT, AT(window), "N", "tokens of one window; default 256", "max_tokens"},
    {EVAL, 0, "chunks", COUNT, AT(chunks), "N", "most windows to score; default: all"},
    {EVAL, 0, "save-base", WORD, AT(save_base), "FILE", "write all log-probabilities to FILE, for --base"},
    {EVAL, 0, "base", WORD, AT(base), "FILE", "print the divergence from the model that wrote FILE"},
    {BENCH, 'p', "n-prompt", WORD, AT(prompt_lengths), "LIST", "prompt lengths; default 512"},
    {BENCH, 'n', "n-gen", WORD, AT(gen_lengths), "LIST", "tokens to decode; default 128"},
    {BENCH, 'd', "n-depth", WORD, AT(depths), "LIST", "tokens there before; default 0"},
    {BENCH, 0, "sessions", WORD, AT(session_counts), "LIST", "sessions that decode together; default 1"},
    {BENCH, 't', "threads", WORD, AT(thread_counts), "LIST", "1..256; default: one for each usable core", "n_threads"},
    {BENCH, 'b', "batch-size", COUNT, AT(batch), "N", "tokens computed together, 1..4096; default 512", "chunk_tokens"},
    {BENCH, 'r', "repetitions", COUNT, AT(repetitions), "N", "measured after one that is not; 1..1000, default 5"},
    {BENCH, 'o', "output", WORD, AT(output), "FORM", "md (default), csv or json"},
    {SYNTH, 0, "shape", WORD, AT(shape), "NAME", "nano (default), mini, large or pico"},
    {SYNTH, 0, "layers", COUNT, AT(layers), "N", "only the first N; at least one keeps its experts"},
    {SYNTH, 0, "vocab", COUNT, AT(vocab), "N", "rows of the vocabulary, 512..1000000; default: the shape's"},
    {SYNTH, 'f', "format", WORD, AT(format), "NAME", "q8_0 (default of gguf), bf16 (of safetensors), q4_k_m, .."},
    {SYNTH, 0, "container", WORD, AT(container), "NAME", "gguf (default) or safetensors, then OUT is a new folder"},
    {SYNTH, 0, "force", FLAG, AT(force), NULL, "write over a file that is there"},
    {SYNTH, 0, "shard-mb", COUNT, AT(shard_mb), "N", "most MB of a safetensors file, 1..1000000; default 5000"},
    {COMPUTE, 't', "threads", COUNT, AT(threads), "N", "1..256; default: one for each usable core", "n_threads"},
    {COMPUTE | BENCH, 0, "precision", WORD, AT(precision), "NAME", "fast (default) or exact"},
    {COMPUTE | BENCH, 0, "cells", WORD, AT(cells), "TYPE",
     "keys and values as f32, f16, bf16 or q8_0; default: by precision"},
    {COMPUTE | BENCH, 0, "cpu", WORD, AT(cpu), "LEVEL",
     "highest CPU level used, e.g. c, avx2; default: what there is", "cpu_level"},
    {TOKENIZE, 0, "jsonl", FLAG, AT(jsonl), NULL, "lines {\"text\": ..} in, {\"ids\": [..], \"decoded\": ..} out"},
    {INSPECT, 0, "tensors", FLAG, AT(tensors), NULL, "list every tensor"},
    {EVAL | INSPECT, 0, "json", FLAG, AT(json), NULL, "print one JSON object"},
    {ALL | SYNTH, 'q', "quiet", FLAG, AT(quiet), NULL, "no notices, bars or speeds"},
    {ALL, 'v', "verbose", FLAG, AT(verbose), NULL, "say more"},
    {ALL | SYNTH, 'h', "help", FLAG, AT(help), NULL, "print this"},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static const struct {
    enum command command;
    const char *name, *arguments, *what;
} commands[] = {
    {COMMAND_RUN, "run", " [PROMPT..]", "Answer a prompt, as it is made.\n"
     "Defaults of sampling are those the checkpoint recommends. Ctrl-C stops the answer, a second one the program."},
    {COMMAND_TOKENIZE, "tokenize", " [TEXT]", "Print the token ids of a text (else of standard input).\n"
     "The model may also be a tokenizer.json. Special tokens are recognised, nothing is added."},
    {COMMAND_EVAL, "eval", " FILE", "Measure the perplexity of a text.\n"
     "Windows do not overlap, their first token is not scored, a remainder is dropped."},
    {COMMAND_CHAT, "chat", "",
     "Talk, each answer knowing what was said. A line is a message; /help lists commands.\n"
     "Ctrl-C stops the answer only and keeps what was said. Lines may also come through a pipe."},
    {COMMAND_INSPECT, "inspect", " [FILE_OR_FOLDER]",
     "Tell what a checkpoint holds, and whether this version can run it.\n"
     "Where it cannot, the exit code is 1 and the reason is told; what can be read is printed all the same."},
    {COMMAND_BENCH, "bench", "",
     "Measure tokens a second, beside what the machine reads and multiplies in the same minute.\n"
     "A LIST is 512,1024 or a range: 1-4, 0-4096+1024, 1-8*2. -p 0 or -n 0 leaves such rows out. Tokens are random, "
     "none are sampled. With S sessions one token of each is appended a step; their rate is that of all together."},
    {COMMAND_SYNTH, "synth", " OUT",
     "Write a model of random weights with the shape of a real one, to measure speed without a download.\n"
     "q4_k_m and q5_k_m mix as llama.cpp does: Q6_K for the output, and for attn_v and ffn_down of every layer in the "
     "first and last eighth and of every third between. safetensors: f32, f16, bf16; without tokenizer.json."},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static const char *command_name(enum command command)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (commands[i].command == command) return commands[i].name;
    return "";
}

enum { HELP_INDENT = 31 };

static void print_row(const struct row *row)
{
    char left[64];
    snprintf(left, sizeof left, "  %c%c%s --%s%s%s", row->letter ? '-' : ' ', row->letter ? row->letter : ' ',
             row->letter ? "," : " ", row->name, row->argument ? " " : "", row->argument ? row->argument : "");
    print_entry(stdout, left, HELP_INDENT, row->help);
}

void help_print(enum command command)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        if (commands[i].command != command) continue;
        printf("usage: afmoe %s [OPTION..]%s\n\n", commands[i].name, commands[i].arguments);
        print_entry(stdout, "", 0, commands[i].what);
        printf("\n");
    }
    for (int i = 0; i < N_ROWS; i++)
        if (rows[i].commands & command) print_row(&rows[i]);
}

/* ---- What messages call an option ---- */

static enum command parsed_command;
static bool is_by_name[N_ROWS]; /* and not by its letter */

static const char *row_as_typed(int i)
{
    static char text[32];
    if (rows[i].letter && !is_by_name[i]) snprintf(text, sizeof text, "-%c", rows[i].letter);
    else snprintf(text, sizeof text, "--%s", rows[i].name);
    return text;
}

const char *option_as_typed(const char *name)
{
    int i = 0;
    while (!(rows[i].commands & parsed_command) || strcmp(rows[i].name, name) != 0) i++;
    return row_as_typed(i);
}

/* The row that sets the field with these n letters; -1: none. */
static int row_of_field(const char *field, size_t n)
{
    for (int i = 0; i < N_ROWS; i++)
        if ((rows[i].commands & parsed_command) && rows[i].field && strlen(rows[i].field) == n &&
            strncmp(rows[i].field, field, n) == 0)
            return i;
    return -1;
}

const char *in_options(const afmoe_error *error)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz_";
    static char text[2 * sizeof error->message];
    size_t used = 0;
    /* Other failures are of files, whose own words may be the same. */
    if (error->code != AFMOE_INVALID && error->code != AFMOE_UNSUPPORTED) return error->message;
    for (const char *at = error->message; *at && used < sizeof text;) {
        size_t n = strspn(at, letters);
        int row = n ? row_of_field(at, n) : -1;
        if (row >= 0) used += (size_t)snprintf(text + used, sizeof text - used, "%s", row_as_typed(row));
        else used += (size_t)snprintf(text + used, sizeof text - used, "%.*s", n ? (int)n : 1, at);
        at += n ? n : 1;
    }
    return text;
}

/* ---- Parsing ---- */

static void set_defaults(struct settings *s, enum command command)
{
    *s = (struct settings){.command = command};
    s->n_predict = s->n_draft = s->context = s->window = s->threads = s->top_k = UINT64_MAX;
    s->repetitions = s->batch = s->chunks = s->layers = s->vocab = s->shard_mb = UINT64_MAX;
    s->temperature = s->top_p = s->min_p = NAN;
    s->repeat_penalty = s->presence_penalty = s->frequency_penalty = NAN;
}

bool parse_number(const char *text, uint64_t *out)
{
    char *end;
    if (text[0] < '0' || text[0] > '9') return false; /* strtoull would take a sign and spaces */
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || *end) return false;
    *out = value;
    return true;
}

bool parse_real(const char *text, float *out)
{
    char *end;
    *out = strtof(text, &end);
    return end != text && !*end && !isnan(*out);
}

/* False when the text is not what the option takes. */
static bool set(struct settings *s, const struct row *row, const char *text)
{
    void *field = (char *)s + row->offset;
    switch (row->kind) {
    case FLAG: *(bool *)field = true; return true;
    case WORD: *(const char **)field = text; return true;
    case STOP:
        if (s->n_stops == MAX_STOPS) return false;
        s->stops[s->n_stops++] = text;
        return true;
    case COUNT:
        if (strcmp(text, "-1") != 0) return parse_number(text, field) && *(uint64_t *)field != UINT64_MAX;
        *(uint64_t *)field = UINT64_MAX;
        return true;
    case SEED: s->seed_given = true; return parse_number(text, field);
    case REAL: return parse_real(text, field);
    }
    return false;
}

static const char *const kind_words[] = {
    [FLAG] = "nothing", [WORD] = "text", [STOP] = "text, at most 64 times", [COUNT] = "a whole number",
    [SEED] = "a whole number", [REAL] = "a number",
};

int settings_parse(struct settings *s, enum command command, int argc, char **argv)
{
    struct option options[N_ROWS + 1] = {0};
    char letters[2 * N_ROWS + 2] = ":";
    set_defaults(s, command);
    parsed_command = command;
    int n = 0;
    for (int i = 0; i < N_ROWS; i++) {
        if (!(rows[i].commands & command)) continue;
        int has_argument = rows[i].kind == FLAG ? no_argument : required_argument;
        options[n++] = (struct option){rows[i].name, has_argument, NULL, 256 + i};
        if (!rows[i].letter) continue;
        size_t end = strlen(letters);
        letters[end] = rows[i].letter;
        letters[end + 1] = has_argument == required_argument ? ':' : '\0';
    }
    opterr = 0;
    int found;
    while ((found = getopt_long_only(argc, argv, letters, options, NULL)) != -1) {
        const char *given = argv[optind - 1];
        if (found == '?' || found == ':') {
            complain(found == '?' ? "unknown option '%s'; see afmoe %s --help"
                                  : "option '%s' needs an argument; see afmoe %s --help",
                     given, command_name(command));
            return EXIT_USAGE;
        }
        int i = found - 256;
        if (found < 256)
            for (i = 0; rows[i].letter != found || !(rows[i].commands & command);) i++;
        is_by_name[i] = found >= 256;
        if (!set(s, &rows[i], optarg)) {
            complain("%s takes %s, not '%s'", row_as_typed(i), kind_words[rows[i].kind], optarg);
            return EXIT_USAGE;
        }
    }
    s->arguments = argv + optind;
    s->n_arguments = argc - optind;
    return EXIT_OK;
}
