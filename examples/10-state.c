/* Lesson 10: keep a session. A long beginning - a system message, a document - is read once and saved; another run, or
 * another process, loads it and goes on at once, to the same bits. `fork` lets two answers begin at the same place
 * without reading it twice.
 *
 *     10-state [MODEL [FILE]] */
#include <afmoe.h>
#include <stdio.h>

enum { MAX_TOKENS = 512 };

struct lesson {
    afmoe_model *model;
    afmoe_context *context;
    afmoe_session *session, *fork;
    const char *path;
    afmoe_error error;
};

/* The tokens of a talk so far: a system message that all have in common, and a question. */
static afmoe_status tokens_of(struct lesson *l, const char *question, afmoe_token *out, uint64_t *out_n)
{
    const char *const roles[] = {"system", "user"};
    const char *const contents[] = {"You are a friendly teacher who answers in one short sentence.", question};
    afmoe_chat_options options;
    afmoe_chat_options_init(&options, sizeof options);
    options.add_generation_prompt = question != NULL;
    return afmoe_chat_tokenize(l->model, roles, contents, question ? 2 : 1, &options, out, MAX_TOKENS, out_n,
                               &l->error);
}

/* Read the system message, unless an earlier run has left it. */
static afmoe_status begin(struct lesson *l)
{
    afmoe_token tokens[MAX_TOKENS];
    uint64_t n;
    afmoe_append_result result;
    afmoe_append_result_init(&result, sizeof result);
    afmoe_status status = afmoe_session_load(l->session, l->path, &l->error);
    if (status < 0 && status != AFMOE_NOT_FOUND) return status;
    printf(status < 0 ? "nothing is saved yet\n" : "loaded what was saved\n");
    status = tokens_of(l, NULL, tokens, &n);
    if (status >= 0) status = afmoe_session_sync(l->session, tokens, n, NULL, &result, &l->error);
    if (status < 0) return status;
    printf("%llu tokens: %llu were there, %llu computed\n", (unsigned long long)n, (unsigned long long)result.n_reused,
           (unsigned long long)result.n_computed);
    return result.n_computed ? afmoe_session_save(l->session, l->path, &l->error) : AFMOE_OK;
}

static int32_t print(void *user_data, const afmoe_piece *piece)
{
    (void)user_data;
    return fwrite(piece->text, 1, piece->text_bytes, stdout) != piece->text_bytes;
}

/* The session stays where it is: a fork of it answers. */
static afmoe_status ask(struct lesson *l, const char *question)
{
    afmoe_token tokens[MAX_TOKENS];
    uint64_t n;
    afmoe_append_result result;
    afmoe_generate_options options;
    afmoe_append_result_init(&result, sizeof result);
    afmoe_generate_options_init(&options, sizeof options);
    options.max_tokens = 40;
    options.on_piece = print;
    afmoe_session_free(l->fork);
    afmoe_status status = afmoe_session_fork(&l->fork, l->session, &l->error);
    if (status >= 0) status = tokens_of(l, question, tokens, &n);
    if (status >= 0) status = afmoe_session_sync(l->fork, tokens, n, NULL, &result, &l->error);
    if (status < 0) return status;
    printf("%s (%llu computed)\n  ", question, (unsigned long long)result.n_computed);
    status = afmoe_generate(l->fork, NULL, &options, NULL, &l->error);
    printf("\n");
    return status;
}

int main(int argc, char **argv)
{
    struct lesson l = {.path = argc > 2 ? argv[2] : "10-state.session"};
    afmoe_error_init(&l.error, sizeof l.error);
    int failed = afmoe_model_open(&l.model, argc > 1 ? argv[1] : "models/pico-q8_0.gguf", NULL, &l.error) < 0 ||
                 afmoe_context_create(&l.context, l.model, NULL, &l.error) < 0 ||
                 afmoe_session_create(&l.session, l.context, &l.error) < 0 || begin(&l) < 0 ||
                 ask(&l, "What is 7 plus 12?") < 0 || ask(&l, "What is the capital of France?") < 0;
    if (failed) fprintf(stderr, "%s: %s\n", afmoe_status_name(l.error.code), l.error.message);
    afmoe_session_free(l.fork);
    afmoe_session_free(l.session);
    afmoe_context_free(l.context);
    afmoe_model_free(l.model);
    return failed;
}
