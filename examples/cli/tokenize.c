/* afmoe tokenize: token ids of a text, or of many as JSON lines. */
#include "cli.h"

#include <jansson.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool print_ids(const struct tokens *tokens)
{
    char word[16];
    for (uint64_t i = 0; i < tokens->n; i++) {
        int n = snprintf(word, sizeof word, i ? " %d" : "%d", (int)tokens->ids[i]);
        if (!write_out(word, (size_t)n)) return false;
    }
    return write_out("\n", 1);
}

static int tokenize_plain(const struct settings *settings, const afmoe_model *model)
{
    struct buffer text = {0};
    const char *bytes;
    if (settings->n_arguments) {
        bytes = settings->arguments[0];
        text.n = strlen(bytes);
    } else {
        if (!read_all(&text, NULL)) return EXIT_FAILED;
        bytes = text.bytes;
    }
    struct tokens tokens;
    int code = tokenize_text(&tokens, model, bytes, text.n);
    if (code == EXIT_OK) {
        code = print_ids(&tokens) ? EXIT_OK : EXIT_FAILED;
        free(tokens.ids);
    }
    free(text.bytes);
    return code;
}

/* The text of the tokens, special ones too, through the stream decoder: always valid UTF-8. NULL after a message. */
static json_t *decode(const struct tokens *tokens, afmoe_stream_decoder *decoder)
{
    struct buffer text = {0};
    for (uint64_t i = 0; i <= tokens->n; i++) {
        const char *piece;
        uint64_t n;
        afmoe_error error;
        afmoe_error_init(&error, sizeof error);
        afmoe_status status = i < tokens->n
                                  ? afmoe_stream_decoder_push(decoder, tokens->ids[i], &piece, &n, &error)
                                  : afmoe_stream_decoder_finish(decoder, &piece, &n, &error);
        if (status != AFMOE_OK) {
            complain_error(&error);
            free(text.bytes);
            return NULL;
        }
        if (!buffer_append(&text, piece, n)) {
            free(text.bytes);
            return NULL;
        }
    }
    json_t *string = json_stringn(text.bytes, text.n);
    free(text.bytes);
    if (!string) complain("out of memory");
    return string;
}

static bool print_answer(const struct tokens *tokens, json_t *decoded)
{
    json_t *ids = json_array(), *answer = json_object();
    bool good = ids && answer;
    for (uint64_t i = 0; good && i < tokens->n; i++)
        good = json_array_append_new(ids, json_integer(tokens->ids[i])) == 0;
    good = good && json_object_set(answer, "ids", ids) == 0 && json_object_set(answer, "decoded", decoded) == 0;
    char *line = good ? json_dumps(answer, 0) : NULL;
    json_decref(ids);
    json_decref(answer);
    if (!line) {
        complain("out of memory");
        return false;
    }
    good = write_out(line, strlen(line)) && write_out("\n", 1);
    free(line);
    return good;
}

static int answer_line(const char *line, size_t n, uint64_t number, const afmoe_model *model,
                       afmoe_stream_decoder *decoder)
{
    json_error_t fault;
    json_t *document = json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &fault);
    if (!document) {
        complain("line %llu: %s", (unsigned long long)number, fault.text);
        return EXIT_FAILED;
    }
    const json_t *text = json_object_get(document, "text");
    int code = EXIT_FAILED;
    struct tokens tokens;
    if (!json_is_string(text)) {
        complain("line %llu: not an object with a string \"text\"", (unsigned long long)number);
    } else if ((code = tokenize_text(&tokens, model, json_string_value(text), json_string_length(text))) == EXIT_OK) {
        json_t *decoded = decode(&tokens, decoder);
        code = decoded && print_answer(&tokens, decoded) ? EXIT_OK : EXIT_FAILED;
        json_decref(decoded);
        free(tokens.ids);
    }
    json_decref(document);
    return code;
}

static int tokenize_lines(afmoe_model *model)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_stream_decoder *decoder;
    if (afmoe_stream_decoder_create(&decoder, model, 0, &error) != AFMOE_OK) return complain_error(&error);
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    int code = EXIT_OK;
    errno = 0;
    for (uint64_t number = 1; code == EXIT_OK && (n = getline(&line, &capacity, stdin)) >= 0; number++)
        code = answer_line(line, (size_t)n, number, model, decoder);
    if (code == EXIT_OK && !feof(stdin)) {
        complain("standard input: %s", strerror(errno));
        code = EXIT_FAILED;
    }
    free(line);
    afmoe_stream_decoder_free(decoder);
    return code;
}

int command_tokenize(const struct settings *settings)
{
    if (settings->n_arguments > (settings->jsonl ? 0 : 1)) {
        complain("unexpected argument '%s'", settings->arguments[settings->jsonl ? 0 : 1]);
        return EXIT_USAGE;
    }
    afmoe_model *model;
    int code = open_model(&model, settings, true);
    if (code != EXIT_OK) return code;
    code = settings->jsonl ? tokenize_lines(model) : tokenize_plain(settings, model);
    afmoe_model_free(model);
    return code;
}
