/* The paper's own search as a function of times that a script gives: what it measures, in which
 * order, and what it fixes when. */
#include <math.h>

#include "tests/tune/bench_model.h"
#include "tune/space.h"

#define LOG_MAX    4096
#define SHAPES_MAX 8

/* Micro-kernels of two rows by one panel and of one row by two. */
static const struct kern_variant two = {.name = "two",
                                        .op = KERN_GEMM_F32,
                                        .rows = {2, 1},
                                        .vec_cols = 16,
                                        .a_format = KERN_A_F32};

struct run {
    struct kern_schedule s;
    int64_t m;
    int n_threads;
};

struct search {
    double (*script)(const struct run *r);
    struct run log[LOG_MAX];
    int n_log;
    struct tune_bench *bench;
    struct tune_opts o;
    struct tune_shape shapes[SHAPES_MAX];
    struct kern_schedule out[SHAPES_MAX];
    bool measured[SHAPES_MAX];
    struct tune_ctx c;
};

static double timer(void *arg, const struct tune_shape *shape,
                    const struct kern_schedule *s, int n_threads)
{
    struct search *x = arg;
    struct run *r = &x->log[x->n_log++];

    assert_in_range(x->n_log, 1, LOG_MAX - 1);
    *r = (struct run){*s, shape->m, n_threads};
    return x->script(r);
}

static int on_done(void *arg, int i, const struct kern_schedule *s,
                   const struct measure_report *t)
{
    struct search *x = arg;

    (void)s;
    x->measured[i] = t != NULL;
    return OK;
}

/* Shapes of 4, 8, 12 ... rows on two threads, without a split of K. */
static void search_run(struct search *x, double (*script)(const struct run *r), int n,
                       int64_t cols, int64_t depth, int64_t sigma)
{
    const struct tune_policy *p;

    memset(x, 0, sizeof(*x));
    x->script = script;
    assert_ok(tune_bench_open_model(&x->bench, timer, x));
    bench_model_opts(&x->o);
    x->o.retest = 0;
    x->o.split_k = false;
    x->o.sigma = sigma;
    for (int i = 0; i < n; i++)
        x->shapes[i] =
            (struct tune_shape){.v = &two, .m = 4 * (i + 1), .n = cols, .k = depth};
    x->c = (struct tune_ctx){.bench = x->bench,
                             .n_threads = 2,
                             .o = &x->o,
                             .shapes = x->shapes,
                             .n_shapes = n,
                             .done = on_done,
                             .arg = x};
    assert_ok(tune_policy_find("sandwich_paper", &p));
    assert_ok(p->run(&x->c, x->out));
}

static void search_close(struct search *x)
{
    tune_bench_close(&x->bench);
    opt_free(tune_opt_table, &x->o);
}

/* ---- one shape by hand ---- */

/* 4 rows, 4 panels and 256 rows of K on two threads: a slice of the fast start has at most
 * 2 rows, 2 panels and 128 rows of K. */
static const struct {
    const char *s;
    double t; /* 0: 100, as all others */
} by_hand[] = {
    /* fast start of the two-row micro-kernel: K gains, N does not, M is at its limit */
    {"2x1 2x1x64 1x1x1 nmk", 0},
    {"2x1 2x1x128 1x1x1 nmk", 90},
    {"2x1 2x2x128 1x1x1 nmk", 0},
    /* of the one of two panels: K does not gain, N is at its limit, M gains, once */
    {"1x2 1x2x64 1x1x1 nmk", 0},
    {"1x2 1x2x128 1x1x1 nmk", 0},
    {"1x2 2x2x64 1x1x1 nmk", 80},
    /* of the one of one row and panel: nothing gains */
    {"1x1 1x1x64 1x1x1 nmk", 0},
    {"1x1 1x1x128 1x1x1 nmk", 0},
    {"1x1 1x2x64 1x1x1 nmk", 0},
    {"1x1 2x1x64 1x1x1 nmk", 0},
    /* finetune of the first, cut along N: a panel gains, then nothing more does */
    {"2x1 2x1x128 1x2x1 nmk", 0},
    {"2x1 4x1x128 1x2x1 nmk", 0},
    {"2x1 2x2x128 1x2x1 nmk", 50},
    {"2x1 2x1x192 1x2x1 nmk", 0},
    {"2x1 4x2x128 1x2x1 nmk", 0},
    {"2x1 2x2x192 1x2x1 nmk", 0},
    /* cut along M, where a thread has two rows */
    {"2x1 2x1x128 2x1x1 nmk", 0},
    {"2x1 2x2x128 2x1x1 nmk", 0},
    {"2x1 2x1x192 2x1x1 nmk", 0},
    /* the second, under both schemes */
    {"1x2 2x2x64 1x2x1 nmk", 0},
    {"1x2 3x2x64 1x2x1 nmk", 0},
    {"1x2 2x2x128 1x2x1 nmk", 0},
    {"1x2 2x2x64 2x1x1 nmk", 0},
    {"1x2 2x4x64 2x1x1 nmk", 0},
    {"1x2 2x2x128 2x1x1 nmk", 0},
    /* the third */
    {"1x1 1x1x64 1x2x1 nmk", 0},
    {"1x1 2x1x64 1x2x1 nmk", 0},
    {"1x1 1x2x64 1x2x1 nmk", 0},
    {"1x1 1x1x128 1x2x1 nmk", 0},
    {"1x1 1x1x64 2x1x1 nmk", 0},
    {"1x1 2x1x64 2x1x1 nmk", 0},
    {"1x1 1x2x64 2x1x1 nmk", 0},
    {"1x1 1x1x128 2x1x1 nmk", 0},
};
#define N_BY_HAND ((int)(sizeof(by_hand) / sizeof(by_hand[0])))

static double hand_s(const struct run *r)
{
    char text[128];

    kern_schedule_print(&r->s, text, sizeof(text));
    for (int i = 0; i < N_BY_HAND; i++)
        if (strcmp(text, by_hand[i].s) == 0 && by_hand[i].t > 0)
            return by_hand[i].t;
    return 100;
}

TEST(measures_what_the_paper_says_in_its_order)
{
    static struct search x;
    char text[128];

    search_run(&x, hand_s, 1, 64, 256, 16);
    for (int i = 0; i < x.n_log && i < N_BY_HAND; i++) {
        kern_schedule_print(&x.log[i].s, text, sizeof(text));
        if (strcmp(text, by_hand[i].s) != 0)
            fail_msg("measurement %d: expected %s, found %s", i, by_hand[i].s, text);
        assert_int_equal(x.log[i].n_threads,
                         x.log[i].s.pm * x.log[i].s.pn * x.log[i].s.pk);
    }
    assert_int_equal(x.n_log, N_BY_HAND);
    kern_schedule_print(&x.out[0], text, sizeof(text));
    assert_string_equal(text, "2x1 2x2x128 1x2x1 nmk");
    search_close(&x);
}

/* ---- what is fixed, and when ---- */

static int64_t best_bk(int64_t m, bool moves)
{
    return moves && m / 4 % 2 == 0 ? 384 : 128;
}

/* Two rows by one panel, a slice of best_bk() rows of K, and one of the schemes are the best.
 * Rows and panels of the slice make no difference. */
static double shaped_s(const struct run *r, bool slice_moves, bool scheme_moves)
{
    int64_t want = best_bk(r->m, slice_moves);
    int pm = scheme_moves && r->m / 4 % 2 == 0 ? 2 : 1;
    double t = 100 + 10 * fabs((double)(r->s.bk - want)) / 64;

    t *= r->s.mr == 2 ? 1 : 3;
    return r->n_threads == 1 || r->s.pm == pm ? t : 2 * t;
}

static double all_stays(const struct run *r)
{
    return shaped_s(r, false, false);
}

static double slice_moves(const struct run *r)
{
    return shaped_s(r, true, false);
}

static double scheme_moves(const struct run *r)
{
    return shaped_s(r, false, true);
}

static double all_moves(const struct run *r)
{
    return shaped_s(r, true, true);
}

/* The runs for m rows on n_threads. */
static int n_runs(const struct search *x, int64_t m, int n_threads)
{
    int n = 0;

    for (int i = 0; i < x->n_log; i++)
        n += x->log[i].m == m && x->log[i].n_threads == n_threads;
    return n;
}

static void check_choice(const struct search *x, int i, bool slice, bool scheme)
{
    int64_t m = x->shapes[i].m;

    assert_int_equal(x->out[i].mr, 2);
    assert_int_equal(x->out[i].np, 1);
    assert_int_equal(x->out[i].bk, best_bk(m, slice));
    assert_int_equal(x->out[i].pm, scheme && m / 4 % 2 == 0 ? 2 : 1);
}

TEST(what_stays_is_fixed_after_a_full_window)
{
    static struct search x;

    search_run(&x, all_stays, 5, 64, 512, 2);
    for (int i = 0; i < 5; i++) {
        check_choice(&x, i, false, false);
        /* two fill the window, the third agrees with them */
        assert_int_equal(x.measured[i], i < 3);
        assert_int_equal(n_runs(&x, x.shapes[i].m, 2) > 0, i < 3);
    }
    search_close(&x);
}

TEST(a_fixed_slice_is_tried_under_every_scheme)
{
    static struct search x;

    search_run(&x, scheme_moves, 5, 64, 512, 1);
    for (int i = 0; i < 5; i++)
        check_choice(&x, i, false, true);
    for (int i = 2; i < 5; i++) { /* fixed by the second; the scheme changes each time */
        assert_int_equal(n_runs(&x, x.shapes[i].m, 1), 0);
        assert_int_equal(n_runs(&x, x.shapes[i].m, 2), 2);
    }
    for (int i = 0; i < x.n_log; i++)
        if (x.log[i].m > 8)
            assert_int_equal(x.log[i].s.bk, 128);
    search_close(&x);
}

TEST(under_a_fixed_scheme_slices_still_grow)
{
    static struct search x;

    search_run(&x, slice_moves, 5, 64, 512, 1);
    for (int i = 0; i < 5; i++)
        check_choice(&x, i, true, false);
    for (int i = 2; i < 5; i++) {
        assert_true(n_runs(&x, x.shapes[i].m, 1) > 1);
        assert_true(n_runs(&x, x.shapes[i].m, 2) > 1);
    }
    for (int i = 0; i < x.n_log; i++)
        if (x.log[i].m > 8 && x.log[i].n_threads == 2)
            assert_int_equal(x.log[i].s.pn, 2);
    search_close(&x);
}

TEST(later_shapes_try_the_windows_micro_kernels_only)
{
    static struct search x;

    search_run(&x, all_moves, 6, 64, 512, 2);
    for (int i = 0; i < 6; i++) {
        bool other = false;

        check_choice(&x, i, true, true);
        assert_true(x.measured[i]); /* neither slice nor scheme ever agree */
        for (int k = 0; k < x.n_log; k++)
            other |= x.log[k].m == x.shapes[i].m && x.log[k].s.mr != 2;
        assert_int_equal(other, i < 2);
    }
    search_close(&x);
}

/* ---- in general ---- */

static struct rng chance;

static double random_s(const struct run *r)
{
    (void)r;
    return 1 + rng_f64(&chance);
}

TEST(chooses_only_what_it_measured)
{
    static struct search x;

    rng_init(&chance, test_seed(), "times");
    for (int round = 0; round < 30; round++) {
        search_run(&x, random_s, SHAPES_MAX, 64 + 16 * (round % 3), 256, 1 + round % 4);
        for (int i = 0; i < SHAPES_MAX; i++) {
            bool there = false;

            for (int k = 0; k < x.n_log; k++)
                there |= x.log[k].m == x.shapes[i].m && x.log[k].n_threads == 2 &&
                         tune_same(&x.log[k].s, &x.out[i]);
            if (x.measured[i] && !there)
                fail_msg("round %d, m %lld: chosen, but not measured", round,
                         (long long)x.shapes[i].m);
        }
        search_close(&x);
    }
}
