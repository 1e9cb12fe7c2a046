/* Lesson 2: one turn of a chat. Messages become tokens, a sampler draws the answer, text comes out while it is made.
 *
 *     02-chat-turn [MODEL [QUESTION]] */
#include <afmoe.h>
#include <stdio.h>

enum { MAX_PROMPT = 2048 };

/* Pieces hold whole characters, never a part of one, and no text of special tokens. */
static int32_t print(void *user_data, const afmoe_piece *piece)
{
    (void)user_data;
    fwrite(piece->text, 1, piece->text_bytes, stdout);
    return fflush(stdout); /* not zero stops the answer: nobody can read it any more */
}

/* Content is never taken for special tokens, whatever a user types: only the template's own text is. */
static afmoe_status read_prompt(afmoe_session *session, const afmoe_model *model, const char *question,
                                afmoe_error *error)
{
    const char *const roles[] = {"system", "user"};
    const char *const contents[] = {"You are a storyteller.", question};
    afmoe_token prompt[MAX_PROMPT];
    uint64_t n;
    afmoe_status status = afmoe_chat_tokenize(model, roles, contents, 2, NULL, prompt, MAX_PROMPT, &n, error);
    return status < 0 ? status : afmoe_session_append(session, prompt, n, NULL, NULL, error);
}

/* Begin with what the checkpoint recommends, then say what you want otherwise. The same seed draws the same answer. */
static afmoe_status make_sampler(afmoe_sampler **out, afmoe_model *model, afmoe_error *error)
{
    afmoe_sampler_options options;
    afmoe_sampler_options_init(&options, sizeof options);
    afmoe_status status = afmoe_model_sampler_options(model, &options, error);
    if (status < 0) return status;
    options.temperature = 0.7f;
    options.top_p = 0.95f;
    options.seed = 42;
    return afmoe_sampler_create(out, model, &options, error);
}

/* Ends at the model's own stop tokens, after 300 tokens, or at an empty line, which is not given out. */
static afmoe_status answer(afmoe_session *session, afmoe_sampler *sampler, afmoe_generate_result *result,
                           afmoe_error *error)
{
    const char *const stops[] = {"\n\n"};
    afmoe_generate_options options;
    afmoe_generate_options_init(&options, sizeof options);
    options.max_tokens = 300;
    options.stop_strings = stops;
    options.n_stop_strings = 1;
    options.on_piece = print;
    return afmoe_generate(session, sampler, &options, result, error);
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "models/pico-q8_0.gguf";
    const char *question = argc > 2 ? argv[2] : "Tell me a story about an owl in the library.";
    afmoe_model *model = NULL;
    afmoe_context *context = NULL;
    afmoe_session *session = NULL;
    afmoe_sampler *sampler = NULL;
    afmoe_generate_result result;
    afmoe_error error;
    afmoe_generate_result_init(&result, sizeof result);
    afmoe_error_init(&error, sizeof error);

    int failed = afmoe_model_open(&model, path, NULL, &error) < 0 ||
                 afmoe_context_create(&context, model, NULL, &error) < 0 ||
                 afmoe_session_create(&session, context, &error) < 0 || make_sampler(&sampler, model, &error) < 0 ||
                 read_prompt(session, model, question, &error) < 0 || answer(session, sampler, &result, &error) < 0;
    if (failed) fprintf(stderr, "%s: %s\n", afmoe_status_name(error.code), error.message);
    else printf("\n[%s after %llu tokens]\n", result.finish_reason == AFMOE_FINISH_LENGTH ? "cut" : "ended",
                (unsigned long long)result.n_generated);

    afmoe_sampler_free(sampler); /* any order; NULL is fine */
    afmoe_session_free(session);
    afmoe_context_free(context);
    afmoe_model_free(model);
    return failed;
}
