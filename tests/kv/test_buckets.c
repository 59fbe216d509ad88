/* Bounds of buckets equal sorted quantiles of the window, follow a change of the lengths,
 * and choose the smallest bucket; requests are admitted and preempted by rule, and devices
 * share bounds. */
#include <math.h>

#include "base/mem.h"
#include "base/stats.h"
#include "kv/buckets.h"
#include "kv/calibrate.h"
#include "kv/cluster.h"
#include "kv/least.h"
#include "tests/support/faults.h"

#define N_MAX 3000

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* The bounds as they are defined, from all lengths ever added: the latest of them, sorted. */
static int expected_bounds(const struct kv_bucket_opts *o, const int64_t *len, int n,
                           int64_t *out)
{
    int64_t sorted[N_MAX], m = n < o->window ? n : o->window;
    int n_out = 0;

    memcpy(sorted, len + n - m, (size_t)m * sizeof(*sorted));
    qsort(sorted, (size_t)m, sizeof(*sorted), by_size);
    for (int i = 0; i < o->n; i++) {
        int64_t k = 0, bound;

        /* the smallest x with F(x) >= p */
        while ((double)(k + 1) < o->p[i] * (double)m * (1 - 1e-14))
            k++;
        bound = (sorted[k] + o->align_tok - 1) / o->align_tok * o->align_tok;
        bound = bound < o->max_tok ? bound : o->max_tok;
        if (n_out == 0 || bound > out[n_out - 1])
            out[n_out++] = bound;
    }
    return n_out;
}

static struct kv_bucket_opts random_opts(struct rng *r)
{
    struct kv_bucket_opts o = {.max_tok = 1 + (int64_t)rng_below(r, 3000),
                               .align_tok = 1 + (int64_t)rng_below(r, 64),
                               .window = 1 + (int64_t)rng_below(r, 1000),
                               .every = 1 + (int64_t)rng_below(r, 300),
                               .of_total = rng_below(r, 2)};

    for (double p = 0; o.n < KV_BUCKETS_MAX; o.n++) {
        p += (double)(1 + rng_below(r, 30)) / 100; /* such as 0.07, times 100 */
        if (p > 1)
            break;
        o.p[o.n] = p;
    }
    return o;
}

TEST(bounds_are_quantiles)
{
    static int64_t len[N_MAX];
    struct rng r;

    rng_init(&r, test_seed(), "buckets");
    for (int round = 0; round < 200; round++) {
        struct kv_bucket_opts o = random_opts(&r);
        const struct kv_bounds *b;
        struct kv_buckets *m;
        int64_t epoch = 0;

        assert_ok(kv_buckets_open(&m, &o));
        b = kv_buckets_bounds(m);
        kv_buckets_learn(m); /* nothing to learn from */
        assert_true(b->n == 0 && b->epoch == 0);
        for (int n = 0; n < N_MAX; n++) {
            int64_t prompt = (int64_t)rng_below(&r, 100), want[KV_BUCKETS_MAX];
            int64_t output = 1 + (int64_t)(exp(rng_normal(&r)) * (double)o.max_tok / 5);
            int n_want;

            output = output < o.max_tok ? output : o.max_tok;
            len[n] = output + (o.of_total ? prompt : 0);
            kv_buckets_add(m, prompt, output);
            if (!kv_buckets_due(m))
                continue;
            assert_int_equal(b->epoch, epoch); /* nothing changes before */
            kv_buckets_learn(m);
            assert_false(kv_buckets_due(m));
            assert_int_equal(b->epoch, ++epoch);
            n_want = expected_bounds(&o, len, n + 1, want);
            if (b->n != n_want || memcmp(b->tok, want, sizeof(*want) * (size_t)n_want))
                fail_msg("TEST_SEED=%llu round %d, %d lengths: other bounds",
                         (unsigned long long)test_seed(), round, n + 1);
            for (int i = 0; i < b->n; i++)
                assert_true(b->tok[i] <= o.max_tok &&
                            (i == 0 || b->tok[i] > b->tok[i - 1]));
        }
        assert_int_equal(epoch, N_MAX / o.every);
        kv_buckets_close(&m);
        assert_null(m);
    }
}

/* The quantile of the project's statistics. */
TEST(quantiles_are_those_of_stats)
{
    struct kv_bucket_opts o = {
        .max_tok = 10000, .align_tok = 1, .window = 100, .every = 1, .n = 1, .p = {0.07}};
    struct kv_buckets *m;
    double x[100];

    assert_ok(kv_buckets_open(&m, &o));
    for (int i = 0; i < 100; i++) {
        x[i] = 1 + i * 37 % 100;
        kv_buckets_add(m, 5, (int64_t)x[i]);
    }
    kv_buckets_learn(m);
    assert_int_equal(kv_buckets_bounds(m)->tok[0], 7);
    assert_true(stats_percentile(x, 100, 0.07) == 7);
    kv_buckets_close(&m);
}

TEST(the_smallest_bucket_is_chosen)
{
    struct kv_bounds b = {.n = 3, .align_tok = 16, .tok = {64, 128, 512}};
    struct kv_need need = {.prompt_tok = 100, .gen_tok = 64};

    assert_int_equal(kv_bounds_bucket(&b, &need), 0);
    assert_int_equal(kv_bounds_size(&b, &need, 1024), 176); /* 100 + 64, aligned */
    assert_int_equal(kv_bounds_size(&b, &need, 150), 150);
    b.of_total = true;
    assert_int_equal(kv_bounds_bucket(&b, &need), 2);
    assert_int_equal(kv_bounds_size(&b, &need, 1024), 512);
    need.prompt_tok = 64;
    assert_int_equal(kv_bounds_bucket(&b, &need), 1);
    need.large = true;
    assert_int_equal(kv_bounds_bucket(&b, &need), 3);
    assert_int_equal(kv_bounds_size(&b, &need, 1024), 1024);
    need.large = false;
    need.gen_tok = 449;
    assert_int_equal(kv_bounds_bucket(&b, &need), 3);
}

/* Equal parts of the longest, each rounded up to the alignment, and none twice. */
TEST(equal_bounds)
{
    static const int64_t want[] = {32, 48, 64, 80, 100};
    struct kv_bounds b;

    kv_bounds_equal(&b, 5, 100, 16);
    assert_true(b.n == 5 && b.of_total && b.align_tok == 16 && b.epoch == 0);
    assert_memory_equal(b.tok, want, sizeof(want));
    kv_bounds_equal(&b, 10, 16, 16);
    assert_true(b.n == 1 && b.tok[0] == 16);
    kv_bounds_equal(&b, 3, 10, 1); /* thirds, rounded up */
    assert_true(b.n == 3 && b.tok[0] == 4 && b.tok[1] == 7 && b.tok[2] == 10);
    kv_bounds_equal(&b, 0, 10, 1);
    assert_int_equal(b.n, 0);
}

/* Each option at its least and most, and one beyond. */
TEST(options_at_their_bounds)
{
    const struct kv_bucket_opts good = {
        .max_tok = 1, .align_tok = 1, .window = 1, .every = 1};
    struct kv_buckets *m;

    for (int i = 0; i < 14; i++) {
        struct kv_bucket_opts o = good;
        bool ok = i < 5;

        o.n = i == 1 || i == 2 || i > 9 ? 1 : 0;
        o.p[0] = i == 1 ? 1 : i == 10 ? 0 : i == 11 ? NAN : i == 12 ? -0.5 : 0.5;
        if (i == 3) { /* as many as there can be */
            o.n = KV_BUCKETS_MAX;
            for (int k = 0; k < o.n; k++)
                o.p[k] = (k + 1.0) / o.n;
        }
        o.n_first = i == 4   ? KV_BUCKETS_MAX
                    : i == 8 ? -1
                    : i == 9 ? KV_BUCKETS_MAX + 1
                             : 0;
        o.n = i == 13 ? -1 : o.n;
        *(i == 5 ? &o.max_tok : i == 6 ? &o.align_tok : &o.every) -= i >= 5 && i <= 7;
        if ((kv_buckets_open(&m, &o) == OK) != ok)
            fail_msg("row %d", i);
        kv_buckets_close(&m);
        err_clear();
    }
}

/* The first bounds are equal parts; the shortest and the longest lengths are counted, too. */
TEST(lengths_at_their_bounds)
{
    struct kv_bucket_opts o = {.max_tok = 40,
                               .align_tok = 16,
                               .window = 4,
                               .every = 2,
                               .n = 2,
                               .n_first = 2,
                               .p = {0.5, 1}};
    const struct kv_bounds *b;
    struct kv_buckets *m;

    assert_ok(kv_buckets_open(&m, &o));
    b = kv_buckets_bounds(m);
    assert_true(b->n == 2 && b->tok[0] == 32 && b->tok[1] == 40 && !b->of_total);
    kv_buckets_add(m, 9, 0);
    assert_false(kv_buckets_due(m));
    kv_buckets_add(m, 9, 1000);
    assert_true(kv_buckets_due(m));
    kv_buckets_learn(m);
    assert_true(b->n == 2 && b->tok[0] == 16 && b->tok[1] == 40 && b->epoch == 1);
    kv_buckets_add(m, 9, 16);
    kv_buckets_add(m, 9, 17); /* of 0, 16, 17, 1000 half is in the first bin */
    kv_buckets_learn(m);
    assert_true(b->n == 2 && b->tok[0] == 16 && b->tok[1] == 40);
    kv_buckets_add(m, 9, 17); /* of 16, 17, 17, 1000 */
    kv_buckets_learn(m);
    assert_true(b->n == 2 && b->tok[0] == 32 && b->epoch == 3);
    kv_buckets_close(&m);
}

TEST(options_are_checked)
{
    const struct kv_bucket_opts good = {.max_tok = 100,
                                        .align_tok = 16,
                                        .window = 10,
                                        .every = 5,
                                        .n = 2,
                                        .p = {0.5, 0.9}};
    struct kv_bucket_opts o = good;
    struct kv_buckets *m;

    o.window = 0;
    assert_err(kv_buckets_open(&m, &o), ERR_ARG, "window 0");
    o = good, o.n = KV_BUCKETS_MAX + 1;
    assert_err(kv_buckets_open(&m, &o), ERR_ARG, "17 quantiles");
    o = good, o.p[1] = 0.5;
    assert_err(kv_buckets_open(&m, &o), ERR_ARG, "quantile 2 is 0.5");
    o = good, o.p[1] = 1.01;
    assert_err(kv_buckets_open(&m, &o), ERR_ARG, "quantile 2");
    assert_null(m);
    assert_true(test_allocations(kv_buckets_open(&m, &good), !m) > 0);
    kv_buckets_close(&m);
    kv_buckets_close(&m);
    assert_int_equal(mem_used_bytes(MEM_KV), 0);
}

/* --- which lengths count */

static void add_lengths(struct kv_buckets *b, int n, int64_t least, int64_t most)
{
    for (int i = 0; i < n; i++)
        kv_buckets_add(b, 0, least + (most - least) * i / n);
}

static int64_t learned(struct kv_buckets *b)
{
    kv_buckets_learn(b);
    return kv_buckets_bounds(b)->tok[0];
}

/* The median of a window whose later half is of other lengths: the old ones are forgotten where
 * that is asked for, and only then; lengths that do not change are kept. */
TEST(a_change_is_detected)
{
    struct kv_bucket_opts o = {
        .max_tok = 1000, .align_tok = 1, .window = 400, .every = 100, .n = 1, .p = {0.5}};

    for (int detect = 0; detect < 2; detect++) {
        struct kv_buckets *b;

        o.detect = detect;
        assert_ok(kv_buckets_open(&b, &o));
        add_lengths(b, 100, 500, 600);
        add_lengths(b, 100, 500, 600);
        add_lengths(b, 100, 500, 600);
        assert_int_equal(learned(b), 549);
        add_lengths(b, 100, 505, 605); /* as good as the same */
        assert_int_equal(learned(b), 551);
        add_lengths(b, 100, 100, 200); /* the first 100 have left */
        assert_int_equal(learned(b), detect ? 149 : 534);
        add_lengths(b, 100, 100, 200);
        assert_int_equal(learned(b), detect ? 149 : 199);
        /* the window is as long as it was, and its oldest leave in order */
        for (int i = 0; i < 3; i++)
            add_lengths(b, 100, 100, 200);
        assert_int_equal(learned(b), 149);
        kv_buckets_close(&b);
    }
    o.half_life = -1;
    {
        struct kv_buckets *b;

        assert_err(kv_buckets_open(&b, &o), ERR_ARG, "half-life -1");
    }
}

/* With a half-life of 50 the latest 100 of 400 weigh 3/4 and a little more of all. */
TEST(later_lengths_count_more)
{
    struct kv_bucket_opts o = {.max_tok = 1000,
                               .align_tok = 1,
                               .window = 400,
                               .every = 100,
                               .n = 2,
                               .half_life = 50,
                               .p = {0.75, 0.76}};
    struct kv_buckets *b;

    assert_ok(kv_buckets_open(&b, &o));
    for (int i = 0; i < 300; i++)
        kv_buckets_add(b, 0, 900);
    for (int i = 0; i < 100; i++)
        kv_buckets_add(b, 0, 100);
    kv_buckets_learn(b);
    assert_int_equal(kv_buckets_bounds(b)->n, 2);
    assert_int_equal(kv_buckets_bounds(b)->tok[0], 100);
    assert_int_equal(kv_buckets_bounds(b)->tok[1], 900);
    kv_buckets_close(&b);
}

/* --- bounds of least memory */

#define BINS 9

/* The least memory of all choices of at most n of the bins, one by one. */
static double least_memory(const int64_t *weight, int n)
{
    double least = INFINITY;

    for (int set = 1; set < 1 << BINS; set++) {
        double sum = 0;
        int bound = -1;

        if (__builtin_popcount((unsigned)set) > n)
            continue;
        for (int i = BINS - 1; i >= 0; i--) {
            bound = set >> i & 1 ? i : bound;
            if (weight[i] > 0)
                sum += bound < 0 ? INFINITY : (double)weight[i] * (bound + 1);
        }
        least = fmin(least, sum);
    }
    return least;
}

TEST(bounds_take_least_memory)
{
    struct rng r;

    rng_init(&r, test_seed(), "least");
    for (int round = 0; round < 500; round++) {
        int n_bounds = 1 + (int)rng_below(&r, 5), n, at = 0;
        int64_t weight[BINS], bins[KV_BUCKETS_MAX];
        struct kv_least *l;
        double sum = 0;

        for (int i = 0; i < BINS; i++)
            weight[i] = (int64_t)(rng_below(&r, 3) * rng_below(&r, 50));
        weight[rng_below(&r, BINS)] += 1;
        assert_ok(kv_least_open(&l, BINS, n_bounds));
        for (int again = 0; again < 2; again++)
            n = kv_least_find(l, bins, weight);
        assert_in_range(n, 1, n_bounds);
        for (int i = 0; i < BINS; i++) {
            while (at < n && bins[at] < i)
                at++;
            if (weight[i] > 0) {
                assert_true(at < n);
                sum += (double)weight[i] * (double)(bins[at] + 1);
            }
        }
        for (int i = 1; i < n; i++)
            assert_true(bins[i] > bins[i - 1]);
        if (sum != least_memory(weight, n_bounds))
            fail_msg("TEST_SEED=%llu round %d: %g, the least is %g",
                     (unsigned long long)test_seed(), round, sum,
                     least_memory(weight, n_bounds));
        kv_least_close(&l);
    }
}

/* Quantiles end where most lengths are; these where the memory is. */
TEST(buckets_take_least_memory)
{
    struct kv_bucket_opts o = {.max_tok = 1000,
                               .align_tok = 10,
                               .window = 100,
                               .every = 100,
                               .n = 2,
                               .least = true,
                               .p = {0.5, 1}};
    const struct kv_bounds *bounds;
    struct kv_buckets *b;

    assert_ok(kv_buckets_open(&b, &o));
    for (int i = 0; i < 80; i++)
        kv_buckets_add(b, 0, 10 + i % 2 * 10);
    for (int i = 0; i < 20; i++)
        kv_buckets_add(b, 0, i % 2 ? 1000 : 100);
    kv_buckets_learn(b);
    bounds = kv_buckets_bounds(b);
    assert_true(bounds->n == 2 && bounds->tok[0] == 100 && bounds->tok[1] == 1000);
    kv_buckets_close(&b);
    assert_true(test_allocations(kv_buckets_open(&b, &o), !b) > 4);
    kv_buckets_close(&b);
    assert_int_equal(mem_used_bytes(MEM_KV), 0);
}

/* --- correction of predictions */

TEST(predictions_are_corrected)
{
    struct kv_calibration *c;

    assert_err(kv_calibration_open(&c, 0), ERR_ARG, "window 0");
    assert_ok(kv_calibration_open(&c, 10));
    assert_true(kv_calibration_factor(c) == 1);
    for (int i = 0; i < 4; i++)
        kv_calibration_add(c, 100, 400);
    assert_true(kv_calibration_factor(c) == 1); /* too few */
    for (int i = 0; i < 6; i++)
        kv_calibration_add(c, 100, 25);
    assert_true(fabs(log(kv_calibration_factor(c) / 0.25)) <= 0.026);
    for (int i = 0; i < 6; i++) /* the latest ten: four of 1/4, six of 8 */
        kv_calibration_add(c, 100, 800);
    assert_true(fabs(log(kv_calibration_factor(c) / 8)) <= 0.026);
    for (int i = 0; i < 10; i++) /* as far as the bins go */
        kv_calibration_add(c, 0, INT64_MAX);
    assert_true(fabs(log(kv_calibration_factor(c)) - 15) < 0.001);
    kv_calibration_close(&c);
    assert_true(test_allocations(kv_calibration_open(&c, 10), !c) > 1);
    kv_calibration_close(&c);
    kv_calibration_close(&c);
    assert_int_equal(mem_used_bytes(MEM_KV), 0);
}

/* --- devices */

/* Buckets of twice the size each above the last quantile, and only where asked for. */
TEST(steps_above_the_last_quantile)
{
    struct kv_bucket_opts o = {.max_tok = 256,
                               .align_tok = 1,
                               .window = 8,
                               .every = 8,
                               .of_total = true,
                               .n = 1,
                               .p = {1}};

    for (int steps = 0; steps < 2; steps++) {
        const struct kv_bounds *bounds;
        struct kv_buckets *b;

        o.steps = steps;
        assert_ok(kv_buckets_open(&b, &o));
        for (int i = 0; i < 8; i++)
            kv_buckets_add(b, 10, 12);
        kv_buckets_learn(b);
        bounds = kv_buckets_bounds(b);
        assert_int_equal(bounds->n,
                         steps ? 4 : 1); /* not 352, which is over the longest */
        for (int i = 0; i < bounds->n; i++)
            assert_int_equal(bounds->tok[i], 22 << i);
        kv_buckets_close(&b);
    }
    o.max_tok = 176; /* twice 88 is the longest, which needs no bucket of its own */
    for (int i = 0; i < 2; i++, o.max_tok = INT64_C(1) << 24) {
        struct kv_buckets *b;

        assert_ok(kv_buckets_open(&b, &o));
        kv_buckets_add(b, 10, 12);
        kv_buckets_learn(b);
        assert_int_equal(kv_buckets_bounds(b)->n, i == 0 ? 3 : KV_BUCKETS_MAX);
        kv_buckets_close(&b);
    }
}

TEST(devices_share_bounds)
{
    const struct kv_bounds learned = {
        .epoch = 7, .n = 3, .of_total = true, .align_tok = 16, .tok = {64, 512, 4096}};
    const struct kv_device d[] = {
        {.arena_tok = 8192, .reserved_tok = 8000, .load = 0, .capacity = 10},
        {.arena_tok = 2048, .reserved_tok = 1024, .load = 2, .capacity = 10},
        {.arena_tok = 8192, .reserved_tok = 1024, .load = 4, .capacity = 10},
    };
    struct kv_bounds b;

    assert_int_equal(kv_cluster_budget(d, 3), 2048);
    assert_int_equal(kv_cluster_budget(d, 0), 0);
    kv_cluster_bounds(&b, &learned, d, 3);
    assert_true(b.epoch == 7 && b.n == 2 && b.tok[1] == 512 && b.of_total);
    kv_cluster_bounds(&b, &learned, d, 1);
    assert_memory_equal(&b, &learned, sizeof(b));
    /* shares of memory: 1.04, 0.75, 0.19; of compute: 0.1, 0.3, 0.5 */
    assert_int_equal(kv_cluster_choose(d, 3, 512, 1), 2);
    /* 0.98, 0.53, 0.13; 0.1, 0.3, 0.5 */
    assert_int_equal(kv_cluster_choose(d, 3, 64, 1), 2);
    /* compute decides: 0.98, 0.6, 0.9 */
    assert_int_equal(kv_cluster_choose(d, 3, 64, 4), 1);
    assert_int_equal(kv_cluster_choose(d, 1, 512, 1), -1);
    assert_int_equal(kv_cluster_choose(d, 0, 1, 1), -1);
    /* a device may be filled to the last token, and of equal ones the first is taken */
    assert_int_equal(kv_cluster_choose(d, 1, 192, 0), 0);
    assert_int_equal(kv_cluster_choose(d, 1, 193, 0), -1);
    assert_int_equal(kv_cluster_choose((const struct kv_device[]){d[1], d[1]}, 2, 1, 1),
                     0);
    /* a bucket as large as the smallest device stays, and all may be too large */
    kv_cluster_bounds(&b, &learned, &(struct kv_device){.arena_tok = 512}, 1);
    assert_int_equal(b.n, 2);
    kv_cluster_bounds(&b, &learned, &(struct kv_device){.arena_tok = 63}, 1);
    assert_int_equal(b.n, 0);
}
