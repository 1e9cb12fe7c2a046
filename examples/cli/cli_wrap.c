/* Help in lines as wide as the terminal it is for; 80 columns where there is none and $COLUMNS does not tell. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

enum { DEFAULT_COLUMNS = 80, LEAST_COLUMNS = 20, MOST_COLUMNS = 1000, LEAST_TEXT = 24, NARROW_INDENT = 8 };

static size_t columns_of(FILE *stream)
{
    struct winsize size;
    uint64_t n;
    const char *text = getenv("COLUMNS");
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col >= LEAST_COLUMNS) return size.ws_col;
    if (text && parse_number(text, &n) && n >= LEAST_COLUMNS && n <= MOST_COLUMNS) return (size_t)n;
    return DEFAULT_COLUMNS;
}

void print_entry(FILE *out, const char *left, size_t indent, const char *text)
{
    size_t width = columns_of(out), at = strlen(left);
    if (indent + LEAST_TEXT > width) indent = indent < NARROW_INDENT ? indent : NARROW_INDENT;
    fputs(left, out);
    if (at && at >= indent) {
        fputc('\n', out);
        at = 0;
    }
    while (*text) {
        size_t n = strcspn(text, " \n");
        if (at > indent && at + 1 + n > width) {
            fputc('\n', out);
            at = 0;
        }
        int n_blanks = at > indent ? 1 : (int)(indent - at);
        fprintf(out, "%*s%.*s", n_blanks, "", (int)n, text);
        at += (size_t)n_blanks + n;
        text += n;
        if (*text == '\n') {
            fputc('\n', out);
            at = 0;
        }
        if (*text) text++;
    }
    fputc('\n', out);
}
