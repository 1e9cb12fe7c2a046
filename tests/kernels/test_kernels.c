/* Every kernel at every level this CPU has, the reference included, against the same computation in double.
 *
 * Tolerances are error bounds, not measurements: u = 2^-24, and a sum of n terms in eight lanes with two roundings a
 * step errs by at most (n/8 + 5) u times the sum of the terms' sizes (Higham, Accuracy and Stability, 4.2), plus
 * half the smallest denormal a term. What is exact (decoding, storing, rotating, adding) must have the bits of the
 * reference. Inputs end at a guard page; outputs lie in poison that must survive.
 *
 *   test_kernels               the tests
 *   test_kernels --exhaustive  exp over all 2^32 floats instead of every 251st
 *   test_kernels --bench [FORMAT, attention]  figures instead of tests */
#include "afmoe.h"
#include "bench_kernels.h"
#include "cpu.h"
#include "exp.h"
#include "guarded.h"
#include "half.h"
#include "kernels.h"
#include "safetensors.h"
#include "test_paths.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define U        0x1p-24
#define DENORMAL 0x1p-149

enum { MAX_LEVELS = 8, MAX_BYTES = 4 << 20 };

static struct kernels levels[MAX_LEVELS]; /* those that differ, the reference first */
static int n_levels;
static uint64_t exp_stride = 251;

/* ---- Inputs ---- */

static uint64_t random_state = 1;

static uint32_t random32(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = random_state ^ random_state >> 33;
    return (uint32_t)((x * 0xff51afd7ed558ccdu) >> 32);
}

static uint32_t below(uint32_t n)
{
    return (uint32_t)((uint64_t)random32() * n >> 32);
}

static float uniform(void) /* (-1, 1) */
{
    return (float)((double)random32() / 0x1p31 - 1.0);
}

enum kind { PLAIN, LARGE, SMALL, DENORMALS, EQUAL, CANCELLING, N_KINDS };

static float draw(enum kind kind, uint64_t k)
{
    switch (kind) {
    case PLAIN: return uniform() * 4;
    case LARGE: return uniform() * 0x1p50f;
    case SMALL: return uniform() * 0x1p-66f;
    case DENORMALS: return uniform() * 0x1p-127f;
    case EQUAL: return 1.25f;
    default: return (k & 1 ? -1.0f : 1.0f) * (1000.0f + uniform());
    }
}

static void fill(float *x, uint64_t n, enum kind kind)
{
    for (uint64_t k = 0; k < n; k++) x[k] = draw(kind, k);
}

static const uint64_t large_sizes[] = {128, 256, 1024, 1408, 3072};
enum { N_SMALL_SIZES = 101, N_SIZES = N_SMALL_SIZES + 5 };

static uint64_t size_of_case(int i)
{
    return i < N_SMALL_SIZES ? (uint64_t)i : large_sizes[i - N_SMALL_SIZES];
}

static struct guarded in[4], out_memory[2];

static float *place_floats(struct guarded *g, uint64_t n, enum kind kind)
{
    float *x = guarded_place(g, n * sizeof *x);
    fill(x, n, kind);
    return x;
}

/* ---- Checks ---- */

static bool same_bits(const void *a, const void *b, size_t bytes)
{
    return bytes == 0 || memcmp(a, b, bytes) == 0;
}

static void expect_near(float got, double want, double tolerance, const char *what, int level, uint64_t n, uint64_t k)
{
    if (fabs(got - want) <= tolerance) return;
    fail_msg("%s, level %s, size %llu, element %llu: got %.9g, want %.17g, tolerance %g", what,
             afmoe__cpu_level_name(level), (unsigned long long)n, (unsigned long long)k, got, want, tolerance);
}

/* Error in units of the last place of the float nearest to `want`. */
static double ulps(float got, double want)
{
    int exponent;
    if (isinf(want) || fabs(want) >= 0x1.ffffffp127) return isinf(got) && (got > 0) == (want > 0) ? 0 : INFINITY;
    frexp(want, &exponent);
    double unit = ldexp(1, exponent - 24 < -149 ? -149 : exponent - 24);
    if (isinf(got)) got = 0x1.fffffep127f; /* the next float after the largest is one unit away */
    return fabs(got - want) / unit;
}

/* ---- 16-bit floats ---- */

static void test_f16_round_trip(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float x = f16_to_f32((uint16_t)h);
        uint32_t exponent = h >> 10 & 31, mantissa = h & 1023;
        double want = exponent ? ldexp(1024 + mantissa, (int)exponent - 25) : ldexp(mantissa, -24);
        if (exponent == 31) want = INFINITY;
        if (exponent == 31 && mantissa) {
            assert_true(isnan(x));
            assert_int_equal(f16_from_f32(x), h | 0x200);
            continue;
        }
        assert_true(x == (h & 0x8000 ? -want : want));
        assert_int_equal(f16_from_f32(x), h);
        assert_int_equal(bf16_from_f32(bf16_to_f32((uint16_t)h)), isnan(bf16_to_f32((uint16_t)h)) ? (h | 0x40) : h);
    }
}

/* The nearest of three neighbours, ties to the even code; the codes of one sign are in the order of their values. */
static void expect_nearest(float x, uint16_t code, float (*widen)(uint16_t), uint16_t infinity, double limit)
{
    double size = fabs((double)x);
    uint16_t c = code & 0x7fff;
    assert_int_equal(code >> 15, float_bits(x) >> 31);
    assert_true(c <= infinity);
    if (c == infinity) {
        assert_true(size >= limit);
        return;
    }
    double error = fabs(size - widen(c));
    double above = c + 1 < infinity ? fabs(size - widen(c + 1)) : INFINITY;
    double under = c > 0 ? fabs(size - widen(c - 1)) : INFINITY;
    assert_true(error < above || (error == above && !(c & 1)));
    assert_true(error < under || (error == under && !(c & 1)));
    if (c + 1 == infinity) assert_true(size < limit);
}

static void test_rounding_to_16_bits(void **state)
{
    (void)state;
    for (uint64_t bits = 0; bits < 0x100000000u; bits += bits % 8191 == 0 ? 1 : 4095) {
        float x = float_from_bits((uint32_t)bits);
        if (isnan(x)) {
            assert_true(isnan(f16_to_f32(f16_from_f32(x))) && isnan(bf16_to_f32(bf16_from_f32(x))));
            continue;
        }
        expect_nearest(x, f16_from_f32(x), f16_to_f32, 0x7c00, 65520);
        expect_nearest(x, bf16_from_f32(x), bf16_to_f32, 0x7f80, 0x1.ffp127);
    }
    /* halfway between neighbours, where only the rule of ties decides */
    for (uint16_t h = 0; h < 0x7c00; h++) {
        double middle = h == 0x7bff ? 65520 : ((double)f16_to_f32(h) + f16_to_f32(h + 1)) / 2;
        assert_int_equal(f16_from_f32((float)middle), h + (h & 1));
        assert_int_equal(f16_from_f32(nextafterf((float)middle, 0)), h);
        assert_int_equal(f16_from_f32(nextafterf((float)middle, INFINITY)), h + 1);
    }
}

/* One group of Q8_0: the smallest scale that will do, the nearest whole numbers; not a number is one to all of it. */
static void expect_group(const uint8_t *page, bool is_value, uint64_t head_dim, uint32_t position, uint64_t group,
                         const float *x)
{
    uint64_t first = group * CELL_GROUP, end = first + CELL_GROUP < head_dim ? first + CELL_GROUP : head_dim;
    float max = 0;
    uint16_t scale;
    memcpy(&scale, page + cell_scale_offset(CELLS_Q8_0, is_value, head_dim, position, group), sizeof scale);
    for (uint64_t i = first; i < end; i++) max = fabsf(x[i]) > max || isnan(x[i]) ? fabsf(x[i]) : max;
    bool finite = max / 127 <= 65504; /* not of NaN */
    for (uint64_t i = first; i < end; i++) finite &= !isnan(x[i]);
    float d = f16_to_f32(scale);
    if (finite) assert_true(d >= max / 127 && (scale == 0 || f16_to_f32((uint16_t)(scale - 1)) < max / 127));
    else assert_true(isnan(d));
    for (uint64_t i = first; i < end; i++) {
        int8_t c = (int8_t)page[cell_offset(CELLS_Q8_0, is_value, head_dim, position, i)];
        if (!finite || d == 0) assert_int_equal(c, 0);
        else assert_true(c >= -127 && c == nearbyint((double)(x[i] * (1 / d))));
        if (finite && d > 0) assert_true(fabs((double)x[i] - (double)c * d) <= d / 2 * (1 + 256 * U));
    }
}

static void expect_stored(enum cell_format format, bool is_value, const uint8_t *page, const float *x,
                          uint64_t head_dim, uint32_t position)
{
    uint64_t n_bytes = head_page_bytes(format, head_dim), n_untouched = 0, cell = cell_bytes(format);
    uint64_t n_groups = cell_groups(head_dim);
    for (uint64_t i = 0; i < head_dim; i++) {
        uint64_t at = cell_offset(format, is_value, head_dim, position, i);
        uint16_t h = format == CELLS_F16 ? f16_from_f32(x[i]) : bf16_from_f32(x[i]);
        assert_true(at + cell <= n_bytes);
        if (format == CELLS_Q8_0) continue;
        assert_true(same_bits(page + at, format == CELLS_F32 ? (const void *)&x[i] : (const void *)&h, cell));
    }
    for (uint64_t g = 0; format == CELLS_Q8_0 && g < n_groups; g++)
        expect_group(page, is_value, head_dim, position, g, x);
    for (uint64_t at = 0; at < n_bytes; at++) n_untouched += page[at] == 0;
    assert_true(n_untouched >= n_bytes - head_dim * cell - n_groups * cell_scale_bytes(format));
}

static void check_stores(enum cell_format format, const float *x, uint64_t n)
{
    uint64_t n_bytes = head_page_bytes(format, n);
    for (int l = 0; l < n_levels; l++)
        for (int is_value = 0; is_value < 2; is_value++) {
            uint32_t position = below(PAGE_POSITIONS);
            uint8_t *page = poisoned_place(&out_memory[0], n_bytes);
            memset(page, 0, n_bytes);
            (is_value ? levels[l].store_value : levels[l].store_key)[format](page, x, n, position);
            expect_stored(format, is_value, page, x, n, position);
            assert_true(poison_whole(&out_memory[0], n_bytes));
        }
}

/* half.h, which the tests above hold to the formats, says the bits. */
static void test_store_cells(void **state)
{
    (void)state;
    for (int c = 0; c < N_CELL_FORMATS; c++)
        for (int i = 0; i < 2 * N_SIZES; i++) {
            uint64_t n = size_of_case(i / 2);
            float *x = guarded_place(&in[0], n * sizeof *x);
            for (uint64_t k = 0; k < n; k++) { /* within f16; in every other case half of them any bits, NaN too */
                uint32_t bits = random32();
                x[k] = i % 2 && k & 1 ? float_from_bits(bits) : ldexpf(uniform(), (int)below(48) - 30);
            }
            check_stores((enum cell_format)c, x, n);
        }
}

/* Groups of Q8_0 with one number that decides, at every place: where scales begin, end and are rounded. */
static void test_store_q8_0(void **state)
{
    (void)state;
    static const float largest[] = {0, 0x1p-149f, 127 * 0x1p-149f, 0x1p-126f, 127 * 0x1p-25f, 127 * 0x1p-24f,
                                    127 * 0x1.8p-24f, 0x1p-14f, 1, 126.99999f, 127, 127.00001f, 127 * 1.0009766f,
                                    65504, 65520, 127 * 65503.f, 127 * 65504.f, 127 * 65505.f, 0x1p127f, INFINITY, NAN};
    for (size_t i = 0; i < sizeof largest / sizeof *largest; i++)
        for (uint64_t n = 1; n <= 2 * CELL_GROUP + 1; n++) {
            float *x = guarded_place(&in[0], n * sizeof *x);
            for (uint64_t k = 0; k < n; k++) x[k] = isfinite(largest[i]) ? uniform() * largest[i] : uniform();
            x[below((uint32_t)n)] = random32() & 1 ? largest[i] : -largest[i];
            check_stores(CELLS_Q8_0, x, n);
        }
}

/* No two cells or scales of a page share a byte. */
static void take(uint8_t *taken, uint64_t n_bytes, uint64_t at, uint64_t n)
{
    assert_true(at % n == 0 && at + n <= n_bytes);
    for (uint64_t i = 0; i < n; i++) assert_true(!taken[at + i]);
    memset(taken + at, 1, n);
}

static void test_page_layout(void **state)
{
    (void)state;
    static const uint64_t dims[] = {1, 2, 15, 16, 17, 32, 33, 49, 80, 128};
    for (int c = 0; c < N_CELL_FORMATS; c++)
        for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
            for (int is_value = 0; is_value < 2; is_value++) {
                uint64_t n_bytes = head_page_bytes((enum cell_format)c, dims[i]);
                uint64_t cell = cell_bytes((enum cell_format)c), scale = cell_scale_bytes((enum cell_format)c);
                uint8_t *taken = poisoned_place(&out_memory[0], n_bytes);
                memset(taken, 0, n_bytes);
                for (uint32_t j = 0; j < PAGE_POSITIONS; j++) {
                    for (uint64_t k = 0; k < dims[i]; k++)
                        take(taken, n_bytes, cell_offset((enum cell_format)c, is_value, dims[i], j, k), cell);
                    for (uint64_t g = 0; scale && g < cell_groups(dims[i]); g++)
                        take(taken, n_bytes, cell_scale_offset((enum cell_format)c, is_value, dims[i], j, g), scale);
                }
            }
}

/* ---- exp ---- */

static void test_exp(void **state)
{
    (void)state;
    double worst = 0;
    float at = 0;
    for (uint64_t bits = 0; bits < 0x100000000u; bits += exp_stride) {
        float x = float_from_bits((uint32_t)bits);
        float got = exp_f32(x);
        if (isnan(x)) {
            assert_true(isnan(got));
            continue;
        }
        double error = ulps(got, exp((double)x));
        if (error > worst) worst = error, at = x;
    }
    print_message("exp: largest error %.4f ulp, at %.9g\n", worst, at);
    assert_true(worst <= EXP_MAX_ULP);
    assert_true(exp_f32(0.0f) == 1.0f && exp_f32(-0.0f) == 1.0f);
    assert_true(exp_f32(-INFINITY) == 0.0f && isinf(exp_f32(INFINITY)));
}

/* exp as the vector kernels have it: 1 + exp(x) in double keeps every bit of exp(x) for -20 < x <= 0. */
static void test_exp_of_levels(void **state)
{
    (void)state;
    for (int l = 0; l < n_levels; l++) {
        double worst = 0;
        for (uint32_t bits = 0x80000000u; bits < 0xc1a00000u; bits += (uint32_t)exp_stride) {
            float x[2] = {0, float_from_bits(bits)}, max;
            double sum;
            levels[l].log_sum_exp(x, 2, &max, &sum);
            double error = ulps((float)(sum - 1), exp((double)x[1]));
            if (error > worst) worst = error;
        }
        print_message("exp of level %s on (-20, 0]: largest error %.4f ulp\n",
                      afmoe__cpu_level_name(levels[l].level), worst);
        assert_true(worst <= EXP_MAX_ULP);
    }
}

/* Three roundings (exp, 1 + e, the quotient) and what exp brings: under 3.5 units, over all floats. */
static void test_sigmoid_of_all_floats(void **state)
{
    (void)state;
    enum { BATCH = 64 };
    for (int l = 0; l < n_levels; l++) {
        float x[BATCH], got[BATCH];
        int n = 0;
        for (uint64_t bits = 0; bits < 0x100000000u; bits += 4 * exp_stride + 1) {
            x[n++] = float_from_bits((uint32_t)bits);
            if (n < BATCH) continue;
            levels[l].sigmoid(got, x, BATCH);
            for (n = 0; n < BATCH; n++)
                if (isnan(x[n]) ? !isnan(got[n]) : ulps(got[n], 1 / (1 + exp(-(double)x[n]))) > 3.5)
                    fail_msg("sigmoid(%.9g) = %.9g at level %s", x[n], got[n],
                             afmoe__cpu_level_name(levels[l].level));
            n = 0;
        }
    }
}

/* ---- Elementwise kernels ---- */

static void test_exact_elementwise(void **state)
{
    (void)state;
    for (int l = 1; l < n_levels; l++)
        for (int i = 0; i < N_SIZES; i++)
            for (int kind = 0; kind < N_KINDS; kind++) {
                uint64_t n = size_of_case(i);
                size_t bytes = n * sizeof(float);
                float *y = place_floats(&in[0], n, kind), *x = place_floats(&in[1], n, kind);
                float *got = poisoned_place(&out_memory[0], bytes), *want = poisoned_place(&out_memory[1], bytes);
                if (n) memcpy(got, x, bytes), memcpy(want, x, bytes);
                levels[l].add(got, y, n);
                levels[0].add(want, y, n);
                assert_true(same_bits(got, want, bytes) && poison_whole(&out_memory[0], bytes));
                levels[l].scale(got, 0.7f, n);
                levels[0].scale(want, 0.7f, n);
                assert_true(same_bits(got, want, bytes) && poison_whole(&out_memory[0], bytes));
                if (n & 1) continue;
                levels[l].rope(got, x, y, n);
                levels[0].rope(want, x, y, n);
                assert_true(same_bits(got, want, bytes) && poison_whole(&out_memory[0], bytes));
            }
}

static void test_reference_elementwise(void **state)
{
    (void)state;
    float x[4] = {1, -2, 3, 5}, y[4] = {10, 20, -30, 0.5f};
    levels[0].add(x, y, 4);
    assert_true(x[0] == 11 && x[1] == 18 && x[2] == -27 && x[3] == 5.5f);
    levels[0].scale(x, 2, 4);
    assert_true(x[0] == 22 && x[1] == 36 && x[2] == -54 && x[3] == 11);
    float cosine[2] = {0, 0.6f}, sine[2] = {1, 0.8f};
    levels[0].rope(x, cosine, sine, 4); /* pairs (22, -54) by a right angle, (36, 11) by 53 degrees */
    assert_true(x[0] == 54 && x[2] == 22);
    expect_near(x[1], 36 * 0.6 - 11 * 0.8, 1e-5, "rope", 0, 4, 1);
    expect_near(x[3], 11 * 0.6 + 36 * 0.8, 1e-5, "rope", 0, 4, 3);
}

static void test_add_scaled(void **state)
{
    (void)state;
    for (int l = 0; l < n_levels; l++)
        for (int i = 0; i < N_SIZES; i++)
            for (int kind = 0; kind < N_KINDS; kind++) {
                uint64_t n = size_of_case(i);
                size_t bytes = n * sizeof(float);
                float *y = place_floats(&in[0], n, kind), *x = place_floats(&in[1], n, kind);
                float *got = poisoned_place(&out_memory[0], bytes);
                float w = uniform();
                if (n) memcpy(got, x, bytes);
                levels[l].add_scaled(got, y, w, n);
                for (uint64_t k = 0; k < n; k++) {
                    double term = (double)w * y[k], want = x[k] + term;
                    expect_near(got[k], want, U * (fabs(term) + fabs(want)) * 1.001 + DENORMAL, "add_scaled",
                                levels[l].level, n, k);
                }
                assert_true(poison_whole(&out_memory[0], bytes));
            }
}

static void test_rms_norm(void **state)
{
    (void)state;
    const float eps = 1e-5f;
    for (int l = 0; l < n_levels; l++)
        for (int i = 0; i < N_SIZES; i++)
            for (int kind = 0; kind < N_KINDS; kind++)
                for (int in_place = 0; in_place < 2; in_place++) {
                    uint64_t n = size_of_case(i);
                    size_t bytes = n * sizeof(float);
                    float *x = place_floats(&in[0], n, kind), *w = place_floats(&in[1], n, PLAIN);
                    float *got = poisoned_place(&out_memory[0], bytes);
                    if (n && in_place) memcpy(got, x, bytes);
                    levels[l].rms_norm(got, in_place ? got : x, w, n, eps);
                    double sum = 0;
                    for (uint64_t k = 0; k < n; k++) sum += (double)x[k] * x[k];
                    double factor = 1 / sqrt(sum / (double)n + eps);
                    /* the sum's error is halved by the root; 6 roundings after it */
                    double relative = ((double)n / 8 + 5) * U / 2 + 6 * U;
                    for (uint64_t k = 0; k < n; k++) {
                        double want = x[k] * factor * w[k];
                        expect_near(got[k], want, fabs(want) * relative + 5 * DENORMAL, "rms_norm", levels[l].level,
                                    n, k);
                    }
                    assert_true(poison_whole(&out_memory[0], bytes));
                }
}

/* Gates from -120 to 120 with zeros and infinities-to-be among them. */
static float *place_gates(struct guarded *g, uint64_t n)
{
    float *x = guarded_place(g, n * sizeof *x);
    for (uint64_t k = 0; k < n; k++) x[k] = k % 5 == 4 ? uniform() * 120 : uniform() * 8;
    if (n > 3) x[n - 1] = -3e37f, x[n / 2] = 3e37f, x[0] = 0;
    return x;
}

static double sigmoid_double(double x)
{
    return 1 / (1 + exp(-x));
}

static void test_gates(void **state)
{
    (void)state;
    for (int l = 0; l < n_levels; l++)
        for (int i = 0; i < N_SIZES; i++) {
            uint64_t n = size_of_case(i);
            size_t bytes = n * sizeof(float);
            float *gate = place_gates(&in[0], n), *up = place_floats(&in[1], n, PLAIN);
            for (int in_place = 0; in_place < 2; in_place++) {
                float *got = poisoned_place(&out_memory[0], bytes);
                if (n && in_place) memcpy(got, gate, bytes);
                levels[l].silu_mul(got, in_place ? got : gate, up, n);
                for (uint64_t k = 0; k < n; k++) {
                    double want = gate[k] * sigmoid_double(gate[k]) * up[k];
                    double lost = (fabs((double)gate[k] * up[k]) * 4 + 1) * DENORMAL;
                    expect_near(got[k], want, fabs(want) * 8 * U + lost, "silu_mul", levels[l].level, n, k);
                }
                assert_true(poison_whole(&out_memory[0], bytes));
                got = poisoned_place(&out_memory[0], bytes);
                if (n && in_place) memcpy(got, gate, bytes);
                levels[l].sigmoid(got, in_place ? got : gate, n);
                for (uint64_t k = 0; k < n; k++)
                    assert_true(ulps(got[k], sigmoid_double(gate[k])) <= 3.5);
                assert_true(poison_whole(&out_memory[0], bytes));
            }
            float *x = poisoned_place(&out_memory[0], bytes);
            if (n) memcpy(x, up, bytes);
            levels[l].sigmoid_gate(x, gate, n);
            for (uint64_t k = 0; k < n; k++) {
                double want = up[k] * sigmoid_double(gate[k]);
                expect_near(x[k], want, fabs(want) * 7 * U + (fabs(up[k]) + 1) * 4 * DENORMAL, "sigmoid_gate",
                            levels[l].level, n, k);
            }
            assert_true(poison_whole(&out_memory[0], bytes));
        }
}

/* exp(z - max): the difference is rounded (|z - max| u), exp adds one unit; the sum of positive terms n/8 + 5. */
static void test_softmax(void **state)
{
    (void)state;
    for (int l = 0; l < n_levels; l++)
        for (int i = 1; i < N_SIZES; i++)
            for (int in_place = 0; in_place < 3; in_place++) {
                uint64_t n = size_of_case(i);
                size_t bytes = n * sizeof(float);
                float *z = place_gates(&in[0], n);
                for (uint64_t k = 0; k < n; k++)
                    if (fabsf(z[k]) > 1000) z[k] = in_place == 2 ? -INFINITY : -50;
                float *got = poisoned_place(&out_memory[0], bytes), max = -INFINITY;
                double sum = 0;
                memcpy(got, z, bytes);
                levels[l].softmax(got, in_place ? got : z, n);
                for (uint64_t k = 0; k < n; k++) max = z[k] > max ? z[k] : max;
                for (uint64_t k = 0; k < n; k++) sum += exp((double)z[k] - max);
                double total_relative = 0;
                for (uint64_t k = 0; k < n; k++)
                    if (!isinf(z[k])) total_relative += exp((double)z[k] - max) / sum * ((double)max - z[k]) * U;
                for (uint64_t k = 0; k < n; k++) {
                    double want = exp((double)z[k] - max) / sum;
                    double relative = isinf(z[k]) ? 0 : ((double)max - z[k]) * U;
                    relative += total_relative + ((double)n / 8 + 10) * U;
                    expect_near(got[k], want, want * relative * 1.001 + 2 * DENORMAL, "softmax", levels[l].level, n, k);
                }
                assert_true(poison_whole(&out_memory[0], bytes));
            }
}

static void test_log_sum_exp(void **state)
{
    (void)state;
    for (int l = 0; l < n_levels; l++) {
        for (int i = 1; i < N_SIZES; i++) {
            uint64_t n = size_of_case(i);
            float *x = place_gates(&in[0], n), max, want_max = -INFINITY;
            double sum, want = 0, slack = 0;
            for (uint64_t k = 0; k < n; k++)
                if (fabsf(x[k]) > 1000) x[k] = -INFINITY;
            levels[l].log_sum_exp(x, n, &max, &sum);
            for (uint64_t k = 0; k < n; k++) want_max = x[k] > want_max ? x[k] : want_max;
            for (uint64_t k = 0; k < n; k++) {
                double term = exp((double)x[k] - max);
                want += term;
                if (term > 0) slack += term * ((double)max - x[k] + 2.01) * U + DENORMAL;
            }
            assert_true(max == want_max && fabs(sum - want) <= slack + want * (double)n * 0x1p-53);
            uint64_t at = below((uint32_t)n);
            float kept = x[at];
            x[at] = NAN;
            levels[l].log_sum_exp(x, n, &max, &sum);
            assert_true(isnan(max) || isnan(sum));
            x[at] = INFINITY;
            levels[l].log_sum_exp(x, n, &max, &sum);
            assert_true(isinf(max) || isnan(sum));
            x[at] = kept;
        }
    }
}

/* ---- Products ---- */

/* The half nearest to a number drawn, brought under 60000. */
static uint16_t draw_half(enum kind kind, uint64_t k)
{
    float v = draw(kind, k);
    while (fabsf(v) > 60000) v *= 0x1p-8f;
    return f16_from_f32(v);
}

static void make_plain_row(enum tensor_format format, uint8_t *row, uint64_t n, enum kind kind)
{
    for (uint64_t k = 0; k < n; k++) {
        float v = draw(kind, k);
        uint16_t h = format == FORMAT_BF16 ? bf16_from_f32(v) : draw_half(kind, k);
        if (format == FORMAT_F32) memcpy(row + 4 * k, &v, 4);
        else memcpy(row + 2 * k, &h, 2);
    }
}

/* Where the halves of a block lie; the other bytes of it may have any value. */
static const struct {
    uint8_t n, at[2];
} halves_of[N_FORMATS] = {
    [FORMAT_Q8_0] = {1, {0}},      [FORMAT_Q4_0] = {1, {0}},   [FORMAT_Q4_1] = {2, {0, 2}},
    [FORMAT_Q5_0] = {1, {0}},      [FORMAT_Q5_1] = {2, {0, 2}}, [FORMAT_Q2_K] = {2, {80, 82}},
    [FORMAT_Q3_K] = {1, {108}},    [FORMAT_Q4_K] = {2, {0, 2}}, [FORMAT_Q5_K] = {2, {0, 2}},
    [FORMAT_Q6_K] = {1, {208}},    [FORMAT_IQ1_S] = {1, {0}},  [FORMAT_IQ2_XXS] = {1, {0}},
    [FORMAT_IQ2_XS] = {1, {0}},    [FORMAT_IQ2_S] = {1, {0}},  [FORMAT_IQ3_XXS] = {1, {0}},
    [FORMAT_IQ3_S] = {1, {0}},     [FORMAT_IQ4_NL] = {1, {0}}, [FORMAT_IQ4_XS] = {1, {0}},
    [FORMAT_TQ1_0] = {1, {52}},    [FORMAT_TQ2_0] = {1, {64}},
};

/* False: no half in this format. */
static bool set_half(enum tensor_format format, uint8_t *block, int i, uint16_t h)
{
    for (int part = 0; format == FORMAT_IQ1_M && i == 0 && part < 4; part++) { /* the top nibbles of its scales */
        uint8_t *top = block + 49 + 2 * part;
        *top = (uint8_t)((*top & 15) | (h >> 4 * part & 15) << 4);
    }
    if (i >= halves_of[format].n) return format == FORMAT_IQ1_M && i == 0;
    memcpy(block + halves_of[format].at[i], &h, sizeof h);
    return true;
}

static void make_block_row(enum tensor_format format, uint8_t *row, uint64_t n, enum kind kind)
{
    const struct format_traits *t = &afmoe__format_traits[format];
    const uint8_t equal = (const uint8_t[]){0x77, 0x00, 0x80, 0xff}[below(4)]; /* the least and the largest numbers */
    for (uint64_t k = 0; k < n; k += t->block_elements, row += t->block_bytes) {
        for (uint32_t i = 0; i < t->block_bytes; i++) row[i] = kind == EQUAL ? equal : (uint8_t)random32();
        for (int i = 0; i < 2; i++) set_half(format, row, i, draw_half(kind, k));
        if (format == FORMAT_MXFP4) row[0] = (uint8_t)(kind == DENORMALS ? below(3) : 90 + below(60));
    }
}

/* Fills one row of weights. The numbers it stands for are those of the reference, which test_decode_recorded and the
 * tests of 16-bit floats hold to the formats. */
static void make_row(enum tensor_format format, uint8_t *row, float *values, uint64_t n, enum kind kind)
{
    if (format <= FORMAT_BF16) make_plain_row(format, row, n, kind);
    else make_block_row(format, row, n, kind);
    levels[0].decode_row[format](values, row, n);
}

/* Rows of every block format as ggml's quantiser made them, and the values that gguf-py gives them. */
static void test_decode_recorded(void **state)
{
    (void)state;
    char path[4096];
    struct mapped_file file;
    struct safetensors recorded;
    struct tensor_table table = {0};
    data_path(path, sizeof path, "quants/quants.safetensors");
    assert_int_equal(afmoe__file_open(&file, path, FILE_MAPPED, NULL), AFMOE_OK);
    assert_int_equal(afmoe__safetensors_open(&recorded, &file, &table, 1 << 20, NULL), AFMOE_OK);
    assert_int_equal(afmoe__tensors_sort(&table, NULL), AFMOE_OK);
    for (int format = FORMAT_BF16; format < N_FORMATS; format++) {
        char name[32];
        snprintf(name, sizeof name, "%s.raw", afmoe__format_traits[format].name);
        const struct tensor *raw = afmoe__tensors_find(&table, name);
        snprintf(name, sizeof name, "%s.f32", afmoe__format_traits[format].name);
        const struct tensor *want = afmoe__tensors_find(&table, name);
        assert_true(raw && want && raw->n_dims == 2 && want->n_dims == 2 && raw->shape[0] == want->shape[0]);
        uint64_t n = want->shape[1];
        assert_int_equal(raw->shape[1], format_row_bytes((enum tensor_format)format, n));
        for (int l = 0; l < n_levels; l++)
            for (uint64_t r = 0; r < want->shape[0]; r++) {
                uint8_t *row = guarded_place(&in[0], raw->shape[1]);
                float *got = poisoned_place(&out_memory[0], n * sizeof *got);
                memcpy(row, raw->data + r * raw->shape[1], raw->shape[1]);
                levels[l].decode_row[format](got, row, n);
                if (!same_bits(got, want->data + r * n * sizeof *got, n * sizeof *got))
                    fail_msg("%s at level %s, row %llu", name, afmoe__cpu_level_name(levels[l].level),
                             (unsigned long long)r);
                assert_true(poison_whole(&out_memory[0], n * sizeof *got));
            }
    }
    afmoe__tensors_free(&table);
    afmoe__safetensors_close(&recorded);
}

enum { MAX_CASE_TOKENS = 20 };

struct product_case {
    enum tensor_format format;
    uint64_t n_columns, n_rows, n_tokens;
    uint64_t row_bytes, x_stride, out_stride;
    uint8_t *rows;
    float *values; /* [n_rows][n_columns] */
    float *x;
    const void *tokens[MAX_CASE_TOKENS]; /* as the product reads them: x + t * x_stride, or what is prepared of it */
};

static void make_case(struct product_case *c, enum kind kind)
{
    uint64_t exact = format_row_bytes(c->format, c->n_columns);
    c->row_bytes = exact + below(4); /* odd distances: no alignment may be assumed */
    c->x_stride = c->n_columns + below(9);
    c->out_stride = c->n_rows + below(5);
    c->rows = guarded_place(&in[0], c->n_rows ? (c->n_rows - 1) * c->row_bytes + exact : 0);
    for (uint64_t r = 0; r < c->n_rows; r++)
        make_row(c->format, c->rows + r * c->row_bytes, c->values + r * c->n_columns, c->n_columns, kind);
    c->x = guarded_place(&in[1], c->n_tokens ? ((c->n_tokens - 1) * c->x_stride + c->n_columns) * sizeof *c->x : 0);
    for (uint64_t t = 0; t < c->n_tokens; t++) {
        fill(c->x + t * c->x_stride, c->n_columns, kind);
        c->tokens[t] = c->x + t * c->x_stride;
    }
}

/* What token t gives against the sum in double: off by at most `roundings` of what the terms add up to, and `lost` for
 * each of them. */
static void check_product(const struct kernels *k, const struct product_case *c, uint64_t t, const float *out,
                          double roundings, double lost)
{
    const float *x = c->x + t * c->x_stride;
    for (uint64_t r = 0; r < c->n_rows; r++) {
        double want = 0, size = 0;
        for (uint64_t i = 0; i < c->n_columns; i++) {
            double term = (double)c->values[r * c->n_columns + i] * x[i];
            want += term;
            size += fabs(term);
        }
        expect_near(out[r], want, size * roundings * U + (double)c->n_columns * lost,
                    afmoe__format_traits[c->format].name, k->level, c->n_columns, r);
    }
}

/* What lies between the rows of two tokens is not written. */
static void check_gaps(const struct product_case *c, const float *many)
{
    for (uint64_t t = 0; t + 1 < c->n_tokens; t++) {
        const uint8_t *gap = (const uint8_t *)(many + t * c->out_stride + c->n_rows);
        for (size_t i = 0; i < (c->out_stride - c->n_rows) * sizeof(float); i++) assert_int_equal(gap[i], POISON);
    }
}

static void *place_scratch(const struct product_kernels *p, uint64_t n_columns)
{
    return guarded_place(&in[2], (p->panel_scratch_bytes(n_columns) + 63) / 64 * 64);
}

/* The panel of a case, which writes its outputs and nothing else: [n_tokens][out_stride]. */
static float *run_panel(const struct product_kernels *p, const struct product_case *c)
{
    size_t bytes = c->n_tokens ? ((c->n_tokens - 1) * c->out_stride + c->n_rows) * sizeof(float) : 0;
    float *many = poisoned_place(&out_memory[0], bytes);
    p->panel(many, c->out_stride, c->tokens, c->n_tokens, c->rows, c->row_bytes, c->n_rows, c->n_columns, NULL,
             place_scratch(p, c->n_columns));
    assert_true(poison_whole(&out_memory[0], bytes));
    check_gaps(c, many);
    return many;
}

/* Token t of a case alone, likewise: [n_rows]. */
static float *run_one_token(const struct product_kernels *p, const struct product_case *c, uint64_t t)
{
    float *one = poisoned_place(&out_memory[1], c->n_rows * sizeof *one);
    p->one_token(one, c->tokens[t], c->rows, c->row_bytes, c->n_rows, c->n_columns, c->rows);
    assert_true(poison_whole(&out_memory[1], c->n_rows * sizeof *one));
    return one;
}

static void check_case(const struct kernels *k, const struct product_case *c)
{
    const struct product_kernels *p = &k->product[PRECISION_EXACT][c->format];
    const float *many = run_panel(p, c);
    for (uint64_t t = 0; t < c->n_tokens; t++) {
        const float *one = run_one_token(p, c, t);
        assert_true(same_bits(one, many + t * c->out_stride, c->n_rows * sizeof *one));
        check_product(k, c, t, one, (double)c->n_columns / 8 + 5, DENORMAL);
    }
    /* a row alone, a token alone: the same bits */
    if (!c->n_rows || !c->n_tokens) return;
    uint64_t r = below((uint32_t)c->n_rows), t = below((uint32_t)c->n_tokens);
    float alone[2];
    const float *x = c->x + t * c->x_stride;
    p->one_token(&alone[0], x, c->rows + r * c->row_bytes, c->row_bytes, 1, c->n_columns, NULL);
    p->panel(&alone[1], 1, &c->tokens[t], 1, c->rows + r * c->row_bytes, c->row_bytes, 1, c->n_columns, c->rows,
             place_scratch(p, c->n_columns));
    assert_true(same_bits(&alone[0], many + t * c->out_stride + r, sizeof(float)));
    assert_true(same_bits(&alone[1], many + t * c->out_stride + r, sizeof(float)));
    float *decoded = poisoned_place(&out_memory[1], c->n_columns * sizeof *decoded);
    k->decode_row[c->format](decoded, c->rows + r * c->row_bytes, c->n_columns);
    assert_true(same_bits(decoded, c->values + r * c->n_columns, c->n_columns * sizeof *decoded));
    assert_true(poison_whole(&out_memory[1], c->n_columns * sizeof *decoded));
}

static void run_case(const struct kernels *k, enum tensor_format format, uint64_t n_columns, uint64_t n_rows,
                     uint64_t n_tokens, enum kind kind)
{
    struct product_case c = {.format = format, .n_columns = n_columns, .n_rows = n_rows, .n_tokens = n_tokens};
    c.values = malloc((n_rows * n_columns + 1) * sizeof *c.values);
    assert_non_null(c.values);
    make_case(&c, kind);
    check_case(k, &c);
    free(c.values);
}

static void test_products(void **state)
{
    (void)state;
    for (int l = 0; l < n_levels; l++)
        for (int format = 0; format < N_FORMATS; format++) {
            assert_int_equal(levels[l].product[PRECISION_EXACT][format].activation, ACTIVATION_F32);
            uint64_t block = afmoe__format_traits[format].block_elements;
            for (int i = 0; i < N_SIZES; i++) { /* every tail of columns */
                if (size_of_case(i) % block) continue;
                for (int kind = 0; kind < N_KINDS; kind++)
                    run_case(&levels[l], format, size_of_case(i), 1 + below(9), 1 + below(7), kind);
            }
            bool is_block = format > FORMAT_Q8_0; /* their panels are those of the others, with another decoding */
            for (uint64_t n_rows = 0; n_rows <= (is_block ? 9 : 40); n_rows++) /* every tail of rows and tokens */
                for (uint64_t n_tokens = 0; n_tokens <= (is_block ? 5 : 20); n_tokens++)
                    run_case(&levels[l], format, (block > 64 ? block : 64) + block * below(2), n_rows, n_tokens,
                             PLAIN);
            run_case(&levels[l], format, 12288, 9, 4, PLAIN);
        }
}

/* An infinity in a weight and a NaN in an activation reach their own outputs and no others. */
static void check_not_finite(const struct kernels *k, enum precision precision, enum tensor_format format)
{
    enum { N = 256, ROWS = 9, TOKENS = 4 };
    static uint16_t rounded[TOKENS][N];
    struct product_case c = {.format = format, .n_columns = N, .n_rows = ROWS, .n_tokens = TOKENS};
    const struct product_kernels *p = &k->product[precision][format];
    float values[ROWS * N], out[TOKENS][ROWS];
    c.values = values;
    make_case(&c, PLAIN);
    uint64_t bad_row = below(ROWS), bad_token = below(TOKENS), column = below(N);
    uint16_t h = format == FORMAT_BF16 ? 0x7f80 : 0x7c00;
    float inf = INFINITY, nan = NAN;
    uint8_t *row = c.rows + bad_row * c.row_bytes;
    uint64_t at = format_row_bytes(format, column - column % afmoe__format_traits[format].block_elements);
    if (format == FORMAT_F32) memcpy(row + at, &inf, sizeof inf);
    else if (format <= FORMAT_BF16) memcpy(row + at, &h, sizeof h);
    else if (!set_half(format, row + at, 0, h)) return; /* MXFP4, NVFP4: no infinity to write */
    memcpy(c.x + bad_token * c.x_stride + column, &nan, sizeof nan);
    for (uint64_t t = 0; t < TOKENS && p->activation == ACTIVATION_BF16; t++) {
        k->prepare[ACTIVATION_BF16](rounded[t], c.x + t * c.x_stride, N);
        c.tokens[t] = rounded[t];
    }
    void *scratch = place_scratch(p, N);
    p->panel(out[0], ROWS, c.tokens, TOKENS, c.rows, c.row_bytes, ROWS, N, NULL, scratch);
    for (uint64_t t = 0; t < TOKENS; t++)
        for (uint64_t r = 0; r < ROWS; r++) {
            if (t == bad_token) assert_true(isnan(out[t][r]));
            if (t != bad_token) assert_true(!isfinite(out[t][r]) == (r == bad_row));
        }
}

static void test_products_not_finite(void **state)
{
    (void)state;
    for (int l = 0; l < n_levels; l++)
        for (int trial = 0; trial < 50; trial++) {
            for (int format = 0; format < N_FORMATS; format++) check_not_finite(&levels[l], PRECISION_EXACT, format);
            check_not_finite(&levels[l], PRECISION_FAST, FORMAT_BF16);
        }
}

/* ---- Whole numbers ---- */

enum { MAX_WHOLE_COLUMNS = 2048, MAX_WHOLE_ROWS = 40, MAX_WHOLE_TOKENS = 11 };

static void check_sums(const int16_t *sums, int n_each, const int8_t *bytes, uint64_t n)
{
    for (uint64_t k = 0; k < n; k += (uint64_t)n_each) {
        int sum = 0;
        for (int i = 0; i < n_each; i++) sum += bytes[k + (uint64_t)i];
        assert_int_equal(sums[k / (uint64_t)n_each], sum);
    }
}

/* All levels, every kind: the bits of the reference; the reference: what activations.h says. */
static void check_prepared(enum activation_kind kind, const float *x, uint64_t n)
{
    uint64_t bytes = activation_bytes(kind, n), group = activation_group(kind);
    uint8_t *want = guarded_place(&in[2], bytes);
    memset(want, 0, bytes);
    levels[0].prepare[kind](want, x, n);
    const int8_t *numbers = (const int8_t *)want + activation_int8(kind, n);
    check_sums((const int16_t *)(const void *)(want + activation_sum32(kind, n)), 32, numbers, n);
    check_sums((const int16_t *)(const void *)(want + activation_sum16(kind, n)), 16, numbers, n);
    for (uint64_t k = 0; k < n; k++) {
        double max = 0;
        for (uint64_t i = k / group * group; i < (k / group + 1) * group; i++) max = fmax(max, fabs((double)x[i]));
        float d = ((float *)(void *)(want + activation_d(kind, n)))[k / group];
        int q = activation_q_bytes(kind) == 2 ? ((int16_t *)(void *)want)[k] : ((int8_t *)want)[k];
        assert_int_equal(q, numbers[k]);
        if (max < ACTIVATION_MIN) {
            assert_true(d == 0 && q == 0);
            continue;
        }
        assert_true(d == (float)max / 127);
        expect_near((float)q, x[k] / max * 127, 0.50002, "activation", 0, n, k);
    }
    for (int l = 1; l < n_levels; l++) {
        uint8_t *got = guarded_place(&in[3], bytes);
        memset(got, 0, bytes);
        levels[l].prepare[kind](got, x, n);
        assert_true(same_bits(got, want, bytes));
    }
}

static void test_prepare(void **state)
{
    (void)state;
    for (int kind = ACTIVATION_F32 + 1; kind < ACTIVATION_BF16; kind++)
        for (uint64_t n = 0; n <= 2048; n += activation_group(kind))
            for (int draws = 0; draws < N_KINDS; draws++) {
                float *x = place_floats(&in[0], n, draws);
                check_prepared(kind, x, n);
                if (n == 0) continue;
                memset(x, 0, activation_group(kind) * sizeof *x); /* a group of zeros */
                check_prepared(kind, x, n);
                for (uint64_t k = 0; k < n; k++) x[k] = ldexpf(uniform(), -100 - (int)below(40)); /* about the limit */
                check_prepared(kind, x, n);
            }
}

/* NaN and infinity: d is NaN, and only of their group. */
static void test_prepare_not_finite(void **state)
{
    (void)state;
    enum { N = 1024 };
    for (int l = 0; l < n_levels; l++)
        for (int kind = ACTIVATION_F32 + 1; kind < ACTIVATION_BF16; kind++)
            for (int trial = 0; trial < 100; trial++) {
                float *x = place_floats(&in[0], N, PLAIN);
                uint64_t at = below(N), group = activation_group(kind);
                x[at] = trial % 3 == 0 ? NAN : trial % 3 == 1 ? INFINITY : -INFINITY;
                if (trial % 2) x[at ^ 1] = INFINITY;
                uint8_t *out = guarded_place(&in[2], activation_bytes(kind, N));
                levels[l].prepare[kind](out, x, N);
                const float *d = (const float *)(void *)(out + activation_d(kind, N));
                for (uint64_t k = 0; k < N; k++) {
                    assert_true(isnan(d[k / group]) == (k / group == at / group));
                    int q = activation_q_bytes(kind) == 2 ? ((int16_t *)(void *)out)[k] : ((int8_t *)out)[k];
                    if (k / group == at / group) assert_int_equal(q, 0);
                }
            }
}

/* Token t as level l reads it. */
static const void *prepare_token(const struct kernels *k, enum activation_kind kind, const float *x, uint64_t n,
                                 uint64_t t)
{
    static _Alignas(64) uint8_t room[MAX_WHOLE_TOKENS][4 * MAX_WHOLE_COLUMNS];
    assert_true(activation_bytes(kind, n) <= sizeof room[0]);
    k->prepare[kind](room[t], x, n);
    return room[t];
}

/* The reference against sum of decoded weights times d q, in double. Each of the roundings (d times dx, that times a
 * sum, the sum added; twice with minima) errs by at most u of a partial sum's size. */
static void check_whole_reference(const struct product_case *c, const float *out)
{
    enum activation_kind kind = levels[0].product[PRECISION_FAST][c->format].activation;
    uint64_t n = c->n_columns, parts = n / 16 + 1;
    for (uint64_t t = 0; t < c->n_tokens; t++) {
        const uint8_t *p = prepare_token(&levels[0], kind, c->x + t * c->x_stride, n, t);
        const float *d = (const float *)(const void *)(p + activation_d(kind, n));
        for (uint64_t r = 0; r < c->n_rows; r++) {
            double want = 0, size = 0;
            for (uint64_t k = 0; k < n; k++) {
                double term = (double)c->values[r * n + k] * d[k / activation_group(kind)] * ((const int8_t *)p)[k];
                want += term;
                size += fabs(term);
            }
            /* with minima the terms cancel: d q and dmin min are summed apart, each up to 16 times their difference */
            double grown = size * (kind == ACTIVATION_INT8_256 ? 64 : 32);
            expect_near(out[t * c->out_stride + r], want, grown * (double)(parts + 4) * U + (double)n * 1e-38,
                        afmoe__format_traits[c->format].name, 0, n, r);
        }
    }
}

static void run_whole_case(enum tensor_format format, uint64_t n_columns, uint64_t n_rows, uint64_t n_tokens,
                           enum kind kind)
{
    static float values[MAX_WHOLE_ROWS * MAX_WHOLE_COLUMNS], want[MAX_WHOLE_TOKENS * (MAX_WHOLE_ROWS + 5)];
    struct product_case c = {.format = format, .n_columns = n_columns, .n_rows = n_rows, .n_tokens = n_tokens,
                             .values = values};
    make_case(&c, kind);
    for (int l = 0; l < n_levels; l++) {
        const struct product_kernels *p = &levels[l].product[PRECISION_FAST][format];
        for (uint64_t t = 0; t < n_tokens; t++)
            c.tokens[t] = prepare_token(&levels[l], p->activation, c.x + t * c.x_stride, n_columns, t);
        const float *many = run_panel(p, &c);
        for (uint64_t t = 0; t < n_tokens; t++) {
            const float *one = run_one_token(p, &c, t);
            if (l == 0) memcpy(want + t * c.out_stride, one, n_rows * sizeof *one);
            for (uint64_t r = 0; r < n_rows; r++)
                if (!same_bits(&one[r], &many[t * c.out_stride + r], sizeof *one) ||
                    !same_bits(&one[r], &want[t * c.out_stride + r], sizeof *one))
                    fail_msg("%s at level %s, %llu columns, %llu rows, %llu tokens: token %llu, row %llu: "
                             "one token %.9g, panel %.9g, reference %.9g",
                             afmoe__format_traits[format].name, afmoe__cpu_level_name(levels[l].level),
                             (unsigned long long)n_columns, (unsigned long long)n_rows, (unsigned long long)n_tokens,
                             (unsigned long long)t, (unsigned long long)r, one[r], many[t * c.out_stride + r],
                             want[t * c.out_stride + r]);
        }
        if (l == 0) check_whole_reference(&c, many);
    }
}

/* Block formats in whole numbers: the same bits at every level, alone and in a panel. */
static void test_whole_products(void **state)
{
    (void)state;
    for (int format = FORMAT_Q8_0; format < N_FORMATS; format++) {
        uint64_t block = afmoe__format_traits[format].block_elements;
        for (uint64_t n = 0; n <= MAX_WHOLE_COLUMNS; n += n < 4 * block ? block : 5 * block)
            for (int kind = 0; kind < N_KINDS; kind++)
                run_whole_case(format, n, 1 + below(20), 1 + below(6), kind);
        for (uint64_t n_rows = 0; n_rows <= MAX_WHOLE_ROWS; n_rows += 1 + n_rows / 9)
            for (uint64_t n_tokens = 0; n_tokens <= MAX_WHOLE_TOKENS; n_tokens++)
                run_whole_case(format, block * (1 + below(2)), n_rows, n_tokens, PLAIN);
    }
}

/* Every byte as the scale of a block: MXFP4 and NVFP4, whose scales are made by arithmetic of their own. */
static void test_byte_scales(void **state)
{
    static const enum tensor_format formats[] = {FORMAT_MXFP4, FORMAT_NVFP4};
    (void)state;
    for (int i = 0; i < 2; i++) {
        const uint64_t n = afmoe__format_traits[formats[i]].block_elements;
        const uint64_t bytes = afmoe__format_traits[formats[i]].block_bytes;
        uint8_t *rows = guarded_place(&in[0], 256 * bytes);
        float *x = place_floats(&in[1], n, PLAIN), want[256], got[5][256];
        for (uint64_t b = 0; b < 256 * bytes; b++) rows[b] = (uint8_t)random32();
        for (int b = 0; b < 256; b++)
            memset(rows + (uint64_t)b * bytes, b, formats[i] == FORMAT_MXFP4 ? 1 : 4); /* all of a block the same */
        for (int l = 0; l < n_levels; l++) {
            const struct product_kernels *p = &levels[l].product[PRECISION_FAST][formats[i]];
            const void *token = prepare_token(&levels[l], p->activation, x, n, 0);
            const void *tokens[] = {token, token, token, token, token};
            void *scratch = place_scratch(p, n);
            if (l == 0) p->one_token(want, token, rows, bytes, 256, n, NULL);
            p->one_token(got[0], token, rows, bytes, 256, n, NULL);
            assert_true(same_bits(got[0], want, sizeof want));
            for (uint64_t n_tokens = 2; n_tokens <= 5; n_tokens++) {
                p->panel(got[0], 256, tokens, n_tokens, rows, bytes, 256, n, NULL, scratch);
                for (uint64_t t = 0; t < n_tokens; t++) assert_true(same_bits(got[t], want, sizeof want));
            }
        }
    }
}

/* A NaN or infinity in a scale of a row, or in a token, reaches its own outputs and no others. */
static void test_whole_products_not_finite(void **state)
{
    (void)state;
    enum { N = 512, ROWS = 18, TOKENS = 5 /* more than go without a tile */ };
    static float values[ROWS * N];
    for (int l = 0; l < n_levels; l++)
        for (int format = FORMAT_Q8_0; format < N_FORMATS; format++)
            for (int trial = 0; trial < 20; trial++) {
                struct product_case c = {.format = format, .n_columns = N, .n_rows = ROWS, .n_tokens = TOKENS,
                                         .values = values};
                const struct product_kernels *p = &levels[l].product[PRECISION_FAST][format];
                float out[TOKENS][ROWS];
                make_case(&c, PLAIN);
                const uint64_t n_tokens = 1 + (uint64_t)trial % TOKENS;
                uint64_t bad_row = below(ROWS), bad_token = below(n_tokens), column = below(N);
                uint64_t at = format_row_bytes(format, column - column % afmoe__format_traits[format].block_elements);
                if (!set_half(format, c.rows + bad_row * c.row_bytes + at, 0, 0x7e00)) bad_row = ROWS;
                c.x[bad_token * c.x_stride + column] = trial / TOKENS % 2 ? NAN : INFINITY;
                const void *x[TOKENS];
                for (uint64_t t = 0; t < n_tokens; t++)
                    x[t] = prepare_token(&levels[l], p->activation, c.x + t * c.x_stride, N, t);
                void *scratch = place_scratch(p, N);
                if (n_tokens == 1) p->one_token(out[0], x[0], c.rows, c.row_bytes, ROWS, N, NULL);
                else p->panel(out[0], ROWS, x, n_tokens, c.rows, c.row_bytes, ROWS, N, NULL, scratch);
                for (uint64_t t = 0; t < n_tokens; t++)
                    for (uint64_t r = 0; r < ROWS; r++)
                        assert_true(isnan(out[t][r]) == (r == bad_row || t == bad_token));
            }
}

/* ---- bfloat16 ---- */

static void test_prepare_bf16(void **state)
{
    (void)state;
    for (int i = 0; i < 4 * N_SIZES; i++) {
        uint64_t n = size_of_case(i / 4);
        float *x = guarded_place(&in[0], n * sizeof *x);
        for (uint64_t k = 0; k < n; k++) x[k] = i % 2 ? float_from_bits(random32()) : uniform(); /* any bits, NaN too */
        for (int l = 0; l < n_levels; l++) {
            uint16_t *out = poisoned_place(&out_memory[0], n * sizeof *out);
            levels[l].prepare[ACTIVATION_BF16](out, x, n);
            for (uint64_t k = 0; k < n; k++) assert_int_equal(out[k], bf16_from_f32(x[k]));
            assert_true(poison_whole(&out_memory[0], n * sizeof *out));
        }
    }
}

/* Each of n products and additions may be rounded, and numbers below 2^-126 may count as zero. */
static void run_bf16_case(const struct kernels *k, uint64_t n_columns, uint64_t n_rows, uint64_t n_tokens,
                          enum kind kind)
{
    struct product_case c = {.format = FORMAT_BF16, .n_columns = n_columns, .n_rows = n_rows, .n_tokens = n_tokens};
    const struct product_kernels *p = &k->product[PRECISION_FAST][FORMAT_BF16];
    c.values = malloc((n_rows * n_columns + 1) * sizeof *c.values);
    assert_non_null(c.values);
    make_case(&c, kind);
    uint16_t *rounded = guarded_place(&in[3], n_tokens * n_columns * sizeof *rounded);
    for (uint64_t t = 0; t < n_tokens; t++) {
        float *x = c.x + t * c.x_stride;
        k->prepare[ACTIVATION_BF16](rounded + t * n_columns, x, n_columns);
        for (uint64_t i = 0; i < n_columns; i++) x[i] = bf16_to_f32(rounded[t * n_columns + i]);
        c.tokens[t] = rounded + t * n_columns;
    }
    const float *many = run_panel(p, &c);
    for (uint64_t t = 0; t < n_tokens; t++) {
        const float *one = run_one_token(p, &c, t);
        assert_true(same_bits(one, many + t * c.out_stride, n_rows * sizeof *one));
        check_product(k, &c, t, one, (double)(n_columns + 4), 0x1p-124);
    }
    free(c.values);
}

static void test_bf16_products(void **state)
{
    (void)state;
    bool found = false;
    for (int l = 0; l < n_levels; l++) {
        if (levels[l].product[PRECISION_FAST][FORMAT_BF16].activation != ACTIVATION_BF16) continue;
        found = true;
        for (uint64_t n = 0; n <= 70; n++)
            for (int kind = 0; kind < N_KINDS; kind++)
                run_bf16_case(&levels[l], n, 1 + below(9), 1 + below(MAX_CASE_TOKENS), kind);
        for (uint64_t n_rows = 0; n_rows <= 20; n_rows++)
            for (uint64_t n_tokens = 0; n_tokens <= MAX_CASE_TOKENS; n_tokens++)
                run_bf16_case(&levels[l], 64 + below(2), n_rows, n_tokens, PLAIN);
        run_bf16_case(&levels[l], 4096, 9, 4, PLAIN);
    }
    if (!found) skip();
}

/* ---- Attention ---- */

enum { MAX_QUERIES = 50, MAX_DIM = 300, MAX_PAGES = 3 };

struct attention_case {
    enum cell_format cells;
    uint64_t n_queries, head_dim;
    uint32_t n_pages;
    struct {
        uint32_t begin, end;
    } seen[MAX_PAGES][MAX_QUERIES];
    float scale;
    float *q;
    uint8_t *pages; /* keys, values, keys, values.. */
    float *keys, *values; /* [pages][64][head_dim] as the cells have them */
};

static uint8_t *half_page(const struct attention_case *c, uint32_t page, bool is_value)
{
    return c->pages + (2 * page + is_value) * head_page_bytes(c->cells, c->head_dim);
}

/* A cell as it lies in its page; position counts through all pages. */
static float cell_at(const struct attention_case *c, bool is_value, uint32_t position, uint64_t dim)
{
    const uint8_t *p = half_page(c, position / PAGE_POSITIONS, is_value) +
                       cell_offset(c->cells, is_value, c->head_dim, position % PAGE_POSITIONS, dim);
    float x;
    uint16_t h;
    if (c->cells == CELLS_Q8_0) return (int8_t)*p;
    if (c->cells == CELLS_F32) {
        memcpy(&x, p, 4);
        return x;
    }
    memcpy(&h, p, 2);
    return c->cells == CELLS_F16 ? f16_to_f32(h) : bf16_to_f32(h);
}

static float scale_at(const struct attention_case *c, bool is_value, uint32_t position, uint64_t group)
{
    uint16_t h;
    if (c->cells != CELLS_Q8_0) return 1;
    memcpy(&h, half_page(c, position / PAGE_POSITIONS, is_value) +
                   cell_scale_offset(c->cells, is_value, c->head_dim, position % PAGE_POSITIONS, group), 2);
    return f16_to_f32(h);
}

/* q . k in the order of kernels.h. */
static float chain_of_key(const struct attention_case *c, const float *q, uint32_t position)
{
    float all = 0, part = 0;
    for (uint64_t i = 0; i < c->head_dim; i++) {
        part = fmaf(q[i], cell_at(c, false, position, i), part);
        if (c->cells != CELLS_Q8_0 || (i % CELL_GROUP != CELL_GROUP - 1 && i != c->head_dim - 1)) continue;
        all = fmaf(part, scale_at(c, false, position, i / CELL_GROUP), all);
        part = 0;
    }
    return c->cells == CELLS_Q8_0 ? all : part;
}

/* What rows of a chunk and their heads see: ends one after the other, and beginnings, and nothing; or anything. */
static void draw_seen(struct attention_case *c, uint32_t page)
{
    bool causal = below(2);
    uint32_t begin = below(PAGE_POSITIONS), end = begin + below(PAGE_POSITIONS - begin) + 1, per_row = 1 + below(4);
    if (below(3) == 0) begin = 0, end = PAGE_POSITIONS;
    for (uint64_t i = 0; i < c->n_queries; i++) {
        uint32_t shift = (uint32_t)i / per_row;
        if (!causal) begin = below(PAGE_POSITIONS + 1), end = below(PAGE_POSITIONS + 1), shift = 0;
        c->seen[page][i].begin = begin + shift < PAGE_POSITIONS ? begin + shift : PAGE_POSITIONS;
        c->seen[page][i].end = end + shift < PAGE_POSITIONS ? end + shift : PAGE_POSITIONS;
    }
    if (page == 0) c->seen[0][0].begin = 0, c->seen[0][0].end = 1 + below(PAGE_POSITIONS);
}

static bool sees(const struct attention_case *c, uint32_t page, uint64_t i, uint32_t position)
{
    return position >= c->seen[page][i].begin && position < c->seen[page][i].end;
}

/* Numbers where any query looks; elsewhere the page keeps what it had: NaN. */
static void store_position(struct attention_case *c, uint32_t page, uint32_t position, float size)
{
    bool any = false;
    uint64_t at = ((uint64_t)page * PAGE_POSITIONS + position) * c->head_dim;
    for (uint64_t i = 0; i < c->n_queries; i++) any |= sees(c, page, i, position);
    for (uint64_t k = 0; k < c->head_dim; k++) {
        c->keys[at + k] = any ? uniform() * size : NAN;
        c->values[at + k] = any ? uniform() : NAN;
    }
    if (!any) return;
    levels[0].store_key[c->cells](half_page(c, page, false), c->keys + at, c->head_dim, position);
    levels[0].store_value[c->cells](half_page(c, page, true), c->values + at, c->head_dim, position);
    position += page * PAGE_POSITIONS;
    for (uint64_t k = 0; k < c->head_dim; k++) { /* exact: of Q8_0 7 bits times 11 */
        c->keys[at + k] = cell_at(c, false, position, k) * scale_at(c, false, position, k / CELL_GROUP);
        c->values[at + k] = cell_at(c, true, position, k) * scale_at(c, true, position, k / CELL_GROUP);
    }
}

static void make_attention(struct attention_case *c, enum cell_format cells, uint64_t head_dim, uint64_t n_queries,
                           float size)
{
    uint64_t half = head_page_bytes(cells, head_dim);
    *c = (struct attention_case){.cells = cells, .n_queries = n_queries, .head_dim = head_dim};
    c->n_pages = 1 + below(MAX_PAGES);
    c->scale = 1 / sqrtf((float)head_dim);
    c->q = guarded_place(&in[0], n_queries * head_dim * sizeof *c->q);
    fill(c->q, n_queries * head_dim, PLAIN);
    c->pages = guarded_place(&in[1], 2 * c->n_pages * half);
    memset(c->pages, 0xff, 2 * c->n_pages * half);
    c->keys = malloc(2 * c->n_pages * PAGE_POSITIONS * head_dim * sizeof(float));
    assert_non_null(c->keys);
    c->values = c->keys + c->n_pages * PAGE_POSITIONS * head_dim;
    for (uint32_t p = 0; p < c->n_pages; p++) {
        draw_seen(c, p);
        for (uint32_t j = 0; j < PAGE_POSITIONS; j++) store_position(c, p, j, size);
    }
}

/* Of one query, over all pages. A chain of n multiply-adds errs by at most (n + 1) u times the sum of the terms'
 * sizes. */
static void check_query(const struct kernels *k, const struct attention_case *c, uint64_t q, const float *acc,
                        const struct attention_query *got)
{
    uint64_t d = c->head_dim, n = 0;
    double score[MAX_PAGES * PAGE_POSITIONS], value[MAX_DIM] = {0}, size[MAX_DIM] = {0};
    double max = -INFINITY, sum = 0, score_error = 0;
    float exact_max = -INFINITY;
    for (uint32_t j = 0; j < c->n_pages * PAGE_POSITIONS; j++) {
        double s = 0, terms = 0;
        if (!sees(c, j / PAGE_POSITIONS, q, j % PAGE_POSITIONS)) continue;
        for (uint64_t i = 0; i < d; i++) {
            double term = (double)c->q[q * d + i] * c->keys[j * d + i];
            s += term;
            terms += fabs(term);
        }
        score[n] = s * c->scale;
        score_error = fmax(score_error, terms * c->scale * ((double)d + 3) * U);
        max = fmax(max, score[n++]);
        exact_max = fmaxf(exact_max, c->scale * chain_of_key(c, c->q + q * d, j));
    }
    if (n == 0) assert_true(got->sum == 0 && got->max == -INFINITY);
    if (n == 0) return;
    expect_near(got->max, max, score_error, "attention max", k->level, d, q);
    if (k->level != AFMOE_CPU_C) assert_true(got->max == exact_max);
    n = 0;
    for (uint32_t j = 0; j < c->n_pages * PAGE_POSITIONS; j++) {
        if (!sees(c, j / PAGE_POSITIONS, q, j % PAGE_POSITIONS)) continue;
        double w = exp(score[n++] - max);
        sum += w;
        for (uint64_t i = 0; i < d; i++) {
            value[i] += w * c->values[j * d + i];
            size[i] += w * fabs((double)c->values[j * d + i]);
        }
    }
    /* Weights err by exp(score errors), the rounded difference s - max (under 100 here for any that count) and exp;
     * the scales of values, a chain over n positions and the factors of pages and a merge follow. */
    double relative = 4 * score_error + (100 + (double)n + 30) * U;
    /* A weight times a scale below the normal numbers is off by half the smallest of all, and c is up to 127. */
    double lost = c->cells == CELLS_Q8_0 ? 127 * (double)n * DENORMAL / 2 : 0;
    for (uint64_t i = 0; i < d; i++)
        expect_near(acc[i] / got->sum, value[i] / sum, (2 * relative * size[i] + lost) / sum + DENORMAL, "attention",
                    k->level, d, i);
}

/* Queries [first, first + n) over pages [begin, end). */
static void run_pages(const struct kernels *k, const struct attention_case *c, float *acc,
                      struct attention_query *queries, uint64_t first, uint64_t n, uint32_t begin, uint32_t end)
{
    for (uint64_t i = 0; i < n; i++) queries[i] = (struct attention_query){.max = -INFINITY};
    memset(acc, 0, n * page_dims(c->head_dim) * sizeof *acc);
    for (uint32_t p = begin; p < end; p++) {
        for (uint64_t i = 0; i < n; i++) {
            queries[i].begin = c->seen[p][first + i].begin;
            queries[i].end = c->seen[p][first + i].end;
        }
        struct attention_page page = {half_page(c, p, false), half_page(c, p, true), c->pages, c->head_dim, c->scale};
        k->attention_page[c->cells](queries, n, acc, c->q + first * c->head_dim, &page);
    }
}

static bool same_query(const struct attention_case *c, const struct attention_query *a, const float *a_acc,
                       const struct attention_query *b, const float *b_acc)
{
    return same_bits(&a->max, &b->max, sizeof a->max) && same_bits(&a->sum, &b->sum, sizeof a->sum) &&
           same_bits(a_acc, b_acc, c->head_dim * sizeof *a_acc);
}

/* The first page and the others apart, then joined. */
static void check_merge(const struct kernels *k, const struct attention_case *c, float *acc)
{
    static float part_acc[MAX_QUERIES * (MAX_DIM + PAGE_LANES)], before_acc[MAX_QUERIES * (MAX_DIM + PAGE_LANES)];
    struct attention_query queries[MAX_QUERIES], part[MAX_QUERIES], before[MAX_QUERIES];
    uint64_t dims = page_dims(c->head_dim), n = c->n_queries;
    run_pages(k, c, acc, queries, 0, n, 0, 1);
    run_pages(k, c, part_acc, part, 0, n, 1, c->n_pages);
    memcpy(before, queries, n * sizeof *before);
    memcpy(before_acc, acc, n * dims * sizeof *acc);
    k->attention_merge(queries, acc, part, part_acc, n, c->head_dim);
    for (uint64_t i = 0; i < n; i++) {
        check_query(k, c, i, acc + i * dims, &queries[i]);
        if (part[i].sum == 0)
            assert_true(same_query(c, &queries[i], acc + i * dims, &before[i], before_acc + i * dims));
        else if (before[i].sum == 0)
            assert_true(same_query(c, &queries[i], acc + i * dims, &part[i], part_acc + i * dims));
    }
}

static void run_attention(const struct attention_case *c)
{
    static float first_acc[MAX_QUERIES * (MAX_DIM + PAGE_LANES)];
    struct attention_query first[MAX_QUERIES];
    uint64_t dims = page_dims(c->head_dim), n = c->n_queries;
    for (int l = 0; l < n_levels; l++) {
        const struct kernels *k = &levels[l];
        float *acc = poisoned_place(&out_memory[0], n * dims * sizeof *acc);
        struct attention_query queries[MAX_QUERIES];
        run_pages(k, c, acc, queries, 0, n, 0, c->n_pages);
        for (uint64_t i = 0; i < n; i++) {
            float alone_acc[MAX_DIM + PAGE_LANES];
            struct attention_query alone;
            check_query(k, c, i, acc + i * dims, &queries[i]);
            run_pages(k, c, alone_acc, &alone, i, 1, 0, c->n_pages);
            assert_true(same_query(c, &alone, alone_acc, &queries[i], acc + i * dims));
            if (l > 1) assert_true(same_query(c, &first[i], first_acc + i * dims, &queries[i], acc + i * dims));
        }
        if (l == 1) memcpy(first, queries, sizeof first), memcpy(first_acc, acc, n * dims * sizeof *acc);
        check_merge(k, c, acc);
        assert_true(poison_whole(&out_memory[0], n * dims * sizeof *acc));
    }
}

static void test_attention(void **state)
{
    (void)state;
    static const uint64_t dims[] = {1, 2, 7, 8, 10, 16, 20, 24, 31, 33, 64, 80, 96, 128, 256, 299};
    static const uint64_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17, 32, 50};
    for (int cells = 0; cells < N_CELL_FORMATS; cells++)
        for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
            for (size_t j = 0; j < sizeof counts / sizeof *counts; j++)
                for (float size = 1; size < 200; size *= 100) { /* at 100 one key takes nearly all */
                    struct attention_case c;
                    make_attention(&c, (enum cell_format)cells, dims[i], counts[j], size);
                    run_attention(&c);
                    free(c.keys);
                }
}

/* Infinities and NaN in a key or value reach the queries that see it and no bit of another. */
static void test_attention_not_finite(void **state)
{
    (void)state;
    static float good_acc[MAX_QUERIES * 48], acc[MAX_QUERIES * 48];
    struct attention_query good[MAX_QUERIES], queries[MAX_QUERIES];
    for (int trial = 0; trial < 300; trial++) {
        struct attention_case c;
        make_attention(&c, (enum cell_format)(trial % N_CELL_FORMATS), 33, 1 + below(MAX_QUERIES), 1);
        uint32_t page = below(c.n_pages), position = below(PAGE_POSITIONS);
        uint64_t dims = page_dims(c.head_dim);
        bool is_value = below(2), scales = c.cells == CELLS_Q8_0;
        uint64_t dim = below(33), n_bytes = scales ? cell_scale_bytes(c.cells) : cell_bytes(c.cells);
        uint8_t *cell = half_page(&c, page, is_value);
        cell += scales ? cell_scale_offset(c.cells, is_value, c.head_dim, position, dim / CELL_GROUP)
                       : cell_offset(c.cells, is_value, c.head_dim, position, dim);
        uint32_t bad = below(2) ? 0x7f800000 : 0x7fc00000; /* infinity, NaN */
        uint16_t bad_half = (uint16_t)(bad >> 16);
        if (c.cells == CELLS_F16 || scales) bad_half = bad == 0x7f800000 ? 0x7c00 : 0x7e00;
        for (int l = 0; l < n_levels; l++) {
            uint8_t kept[4];
            run_pages(&levels[l], &c, good_acc, good, 0, c.n_queries, 0, c.n_pages);
            memcpy(kept, cell, n_bytes);
            memcpy(cell, c.cells == CELLS_F32 ? (const void *)&bad : (const void *)&bad_half, n_bytes);
            run_pages(&levels[l], &c, acc, queries, 0, c.n_queries, 0, c.n_pages);
            memcpy(cell, kept, n_bytes);
            for (uint64_t i = 0; i < c.n_queries; i++) {
                bool finite = true;
                for (uint64_t k = 0; k < c.head_dim; k++) finite &= isfinite(acc[i * dims + k]) != 0;
                if (!sees(&c, page, i, position))
                    assert_true(same_query(&c, &good[i], good_acc + i * dims, &queries[i], acc + i * dims));
                else if (is_value) assert_false(finite);
                else if (bad == 0x7fc00000) assert_true(isnan(queries[i].sum) && !finite);
            }
        }
        free(c.keys);
    }
}

/* ---- Selection ---- */

static void test_select(void **state)
{
    (void)state;
    for (int32_t level = AFMOE_CPU_C; level <= afmoe__cpu_level(); level++) {
        struct kernels k;
        afmoe__kernels_select(&k, level);
        assert_true(k.level >= AFMOE_CPU_C && k.level <= level);
        for (int format = 0; format < N_FORMATS; format++)
            for (int precision = 0; precision < N_PRECISIONS; precision++) {
                const struct product_kernels *p = &k.product[precision][format];
                assert_true(k.decode_row[format] && p->one_token && p->panel && p->panel_scratch_bytes);
                assert_true(p->activation == ACTIVATION_F32 || k.prepare[p->activation]);
            }
        for (int cells = 0; cells < N_CELL_FORMATS; cells++)
            assert_true(k.store_key[cells] && k.store_value[cells] && k.attention_page[cells]);
        assert_true(k.rms_norm && k.add && k.scale && k.add_scaled && k.rope && k.silu_mul && k.sigmoid_gate &&
                    k.sigmoid && k.softmax && k.log_sum_exp && k.attention_merge);
    }
    assert_string_equal(afmoe__cpu_level_name(AFMOE_CPU_AVX512BF16), "avx512bf16");
    assert_string_equal(afmoe__cpu_level_name(99), "unknown");
}

static void test_cpu_has_level(void **state)
{
    (void)state;
    int32_t highest = afmoe__cpu_level();
    assert_true(afmoe__cpu_has_level(AFMOE_CPU_C) && afmoe__cpu_has_level(highest));
    for (int32_t level = AFMOE_CPU_C; level <= highest; level++)
        assert_true(afmoe__cpu_has_level(level) || level == AFMOE_CPU_AVXVNNI);
    assert_false(afmoe__cpu_has_level(highest + 1));
    assert_false(afmoe__cpu_has_level(AFMOE_CPU_AUTO));
    assert_false(afmoe__cpu_has_level(99));
}

#ifdef AFMOE_TEST_SIMDE
void afmoe__kernels_avxvnni_by_simde(struct kernels *k); /* simde_avx512.h */
void afmoe__kernels_avx512_by_simde(struct kernels *k);
void afmoe__kernels_avx512icl_by_simde(struct kernels *k);
void afmoe__kernels_avx512bf16_by_simde(struct kernels *k);

/* AVX-512 without AVX-512: the same files, compiled to AVX2. False where the CPU lacks that too. */
static bool add_emulated_levels(void)
{
    struct kernels k;
    if (afmoe__cpu_level() < AFMOE_CPU_AVX2) return false;
    afmoe__kernels_select(&k, AFMOE_CPU_AVX2);
    levels[n_levels] = k;
    afmoe__kernels_avxvnni_by_simde(&levels[n_levels++]);
    afmoe__kernels_avx512_by_simde(&k);
    levels[n_levels++] = k;
    afmoe__kernels_avx512icl_by_simde(&k); /* avx512bf16 has all of it */
    afmoe__kernels_avx512bf16_by_simde(&k);
    levels[n_levels++] = k;
    print_message("levels avxvnni, avx512 and avx512bf16 are emulated\n");
    return true;
}
#else
static bool add_emulated_levels(void)
{
    return false;
}
#endif

/* Kernels of levels that the CPU lacks are named. */
static void find_levels(void)
{
    int32_t cpu = afmoe__cpu_level();
    for (int32_t level = AFMOE_CPU_C; level <= cpu; level++) {
        struct kernels k;
        afmoe__kernels_select(&k, level);
        if (k.level == level) levels[n_levels++] = k;
    }
    if (cpu < AFMOE_CPU_AVX2) print_message("skipped: level avx2 (this CPU lacks it)\n");
    if (cpu >= AFMOE_CPU_AVX512 || !add_emulated_levels())
        for (int32_t level = cpu < AFMOE_CPU_AVX2 ? AFMOE_CPU_AVXVNNI : cpu + 1; level <= AFMOE_CPU_AVX512BF16; level++)
            print_message("skipped: level %s (this CPU lacks it)\n", afmoe__cpu_level_name(level));
}

int main(int argc, char **argv)
{
    find_levels();
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) return bench_kernels(levels, n_levels, argv[2]);
    if (argc > 1 && strcmp(argv[1], "--exhaustive") == 0) exp_stride = 1;
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) guarded_create(&in[i], MAX_BYTES);
    for (size_t i = 0; i < sizeof out_memory / sizeof *out_memory; i++) guarded_create(&out_memory[i], MAX_BYTES);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_select),
        cmocka_unit_test(test_f16_round_trip),
        cmocka_unit_test(test_rounding_to_16_bits),
        cmocka_unit_test(test_store_cells),
        cmocka_unit_test(test_store_q8_0),
        cmocka_unit_test(test_page_layout),
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_exp_of_levels),
        cmocka_unit_test(test_sigmoid_of_all_floats),
        cmocka_unit_test(test_reference_elementwise),
        cmocka_unit_test(test_exact_elementwise),
        cmocka_unit_test(test_add_scaled),
        cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_gates),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_log_sum_exp),
        cmocka_unit_test(test_decode_recorded),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_products_not_finite),
        cmocka_unit_test(test_prepare),
        cmocka_unit_test(test_prepare_not_finite),
        cmocka_unit_test(test_whole_products),
        cmocka_unit_test(test_byte_scales),
        cmocka_unit_test(test_whole_products_not_finite),
        cmocka_unit_test(test_prepare_bf16),
        cmocka_unit_test(test_bf16_products),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_attention_not_finite),
        cmocka_unit_test(test_cpu_has_level),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) guarded_free(&in[i]);
    for (size_t i = 0; i < sizeof out_memory / sizeof *out_memory; i++) guarded_free(&out_memory[i]);
    return failed;
}
