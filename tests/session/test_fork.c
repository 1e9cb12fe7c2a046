/* Forks: each goes on to the bits of a fresh timeline, whatever the others do; pages are shared until written, and
 * count once. */
#include "timelines.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static afmoe_session *fork_of(afmoe_session *session)
{
    afmoe_session *fork;
    CHECK_STATUS(AFMOE_OK, afmoe_session_fork(&fork, session, &error));
    return fork;
}

/* tokens[0, n), then others; what a timeline of them gives at its end. */
struct branch {
    afmoe_token tokens[N_TOKENS];
    float logits[VOCAB];
};

static void make_branch(struct branch *branch, const afmoe_context_options *options, uint64_t n_common, uint64_t n,
                        uint32_t seed)
{
    memcpy(branch->tokens, tokens, n_common * sizeof *tokens);
    make_tokens(branch->tokens + n_common, n - n_common, VOCAB, seed);
    afmoe_session *session = session_with(tiny, options);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, branch->tokens, n, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_logits(session, branch->logits, VOCAB, NULL, &error));
    afmoe_session_free(session);
}

static void assert_branch(const struct branch *branch, afmoe_session *session, uint64_t n)
{
    float logits[VOCAB];
    assert_tokens(session, branch->tokens, n);
    CHECK_STATUS(AFMOE_OK, afmoe_session_logits(session, logits, VOCAB, NULL, &error));
    assert_memory_equal(logits, branch->logits, sizeof logits);
}

/* Whatever the fork's place in a page, and whoever writes first. */
static void check_both_go_on(const afmoe_context_options *options)
{
    static const uint64_t places[] = {0, 1, 63, 64, 65, 128, 200, 250};
    struct bits *expected = whole(tiny, options);
    for (int i = 0; i < 8 * 4; i++) {
        uint64_t n = places[i / 4];
        bool fork_first = i & 1, parent_goes = i & 2;
        struct branch branch;
        make_branch(&branch, options, n, N_TOKENS, 7);
        afmoe_session *session = session_with(tiny, options);
        append(session, 0, n);
        afmoe_session *fork = fork_of(session);
        assert_tokens(fork, tokens, n);
        if (n) assert_last(expected, fork, n);
        if (n == 0) assert_no_logits(fork);
        assert_int_equal(stats_of(fork).n_prompt_computed, 0);
        if (parent_goes) {
            afmoe_session_free(session);
            session = fork_of(fork);
        }
        if (!fork_first) append(session, n, N_TOKENS);
        CHECK_STATUS(AFMOE_OK, afmoe_session_append(fork, branch.tokens + n, N_TOKENS - n, NULL, NULL, &error));
        if (fork_first) append(session, n, N_TOKENS);
        assert_branch(&branch, fork, N_TOKENS);
        assert_last(expected, session, N_TOKENS);
        afmoe_session_free(session);
        assert_branch(&branch, fork, N_TOKENS);
        afmoe_session_free(fork);
    }
    free(expected);
}

static void both_go_on(void **state)
{
    afmoe_context_options options = exact_options();
    (void)state;
    check_both_go_on(&options);
    options.cells = AFMOE_CELLS_Q8_0; /* its scales are shared and copied as well */
    check_both_go_on(&options);
}

static void pages_count_once(void **state)
{
    afmoe_context *context = open_context(tiny, exact());
    uint64_t page = bytes_of_page(tiny), layers = info_of(tiny).n_layers;
    afmoe_session *session = open_session(context), *forks[5];
    (void)state;
    append(session, 0, 250);
    uint64_t all = page_bytes_of(context), own = stats_of(session).page_bytes;
    for (int i = 0; i < 5; i++) forks[i] = fork_of(session);
    assert_int_equal(page_bytes_of(context), all);
    assert_int_equal(stats_of(forks[4]).page_bytes, own);
    for (uint64_t i = 0; i < 5; i++) { /* the page they are in is copied, for each of them */
        append(forks[i], 250, 251);
        assert_int_equal(page_bytes_of(context), all + (i + 1) * layers * page);
        append(forks[i], 251, 256);
        assert_int_equal(page_bytes_of(context), all + (i + 1) * layers * page);
    }
    append(session, 250, 256); /* and now it is this one's alone */
    assert_int_equal(page_bytes_of(context), all + 5 * layers * page);
    afmoe_session_free(session);
    for (int i = 0; i < 4; i++) afmoe_session_free(forks[i]);
    assert_int_equal(stats_of(forks[4]).page_bytes, own);
    afmoe_session_free(forks[4]);
    assert_int_equal(page_bytes_of(context), 0);
    afmoe_context_free(context);
}

/* Forks that fit because of what they share, to the page; over the cap nothing is changed. */
static void cap_counts_shared_pages_once(void **state)
{
    struct bits *expected = whole(tiny, exact());
    uint64_t layers = info_of(tiny).n_layers;
    (void)state;
    for (uint64_t spare = 0; spare <= layers; spare++) {
        afmoe_context *context = capped_context(tiny, layers + spare);
        afmoe_session *session = open_session(context);
        append(session, 0, 40);
        afmoe_session *fork = fork_of(session);
        if (spare < layers) {
            CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_append(fork, tokens + 40, 5, NULL, NULL, &error));
            assert_last(expected, fork, 40);
            CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_append(session, tokens + 40, 1, NULL, NULL, &error));
            assert_last(expected, session, 40);
            afmoe_session_free(session); /* what was shared is the fork's alone */
            append(fork, 40, 64);
            assert_last(expected, fork, 64);
        } else {
            append(fork, 40, 64);
            append(session, 40, 60);
            assert_last(expected, fork, 64);
            assert_last(expected, session, 60);
            CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_append(fork, tokens + 64, 1, NULL, NULL, &error));
            afmoe_session_free(session);
            append(fork, 64, 65);
            assert_last(expected, fork, 65);
        }
        afmoe_session_free(fork);
        assert_int_equal(page_bytes_of(context), 0);
        afmoe_context_free(context);
    }
    free(expected);
}

/* Five timelines fork, grow, go back and end in any order; none ever meets a bit of another, and the cap holds. */
static void random_forks_keep_the_bits(void **state)
{
    enum { N_SESSIONS = 5, STEPS = 600 };
    uint64_t layers = info_of(tiny).n_layers, cap = 12 * layers;
    struct bits *expected = whole(tiny, exact());
    (void)state;
    for (uint32_t seed = 1; seed <= 2; seed++) {
        uint32_t random = seed;
        uint64_t n_full = 0;
        afmoe_context_options options = exact_options();
        options.rewind_tokens = 70;
        options.chunk_tokens = 48;
        options.max_page_bytes = cap * bytes_of_page(tiny);
        afmoe_context *context = open_context(tiny, &options);
        afmoe_session *sessions[N_SESSIONS];
        for (int i = 0; i < N_SESSIONS; i++) sessions[i] = open_session(context);
        for (int step = 0; step < STEPS; step++) {
            random = random * 1664525u + 1013904223u;
            uint32_t which = (random >> 16) % N_SESSIONS;
            afmoe_session **session = &sessions[which];
            uint64_t n = n_tokens_of(*session), to = (random >> 10) % N_TOKENS + 1;
            if (random >> 30 == 0) {
                afmoe_session_free(*session);
                *session = fork_of(sessions[(which + 1 + (random >> 8 & 3)) % N_SESSIONS]);
                continue;
            }
            if (random >> 30 == 1 && to > n) to = n + 1 < N_TOKENS ? n + 1 : n;
            if (to == 0) continue;
            afmoe_status status = afmoe_session_sync(*session, tokens, to, NULL, NULL, &error);
            if (status == AFMOE_CONTEXT_FULL) {
                n_full++;
                assert_int_equal(n_tokens_of(*session), n);
            } else {
                CHECK_STATUS(AFMOE_OK, status);
                assert_last(expected, *session, to);
            }
            assert_true(page_bytes_of(context) <= cap * bytes_of_page(tiny));
        }
        assert_true(n_full > 0 && n_full < STEPS / 2);
        for (int i = 0; i < N_SESSIONS; i++) afmoe_session_free(sessions[i]);
        assert_int_equal(page_bytes_of(context), 0);
        afmoe_context_free(context);
    }
    free(expected);
}

struct writer {
    afmoe_session *session;
    const struct branch *branch;
    uint64_t begin;
    bool same;
};

/* One token at a time behind the common end, so that pages are copied while others read them. */
static void *write_branch(void *user)
{
    struct writer *writer = user;
    float logits[VOCAB];
    bool good = true;
    for (uint64_t p = writer->begin; p < writer->begin + 80 && good; p++)
        good = afmoe_session_append(writer->session, writer->branch->tokens + p, 1, NULL, NULL, NULL) == AFMOE_OK;
    good = good && afmoe_session_logits(writer->session, logits, VOCAB, NULL, NULL) == AFMOE_OK;
    writer->same = good && memcmp(logits, writer->branch->logits, sizeof logits) == 0;
    return NULL;
}

static void forks_on_threads(void **state)
{
    enum { N = 3, BEGIN = 100 };
    static struct branch branches[N];
    struct writer writers[N];
    pthread_t threads[N];
    (void)state;
    afmoe_session *session = session_with(tiny, exact());
    append(session, 0, BEGIN);
    for (uint32_t i = 0; i < N; i++) {
        make_branch(&branches[i], exact(), BEGIN, BEGIN + 80, 20 + i);
        writers[i] = (struct writer){fork_of(session), &branches[i], BEGIN, false};
    }
    for (int i = 0; i < N; i++) assert_int_equal(pthread_create(&threads[i], NULL, write_branch, &writers[i]), 0);
    afmoe_session_free(session);
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        assert_true(writers[i].same);
        afmoe_session_free(writers[i].session);
    }
}

static int32_t fork_self(void *user, uint64_t done, uint64_t total)
{
    afmoe_session *fork;
    (void)done;
    (void)total;
    assert_int_equal(afmoe_session_fork(&fork, user, &error), AFMOE_BUSY);
    assert_null(fork);
    return 0;
}

static void refuses(void **state)
{
    afmoe_session *session = session_with(tiny, exact()), *fork = session;
    afmoe_append_options options;
    (void)state;
    assert_int_equal(afmoe_session_fork(NULL, session, &error), AFMOE_INVALID);
    assert_int_equal(afmoe_session_fork(&fork, NULL, &error), AFMOE_INVALID);
    assert_null(fork);
    afmoe_append_options_init(&options, sizeof options);
    options.progress = fork_self;
    options.progress_data = session;
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens, 10, &options, NULL, &error));
    afmoe_session_free(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_go_on), cmocka_unit_test(pages_count_once),
                                       cmocka_unit_test(cap_counts_shared_pages_once),
                                       cmocka_unit_test(random_forks_keep_the_bits), cmocka_unit_test(forks_on_threads),
                                       cmocka_unit_test(refuses)};
    return cmocka_run_group_tests_name("fork", tests, open_tiny, close_tiny);
}
