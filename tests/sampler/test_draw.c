/* The generator and the choice of kept tokens. */
#include "draw.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* Known answers published with Random123 (kat_vectors). */
static void philox_gives_the_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t out[4];
        afmoe__philox(out, cases[i].counter, cases[i].key);
        assert_memory_equal(out, cases[i].want, sizeof out);
    }
}

enum { N = 8, N_POSITIONS = 4000 };

/* Which tokens ever come out over many positions, as a bit mask. */
static unsigned drawn(float temperature, uint64_t top_k, float top_p, float min_p, const float *z)
{
    uint64_t keys[N], weights[N];
    uint32_t indices[N];
    struct draw draw = {temperature, top_p, min_p, top_k, keys, weights, indices};
    float max = -INFINITY;
    for (int i = 0; i < N; i++) max = z[i] > max ? z[i] : max;
    unsigned mask = 0;
    for (uint64_t position = 0; position < N_POSITIONS; position++)
        mask |= 1u << afmoe__draw(&draw, z, N, max, 7, position);
    return mask;
}

#define OFF ((uint64_t)1 << 32)

/* Probabilities 0.4, 0.3, 0.2, 0.1 at odd places; the others never. */
static void four(float z[N])
{
    for (int i = 0; i < N; i++) z[i] = -INFINITY;
    z[1] = logf(0.2f);
    z[3] = logf(0.4f);
    z[5] = logf(0.1f);
    z[7] = logf(0.3f);
}

static void each_filter_keeps_what_it_should(void **state)
{
    (void)state;
    float z[N];
    four(z);
    assert_int_equal(drawn(1, OFF, 1, 0, z), 0xaa);
    assert_int_equal(drawn(1, 1, 1, 0, z), 0x08);
    assert_int_equal(drawn(1, 2, 1, 0, z), 0x88);
    assert_int_equal(drawn(1, 3, 1, 0, z), 0x8a);
    assert_int_equal(drawn(1, 4, 1, 0, z), 0xaa);
    assert_int_equal(drawn(1, OFF, 0, 0, z), 0x08);
    assert_int_equal(drawn(1, OFF, 0.39f, 0, z), 0x08);
    assert_int_equal(drawn(1, OFF, 0.41f, 0, z), 0x88); /* the one that crosses stays */
    assert_int_equal(drawn(1, OFF, 0.69f, 0, z), 0x88);
    assert_int_equal(drawn(1, OFF, 0.71f, 0, z), 0x8a);
    assert_int_equal(drawn(1, OFF, 0.91f, 0, z), 0xaa);
    assert_int_equal(drawn(1, OFF, 1, 0.26f, z), 0x8a);
    assert_int_equal(drawn(1, OFF, 1, 0.51f, z), 0x88);
    assert_int_equal(drawn(1, OFF, 1, 1, z), 0x08);
}

static void filters_see_what_those_before_them_left(void **state)
{
    (void)state;
    float z[N];
    four(z);
    /* of {0.4, 0.3} renormalised, 0.56 reaches 0.55 alone; of all four it would not */
    assert_int_equal(drawn(1, 2, 0.55f, 0, z), 0x08);
    assert_int_equal(drawn(1, OFF, 0.55f, 0, z), 0x88);
    /* temperature comes first: at 0.1 the best has 0.94 of the weight */
    assert_int_equal(drawn(0.1f, OFF, 0.9f, 0, z), 0x08);
    assert_int_equal(drawn(10, OFF, 1, 0.9f, z), 0x8a); /* 0.2/0.4 to the power 0.1 is 0.93, 0.1/0.4: 0.87 */
}

static void ties_go_to_the_lower_id(void **state)
{
    (void)state;
    float z[N] = {0, 1, 1, -1, 1, 1, 0, 1};
    assert_int_equal(drawn(1, 3, 1, 0, z), 0x16);
    assert_int_equal(drawn(1, OFF, 0.3f, 0, z), 0x06);
    float zeros[N] = {0, -0.0f, 0, -0.0f, 0, 0, 0, 0};
    assert_int_equal(drawn(1, 2, 1, 0, zeros), 0x03);
}

static void many_rows_that_share_all_high_bits(void **state)
{
    (void)state;
    enum { ROWS = 70000 };
    float *z = malloc(ROWS * sizeof *z);
    uint64_t *keys = malloc(ROWS * sizeof *keys), *weights = malloc(ROWS * sizeof *weights);
    uint32_t *indices = malloc(ROWS * sizeof *indices);
    for (int i = 0; i < ROWS; i++) z[i] = 1.0f;
    struct draw draw = {1.0f, 1.0f, 0.0f, 40000, keys, weights, indices};
    afmoe_token highest = 0;
    for (uint64_t position = 0; position < 300; position++) {
        afmoe_token token = afmoe__draw(&draw, z, ROWS, 1.0f, 1, position);
        if (token > highest) highest = token;
    }
    assert_in_range(highest, 39000, 39999);
    free(z);
    free(keys);
    free(weights);
    free(indices);
}

static void seed_and_position_decide(void **state)
{
    (void)state;
    float z[N] = {0};
    uint64_t keys[N], weights[N];
    uint32_t indices[N];
    struct draw draw = {1.0f, 1.0f, 0.0f, OFF, keys, weights, indices};
    int n_other_seed = 0, n_other_position = 0;
    for (uint64_t position = 0; position < 1000; position++) {
        afmoe_token token = afmoe__draw(&draw, z, N, 0, 1, position);
        assert_int_equal(token, afmoe__draw(&draw, z, N, 0, 1, position));
        n_other_seed += token != afmoe__draw(&draw, z, N, 0, (uint64_t)1 << 63 | 1, position);
        n_other_position += token != afmoe__draw(&draw, z, N, 0, 1, position + ((uint64_t)1 << 40));
    }
    assert_in_range(n_other_seed, 800, 950); /* 7 of 8 */
    assert_in_range(n_other_position, 800, 950);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_known_answers),
        cmocka_unit_test(each_filter_keeps_what_it_should),
        cmocka_unit_test(filters_see_what_those_before_them_left),
        cmocka_unit_test(ties_go_to_the_lower_id),
        cmocka_unit_test(many_rows_that_share_all_high_bits),
        cmocka_unit_test(seed_and_position_decide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
