/* ChatML, see chatml.h. The text is encoded in one pass, as the reference does with a rendered template, so that line
 * ends merge with what surrounds them; but added tokens are recognised only where the template itself put them. */
#include "chatml.h"

#include "checked.h"
#include "error.h"
#include "memory.h"

#include <string.h>

static const char im_start[] = "<|im_start|>", im_end[] = "<|im_end|>";

struct chat_text {
    char *bytes;
    uint64_t n_bytes;
    uint64_t *ranges; /* of the template's own added tokens */
    uint64_t n_ranges;
};

static void put(struct chat_text *chat, const char *text, uint64_t n)
{
    memcpy(chat->bytes + chat->n_bytes, text, n);
    chat->n_bytes += n;
}

static void put_text(struct chat_text *chat, const char *text)
{
    put(chat, text, strlen(text));
}

static void put_added(struct chat_text *chat, const char *token)
{
    uint64_t *range = &chat->ranges[2 * chat->n_ranges++];
    range[0] = chat->n_bytes;
    put_text(chat, token);
    range[1] = chat->n_bytes;
}

static uint64_t content_bytes(const afmoe_chat_options *options, const char *const *contents, uint64_t i)
{
    return options->content_bytes ? options->content_bytes[i] : strlen(contents[i]);
}

static afmoe_status measure(const char *const *roles, const char *const *contents, uint64_t n_messages,
                            const afmoe_chat_options *options, uint64_t *out_n_bytes, afmoe_error *error)
{
    if (n_messages && (!roles || !contents)) {
        return afmoe__fail(error, AFMOE_INVALID, "%s is NULL", roles ? "contents" : "roles");
    }
    uint64_t n_bytes = sizeof im_start + sizeof "assistant\n";
    for (uint64_t i = 0; i < n_messages; i++) {
        if (!roles[i] || !contents[i]) {
            return afmoe__fail(error, AFMOE_INVALID, "%s[%llu] is NULL", roles[i] ? "contents" : "roles",
                               (unsigned long long)i);
        }
        /* The same string may be given many times, so the sum may be more than there is memory. */
        if (!checked_add(n_bytes, strlen(roles[i]), &n_bytes) ||
            !checked_add(n_bytes, content_bytes(options, contents, i), &n_bytes) ||
            !checked_add(n_bytes, sizeof im_start + sizeof im_end, &n_bytes) || n_bytes > options->max_text_bytes) {
            return afmoe__fail(error, AFMOE_LIMIT, "%llu messages have more than max_text_bytes, %llu",
                               (unsigned long long)n_messages, (unsigned long long)options->max_text_bytes);
        }
    }
    *out_n_bytes = n_bytes;
    return AFMOE_OK;
}

static afmoe_status check_added(const struct tokenizer *tokenizer, const char *text, afmoe_error *error)
{
    const uint8_t *bytes;
    uint64_t n;
    int32_t kind = afmoe__tokenizer_token(
        tokenizer, afmoe__tokenizer_find(tokenizer, (const uint8_t *)text, strlen(text)), &bytes, &n);
    if (kind == AFMOE_TOKEN_CONTROL || kind == AFMOE_TOKEN_ADDED) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_UNSUPPORTED, "the vocabulary has no %s: not a ChatML model", text);
}

static void render(struct chat_text *chat, const char *const *roles, const char *const *contents, uint64_t n_messages,
                   const afmoe_chat_options *options)
{
    for (uint64_t i = 0; i < n_messages; i++) {
        put_added(chat, im_start);
        put_text(chat, roles[i]);
        put_text(chat, "\n");
        put(chat, contents[i], content_bytes(options, contents, i));
        put_added(chat, im_end);
        put_text(chat, "\n");
    }
    if (!options->add_generation_prompt) return;
    put_added(chat, im_start);
    put_text(chat, "assistant\n");
}

afmoe_status afmoe__chatml_encode(const struct tokenizer *tokenizer, const char *const *roles,
                                  const char *const *contents, uint64_t n_messages, const afmoe_chat_options *options,
                                  afmoe_token *out, uint64_t capacity, uint64_t *out_n, afmoe_error *error)
{
    struct chat_text chat = {0};
    uint64_t n_bytes = 0;
    afmoe_status status = afmoe__check_flag(options->add_generation_prompt, "add_generation_prompt", error);
    if (status == AFMOE_OK) status = measure(roles, contents, n_messages, options, &n_bytes, error);
    if (status == AFMOE_OK) status = check_added(tokenizer, im_start, error);
    if (status == AFMOE_OK) status = check_added(tokenizer, im_end, error);
    if (status != AFMOE_OK) return status;

    chat.bytes = afmoe__alloc_array(n_bytes, 1);
    chat.ranges = afmoe__alloc_array(2 * n_messages + 1, 2 * sizeof *chat.ranges);
    if (!chat.bytes || !chat.ranges) {
        status = afmoe__fail_memory(error, n_bytes, "the chat's text");
    } else {
        render(&chat, roles, contents, n_messages, options);
        const afmoe_tokenize_options encode = {.size = sizeof encode,
                                               .special = AFMOE_SPECIAL_RANGES,
                                               .special_ranges = chat.ranges,
                                               .n_special_ranges = chat.n_ranges,
                                               .max_text_bytes = options->max_text_bytes,
                                               .cancel = options->cancel};
        status = afmoe__tokenizer_encode(tokenizer, chat.bytes, chat.n_bytes, &encode, out, capacity, out_n, error);
    }
    afmoe__free(chat.bytes);
    afmoe__free(chat.ranges);
    return status;
}
