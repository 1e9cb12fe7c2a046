/* Lesson 8: texts as vectors. `embed` pools the final hidden states of a text; vectors of length 1 are compared by
 * their dot product. (How good they are for searching is up to the model: this one was trained to write stories.)
 *
 *     08-embeddings [MODEL] */
#include <afmoe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TEXTS = 3, MAX_TOKENS = 256 };

static const char *const texts[N_TEXTS] = {"Tell me a story about a fox in the forest.",
                                           "Tell me a story about an owl in the forest.", "What is 7 plus 12?"};

/* One session serves all texts, one after the other; no logits are computed. */
static afmoe_status embed(const afmoe_model *model, afmoe_session *session, const char *text, float *out,
                          uint64_t hidden_size, afmoe_error *error)
{
    afmoe_token tokens[MAX_TOKENS];
    uint64_t n;
    afmoe_status status = afmoe_tokenize(model, text, strlen(text), NULL, tokens, MAX_TOKENS, &n, error);
    if (status < 0) return status;
    return afmoe_session_embed(session, tokens, n, AFMOE_POOL_MEAN, 1, NULL, out, hidden_size, &n, error);
}

static double dot(const float *a, const float *b, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

int main(int argc, char **argv)
{
    afmoe_model *model = NULL;
    afmoe_context *context = NULL;
    afmoe_session *session = NULL;
    float *vectors = NULL; /* [N_TEXTS][hidden_size] */
    afmoe_model_info info;
    afmoe_error error;
    afmoe_model_info_init(&info, sizeof info);
    afmoe_error_init(&error, sizeof error);

    int failed = afmoe_model_open(&model, argc > 1 ? argv[1] : "models/pico-q8_0.gguf", NULL, &error) < 0 ||
                 afmoe_model_get_info(model, &info, &error) < 0 ||
                 afmoe_context_create(&context, model, NULL, &error) < 0 ||
                 afmoe_session_create(&session, context, &error) < 0;
    uint64_t n = info.hidden_size;
    if (!failed && !(vectors = malloc(N_TEXTS * n * sizeof *vectors))) {
        snprintf(error.message, sizeof error.message, "no memory for the vectors");
        error.code = AFMOE_NO_MEMORY;
        failed = 1;
    }
    for (int i = 0; i < N_TEXTS && !failed; i++)
        failed = embed(model, session, texts[i], vectors + (uint64_t)i * n, n, &error) < 0;
    if (failed) fprintf(stderr, "%s: %s\n", afmoe_status_name(error.code), error.message);
    for (int i = 0; i < N_TEXTS && !failed; i++)
        printf("%6.3f  %s\n", dot(vectors, vectors + (uint64_t)i * n, n), texts[i]);
    free(vectors);
    afmoe_session_free(session);
    afmoe_context_free(context);
    afmoe_model_free(model);
    return failed;
}
