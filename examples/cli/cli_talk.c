/* Messages out of the tokens of a talk: <|im_start|>ROLE\nCONTENT<|im_end|>\n for each, as afmoe_chat_tokenize made
 * them. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static const char *const roles[] = {"system", "user", "assistant"};
enum { N_ROLES = sizeof roles / sizeof *roles };

static bool find_token(const afmoe_model *model, const char *text, afmoe_token *out)
{
    return afmoe_token_find(model, text, strlen(text), out, NULL) == AFMOE_OK;
}

/* The text of tokens, free() it; NULL after a message. */
static char *text_of(const afmoe_model *model, const afmoe_token *ids, uint64_t n)
{
    afmoe_error error;
    uint64_t n_bytes = 0;
    afmoe_error_init(&error, sizeof error);
    afmoe_status status = afmoe_detokenize(model, ids, n, 0, NULL, 0, &n_bytes, &error);
    char *text = malloc((size_t)n_bytes + 1);
    if (text && n_bytes) status = afmoe_detokenize(model, ids, n, 0, text, n_bytes, &n_bytes, &error);
    if (text && status == AFMOE_OK) {
        text[n_bytes] = '\0';
        return text;
    }
    if (text) complain_error(&error);
    else complain("out of memory");
    free(text);
    return NULL;
}

/* "ROLE\nCONTENT", which is taken over. */
static bool give_out(char *text, uint64_t end, message_fn message, void *user_data)
{
    for (int i = 0; i < N_ROLES; i++) {
        size_t n = strlen(roles[i]);
        if (strncmp(text, roles[i], n) != 0 || text[n] != '\n') continue;
        memmove(text, text + n + 1, strlen(text + n + 1) + 1);
        return message(user_data, roles[i], text, end);
    }
    complain("what was saved is not a talk: a message of '%.40s'", text);
    free(text);
    return false;
}

bool split_talk(const afmoe_model *model, const struct tokens *tokens, message_fn message, void *user_data)
{
    afmoe_token start, end;
    if (!find_token(model, "<|im_start|>", &start) || !find_token(model, "<|im_end|>", &end)) return false;
    for (uint64_t i = 0; i < tokens->n;) {
        uint64_t begin = i + 1;
        bool good = tokens->ids[i] == start;
        for (i = begin; good && i < tokens->n && tokens->ids[i] != end;) i++;
        if (!good || i == tokens->n) {
            complain("what was saved is not a talk: token %llu of %llu is not the end of a message",
                     (unsigned long long)i, (unsigned long long)tokens->n);
            return false;
        }
        char *text = text_of(model, tokens->ids + begin, i - begin);
        if (!text || !give_out(text, i, message, user_data)) return false;
        for (i++; i < tokens->n && tokens->ids[i] != start;) i++; /* the line break between messages */
    }
    return true;
}

static bool drop_message(void *user_data, const char *role, char *content, uint64_t end)
{
    (void)user_data, (void)role, (void)end;
    free(content);
    return true;
}

bool is_talk(const afmoe_model *model, const struct tokens *tokens)
{
    return split_talk(model, tokens, drop_message, NULL);
}
