/* Pieces asked for one by one: those that afmoe_generate gives, and what may happen between two of them. */
#include "sanitizer.h"
#include "text_model.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_PIECES = 300, MAX_TEXT = 4096, PROMPT = 128, N_TOP = 3 };

/* ---- The same pieces ---- */

struct seen {
    afmoe_token token, top_tokens[N_TOP];
    float logprob, top_logprobs[N_TOP];
    uint64_t position, n_top, text_end;
};

struct answer {
    struct seen pieces[MAX_PIECES];
    char text[MAX_TEXT];
    uint64_t n, n_bytes;
    afmoe_generate_result result;
    afmoe_status status;
    afmoe_error error;
    afmoe_token tokens[PROMPT + MAX_PIECES];
    uint64_t n_tokens;
    float *logits;
};

struct setting {
    const char *prompt;
    float temperature;
    afmoe_generate_options options;
    uint64_t context_tokens; /* 0: enough */
};

static int32_t see(void *user_data, const afmoe_piece *piece)
{
    struct answer *answer = user_data;
    struct seen *seen = &answer->pieces[answer->n++];
    assert_true(answer->n < MAX_PIECES && answer->n_bytes + piece->text_bytes <= MAX_TEXT && piece->n_top <= N_TOP);
    assert_int_equal(piece->size, sizeof *piece);
    memcpy(answer->text + answer->n_bytes, piece->text, piece->text_bytes);
    answer->n_bytes += piece->text_bytes;
    seen->token = piece->token;
    seen->logprob = piece->logprob;
    seen->position = piece->position;
    seen->n_top = piece->n_top;
    seen->text_end = answer->n_bytes;
    if (piece->n_top) memcpy(seen->top_tokens, piece->top_tokens, piece->n_top * sizeof *piece->top_tokens);
    if (piece->n_top) memcpy(seen->top_logprobs, piece->top_logprobs, piece->n_top * sizeof *piece->top_logprobs);
    return 0;
}

static afmoe_session *open_prompted(afmoe_context *context, const char *text)
{
    afmoe_token prompt[PROMPT];
    uint64_t n;
    afmoe_session *session = open_session(context);
    CHECK_STATUS(AFMOE_OK, afmoe_tokenize(model, text, strlen(text), NULL, prompt, PROMPT, &n, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, prompt, n, NULL, NULL, &error));
    return session;
}

static afmoe_piece fresh_piece(void)
{
    afmoe_piece piece;
    afmoe_piece_init(&piece, sizeof piece);
    return piece;
}

static afmoe_generate_result result_of(afmoe_generation *generation)
{
    afmoe_generate_result result;
    afmoe_generate_result_init(&result, sizeof result);
    CHECK_STATUS(AFMOE_OK, afmoe_generation_get_result(generation, &result, &error));
    return result;
}

/* With options that are gone, and a session that is looked at between two pieces. */
static void pull(struct answer *answer, afmoe_session *session, afmoe_sampler *sampler,
                 const afmoe_generate_options *options)
{
    afmoe_generation *generation;
    afmoe_piece piece = fresh_piece();
    afmoe_token stop_tokens[4];
    char strings[4][32];
    const char *stop_strings[4];
    afmoe_generate_options mine = *options;
    uint64_t begin = n_tokens_of(session), n_given = 0;
    for (uint64_t i = 0; i < mine.n_stop_tokens; i++) stop_tokens[i] = options->stop_tokens[i];
    for (uint64_t i = 0; i < mine.n_stop_strings; i++)
        stop_strings[i] = strcpy(strings[i], options->stop_strings[i]);
    mine.stop_tokens = stop_tokens;
    mine.stop_strings = stop_strings;
    CHECK_STATUS(AFMOE_OK, afmoe_generation_create(&generation, session, sampler, &mine, &error));
    memset(&mine, 1, sizeof mine);
    memset(stop_tokens, 1, sizeof stop_tokens);
    memset(strings, 1, sizeof strings);
    assert_int_equal(n_tokens_of(session), begin); /* nothing ahead of what was asked for */
    for (;;) {
        answer->status = afmoe_generation_next(generation, &piece, &answer->error);
        if (answer->status != AFMOE_OK) break;
        see(answer, &piece);
        n_given += piece.token >= 0;
        assert_int_equal(n_tokens_of(session), begin + n_given);
        assert_int_equal(result_of(generation).n_generated, n_given);
    }
    answer->result = result_of(generation);
    assert_int_equal(afmoe_generation_next(generation, &piece, NULL), answer->status); /* the same again */
    assert_memory_equal(&(afmoe_generate_result[]){result_of(generation)}[0], &answer->result, sizeof answer->result);
    afmoe_generation_free(generation);
}

static struct answer *make_answer(const struct setting *setting, bool pulled)
{
    struct answer *answer = calloc(1, sizeof *answer);
    afmoe_context_options context_options = two_threads();
    afmoe_sampler_options sampler_options;
    afmoe_sampler *sampler = NULL;
    afmoe_generate_options options = setting->options;
    if (setting->context_tokens) context_options.max_tokens = setting->context_tokens;
    afmoe_context *context = open_context(model, &context_options);
    afmoe_session *session = open_prompted(context, setting->prompt);
    afmoe_sampler_options_init(&sampler_options, sizeof sampler_options);
    sampler_options.temperature = setting->temperature;
    sampler_options.seed = 11;
    if (setting->temperature > 0)
        CHECK_STATUS(AFMOE_OK, afmoe_sampler_create(&sampler, model, &sampler_options, &error));
    afmoe_generate_result_init(&answer->result, sizeof answer->result);
    answer->error = fresh_error();
    if (pulled) {
        pull(answer, session, sampler, &options);
    } else {
        options.on_piece = see;
        options.on_piece_data = answer;
        answer->status = afmoe_generate(session, sampler, &options, &answer->result, &answer->error);
        if (answer->status == AFMOE_OK) answer->status = AFMOE_END; /* max_tokens */
    }
    CHECK_STATUS(AFMOE_OK, afmoe_session_tokens(session, answer->tokens, PROMPT + MAX_PIECES, &answer->n_tokens,
                                                &error));
    answer->logits = malloc(vocab_size * sizeof(float));
    CHECK_STATUS(AFMOE_OK, afmoe_session_logits(session, answer->logits, vocab_size, NULL, &error));
    afmoe_sampler_free(sampler);
    afmoe_session_free(session);
    assert_int_equal(page_bytes_of(context), 0);
    afmoe_context_free(context);
    return answer;
}

static void free_answer(struct answer *answer)
{
    free(answer->logits);
    free(answer);
}

/* Pulled as given; the finish reason. */
static int32_t check_setting(const struct setting *setting)
{
    struct answer *given = make_answer(setting, false), *pulled = make_answer(setting, true);
    assert_int_equal(pulled->n, given->n);
    assert_memory_equal(pulled->pieces, given->pieces, given->n * sizeof *given->pieces);
    assert_int_equal(pulled->n_bytes, given->n_bytes);
    assert_memory_equal(pulled->text, given->text, given->n_bytes);
    assert_int_equal(pulled->status, given->status);
    assert_string_equal(pulled->error.message, given->error.message);
    assert_int_equal(pulled->n_tokens, given->n_tokens);
    assert_memory_equal(pulled->tokens, given->tokens, given->n_tokens * sizeof *given->tokens);
    assert_memory_equal(pulled->logits, given->logits, vocab_size * sizeof(float));
    given->result.elapsed_ns = pulled->result.elapsed_ns;
    assert_memory_equal(&pulled->result, &given->result, sizeof given->result);
    int32_t reason = pulled->result.finish_reason;
    free_answer(given);
    free_answer(pulled);
    return reason;
}

/* Greedily the demo model tells the same story again and again behind this. */
#define STORY "Once upon a time"

static struct setting story(uint64_t max_tokens)
{
    struct setting setting = {.prompt = STORY};
    afmoe_generate_options_init(&setting.options, sizeof setting.options);
    setting.options.max_tokens = max_tokens;
    setting.options.ignore_eos = 1;
    return setting;
}

static void the_same_pieces(void **state)
{
    (void)state;
    for (int drawn = UNDER_SANITIZER ? 1 : 0; drawn < 2; drawn++) {
        struct setting setting = story(60);
        setting.temperature = drawn ? 1.5f : 0;
        assert_int_equal(check_setting(&setting), AFMOE_FINISH_LENGTH);
        setting.options.n_top_logprobs = N_TOP;
        setting.options.keep_special = 1;
        assert_int_equal(check_setting(&setting), AFMOE_FINISH_LENGTH);
        setting.options.n_prompt = 1;
        setting.options.max_tokens = 1;
        assert_int_equal(check_setting(&setting), AFMOE_FINISH_LENGTH);
        setting.options.max_tokens = 0;
        assert_int_equal(check_setting(&setting), AFMOE_FINISH_LENGTH);
    }
    struct setting full = story(UINT64_MAX);
    full.context_tokens = 30;
    assert_int_equal(check_setting(&full), AFMOE_FINISH_CONTEXT);
}

static void the_same_stops(void **state)
{
    (void)state;
    struct setting setting = story(40);
    struct answer *whole = make_answer(&setting, false);
    char text[MAX_TEXT] = "";
    memcpy(text, whole->text, whole->n_bytes);
    const afmoe_token stop = whole->pieces[20].token;
    setting.options.stop_tokens = &stop;
    setting.options.n_stop_tokens = 1;
    assert_int_equal(check_setting(&setting), AFMOE_FINISH_STOP_TOKEN);
    setting.options.n_stop_tokens = 0;
    /* Across tokens, wherever they are cut. */
    for (uint64_t at = 1; at + 8 < whole->n_bytes; at += UNDER_SANITIZER ? 170 : 17) {
        char string[16] = "";
        memcpy(string, text + at, 7);
        const char *strings[] = {"not in the text", string};
        setting.options.stop_strings = strings;
        setting.options.n_stop_strings = 2;
        assert_int_equal(check_setting(&setting), AFMOE_FINISH_STOP_STRING);
        string[6] = '\1'; /* held back again and again, and at the end */
        setting.options.max_tokens = 1 + at % 40;
        assert_int_equal(check_setting(&setting), AFMOE_FINISH_LENGTH);
        setting.options.max_tokens = 40;
    }
    free_answer(whole);
}

static void the_same_drafts(void **state)
{
    (void)state;
    for (int drawn = UNDER_SANITIZER ? 1 : 0; drawn < 2; drawn++) {
        struct setting setting = story(200);
        setting.temperature = drawn ? 0.3f : 0;
        setting.options.max_draft = 8;
        assert_int_equal(check_setting(&setting), AFMOE_FINISH_LENGTH);
        const char *strings[] = {"Lily found"};
        setting.options.stop_strings = strings;
        setting.options.n_stop_strings = 1;
        check_setting(&setting);
        struct setting full = story(UINT64_MAX);
        full.options.max_draft = 64;
        full.context_tokens = 150;
        assert_int_equal(check_setting(&full), AFMOE_FINISH_CONTEXT);
    }
}

/* ---- Between two pieces ---- */

struct open {
    afmoe_context *context;
    afmoe_session *session;
    afmoe_generation *generation;
};

/* Guesses are ahead of the timeline then: the story repeats. */
enum { N_ASKED = 200 };

static struct open open_after(uint64_t n_pieces, uint64_t max_draft, const afmoe_cancel *cancel)
{
    struct setting setting = story(N_ASKED + 20);
    afmoe_piece piece = fresh_piece();
    struct open open = {.context = open_context(model, NULL)};
    open.session = open_prompted(open.context, STORY);
    setting.options.max_draft = max_draft;
    setting.options.cancel = cancel;
    CHECK_STATUS(AFMOE_OK, afmoe_generation_create(&open.generation, open.session, NULL, &setting.options, &error));
    for (uint64_t i = 0; i < n_pieces; i++)
        CHECK_STATUS(AFMOE_OK, afmoe_generation_next(open.generation, &piece, &error));
    assert_int_equal(result_of(open.generation).finish_reason, AFMOE_FINISH_NONE);
    if (max_draft && n_pieces == N_ASKED) assert_true(result_of(open.generation).n_draft_accepted > 20);
    return open;
}

static void shut(struct open *open)
{
    afmoe_generation_free(open->generation);
    afmoe_session_free(open->session);
    assert_int_equal(page_bytes_of(open->context), 0);
    afmoe_context_free(open->context);
}

/* The session's tokens and logits, against those of one that appended them. */
static void check_whole(afmoe_context *context, afmoe_session *session, uint64_t n_expected)
{
    afmoe_token tokens[PROMPT + MAX_PIECES];
    uint64_t n;
    float *logits = malloc(2 * vocab_size * sizeof(float));
    afmoe_session *other = open_session(context);
    CHECK_STATUS(AFMOE_OK, afmoe_session_tokens(session, tokens, PROMPT + MAX_PIECES, &n, &error));
    assert_int_equal(n, n_expected);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(other, tokens, n, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_logits(session, logits, vocab_size, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_logits(other, logits + vocab_size, vocab_size, NULL, &error));
    assert_memory_equal(logits, logits + vocab_size, vocab_size * sizeof(float));
    afmoe_session_free(other);
    free(logits);
}

static void left_early(void **state)
{
    (void)state;
    for (uint64_t max_draft = 0; max_draft <= 8; max_draft += 8)
        for (uint64_t n = 0; n <= N_ASKED; n += N_ASKED / 2) {
            struct open open = open_after(0, 0, NULL);
            uint64_t n_prompt = n_tokens_of(open.session);
            shut(&open);
            open = open_after(n, max_draft, NULL);
            afmoe_generation_free(open.generation);
            open.generation = NULL;
            check_whole(open.context, open.session, n_prompt + n);
            const afmoe_token token = 42;
            CHECK_STATUS(AFMOE_OK, afmoe_session_append(open.session, &token, 1, NULL, NULL, &error));
            check_whole(open.context, open.session, n_prompt + n + 1);
            shut(&open);
        }
}

static void looked_at(void **state)
{
    (void)state;
    afmoe_piece piece = fresh_piece();
    for (uint64_t max_draft = 0; max_draft <= 8; max_draft += 8) {
        struct open open = open_after(N_ASKED, max_draft, NULL);
        uint64_t n = n_tokens_of(open.session), n_state = 0;
        afmoe_session *fork, *loaded = open_session(open.context);
        check_whole(open.context, open.session, n);
        CHECK_STATUS(AFMOE_OK, afmoe_session_fork(&fork, open.session, &error));
        if (strstr(afmoe_build_features(), "state")) {
            afmoe_session_save_memory(open.session, NULL, 0, &n_state, &error);
            void *bytes = malloc(n_state);
            CHECK_STATUS(AFMOE_OK, afmoe_session_save_memory(open.session, bytes, n_state, &n_state, &error));
            CHECK_STATUS(AFMOE_OK, afmoe_session_load_memory(loaded, bytes, n_state, &error));
            check_whole(open.context, loaded, n);
            free(bytes);
        }
        const afmoe_token token = 42;
        CHECK_STATUS(AFMOE_OK, afmoe_session_append(fork, &token, 1, NULL, NULL, &error));
        while (afmoe_generation_next(open.generation, &piece, &error) == AFMOE_OK) {}
        assert_int_equal(result_of(open.generation).n_generated, N_ASKED + 20);
        check_whole(open.context, open.session, n + 20);
        check_whole(open.context, fork, n + 1);
        afmoe_session_free(fork);
        afmoe_session_free(loaded);
        shut(&open);
    }
}

enum { APPEND, SYNC, REWIND, EMBED, STEP, GENERATE, CREATE, SUBMIT, LOAD, N_CHANGES };

static void change(struct open *open, int which)
{
    const afmoe_token token = 42;
    afmoe_generation *other;
    afmoe_scheduler *scheduler;
    afmoe_step_item item;
    afmoe_request request;
    float *vector = malloc(info_of(model).hidden_size * sizeof(float));
    char nothing = 0;
    switch (which) {
    case APPEND: CHECK_STATUS(AFMOE_OK, afmoe_session_append(open->session, &token, 1, NULL, NULL, &error)); break;
    case SYNC: CHECK_STATUS(AFMOE_OK, afmoe_session_sync(open->session, &token, 1, NULL, NULL, &error)); break;
    case REWIND: CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(open->session, 2, NULL, NULL, &error)); break;
    case EMBED:
        CHECK_STATUS(AFMOE_OK, afmoe_session_embed(open->session, &token, 1, AFMOE_POOL_MEAN, 0, NULL, vector,
                                                   info_of(model).hidden_size, NULL, &error));
        break;
    case STEP:
        afmoe_step_item_init(&item, sizeof item);
        item.session = open->session;
        item.tokens = &token;
        item.n_tokens = 1;
        CHECK_STATUS(AFMOE_OK, afmoe_context_step(open->context, &item, 1, NULL, &error));
        break;
    case GENERATE: {
        struct setting setting = story(3);
        CHECK_STATUS(AFMOE_OK, afmoe_generate(open->session, NULL, &setting.options, NULL, &error));
        break;
    }
    case CREATE: {
        afmoe_piece piece = fresh_piece();
        CHECK_STATUS(AFMOE_OK, afmoe_generation_create(&other, open->session, NULL, NULL, &error));
        CHECK_STATUS(AFMOE_STATE, afmoe_generation_next(open->generation, &piece, &error));
        CHECK_STATUS(AFMOE_OK, afmoe_generation_next(other, &piece, &error)); /* the later one has it */
        afmoe_generation_free(other);
        break;
    }
    case SUBMIT:
        afmoe_request_init(&request, sizeof request);
        request.session = open->session;
        request.tokens = &token;
        request.n_tokens = 1;
        CHECK_STATUS(AFMOE_OK, afmoe_scheduler_create(&scheduler, open->context, NULL, &error));
        CHECK_STATUS(AFMOE_OK, afmoe_scheduler_submit(scheduler, &request, &error));
        afmoe_scheduler_free(scheduler);
        break;
    case LOAD: /* one that fails counts as well */
        assert_true(afmoe_session_load_memory(open->session, &nothing, 1, &error) < 0);
        if (!strstr(afmoe_build_features(), "state")) change(open, APPEND);
        break;
    default: fail();
    }
    free(vector);
}

static void taken_away(void **state)
{
    (void)state;
    for (int which = 0; which < N_CHANGES; which++) {
        struct open open = open_after(N_ASKED, 8, NULL);
        afmoe_piece piece = fresh_piece();
        change(&open, which);
        uint64_t n = n_tokens_of(open.session);
        for (int i = 0; i < 2; i++) {
            CHECK_STATUS(AFMOE_STATE, afmoe_generation_next(open.generation, &piece, &error));
            assert_string_equal(error.message, "the session was changed by another call since the last piece");
        }
        assert_int_equal(result_of(open.generation).finish_reason, AFMOE_FINISH_ERROR);
        assert_int_equal(result_of(open.generation).n_generated, N_ASKED);
        assert_int_equal(n_tokens_of(open.session), n);
        const afmoe_token token = 42;
        CHECK_STATUS(AFMOE_OK, afmoe_session_append(open.session, &token, 1, NULL, NULL, &error));
        check_whole(open.context, open.session, n + 1);
        shut(&open);
    }
}

static void cancelled(void **state)
{
    (void)state;
    afmoe_cancel *cancel;
    afmoe_piece piece = fresh_piece();
    CHECK_STATUS(AFMOE_OK, afmoe_cancel_create(&cancel, &error));
    struct open open = open_after(5, 0, cancel);
    uint64_t n = n_tokens_of(open.session);
    afmoe_cancel_set(cancel);
    afmoe_cancel_free(cancel); /* the generation's reference is left */
    for (int i = 0; i < 2; i++) CHECK_STATUS(AFMOE_CANCELLED, afmoe_generation_next(open.generation, &piece, &error));
    assert_int_equal(result_of(open.generation).finish_reason, AFMOE_FINISH_CANCELLED);
    assert_int_equal(result_of(open.generation).n_generated, 5);
    check_whole(open.context, open.session, n);
    shut(&open);
}

/* ---- Lifetime and callers ---- */

static void freed_before_it(void **state)
{
    (void)state;
    afmoe_piece piece = fresh_piece();
    afmoe_sampler *sampler;
    afmoe_generation *generation;
    struct setting setting = story(10);
    for (int n_before = 0; n_before < 2; n_before++) { /* before its first piece, and after */
        afmoe_context *context = open_context(model, NULL);
        afmoe_session *session = open_prompted(context, STORY);
        CHECK_STATUS(AFMOE_OK, afmoe_sampler_create(&sampler, model, NULL, &error));
        CHECK_STATUS(AFMOE_OK, afmoe_generation_create(&generation, session, sampler, &setting.options, &error));
        if (n_before) CHECK_STATUS(AFMOE_OK, afmoe_generation_next(generation, &piece, &error));
        afmoe_context_free(context);
        afmoe_sampler_free(sampler);
        afmoe_session_free(session);
        for (int i = n_before; i < 10; i++)
            CHECK_STATUS(AFMOE_OK, afmoe_generation_next(generation, &piece, &error));
        CHECK_STATUS(AFMOE_END, afmoe_generation_next(generation, &piece, &error));
        afmoe_generation_free(generation);
    }
}

/* The host's parallel-for is where others come in between. */
struct host {
    afmoe_session *session;
    afmoe_generation *generation;
    int n_left; /* until it meddles */
    bool frees;
};

static int32_t parallel(void *user_data, uint32_t n_workers, afmoe_task_fn task, void *task_data)
{
    struct host *host = user_data;
    afmoe_piece piece = fresh_piece();
    afmoe_generate_result result = {.size = sizeof result};
    for (uint32_t w = 0; w < n_workers; w++) task(task_data, w);
    if (!host->generation || host->n_left-- != 0) return 0;
    CHECK_STATUS(AFMOE_BUSY, afmoe_generation_next(host->generation, &piece, &error));
    CHECK_STATUS(AFMOE_BUSY, afmoe_generation_get_result(host->generation, &result, &error));
    CHECK_STATUS(AFMOE_BUSY, afmoe_session_append(host->session, NULL, 0, NULL, NULL, &error));
    if (!host->frees) return 0;
    afmoe_session_free(host->session);
    afmoe_generation_free(host->generation);
    return 0;
}

static void one_caller(void **state)
{
    (void)state;
    for (int frees = 0; frees < 2; frees++) {
        struct host host = {.n_left = 3, .frees = frees};
        struct setting setting = story(10);
        afmoe_piece piece = fresh_piece();
        afmoe_context_options options = two_threads();
        options.parallel = parallel;
        options.parallel_data = &host;
        afmoe_context *context = open_context(model, &options);
        host.session = open_prompted(context, STORY);
        CHECK_STATUS(AFMOE_OK, afmoe_generation_create(&host.generation, host.session, NULL, &setting.options, &error));
        CHECK_STATUS(AFMOE_OK, afmoe_generation_next(host.generation, &piece, &error)); /* as if nothing had happened */
        assert_true(host.n_left < 0);
        if (!frees) {
            CHECK_STATUS(AFMOE_OK, afmoe_generation_next(host.generation, &piece, &error));
            afmoe_generation_free(host.generation);
            afmoe_session_free(host.session);
        }
        assert_int_equal(page_bytes_of(context), 0);
        afmoe_context_free(context);
    }
}

/* The session busy elsewhere: nothing is lost. */
static int32_t ask_inside(void *user_data, uint64_t done, uint64_t total)
{
    struct open *open = user_data;
    afmoe_piece piece = fresh_piece();
    (void)done;
    (void)total;
    CHECK_STATUS(AFMOE_BUSY, afmoe_generation_next(open->generation, &piece, &error));
    assert_int_equal(result_of(open->generation).finish_reason, AFMOE_FINISH_NONE);
    afmoe_generation_free(open->generation); /* cannot touch the session now */
    open->generation = NULL;
    return 0;
}

static void the_session_is_busy(void **state)
{
    (void)state;
    struct open open = open_after(N_ASKED, 8, NULL);
    const afmoe_token token = 42;
    afmoe_append_options options;
    afmoe_append_options_init(&options, sizeof options);
    options.progress = ask_inside;
    options.progress_data = &open;
    uint64_t n = n_tokens_of(open.session);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(open.session, &token, 1, &options, NULL, &error));
    check_whole(open.context, open.session, n + 1);
    shut(&open);
}

static void in_a_child(void **state)
{
    (void)state;
    struct open open = open_after(N_ASKED, 8, NULL);
    afmoe_piece piece = fresh_piece();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool refused = afmoe_generation_next(open.generation, &piece, &error) == AFMOE_STATE;
        afmoe_generation_free(open.generation);
        afmoe_session_free(open.session);
        afmoe_context_free(open.context);
        _exit(refused ? 0 : 1);
    }
    int ended = 1;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    CHECK_STATUS(AFMOE_OK, afmoe_generation_next(open.generation, &piece, &error));
    shut(&open);
}

/* ---- Arguments ---- */

static void bad_arguments(void **state)
{
    (void)state;
    struct open open = open_after(1, 0, NULL);
    struct setting setting = story(3);
    afmoe_generate_options *options = &setting.options;
    afmoe_generation *none = open.generation;
    afmoe_session *empty = open_session(open.context);
    afmoe_piece piece = fresh_piece(), no_size = {.size = 0};
    afmoe_generate_result result = {.size = 0};
    CHECK_STATUS(AFMOE_INVALID, afmoe_generation_create(NULL, open.session, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_generation_create(&none, NULL, NULL, NULL, &error));
    assert_null(none);
    CHECK_STATUS(AFMOE_STATE, afmoe_generation_create(&none, empty, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_generation_next(NULL, &piece, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_generation_next(open.generation, NULL, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_generation_next(open.generation, &no_size, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_generation_get_result(open.generation, &result, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_generation_get_result(open.generation, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_generation_next(open.generation, &piece, &error)); /* none of them touched it */
    options->on_piece = see;
    CHECK_STATUS(AFMOE_INVALID, afmoe_generation_create(&none, open.session, NULL, options, &error));
    assert_non_null(strstr(error.message, "on_piece"));
    options->on_piece = NULL;
    options->n_stop_tokens = 1;
    CHECK_STATUS(AFMOE_INVALID, afmoe_generation_create(&none, open.session, NULL, options, &error));
    options->n_stop_tokens = 0;
    options->n_stop_strings = 65;
    CHECK_STATUS(AFMOE_INVALID, afmoe_generation_create(&none, open.session, NULL, options, &error));
    afmoe_generation_free(NULL);
    afmoe_session_free(empty);
    shut(&open);
}

/* A caller of an earlier version knows less of a piece. */
static void smaller_pieces(void **state)
{
    (void)state;
    struct open open = open_after(0, 0, NULL);
    afmoe_piece piece;
    memset(&piece, 7, sizeof piece);
    piece.size = offsetof(afmoe_piece, text);
    CHECK_STATUS(AFMOE_OK, afmoe_generation_next(open.generation, &piece, &error));
    assert_true(piece.token >= 0);
    assert_int_equal(piece.position, 0x0707070707070707);
    shut(&open);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_pieces), cmocka_unit_test(the_same_stops), cmocka_unit_test(the_same_drafts),
        cmocka_unit_test(left_early),      cmocka_unit_test(looked_at),      cmocka_unit_test(taken_away),
        cmocka_unit_test(cancelled),       cmocka_unit_test(freed_before_it), cmocka_unit_test(one_caller),
        cmocka_unit_test(the_session_is_busy), cmocka_unit_test(in_a_child), cmocka_unit_test(bad_arguments),
        cmocka_unit_test(smaller_pieces),
    };
    return cmocka_run_group_tests_name("pull", tests, set_up, tear_down);
}
