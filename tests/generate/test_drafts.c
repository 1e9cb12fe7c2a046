/* Drafts change nothing but the work: the same tokens, texts, figures and logits as without, greedy and drawn. */
#include "draft.h"
#include "sanitizer.h"
#include "text_model.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PIECES = 300, PROMPT = 512, N_LENGTHS = UNDER_SANITIZER ? 2 : 4 };

/* One answer: all that can be seen of it. */
struct answer {
    afmoe_token tokens[MAX_PIECES];
    float logprobs[MAX_PIECES], top[MAX_PIECES];
    char text[MAX_PIECES * 16];
    uint64_t n, n_bytes, n_timeline;
    uint64_t refuse_at;
    afmoe_generate_result result;
    afmoe_status status;
    float *logits; /* at the end; NULL: none */
};

static int32_t on_piece(void *user_data, const afmoe_piece *piece)
{
    struct answer *answer = user_data;
    assert_true(answer->n < MAX_PIECES && answer->n_bytes + piece->text_bytes <= sizeof answer->text);
    memcpy(answer->text + answer->n_bytes, piece->text, piece->text_bytes);
    answer->n_bytes += piece->text_bytes;
    answer->tokens[answer->n] = piece->token;
    answer->logprobs[answer->n] = piece->logprob;
    answer->top[answer->n] = piece->n_top ? piece->top_logprobs[piece->n_top - 1] : 0;
    return ++answer->n == answer->refuse_at;
}

struct setting {
    const char *prompt;
    float temperature;
    uint64_t max_tokens, max_draft, refuse_at, context_tokens;
    const char *stop;
    uint32_t chunk;
    bool shared; /* with a fork, and with snapshots */
};

static struct answer *make_answer(const struct setting *setting)
{
    struct answer *answer = calloc(1, sizeof *answer);
    afmoe_context_options context_options = two_threads();
    afmoe_sampler_options sampler_options;
    afmoe_generate_options options;
    afmoe_sampler *sampler;
    afmoe_token prompt[PROMPT], next = 42;
    uint64_t n;
    context_options.rewind_tokens = 0;
    if (setting->context_tokens) context_options.max_tokens = setting->context_tokens;
    if (setting->chunk) context_options.chunk_tokens = setting->chunk;
    if (setting->shared) {
        context_options.snapshot_tokens = 64;
        context_options.snapshot_bytes = (uint64_t)1 << 24;
    }
    afmoe_context *context = open_context(model, &context_options);
    afmoe_session *session = open_session(context), *fork = NULL;
    CHECK_STATUS(AFMOE_OK, afmoe_tokenize(model, setting->prompt, strlen(setting->prompt), NULL, prompt, PROMPT, &n,
                                          &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, prompt, n, NULL, NULL, &error));
    if (setting->shared) CHECK_STATUS(AFMOE_OK, afmoe_session_fork(&fork, session, &error));
    afmoe_sampler_options_init(&sampler_options, sizeof sampler_options);
    sampler_options.temperature = setting->temperature;
    sampler_options.seed = 7;
    CHECK_STATUS(AFMOE_OK, afmoe_sampler_create(&sampler, model, &sampler_options, &error));
    afmoe_generate_options_init(&options, sizeof options);
    options.max_tokens = setting->max_tokens;
    options.max_draft = setting->max_draft;
    options.ignore_eos = 1;
    options.n_top_logprobs = 2;
    options.stop_strings = &setting->stop;
    options.n_stop_strings = setting->stop != NULL;
    options.on_piece = on_piece;
    options.on_piece_data = answer;
    answer->refuse_at = setting->refuse_at;
    afmoe_generate_result_init(&answer->result, sizeof answer->result);
    answer->status = afmoe_generate(session, sampler, &options, &answer->result, &error);
    answer->n_timeline = n_tokens_of(session);
    answer->logits = malloc(2 * vocab_size * sizeof(float));
    CHECK_STATUS(AFMOE_OK, afmoe_session_logits(session, answer->logits, vocab_size, NULL, &error));
    if (answer->n_timeline < context_options.max_tokens)
        CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, &next, 1, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_logits(session, answer->logits + vocab_size, vocab_size, NULL, &error));
    if (fork) assert_int_equal(n_tokens_of(fork), n);
    afmoe_sampler_free(sampler);
    afmoe_session_free(fork);
    afmoe_session_free(session);
    assert_int_equal(page_bytes_of(context), 0); /* no page of a draft is left behind */
    afmoe_context_free(context);
    return answer;
}

static void free_answer(struct answer *answer)
{
    free(answer->logits);
    free(answer);
}

static void check_same(const struct answer *a, const struct answer *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->tokens, b->tokens, a->n * sizeof *a->tokens);
    assert_memory_equal(a->logprobs, b->logprobs, a->n * sizeof *a->logprobs);
    assert_memory_equal(a->top, b->top, a->n * sizeof *a->top);
    assert_int_equal(a->n_bytes, b->n_bytes);
    assert_memory_equal(a->text, b->text, a->n_bytes);
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->n_timeline, b->n_timeline);
    assert_int_equal(a->result.finish_reason, b->result.finish_reason);
    assert_int_equal(a->result.n_generated, b->result.n_generated);
    assert_int_equal(a->result.stop_string, b->result.stop_string);
    assert_memory_equal(a->logits, b->logits, 2 * vocab_size * sizeof(float));
}

/* The drafts accepted, of one setting with several lengths of draft. */
static uint64_t check_lengths(struct setting setting)
{
    static const uint64_t lengths[] = {16, 64, 3, 1};
    uint64_t n_accepted = 0;
    struct answer *plain = make_answer(&setting);
    assert_int_equal(plain->result.n_drafted, 0);
    for (int i = 0; i < N_LENGTHS; i++) {
        setting.max_draft = lengths[i];
        struct answer *drafted = make_answer(&setting);
        check_same(plain, drafted);
        assert_true(drafted->result.n_draft_accepted <= drafted->result.n_drafted);
        /* what draft.h promises of any text */
        uint64_t wrong = drafted->result.n_drafted - drafted->result.n_draft_accepted;
        assert_true(32 * wrong <= 64 + drafted->result.n_generated + 16 * drafted->result.n_draft_accepted);
        n_accepted += drafted->result.n_draft_accepted;
        free_answer(drafted);
    }
    free_answer(plain);
    return n_accepted;
}

/* Greedily the demo model tells the same story again and again behind this. */
#define REPEATED "Once upon a time"

static void test_greedy(void **state)
{
    (void)state;
    assert_true(check_lengths((struct setting){.prompt = REPEATED, .max_tokens = 280}) > 50 * N_LENGTHS);
    check_lengths((struct setting){.prompt = "The library opens the file and", .max_tokens = 120});
    check_lengths((struct setting){.prompt = REPEATED, .max_tokens = 1});
}

static void test_drawn(void **state)
{
    (void)state;
    for (int i = UNDER_SANITIZER ? 2 : 0; i < 3; i++) {
        const float temperatures[] = {0.3f, 0.8f, 2.0f};
        check_lengths((struct setting){.prompt = REPEATED, .temperature = temperatures[i], .max_tokens = 120});
    }
}

static void test_ends(void **state)
{
    (void)state;
    check_lengths((struct setting){.prompt = REPEATED, .max_tokens = 280, .stop = "Lily found"});
    check_lengths((struct setting){.prompt = REPEATED, .max_tokens = 280, .refuse_at = 237});
    for (uint64_t end = 250; end < 258; end += UNDER_SANITIZER ? 3 : 1) /* the session is full, at every place of a draft */
        check_lengths((struct setting){.prompt = REPEATED, .max_tokens = UINT64_MAX, .context_tokens = end});
}

static void test_small_chunks(void **state)
{
    (void)state;
    assert_int_equal(check_lengths((struct setting){.prompt = REPEATED, .max_tokens = 100, .chunk = 1}), 0);
    assert_true(check_lengths((struct setting){.prompt = REPEATED, .max_tokens = 280, .chunk = 4}) > 0);
}

/* The page in which the fork ends is copied before drafts are written into it. */
static void test_shared_pages(void **state)
{
    (void)state;
    assert_true(check_lengths((struct setting){.prompt = REPEATED, .max_tokens = 280, .shared = true}) > 50 * N_LENGTHS);
    check_lengths(
        (struct setting){.prompt = REPEATED, .max_tokens = UINT64_MAX, .context_tokens = 257, .shared = true});
}

static void test_bad_option(void **state)
{
    afmoe_context *context = open_context(model, NULL);
    afmoe_session *session = open_session(context);
    afmoe_generate_options options;
    const afmoe_token token = 5;
    (void)state;
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, &token, 1, NULL, NULL, &error));
    afmoe_generate_options_init(&options, sizeof options);
    options.max_draft = 65;
    CHECK_STATUS(AFMOE_INVALID, afmoe_generate(session, NULL, &options, NULL, &error));
    assert_string_equal(error.message, "max_draft is 65, allowed are 0..64");
    afmoe_session_free(session);
    afmoe_context_free(context);
}

/* ---- The lookup ---- */

static void test_lookup(void **state)
{
    /* 1 2 3 4 5 | 9 1 2 3 7 8 | 1 2 + 3: the later of the two places with three equal tokens */
    const afmoe_token tokens[] = {1, 2, 3, 4, 5, 9, 1, 2, 3, 7, 8, 1, 2};
    struct draft draft;
    (void)state;
    afmoe__draft_init(&draft, 8, 13, 0, 0);
    assert_int_equal(afmoe__draft_find(&draft, tokens, 13, 3, 10), 2); /* the first budget */
    assert_int_equal(draft.tokens[0], 7);
    draft.budget = 8 * 32;
    assert_int_equal(afmoe__draft_find(&draft, tokens, 13, 3, 10), 8);
    const afmoe_token expected[] = {7, 8, 1, 2, 3, 7, 8, 1}; /* past the end with its own period */
    assert_memory_equal(draft.tokens, expected, sizeof expected);
    assert_int_equal(afmoe__draft_find(&draft, tokens, 13, 3, 2), 2);
    assert_int_equal(afmoe__draft_find(&draft, tokens, 13, 4, 10), 0);
    assert_int_equal(afmoe__draft_find(&draft, tokens, 2, 3, 10), 0);
    assert_int_equal(afmoe__draft_find(&draft, tokens, 0, 3, 10), 0);
    /* longer beats later: 5 9 1 2 + 3 at the first place */
    const afmoe_token longer[] = {5, 9, 1, 2, 3, 4, 6, 1, 2, 3, 7, 8, 5, 9, 1, 2};
    assert_int_equal(afmoe__draft_find(&draft, longer, 16, 3, 1), 1);
    assert_int_equal(draft.tokens[0], 4);
}

static void test_budget(void **state)
{
    struct draft draft;
    (void)state;
    afmoe__draft_init(&draft, 4, 100, 10, 5);
    afmoe__draft_settle(&draft, 101, 12, 5); /* two wrong: all spent but the token's own share */
    assert_int_equal(draft.budget, 1);
    afmoe__draft_settle(&draft, 132, 12, 5);
    assert_int_equal(draft.budget, 32);
    afmoe__draft_settle(&draft, 134, 13, 6); /* one right */
    assert_int_equal(draft.budget, 32 + 2 + 16);
    afmoe__draft_settle(&draft, 1000, 13, 6); /* never more than what can be tried */
    assert_int_equal(draft.budget, 4 * 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),     cmocka_unit_test(test_drawn),  cmocka_unit_test(test_ends),
        cmocka_unit_test(test_small_chunks), cmocka_unit_test(test_shared_pages), cmocka_unit_test(test_bad_option),
        cmocka_unit_test(test_lookup),     cmocka_unit_test(test_budget),
    };
    return cmocka_run_group_tests_name("drafts", tests, set_up, tear_down);
}
