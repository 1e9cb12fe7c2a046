/* Sessions grow together, see step.h. The list is kept in the order in which sessions come to the rows of a pass:
 *
 *   share rows -> wait for the turn -> take pages -> decoder pass -> each session: advance, progress, done?
 *
 * Nothing is allocated: what a session needs lies in it, and the batch in the context, for whoever has the turn. */
#include "step.h"

#include "cancel.h"
#include "clock.h"
#include "context_private.h"
#include "error.h"
#include "session_private.h"

static void add(struct step *step, struct session *session)
{
    session->growth.next = NULL;
    if (step->last)
        step->last->growth.next = session;
    else
        step->first = session;
    step->last = session;
}

static struct session *take_first(struct step *step)
{
    struct session *session = step->first;
    step->first = session->growth.next;
    if (!step->first) step->last = NULL;
    return session;
}

static void tell(const struct step *step, struct session *session)
{
    const struct growth *growth = &session->growth;
    if (step->on_done) step->on_done(step->user, growth->user, growth->status, &growth->result);
}

void afmoe__step_append(struct step *step, struct session *session, void *item, const afmoe_token *tokens,
                        uint64_t n_tokens, const afmoe_append_options *options, afmoe_error *error)
{
    afmoe_status status = afmoe__session_append_begin(session, tokens, n_tokens, options, false, error);
    session->growth.user = item;
    session->growth.status = status;
    if (status == AFMOE_OK && n_tokens > 0)
        add(step, session);
    else
        tell(step, session);
}

void afmoe__step_append_drafted(struct step *step, struct session *session, void *item, afmoe_token token,
                                const afmoe_token *draft, uint64_t n_draft, const afmoe_cancel *cancel,
                                afmoe_error *error)
{
    bool done;
    afmoe_status status = afmoe__ahead_append(session, token, draft, n_draft, cancel, &done, error);
    session->growth.user = item;
    session->growth.status = status;
    if (status == AFMOE_OK && !done)
        add(step, session);
    else
        tell(step, session);
}

/* ---- Rows ---- */

static uint64_t count_hungry(const struct step *step)
{
    uint64_t n = 0;
    for (const struct session *session = step->first; session; session = session->growth.next)
        n += session->growth.n_rows < afmoe__growth_rows_left(session);
    return n;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Equal shares to all who still want some, until nothing is left to share. */
static void share_rows(struct step *step, uint64_t n_rows)
{
    for (struct session *session = step->first; session; session = session->growth.next) session->growth.n_rows = 0;
    for (uint64_t hungry = count_hungry(step); hungry && n_rows; hungry = count_hungry(step)) {
        uint64_t share = n_rows > hungry ? n_rows / hungry : 1;
        for (struct session *session = step->first; session; session = session->growth.next) {
            uint64_t more = least(least(share, n_rows), afmoe__growth_rows_left(session) - session->growth.n_rows);
            session->growth.n_rows += more;
            n_rows -= more;
        }
    }
    for (struct session *session = step->first; session; session = session->growth.next)
        if (session->growth.n_ahead && session->growth.n_rows) session->growth.n_ahead = session->growth.n_rows - 1;
}

/* ---- One pass ---- */

static void on_row(void *user, uint64_t item, uint64_t row, const float *hidden, const float *logits)
{
    const struct context *context = user;
    afmoe__growth_gather_row(context->pass.sessions[item], row, hidden, logits);
}

static bool is_traced(const struct session *session)
{
    return session->growth.options.out_expert_ids || session->growth.options.out_expert_weights;
}

static void on_router(void *user, uint32_t layer, const float *logits, const uint32_t *ids, const float *weights,
                      uint64_t n_rows)
{
    const struct context *context = user;
    uint64_t k = context->config->n_experts_per_token, row = 0;
    (void)logits;
    for (uint64_t item = 0; row < n_rows; item++) {
        struct session *session = context->pass.sessions[item];
        if (is_traced(session)) afmoe__growth_gather_experts(session, layer, ids + row * k, weights + row * k);
        row += session->growth.n_rows;
    }
}

/* Pages for the session's rows, and its item of the batch. */
static void put_item(struct context *context, struct session *session, struct batch *batch)
{
    struct growth *growth = &session->growth;
    struct timeline *timeline = &session->timeline;
    growth->status = afmoe__timeline_take(timeline, timeline->n_tokens + growth->n_rows, NULL);
    if (growth->status != AFMOE_OK) return;
    context->pass.sessions[batch->n_items] = session;
    batch->items[batch->n_items++] =
        (struct batch_item){.cells = &timeline->cells, .tokens = timeline->tokens + timeline->n_tokens,
                            .n_tokens = growth->n_rows, .n_past = timeline->n_tokens,
                            .n_dropped = timeline->hole.n_tokens, .wanted = session->wanted,
                            .n_wanted = afmoe__growth_list_wanted(session), .hidden_only = growth->pooling != NULL};
}

static afmoe_status make_pass(struct step *step, const afmoe_cancel *cancel, afmoe_error *error)
{
    struct context *context = step->context;
    struct batch batch = {.items = context->pass.items};
    struct decoder_trace trace = {.user = context};
    afmoe_status status = afmoe__context_check_process(context, error); /* a callback may have forked */
    if (status == AFMOE_OK) status = afmoe__turns_begin(&context->turns, cancel, error);
    if (status != AFMOE_OK) return status;
    for (struct session *session = step->first; session; session = session->growth.next) {
        if (session->growth.n_rows == 0) continue;
        put_item(context, session, &batch);
        if (is_traced(session)) trace.router = on_router;
    }
    if (batch.n_items)
        status = afmoe__decoder_pass(context->decoder, &batch, on_row, context, &trace, cancel, error);
    afmoe__turns_end(&context->turns);
    return status;
}

/* ---- What became of it ---- */

static afmoe_status kept(const struct session *session, const char *why)
{
    return afmoe__fail(session->growth.error, AFMOE_CANCELLED, "%s, %llu tokens are kept", why,
                       (unsigned long long)session->timeline.n_tokens);
}

static bool is_done(const struct session *session)
{
    return session->growth.status != AFMOE_OK || afmoe__growth_rows_left(session) == 0;
}

static void advance(struct session *session, uint64_t elapsed_ns)
{
    struct growth *growth = &session->growth;
    const afmoe_append_options *options = &growth->options;
    afmoe__growth_advance(session, elapsed_ns);
    if (options->progress && options->progress(options->progress_data, session->timeline.n_tokens - growth->begin,
                                               growth->end - growth->begin) != 0)
        growth->status = kept(session, "stopped by the progress callback");
}

static bool wants_stop(const struct cancel_link *link)
{
    return link->seen || cancel_requested(link->cancel);
}

/* A flag of one is for that one; a flag of none is the host's parallel-for, which stops all. */
static bool somebody_wants_stop(const struct step *step)
{
    for (const struct session *session = step->first; session; session = session->growth.next)
        if (wants_stop(&session->growth.cancel)) return true;
    return false;
}

struct outcome {
    afmoe_status status; /* of the pass */
    const char *message;
    uint64_t row_ns;
    bool stops_all, somebody;
};

static void judge(struct session *session, const struct outcome *outcome)
{
    struct growth *growth = &session->growth;
    bool whole = outcome->status == AFMOE_OK && growth->n_rows > 0;
    if (growth->status != AFMOE_OK) {
        afmoe__fail_memory(growth->error, afmoe__pages_page_bytes(session->timeline.context->pages),
                           "a key/value page");
        return;
    }
    if (outcome->status != AFMOE_OK && growth->is_complete) {
        growth->n_rows -= growth->n_ahead; /* broken off behind its last row; the drafts are lost */
        growth->n_ahead = 0;
        whole = true;
    }
    if (!whole) growth->next_position = growth->pass_position;
    if (whole)
        advance(session, outcome->row_ns * growth->n_rows);
    else if (outcome->status == AFMOE_CANCELLED && (outcome->stops_all || wants_stop(&growth->cancel)))
        growth->status = kept(session, "cancelled");
    else if (outcome->status == AFMOE_CANCELLED && !outcome->somebody)
        growth->status = kept(session, "stopped by parallel");
    else if (outcome->status != AFMOE_OK && outcome->status != AFMOE_CANCELLED)
        growth->status = afmoe__fail(growth->error, outcome->status, "%s", outcome->message);
}

/* Sessions that are done leave; those left out of this pass come first in the next. */
static void settle(struct step *step, const struct outcome *outcome)
{
    struct step waited = *step, served = *step;
    waited.first = waited.last = served.first = served.last = NULL;
    while (step->first) {
        struct session *session = take_first(step);
        bool had_rows = session->growth.n_rows > 0;
        judge(session, outcome);
        if (!is_done(session)) {
            add(had_rows ? &served : &waited, session);
            continue;
        }
        afmoe__growth_end(session, session->growth.status);
        tell(step, session);
    }
    step->first = waited.first ? waited.first : served.first;
    step->last = served.last ? served.last : waited.last;
    if (waited.first && served.first) waited.last->growth.next = served.first;
}

/* Before a pass. The flags of all sessions and of the step as one. */
static const afmoe_cancel *prepare(struct step *step, afmoe_cancel *all, struct cancel_link *own)
{
    *own = (struct cancel_link){.cancel = step->cancel};
    all->links = step->cancel ? own : NULL;
    for (struct session *session = step->first; session; session = session->growth.next) {
        struct cancel_link *link = &session->growth.cancel;
        session->growth.pass_position = session->growth.next_position;
        link->seen = 0;
        link->next = all->links;
        if (link->cancel) all->links = link;
        session->growth.is_complete = false;
    }
    return all->links ? all : NULL;
}

void afmoe__step_pass(struct step *step, uint64_t max_rows)
{
    afmoe_error error = {.size = sizeof error};
    afmoe_cancel all = {.links = NULL};
    struct cancel_link own;
    uint64_t start = clock_now_ns(), n_rows = 0;
    share_rows(step, least(max_rows, step->context->plan.chunk_tokens));
    const afmoe_cancel *cancel = prepare(step, &all, &own);
    struct outcome outcome = {.status = make_pass(step, cancel, &error), .message = error.message};
    for (struct session *session = step->first; session; session = session->growth.next)
        n_rows += session->growth.n_rows;
    outcome.row_ns = (clock_now_ns() - start) / (n_rows ? n_rows : 1);
    outcome.stops_all = wants_stop(&own);
    outcome.somebody = somebody_wants_stop(step);
    settle(step, &outcome);
}

void afmoe__step_run(struct step *step)
{
    while (step->first) afmoe__step_pass(step, step->context->plan.chunk_tokens);
}

void afmoe__step_cancel(struct step *step)
{
    const struct outcome outcome = {.status = AFMOE_CANCELLED, .stops_all = true};
    for (struct session *session = step->first; session; session = session->growth.next)
        session->growth.is_complete = false;
    settle(step, &outcome);
}

afmoe_status afmoe__step_alone(struct session *session)
{
    struct step step = {.context = session->timeline.context};
    add(&step, session);
    afmoe__step_run(&step);
    return session->growth.status;
}
