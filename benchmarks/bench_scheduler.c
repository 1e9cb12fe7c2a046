/* What the scheduler costs beside the batch step under it: tokens a second of N sessions that decode together, by steps
 * of the context and by requests of a scheduler, by turns. Both take the most likely token each time. The prompts are
 * read before the clock starts: a request's first piece marks that.
 *
 * Usage: bench_scheduler MODEL [SESSIONS [TOKENS [REPETITIONS]]], defaults 8, 32 and 5 */
#include <afmoe.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_SESSIONS = 64, MAX_RUNS = 99, PROMPT = 64 };

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
    if (status >= 0) return;
    fprintf(stderr, "%s: %s\n", afmoe_status_name(status), b->error.message);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
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
    double began = now();
    for (uint64_t n = 0; n < b->n_tokens; n++) {
        for (uint64_t i = 0; i < b->n_sessions; i++) tokens[i] = best_of(b, i);
        check(b, afmoe_context_step(b->context, items, b->n_sessions, NULL, &b->error));
    }
    double rate = (double)(b->n_sessions * b->n_tokens) / (now() - began);
    close_sessions(b);
    return rate;
}

static int32_t on_piece(void *user_data, const afmoe_piece *piece)
{
    struct bench *b = user_data;
    (void)piece;
    if (++b->n_pieces == b->n_sessions) b->began = now(); /* all have their first token, or nearly so */
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
    double rate = (double)(b->n_pieces - b->n_sessions) / (now() - b->began);
    afmoe_scheduler_free(scheduler);
    close_sessions(b);
    return rate;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static struct bench b;
    double steps[MAX_RUNS], requests[MAX_RUNS], ratio[MAX_RUNS];
    uint64_t n_runs = argc > 4 ? strtoull(argv[4], NULL, 10) : 5, random = 1;
    afmoe_model_info info;
    afmoe_model_info_init(&info, sizeof info);
    afmoe_error_init(&b.error, sizeof b.error);
    b.n_sessions = argc > 2 ? strtoull(argv[2], NULL, 10) : 8;
    b.n_tokens = argc > 3 ? strtoull(argv[3], NULL, 10) : 32;
    if (argc < 2 || n_runs < 1 || n_runs > MAX_RUNS || b.n_sessions < 1 || b.n_sessions > MAX_SESSIONS) {
        fprintf(stderr, "usage: bench_scheduler MODEL [SESSIONS [TOKENS [REPETITIONS]]]\n");
        return 2;
    }
    check(&b, afmoe_model_open(&b.model, argv[1], NULL, &b.error));
    check(&b, afmoe_model_get_info(b.model, &info, &b.error));
    check(&b, afmoe_context_create(&b.context, b.model, NULL, &b.error));
    for (uint64_t i = 0; i < b.n_sessions * PROMPT; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        b.prompts[i / PROMPT][i % PROMPT] =
            (afmoe_token)((random >> 33) % (info.n_tokens ? info.n_tokens : info.vocab_size));
    }
    by_steps(&b);
    for (uint64_t i = 0; i < n_runs; i++) {
        steps[i] = by_steps(&b);
        requests[i] = by_requests(&b);
        ratio[i] = requests[i] / steps[i];
    }
    qsort(steps, n_runs, sizeof *steps, by_value);
    qsort(requests, n_runs, sizeof *requests, by_value);
    qsort(ratio, n_runs, sizeof *ratio, by_value);
    printf("%d sessions: steps %.1f, scheduler %.1f tokens/s, ratio %.2f (%.2f..%.2f)\n", (int)b.n_sessions,
           steps[n_runs / 2], requests[n_runs / 2], ratio[n_runs / 2], ratio[0], ratio[n_runs - 1]);
    afmoe_context_free(b.context);
    afmoe_model_free(b.model);
    return 0;
}
