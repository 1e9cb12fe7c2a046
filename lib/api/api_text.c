/* Public calls of text: tokenize, detokenize, tokens, chat, stream decoder. */
#include "chatml.h"
#include "handles.h"
#include "memory.h"
#include "stream_decoder.h"
#include "structs.h"

struct afmoe_stream_decoder {
    struct guard guard;
    afmoe_model *model;
    struct stream_decoder *core;
};

afmoe_status afmoe_tokenize(const afmoe_model *model, const char *text, uint64_t text_bytes,
                            const afmoe_tokenize_options *options, afmoe_token *out, uint64_t capacity, uint64_t *out_n,
                            afmoe_error *error)
{
    afmoe_tokenize_options full;
    afmoe_tokenize_options_init(&full, sizeof full);
    uint64_t ignored;
    if (!out_n) out_n = &ignored;
    afmoe_status status = afmoe__model_need_tokenizer(model, error);
    if (status == AFMOE_OK && text_bytes) status = afmoe__check_argument(text, "text", error);
    if (status == AFMOE_OK) status = STRUCT_READ(&full, options, afmoe_tokenize_options, error);
    if (status != AFMOE_OK) return status;
    return afmoe__tokenizer_encode(model->tokenizer, text, text_bytes, &full, out, capacity, out_n, error);
}

afmoe_status afmoe_detokenize(const afmoe_model *model, const afmoe_token *tokens, uint64_t n_tokens,
                              int32_t skip_special, char *out, uint64_t capacity, uint64_t *out_n, afmoe_error *error)
{
    uint64_t ignored;
    if (!out_n) out_n = &ignored;
    afmoe_status status = afmoe__model_need_tokenizer(model, error);
    if (status == AFMOE_OK && n_tokens) status = afmoe__check_argument(tokens, "tokens", error);
    if (status == AFMOE_OK) status = afmoe__check_flag(skip_special, "skip_special", error);
    if (status != AFMOE_OK) return status;
    return afmoe__tokenizer_decode(model->tokenizer, model->vocab_size, tokens, n_tokens, skip_special, out, capacity,
                                   out_n, error);
}

afmoe_status afmoe_token_text(const afmoe_model *model, afmoe_token token, const char **out_bytes, uint64_t *out_n,
                              int32_t *out_kind, afmoe_error *error)
{
    const uint8_t *bytes;
    uint64_t n;
    afmoe_status status = afmoe__model_need_tokenizer(model, error);
    if (status != AFMOE_OK) return status;
    if (token < 0 || (uint64_t)token >= model->vocab_size)
        return afmoe__fail(error, AFMOE_INVALID, "token is %d, allowed are 0..%llu", token,
                           (unsigned long long)(model->vocab_size - 1));
    int32_t kind = afmoe__tokenizer_token(model->tokenizer, token, &bytes, &n);
    if (out_bytes) *out_bytes = (const char *)bytes;
    if (out_n) *out_n = n;
    if (out_kind) *out_kind = kind;
    return AFMOE_OK;
}

afmoe_status afmoe_token_find(const afmoe_model *model, const char *text, uint64_t text_bytes, afmoe_token *out,
                              afmoe_error *error)
{
    afmoe_status status = afmoe__model_need_tokenizer(model, error);
    if (status == AFMOE_OK) status = afmoe__check_argument(text, "text", error);
    if (status == AFMOE_OK) status = afmoe__check_argument(out, "out", error);
    if (status != AFMOE_OK) return status;
    *out = afmoe__tokenizer_find(model->tokenizer, (const uint8_t *)text, text_bytes);
    return *out >= 0 ? AFMOE_OK : afmoe__fail(error, AFMOE_NOT_FOUND, "no token has exactly this text");
}

afmoe_status afmoe_chat_tokenize(const afmoe_model *model, const char *const *roles, const char *const *contents,
                                 uint64_t n_messages, const afmoe_chat_options *options, afmoe_token *out,
                                 uint64_t capacity, uint64_t *out_n, afmoe_error *error)
{
    uint64_t ignored;
    afmoe_chat_options full;
    afmoe_chat_options_init(&full, sizeof full);
    if (!out_n) out_n = &ignored;
    afmoe_status status = afmoe__model_need_tokenizer(model, error);
    if (status == AFMOE_OK) status = STRUCT_READ(&full, options, afmoe_chat_options, error);
    if (status != AFMOE_OK) return status;
    return afmoe__chatml_encode(model->tokenizer, roles, contents, n_messages, &full, out, capacity, out_n, error);
}

/* ---- Stream decoder ---- */

afmoe_status afmoe_stream_decoder_create(afmoe_stream_decoder **out, afmoe_model *model, int32_t skip_special,
                                         afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(out, "out", error);
    if (status != AFMOE_OK) return status;
    *out = NULL;
    status = afmoe__model_need_tokenizer(model, error);
    if (status == AFMOE_OK) status = afmoe__check_flag(skip_special, "skip_special", error);
    if (status != AFMOE_OK) return status;
    afmoe_stream_decoder *decoder = afmoe__alloc_zeroed(1, sizeof *decoder);
    if (!decoder) return afmoe__fail_memory(error, sizeof *decoder, "a stream decoder");
    status = afmoe__stream_decoder_create(&decoder->core, model->tokenizer, model->vocab_size, skip_special, error);
    if (status != AFMOE_OK) {
        afmoe__free(decoder);
        return status;
    }
    guard_init(&decoder->guard);
    afmoe_model_retain(model);
    decoder->model = model;
    *out = decoder;
    return AFMOE_OK;
}

static void destroy(afmoe_stream_decoder *decoder)
{
    afmoe__stream_decoder_free(decoder->core);
    afmoe_model_free(decoder->model);
    afmoe__free(decoder);
}

void afmoe_stream_decoder_free(afmoe_stream_decoder *decoder)
{
    if (decoder && guard_release(&decoder->guard)) destroy(decoder);
}

static afmoe_status enter(afmoe_stream_decoder *decoder, const char **out_text, uint64_t *out_n, afmoe_error *error)
{
    afmoe_status status = afmoe__check_argument(decoder, "decoder", error);
    if (status == AFMOE_OK) status = afmoe__check_argument(out_text, "out_text", error);
    if (status == AFMOE_OK) status = afmoe__check_argument(out_n, "out_n", error);
    return status == AFMOE_OK ? guard_enter(&decoder->guard, "stream decoder", error) : status;
}

static void leave(afmoe_stream_decoder *decoder)
{
    if (guard_leave(&decoder->guard)) destroy(decoder);
}

afmoe_status afmoe_stream_decoder_push(afmoe_stream_decoder *decoder, afmoe_token token, const char **out_text,
                                       uint64_t *out_n, afmoe_error *error)
{
    afmoe_status status = enter(decoder, out_text, out_n, error);
    if (status != AFMOE_OK) return status;
    status = afmoe__stream_decoder_push(decoder->core, token, out_text, out_n, error);
    leave(decoder);
    return status;
}

afmoe_status afmoe_stream_decoder_finish(afmoe_stream_decoder *decoder, const char **out_text, uint64_t *out_n,
                                         afmoe_error *error)
{
    afmoe_status status = enter(decoder, out_text, out_n, error);
    if (status != AFMOE_OK) return status;
    status = afmoe__stream_decoder_finish(decoder->core, out_text, out_n, error);
    leave(decoder);
    return status;
}
