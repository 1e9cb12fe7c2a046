/* Lesson 9: several answers at once. A scheduler makes them side by side, each step of it reads the weights once for
 * all. (The calls below it: afmoe_context_step appends to several sessions together, for those with loops of their own.)
 *
 *     09-batch [MODEL] */
#include <afmoe.h>
#include <stdio.h>
#include <string.h>

enum { N_ANSWERS = 3, MAX_TOKENS = 128, MAX_TEXT = 4096 };

static const char *const questions[N_ANSWERS] = {"What is the capital of France?", "What is 7 plus 12?",
                                                 "What is the capital of Italy?"};

struct answer {
    afmoe_session *session;
    afmoe_token tokens[MAX_TOKENS]; /* stay as they are until the request is done */
    char text[MAX_TEXT];
    size_t n;
    afmoe_status status;
};

static int32_t collect(void *user_data, const afmoe_piece *piece)
{
    struct answer *answer = user_data;
    if (piece->text_bytes > MAX_TEXT - answer->n) return 1; /* stops this answer, the others go on */
    memcpy(answer->text + answer->n, piece->text, piece->text_bytes);
    answer->n += piece->text_bytes;
    return 0;
}

static void finish(void *user_data, afmoe_status status, const afmoe_generate_result *result, const afmoe_error *error)
{
    struct answer *answer = user_data;
    answer->status = status;
    if (status < 0) fprintf(stderr, "after %d tokens: %s\n", (int)result->n_generated, error->message);
}

static afmoe_status ask(afmoe_model *model, afmoe_scheduler *scheduler, struct answer *answer, const char *question,
                        afmoe_error *error)
{
    const char *role = "user";
    afmoe_generate_options options;
    afmoe_request request;
    afmoe_generate_options_init(&options, sizeof options);
    afmoe_request_init(&request, sizeof request);
    options.on_piece = collect;
    options.on_piece_data = answer;
    request.session = answer->session;
    request.tokens = answer->tokens;
    request.options = &options; /* copied */
    request.on_done = finish;
    request.on_done_data = answer;
    afmoe_status status = afmoe_chat_tokenize(model, &role, &question, 1, NULL, answer->tokens, MAX_TOKENS,
                                              &request.n_tokens, error);
    return status < 0 ? status : afmoe_scheduler_submit(scheduler, &request, error);
}

int main(int argc, char **argv)
{
    static struct answer answers[N_ANSWERS];
    afmoe_model *model = NULL;
    afmoe_context *context = NULL;
    afmoe_scheduler *scheduler = NULL;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);

    int failed = afmoe_model_open(&model, argc > 1 ? argv[1] : "models/pico-q8_0.gguf", NULL, &error) < 0 ||
                 afmoe_context_create(&context, model, NULL, &error) < 0 ||
                 afmoe_scheduler_create(&scheduler, context, NULL, &error) < 0;
    for (int i = 0; i < N_ANSWERS && !failed; i++)
        failed = afmoe_session_create(&answers[i].session, context, &error) < 0 ||
                 ask(model, scheduler, &answers[i], questions[i], &error) < 0;
    if (!failed) failed = afmoe_scheduler_run(scheduler, &error) < 0; /* all callbacks run in here */
    if (failed) fprintf(stderr, "%s: %s\n", afmoe_status_name(error.code), error.message);
    for (int i = 0; i < N_ANSWERS && !failed; i++) {
        printf("%s %.*s\n", questions[i], (int)answers[i].n, answers[i].text);
        failed = answers[i].status < 0;
    }
    afmoe_scheduler_free(scheduler);
    for (int i = 0; i < N_ANSWERS; i++) afmoe_session_free(answers[i].session);
    afmoe_context_free(context);
    afmoe_model_free(model);
    return failed;
}
