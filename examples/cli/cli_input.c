/* Lines of standard input. At a terminal they are prompted for on standard error and, with libedit, edited there;
 * standard output has answers only. Ctrl-C is INPUT_DROPPED where something was typed, as far as can be seen: without
 * libedit the system keeps an unfinished line to itself. */
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef AFMOE_HAVE_LIBEDIT
#include <histedit.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <wchar.h>

enum { HISTORY_LINES = 1000 };
#endif

struct input {
    bool is_terminal;
    const char *prompt;
    char *line; /* of getline */
    size_t capacity;
#ifdef AFMOE_HAVE_LIBEDIT
    EditLine *edit; /* NULL: a terminal that cannot do it */
    History *history;
    bool drops; /* Ctrl-C came when the line was not empty */
#endif
};

/* ---- Plain ---- */

static enum input_status end_of_input(void)
{
    if (afmoe_cancel_is_set(interrupt)) { /* amid a line */
        clearerr(stdin);
        return INPUT_INTERRUPTED;
    }
    if (!ferror(stdin)) return INPUT_END;
    complain("standard input: %s", strerror(errno));
    return INPUT_FAILED;
}

static enum input_status read_plain(struct input *input, const char **out, size_t *out_n)
{
    if (input->is_terminal) {
        fputs(input->prompt, stderr);
        fflush(stderr);
        if (!wait_for_input()) return INPUT_INTERRUPTED; /* a terminal gives whole lines: stdin's buffer is empty */
    }
    errno = 0;
    ssize_t n = getline(&input->line, &input->capacity, stdin);
    if (n < 0) return end_of_input();
    *out = input->line;
    *out_n = (size_t)n;
    return INPUT_LINE;
}

/* ---- libedit ---- */

#ifdef AFMOE_HAVE_LIBEDIT

/* libedit speaks wide characters of the locale, and what comes from a terminal and from models is UTF-8. */
static bool use_utf8(void)
{
    return (setlocale(LC_CTYPE, "") && strcmp(nl_langinfo(CODESET), "UTF-8") == 0) || setlocale(LC_CTYPE, "C.UTF-8");
}

static char *prompt_of(EditLine *edit)
{
    static char none[] = "";
    void *input = NULL;
    return el_get(edit, EL_CLIENTDATA, &input) == 0 ? (char *)((struct input *)input)->prompt : none;
}

/* In place of libedit's own, which tries again when Ctrl-C interrupts it. */
static int read_character(EditLine *edit, wchar_t *out)
{
    mbstate_t state = {0};
    for (;;) {
        char byte;
        if (!wait_for_input()) {
            void *input = NULL;
            const LineInfo *line = el_line(edit);
            if (el_get(edit, EL_CLIENTDATA, &input) == 0)
                ((struct input *)input)->drops = line->lastchar > line->buffer;
            return -1;
        }
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return (int)n;
        size_t used = mbrtowc(out, &byte, 1, &state);
        if (used == (size_t)-2) continue; /* more bytes follow */
        if (used == (size_t)-1) *out = 0xFFFD;
        return 1;
    }
}

static void open_editor(struct input *input)
{
    const char *terminal = getenv("TERM");
    HistEvent event;
    if (!input->is_terminal || !isatty(STDERR_FILENO) || !terminal || strcmp(terminal, "dumb") == 0 || !use_utf8())
        return;
    input->history = history_init();
    if (input->history) input->edit = el_init("afmoe", stdin, stderr, stderr);
    if (!input->edit) return;
    history(input->history, &event, H_SETSIZE, HISTORY_LINES);
    history(input->history, &event, H_SETUNIQUE, 1);
    el_set(input->edit, EL_CLIENTDATA, input);
    el_set(input->edit, EL_PROMPT, prompt_of);
    el_set(input->edit, EL_EDITOR, "emacs");
    el_set(input->edit, EL_HIST, history, input->history);
    el_set(input->edit, EL_GETCFN, read_character);
    el_source(input->edit, NULL); /* the user's .editrc, where there is one */
}

static void close_editor(struct input *input)
{
    if (input->edit) el_end(input->edit);
    if (input->history) history_end(input->history);
}

static enum input_status read_edited(struct input *input, const char **out, size_t *out_n)
{
    HistEvent event;
    int n = 0;
    el_resize(input->edit); /* the window may have changed */
    input->drops = false;
    *out = el_gets(input->edit, &n);
    if (!*out || n <= 0) {
        if (afmoe_cancel_is_set(interrupt)) return input->drops ? INPUT_DROPPED : INPUT_INTERRUPTED;
        return INPUT_END;
    }
    *out_n = (size_t)n;
    if ((*out)[strspn(*out, " \t\n")]) history(input->history, &event, H_ENTER, *out);
    return INPUT_LINE;
}

#endif

/* ---- Either ---- */

struct input *input_open(bool is_terminal)
{
    struct input *input = calloc(1, sizeof *input);
    if (!input) {
        complain("out of memory");
        return NULL;
    }
    input->is_terminal = is_terminal;
#ifdef AFMOE_HAVE_LIBEDIT
    open_editor(input);
#endif
    return input;
}

enum input_status input_line(struct input *input, const char *prompt, const char **out, size_t *out_n)
{
    input->prompt = prompt;
#ifdef AFMOE_HAVE_LIBEDIT
    enum input_status status = input->edit ? read_edited(input, out, out_n) : read_plain(input, out, out_n);
#else
    enum input_status status = read_plain(input, out, out_n);
#endif
    if (status != INPUT_LINE) return status;
    if (*out_n && (*out)[*out_n - 1] == '\n') --*out_n;
    if (*out_n && (*out)[*out_n - 1] == '\r') --*out_n;
    return INPUT_LINE;
}

void input_close(struct input *input)
{
    if (!input) return;
#ifdef AFMOE_HAVE_LIBEDIT
    close_editor(input);
#endif
    free(input->line);
    free(input);
}
