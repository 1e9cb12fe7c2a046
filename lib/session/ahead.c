/* Tokens computed ahead, see ahead.h. */
#include "ahead.h"

#include "append_check.h"
#include "context_private.h"
#include "error.h"
#include "memory.h"
#include "session_private.h"
#include "step.h"

#include <string.h>

uint64_t afmoe__ahead_bytes(const struct context *context, uint64_t max_draft)
{
    return max_draft * (context->config->vocab_size + context->config->hidden_size) * sizeof(float);
}

afmoe_status afmoe__session_begin_drafts(struct session *session, uint64_t max_draft, afmoe_error *error)
{
    struct ahead *ahead = &session->ahead;
    struct context *context = session->timeline.context;
    const struct model_config *config = context->config;
    if (max_draft > context->plan.chunk_tokens - 1) max_draft = context->plan.chunk_tokens - 1;
    if (max_draft == 0) return AFMOE_OK;
    ahead->logits = afmoe__alloc_array(max_draft, config->vocab_size * sizeof(float));
    ahead->hidden = afmoe__alloc_array(max_draft, config->hidden_size * sizeof(float));
    ahead->max_draft = max_draft;
    atomic_fetch_add(&context->n_draft_bytes, afmoe__ahead_bytes(context, max_draft));
    if (ahead->logits && ahead->hidden) return AFMOE_OK;
    afmoe__session_end_drafts(session);
    return afmoe__fail_memory(error, afmoe__ahead_bytes(context, max_draft), "the logits of drafts");
}

void afmoe__session_end_drafts(struct session *session)
{
    struct ahead *ahead = &session->ahead;
    if (ahead->logits) {
        afmoe__timeline_truncate(&session->timeline, session->timeline.n_tokens);
        afmoe__timeline_settle(&session->timeline);
    }
    atomic_fetch_sub(&session->timeline.context->n_draft_bytes,
                     afmoe__ahead_bytes(session->timeline.context, ahead->max_draft));
    afmoe__free(ahead->logits);
    afmoe__free(ahead->hidden);
    *ahead = (struct ahead){.logits = NULL};
}

/* The next draft is in the timeline now. */
static void accept(struct session *session)
{
    const struct model_config *config = session->timeline.context->config;
    struct ahead *ahead = &session->ahead;
    memcpy(session->logits, ahead->logits + ahead->first * config->vocab_size, config->vocab_size * sizeof(float));
    memcpy(session->hidden, ahead->hidden + ahead->first * config->hidden_size, config->hidden_size * sizeof(float));
    ahead->first++;
    session->timeline.n_tokens++;
    session->stats.n_draft_accepted++;
    afmoe__timeline_give_back(&session->timeline);
    afmoe__timeline_settle(&session->timeline);
}

void afmoe__ahead_forget(struct session *session)
{
    session->ahead.n_held = session->ahead.first = 0;
    afmoe__timeline_truncate(&session->timeline, session->timeline.n_tokens); /* their pages */
}

/* As many drafts as there is room for: in the pass, the timeline and the pages. */
static void put_drafts(struct session *session, const afmoe_token *draft, uint64_t n_draft)
{
    struct timeline *timeline = &session->timeline;
    uint64_t begin = timeline->n_tokens, room = afmoe__timeline_limit(timeline, begin) - (begin + 1);
    if (n_draft > session->ahead.max_draft) n_draft = session->ahead.max_draft;
    if (n_draft > room) n_draft = room;
    if (n_draft == 0) return;
    if (afmoe__timeline_promise(timeline, begin, begin + 1 + n_draft, true, NULL) != AFMOE_OK) return;
    memcpy(timeline->tokens + begin + 1, draft, n_draft * sizeof *draft);
    session->growth.n_ahead = n_draft;
}

bool afmoe__session_has_draft(const struct session *session, afmoe_token token)
{
    const struct ahead *ahead = &session->ahead;
    return ahead->first < ahead->n_held && session->timeline.tokens[session->timeline.n_tokens] == token;
}

afmoe_status afmoe__ahead_append(struct session *session, afmoe_token token, const afmoe_token *draft,
                                 uint64_t n_draft, const afmoe_cancel *cancel, bool *out_done, afmoe_error *error)
{
    const afmoe_append_options options = {.size = sizeof options, .cancel = cancel};
    *out_done = afmoe__session_has_draft(session, token);
    if (*out_done) {
        accept(session);
        return AFMOE_OK;
    }
    afmoe__ahead_forget(session);
    afmoe_status status = afmoe__session_append_begin(session, &token, 1, &options, true, error);
    if (status == AFMOE_OK)
        put_drafts(session, draft, n_draft);
    else
        afmoe__timeline_settle(&session->timeline);
    return status;
}

afmoe_status afmoe__session_append_drafted(struct session *session, afmoe_token token, const afmoe_token *draft,
                                           uint64_t n_draft, const afmoe_cancel *cancel, afmoe_error *error)
{
    bool done;
    afmoe_status status = afmoe__ahead_append(session, token, draft, n_draft, cancel, &done, error);
    return status != AFMOE_OK || done ? status : afmoe__step_alone(session);
}

void afmoe__ahead_begin(struct session *session, uint64_t n)
{
    session->ahead.n_held = n;
    session->ahead.first = 0;
    session->stats.n_drafted += n;
}

void afmoe__ahead_gather(struct session *session, uint64_t i, const float *hidden, const float *logits)
{
    const struct model_config *config = session->timeline.context->config;
    memcpy(session->ahead.logits + i * config->vocab_size, logits, config->vocab_size * sizeof(float));
    memcpy(session->ahead.hidden + i * config->hidden_size, hidden, config->hidden_size * sizeof(float));
}
