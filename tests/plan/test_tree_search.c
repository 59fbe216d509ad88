#include "tests/support/test.h"

#include <math.h>

#include "plan/tree_search.h"
#include "simulate/exhaustive.h"

/* A machine of one's own making: cores share ports in clusters, and too many readers
 * disturb each other. Noise follows from the configuration and the repeat alone. */
struct fake {
    int n_cores;         /* of a memory node, consecutive */
    int of, stride;      /* the hidden cluster; of 1: none */
    double port;         /* what a port carries, in cores' worth */
    int contention_from; /* readers of a node from which on each costs `crowd` */
    double crowd, noise;
    double rank_cost; /* of each rank after the first */
    int fail_after, refuse_ranks, n_calls;
    int fail_with;
    double sum_s; /* of what was measured */
};

static int cluster_of(const struct fake *f, int core)
{
    int c = core % f->n_cores, block = f->of * f->stride;

    return c / block * f->stride + c % f->stride;
}

static double fake_seconds(const struct fake *f, const struct topo_config *c)
{
    const struct topo_machine *m = c->tree->machine;
    int active[8][64] = {{0}}, readers[8] = {0};
    double slowest = INFINITY;

    for (int i = 0; i < c->tree->n_pus; i++) {
        const struct topo_pu *p = &m->pus[c->tree->pus[i]];

        active[p->node][cluster_of(f, p->core)]++;
        readers[p->node]++;
    }
    for (int i = 0; i < c->tree->n_pus; i++) {
        const struct topo_pu *p = &m->pus[c->tree->pus[i]];
        int k = active[p->node][cluster_of(f, p->core)];
        int crowd = readers[p->node] - f->contention_from;
        double rate = f->of > 1 && k > f->port ? f->port / k : 1;

        slowest = fmin(slowest, rate / (1 + f->crowd * (crowd > 0 ? crowd : 0)));
    }
    return (1 + f->rank_cost * (c->n_ranks - 1)) / (slowest * c->tree->n_pus);
}

static int fake_measure(void *ctx, const struct topo_config *c, int repeat, double *s)
{
    struct fake *f = ctx;
    struct rng r;

    if (f->fail_with && f->n_calls == f->fail_after)
        return err_set(f->fail_with, "the machine is gone");
    f->n_calls++;
    if (f->refuse_ranks && c->n_ranks >= f->refuse_ranks)
        return err_set(ERR_UNSUPPORTED, "too many ranks");
    rng_init(&r, topo_config_key(c) + (uint64_t)repeat * 7919, "fake");
    *s = fake_seconds(f, c) * exp(f->noise * rng_normal(&r));
    f->sum_s += *s;
    return OK;
}

struct bed {
    struct topo_machine *m;
    struct topo_tree *t;
    struct fake f;
    struct plan_evaluation e;
    struct plan_tree_search_opts o;
};

static void bed_open(struct bed *b, const char *spec, const struct fake *f)
{
    *b = (struct bed){.f = *f};
    assert_ok(topo_machine_open(&b->m, spec));
    assert_ok(topo_tree_open(&b->t, b->m, NULL, NULL, 0));
    assert_ok(opt_init(plan_tree_search_opt_table, &b->o));
    b->o.uneven = false; /* test_tree_search_uneven.c */
    b->e = (struct plan_evaluation){fake_measure, &b->f, f->noise, true};
}

static void bed_close(struct bed *b)
{
    opt_free(plan_tree_search_opt_table, &b->o);
    mem_free(b->t);
    topo_machine_close(&b->m);
}

/* Two nodes of twelve cores; every fourth core shares a port that feeds two of three;
 * more than six readers are a crowd. */
static const struct fake hidden = {.n_cores = 12,
                                   .of = 3,
                                   .stride = 4,
                                   .port = 2,
                                   .contention_from = 6,
                                   .crowd = 0.02,
                                   .noise = 0.01,
                                   .rank_cost = 0.01};
static const char two_nodes[] = "synthetic:package:2 numa:1 core:12 pu:1";

static int groups_of(const struct topo_tree *t)
{
    int n = 0;

    for (int l = 0; l < t->n_levels; l++)
        n += (t->levels[l].kinds & TOPO_GROUP) != 0;
    return n;
}

static double true_seconds(const struct bed *b, const struct plan_tree_result *f)
{
    return fake_seconds(&b->f, &f->top[f->best].config);
}

static void check_found(const struct bed *b, const struct plan_tree_result *f)
{
    assert_in_range(f->n_top, 1, b->o.k);
    assert_in_range(f->best, 0, f->n_top - 1);
    assert_true(f->top[f->best].ties);
    assert_non_null(f->explain);
    for (int i = 0; i < f->n_top; i++) {
        assert_ptr_equal(f->top[i].config.tree, f->top[i].tree);
        assert_true(i == 0 || f->top[i - 1].seconds <= f->top[i].seconds);
    }
    assert_int_equal(b->f.n_calls, f->counts.n_measurements);
    assert_true(fabs(f->counts.measured_s - b->f.sum_s) <= 1e-9 * b->f.sum_s);
}

static double exhaustive(const struct bed *b, bool group, struct simulate_best *c)
{
    struct fake quiet = b->f;
    struct plan_evaluation e = {fake_measure, &quiet, 0, true};

    quiet.noise = 0;
    assert_ok(simulate_exhaustive(c, b->t, NULL, e.measure, e.ctx, group));
    assert_true(fabs(c->seconds - fake_seconds(&quiet, &c->config)) < 1e-12);
    return c->seconds;
}

TEST(finds_hidden_clusters)
{
    struct simulate_best best, plain;
    struct plan_tree_result f;
    struct bed b;
    int per_cluster[2][4] = {{0}};
    bed_open(&b, two_nodes, &hidden);
    assert_ok(plan_tree_search(&f, b.t, NULL, &b.e, &b.o));
    check_found(&b, &f);
    exhaustive(&b, true, &best);
    exhaustive(&b, false, &plain);
    /* 24 cores in four clusters of three: without groups a remove takes 8 of 12 at once
     * and never one of each cluster alone. */
    assert_true(true_seconds(&b, &f) <= 1.02 * best.seconds);
    for (int i = 0; i < f.top[f.best].tree->n_pus; i++) {
        const struct topo_pu *p = &b.m->pus[f.top[f.best].tree->pus[i]];
        per_cluster[p->node][cluster_of(&b.f, p->core)]++;
    }
    for (int i = 0; i < 8; i++)
        assert_int_equal(per_cluster[i / 4][i % 4], 2);
    assert_true(f.counts.complete);
    plan_tree_result_free(&f);
    plan_tree_result_free(&f);
    mem_free(best.tree);
    mem_free(plain.tree);
    bed_close(&b);
}

TEST(contiguous_clusters_are_latent)
{
    struct simulate_best best, plain;
    struct plan_tree_result f;
    struct fake fake = hidden;
    struct bed b;
    fake.stride = 1; /* removes alone keep the left-most cores: whole clusters */
    bed_open(&b, two_nodes, &fake);
    assert_ok(plan_tree_search(&f, b.t, NULL, &b.e, &b.o));
    check_found(&b, &f);
    assert_true(exhaustive(&b, false, &plain) > 1.05 * exhaustive(&b, true, &best));
    assert_true(true_seconds(&b, &f) <= 1.02 * best.seconds);
    assert_true(f.latent);
    assert_true(groups_of(f.top[f.best].tree) == 1);
    assert_non_null(strstr(f.explain, "does not report pays"));
    assert_non_null(strstr(f.explain, "keeps 2 of the 3 core+PUs of each group"));
    assert_non_null(strstr(f.explain, "at stride 1"));
    plan_tree_result_free(&f);
    mem_free(best.tree);
    mem_free(plain.tree);
    bed_close(&b);
}

TEST(finds_nothing_where_nothing_is)
{
    struct fake fake = hidden;
    fake.of = 1;
    for (int seed = 1; seed <= 12; seed++) {
        struct simulate_best best;
        struct plan_tree_result f;
        struct bed b;

        fake.crowd = 0.01 * (seed % 4);
        fake.noise = 0.005 * (seed % 5);
        bed_open(&b, two_nodes, &fake);
        b.o.seed = seed;
        assert_ok(plan_tree_search(&f, b.t, NULL, &b.e, &b.o));
        check_found(&b, &f);
        assert_false(f.latent);
        assert_int_equal(groups_of(f.top[f.best].tree), 0);
        assert_true(true_seconds(&b, &f) <= 1.02 * exhaustive(&b, true, &best));
        plan_tree_result_free(&f);
        mem_free(best.tree);
        bed_close(&b);
    }
}

static int constant(void *ctx, const struct topo_config *c, int repeat, double *s)
{
    (void)c, (void)repeat;
    (*(int *)ctx)++;
    *s = 1;
    return OK;
}

/* Where all is equal the machine as it is wins, and pruning leaves the first removes. */
TEST(equal_means_simplest)
{
    struct plan_tree_result f;
    struct bed b;
    int n_calls = 0;
    bed_open(&b, two_nodes, &hidden);
    b.e = (struct plan_evaluation){constant, &n_calls, 0.01, true};
    assert_ok(plan_tree_search(&f, b.t, NULL, &b.e, &b.o));
    assert_string_equal(f.top[f.best].tree->steps, "");
    for (int i = 0; i < f.n_top; i++)
        assert_true(f.top[i].ties);
    assert_int_equal(f.counts.n_measurements, n_calls);
    assert_int_equal(f.counts.n_grouped, 34);
    assert_false(f.latent);
    plan_tree_result_free(&f);
    bed_close(&b);
}

/* Several ranks look half a per cent faster than one, and vary by more than that. */
static int ranks_nearly_equal(void *ctx, const struct topo_config *c, int repeat,
                              double *s)
{
    (void)ctx;
    *s = c->n_ranks == 1 ? 1 : repeat % 2 ? 1.02 : 0.97;
    return OK;
}

TEST(of_ties_the_fewest_ranks)
{
    struct plan_tree_result f;
    struct bed b;
    bed_open(&b, "synthetic:core:2 pu:1", &hidden);
    b.e = (struct plan_evaluation){ranks_nearly_equal, NULL, 0.01, true};
    assert_ok(plan_tree_search(&f, b.t, NULL, &b.e, &b.o));
    assert_true(f.top[0].config.n_ranks > 1);
    assert_int_equal(f.top[f.best].config.n_ranks, 1);
    plan_tree_result_free(&f);
    bed_close(&b);
}

/* Trees of the removes of 2 x 3 x 2: 12 different ones on 46 paths. */
TEST(counts_are_exact)
{
    struct plan_tree_result f;
    struct bed b;
    bed_open(&b, "synthetic:package:2 numa:1 core:3 pu:2", &hidden);
    b.o.group = b.o.prune = false;
    assert_ok(plan_tree_search(&f, b.t, NULL, &b.e, &b.o));
    assert_int_equal(f.counts.n_trees, 12);
    assert_int_equal(f.counts.n_grouped, 1);
    assert_int_equal(f.counts.n_pruned, 0);
    assert_int_equal(f.counts.n_trees + f.counts.n_merged, /* edges and the root */
                     1 + 2 * 3 * 2 * (1 + 2 + 1) / 2);
    plan_tree_result_free(&f);
    b.f.n_calls = 0;
    b.f.sum_s = 0;
    b.o.hash = false;
    assert_ok(plan_tree_search(&f, b.t, NULL, &b.e, &b.o));
    assert_int_equal(f.counts.n_trees, 46);
    assert_int_equal(f.counts.n_merged, 0);
    check_found(&b, &f);
    plan_tree_result_free(&f);
    bed_close(&b);
}

/* Each ablation leaves its part out; none of them beats exhaustion. */
TEST(ablations)
{
    struct simulate_best best;
    struct bed b;
    double least;
    bed_open(&b, two_nodes, &hidden);
    least = exhaustive(&b, true, &best);
    for (int i = 0; i < 6; i++) {
        struct plan_tree_result f;

        b.f.n_calls = 0;
        b.f.sum_s = 0;
        assert_ok(opt_init(plan_tree_search_opt_table, &b.o));
        b.o.uneven = false;
        b.o.group = i != 0;
        b.o.remove = i != 1;
        b.o.prune = i != 2;
        b.o.hash = i != 3;
        b.o.random = i == 4;
        b.o.all_cores = i == 5;
        b.o.max_measurements = 20000;
        assert_ok(plan_tree_search(&f, b.t, NULL, &b.e, &b.o));
        check_found(&b, &f);
        assert_true(f.counts.n_measurements <= 20000);
        assert_true(true_seconds(&b, &f) >= least * (1 - 1e-9));
        if (i == 0)
            assert_int_equal(f.counts.n_grouped, 1);
        for (int j = 0; j < f.n_top; j++) {
            if (i == 0)
                assert_int_equal(groups_of(f.top[j].tree), 0);
            if (i == 1 || i == 5)
                assert_int_equal(f.top[j].tree->n_pus, 24);
        }
        if (i == 2)
            assert_int_equal(f.counts.n_pruned, 0);
        if (i == 3)
            assert_int_equal(f.counts.n_merged, 0);
        plan_tree_result_free(&f);
    }
    mem_free(best.tree);
    bed_close(&b);
}

TEST(same_seed_same_answer)
{
    struct bed b;
    bed_open(&b, two_nodes, &hidden);
    for (int random = 0; random < 2; random++) {
        struct plan_tree_result f[2];

        b.o.random = random;
        b.o.max_measurements = 2000;
        for (int i = 0; i < 2; i++)
            assert_ok(plan_tree_search(&f[i], b.t, NULL, &b.e, &b.o));
        assert_int_equal(f[0].n_top, f[1].n_top);
        assert_int_equal(f[0].best, f[1].best);
        assert_int_equal(f[0].counts.n_measurements, f[1].counts.n_measurements);
        for (int i = 0; i < f[0].n_top; i++) {
            assert_string_equal(f[0].top[i].tree->steps, f[1].top[i].tree->steps);
            assert_true(f[0].top[i].seconds == f[1].top[i].seconds);
        }
        plan_tree_result_free(&f[0]);
        plan_tree_result_free(&f[1]);
    }
    bed_close(&b);
}

TEST(budget_is_kept)
{
    static const int budgets[] = {1, 2, 3, 10, 50, 100, 333, 1000, 5000};
    struct bed b;
    bed_open(&b, two_nodes, &hidden);
    for (int random = 0; random < 2; random++)
        for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
            struct plan_tree_result f;

            b.f.n_calls = 0;
            b.f.sum_s = 0;
            b.o.random = random;
            b.o.max_measurements = budgets[i];
            assert_ok(plan_tree_search(&f, b.t, NULL, &b.e, &b.o));
            check_found(&b, &f);
            assert_in_range(f.counts.n_measurements, 1, budgets[i]);
            if (budgets[i] <= 333)
                assert_false(f.counts.complete);
            plan_tree_result_free(&f);
        }
    bed_close(&b);
}

TEST(time_ends_it)
{
    struct plan_tree_result f;
    struct bed b;
    bed_open(&b, two_nodes, &hidden);
    b.o.max_s = 1e-9;
    assert_err(plan_tree_search(&f, b.t, NULL, &b.e, &b.o), ERR_UNSUPPORTED, "budget");
    assert_null(f.top);
    bed_close(&b);
}

TEST(refusals_and_errors)
{
    struct topo_limits limits = {.max_ranks = 2};
    struct plan_tree_result f;
    struct bed b;
    bed_open(&b, two_nodes, &hidden);
    assert_ok(plan_tree_search(&f, b.t, &limits, &b.e, &b.o));
    check_found(&b, &f);
    for (int i = 0; i < f.n_top; i++)
        assert_in_range(f.top[i].config.n_ranks, 1, 2);
    assert_true(f.counts.n_refused > 0);
    plan_tree_result_free(&f);

    b.f.refuse_ranks = 3; /* one call each: refused ones are not asked again */
    assert_ok(plan_tree_search(&f, b.t, NULL, &b.e, &b.o));
    for (int i = 0; i < f.n_top; i++)
        assert_in_range(f.top[i].config.n_ranks, 1, 2);
    plan_tree_result_free(&f);

    b.f.refuse_ranks = 1;
    assert_err(plan_tree_search(&f, b.t, NULL, &b.e, &b.o), ERR_UNSUPPORTED,
               "can be run");
    b.f.refuse_ranks = 0;
    b.f.fail_with = ERR_IO;
    for (int at = 0; at < 700; at = 2 * at + 1) {
        b.f.fail_after = at;
        b.f.n_calls = 0;
        b.f.sum_s = 0;
        assert_err(plan_tree_search(&f, b.t, NULL, &b.e, &b.o), ERR_IO, "is gone");
        assert_null(f.top);
        assert_null(f.explain);
    }
    bed_close(&b);
}

static int zero(void *ctx, const struct topo_config *c, int repeat, double *s)
{
    (void)c, (void)repeat;
    *s = *(double *)ctx;
    return OK;
}

TEST(bad_options)
{
    static double bad[] = {0, -1, NAN, INFINITY};
    struct plan_tree_result f;
    struct bed b;
    bed_open(&b, two_nodes, &hidden);
    b.o.k = 0;
    assert_err(plan_tree_search(&f, b.t, NULL, &b.e, &b.o), ERR_ARG, "k");
    b.o.k = 10;
    b.e.noise_frac = NAN;
    assert_err(plan_tree_search(&f, b.t, NULL, &b.e, &b.o), ERR_ARG, "noise");
    for (int i = 0; i < 4; i++) {
        b.e = (struct plan_evaluation){zero, &bad[i], 0, true};
        assert_err(plan_tree_search(&f, b.t, NULL, &b.e, &b.o), ERR_ARG, "above 0");
    }
    bed_close(&b);
}

TEST(memory_runs_out)
{
    struct fake fake = hidden;
    struct bed b;
    long n;
    fake.n_cores = 4, fake.of = 2, fake.stride = 1, fake.port = 1,
    fake.contention_from = 2;
    bed_open(&b, "synthetic:package:1 numa:1 core:4 pu:2", &fake);
    b.o.max_s = 0;
    for (int way = 0; way < 4; way++) {
        b.o.random = way == 1;
        b.o.max_measurements = way == 1 ? 2000 : 0; /* or it draws until dry */
        b.o.uneven = way == 2;
        b.o.traversal = way == 3 ? PLAN_PAPER : PLAN_BEST_PARENT;
        for (n = 0;; n++) {
            struct plan_tree_result f;
            int rc;

            mem_fail_after(n, 1);
            rc = plan_tree_search(&f, b.t, NULL, &b.e, &b.o);
            mem_fail_after(-1, 1);
            if (rc == OK) {
                plan_tree_result_free(&f);
                break;
            }
            assert_int_equal(rc, ERR_NOMEM);
            assert_null(f.top);
            assert_null(f.explain);
        }
        assert_true(n > 50);
    }
    bed_close(&b);
}

TEST(exhaustive_out_of_memory)
{
    struct simulate_best c;
    struct bed b;
    long n;
    bed_open(&b, "synthetic:package:1 numa:1 core:4 pu:2", &hidden);
    b.f.n_cores = 4;
    for (n = 0;; n++) {
        int rc;

        mem_fail_after(n, 1);
        rc = simulate_exhaustive(&c, b.t, NULL, b.e.measure, b.e.ctx, true);
        mem_fail_after(-1, 1);
        if (rc == OK)
            break;
        assert_int_equal(rc, ERR_NOMEM);
        assert_null(c.tree);
    }
    assert_true(n > 10);
    mem_free(c.tree);
    b.f.refuse_ranks = 1;
    assert_err(simulate_exhaustive(&c, b.t, NULL, b.e.measure, b.e.ctx, true),
               ERR_UNSUPPORTED, "can be run");
    bed_close(&b);
}
