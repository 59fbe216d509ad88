#include "tests/support/test.h"

#include <math.h>

#include "model/sampler.h"

static struct kern_table kern;

static int setup(void **state)
{
    (void)state;
    kern_table_choose(&kern, 0, KERN_EXACT);
    return 0;
}

static struct sampler *open_with(double temperature, int64_t top_k, double top_p,
                                 double min_p, int vocab)
{
    struct sampler_opts o = {.temperature = temperature,
                             .top_k = top_k,
                             .top_p = top_p,
                             .min_p = min_p,
                             .seed = (int64_t)test_seed()};
    struct sampler *s;

    assert_ok(sampler_open(&s, &o, vocab, &kern));
    return s;
}

static void random_logits(struct rng *r, float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)(3 * rng_normal(r));
}

/* --- the probabilities by definition: sort, cut, cut, cut, normalise */

struct prob {
    double p;
    int id;
};

static int by_prob(const void *pa, const void *pb)
{
    const struct prob *a = pa, *b = pb;

    return a->p != b->p ? (a->p > b->p ? -1 : 1) : a->id - b->id;
}

static void define(const float *x, int n, double temperature, int64_t top_k, double top_p,
                   double min_p, double *p)
{
    struct prob *q = mem_new(MEM_TEST, (size_t)n, sizeof(*q));
    double highest = -INFINITY, sum = 0, kept = 0, reached = 0;
    int m;

    for (int i = 0; i < n; i++)
        highest = x[i] > highest ? x[i] : highest;
    for (int i = 0; i < n; i++)
        q[i] = (struct prob){exp((x[i] - highest) / temperature), i};
    qsort(q, (size_t)n, sizeof(*q), by_prob);
    m = top_k && top_k < n ? (int)top_k : n;
    for (int i = 0; i < m; i++)
        sum += q[i].p;
    for (int i = 0; i < n; i++)
        p[i] = 0;
    for (int i = 0; i < m; i++) {
        if (i > 0 && top_p < 1 && reached >= top_p * sum)
            break;
        reached += q[i].p;
        if (q[i].p < min_p)
            break;
        p[q[i].id] = q[i].p;
        kept += q[i].p;
    }
    for (int i = 0; i < n; i++)
        p[i] /= kept;
    mem_free(q);
}

/* Pearson's statistic over the ids that may be drawn; an id that may not be is a failure.
 * The bound is six standard deviations above the mean: the seed is fixed, so it holds or
 * not. */
static void check_distribution(double temperature, int64_t top_k, double top_p,
                               double min_p)
{
    enum { N = 40, DRAWS = 40000 };
    struct sampler *s = open_with(temperature, top_k, top_p, min_p, N);
    double p[N], chi2 = 0;
    int seen[N] = {0}, df = -1;
    struct rng r;
    float x[N];

    rng_init(&r, test_seed(), "logits");
    random_logits(&r, x, N);
    define(x, N, temperature, top_k, top_p, min_p, p);
    for (int i = 0; i < DRAWS; i++)
        seen[sampler_sample(s, x)]++;
    for (int i = 0; i < N; i++) {
        if (p[i] == 0 && seen[i])
            fail_msg("T %g k %d p %g min %g: drew %d, whose probability is 0",
                     temperature, (int)top_k, top_p, min_p, i);
        if (p[i] * DRAWS < 5)
            continue;
        chi2 += pow(seen[i] - p[i] * DRAWS, 2) / (p[i] * DRAWS);
        df++;
    }
    if (chi2 > df + 6 * sqrt(2.0 * df) + 6)
        fail_msg("T %g k %d p %g min %g: chi squared %g with %d degrees", temperature,
                 (int)top_k, top_p, min_p, chi2, df);
    sampler_close(&s);
}

TEST(test_distribution)
{
    check_distribution(1, 0, 1, 0);
    check_distribution(0.5, 0, 1, 0);
    check_distribution(2, 7, 1, 0);
    check_distribution(1, 0, 0.8, 0);
    check_distribution(1, 0, 1, 0.1);
    check_distribution(1.3, 20, 0.9, 0.02);
    check_distribution(1, 1000, 0.999, 0);
}

TEST(test_greedy)
{
    enum { N = 300 };
    struct sampler *greedy = open_with(0, 0, 1, 0, N), *top1 = open_with(1, 1, 1, 0, N),
                   *cold = open_with(1e-30, 0, 1, 0, N),
                   *nucleus = open_with(1, 0, 1e-9, 0, N),
                   *strict = open_with(1, 0, 1, 1, N);
    struct rng r;
    float x[N];

    rng_init(&r, test_seed(), "logits");
    for (int k = 0; k < 200; k++) {
        int best = 0;

        random_logits(&r, x, N);
        for (int i = 1; i < N; i++)
            best = x[i] > x[best] ? i : best;
        assert_int_equal(sampler_sample(greedy, x), best);
        assert_int_equal(sampler_sample(top1, x), best);
        assert_int_equal(sampler_sample(cold, x), best);
        assert_int_equal(sampler_sample(nucleus, x), best);
        assert_int_equal(sampler_sample(strict, x), best);
    }
    sampler_close(&greedy);
    sampler_close(&top1);
    sampler_close(&cold);
    sampler_close(&nucleus);
    sampler_close(&strict);
}

/* Equal logits: exactly top_k ids, the lowest ones, as argmax takes the lowest. */
TEST(test_ties)
{
    enum { N = 64 };
    struct sampler *s = open_with(1, 3, 1, 0, N);
    bool seen[N] = {false};
    float x[N];

    for (int i = 0; i < N; i++)
        x[i] = 0.5f;
    for (int k = 0; k < 300; k++)
        seen[sampler_sample(s, x)] = true;
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], i < 3);
    sampler_close(&s);
}

/* One logit that is not finite is enough, whatever the options. */
TEST(test_not_finite)
{
    enum { N = 50 };
    static const struct {
        double temperature;
        int64_t top_k;
        double top_p, min_p;
    } cases[] = {{0, 0, 1, 0}, {1, 0, 1, 0},   {1, 1, 1, 0},
                 {1, 5, 1, 0}, {1, 0, 0.5, 0}, {1, 5, 0.5, 0.1}};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    float x[N];

    for (int i = 0; i < N; i++)
        x[i] = (float)i / 10;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct sampler *s = open_with(cases[c].temperature, cases[c].top_k,
                                      cases[c].top_p, cases[c].min_p, N);

        for (int i = 0; i < N; i++) {
            float before = x[i];

            for (int k = 0; k < 3; k++) {
                x[i] = bad[k];
                assert_int_equal(sampler_sample(s, x), -1);
            }
            x[i] = before;
            assert_in_range(sampler_sample(s, x), 0, N - 1);
        }
        sampler_close(&s);
    }
}

TEST(test_seeds)
{
    enum { N = 200, DRAWS = 100 };
    struct sampler_opts o = {.temperature = 1, .top_p = 0.95, .top_k = 50, .seed = 7};
    struct sampler *a, *b, *c;
    struct rng r;
    float x[N];
    int differ = 0;

    assert_ok(sampler_open(&a, &o, N, &kern));
    assert_ok(sampler_open(&b, &o, N, &kern));
    o.seed = 8;
    assert_ok(sampler_open(&c, &o, N, &kern));
    rng_init(&r, test_seed(), "logits");
    for (int k = 0; k < DRAWS; k++) {
        int32_t id;

        random_logits(&r, x, N);
        id = sampler_sample(a, x);
        assert_int_equal(id, sampler_sample(b, x));
        differ += id != sampler_sample(c, x);
    }
    assert_true(differ > 0);
    sampler_close(&a);
    sampler_close(&b);
    sampler_close(&c);
}

TEST(test_refused)
{
    static const struct sampler_opts bad[] = {
        {.temperature = -1, .top_p = 1},
        {.temperature = NAN, .top_p = 1},
        {.temperature = INFINITY, .top_p = 1},
        {.temperature = 1, .top_p = 0},
        {.temperature = 1, .top_p = 1.5},
        {.temperature = 1, .top_p = 1, .top_k = -1},
        {.temperature = 1, .top_p = 1, .min_p = 2},
    };
    static const char *const part[] = {
        "temperature", "temperature", "temperature", "top_p", "top_p", "top_k", "min_p"};
    struct sampler *s;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_err(sampler_open(&s, &bad[i], 10, &kern), ERR_ARG, part[i]);
        assert_null(s);
    }
    assert_err(sampler_open(&s, &(struct sampler_opts){.top_p = 1}, 0, &kern), ERR_ARG,
               "vocabulary");
}

/* After a skip it goes on as one that has drawn, or as one that need not draw. */
TEST(skips_like_a_draw)
{
    static const struct {
        double temperature;
        int64_t top_k;
    } all[] = {{0, 0}, {1, 0}, {1, 1}, {0.7, 5}};
    float x[50];
    struct rng r;

    rng_init(&r, test_seed(), "skip");
    for (int i = 0; i < 4; i++) {
        struct sampler *a = open_with(all[i].temperature, all[i].top_k, 1, 0, 50);
        struct sampler *b = open_with(all[i].temperature, all[i].top_k, 1, 0, 50);

        random_logits(&r, x, 50);
        (void)sampler_sample(a, x);
        sampler_skip(b);
        for (int k = 0; k < 200; k++) {
            random_logits(&r, x, 50);
            assert_int_equal(sampler_sample(a, x), sampler_sample(b, x));
        }
        sampler_close(&a);
        sampler_close(&b);
    }
}

TEST(test_allocation)
{
    struct sampler_opts o = {.temperature = 1, .top_p = 0.9, .top_k = 5};
    size_t before = mem_used_bytes(MEM_OTHER);
    struct sampler *s;
    float x[100] = {0};
    int rc = ERR_NOMEM;
    long n;

    for (n = 0; rc != OK; n++) {
        assert_true(n < 10);
        mem_fail_after(n, 1);
        rc = sampler_open(&s, &o, 100, &kern);
        mem_fail_after(-1, 0);
        assert_true(rc == OK || (rc == ERR_NOMEM && !s));
        if (rc != OK)
            assert_int_equal(mem_used_bytes(MEM_OTHER), before);
    }
    assert_true(n > 1);
    n = mem_n_allocs();
    (void)sampler_sample(s, x);
    assert_int_equal(mem_n_allocs(), n);
    sampler_close(&s);
}

TEST_GROUP(setup, NULL);
