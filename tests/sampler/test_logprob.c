/* Log softmax and the most likely tokens. */
#include "logprob.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static uint32_t random_state;

static float random_float(void) /* -1..1 */
{
    random_state = random_state * 1664525u + 1013904223u;
    return (float)(int32_t)random_state / 2147483648.0f;
}

static double exact_log_sum(const float *logits, uint64_t n, float max)
{
    double sum = 0.0;
    for (uint64_t i = 0; i < n; i++) sum += exp((double)logits[i] - (double)max);
    return log(sum);
}

static void matches_a_softmax_in_double(void **state)
{
    (void)state;
    enum { MAX_N = 5000 };
    static float logits[MAX_N], out[MAX_N];
    const uint64_t sizes[] = {1, 2, 7, 8, 9, 15, 511, 512, 513, 1031, MAX_N};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        uint64_t n = sizes[s];
        float max = -INFINITY;
        for (uint64_t i = 0; i < n; i++) {
            logits[i] = 30.0f * random_float();
            if (logits[i] > max) max = logits[i];
        }
        struct log_normaliser normaliser;
        assert_int_equal(afmoe__log_normaliser(&normaliser, logits, n, NULL), AFMOE_OK);
        double exact = exact_log_sum(logits, n, max);
        assert_true(normaliser.max == max);
        assert_true(fabs(normaliser.log_sum - exact) < 5e-7);
        assert_int_equal(afmoe__logprobs(out, logits, n, NULL), AFMOE_OK);
        for (uint64_t i = 0; i < n; i++)
            assert_true(fabs((double)out[i] - ((double)logits[i] - (double)max - exact)) < 5e-6);
    }
}

static void infinite_and_huge_logits(void **state)
{
    (void)state;
    float logits[4] = {-INFINITY, 3e38f, 3e38f, -3e38f}, out[4];
    assert_int_equal(afmoe__logprobs(out, logits, 4, NULL), AFMOE_OK);
    assert_true(out[0] == -INFINITY);
    assert_true(fabsf(out[1] + 0.6931472f) < 1e-6f && out[1] == out[2]);
    assert_true(out[3] < -3e38f);
}

static void what_is_no_number_is_named(void **state)
{
    (void)state;
    afmoe_error error = {.size = sizeof error};
    float logits[4] = {1, 2, NAN, 4}, out[4];
    assert_int_equal(afmoe__logprobs(out, logits, 4, &error), AFMOE_NUMERIC);
    assert_string_equal(error.message, "the logit of token 2 is NaN");
    logits[2] = INFINITY;
    assert_int_equal(afmoe__logprobs(out, logits, 4, &error), AFMOE_NUMERIC);
    assert_string_equal(error.message, "the logit of token 2 is infinite");
    for (int i = 0; i < 4; i++) logits[i] = -INFINITY;
    assert_int_equal(afmoe__logprobs(out, logits, 4, &error), AFMOE_NUMERIC);
    assert_string_equal(error.message, "none of 4 logits is finite");
}

static void top_is_sorted_by_value_then_id(void **state)
{
    (void)state;
    const float logits[8] = {1, 5, 3, 5, -INFINITY, 9, 3, 0};
    const uint8_t usable[8] = {1, 1, 1, 1, 1, 0, 1, 1};
    const afmoe_token want[6] = {1, 3, 2, 6, 0, 7};
    struct log_normaliser normaliser;
    assert_int_equal(afmoe__log_normaliser(&normaliser, logits, 8, NULL), AFMOE_OK);
    for (uint64_t k = 0; k <= 8; k++) {
        afmoe_token tokens[8];
        float logprobs[8];
        uint64_t n = afmoe__top_logprobs(&normaliser, logits, usable, 8, k, tokens, logprobs);
        assert_int_equal(n, k < 6 ? k : 6);
        for (uint64_t i = 0; i < n; i++) {
            assert_int_equal(tokens[i], want[i]);
            /* row 5 is no token, but counts in the distribution */
            assert_true(logprobs[i] == log_probability(&normaliser, logits[want[i]]));
        }
    }
    afmoe_token token;
    float logprob;
    assert_int_equal(afmoe__top_logprobs(&normaliser, logits, NULL, 8, 1, &token, &logprob), 1);
    assert_int_equal(token, 5);
}

static void top_of_many_equals_a_full_sort(void **state)
{
    (void)state;
    enum { ROWS = 3000, K = 700 };
    static float logits[ROWS], logprobs[K];
    static afmoe_token tokens[K];
    for (int i = 0; i < ROWS; i++) logits[i] = floorf(random_float() * 200.0f); /* with ties */
    struct log_normaliser normaliser;
    assert_int_equal(afmoe__log_normaliser(&normaliser, logits, ROWS, NULL), AFMOE_OK);
    assert_int_equal(afmoe__top_logprobs(&normaliser, logits, NULL, ROWS, K, tokens, logprobs), K);
    for (int i = 0; i < K; i++) {
        int rank = 0; /* tokens that come before this one */
        for (int j = 0; j < ROWS; j++)
            rank += logits[j] > logits[tokens[i]] || (logits[j] == logits[tokens[i]] && j < tokens[i]);
        assert_int_equal(rank, i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_a_softmax_in_double),
        cmocka_unit_test(infinite_and_huge_logits),
        cmocka_unit_test(what_is_no_number_is_named),
        cmocka_unit_test(top_is_sorted_by_value_then_id),
        cmocka_unit_test(top_of_many_equals_a_full_sort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
