/* afmoe: run Trinity models from the command line. Chooses the command; each has its own file. */
#include "cli.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    enum command command;
    int (*run)(const struct settings *settings);
    const char *what;
} commands[] = {
    {"run", COMMAND_RUN, command_run, "answer a prompt"},
    {"chat", COMMAND_CHAT, command_chat, "talk, each answer knowing what was said before"},
    {"inspect", COMMAND_INSPECT, command_inspect, "tell what a checkpoint holds and whether it can be run"},
    {"tokenize", COMMAND_TOKENIZE, command_tokenize, "print the token ids of a text"},
    {"eval", COMMAND_EVAL, command_eval, "measure the perplexity of a text"},
    {"bench", COMMAND_BENCH, command_bench, "measure how fast a model reads and goes on"},
    {"synth", COMMAND_SYNTH, command_synth, "write a random model of real shape"},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *out)
{
    fputs("usage: afmoe COMMAND [OPTION..] [ARGUMENT..]\n\n", out);
    for (int i = 0; i < N_COMMANDS; i++) {
        char left[16];
        snprintf(left, sizeof left, "  %s", commands[i].name);
        print_entry(out, left, 13, commands[i].what);
    }
    fputc('\n', out);
    print_entry(out, "", 0, "afmoe COMMAND --help lists the options; afmoe --version prints the version.");
}

/* A standard stream that the caller closed must not become the model's file. What takes its place fails on use. */
static void occupy_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) _exit(EXIT_FAILED);
}

static int run_command(int index, int argc, char **argv)
{
    struct settings settings;
    int code = settings_parse(&settings, commands[index].command, argc, argv);
    if (code != EXIT_OK) return code;
    if (!settings.help) return commands[index].run(&settings);
    help_print(commands[index].command);
    return EXIT_OK;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("afmoe %s\n%s\n", afmoe_version_string(), afmoe_build_features());
        return EXIT_OK;
    }
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0) return run_command(i, argc - 1, argv + 1);
    complain("unknown command '%s'; see afmoe --help", argv[1]);
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    occupy_standard_streams();
    int code = dispatch(argc, argv);
    return flush_out() || code != EXIT_OK ? code : EXIT_FAILED;
}
