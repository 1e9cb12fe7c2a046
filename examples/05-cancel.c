/* Lesson 5: stopping. A cancel object stops every call it was given to, from any thread and from a signal handler; the
 * call returns CANCELLED with all tokens so far kept, so it can go on later.
 *
 *     05-cancel [MODEL [MILLISECONDS]]     stops at Ctrl-C or after that time, default 300 */
#include <afmoe.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static afmoe_cancel *cancel; /* a handler has no arguments, so it is global */

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    afmoe_cancel_set(cancel); /* the one call that may be made here */
}

static void *wait_and_cancel(void *user_data)
{
    const struct timespec *time = user_data;
    nanosleep(time, NULL);
    afmoe_cancel_set(cancel);
    return NULL;
}

static int32_t print(void *user_data, const afmoe_piece *piece)
{
    (void)user_data;
    fwrite(piece->text, 1, piece->text_bytes, stdout);
    return fflush(stdout);
}

/* Generate until something stops. Being stopped is what is wanted here, not a failure. */
static afmoe_status generate(afmoe_session *session, uint64_t max_tokens, afmoe_error *error)
{
    afmoe_generate_options options;
    afmoe_generate_result result;
    afmoe_generate_options_init(&options, sizeof options);
    afmoe_generate_result_init(&result, sizeof result);
    options.ignore_eos = 1;
    options.max_tokens = max_tokens;
    options.on_piece = print;
    options.cancel = cancel;
    afmoe_status status = afmoe_generate(session, NULL, &options, &result, error);
    if (status < 0 && status != AFMOE_CANCELLED && status != AFMOE_CONTEXT_FULL) return status;
    printf("\n[%s, %llu tokens]\n", afmoe_status_name(status), (unsigned long long)result.n_generated);
    return AFMOE_OK;
}

/* Stopped by the other thread, then a little more from where it was. */
static afmoe_status stop_and_go_on(afmoe_session *session, long milliseconds, afmoe_error *error)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_and_cancel, &time) != 0) {
        snprintf(error->message, sizeof error->message, "the system gives no thread");
        return error->code = AFMOE_NO_MEMORY;
    }
    afmoe_status status = generate(session, UINT64_MAX, error);
    pthread_join(thread, NULL); /* now nobody sets it any more */
    if (status < 0) return status;
    afmoe_cancel_clear(cancel); /* until then every call it is given to would stop at once */
    return generate(session, 5, error);
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "models/pico-q8_0.gguf";
    long milliseconds = argc > 2 ? atol(argv[2]) : 300;
    static const char text[] = "Once upon a time";
    afmoe_model *model = NULL;
    afmoe_context *context = NULL;
    afmoe_session *session = NULL;
    afmoe_token tokens[64];
    uint64_t n;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);

    int failed = afmoe_cancel_create(&cancel, &error) < 0 || afmoe_model_open(&model, path, NULL, &error) < 0 ||
                 afmoe_context_create(&context, model, NULL, &error) < 0 ||
                 afmoe_session_create(&session, context, &error) < 0 ||
                 afmoe_tokenize(model, text, strlen(text), NULL, tokens, 64, &n, &error) < 0 ||
                 afmoe_session_append(session, tokens, n, NULL, NULL, &error) < 0;
    if (!failed) {
        signal(SIGINT, on_interrupt); /* the library installs none */
        failed = stop_and_go_on(session, milliseconds, &error) < 0;
        signal(SIGINT, SIG_DFL); /* before the object it sets goes */
    }
    if (failed) fprintf(stderr, "%s: %s\n", afmoe_status_name(error.code), error.message);
    afmoe_session_free(session);
    afmoe_context_free(context);
    afmoe_model_free(model);
    afmoe_cancel_free(cancel);
    return failed;
}
