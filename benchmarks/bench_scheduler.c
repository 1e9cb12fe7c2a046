/* What the scheduler costs beside the batch step under it: tokens a second of N sessions that decode together, by steps
 * of the context and by requests of a scheduler, by turns. Both take the most likely token each time. The prompts are
 * read before the clock starts: a request's first piece marks that.
 *
 * Usage: bench_scheduler MODEL [SESSIONS [TOKENS [REPETITIONS]]], defaults 8, 32 and 5 */
#include "measuring.h"

enum { MAX_SESSIONS = 64, PROMPT = 64 };

struct bench {
    afmoe_model *model;
    afmoe_context *context;
    uint64_t n_sessions, n_tokens;
    afmoe_session *sessions[MAX_SESSIONS];
    afmoe_token prompts[MAX_SESSIONS][PROMPT];
    uint64_t n_pieces; /* of all requests */
    double began;
    afmoe_error error;
};

static void check(const struct bench *b, afmoe_status status)
{
    bench_check(status, &b->error);
}

static void open_sessions(struct bench *b)
{
    for (uint64_t i = 0; i < b->n_sessions; i++) check(b, afmoe_session_create(&b->sessions[i], b->context, &b->error));
}

static void close_sessions(struct bench *b)
{
    for (uint64_t i = 0; i < b->n_sessions; i++) afmoe_session_free(b->sessions[i]);
}

static afmoe_token best_of(struct bench *b, uint64_t i)
{
    afmoe_token token;
    float logprob;
    uint64_t n;
    check(b, afmoe_session_top_logprobs(b->sessions[i], &token, &logprob, 1, &n, &b->error));
    return token;
}

/* Tokens a second by the batch step. */
static double by_steps(struct bench *b)
{
    afmoe_step_item items[MAX_SESSIONS];
    afmoe_token tokens[MAX_SESSIONS];
    open_sessions(b);
    for (uint64_t i = 0; i < b->n_sessions; i++) {
        check(b, afmoe_session_append(b->sessions[i], b->prompts[i], PROMPT, NULL, NULL, &b->error));
        afmoe_step_item_init(&items[i], sizeof items[i]);
        items[i].session = b->sessions[i];
        items[i].tokens = &tokens[i];
        items[i].n_tokens = 1;
    }
    double began = bench_now();
    for (uint64_t n = 0; n < b->n_tokens; n++) {
        for (uint64_t i = 0; i < b->n_sessions; i++) tokens[i] = best_of(b, i);
        check(b, afmoe_context_step(b->context, items, b->n_sessions, NULL, &b->error));
    }
    double rate = (double)(b->n_sessions * b->n_tokens) / (bench_now() - began);
    close_sessions(b);
    return rate;
}

static int32_t on_piece(void *user_data, const afmoe_piece *piece)
{
    struct bench *b = user_data;
    (void)piece;
    if (++b->n_pieces == b->n_sessions) b->began = bench_now(); /* all have their first token, or nearly so */
    return 0;
}

static double by_requests(struct bench *b)
{
    afmoe_scheduler *scheduler;
    afmoe_scheduler_options options;
    afmoe_generate_options generate;
    open_sessions(b);
    b->n_pieces = 0;
    afmoe_scheduler_options_init(&options, sizeof options);
    options.max_running = (uint32_t)b->n_sessions;
    check(b, afmoe_scheduler_create(&scheduler, b->context, &options, &b->error));
    afmoe_generate_options_init(&generate, sizeof generate);
    generate.max_tokens = b->n_tokens + 1;
    generate.ignore_eos = 1;
    generate.on_piece = on_piece;
    generate.on_piece_data = b;
    for (uint64_t i = 0; i < b->n_sessions; i++) {
        afmoe_request request;
        afmoe_request_init(&request, sizeof request);
        request.session = b->sessions[i];
        request.tokens = b->prompts[i];
        request.n_tokens = PROMPT;
        request.options = &generate;
        check(b, afmoe_scheduler_submit(scheduler, &request, &b->error));
    }
    check(b, afmoe_scheduler_run(scheduler, &b->error));
    double rate = (double)(b->n_pieces - b->n_sessions) / (bench_now() - b->began);
    afmoe_scheduler_free(scheduler);
    close_sessions(b);
    return rate;
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct bench_pairs pairs = {.n = 0};
    uint64_t n_runs = argc > 4 ? strtoull(argv[4], NULL, 10) : 5;
    afmoe_model_info info;
    afmoe_model_info_init(&info, sizeof info);
    afmoe_error_init(&b.error, sizeof b.error);
    b.n_sessions = argc > 2 ? strtoull(argv[2], NULL, 10) : 8;
    b.n_tokens = argc > 3 ? strtoull(argv[3], NULL, 10) : 32;
    if (argc < 2 || n_runs < 1 || n_runs > BENCH_MAX_PAIRS || b.n_sessions < 1 || b.n_sessions > MAX_SESSIONS) {
        fprintf(stderr, "usage: bench_scheduler MODEL [SESSIONS [TOKENS [REPETITIONS]]]\n");
        return 2;
    }
    check(&b, afmoe_model_open(&b.model, argv[1], NULL, &b.error));
    check(&b, afmoe_model_get_info(b.model, &info, &b.error));
    check(&b, afmoe_context_create(&b.context, b.model, NULL, &b.error));
    bench_random_tokens(&b.prompts[0][0], b.n_sessions * PROMPT, &info);
    by_steps(&b);
    for (uint64_t i = 0; i < n_runs; i++) {
        double steps = by_steps(&b);
        bench_pairs_add(&pairs, steps, by_requests(&b));
    }
    printf("%d sessions: ", (int)b.n_sessions);
    bench_pairs_print(&pairs, "steps", "scheduler");
    printf("\n");
    afmoe_context_free(b.context);
    afmoe_model_free(b.model);
    return 0;
}
