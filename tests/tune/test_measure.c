/* Measuring: what is computed is the product, what is counted is what ran, and a model
 * bench takes the time its model says. */
#include "tests/tune/bench_model.h"

#include "cpu/cpu.h"
#include "tune/validate.h"
#include "tune/space.h"

#define THREADS 3

struct real {
    struct par_team *team;
    struct tune_bench *bench;
};

static void real_open(struct real *x, bool warm)
{
    static const int cpus[THREADS];
    const struct tune_bench_opts o = {
        .warm = warm, .seed = 7, .cache_bytes = 1 << 18, .measure = {.max_rounds = 4}};

    assert_ok(par_team_open(&x->team, cpus, THREADS, 0));
    assert_ok(tune_bench_open(&x->bench, x->team, &o));
}

static void real_close(struct real *x)
{
    tune_bench_close(&x->bench);
    assert_null(x->bench);
    par_team_close(&x->team);
}

/* The result of the latest run against float64. */
static void check_result(const struct tune_bench *b, const struct tune_shape *s,
                         const char *what)
{
    const struct kern_mat *w = tune_bench_mat(b);
    static const double tolerances[] = {
        [KERN_EXACT] = 1e-5, [KERN_RELAXED] = 1e-2, [KERN_A8] = 2e-2};
    double tolerance = tolerances[s->v->precision];
    float *row = mem_new(MEM_TEST, (size_t)s->k, sizeof(*row));
    int64_t ldc;
    const float *a = tune_bench_a(b), *c = tune_bench_c(b, &ldc);

    assert_non_null(row);
    for (int64_t n = 0; n < s->n; n += 1 + s->n / 37) {
        kern_mat_get_row(w, n, row);
        for (int64_t m = 0; m < s->m; m += 1 + s->m / 11) {
            double sum = 0, size = 0;

            for (int64_t k = 0; k < s->k; k++) {
                sum += (double)a[m * s->k + k] * (double)row[k];
                size += fabs((double)a[m * s->k + k] * (double)row[k]);
            }
            if (!(fabs(sum - (double)c[m * ldc + n]) <= tolerance * size))
                fail_msg("%s: C[%lld, %lld] = %.9g, expected %.9g", what, (long long)m,
                         (long long)n, (double)c[m * ldc + n], sum);
        }
    }
    mem_free(row);
}

static bool is_gemm(const struct kern_variant *v)
{
    return kern_op_is_gemm(v->op) && (v->isa & ~cpu_isa_usable()) == 0;
}

/* Any legal schedule, of any variant this machine has, computes the product. */
TEST(random_schedules_compute_the_product)
{
    struct real x;
    struct rng rng;

    real_open(&x, false);
    rng_init(&rng, test_seed(), "measure");
    for (int i = 0; kern_variants[i]; i++) {
        for (int trial = 0; trial < 12 && is_gemm(kern_variants[i]); trial++) {
            struct tune_shape s = {.v = kern_variants[i],
                                   .m = 1 + (int64_t)rng_below(&rng, 60),
                                   .n = 1 + (int64_t)rng_below(&rng, 200),
                                   .k = 8 + (int64_t)rng_below(&rng, 200)};
            int n_threads = 1 + (int)rng_below(&rng, THREADS);
            int block = kern_type_block((enum kern_type)(s.v->op - KERN_GEMM_F32));
            struct kern_schedule g;
            char what[200], text[100];
            double seconds;

            s.k = (s.k + block - 1) / block * block;
            s.k_unit = rng_below(&rng, 2) ? 16 : 0;
            assert_ok(tune_bench_shape(x.bench, &s));
            tune_random(&g, &s, tune_bench_mat(x.bench), n_threads, true, &rng);
            if (tune_run_once(x.bench, &g, n_threads, &seconds) != OK) {
                assert_true(isnan(seconds));
                continue;
            }
            kern_schedule_print(&g, text, sizeof(text));
            snprintf(what, sizeof(what), "seed %llu, %s %s, %lldx%lldx%lld, %s",
                     (unsigned long long)test_seed(), kern_op_name(s.v->op), s.v->name,
                     (long long)s.m, (long long)s.n, (long long)s.k, text);
            check_result(x.bench, &s, what);
        }
    }
    real_close(&x);
}

TEST(runs_and_measurements_are_counted)
{
    const struct tune_shape s = {
        .v = bench_model_variant("ref"), .m = 5, .n = 64, .k = 64};
    struct kern_schedule g[3];
    struct measure_report t[3];
    struct tune_cost cost;
    struct real x;

    real_open(&x, true);
    assert_ok(tune_bench_shape(x.bench, &s));
    for (int i = 0; i < 3; i++)
        kern_schedule_default(&g[i], s.v, tune_bench_mat(x.bench), s.m, 2);
    tune_cost_of(x.bench, &cost);
    assert_int_equal(cost.n_runs, 0); /* making operands ready is free */
    assert_ok(tune_measure(x.bench, &g[0], 2, t));
    tune_cost_of(x.bench, &cost);
    assert_int_equal(cost.n_measurements, 1);
    assert_in_range(t[0].n, 3, 4);
    assert_in_range(cost.n_runs, 1 + t[0].n, 1 + 4); /* the first one warms up */
    assert_true(t[0].lo > 0 && t[0].lo <= t[0].estimate && t[0].estimate <= t[0].hi);
    assert_true(cost.seconds >= t[0].estimate * t[0].n);
    tune_cost_take(x.bench, &cost);
    assert_ok(tune_compare(x.bench, g, 3, 2, 6, t));
    tune_cost_take(x.bench, &cost);
    assert_int_equal(cost.n_measurements, 3);
    assert_int_equal(cost.n_runs, 3 * (1 + 6));
    for (int i = 0; i < 3; i++)
        assert_in_range(t[i].n, 6 - t[i].n_disturbed, 6);
    tune_cost_of(x.bench, &cost);
    assert_int_equal(cost.n_runs, 0);
    real_close(&x);
}

/* Cold weights: every run reads another copy, until all of them exceed the cache. */
TEST(cold_runs_rotate_through_copies)
{
    const struct tune_shape s = {
        .v = bench_model_variant("ref"), .m = 2, .n = 256, .k = 256};
    const void *first, *now;
    struct kern_schedule g;
    double seconds;
    struct real x;
    int n = 0;

    for (int warm = 0; warm < 2; warm++) {
        real_open(&x, warm);
        assert_ok(tune_bench_shape(x.bench, &s));
        kern_schedule_default(&g, s.v, tune_bench_mat(x.bench), s.m, 1);
        assert_ok(tune_run_once(x.bench, &g, 1, &seconds));
        first = tune_bench_mat(x.bench)->data;
        for (n = 1, now = NULL; now != first; n++) {
            assert_true(n < 100);
            assert_ok(tune_run_once(x.bench, &g, 1, &seconds));
            now = tune_bench_mat(x.bench)->data;
        }
        /* 4 caches of 256 KiB in matrices of 256 KiB */
        assert_int_equal(n - 1, warm ? 1 : 4);
        check_result(x.bench, &s, "rotated");
        real_close(&x);
    }
}

TEST(what_makes_no_sense_is_refused)
{
    struct tune_shape s = {.v = bench_model_variant("ref"), .m = 4, .n = 64, .k = 64};
    struct kern_schedule g = {
        .mr = 4, .np = 1, .bm = 4, .bn = 1, .bk = 64, .pm = 1, .pn = 1, .pk = 1};
    struct measure_report t;
    struct real x;

    real_open(&x, true);
    assert_err(tune_measure(x.bench, &g, 1, &t), ERR_STATE, "tune_bench_shape");
    s.m = 0;
    assert_err(tune_bench_shape(x.bench, &s), ERR_ARG, "m 0");
    s.m = 4, s.k_unit = 3;
    assert_err(tune_bench_shape(x.bench, &s), ERR_ARG, "units of 3");
    s.k_unit = 0;
    assert_ok(tune_bench_shape(x.bench, &s));
    assert_err(tune_measure(x.bench, &g, THREADS + 1, &t), ERR_ARG, "team of 3");
    assert_err(tune_measure(x.bench, &g, 2, &t), ERR_ARG, "product of 2");
    assert_err(tune_compare(x.bench, &g, 1, 1, 0, &t), ERR_ARG, "0 rounds");
    g.mr = 5;
    assert_err(tune_measure(x.bench, &g, 1, &t), ERR_ARG, "4 rows");
    real_close(&x);
}

TEST(a_model_takes_the_time_it_says)
{
    struct bench_model model = {.cache_bytes = 1 << 20, .start_s = 1e-6};
    const struct tune_shape s = {.v = &bench_model_mks, .m = 64, .n = 512, .k = 512};
    struct kern_schedule g = {
        .mr = 14, .np = 2, .bm = 70, .bn = 32, .bk = 512, .pm = 1, .pn = 2, .pk = 1};
    double want = bench_model_s(&model, &s, &g, 2), seconds;
    struct tune_bench *b;
    struct tune_cost cost;
    struct measure_report t;

    model.n_runs = 0;
    assert_ok(tune_bench_open_model(&b, bench_model_s, &model));
    assert_ok(tune_bench_shape(b, &s));
    assert_ok(tune_measure(b, &g, 2, &t));
    assert_true(t.estimate == want && t.lo == want && t.hi == want);
    assert_int_equal(t.n, 1);
    assert_ok(tune_run_once(b, &g, 2, &seconds));
    assert_true(seconds == want);
    tune_cost_take(b, &cost);
    assert_int_equal(model.n_runs, 2);
    assert_int_equal(cost.n_runs, 2);
    assert_true(cost.seconds == want); /* tune_run_once() is not charged as one */
    tune_bench_close(&b);
}

/* Runs of 1 to 1.45 times `seconds`. */
struct unsteady {
    double seconds, sum;
    int n;
};

static double unsteady_s(void *arg, const struct tune_shape *shape,
                         const struct kern_schedule *s, int n_threads)
{
    struct unsteady *x = arg;
    double t = x->seconds * (1 + 0.05 * (x->n++ * 7 % 10));

    (void)shape, (void)s, (void)n_threads;
    x->sum += t;
    return t;
}

/* As many runs as the clock that they advance asks for, and all are charged, warm-up, too. */
TEST(a_model_can_be_measured_in_rounds)
{
    const struct tune_shape s = {.v = &bench_model_mks, .m = 64, .n = 512, .k = 512};
    const struct kern_schedule g = {
        .mr = 14, .np = 2, .bm = 70, .bn = 32, .bk = 512, .pm = 1, .pn = 2, .pk = 1};
    const struct {
        double seconds;
        int least, most;
    } cases[] = {{1e-6, 26, 26}, {0.2, 4, 4}, {0.015, 10, 20}};

    for (int i = 0; i < 3; i++) {
        struct unsteady x = {.seconds = cases[i].seconds};
        struct measure_report t;
        struct tune_bench *b;
        struct tune_cost cost;

        assert_ok(tune_bench_open_model(&b, unsteady_s, &x));
        tune_bench_model_rounds(b);
        assert_ok(tune_bench_shape(b, &s));
        assert_ok(tune_measure(b, &g, 2, &t));
        tune_cost_take(b, &cost);
        assert_in_range(x.n, cases[i].least, cases[i].most);
        assert_int_equal(cost.n_runs, x.n);
        assert_int_equal(cost.n_measurements, 1);
        assert_true(cost.seconds == x.sum);
        assert_int_equal(t.n, x.n - 1);
        assert_ok(tune_compare(b, &g, 1, 2, 9, &t));
        assert_int_equal(t.n, 9);
        tune_bench_close(&b);
    }
}

/* A machine where every schedule but one is slow, and that one is or is not the
 * default. */
struct only {
    struct kern_schedule s;
    double other; /* times as long */
};

static double only_s(void *arg, const struct tune_shape *shape,
                     const struct kern_schedule *s, int n_threads)
{
    const struct only *o = arg;

    (void)shape, (void)n_threads;
    return tune_same(s, &o->s) ? 1e-3 : 1e-3 * o->other;
}

TEST(what_loses_to_the_default_is_not_kept)
{
    const struct tune_shape s = {.v = &bench_model_mks, .m = 64, .n = 512, .k = 512};
    struct kern_schedule usual, found;
    struct only machine = {.other = 2};
    struct tune_bench *b;
    struct measure_report t[2];
    bool lost;

    assert_ok(tune_bench_open_model(&b, only_s, &machine));
    assert_ok(tune_bench_shape(b, &s));
    kern_schedule_default(&usual, s.v, tune_bench_mat(b), s.m, 2);
    tune_clamp(&usual, tune_bench_mat(b), s.m);
    found = machine.s = usual;
    assert_ok(tune_validate(b, &s, 2, 3, &found, t, &lost));
    assert_true(!lost && t[0].n == 0 && tune_same(&found, &usual));
    found.mr = usual.mr > 1 ? 1 : 2;
    assert_ok(tune_validate(b, &s, 2, 3, &found, t, &lost));
    assert_true(lost && tune_same(&found, &usual));
    assert_true(t[1].estimate == 2 * t[0].estimate);
    found.mr = usual.mr > 1 ? 1 : 2;
    machine.s = found;
    assert_ok(tune_validate(b, &s, 2, 3, &found, t, &lost));
    assert_true(!lost && tune_same(&found, &machine.s));
    assert_true(t[0].estimate == 2 * t[1].estimate);
    tune_bench_close(&b);
}

/* Every allocation fails in turn: an error, nothing kept. */
TEST(running_out_of_memory_is_an_error)
{
    const struct tune_shape s = {
        .v = bench_model_variant("ref"), .m = 6, .n = 64, .k = 64};
    static const int cpus[1];
    const struct tune_bench_opts o = {.cache_bytes = 1 << 16};
    struct par_team *team;
    bool through = false;

    assert_ok(par_team_open(&team, cpus, 1, 0));
    for (long n = 0; !through; n++) {
        struct kern_schedule g = {
            .mr = 2, .np = 1, .bm = 2, .bn = 4, .bk = 64, .pm = 1, .pn = 1, .pk = 1};
        struct tune_bench *b = NULL;
        struct measure_report t;
        int rc;

        assert_true(n < 100);
        mem_fail_after(n, 1);
        rc = tune_bench_open(&b, team, &o);
        if (rc == OK)
            rc = tune_bench_shape(b, &s);
        if (rc == OK)
            rc = tune_measure(b, &g, 1, &t);
        if (rc == OK)
            rc = tune_compare(b, &g, 1, 1, 40, &t);
        mem_fail_after(-1, 0);
        through = rc == OK;
        assert_true(rc == OK || rc == ERR_NOMEM);
        tune_bench_close(&b);
    }
    par_team_close(&team);
}
