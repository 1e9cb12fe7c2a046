/* Lesson 6: threads. A model is immutable: any number of threads use it. A context belongs to all who have sessions on
 * it; their calls take turns, chunk by chunk. A session has one caller at a time, so each thread here has its own.
 *
 *     06-threads [MODEL] */
#include <afmoe.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { N_QUESTIONS = 3, MAX_PROMPT = 256, MAX_ANSWER = 1024 };

struct question {
    afmoe_model *model;
    afmoe_context *context;
    const char *text;
    char answer[MAX_ANSWER];
    size_t n_answer;
    afmoe_error error; /* of this thread: there is no error state shared by threads */
    int failed;
};

/* Callbacks run on the thread that called generate. */
static int32_t keep(void *user_data, const afmoe_piece *piece)
{
    struct question *question = user_data;
    if (piece->text_bytes > MAX_ANSWER - question->n_answer) return 1;
    if (piece->text_bytes) memcpy(question->answer + question->n_answer, piece->text, piece->text_bytes);
    question->n_answer += piece->text_bytes;
    return 0;
}

static void *answer(void *user_data)
{
    struct question *question = user_data;
    const char *role = "user";
    afmoe_session *session = NULL;
    afmoe_token prompt[MAX_PROMPT];
    uint64_t n;
    afmoe_error *error = &question->error;
    afmoe_generate_options options;
    afmoe_generate_options_init(&options, sizeof options);
    options.max_tokens = 100;
    options.on_piece = keep;
    options.on_piece_data = question;
    question->failed =
        afmoe_session_create(&session, question->context, error) < 0 ||
        afmoe_chat_tokenize(question->model, &role, &question->text, 1, NULL, prompt, MAX_PROMPT, &n, error) < 0 ||
        afmoe_session_append(session, prompt, n, NULL, NULL, error) < 0 ||
        afmoe_generate(session, NULL, &options, NULL, error) < 0;
    afmoe_session_free(session);
    return NULL;
}

/* Ask all at once, print in order. */
static int ask(afmoe_model *model, afmoe_context *context)
{
    static const char *const texts[N_QUESTIONS] = {"What is 7 plus 12?", "What is the capital of France?",
                                                   "Tell me a story about a fox in the forest."};
    struct question questions[N_QUESTIONS];
    pthread_t threads[N_QUESTIONS];
    int n_threads = 0, failed = 0;
    for (int i = 0; i < N_QUESTIONS; i++) {
        questions[i] = (struct question){.model = model, .context = context, .text = texts[i]};
        afmoe_error_init(&questions[i].error, sizeof questions[i].error);
    }
    while (n_threads < N_QUESTIONS &&
           pthread_create(&threads[n_threads], NULL, answer, &questions[n_threads]) == 0)
        n_threads++;
    for (int i = 0; i < n_threads; i++) {
        pthread_join(threads[i], NULL);
        const struct question *q = &questions[i];
        if (q->failed) fprintf(stderr, "%s: %s\n", afmoe_status_name(q->error.code), q->error.message);
        else printf("%s\n  %.*s\n", q->text, (int)q->n_answer, q->answer);
        failed |= q->failed;
    }
    return failed || n_threads < N_QUESTIONS;
}

int main(int argc, char **argv)
{
    afmoe_model *model = NULL;
    afmoe_context *context = NULL;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    int failed = afmoe_model_open(&model, argc > 1 ? argv[1] : "models/pico-q8_0.gguf", NULL, &error) < 0 ||
                 afmoe_context_create(&context, model, NULL, &error) < 0;
    if (failed) fprintf(stderr, "%s: %s\n", afmoe_status_name(error.code), error.message);
    else failed = ask(model, context);
    afmoe_context_free(context);
    afmoe_model_free(model);
    return failed;
}
