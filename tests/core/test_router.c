/* Router selection against a plain double-precision computation, and its edges: ties, groups, NaN. */
#include "router.h"

#include "cpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_EXPERTS = 256 };

static struct kernels kernels;

static int select_kernels(void **state)
{
    (void)state;
    afmoe__kernels_select(&kernels, afmoe__cpu_level());
    return 0;
}

static struct model_config config_of(uint32_t n, uint32_t k, uint32_t groups, uint32_t chosen)
{
    return (struct model_config){.n_experts = n, .n_experts_per_token = k, .n_groups = groups,
                                 .n_groups_chosen = chosen, .score = SCORE_SIGMOID, .route_norm = true,
                                 .route_scale = 2.5};
}

static float random_float(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)((int32_t)(*state >> 8) - (1 << 23)) / (1 << 22);
}

/* Selection as a stranger would write it: all experts of the groups kept, sorted by biased score. */
static void choose_plainly(uint32_t *ids, double *weights, const float *z, const float *bias,
                           const struct model_config *c)
{
    double score[MAX_EXPERTS], group_score[MAX_EXPERTS], sum = 0;
    int open[MAX_EXPERTS];
    uint32_t size = c->n_experts / c->n_groups;
    for (uint32_t e = 0; e < c->n_experts; e++) sum += exp(z[e]);
    for (uint32_t e = 0; e < c->n_experts; e++)
        score[e] = c->score == SCORE_SIGMOID ? 1 / (1 + exp(-(double)z[e])) : exp(z[e]) / sum;
    for (uint32_t g = 0; g < c->n_groups; g++) {
        double best[2] = {-1e30, -1e30};
        for (uint32_t e = g * size; e < (g + 1) * size; e++) {
            double b = score[e] + bias[e];
            if (b > best[0]) {
                best[1] = best[0];
                best[0] = b;
            } else if (b > best[1]) {
                best[1] = b;
            }
        }
        group_score[g] = size > 1 ? best[0] + best[1] : best[0];
    }
    for (uint32_t e = 0; e < c->n_experts; e++) {
        uint32_t better = 0;
        for (uint32_t g = 0; g < c->n_groups; g++) better += group_score[g] > group_score[e / size];
        open[e] = better < c->n_groups_chosen;
    }
    double total = 0;
    for (uint32_t i = 0; i < c->n_experts_per_token; i++) {
        uint32_t best = MAX_EXPERTS;
        for (uint32_t e = 0; e < c->n_experts; e++)
            if (open[e] && (best == MAX_EXPERTS || score[e] + bias[e] > score[best] + bias[best])) best = e;
        open[best] = 0;
        ids[i] = best;
        weights[i] = score[best];
        total += score[best];
    }
    for (uint32_t i = 0; i < c->n_experts_per_token; i++)
        weights[i] = (c->route_norm ? weights[i] / (total + 1e-20) : weights[i]) * c->route_scale;
}

static void check_random(const struct model_config *config)
{
    uint32_t random = 7;
    for (int round = 0; round < 200; round++) {
        float z[MAX_EXPERTS], bias[MAX_EXPERTS], scratch[3 * MAX_EXPERTS], weights[MAX_EXPERTS];
        uint32_t ids[MAX_EXPERTS], plain_ids[MAX_EXPERTS];
        double plain_weights[MAX_EXPERTS];
        for (uint32_t e = 0; e < config->n_experts; e++) {
            z[e] = 3 * random_float(&random);
            bias[e] = 0.2f * random_float(&random);
        }
        afmoe__router_choose(ids, weights, z, bias, config, &kernels, scratch);
        choose_plainly(plain_ids, plain_weights, z, bias, config);
        assert_memory_equal(ids, plain_ids, config->n_experts_per_token * sizeof *ids);
        for (uint32_t i = 0; i < config->n_experts_per_token; i++)
            assert_true(fabs(weights[i] - plain_weights[i]) <= 2e-6 * fabs(plain_weights[i]) + 1e-9);
    }
}

static void matches_plain_computation(void **state)
{
    static const uint32_t shapes[][4] = {{8, 2, 1, 1},   {128, 8, 1, 1}, {256, 4, 1, 1}, {16, 3, 4, 2},
                                         {16, 4, 16, 8}, {12, 6, 3, 2},  {1, 1, 1, 1},   {8, 8, 1, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int variant = 0; variant < 4; variant++) {
            struct model_config config = config_of(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
            config.score = variant & 1 ? SCORE_SOFTMAX : SCORE_SIGMOID;
            config.route_norm = variant & 2;
            check_random(&config);
        }
}

static void ties_go_to_the_lower_id(void **state)
{
    struct model_config config = config_of(8, 3, 1, 1);
    float z[8] = {0, 1, 1, 0, 1, 1, 0, 0}, bias[8] = {0}, scratch[24], weights[3];
    uint32_t ids[3];
    (void)state;
    afmoe__router_choose(ids, weights, z, bias, &config, &kernels, scratch);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 2);
    assert_int_equal(ids[2], 4);
}

static void bias_selects_but_does_not_weigh(void **state)
{
    struct model_config config = config_of(4, 1, 1, 1);
    float z[4] = {2, 1, 0, -1}, bias[4] = {0, 0, 0, 5}, scratch[12], weight;
    uint32_t id;
    (void)state;
    config.route_norm = false;
    config.route_scale = 1;
    afmoe__router_choose(&id, &weight, z, bias, &config, &kernels, scratch);
    assert_int_equal(id, 3);
    assert_true(fabs(weight - 1 / (1 + exp(1.0))) < 1e-6);
}

/* Broken weights must not lead outside the expert table. */
static void nan_still_gives_valid_ids(void **state)
{
    static const uint32_t shapes[][4] = {{8, 3, 1, 1}, {8, 3, 4, 2}, {8, 8, 1, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int pattern = 0; pattern < 256; pattern++) {
            struct model_config config = config_of(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
            float z[8], bias[8] = {0}, scratch[24], weights[8];
            uint32_t ids[8], seen = 0;
            for (int e = 0; e < 8; e++) z[e] = pattern >> e & 1 ? NAN : (float)e;
            afmoe__router_choose(ids, weights, z, bias, &config, &kernels, scratch);
            for (uint32_t j = 0; j < config.n_experts_per_token; j++) {
                assert_true(ids[j] < 8);
                assert_false(seen >> ids[j] & 1);
                seen |= 1u << ids[j];
            }
            /* It is chosen first, so that it shows in the output. */
            if (pattern) assert_true(pattern >> ids[0] & 1 && isnan(weights[0]));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_plain_computation), cmocka_unit_test(ties_go_to_the_lower_id),
        cmocka_unit_test(bias_selects_but_does_not_weigh), cmocka_unit_test(nan_still_gives_valid_ids)};
    return cmocka_run_group_tests_name("router", tests, select_kernels, NULL);
}
