/* The generate loop, see generate.h. */
#include "generate.h"

#include "cancel.h"
#include "clock.h"
#include "error.h"
#include "logprob.h"
#include "memory.h"
#include "stop_strings.h"
#include "stream_decoder.h"

#include <stdbool.h>

enum { MAX_TOP_LOGPROBS = 1024 };

struct generation {
    struct session *session;
    struct sampler *sampler;
    const afmoe_generate_options *options;
    const afmoe_token *model_stop_tokens;
    uint64_t n_model_stop_tokens;
    uint64_t n_prompt;
    struct stream_decoder *decoder; /* NULL: nobody wants text */
    struct stop_strings *stops;     /* NULL: none */
    afmoe_token *top_tokens;
    float *top_logprobs;
    afmoe_generate_result *result;
    bool refused; /* the callback wants no more */
};

static afmoe_status check_options(const struct generation *g, const struct tokenizer *tokenizer, afmoe_error *error)
{
    const afmoe_generate_options *o = g->options;
    uint64_t vocab_size = afmoe__sampler_vocab_size(g->sampler);
    afmoe_status status = afmoe__check_flag(o->ignore_eos, "ignore_eos", error);
    if (status == AFMOE_OK) status = afmoe__check_flag(o->keep_special, "keep_special", error);
    if (status == AFMOE_OK) status = afmoe__check_reserved(o->reserved, "afmoe_generate_options", error);
    if (status != AFMOE_OK) return status;
    if (o->n_stop_tokens > 0 && !o->stop_tokens)
        return afmoe__fail(error, AFMOE_INVALID, "n_stop_tokens is %llu but stop_tokens is NULL",
                           (unsigned long long)o->n_stop_tokens);
    for (uint64_t i = 0; i < o->n_stop_tokens; i++)
        if (o->stop_tokens[i] < 0 || (uint64_t)o->stop_tokens[i] >= vocab_size)
            return afmoe__fail(error, AFMOE_INVALID, "stop_tokens[%llu] is %d, allowed are 0..%llu",
                               (unsigned long long)i,
                               (int)o->stop_tokens[i], (unsigned long long)(vocab_size - 1));
    if (o->n_top_logprobs > MAX_TOP_LOGPROBS)
        return afmoe__fail(error, AFMOE_INVALID, "n_top_logprobs is %llu, allowed are 0..%d",
                           (unsigned long long)o->n_top_logprobs, MAX_TOP_LOGPROBS);
    if (o->n_stop_strings > 0 && !tokenizer)
        return afmoe__fail(error, AFMOE_UNSUPPORTED, "stop strings need a tokenizer, and the model has none");
    return AFMOE_OK;
}

static afmoe_status begin(struct generation *g, const struct tokenizer *tokenizer, afmoe_error *error)
{
    const afmoe_generate_options *o = g->options;
    afmoe_status status = check_options(g, tokenizer, error);
    if (status != AFMOE_OK) return status;
    if (!afmoe__session_logits(g->session))
        return afmoe__fail(error, AFMOE_STATE, "the session has no logits to start from: append tokens first");
    g->n_prompt = o->n_prompt == UINT64_MAX ? afmoe__session_n_tokens(g->session) : o->n_prompt;
    if (o->n_stop_strings > 0)
        status = afmoe__stop_strings_create(&g->stops, o->stop_strings, o->stop_string_bytes, o->n_stop_strings, error);
    if (status == AFMOE_OK && tokenizer && (o->on_piece || g->stops))
        status = afmoe__stream_decoder_create(&g->decoder, tokenizer, afmoe__sampler_vocab_size(g->sampler),
                                              !o->keep_special, error);
    if (status != AFMOE_OK || o->n_top_logprobs == 0) return status;
    g->top_tokens = afmoe__alloc_array(o->n_top_logprobs, sizeof *g->top_tokens);
    g->top_logprobs = afmoe__alloc_array(o->n_top_logprobs, sizeof *g->top_logprobs);
    if (!g->top_tokens || !g->top_logprobs) return afmoe__fail_memory(error, o->n_top_logprobs * 8, "top_logprobs");
    return AFMOE_OK;
}

static bool is_in(const afmoe_token *tokens, uint64_t n, afmoe_token token)
{
    for (uint64_t i = 0; i < n; i++)
        if (tokens[i] == token) return true;
    return false;
}

static bool stops_at(const struct generation *g, afmoe_token token)
{
    if (is_in(g->options->stop_tokens, g->options->n_stop_tokens, token)) return true;
    return !g->options->ignore_eos && is_in(g->model_stop_tokens, g->n_model_stop_tokens, token);
}

/* Hand a piece to the callback; CANCELLED when it wants no more. */
static afmoe_status give(struct generation *g, const afmoe_piece *piece, afmoe_error *error)
{
    if (!g->options->on_piece || g->options->on_piece(g->options->on_piece_data, piece) == 0) return AFMOE_OK;
    g->refused = true;
    return afmoe__fail(error, AFMOE_CANCELLED, "stopped by the callback, %llu tokens are kept",
                       (unsigned long long)afmoe__session_n_tokens(g->session));
}

/* Run decoded text through the stop strings; `last`: nothing is held back. */
static afmoe_status pass_stops(struct generation *g, const char *text, uint64_t n_bytes, bool last,
                               struct stop_text *out, afmoe_error *error)
{
    *out = (struct stop_text){text, n_bytes, -1};
    if (!g->stops) return AFMOE_OK;
    afmoe_status status = afmoe__stop_strings_push(g->stops, text, n_bytes, out, error);
    if (status != AFMOE_OK) return status;
    g->result->stop_string = out->stop_string;
    if (last && out->stop_string < 0) {
        struct stop_text held;
        afmoe__stop_strings_finish(g->stops, &held);
        out->n_bytes += held.n_bytes; /* it lies right behind the text given out */
    }
    return AFMOE_OK;
}

static afmoe_status find_top(struct generation *g, const float *logits, afmoe_piece *piece, afmoe_error *error)
{
    if (g->options->n_top_logprobs == 0 || !g->options->on_piece) return AFMOE_OK;
    uint64_t vocab_size = afmoe__sampler_vocab_size(g->sampler);
    struct log_normaliser normaliser;
    afmoe_status status = afmoe__log_normaliser(&normaliser, logits, vocab_size, error);
    if (status != AFMOE_OK) return status;
    piece->top_tokens = g->top_tokens;
    piece->top_logprobs = g->top_logprobs;
    piece->n_top = afmoe__top_logprobs(&normaliser, logits, afmoe__sampler_usable(g->sampler), vocab_size,
                                       g->options->n_top_logprobs, g->top_tokens, g->top_logprobs);
    return AFMOE_OK;
}

static afmoe_status append(struct generation *g, afmoe_token token, afmoe_error *error)
{
    const afmoe_append_options options = {.size = sizeof options, .cancel = g->options->cancel};
    afmoe_append_result result = {.size = sizeof result};
    afmoe_status status = afmoe__session_append(g->session, &token, 1, &options, &result, error);
    if (status == AFMOE_OK) g->result->n_generated++;
    return status;
}

/* Text and callback of a token that is in the timeline; END at a stop string. */
static afmoe_status give_token(struct generation *g, afmoe_piece *piece, afmoe_error *error)
{
    const char *text = "";
    uint64_t n_bytes = 0;
    struct stop_text out;
    afmoe_status status = AFMOE_OK;
    if (g->decoder) status = afmoe__stream_decoder_push(g->decoder, piece->token, &text, &n_bytes, error);
    if (status == AFMOE_OK) status = pass_stops(g, text, n_bytes, false, &out, error);
    if (status != AFMOE_OK) return status;
    piece->text = out.text;
    piece->text_bytes = out.n_bytes;
    status = give(g, piece, error);
    return status == AFMOE_OK && out.stop_string >= 0 ? AFMOE_END : status;
}

/* One token. OK: go on; END: a stop token or stop string. */
static afmoe_status step(struct generation *g, afmoe_error *error)
{
    const float *logits = afmoe__session_logits(g->session);
    uint64_t position = afmoe__session_n_tokens(g->session);
    afmoe_piece piece = {.size = sizeof piece, .text = "", .position = position};
    if (cancel_requested(g->options->cancel))
        return afmoe__fail(error, AFMOE_CANCELLED, "cancelled, %llu tokens are kept", (unsigned long long)position);
    afmoe_status status = afmoe__sampler_sample(g->sampler, logits, afmoe__session_tokens(g->session), position,
                                                g->n_prompt, &piece.token,
                                                g->options->on_piece ? &piece.logprob : NULL, error);
    if (status != AFMOE_OK) return status;
    if (stops_at(g, piece.token)) {
        g->result->stop_token = piece.token;
        return AFMOE_END;
    }
    status = find_top(g, logits, &piece, error);
    if (status == AFMOE_OK) status = append(g, piece.token, error);
    if (status == AFMOE_OK) status = give_token(g, &piece, error);
    return status;
}

/* What is still held back, in a last piece. */
static afmoe_status give_rest(struct generation *g, afmoe_error *error)
{
    const char *text;
    uint64_t n_bytes;
    struct stop_text out;
    afmoe_status status = afmoe__stream_decoder_finish(g->decoder, &text, &n_bytes, error);
    if (status == AFMOE_OK) status = pass_stops(g, text, n_bytes, true, &out, error);
    if (status != AFMOE_OK) return status;
    const afmoe_piece piece = {.size = sizeof piece, .token = -1, .text = out.text, .text_bytes = out.n_bytes,
                               .position = afmoe__session_n_tokens(g->session)};
    if (out.n_bytes > 0) status = give(g, &piece, error);
    return status == AFMOE_OK && out.stop_string >= 0 ? AFMOE_END : status;
}

/* The loop ended with `ended`, which stays unless a stop string turns up in the rest or the callback refuses it. */
static afmoe_status flush(struct generation *g, afmoe_status ended, afmoe_error *error)
{
    if (!g->decoder || g->refused || g->result->stop_string >= 0) return ended;
    if (ended < 0) {
        give_rest(g, NULL); /* the first failure is the one to tell */
        return ended;
    }
    afmoe_status status = give_rest(g, error);
    return status == AFMOE_OK ? ended : status;
}

static int32_t finish_reason(const struct generation *g, afmoe_status status)
{
    switch (status) {
    case AFMOE_OK: return AFMOE_FINISH_LENGTH;
    case AFMOE_END: return g->result->stop_string >= 0 ? AFMOE_FINISH_STOP_STRING : AFMOE_FINISH_STOP_TOKEN;
    case AFMOE_CANCELLED: return AFMOE_FINISH_CANCELLED;
    case AFMOE_CONTEXT_FULL: return AFMOE_FINISH_CONTEXT;
    default: return AFMOE_FINISH_ERROR;
    }
}

afmoe_status afmoe__generate(struct session *session, struct sampler *sampler, const struct tokenizer *tokenizer,
                             const afmoe_token *model_stop_tokens, uint64_t n_model_stop_tokens,
                             const afmoe_generate_options *options, afmoe_generate_result *result,
                             afmoe_error *error)
{
    struct generation g = {.session = session, .sampler = sampler, .options = options, .result = result,
                           .model_stop_tokens = model_stop_tokens, .n_model_stop_tokens = n_model_stop_tokens};
    uint64_t start = clock_now_ns();
    result->n_generated = 0;
    result->stop_token = result->stop_string = -1;
    afmoe_status status = begin(&g, tokenizer, error);
    if (status == AFMOE_OK) {
        while (status == AFMOE_OK && result->n_generated < options->max_tokens) status = step(&g, error);
        status = flush(&g, status, error);
    }
    result->finish_reason = finish_reason(&g, status);
    result->elapsed_ns = clock_now_ns() - start;
    afmoe__stream_decoder_free(g.decoder);
    afmoe__stop_strings_free(g.stops);
    afmoe__free(g.top_tokens);
    afmoe__free(g.top_logprobs);
    return status;
}
