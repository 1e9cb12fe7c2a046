/* Options, penalties, rows without a token, bad logits. */
#include "sampler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static afmoe_sampler_options defaults(void)
{
    return (afmoe_sampler_options){.size = sizeof(afmoe_sampler_options), .top_p = 1.0f, .repetition_penalty = 1.0f,
                                   .top_k = (uint64_t)1 << 32};
}

static struct sampler *make(uint64_t n, const uint8_t *usable, const afmoe_sampler_options *options)
{
    struct sampler *sampler;
    assert_int_equal(afmoe__sampler_create(&sampler, n, usable, options, NULL), AFMOE_OK);
    return sampler;
}

static afmoe_token sample(struct sampler *sampler, const float *logits, const afmoe_token *history, uint64_t n_history,
                          uint64_t n_prompt)
{
    afmoe_token token = -1;
    assert_int_equal(afmoe__sampler_sample(sampler, logits, history, n_history, n_prompt, &token, NULL, NULL),
                     AFMOE_OK);
    return token;
}

static void greedy_takes_the_largest_lowest_id_first(void **state)
{
    (void)state;
    afmoe_sampler_options options = defaults();
    struct sampler *sampler = make(5, NULL, &options);
    const float logits[5] = {1, 3, 2, 3, -INFINITY};
    assert_int_equal(sample(sampler, logits, NULL, 0, 0), 1);
    afmoe__sampler_free(sampler);
}

static void a_row_without_a_token_never_comes(void **state)
{
    (void)state;
    const uint8_t usable[4] = {1, 0, 1, 0};
    const float logits[4] = {1, INFINITY, 2, NAN};
    for (int i = 0; i < 2; i++) {
        afmoe_sampler_options options = defaults();
        options.temperature = i ? 100.0f : 0.0f;
        struct sampler *sampler = make(4, usable, &options);
        afmoe_token history[50] = {0};
        for (uint64_t position = 0; position < 50; position++)
            assert_int_equal(sample(sampler, logits, history, position, 0) % 2, 0);
        /* but what it holds is part of the raw distribution */
        afmoe_token token;
        float logprob;
        assert_int_equal(afmoe__sampler_sample(sampler, logits, NULL, 0, 0, &token, &logprob, NULL), AFMOE_NUMERIC);
        afmoe__sampler_free(sampler);
    }
}

static void the_logprob_is_that_of_the_raw_distribution(void **state)
{
    (void)state;
    afmoe_sampler_options options = defaults();
    const afmoe_token bias_token = 0;
    const float bias_value = 50.0f;
    options.temperature = 0.5f;
    options.n_bias = 1;
    options.bias_tokens = &bias_token;
    options.bias_values = &bias_value;
    const uint8_t usable[3] = {1, 1, 0};
    struct sampler *sampler = make(3, usable, &options);
    const float logits[3] = {1, 1, 1};
    afmoe_token token;
    float logprob;
    assert_int_equal(afmoe__sampler_sample(sampler, logits, NULL, 0, 0, &token, &logprob, NULL), AFMOE_OK);
    assert_int_equal(token, 0);
    assert_true(fabsf(logprob + logf(3.0f)) < 1e-6f);
    afmoe__sampler_free(sampler);
}

static void bad_logits_are_named(void **state)
{
    (void)state;
    afmoe_sampler_options options = defaults();
    struct sampler *sampler = make(3, NULL, &options);
    afmoe_error error = {.size = sizeof error};
    afmoe_token token = -7;
    float logits[3] = {0, 1, NAN};
    assert_int_equal(afmoe__sampler_sample(sampler, logits, NULL, 0, 0, &token, NULL, &error), AFMOE_NUMERIC);
    assert_string_equal(error.message, "the logit of token 2 is NaN");
    logits[2] = INFINITY;
    assert_int_equal(afmoe__sampler_sample(sampler, logits, NULL, 0, 0, &token, NULL, &error), AFMOE_NUMERIC);
    assert_string_equal(error.message, "the logit of token 2 is infinite");
    for (int i = 0; i < 3; i++) logits[i] = -INFINITY;
    assert_int_equal(afmoe__sampler_sample(sampler, logits, NULL, 0, 0, &token, NULL, &error), AFMOE_NUMERIC);
    assert_string_equal(error.message, "no token is left: all 3 logits are -infinity");
    assert_int_equal(token, -7);
    afmoe__sampler_free(sampler);

    options.repetition_penalty = 0.01f;
    sampler = make(3, NULL, &options);
    const float huge[3] = {0, 3e37f, 0};
    const afmoe_token history[1] = {1};
    assert_int_equal(afmoe__sampler_sample(sampler, huge, history, 1, 0, &token, NULL, &error), AFMOE_NUMERIC);
    assert_string_equal(error.message, "bias and penalties made the logit of token 1 infinite");
    /* a failure leaves nothing behind */
    const float plain[3] = {0, 0, 1};
    assert_int_equal(sample(sampler, plain, NULL, 0, 0), 2);
    afmoe__sampler_free(sampler);
}

static void a_bias_can_ban_and_force(void **state)
{
    (void)state;
    afmoe_sampler_options options = defaults();
    afmoe_token tokens[2] = {2, 0};
    float values[2] = {-INFINITY, 1.5f};
    options.n_bias = 2;
    options.bias_tokens = tokens;
    options.bias_values = values;
    struct sampler *sampler = make(3, NULL, &options);
    tokens[0] = 0; /* copied: this changes nothing */
    values[0] = 100.0f;
    const float logits[3] = {1, 2, 9};
    assert_int_equal(sample(sampler, logits, NULL, 0, 0), 0);
    const float others[3] = {0.25f, 2, 9};
    assert_int_equal(sample(sampler, others, NULL, 0, 0), 1);
    afmoe__sampler_free(sampler);
}

static void repetition_counts_prompt_and_answer_once(void **state)
{
    (void)state;
    afmoe_sampler_options options = defaults();
    options.repetition_penalty = 2.0f;
    struct sampler *sampler = make(3, NULL, &options);
    const afmoe_token history[4] = {0, 0, 0, 1};
    const float positive[3] = {8, 7.9f, 3.9f}; /* 8 / 2 once, 7.9 / 2 once: 4, 3.95 */
    assert_int_equal(sample(sampler, positive, history, 4, 2), 0);
    const float negative[3] = {-1, -1.9f, -1.95f}; /* -2, -3.8, -1.95 */
    assert_int_equal(sample(sampler, negative, history, 4, 4), 2);
    afmoe__sampler_free(sampler);
}

static void presence_and_frequency_count_the_answer_only(void **state)
{
    (void)state;
    const afmoe_token history[7] = {0, 0, 0, 1, 1, 1, 2};
    const float logits[3] = {1.0f, 2.0f, 1.9f};
    afmoe_sampler_options options = defaults();
    options.frequency_penalty = 0.3f;
    struct sampler *sampler = make(3, NULL, &options);
    assert_int_equal(sample(sampler, logits, history, 7, 7), 1);            /* all prompt */
    assert_int_equal(sample(sampler, logits, history, 7, UINT64_MAX), 1);   /* the same */
    assert_int_equal(sample(sampler, logits, history, 7, 3), 2);            /* 1.0, 1.1, 1.6 */
    assert_int_equal(sample(sampler, logits, history, 6, 3), 2);            /* 1.0, 1.1, 1.9 */
    assert_int_equal(sample(sampler, logits, history, 4, 3), 2);            /* 1.0, 1.7, 1.9 */
    afmoe__sampler_free(sampler);
    options.frequency_penalty = 0.0f;
    options.presence_penalty = 0.95f;
    sampler = make(3, NULL, &options);
    assert_int_equal(sample(sampler, logits, history, 7, 3), 1); /* 1.0, 1.05, 0.95 */
    assert_int_equal(sample(sampler, logits, history, 7, 6), 1); /* 1.0, 2.0, 0.95 */
    options.presence_penalty = -5.0f;
    afmoe__sampler_free(sampler);
    sampler = make(3, NULL, &options);
    assert_int_equal(sample(sampler, logits, history, 7, 6), 2); /* a reward */
    afmoe__sampler_free(sampler);
}

static void history_outside_the_vocabulary_is_refused(void **state)
{
    (void)state;
    afmoe_sampler_options options = defaults();
    struct sampler *sampler = make(3, NULL, &options);
    const float logits[3] = {0, 1, 2};
    const afmoe_token bad[2][2] = {{0, 3}, {0, -1}};
    for (int i = 0; i < 2; i++) {
        afmoe_error error = {.size = sizeof error};
        afmoe_token token;
        assert_int_equal(afmoe__sampler_sample(sampler, logits, bad[i], 2, 0, &token, NULL, &error), AFMOE_INVALID);
        assert_non_null(strstr(error.message, "history[1]"));
        assert_non_null(strstr(error.message, "0..2"));
    }
    afmoe__sampler_free(sampler);
}

/* The draw changes with the number of tokens before it and with the seed, not with what was sampled in between. */
static void draws_are_keyed_by_position(void **state)
{
    (void)state;
    afmoe_sampler_options options = defaults();
    options.temperature = 1.0f;
    options.seed = UINT64_MAX;
    struct sampler *a = make(64, NULL, &options), *b = make(64, NULL, &options);
    float logits[64];
    for (int i = 0; i < 64; i++) logits[i] = (float)(i % 5) * 0.1f;
    afmoe_token history[100] = {0}, forward[100];
    for (uint64_t p = 0; p < 100; p++) forward[p] = sample(a, logits, history, p, 0);
    int n_changes = 0;
    for (uint64_t p = 100; p-- > 0;) {
        assert_int_equal(sample(b, logits, history, p, 0), forward[p]);
        n_changes += p > 0 && forward[p] != forward[p - 1];
    }
    assert_true(n_changes > 80);
    afmoe__sampler_free(a);
    afmoe__sampler_free(b);
}

static void refuse(const afmoe_sampler_options *options, const char *name, const char *range)
{
    afmoe_error error = {.size = sizeof error};
    struct sampler *sampler = (struct sampler *)&error;
    assert_int_equal(afmoe__sampler_create(&sampler, 10, NULL, options, &error), AFMOE_INVALID);
    assert_null(sampler);
    if (!strstr(error.message, name) || !strstr(error.message, range))
        fail_msg("'%s' should name %s and %s", error.message, name, range);
}

static void options_outside_their_range_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *range;
        size_t offset;
        float least, most;
    } floats[] = {
        {"temperature", "0..100", offsetof(afmoe_sampler_options, temperature), 0, 100},
        {"top_p", "0..1", offsetof(afmoe_sampler_options, top_p), 0, 1},
        {"min_p", "0..1", offsetof(afmoe_sampler_options, min_p), 0, 1},
        {"repetition_penalty", "0.01..100", offsetof(afmoe_sampler_options, repetition_penalty), 0.01f, 100},
        {"presence_penalty", "-100..100", offsetof(afmoe_sampler_options, presence_penalty), -100, 100},
        {"frequency_penalty", "-100..100", offsetof(afmoe_sampler_options, frequency_penalty), -100, 100},
    };
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        const float bad[] = {NAN, INFINITY, -INFINITY, 1e30f, -1e30f, nextafterf(floats[i].least, -1000),
                             nextafterf(floats[i].most, 1000)};
        const float good[] = {floats[i].least, floats[i].most};
        for (size_t j = 0; j < sizeof bad / sizeof *bad; j++) {
            afmoe_sampler_options options = defaults();
            memcpy((char *)&options + floats[i].offset, &bad[j], sizeof bad[j]);
            refuse(&options, floats[i].name, floats[i].range);
        }
        for (size_t j = 0; j < sizeof good / sizeof *good; j++) {
            afmoe_sampler_options options = defaults();
            memcpy((char *)&options + floats[i].offset, &good[j], sizeof good[j]);
            afmoe__sampler_free(make(10, NULL, &options));
        }
    }
    afmoe_sampler_options options = defaults();
    options.top_k = 0;
    refuse(&options, "top_k is 0", "1..4294967296");
    options.top_k = ((uint64_t)1 << 32) + 1;
    refuse(&options, "top_k", "1..4294967296");
    options = defaults();
    options.reserved = 1;
    refuse(&options, "reserved", "0");
}

static void a_bias_outside_its_range_is_refused(void **state)
{
    (void)state;
    afmoe_token tokens[2] = {3, 10};
    float values[2] = {0, 0};
    afmoe_sampler_options options = defaults();
    options.n_bias = 2;
    refuse(&options, "bias_tokens", "NULL");
    options.bias_tokens = tokens;
    refuse(&options, "bias_values", "NULL");
    options.bias_values = values;
    refuse(&options, "bias_tokens[1] is 10", "0..9");
    tokens[1] = -1;
    refuse(&options, "bias_tokens[1] is -1", "0..9");
    tokens[1] = 3;
    refuse(&options, "bias_tokens[1]", "token 3");
    tokens[1] = 4;
    const float bad[] = {NAN, INFINITY, 1.1e30f, -1.1e30f};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        values[1] = bad[i];
        refuse(&options, "bias_values[1]", "-1e30..1e30");
    }
    values[1] = -1e30f;
    afmoe__sampler_free(make(10, NULL, &options));
}

static void a_vocabulary_too_large_for_the_draw_is_refused(void **state)
{
    (void)state;
    afmoe_sampler_options options = defaults();
    struct sampler *sampler;
    assert_int_equal(afmoe__sampler_create(&sampler, 0, NULL, &options, NULL), AFMOE_LIMIT);
    assert_int_equal(afmoe__sampler_create(&sampler, UINT64_MAX, NULL, &options, NULL), AFMOE_LIMIT);
    assert_null(sampler);
    afmoe__sampler_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_largest_lowest_id_first),
        cmocka_unit_test(a_row_without_a_token_never_comes),
        cmocka_unit_test(the_logprob_is_that_of_the_raw_distribution),
        cmocka_unit_test(bad_logits_are_named),
        cmocka_unit_test(a_bias_can_ban_and_force),
        cmocka_unit_test(repetition_counts_prompt_and_answer_once),
        cmocka_unit_test(presence_and_frequency_count_the_answer_only),
        cmocka_unit_test(history_outside_the_vocabulary_is_refused),
        cmocka_unit_test(draws_are_keyed_by_position),
        cmocka_unit_test(options_outside_their_range_are_refused),
        cmocka_unit_test(a_bias_outside_its_range_is_refused),
        cmocka_unit_test(a_vocabulary_too_large_for_the_draw_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
