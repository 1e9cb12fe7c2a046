#include <afmoe.h>
#include <stdio.h>

static int32_t print(void *file, const afmoe_piece *piece)
{
    return fwrite(piece->text, 1, piece->text_bytes, file) != piece->text_bytes; // not zero: stop
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "models/pico-q8_0.gguf";
    const char *role = "user", *question = argc > 2 ? argv[2] : "What is the capital of France?";
    afmoe_model *model = NULL;
    afmoe_context *context = NULL;
    afmoe_session *session = NULL;
    afmoe_token prompt[512];
    uint64_t n_prompt;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_generate_options options;
    afmoe_generate_options_init(&options, sizeof options);
    options.max_tokens = 200;
    options.on_piece = print;
    options.on_piece_data = stdout;

    int failed = afmoe_model_open(&model, path, NULL, &error) < 0 ||
                 afmoe_context_create(&context, model, NULL, &error) < 0 ||
                 afmoe_session_create(&session, context, &error) < 0 ||
                 afmoe_chat_tokenize(model, &role, &question, 1, NULL, prompt, 512, &n_prompt, &error) < 0 ||
                 afmoe_session_append(session, prompt, n_prompt, NULL, NULL, &error) < 0 ||
                 afmoe_generate(session, NULL, &options, NULL, &error) < 0;
    if (failed) fprintf(stderr, "%s: %s\n", afmoe_status_name(error.code), error.message);
    else failed = printf("\n") < 0 || fflush(stdout) != 0;
    afmoe_session_free(session);
    afmoe_context_free(context);
    afmoe_model_free(model);
    return failed;
}
