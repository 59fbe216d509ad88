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

/* ---- what changes logits: after ids in a prompt and chosen before, the distribution of the next
 * one, by definition. Each draw has a sampler of its own with a seed of its own, as the next id
 * changes what follows. */

enum { SMALL = 12, N_BEFORE = 6 };
static const int32_t prompt_ids[] = {0, 1, 2, 2},
                     before_ids[N_BEFORE] = {2, 3, 3, 4, 3, 5};

/* A constraint that allows some ids and counts those that were chosen. */
struct some {
    uint64_t bits[1];
    int n_taken, sum;
};

static const uint64_t *some_allowed(void *ctx)
{
    struct some *s = ctx;

    return s->bits[0] == UINT64_MAX ? NULL : s->bits; /* it fails */
}

static void some_take(void *ctx, int32_t id)
{
    struct some *s = ctx;

    s->n_taken++;
    s->sum += id;
}

static struct sampler_constraint only(struct some *s)
{
    return (struct sampler_constraint){some_allowed, some_take, s};
}

/* The shares of the most typical, by sorting. */
static void keep_typical(double *p, double typical)
{
    double entropy = 0, reached = 0, kept = 0;
    struct prob by[SMALL];

    for (int i = 0; i < SMALL; i++)
        entropy -= p[i] > 0 ? p[i] * log(p[i]) : 0;
    for (int i = 0; i < SMALL; i++)
        by[i] = (struct prob){p[i] > 0 ? -fabs(-log(p[i]) - entropy) : -1e9, i};
    qsort(by, SMALL, sizeof(by[0]), by_prob);
    for (int i = 0; i < SMALL; i++) {
        if (reached >= typical)
            p[by[i].id] = 0;
        reached += p[by[i].id];
        kept += p[by[i].id];
    }
    for (int i = 0; i < SMALL; i++)
        p[i] /= kept;
}

static void define_changed(const struct sampler_opts *o, const float *x, double *p)
{
    double y[SMALL], sum = 0;
    int n[SMALL] = {0};
    bool seen[SMALL] = {false};

    for (size_t i = 0; i < sizeof(prompt_ids) / sizeof(prompt_ids[0]); i++)
        seen[prompt_ids[i]] = true;
    for (int i = 0; i < N_BEFORE; i++)
        n[before_ids[i]]++;
    for (int i = 0; i < SMALL; i++) {
        y[i] = x[i];
        if (o->repetition_penalty > 0 && (seen[i] || n[i] > 0))
            y[i] = y[i] > 0 ? y[i] / o->repetition_penalty : y[i] * o->repetition_penalty;
        y[i] -= (n[i] > 0) * o->presence_penalty + n[i] * o->frequency_penalty;
        for (int k = 0; k < o->n_bias; k++)
            y[i] += o->bias[k].id == i ? (double)o->bias[k].bias : 0;
        p[i] = exp(y[i] / o->temperature);
        for (int k = 0; k < o->n_late && N_BEFORE < o->min_new; k++)
            p[i] = o->late[k] == i ? 0 : p[i];
        if (o->constraint.ctx)
            p[i] *= (double)(((struct some *)o->constraint.ctx)->bits[0] >> i & 1);
        sum += p[i];
    }
    for (int i = 0; i < SMALL; i++)
        p[i] /= sum;
    if (o->typical_p > 0)
        keep_typical(p, o->typical_p);
}

static void check_changed(struct sampler_opts o, const char *what)
{
    enum { DRAWS = 20000 };
    double p[SMALL], chi2 = 0;
    int seen[SMALL] = {0}, df = -1;
    float x[SMALL];
    struct rng r;

    o.temperature = 0.8;
    o.top_p = 1;
    rng_init(&r, test_seed(), "changed");
    random_logits(&r, x, SMALL);
    define_changed(&o, x, p);
    for (int i = 0; i < DRAWS; i++) {
        struct sampler *s;

        o.seed = i;
        assert_ok(sampler_open(&s, &o, SMALL, &kern));
        sampler_prompt(s, prompt_ids, sizeof(prompt_ids) / sizeof(prompt_ids[0]));
        for (int k = 0; k < N_BEFORE; k++)
            sampler_skip(s, before_ids[k]);
        seen[sampler_sample(s, x)]++;
        sampler_close(&s);
    }
    for (int i = 0; i < SMALL; i++) {
        if (p[i] == 0 && seen[i])
            fail_msg("%s: drew %d, whose probability is 0", what, i);
        if (p[i] * DRAWS < 5)
            continue;
        chi2 += pow(seen[i] - p[i] * DRAWS, 2) / (p[i] * DRAWS);
        df++;
    }
    if (chi2 > df + 6 * sqrt(2.0 * df) + 6)
        fail_msg("%s: chi squared %g with %d degrees", what, chi2, df);
}

TEST(test_changed_distributions)
{
    static const struct sampler_bias bias[] = {{1, 2.5f}, {7, -100}, {9, -1}};
    static const int32_t late[] = {0, 6};
    struct some some = {.bits = {0xa9c}};
    struct sampler_opts all = {.repetition_penalty = 1.3,
                               .presence_penalty = 0.4,
                               .frequency_penalty = 0.2,
                               .bias = bias,
                               .n_bias = 3,
                               .late = late,
                               .n_late = 2,
                               .min_new = N_BEFORE + 1,
                               .typical_p = 0.8};

    check_changed((struct sampler_opts){0}, "nothing");
    check_changed((struct sampler_opts){.repetition_penalty = 1.5}, "repetition");
    check_changed((struct sampler_opts){.repetition_penalty = 0.7}, "repetition below 1");
    check_changed((struct sampler_opts){.presence_penalty = 1.5}, "presence");
    check_changed((struct sampler_opts){.frequency_penalty = 0.6}, "frequency");
    check_changed((struct sampler_opts){.frequency_penalty = -0.5}, "frequency below 0");
    check_changed((struct sampler_opts){.bias = bias, .n_bias = 3}, "bias");
    check_changed(
        (struct sampler_opts){.late = late, .n_late = 2, .min_new = N_BEFORE + 1},
        "no end yet");
    check_changed((struct sampler_opts){.late = late, .n_late = 2, .min_new = N_BEFORE},
                  "an end from now on");
    for (int i = 1; i < 10; i += 2)
        check_changed((struct sampler_opts){.typical_p = i / 10.0}, "typical");
    check_changed(all, "all of them");
    check_changed((struct sampler_opts){.constraint = only(&some)}, "constraint");
    assert_int_equal(some.n_taken, 20000 * (N_BEFORE + 1));
    all.constraint = only(&some);
    check_changed(all, "all of them under a constraint");
}

/* The likeliest of those that are allowed, by any way of choosing; none where none is. Where only
 * an end that is to come later is allowed, it comes. */
TEST(test_constraint)
{
    const float x[4] = {4, 3.5f, 3, 1};
    const int32_t late = 3;
    struct some some = {.bits = {0xc}};
    const struct sampler_opts all[] = {
        {.top_p = 1},
        {.top_p = 1, .temperature = 1, .top_k = 1},
        {.top_p = 1e-9, .temperature = 1},
        {.top_p = 1, .temperature = 1e-9, .top_k = 3, .presence_penalty = 1e-3},
        {.top_p = 1, .temperature = 1e-9, .late = &late, .n_late = 1, .min_new = 9},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct sampler_opts o = all[i];
        struct sampler *s;

        o.constraint = only(&some);
        assert_ok(sampler_open(&s, &o, 4, &kern));
        some = (struct some){.bits = {0xc}};
        assert_int_equal(sampler_sample(s, x), 2);
        some.bits[0] = 8;
        assert_int_equal(sampler_sample(s, x), 3);
        sampler_skip(s, 1); /* chosen elsewhere */
        assert_true(some.n_taken == 3 && some.sum == 6);
        some.bits[0] = 0;
        assert_int_equal(sampler_sample(s, x), SAMPLER_NONE);
        some.bits[0] = UINT64_MAX;
        assert_int_equal(sampler_sample(s, x), SAMPLER_NONE);
        assert_int_equal(some.n_taken, 3);
        sampler_close(&s);
    }
}

/* Greedy ids obey them, too, and what was chosen here counts as what was chosen elsewhere. */
TEST(test_changed_greedy)
{
    static const int by_frequency[] = {0, 1, 0}, not_yet[] = {1, 1, 0};
    const float x[4] = {4, 3.5f, 3, 1};
    const int32_t late = 0;
    const struct sampler_bias bias = {3, 10};
    struct sampler *s;

    assert_ok(sampler_open(
        &s, &(struct sampler_opts){.top_p = 1, .presence_penalty = 0.75}, 4, &kern));
    assert_int_equal(sampler_sample(s, x), 0);
    assert_int_equal(sampler_sample(s, x), 1);
    assert_int_equal(sampler_sample(s, x), 0); /* it is subtracted once */
    sampler_close(&s);
    assert_ok(sampler_open(
        &s, &(struct sampler_opts){.top_p = 1, .frequency_penalty = 0.75}, 4, &kern));
    for (int i = 0; i < 3; i++)
        assert_int_equal(sampler_sample(s, x), by_frequency[i]);
    assert_int_equal(sampler_sample(s, x), 2);
    sampler_close(&s);
    assert_ok(sampler_open(
        &s, &(struct sampler_opts){.top_p = 1, .late = &late, .n_late = 1, .min_new = 2},
        4, &kern));
    for (int i = 0; i < 3; i++)
        assert_int_equal(sampler_sample(s, x), not_yet[i]);
    sampler_close(&s);
    assert_ok(sampler_open(
        &s, &(struct sampler_opts){.top_p = 1, .bias = &bias, .n_bias = 1}, 4, &kern));
    assert_int_equal(sampler_sample(s, x), 3);
    sampler_close(&s);
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
    const struct sampler_opts bad[] = {
        {.temperature = -1, .top_p = 1},
        {.temperature = NAN, .top_p = 1},
        {.temperature = INFINITY, .top_p = 1},
        {.temperature = 1, .top_p = 0},
        {.temperature = 1, .top_p = 1.5},
        {.temperature = 1, .top_p = 1, .top_k = -1},
        {.temperature = 1, .top_p = 1, .min_p = 2},
        {.top_p = 1, .typical_p = 1.5},
        {.top_p = 1, .repetition_penalty = -1},
        {.top_p = 1, .presence_penalty = NAN},
        {.top_p = 1, .frequency_penalty = INFINITY},
        {.top_p = 1, .bias = &(const struct sampler_bias){10, 1}, .n_bias = 1},
        {.top_p = 1, .bias = &(const struct sampler_bias){1, NAN}, .n_bias = 1},
        {.top_p = 1, .late = &(const int32_t){-1}, .n_late = 1, .min_new = 1},
    };
    static const char *const part[] = {"temperature",
                                       "temperature",
                                       "temperature",
                                       "top_p",
                                       "top_p",
                                       "top_k",
                                       "min_p",
                                       "typical_p",
                                       "repetition_penalty",
                                       "presence_penalty",
                                       "frequency_penalty",
                                       "logit_bias",
                                       "logit_bias",
                                       "stop_token_ids"};
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
        sampler_skip(b, 0);
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
    struct sampler_opts o = {.temperature = 1,
                             .top_p = 0.9,
                             .top_k = 5,
                             .typical_p = 0.9,
                             .presence_penalty = 1,
                             .bias = &(const struct sampler_bias){1, 1},
                             .n_bias = 1,
                             .late = &(const int32_t){2},
                             .n_late = 1,
                             .min_new = 1};
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
