/* Lesson 4: a session remembers. `sync` makes the timeline equal to a list of tokens and computes only what differs
 * from what is there; `rewind` goes back to a position. So a conversation, a second try or a common beginning costs its
 * new tokens only, and the results are the same bits as if all were computed anew.
 *
 *     04-sessions [MODEL] */
#include <afmoe.h>
#include <stdio.h>

enum { MAX_TOKENS = 512 };

struct lesson {
    afmoe_model *model;
    afmoe_context *context;
    afmoe_session *session;
    afmoe_error error;
};

/* Read a question with the same system message each time. */
static afmoe_status ask(struct lesson *l, const char *question)
{
    const char *const roles[] = {"system", "user"};
    const char *const contents[] = {"You are a friendly teacher who answers in one short sentence.", question};
    afmoe_token tokens[MAX_TOKENS];
    uint64_t n;
    afmoe_append_result result;
    afmoe_append_result_init(&result, sizeof result);
    afmoe_status status = afmoe_chat_tokenize(l->model, roles, contents, 2, NULL, tokens, MAX_TOKENS, &n, &l->error);
    if (status >= 0) status = afmoe_session_sync(l->session, tokens, n, NULL, &result, &l->error);
    if (status >= 0)
        printf("%s\n  %llu tokens: %llu were there, %llu computed\n", question, (unsigned long long)n,
               (unsigned long long)result.n_reused, (unsigned long long)result.n_computed);
    return status;
}

static int32_t print(void *user_data, const afmoe_piece *piece)
{
    (void)user_data;
    return fwrite(piece->text, 1, piece->text_bytes, stdout) != piece->text_bytes;
}

/* The three most likely first tokens, each continued on its own: generate, then rewind to where the answer began. */
static afmoe_status try_beginnings(struct lesson *l)
{
    afmoe_token best[3];
    float logprobs[3];
    uint64_t n_best, begin;
    afmoe_session_stats stats;
    afmoe_generate_options options;
    afmoe_session_stats_init(&stats, sizeof stats);
    afmoe_generate_options_init(&options, sizeof options);
    options.max_tokens = 20;
    options.on_piece = print;
    afmoe_status status = afmoe_session_get_stats(l->session, &stats, &l->error);
    if (status >= 0) status = afmoe_session_top_logprobs(l->session, best, logprobs, 3, &n_best, &l->error);
    if (status < 0) return status;
    begin = stats.n_tokens;
    for (uint64_t i = 0; i < n_best && status >= 0; i++) {
        const char *bytes;
        uint64_t n;
        status = afmoe_token_text(l->model, best[i], &bytes, &n, NULL, &l->error);
        if (status >= 0) status = afmoe_session_append(l->session, &best[i], 1, NULL, NULL, &l->error);
        if (status < 0) break;
        printf("  %7.3f  %.*s", (double)logprobs[i], (int)n, bytes);
        status = afmoe_generate(l->session, NULL, &options, NULL, &l->error);
        printf("\n");
        if (status >= 0) status = afmoe_session_rewind(l->session, begin, NULL, NULL, &l->error);
    }
    return status;
}

int main(int argc, char **argv)
{
    struct lesson l = {.model = NULL};
    afmoe_error_init(&l.error, sizeof l.error);
    int failed = afmoe_model_open(&l.model, argc > 1 ? argv[1] : "models/pico-q8_0.gguf", NULL, &l.error) < 0 ||
                 afmoe_context_create(&l.context, l.model, NULL, &l.error) < 0 ||
                 afmoe_session_create(&l.session, l.context, &l.error) < 0 ||
                 ask(&l, "What is 7 plus 12?") < 0 || ask(&l, "What is 7 plus 12?") < 0 ||
                 ask(&l, "What is the capital of France?") < 0 || try_beginnings(&l) < 0;
    if (failed) fprintf(stderr, "%s: %s\n", afmoe_status_name(l.error.code), l.error.message);
    afmoe_session_free(l.session);
    afmoe_context_free(l.context);
    afmoe_model_free(l.model);
    return failed;
}
