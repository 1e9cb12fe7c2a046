/* One answer, see generation.h. */
#include "generation.h"

#include "cancel.h"
#include "clock.h"
#include "error.h"
#include "logprob.h"
#include "memory.h"
#include "stop_strings.h"
#include "stream_decoder.h"

#include <stdbool.h>

enum { MAX_TOP_LOGPROBS = 1024 };

afmoe_status afmoe__generation_check(const struct generation_source *from, const afmoe_generate_options *o,
                                     afmoe_error *error)
{
    uint64_t vocab_size = afmoe__sampler_vocab_size(from->sampler);
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
                               (unsigned long long)i, (int)o->stop_tokens[i], (unsigned long long)(vocab_size - 1));
    if (o->n_top_logprobs > MAX_TOP_LOGPROBS)
        return afmoe__fail(error, AFMOE_INVALID, "n_top_logprobs is %llu, allowed are 0..%d",
                           (unsigned long long)o->n_top_logprobs, MAX_TOP_LOGPROBS);
    if (o->max_draft > DRAFT_MAX_TOKENS)
        return afmoe__fail(error, AFMOE_INVALID, "max_draft is %llu, allowed are 0..%d",
                           (unsigned long long)o->max_draft, DRAFT_MAX_TOKENS);
    if (o->n_stop_strings > 0 && !from->tokenizer)
        return afmoe__fail(error, AFMOE_UNSUPPORTED, "stop strings need a tokenizer, and the model has none");
    return AFMOE_OK;
}

static afmoe_status allocate(struct generation *g, afmoe_error *error)
{
    const afmoe_generate_options *o = g->options;
    afmoe_status status = AFMOE_OK;
    if (o->n_stop_strings > 0)
        status = afmoe__stop_strings_create(&g->stops, o->stop_strings, o->stop_string_bytes, o->n_stop_strings, error);
    if (status == AFMOE_OK && g->from.tokenizer && (g->wants_pieces || g->stops))
        status = afmoe__stream_decoder_create(&g->decoder, g->from.tokenizer,
                                              afmoe__sampler_vocab_size(g->from.sampler), !o->keep_special, error);
    if (status == AFMOE_OK && o->max_draft > 0)
        status = afmoe__session_begin_drafts(g->from.session, o->max_draft, error);
    if (status != AFMOE_OK || o->n_top_logprobs == 0) return status;
    g->top_tokens = afmoe__alloc_array(o->n_top_logprobs, sizeof *g->top_tokens);
    g->top_logprobs = afmoe__alloc_array(o->n_top_logprobs, sizeof *g->top_logprobs);
    if (!g->top_tokens || !g->top_logprobs) return afmoe__fail_memory(error, o->n_top_logprobs * 8, "top_logprobs");
    return AFMOE_OK;
}

int32_t afmoe__generation_finish_reason(const afmoe_generate_result *result, afmoe_status status)
{
    switch (status) {
    case AFMOE_OK: return AFMOE_FINISH_LENGTH;
    case AFMOE_END: return result->stop_string >= 0 ? AFMOE_FINISH_STOP_STRING : AFMOE_FINISH_STOP_TOKEN;
    case AFMOE_CANCELLED: return AFMOE_FINISH_CANCELLED;
    case AFMOE_CONTEXT_FULL: return AFMOE_FINISH_CONTEXT;
    default: return AFMOE_FINISH_ERROR;
    }
}

void afmoe__generation_measure(struct generation *g)
{
    if (!g->has_ended) g->result->elapsed_ns = clock_now_ns() - g->start_ns;
}

static void count_drafts(struct generation *g)
{
    afmoe_session_stats stats = {.size = sizeof stats};
    if (g->options->max_draft == 0) return;
    afmoe__session_stats(g->from.session, &stats);
    g->result->n_drafted = stats.n_drafted - g->session_drafted;
    g->result->n_draft_accepted = stats.n_draft_accepted - g->session_accepted;
}

/* How it ended. */
static void tell(struct generation *g, afmoe_status status)
{
    afmoe__generation_measure(g);
    g->has_ended = true;
    g->status = status;
    g->result->finish_reason = afmoe__generation_finish_reason(g->result, status);
}

static void settle(struct generation *g, afmoe_status status)
{
    count_drafts(g);
    afmoe__session_end_drafts(g->from.session);
    tell(g, status);
}

void afmoe__generation_lose(struct generation *g, afmoe_error *error)
{
    tell(g, afmoe__fail(error, AFMOE_STATE, "the session was changed by another call since the last piece"));
}

afmoe_status afmoe__generation_begin(struct generation *g, const struct generation_source *from,
                                     const afmoe_generate_options *options, afmoe_generate_result *result,
                                     afmoe_error *error)
{
    afmoe_session_stats stats = {.size = sizeof stats};
    afmoe__session_stats(from->session, &stats);
    *g = (struct generation){.from = *from, .options = options, .result = result, .start_ns = clock_now_ns(),
                             .wants_pieces = from->is_pulled || options->on_piece,
                             .session_drafted = stats.n_drafted, .session_accepted = stats.n_draft_accepted};
    afmoe__draft_init(&g->draft, options->max_draft, stats.n_tokens, stats.n_drafted, stats.n_draft_accepted);
    result->n_generated = result->n_drafted = result->n_draft_accepted = 0;
    result->stop_token = result->stop_string = -1;
    g->n_prompt = options->n_prompt == UINT64_MAX ? stats.n_tokens : options->n_prompt;
    afmoe_status status = afmoe__generation_check(from, options, error);
    if (status == AFMOE_OK && !afmoe__session_logits(from->session))
        status = afmoe__fail(error, AFMOE_STATE, "the session has no logits to start from: append tokens first");
    if (status == AFMOE_OK) status = allocate(g, error);
    if (status != AFMOE_OK) settle(g, status);
    return status;
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
    return !g->options->ignore_eos && is_in(g->from.model_stop_tokens, g->from.n_model_stop_tokens, token);
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
    if (g->options->n_top_logprobs == 0 || !g->wants_pieces) return AFMOE_OK;
    uint64_t vocab_size = afmoe__sampler_vocab_size(g->from.sampler);
    struct log_normaliser normaliser;
    afmoe_status status = afmoe__log_normaliser(&normaliser, logits, vocab_size, error);
    if (status != AFMOE_OK) return status;
    piece->top_tokens = g->top_tokens;
    piece->top_logprobs = g->top_logprobs;
    piece->n_top = afmoe__top_logprobs(&normaliser, logits, afmoe__sampler_usable(g->from.sampler), vocab_size,
                                       g->options->n_top_logprobs, g->top_tokens, g->top_logprobs);
    return AFMOE_OK;
}

/* The last drafts are used up or wrong: the session tells how many were right. */
static uint64_t find_draft(struct generation *g, uint64_t n_left)
{
    const struct session *session = g->from.session;
    afmoe_session_stats stats = {.size = sizeof stats};
    if (g->options->max_draft == 0 || afmoe__session_has_draft(session, g->piece.token)) return 0;
    afmoe__session_stats(session, &stats);
    afmoe__draft_settle(&g->draft, stats.n_tokens, stats.n_drafted, stats.n_draft_accepted);
    return afmoe__draft_find(&g->draft, afmoe__session_tokens(session), stats.n_tokens, g->piece.token, n_left);
}

afmoe_status afmoe__generation_next(struct generation *g, afmoe_token *out_token, const afmoe_token **out_draft,
                                    uint64_t *out_n_draft, afmoe_error *error)
{
    struct session *session = g->from.session;
    const float *logits = afmoe__session_logits(session);
    const afmoe_token *tokens = afmoe__session_tokens(session);
    uint64_t position = afmoe__session_n_tokens(session), n_left = g->options->max_tokens - g->result->n_generated;
    *out_n_draft = 0;
    g->piece = (afmoe_piece){.size = sizeof g->piece, .text = "", .position = position};
    if (cancel_requested(g->options->cancel))
        return afmoe__fail(error, AFMOE_CANCELLED, "cancelled, %llu tokens are kept", (unsigned long long)position);
    afmoe_status status = afmoe__sampler_sample(g->from.sampler, logits, tokens, position, g->n_prompt,
                                                &g->piece.token, g->wants_pieces ? &g->piece.logprob : NULL, error);
    if (status != AFMOE_OK) return status;
    if (stops_at(g, g->piece.token)) {
        g->result->stop_token = g->piece.token;
        return AFMOE_END;
    }
    *out_token = g->piece.token;
    *out_draft = g->draft.tokens;
    *out_n_draft = find_draft(g, n_left - 1);
    return find_top(g, logits, &g->piece, error);
}

/* What is final of a token's text, in the last piece (no token) of all that was held back. */
static afmoe_status add_text(struct generation *g, afmoe_error *error)
{
    bool last = g->piece.token < 0;
    const char *text = "";
    uint64_t n_bytes = 0;
    struct stop_text out;
    afmoe_status status = AFMOE_OK;
    if (g->decoder && last)
        status = afmoe__stream_decoder_finish(g->decoder, &text, &n_bytes, error);
    else if (g->decoder)
        status = afmoe__stream_decoder_push(g->decoder, g->piece.token, &text, &n_bytes, error);
    if (status == AFMOE_OK) status = pass_stops(g, text, n_bytes, last, &out, error);
    if (status != AFMOE_OK) return status;
    g->piece.text = out.text;
    g->piece.text_bytes = out.n_bytes;
    return AFMOE_OK;
}

afmoe_status afmoe__generation_given(struct generation *g, afmoe_error *error)
{
    g->result->n_generated++;
    count_drafts(g);
    return add_text(g, error);
}

bool afmoe__generation_is_over(const struct generation *g)
{
    return g->result->n_generated >= g->options->max_tokens || g->result->stop_string >= 0;
}

/* The end stays as it is, unless a stop string turns up in the rest. */
static afmoe_status add_rest(struct generation *g, afmoe_status ended, afmoe_error *error)
{
    g->piece = (afmoe_piece){.size = sizeof g->piece, .token = -1, .text = "",
                             .position = afmoe__session_n_tokens(g->from.session)};
    if (!g->decoder || g->result->stop_string >= 0) return ended;
    afmoe_status status = add_text(g, ended < 0 ? NULL : error); /* the first failure is the one to tell */
    if (ended < 0) return ended;
    if (status != AFMOE_OK) return status;
    return g->result->stop_string >= 0 ? AFMOE_END : ended;
}

bool afmoe__generation_finish(struct generation *g, afmoe_status status, afmoe_error *error)
{
    if (status == AFMOE_OK && g->result->stop_string >= 0) status = AFMOE_END;
    settle(g, add_rest(g, status, error));
    return g->piece.text_bytes > 0;
}

bool afmoe__generation_give(struct generation *g, afmoe_error *error)
{
    if (!g->options->on_piece || g->options->on_piece(g->options->on_piece_data, &g->piece) == 0) return true;
    if (g->has_ended && g->status < 0) return false;
    settle(g, afmoe__fail(error, AFMOE_CANCELLED, "stopped by the callback, %llu tokens are kept",
                          (unsigned long long)afmoe__session_n_tokens(g->from.session)));
    return false;
}

afmoe_status afmoe__generation_end(struct generation *g)
{
    afmoe__stream_decoder_free(g->decoder);
    afmoe__stop_strings_free(g->stops);
    afmoe__free(g->top_tokens);
    afmoe__free(g->top_logprobs);
    return g->status;
}

void afmoe__generation_drop(struct generation *g)
{
    afmoe__session_end_drafts(g->from.session);
    afmoe__generation_end(g);
}
