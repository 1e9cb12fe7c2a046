/* bench_idle MODEL [SECONDS]: what a context with worker threads costs while nobody computes: CPU time and wake-ups of
 * the whole process over some seconds (10) of sleep, after a prompt has been read. */
#include "afmoe.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { N_THREADS = 4, N_TOKENS = 64 };

static double cpu_seconds(const struct rusage *usage)
{
    return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
           1e-6 * (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
}

static void check(afmoe_status status, const afmoe_error *error)
{
    if (status >= 0) return;
    fprintf(stderr, "bench_idle: %s\n", error->message);
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc < 2) return fprintf(stderr, "usage: bench_idle MODEL [SECONDS]\n"), 2;
    unsigned seconds = argc > 2 ? (unsigned)atoi(argv[2]) : 10;
    afmoe_error error;
    afmoe_model *model;
    afmoe_context *context;
    afmoe_session *session;
    afmoe_context_options options;
    afmoe_token tokens[N_TOKENS];
    struct rusage before, after;
    afmoe_error_init(&error, sizeof error);
    afmoe_context_options_init(&options, sizeof options);
    options.n_threads = N_THREADS;
    check(afmoe_model_open(&model, argv[1], NULL, &error), &error);
    check(afmoe_context_create(&context, model, &options, &error), &error);
    check(afmoe_session_create(&session, context, &error), &error);
    for (int i = 0; i < N_TOKENS; i++) tokens[i] = 16 + i;
    check(afmoe_session_append(session, tokens, N_TOKENS, NULL, NULL, &error), &error);
    usleep(20000); /* workers spin for some microseconds first */

    getrusage(RUSAGE_SELF, &before);
    sleep(seconds);
    getrusage(RUSAGE_SELF, &after);
    printf("%u s idle, %d threads: %.6f s of CPU, %ld wake-ups (one is the end of the sleep)\n", seconds, N_THREADS,
           cpu_seconds(&after) - cpu_seconds(&before), after.ru_nvcsw - before.ru_nvcsw);
    afmoe_session_free(session);
    afmoe_context_free(context);
    afmoe_model_free(model);
    return 0;
}
