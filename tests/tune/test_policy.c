/* The policies over a machine that is a formula: how near they come to the best there is,
 * at what cost, and how they end early. */
#include "tests/tune/bench_model.h"

#include "base/stats.h"
#include "tune/grow.h"

#define SHAPES_MAX 64

struct search {
    struct bench_model model;
    struct tune_bench *bench;
    struct tune_opts o;
    struct tune_shape shapes[SHAPES_MAX];
    struct kern_schedule out[SHAPES_MAX], known[SHAPES_MAX];
    int n_done, n_tried, end_after; /* end_after: cancel after this many; 0: never */
    bool measured[SHAPES_MAX];
    volatile sig_atomic_t stop;
    struct tune_ctx c;
};

static int on_done(void *arg, int i, const struct kern_schedule *s,
                   const struct measure_report *t)
{
    struct search *x = arg;

    assert_in_range(i, 0, x->c.n_shapes - 1);
    assert_true(s->mr >= 1);
    x->measured[i] = t != NULL;
    x->n_done++;
    if (x->end_after > 0 && x->n_done == x->end_after)
        return err_set(ERR_CANCELED, "enough");
    return OK;
}

static void on_tried(void *arg, const struct tune_shape *shape,
                     const struct kern_schedule *s, int n_threads,
                     const struct measure_report *t)
{
    struct search *x = arg;

    assert_true(shape->m > 0 && n_threads == s->pm * s->pn * s->pk && t->estimate > 0);
    x->n_tried++;
}

static void search_open(struct search *x, const int64_t *m, int n, int64_t cols,
                        int64_t depth, int n_threads)
{
    memset(x, 0, sizeof(*x));
    x->model = (struct bench_model){.cache_bytes = 512 << 10, .start_s = 2e-7};
    assert_ok(tune_bench_open_model(&x->bench, bench_model_s, &x->model));
    bench_model_opts(&x->o);
    for (int i = 0; i < n; i++)
        x->shapes[i] =
            (struct tune_shape){.v = &bench_model_mks, .m = m[i], .n = cols, .k = depth};
    x->c = (struct tune_ctx){.bench = x->bench,
                             .n_threads = n_threads,
                             .o = &x->o,
                             .shapes = x->shapes,
                             .n_shapes = n,
                             .done = on_done,
                             .tried = on_tried,
                             .arg = x,
                             .stop = &x->stop};
}

static void search_close(struct search *x)
{
    tune_bench_close(&x->bench);
    opt_free(tune_opt_table, &x->o);
}

static int run(struct search *x, const char *policy, struct tune_cost *cost)
{
    const struct tune_policy *p;
    int rc;

    assert_ok(tune_policy_find(policy, &p));
    tune_cost_take(x->bench, cost);
    x->n_done = 0;
    rc = p->run(&x->c, x->out);
    tune_cost_take(x->bench, cost);
    return rc;
}

static void check_legal(const struct search *x, const char *policy)
{
    for (int i = 0; i < x->c.n_shapes; i++) {
        const struct tune_shape *s = &x->shapes[i];
        struct kern_mat w;

        kern_mat_layout(&w, KERN_F32, s->n, s->k, s->k_unit);
        if (kern_schedule_check(&x->out[i], s->v, &w, s->m, x->c.n_threads) != OK)
            fail_msg("%s, m %lld: %s", policy, (long long)s->m, err_msg());
    }
}

/* The geometric mean over the shapes of the time by x->out, in units of `ideal`. */
static double geomean(struct search *x, const double *ideal)
{
    double ratio[SHAPES_MAX];

    for (int i = 0; i < x->c.n_shapes; i++)
        ratio[i] = bench_model_s(&x->model, &x->shapes[i], &x->out[i], x->c.n_threads) /
                   ideal[i];
    return stats_geomean(ratio, (size_t)x->c.n_shapes);
}

static const int64_t few[] = {1, 3, 8, 17, 33, 64, 100, 160, 256, 512};
#define N_FEW ((int)(sizeof(few) / sizeof(few[0])))

TEST(sandwich_is_near_the_oracle_for_less)
{
    const int threads[] = {1, 2, 4, 6};
    for (int i = 0; i < 4; i++) {
        double ideal[SHAPES_MAX], sandwich;
        struct tune_cost oracle_cost, cost, roller, ansor;
        struct search x;

        search_open(&x, few, N_FEW, 2048, 1024, threads[i]);
        x.o.trials = 200;
        assert_ok(run(&x, "oracle", &oracle_cost));
        check_legal(&x, "oracle");
        for (int k = 0; k < N_FEW; k++)
            ideal[k] = bench_model_s(&x.model, &x.shapes[k], &x.out[k], x.c.n_threads);
        assert_ok(run(&x, "sandwich", &cost));
        check_legal(&x, "sandwich");
        sandwich = geomean(&x, ideal);
        assert_ok(run(&x, "roller", &roller));
        assert_ok(run(&x, "ansor", &ansor));
        printf("# %d threads: %.4f of the oracle's time, %lld measurements; roller %lld, "
               "ansor %lld, oracle %lld\n",
               threads[i], sandwich, (long long)cost.n_measurements,
               (long long)roller.n_measurements, (long long)ansor.n_measurements,
               (long long)oracle_cost.n_measurements);
        assert_true(sandwich <= 1.03);
        assert_true(cost.n_measurements < roller.n_measurements);
        assert_true(cost.n_measurements < ansor.n_measurements);
        assert_true(cost.n_measurements < oracle_cost.n_measurements);
        search_close(&x);
    }
}

TEST(every_policy_ends_with_legal_schedules)
{
    for (int i = 0; tune_policies[i]; i++) {
        const struct tune_policy *p = tune_policies[i];
        struct tune_cost cost;
        struct search x;

        search_open(&x, few, 5, 160, 96, 3);
        x.shapes[4].k_unit = 0;
        x.o.trials = 40;
        x.n_tried = 0;
        assert_ok(run(&x, p->name, &cost));
        /* each is called out but those of a first look and of a retest */
        assert_true(x.n_tried <= cost.n_measurements);
        assert_true(x.n_tried > 0 || cost.n_measurements == 0);
        check_legal(&x, p->name);
        assert_int_equal(x.n_done, 5);
        /* each run of the model is charged, and nothing else */
        assert_int_equal(cost.n_runs, x.model.n_runs);
        assert_true(cost.n_measurements <= cost.n_runs);
        search_close(&x);
    }
}

TEST(split_k_only_when_allowed)
{
    for (int i = 0; tune_policies[i]; i++) {
        struct tune_cost cost;
        struct search x;

        /* one panel and one block of rows: only K has anything to deal out */
        search_open(&x, few, 2, 16, 4096, 4);
        x.o.split_k = false;
        x.o.trials = 60;
        assert_ok(run(&x, tune_policies[i]->name, &cost));
        for (int k = 0; k < 2; k++)
            assert_int_equal(x.out[k].pk, 1);
        search_close(&x);
    }
}

TEST(chance_is_seeded)
{
    const char *const names[] = {"ansor", "dietcode"};

    for (int i = 0; i < 2; i++) {
        struct kern_schedule first[4];
        struct tune_cost cost;
        struct search x;

        search_open(&x, few, 4, 512, 512, 2);
        x.o.trials = 80;
        assert_ok(run(&x, names[i], &cost));
        memcpy(first, x.out, sizeof(first));
        assert_ok(run(&x, names[i], &cost));
        for (int k = 0; k < 4; k++)
            assert_true(tune_same(&first[k], &x.out[k]));
        search_close(&x);
    }
}

/* ---- the sliding window and reuse ---- */

TEST(window_and_reuse_stop_early)
{
    struct tune_cost cost, wide;
    int64_t m[SHAPES_MAX];
    struct search x;
    int n_free = 0;

    for (int i = 0; i < SHAPES_MAX; i++)
        m[i] = 256 + 14 * i; /* long shapes: nothing changes but their number of blocks */
    search_open(&x, m, SHAPES_MAX, 2048, 1024, 2);
    x.o.sigma = 4;
    x.o.theta = 0.5;
    assert_ok(run(&x, "sandwich", &cost));
    check_legal(&x, "sandwich");
    for (int i = 0; i < SHAPES_MAX; i++)
        n_free += !x.measured[i];
    assert_true(n_free > 0);
    for (int i = SHAPES_MAX - n_free; i < SHAPES_MAX; i++) {
        assert_false(x.measured[i]); /* frozen for good */
        assert_int_equal(x.out[i].bk, x.out[SHAPES_MAX - 1].bk);
        assert_int_equal(x.out[i].bn, x.out[SHAPES_MAX - 1].bn);
        assert_int_equal(x.out[i].pm, x.out[SHAPES_MAX - 1].pm);
    }
    /* a window as wide as the list: every shape explores */
    x.o.sigma = SHAPES_MAX;
    assert_ok(run(&x, "sandwich", &wide));
    for (int i = 0; i < SHAPES_MAX; i++)
        assert_true(x.measured[i]);
    assert_true(wide.n_measurements > 2 * cost.n_measurements);
    search_close(&x);
}

/* When the search ends does not change how it searches until then. */
TEST(freezing_is_a_setting_of_its_own)
{
    const int64_t freeze[] = {1, 4, 0, SHAPES_MAX}; /* 0: as the window, 4 */
    struct kern_schedule out[4][SHAPES_MAX];
    int64_t m[SHAPES_MAX];
    struct tune_cost cost[4];
    int n_searched[4] = {0};
    struct search x;

    for (int i = 0; i < SHAPES_MAX; i++)
        m[i] = 256 + 14 * i;
    search_open(&x, m, SHAPES_MAX, 2048, 1024, 2);
    x.o.sigma = 4;
    x.o.theta = 0.5;
    for (int k = 0; k < 4; k++) {
        x.o.freeze = freeze[k];
        assert_ok(run(&x, "sandwich", &cost[k]));
        memcpy(out[k], x.out, sizeof(x.out));
        for (int i = 0; i < SHAPES_MAX; i++)
            n_searched[k] += x.measured[i];
    }
    assert_true(n_searched[0] < n_searched[1]);
    assert_int_equal(n_searched[1], n_searched[2]);
    assert_int_equal(cost[1].n_measurements, cost[2].n_measurements);
    assert_int_equal(n_searched[3], SHAPES_MAX);
    assert_true(cost[0].n_measurements < cost[1].n_measurements);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < n_searched[k]; i++)
            assert_true(tune_same(&out[k][i], &out[3][i]));
    search_close(&x);
}

TEST(fast_start_never_worse_than_its_start)
{
    struct search x;
    struct rng rng;

    search_open(&x, few, N_FEW, 1024, 768, 2);
    rng_init(&rng, test_seed(), "start");
    for (int i = 0; i < 300; i++) {
        struct tune_search q = {.c = &x.c};
        int n_threads = 1 + (int)rng_below(&rng, 2);
        double start, end;
        struct kern_schedule s;

        x.model.cache_bytes = 1024.0 * (1 << rng_below(&rng, 12));
        assert_ok(tune_search_shape(&q, &x.shapes[rng_below(&rng, N_FEW)]));
        tune_random(&s, &q.shape, q.w, n_threads, true, &rng);
        if (!tune_search_legal(&q, &s, n_threads))
            continue;
        start = bench_model_s(&x.model, &q.shape, &s, n_threads);
        assert_ok(tune_fast_start(&q, &s, n_threads, NULL, i % 2, &end));
        assert_true(end <= start);
        assert_true(tune_search_legal(&q, &s, n_threads));
        start = end;
        assert_ok(tune_finetune(&q, &s, n_threads, &end));
        assert_true(end <= start);
        mem_free(q.seen);
    }
    search_close(&x);
}

/* ---- limits ---- */

TEST(a_budget_ends_the_search)
{
    for (int i = 0; tune_policies[i]; i++) {
        const char *name = tune_policies[i]->name;
        struct tune_cost all, part;
        struct search x;

        search_open(&x, few, N_FEW, 512, 512, 2);
        x.o.trials = 60;
        assert_ok(run(&x, name, &all));
        if (all.n_measurements == 0) { /* nothing to save */
            search_close(&x);
            continue;
        }
        x.o.budget_s = all.seconds / 4;
        assert_ok(run(&x, name, &part));
        check_legal(&x, name); /* the rest got the default */
        assert_true(part.n_measurements < all.n_measurements);
        assert_true(part.seconds < all.seconds / 2);
        assert_true(x.n_done < N_FEW || !strcmp(name, "mikpoly") ||
                    !strcmp(name, "dietcode"));
        search_close(&x);
    }
}

/* Regression: the round in which the trials ended was measured to its end. */
TEST(one_search_for_all_ends_with_its_trials)
{
    for (int trials = 30; trials < 40; trials++) {
        struct tune_cost cost;
        struct search x;

        search_open(&x, few, N_FEW, 512, 512, 2);
        x.o.trials = trials;
        assert_ok(run(&x, "dietcode", &cost));
        assert_int_equal(cost.n_measurements, trials);
        search_close(&x);
    }
}

/* A machine where the default is the best by 4 %, and a run takes up to 10 % longer by chance. */
struct default_machine {
    struct kern_schedule best;
    struct rng rng;
};

static double default_machine_s(void *arg, const struct tune_shape *shape,
                                const struct kern_schedule *s, int n_threads)
{
    struct default_machine *b = arg;
    double t = 1e-11 * (double)(shape->m * shape->n * shape->k) / n_threads;

    t *= 1 + 0.1 * rng_f64(&b->rng);
    return memcmp(s, &b->best, sizeof(*s)) == 0 ? t : 1.04 * t;
}

/* Regression: a search that its budget cut short took a schedule that chance had made
 * the fastest, 5 % slower than the default. */
TEST(a_short_search_measures_its_choice_again)
{
    struct default_machine machine;
    struct tune_cost all, part;
    struct search x;
    struct kern_mat w;

    rng_init(&machine.rng, 1, "chance");
    search_open(&x, &few[N_FEW - 1], 1, 2048, 2048, 2);
    tune_bench_close(&x.bench);
    assert_ok(tune_bench_open_model(&x.bench, default_machine_s, &machine));
    x.c.bench = x.bench;
    kern_mat_layout(&w, KERN_F32, 2048, 2048, 0);
    kern_schedule_default(&machine.best, x.shapes[0].v, &w, x.shapes[0].m, 2);
    tune_clamp(&machine.best, &w, x.shapes[0].m);
    assert_ok(run(&x, "sandwich", &all));
    for (double share = 0.9; share > 0.001; share *= 0.9) {
        x.o.budget_s = share * all.seconds;
        assert_ok(run(&x, "sandwich", &part));
        if (memcmp(&x.out[0], &machine.best, sizeof(x.out[0])) != 0)
            fail_msg("%.3f of the whole search's time: left the default", share);
    }
    search_close(&x);
}

/* What a policy found by measuring is measured again by one rule for all; what it calculated
 * is taken as it is. On this machine the default is the best by less than the noise of single
 * measurements, and begins every search. */
TEST(every_search_measures_its_choice_again)
{
    int n_measuring = 0;

    for (int i = 0; tune_policies[i]; i++) {
        const char *name = tune_policies[i]->name;
        struct default_machine machine;
        struct tune_cost cost;
        struct search x;
        struct kern_mat w;

        rng_init(&machine.rng, 1, "chance");
        search_open(&x, &few[N_FEW - 1], 1, 2048, 2048, 2);
        tune_bench_close(&x.bench);
        assert_ok(tune_bench_open_model(&x.bench, default_machine_s, &machine));
        x.c.bench = x.bench;
        x.o.trials = 60;
        kern_mat_layout(&w, KERN_F32, 2048, 2048, 0);
        kern_schedule_default(&machine.best, x.shapes[0].v, &w, x.shapes[0].m, 2);
        tune_clamp(&machine.best, &w, x.shapes[0].m);
        assert_ok(run(&x, name, &cost));
        n_measuring += x.measured[0];
        if (x.measured[0] && !tune_same(&x.out[0], &machine.best))
            fail_msg("%s left the default", name);
        search_close(&x);
    }
    assert_int_equal(n_measuring, 6); /* not default, mikpoly, dietcode */
}

/* How often one schedule is run for the shape of m rows. */
struct counting_machine {
    struct bench_model model;
    struct kern_schedule s;
    int64_t m;
    int n;
};

static double counting_machine_s(void *arg, const struct tune_shape *shape,
                                 const struct kern_schedule *s, int n_threads)
{
    struct counting_machine *c = arg;

    c->n += shape->m == c->m && n_threads == 2 && tune_same(s, &c->s);
    return bench_model_s(&c->model, shape, s, n_threads);
}

/* Runs of schedule s in a whole search; that chosen for the shape in *out. */
static int count(const char *policy, int64_t retest, bool start_default,
                 const struct kern_schedule *s, struct kern_schedule *out, bool *measured)
{
    struct counting_machine machine = {.model = {512 << 10, 2e-7, 0}, .s = *s, .m = 100};
    struct tune_cost cost;
    struct search x;

    search_open(&x, &machine.m, 1, 1000, 768, 2);
    tune_bench_close(&x.bench);
    assert_ok(tune_bench_open_model(&x.bench, counting_machine_s, &machine));
    x.c.bench = x.bench;
    x.o.trials = 60;
    x.o.retest = retest;
    x.o.start_default = start_default;
    assert_ok(run(&x, policy, &cost));
    check_legal(&x, policy);
    *out = x.out[0];
    *measured = x.measured[0];
    search_close(&x);
    return machine.n;
}

/* Nine rounds at least for the choice of each, or none for any; and the default is tried by
 * those that were told to begin with it, and found by nobody else on this shape.
 * Regression: of the policies compared, only `sandwich` began with the cost model's
 * schedule and measured its fastest again; the oracle began with it, too. */
TEST(the_rules_are_the_same_for_all)
{
    struct kern_schedule usual = {0}, out, ignored;
    struct kern_mat w;
    bool measured;

    kern_mat_layout(&w, KERN_F32, 1000, 768, 0);
    kern_schedule_default(&usual, &bench_model_mks, &w, 100, 2);
    tune_clamp(&usual, &w, 100);
    for (int i = 0; tune_policies[i]; i++) {
        const char *name = tune_policies[i]->name;

        (void)count(name, 4, false, &usual, &out, &measured);
        if (!measured)
            continue;
        if (count(name, 4, false, &out, &ignored, &measured) < 10)
            fail_msg("%s did not measure its choice again", name);
        (void)count(name, 0, false, &usual, &out, &measured);
        /* the oracle looks first, then measures */
        if (count(name, 0, false, &out, &ignored, &measured) > 7)
            fail_msg("%s measured its choice again, though none should", name);
        if (count(name, 4, true, &usual, &out, &measured) < 9)
            fail_msg("%s did not begin with the default", name);
        if (strncmp(name, "sandwich", 8) == 0 || strncmp(name, "roller", 6) == 0)
            assert_int_equal(count(name, 4, false, &usual, &out, &measured), 0);
    }
}

TEST(an_interrupt_ends_the_search)
{
    for (int i = 0; tune_policies[i]; i++) {
        const char *name = tune_policies[i]->name;
        struct tune_cost cost;
        struct search x;

        search_open(&x, few, N_FEW, 512, 512, 2);
        x.o.trials = 40;
        x.end_after = 3;
        assert_int_equal(run(&x, name, &cost), ERR_CANCELED);
        assert_int_equal(x.n_done, 3);
        check_legal(&x, name);
        x.end_after = 0;
        x.stop = 1;
        assert_int_equal(run(&x, name, &cost), ERR_CANCELED);
        assert_int_equal(x.n_done, 0);
        assert_int_equal(cost.n_measurements, 0);
        check_legal(&x, name);
        search_close(&x);
    }
}

/* What is known is not measured again, and the window learns from it. */
TEST(a_search_goes_on_where_it_stopped)
{
    for (int i = 0; tune_policies[i]; i++) {
        const char *name = tune_policies[i]->name;
        struct kern_schedule whole[N_FEW];
        struct tune_cost all, rest;
        struct search x;

        search_open(&x, few, N_FEW, 512, 512, 2);
        x.o.trials = 40;
        x.o.sigma = 4;
        assert_ok(run(&x, name, &all));
        memcpy(whole, x.out, sizeof(whole));
        x.c.known = x.known;
        for (int k = 0; k < 7; k++)
            x.known[k] = whole[k];
        assert_ok(run(&x, name, &rest));
        assert_int_equal(x.n_done, N_FEW - 7);
        for (int k = 0; k < 7; k++)
            assert_true(tune_same(&x.out[k], &whole[k]));
        if (!strncmp(name, "sandwich", 8)) /* it depends on nothing but the past */
            for (int k = 7; k < N_FEW; k++)
                assert_true(tune_same(&x.out[k], &whole[k]));
        memcpy(x.known, whole, sizeof(whole));
        assert_ok(run(&x, name, &rest));
        assert_int_equal(rest.n_measurements, 0);
        assert_int_equal(x.n_done, 0);
        search_close(&x);
    }
}

TEST(unknown_policy_names_the_nearest)
{
    const struct tune_policy *p;

    assert_err(tune_policy_find("sandwhich", &p), ERR_NOTFOUND, "\"sandwich\"");
    assert_null(p);
}
