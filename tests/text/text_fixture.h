/* Files, tokenizers and rows of JSON lines for the tests of lib/text. */
#ifndef AFMOE_TESTS_TEXT_FIXTURE_H
#define AFMOE_TESTS_TEXT_FIXTURE_H

#include "tokenizer.h"

#include <jansson.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs those above, and setjmp. */
#include <setjmp.h>

#include <cmocka.h>

struct file_bytes {
    uint8_t *data; /* NULL: no such file */
    size_t n;
};

static inline struct file_bytes read_stream(FILE *stream)
{
    struct file_bytes out = {NULL, 0};
    size_t room = 1 << 16, got;
    out.data = malloc(room);
    while (out.data && (got = fread(out.data + out.n, 1, room - out.n, stream)) > 0) {
        out.n += got;
        if (out.n == room) out.data = realloc(out.data, room *= 2);
    }
    return out;
}

/* $VARIABLE/relative; a path ending in .xz is unpacked by the xz command. */
static inline struct file_bytes read_fixture(const char *variable, const char *relative)
{
    struct file_bytes out = {NULL, 0};
    const char *folder = getenv(variable);
    char path[1024], command[1100];
    if (!folder) return out;
    snprintf(path, sizeof path, "%s/%s", folder, relative);
    FILE *file = fopen(path, "rb");
    if (!file) return out;
    size_t n = strlen(path);
    if (n > 3 && strcmp(path + n - 3, ".xz") == 0) {
        fclose(file);
        snprintf(command, sizeof command, "xz -dc '%s' 2>/dev/null", path);
        file = popen(command, "r");
        if (!file) return out;
        out = read_stream(file);
        pclose(file);
        if (out.n == 0) {
            free(out.data);
            out.data = NULL;
        }
        return out;
    }
    out = read_stream(file);
    fclose(file);
    return out;
}

static inline struct tokenizer *load_tokenizer(struct file_bytes file)
{
    struct tokenizer *tokenizer = NULL;
    afmoe_error error = {.size = sizeof error};
    if (afmoe__tokenizer_from_json(&tokenizer, file.data, file.n, 1 << 30, "tokenizer.json", &error) != AFMOE_OK) {
        fail_msg("tokenizer.json: %s", error.message);
    }
    return tokenizer;
}

static inline struct tokenizer *load_pico(void)
{
    struct file_bytes file = read_fixture("AFMOE_TEST_DATA", "tokenizer/pico-tokenizer.json");
    assert_non_null(file.data);
    struct tokenizer *tokenizer = load_tokenizer(file);
    free(file.data);
    return tokenizer;
}

/* Call `check` with every row of JSON lines; returns the number of rows. */
static inline size_t for_each_row(struct file_bytes file, void (*check)(void *user_data, const json_t *row),
                                  void *user_data)
{
    size_t n_rows = 0;
    const char *at = (const char *)file.data, *end = at + file.n;
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end) line_end = end;
        if (line_end > at) {
            json_error_t json_error;
            json_t *row = json_loadb(at, (size_t)(line_end - at), JSON_ALLOW_NUL, &json_error);
            if (!row) fail_msg("row %zu: %s", n_rows, json_error.text);
            check(user_data, row);
            json_decref(row);
            n_rows++;
        }
        at = line_end + 1;
    }
    return n_rows;
}

#endif
