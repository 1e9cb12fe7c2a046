/* ChatML, see chatml.h. The text is encoded in one pass, as the reference does with a rendered template, so that line
 * ends merge with what surrounds them; but added tokens are recognised only where the template itself put them. */
#include "chatml.h"

#include "checked.h"
#include "error.h"

#include <string.h>

static const char im_start[] = "<|im_start|>", im_end[] = "<|im_end|>";

struct chat_text {
    char *bytes;
    uint64_t n_bytes;
    uint64_t *ranges; /* of the template's own added tokens */
    uint64_t n_ranges;
};

static void put(struct chat_text *chat, const char *text)
{
    uint64_t n = strlen(text);
    memcpy(chat->bytes + chat->n_bytes, text, n);
    chat->n_bytes += n;
}

static void put_added(struct chat_text *chat, const char *token)
{
    uint64_t *range = &chat->ranges[2 * chat->n_ranges++];
    range[0] = chat->n_bytes;
    put(chat, token);
    range[1] = chat->n_bytes;
}

static afmoe_status measure(const char *const *roles, const char *const *contents, uint64_t n_messages,
                            uint64_t *out_n_bytes, afmoe_error *error)
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
        if (!checked_add(n_bytes, strlen(roles[i]), &n_bytes) || !checked_add(n_bytes, strlen(contents[i]), &n_bytes) ||
            !checked_add(n_bytes, sizeof im_start + sizeof im_end, &n_bytes)) {
            return afmoe__fail(error, AFMOE_LIMIT, "the messages have more than 2^64 bytes");
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

afmoe_status afmoe__chatml_encode(const struct tokenizer *tokenizer, const char *const *roles,
                                  const char *const *contents, uint64_t n_messages, int32_t add_generation_prompt,
                                  afmoe_token *out, uint64_t capacity, uint64_t *out_n, afmoe_error *error)
{
    struct chat_text chat = {0};
    uint64_t n_bytes = 0;
    afmoe_status status = measure(roles, contents, n_messages, &n_bytes, error);
    if (status == AFMOE_OK) status = check_added(tokenizer, im_start, error);
    if (status == AFMOE_OK) status = check_added(tokenizer, im_end, error);
    if (status != AFMOE_OK) return status;

    chat.bytes = afmoe__alloc_array(n_bytes, 1);
    chat.ranges = afmoe__alloc_array(2 * n_messages + 1, 2 * sizeof *chat.ranges);
    if (!chat.bytes || !chat.ranges) {
        status = afmoe__fail_memory(error, n_bytes, "the chat's text");
    } else {
        for (uint64_t i = 0; i < n_messages; i++) {
            put_added(&chat, im_start);
            put(&chat, roles[i]);
            put(&chat, "\n");
            put(&chat, contents[i]);
            put_added(&chat, im_end);
            put(&chat, "\n");
        }
        if (add_generation_prompt) {
            put_added(&chat, im_start);
            put(&chat, "assistant\n");
        }
        const afmoe_tokenize_options options = {.size = sizeof options,
                                                .special = AFMOE_SPECIAL_RANGES,
                                                .special_ranges = chat.ranges,
                                                .n_special_ranges = chat.n_ranges,
                                                .max_text_bytes = DEFAULT_MAX_TEXT_BYTES};
        status = afmoe__tokenizer_encode(tokenizer, chat.bytes, chat.n_bytes, &options, out, capacity, out_n, error);
    }
    afmoe__free(chat.bytes);
    afmoe__free(chat.ranges);
    return status;
}
