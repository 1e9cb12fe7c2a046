/* How fast a model reads a prompt and goes on: tokens per second at several prompt lengths, by the library's own clock
 * (session statistics). Prints one JSON object a line; each rate is [slowest, median, fastest] of N_RUNS runs, each in
 * a fresh session, so that a disturbed measurement can be seen.
 *
 * Usage: bench_generate MODEL [THREADS] */
#include "measuring.h"

enum { N_RUNS = 5, N_DECODE = 64, MAX_PROMPT = 1024 };

static double per_second(uint64_t n, uint64_t ns)
{
    return ns > 0 ? 1e9 * (double)n / (double)ns : 0;
}

/* One session: n_prompt tokens in, N_DECODE tokens out. */
static int run_once(afmoe_context *context, const afmoe_token *prompt, uint64_t n_prompt, double *prompt_rate,
                    double *decode_rate, afmoe_error *error)
{
    afmoe_session *session = NULL;
    afmoe_generate_options options;
    afmoe_session_stats stats;
    int failed;

    afmoe_generate_options_init(&options, sizeof options);
    options.max_tokens = N_DECODE;
    options.ignore_eos = 1;
    afmoe_session_stats_init(&stats, sizeof stats);
    failed = afmoe_session_create(&session, context, error) < 0 ||
             afmoe_session_append(session, prompt, n_prompt, NULL, NULL, error) < 0 ||
             afmoe_generate(session, NULL, &options, NULL, error) < 0 ||
             afmoe_session_get_stats(session, &stats, error) < 0;
    if (!failed) {
        *prompt_rate = per_second(stats.n_prompt_computed, stats.prompt_ns);
        *decode_rate = per_second(stats.n_decode_computed, stats.decode_ns);
    }
    afmoe_session_free(session);
    return failed;
}

static int measure(afmoe_context *context, const afmoe_token *prompt, uint64_t n_prompt, afmoe_error *error)
{
    double prompt_rates[N_RUNS], decode_rates[N_RUNS];
    afmoe_context_info info;

    afmoe_context_info_init(&info, sizeof info);
    if (afmoe_context_get_info(context, &info, error) < 0)
        return 1;
    for (int i = 0; i < N_RUNS; i++)
        if (run_once(context, prompt, n_prompt, &prompt_rates[i], &decode_rates[i], error))
            return 1;
    qsort(prompt_rates, N_RUNS, sizeof prompt_rates[0], bench_by_value);
    qsort(decode_rates, N_RUNS, sizeof decode_rates[0], bench_by_value);
    printf("{\"prompt_tokens\": %llu, \"decode_tokens\": %d, \"threads\": %d, \"cpu_level\": \"%s\", "
           "\"prompt_per_s\": [%.1f, %.1f, %.1f], \"decode_per_s\": [%.1f, %.1f, %.1f]}\n",
           (unsigned long long)n_prompt, N_DECODE, info.n_threads, afmoe_cpu_level_name(info.cpu_level),
           prompt_rates[0], prompt_rates[N_RUNS / 2], prompt_rates[N_RUNS - 1], decode_rates[0],
           decode_rates[N_RUNS / 2], decode_rates[N_RUNS - 1]);
    return 0;
}

int main(int argc, char **argv)
{
    static const uint64_t lengths[] = {32, 256, MAX_PROMPT};
    afmoe_model *model = NULL;
    afmoe_context *context = NULL;
    afmoe_context_options options;
    afmoe_model_info info;
    afmoe_token prompt[MAX_PROMPT];
    afmoe_error error;
    int failed;

    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: bench_generate MODEL [THREADS]\n");
        return 2;
    }
    afmoe_error_init(&error, sizeof error);
    afmoe_model_info_init(&info, sizeof info);
    afmoe_context_options_init(&options, sizeof options);
    if (argc == 3)
        options.n_threads = (int32_t)strtol(argv[2], NULL, 10);
    failed = afmoe_model_open(&model, argv[1], NULL, &error) < 0 || afmoe_model_get_info(model, &info, &error) < 0 ||
             afmoe_context_create(&context, model, &options, &error) < 0;

    /* Which tokens makes no difference to the work, but for the experts: spread over the vocabulary. */
    for (uint64_t i = 0; !failed && i < MAX_PROMPT; i++)
        prompt[i] = (afmoe_token)(i * 7919 % info.vocab_size);
    for (size_t i = 0; !failed && i < sizeof lengths / sizeof lengths[0]; i++)
        failed = measure(context, prompt, lengths[i], &error);
    if (failed)
        fprintf(stderr, "bench_generate: %s: %s\n", afmoe_status_name(error.code), error.message);
    afmoe_context_free(context);
    afmoe_model_free(model);
    return failed;
}
