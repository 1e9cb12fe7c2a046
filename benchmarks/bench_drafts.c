/* What guessing ahead brings: tokens a second with max_draft 0 and N, either first by turns, on text that repeats and
 * on text that does not. Argument: the model; then N (default 16), tokens of an answer (256), repetitions (5).
 *
 * Fresh text is drawn at temperature 1 from behind random tokens. Repeated text is an answer that is already known:
 * the prompt holds it three times, and most models go on with it; how far this one did shows in the guesses that were
 * right, printed beside. */
#include "measuring.h"

#include <string.h>

enum { PROMPT = 512 };

struct bench {
    afmoe_model *model;
    afmoe_context *context;
    afmoe_token prompt[PROMPT];
    uint64_t n_prompt, n_tokens;
    float temperature;
    afmoe_error error;
};

static void check(const struct bench *b, afmoe_status status)
{
    bench_check(status, &b->error);
}

/* Tokens a second of one answer. */
static double run(struct bench *b, uint64_t max_draft, afmoe_generate_result *result)
{
    afmoe_sampler_options sampling;
    afmoe_generate_options options;
    afmoe_session *session;
    afmoe_sampler *sampler;
    afmoe_sampler_options_init(&sampling, sizeof sampling);
    afmoe_generate_options_init(&options, sizeof options);
    afmoe_generate_result_init(result, sizeof *result);
    sampling.temperature = b->temperature;
    options.max_tokens = b->n_tokens;
    options.max_draft = max_draft;
    options.ignore_eos = 1;
    check(b, afmoe_session_create(&session, b->context, &b->error));
    check(b, afmoe_sampler_create(&sampler, b->model, &sampling, &b->error));
    check(b, afmoe_session_append(session, b->prompt, b->n_prompt, NULL, NULL, &b->error));
    check(b, afmoe_generate(session, sampler, &options, result, &b->error));
    afmoe_sampler_free(sampler);
    afmoe_session_free(session);
    return (double)result->n_generated * 1e9 / (double)result->elapsed_ns;
}

static void measure(struct bench *b, const char *name, uint64_t max_draft, uint64_t n_runs)
{
    struct bench_pairs pairs = {.n = 0};
    afmoe_generate_result result, ignored;
    run(b, 0, &ignored);
    for (uint64_t i = 0; i < n_runs; i++) {
        double drafts = i % 2 ? run(b, max_draft, &result) : 0, plain = run(b, 0, &ignored);
        if (i % 2 == 0) drafts = run(b, max_draft, &result);
        bench_pairs_add(&pairs, plain, drafts);
    }
    printf("%s: ", name);
    bench_pairs_print(&pairs, "plain", "drafts");
    printf("; %d tried, %d right\n", (int)result.n_drafted, (int)result.n_draft_accepted);
}

/* A greedy answer, twice, as the prompt. */
static void repeat_answer(struct bench *b)
{
    enum { PART = 128 };
    afmoe_generate_options options;
    afmoe_session *session;
    uint64_t n;
    afmoe_token tokens[PROMPT];
    afmoe_generate_options_init(&options, sizeof options);
    options.max_tokens = PART;
    options.ignore_eos = 1;
    check(b, afmoe_session_create(&session, b->context, &b->error));
    check(b, afmoe_session_append(session, b->prompt, 8, NULL, NULL, &b->error));
    check(b, afmoe_generate(session, NULL, &options, NULL, &b->error));
    check(b, afmoe_session_tokens(session, tokens, PROMPT, &n, &b->error));
    for (int i = 0; i < 3; i++) memcpy(b->prompt + i * PART, tokens + n - PART, PART * sizeof *tokens);
    b->n_prompt = 3 * PART;
    afmoe_session_free(session);
}

int main(int argc, char **argv)
{
    static struct bench b;
    uint64_t max_draft = argc > 2 ? strtoull(argv[2], NULL, 10) : 16;
    uint64_t n_runs = argc > 4 ? strtoull(argv[4], NULL, 10) : 5;
    afmoe_model_info info;
    afmoe_model_info_init(&info, sizeof info);
    afmoe_error_init(&b.error, sizeof b.error);
    b.n_tokens = argc > 3 ? strtoull(argv[3], NULL, 10) : 256;
    if (argc < 2 || n_runs < 1 || n_runs > BENCH_MAX_PAIRS) {
        fprintf(stderr, "usage: bench_drafts MODEL [MAX_DRAFT [TOKENS [REPETITIONS]]]\n");
        return 2;
    }
    check(&b, afmoe_model_open(&b.model, argv[1], NULL, &b.error));
    check(&b, afmoe_model_get_info(b.model, &info, &b.error));
    check(&b, afmoe_context_create(&b.context, b.model, NULL, &b.error));
    bench_random_tokens(b.prompt, PROMPT, &info);
    b.n_prompt = 128;
    b.temperature = 1;
    measure(&b, "fresh", max_draft, n_runs);
    b.temperature = 0;
    repeat_answer(&b);
    measure(&b, "repeated", max_draft, n_runs);
    afmoe_context_free(b.context);
    afmoe_model_free(b.model);
    return 0;
}
