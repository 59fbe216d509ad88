#include "tests/support/test.h"

#include <math.h>

#define N 200000

/* Computed once from the published algorithms (splitmix64, FNV-1a, xoshiro256++). A
 * change here changes every experiment's arrivals and prompts. */
TEST(golden)
{
    struct rng r = {{1, 2, 3, 4}}, named;

    assert_true(rng_u64(&r) ==
                41943041u); /* the reference implementation's first outputs */
    assert_true(rng_u64(&r) == 58720359u);
    assert_true(rng_u64(&r) == 3588806011781223u);
    assert_true(rng_u64(&r) == 3591011842654386u);
    assert_true(rng_u64(&r) == 9228616714210784205u);
    rng_init(&named, 1, "arrival"); /* computed apart, in Python, from the three papers */
    assert_true(rng_u64(&named) == 0x4a0be2b280043b15u);
}

TEST(streams)
{
    struct rng a, b, c, d;
    int same = 0;

    rng_init(&a, 1, "arrival");
    rng_init(&b, 1, "arrival");
    rng_init(&c, 1, "sample");
    rng_init(&d, 2, "arrival");
    for (int i = 0; i < 1000; i++) {
        uint64_t x = rng_u64(&a);
        assert_true(x == rng_u64(&b));
        same += (x == rng_u64(&c)) + (x == rng_u64(&d));
    }
    assert_int_equal(same, 0);
    rng_init(&a, 0, "");
    assert_true(a.s[0] | a.s[1] | a.s[2] | a.s[3]);
}

TEST(below)
{
    static const uint64_t ns[] = {1, 2, 3, 7, 1000, (uint64_t)1 << 63, UINT64_MAX};
    struct rng r;
    int64_t count[7] = {0};

    rng_init(&r, test_seed(), "below");
    for (size_t k = 0; k < sizeof(ns) / sizeof(ns[0]); k++)
        for (int i = 0; i < 1000; i++)
            assert_true(rng_below(&r, ns[k]) < ns[k]);
    for (int i = 0; i < 70000; i++)
        count[rng_below(&r, 7)]++;
    for (int i = 0; i < 7; i++) /* 10000 +- 6 sigma */
        assert_true(count[i] > 9400 && count[i] < 10600);
}

struct moments {
    double mean, var, min, max;
};

static struct moments moments(double (*draw)(struct rng *r, double p), double p)
{
    struct moments m = {.min = INFINITY, .max = -INFINITY};
    double s = 0, ss = 0;
    struct rng r;

    rng_init(&r, test_seed(), "moments");
    for (int i = 0; i < N; i++) {
        double x = draw(&r, p);
        s += x;
        ss += x * x;
        m.min = fmin(m.min, x);
        m.max = fmax(m.max, x);
    }
    m.mean = s / N;
    m.var = ss / N - m.mean * m.mean;
    return m;
}

static double uniform(struct rng *r, double p)
{
    (void)p;
    return rng_f64(r);
}

static double normal(struct rng *r, double p)
{
    (void)p;
    return rng_normal(r);
}

static double exponential(struct rng *r, double p)
{
    (void)p;
    return rng_exp(r);
}

static void check(struct moments m, double mean, double var)
{
    double tolerance = 6 * sqrt(var / N);

    if (!(fabs(m.mean - mean) < tolerance) || !(fabs(m.var / var - 1) < 0.1))
        fail_msg("seed %llu: mean %g, wanted %g; variance %g, wanted %g",
                 (unsigned long long)test_seed(), m.mean, mean, m.var, var);
}

TEST(distributions)
{
    static const double shapes[] = {0.1, 0.5, 1, 2.5, 50};
    struct moments m = moments(uniform, 0);

    check(m, 0.5, 1.0 / 12);
    assert_true(m.min >= 0 && m.max < 1);
    check(moments(normal, 0), 0, 1);
    m = moments(exponential, 0);
    check(m, 1, 1);
    assert_true(m.min >= 0 && isfinite(m.max));
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        m = moments(rng_gamma, shapes[i]);
        check(m, shapes[i], shapes[i]);
        assert_true(m.min >= 0 && isfinite(m.max));
    }
}
