/* Step times of configurations on simulated machines. */
#include <pthread.h>

#include "tests/simulate/contention.h"
#include "simulate/contention_rates.h"

/* A step of a 1.28 B parameter model in f32 with 24 layers of width 2048. */
static struct simulate_workload step(enum topo_phase phase, double n_tok)
{
    return (struct simulate_workload){phase,
                                      1,
                                      {{.weight = 1,
                                        .flop = 2 * 1.28e9 * n_tok,
                                        .weight_bytes = 5.12e9,
                                        .attention_frac = 0.3,
                                        .n_barriers = 24 * 7,
                                        .n_allreduces = 48,
                                        .allreduce_bytes = n_tok * 2048 * 4}}};
}

static struct simulate_workload only(struct simulate_step w)
{
    w.weight = 1;
    return (struct simulate_workload){TOPO_DECODE, 1, {w}};
}

static struct topo_tree *open_tree(const struct topo_machine *m)
{
    struct topo_tree *t;

    assert_ok(topo_tree_open(&t, m, NULL, NULL, 0));
    return t;
}

static struct topo_tree *grouped(struct topo_tree *t, int n, int stride, int depth)
{
    struct topo_tree *out;

    assert_ok(topo_tree_group(&out, t, n, stride, depth));
    mem_free(t);
    return out;
}

static struct topo_tree *removed(struct topo_tree *t, int n, int depth)
{
    struct topo_tree *out;

    assert_ok(topo_tree_remove(&out, t, n, depth));
    mem_free(t);
    return out;
}

/* The cross-section of that many ranks. */
static struct topo_config cut(const struct topo_tree *t, int n_ranks)
{
    const struct topo_limits any = {0};
    struct topo_config c = {0};
    int level = 0;

    while (level < t->n_levels - 1 && topo_tree_n_nodes(t, level) < n_ranks)
        level++;
    assert_int_equal(topo_tree_n_nodes(t, level), n_ranks);
    assert_ok(topo_config_cut(&c, t, level, &any));
    return c;
}

static double seconds(const struct simulate_machine *s, const struct topo_config *c,
                      const struct topo_config *placement,
                      struct simulate_workload workload)
{
    double out;

    assert_ok(simulate_seconds(s, c, placement, &workload, &out));
    return out;
}

/* Every term by hand, on a machine without contention. */
TEST(terms)
{
    struct simulate_machine_params t = plain_params();
    const double sync[4] = {30, 60, 110, 250};
    struct topo_machine *m;
    struct topo_tree *tree;
    struct topo_config c;
    struct simulate_machine *s;
    struct simulate_workload w;

    memcpy(t.sync_ns, sync, sizeof(sync));
    t.other_package_factor = 0.5;
    t.n_domains = 1;
    t.domains[0] = domain("cluster", 4, 1, INFINITY);
    open_plain("synthetic:package:2 node:2 core:8 pu:1", &t, &m, &s);
    tree = open_tree(m);
    c = cut(tree, 2); /* a package each: 16 threads over two nodes of two clusters */

    w = only((struct simulate_step){.flop = 64e9});
    assert_near(seconds(s, &c, NULL, w), 64.0 / (32 * 50), 1e-12, "compute");
    w = only((struct simulate_step){.weight_bytes = 16e9, .kv_bytes = 16e9});
    assert_near(seconds(s, &c, NULL, w), 32.0 / (32 * 10), 1e-12, "read");
    w = only((struct simulate_step){.flop = 64e9, .weight_bytes = 32e9});
    assert_near(seconds(s, &c, NULL, w), 0.1, 1e-12, "the longer of both");
    w = only((struct simulate_step){.gather_bytes = 32e9});
    assert_near(seconds(s, &c, NULL, w), 32.0 / (32 * 6.4), 1e-12, "gather");
    w = only((struct simulate_step){.n_barriers = 10});
    /* 3 hand-offs in a cluster, 1 between those of a node, 1 between nodes; release */
    assert_near(seconds(s, &c, NULL, w), 10 * (90 + 60 + 110 + 110) * 1e-9, 1e-12,
                "barriers");
    w = only((struct simulate_step){.n_allreduces = 5, .allreduce_bytes = 8e3});
    /* a pass takes 8 kB / (16 * 10 * 0.5 GB/s) = 100 ns; both forms need two, and the
     * symmetric one a single hand-off between packages */
    assert_near(seconds(s, &c, NULL, w), 5 * (2 * 100 + 250) * 1e-9, 1e-12, "all-reduce");
    c = cut(tree, 4);
    w.v[0].allreduce_bytes = 8e6; /* 200 us a pass: two of them and four hand-offs */
    assert_near(seconds(s, &c, NULL, w), 5 * (2 * 200e-6 + 4 * 250e-9), 1e-12, "large");
    c = cut(tree, 1);
    assert_true(seconds(s, &c, NULL, w) == 0); /* one rank reduces nothing */
    mem_free(tree);
    simulate_machine_close(&s);
    topo_machine_close(&m);
}

/* Neighbours hand over within what they share: a node, a package, the machine. */
TEST(neighbours)
{
    static const char *const specs[3] = {"synthetic:node:1 l3:2 core:4 pu:1",
                                         "synthetic:package:1 node:2 core:4 pu:1",
                                         "synthetic:package:2 node:1 core:4 pu:1"};
    const struct simulate_workload w =
        only((struct simulate_step){.n_allreduces = 1, .allreduce_bytes = 4e3});
    struct simulate_machine_params t = plain_params();
    const double sync[4] = {30, 60, 110, 250};

    memcpy(t.sync_ns, sync, sizeof(sync));
    for (int i = 0; i < 3; i++) {
        struct topo_machine *m;
        struct topo_tree *tree;
        struct topo_config c;
        struct simulate_machine *s;

        open_plain(specs[i], &t, &m, &s);
        tree = open_tree(m);
        c = cut(tree, 2); /* two passes of 4 kB by four threads of 10 GB/s */
        assert_near(seconds(s, &c, NULL, w), (200 + sync[i + 1]) * 1e-9, 1e-12, specs[i]);
        mem_free(tree);
        simulate_machine_close(&s);
        topo_machine_close(&m);
    }
}

/* The largest rank's share counts, of attention and of the rest. */
TEST(imbalance)
{
    const struct topo_limits limits = {
        .n_heads = 12, .n_kv_heads = 12, .n_ffn_units = 96}; /* over 8 ranks: 2, 12 */
    struct simulate_machine_params t = plain_params();
    struct topo_machine *m;
    struct topo_tree *tree;
    struct topo_config c;
    struct simulate_machine *s;

    open_plain("synthetic:node:8 core:4 pu:1", &t, &m, &s);
    tree = open_tree(m);
    assert_ok(topo_config_cut(&c, tree, 1, &limits));
    assert_int_equal(c.n_ranks, 8);
    assert_near(c.attention_imbalance, 2 / 1.5, 1e-12, "heads");
    assert_near(seconds(s, &c, NULL,
                        only((struct simulate_step){.weight_bytes = 320e9,
                                                    .attention_frac = 0.25})),
                0.25 * 2 / 1.5 + 0.75, 1e-12, "bytes");
    assert_near(seconds(s, &c, NULL, only((struct simulate_step){.kv_bytes = 320e9})),
                2 / 1.5, 1e-12, "keys and values");
    assert_near(
        seconds(s, &c, NULL, only((struct simulate_step){.gather_bytes = 32 * 6.4e9})),
        2 / 1.5, 1e-12, "gathered ones");
    mem_free(tree);
    simulate_machine_close(&s);
    topo_machine_close(&m);
}

TEST(weighted_mean)
{
    struct simulate_workload w = {
        TOPO_PREFILL, 3, {{.weight = 1}, {.weight = 3}, {.weight = 0}}};
    struct simulate_machine_params t = plain_params();
    struct topo_machine *m;
    struct topo_tree *tree;
    struct topo_config c;
    struct simulate_machine *s;

    w.v[0].flop = 400e9;
    w.v[1].flop = 800e9;
    w.v[2].flop = 1e30; /* never happens */
    open_plain("synthetic:node:1 core:8 pu:1", &t, &m, &s);
    tree = open_tree(m);
    c = cut(tree, 1);
    assert_near(seconds(s, &c, NULL, w), (1 * 1.0 + 3 * 2.0) / 4, 1e-12, "mean");
    mem_free(tree);
    simulate_machine_close(&s);
    topo_machine_close(&m);
}

/* Prefill on whole packages over weights that decode placed node by node reads as many
 * remote bytes as if it had placed them itself; over weights that one rank placed, more. */
TEST(placement)
{
    struct simulate_workload w = only((struct simulate_step){.weight_bytes = 1e9});
    struct simulate_machine_params t = plain_params();
    struct topo_machine *m;
    struct topo_tree *tree;
    struct topo_config all, package, node;
    struct simulate_machine *s;

    t.same_package_factor = 0.8;
    t.other_package_factor = 0.5;
    open_plain("synthetic:package:2 node:2 core:8 pu:1", &t, &m, &s);
    tree = open_tree(m);
    all = cut(tree, 1);
    package = cut(tree, 2);
    node = cut(tree, 4);
    assert_near(seconds(s, &package, &node, w), seconds(s, &package, NULL, w), 1e-12,
                "by nodes within the package");
    assert_near(seconds(s, &node, NULL, w), 1.0 / 320, 1e-12, "all local");
    /* a fourth local, a fourth at 0.8, half at 0.5 */
    assert_near(seconds(s, &node, &all, w), (0.25 + 0.25 / 0.8 + 0.5 / 0.5) / 320, 1e-12,
                "placed by one rank");
    mem_free(tree);
    simulate_machine_close(&s);
    topo_machine_close(&m);
}

/* The same PUs, left by remove() or the only ones there: nothing else of the machine
 * counts. */
TEST(idle_cores)
{
    struct topo_machine *m;
    struct topo_tree *all, *few;
    struct topo_config c;
    struct simulate_machine *s;
    double want;
    int cpus[128], n = 0;

    open_shipped("kunpeng920x4", &m, &s);
    all = removed(open_tree(m), 8, 3);
    for (int node = 0; node < 8; node++)
        for (int i = 0; i < 16; i++)
            cpus[n++] = node * 24 + i;
    assert_ok(topo_tree_open(&few, m, &(struct topo_tree_opts){.cpus = cpus, .n_cpus = n},
                             NULL, 0));
    c = cut(all, 8);
    want = seconds(s, &c, NULL, step(TOPO_DECODE, 1));
    c = cut(few, 8);
    assert_near(seconds(s, &c, NULL, step(TOPO_DECODE, 1)), want, 1e-12, "idle cores");
    mem_free(all);
    mem_free(few);
    simulate_machine_close(&s);
    topo_machine_close(&m);
}

/* More of anything never makes a symmetric step longer. */
TEST(monotone)
{
    struct topo_machine *m;
    struct topo_tree *tree;
    struct simulate_machine_params t;
    struct simulate_machine *s;

    open_shipped("epyc7h12x2-nps4", &m, &s);
    tree = open_tree(m);
    t = *simulate_params(s);
    simulate_machine_close(&s);
    for (int what = 0; what < 5; what++) {
        double *const v[5] = {&t.link_gbps, &t.core_gbps, &t.node_gbps,
                              &t.domains[1].gbps, &t.core_gflops};
        double keep = *v[what], last[4] = {INFINITY, INFINITY, INFINITY, INFINITY};

        for (double f = 0.25; f < 4; f *= 1.5) {
            *v[what] = keep * f;
            assert_ok(simulate_machine_new(&s, m, &t));
            for (int i = 0; i < 4; i++) {
                static const int n_ranks[4] = {1, 2, 8, 32};
                struct topo_config c = cut(tree, n_ranks[i]);
                double now = seconds(s, &c, NULL, step(TOPO_DECODE, 32));

                assert_true(now <= last[i] * (1 + 1e-12));
                last[i] = now;
            }
            simulate_machine_close(&s);
        }
        *v[what] = keep;
    }
    mem_free(tree);
    topo_machine_close(&m);
}

/* A regression test of what the simulator gives with the shipped rates, which is Fig. 3a of the
 * paper in direction: prefill wants all cores, decode three of each hidden four, and not the
 * last six of a node left out. */
TEST(regression_kunpeng_phases)
{
    struct topo_machine *m;
    struct topo_tree *all, *sc_rm, *numa_rm;
    struct topo_config c[3];
    struct simulate_machine *s;
    double prefill[3], decode[3];

    open_shipped("kunpeng920x4", &m, &s);
    all = open_tree(m);
    sc_rm = removed(grouped(open_tree(m), 4, 1, 3), 1, 4);
    numa_rm = removed(open_tree(m), 6, 3);
    c[0] = cut(all, 8);
    c[1] = cut(sc_rm, 8);
    c[2] = cut(numa_rm, 8);
    for (int i = 0; i < 3; i++) {
        prefill[i] = seconds(s, &c[i], NULL, step(TOPO_PREFILL, 512));
        decode[i] = seconds(s, &c[i], NULL, step(TOPO_DECODE, 1));
    }
    assert_int_equal(c[1].n_threads, 18);
    assert_int_equal(c[2].n_threads, 18);
    assert_true(prefill[0] < 0.8 * prefill[1] && prefill[0] < 0.8 * prefill[2]);
    assert_true(decode[1] < decode[0] * 0.98);
    assert_true(decode[0] < decode[2] * 0.99);
    mem_free(all);
    mem_free(sc_rm);
    mem_free(numa_rm);
    simulate_machine_close(&s);
    topo_machine_close(&m);
}

/* Of the tree's ranks by package, those on one node each: the first nodes of the packages, or
 * the second ones, which the parameter file assumes to be slow. */
TEST(slow_nodes)
{
    struct topo_machine *m;
    struct simulate_machine *s;
    double took[2];
    int cpus[96];

    open_shipped("kunpeng920x4", &m, &s);
    for (int slow = 0; slow < 2; slow++) {
        struct topo_tree *tree;
        struct topo_config c;

        for (int i = 0; i < 96; i++)
            cpus[i] = i / 24 * 48 + slow * 24 + i % 24;
        assert_ok(topo_tree_open(
            &tree, m, &(struct topo_tree_opts){.cpus = cpus, .n_cpus = 96}, NULL, 0));
        c = cut(tree, 4);
        took[slow] = seconds(s, &c, NULL, step(TOPO_DECODE, 1));
        mem_free(tree);
    }
    assert_true(took[0] < 0.9 * took[1]);
    simulate_machine_close(&s);
    topo_machine_close(&m);
}

/* Noise has the spread it claims, and follows from seed, configuration and repeat alone. */
TEST(noise)
{
    struct simulate_workload w = step(TOPO_DECODE, 1);
    struct topo_machine *m;
    struct topo_tree *tree;
    struct topo_config c, other;
    struct simulate_machine_params t;
    struct simulate_machine *s;
    double exact, one, two, sum = 0, squares = 0;
    int n = 4000, spikes = 0;

    open_shipped("xeon6230x2", &m, &s);
    t = *simulate_params(s);
    simulate_machine_close(&s);
    t.spike_chance = 0.02;
    t.spike_frac = 1; /* far outside of the rest */
    assert_ok(simulate_machine_new(&s, m, &t));
    tree = open_tree(m);
    c = cut(tree, 2);
    other = cut(tree, 40);
    exact = seconds(s, &c, NULL, w);
    for (int i = 0; i < n; i++) {
        assert_ok(simulate_measure(s, &c, NULL, &w, test_seed(), i, &one));
        one = log(one / exact);
        if (one > 0.5) {
            spikes++;
            continue;
        }
        sum += one;
        squares += one * one;
    }
    assert_true(fabs(sum / n) < 5 * t.noise_frac / sqrt(n));
    assert_near(sqrt(squares / (n - spikes)), t.noise_frac, 0.06, "standard deviation");
    assert_true(spikes > 40 && spikes < 130); /* 80 expected */

    assert_ok(simulate_measure(s, &c, NULL, &w, 7, 3, &one));
    assert_ok(simulate_measure(s, &c, NULL, &w, 7, 3, &two));
    assert_true(one == two);
    assert_ok(simulate_measure(s, &c, NULL, &w, 8, 3, &two));
    assert_true(one != two);
    assert_ok(simulate_measure(s, &c, NULL, &w, 7, 4, &two));
    assert_true(one != two);
    assert_ok(simulate_measure(s, &other, NULL, &w, 7, 3, &two));
    assert_true(one / exact != two / seconds(s, &other, NULL, w));
    mem_free(tree);
    simulate_machine_close(&s);
    topo_machine_close(&m);
}

struct job {
    const struct simulate_machine *sim;
    const struct topo_config *config;
    double sum;
};

static void *measure_many(void *arg)
{
    struct simulate_workload w = step(TOPO_DECODE, 1);
    struct job *j = arg;
    double one;

    for (int i = 0; i < 200; i++) {
        if (simulate_measure(j->sim, j->config, NULL, &w, 5, i, &one) != OK)
            one = NAN;
        j->sum += one;
    }
    return NULL;
}

/* One simulator serves several threads, and nobody's answer depends on the others. */
TEST(threads)
{
    struct topo_machine *m;
    struct topo_tree *tree;
    struct topo_config c;
    struct simulate_machine *s;
    struct job jobs[4] = {{0}};
    pthread_t id[4];

    open_shipped("epyc7h12x2-nps4", &m, &s);
    tree = open_tree(m);
    c = cut(tree, 8);
    for (int i = 0; i < 4; i++) {
        jobs[i] = (struct job){s, &c, 0};
        assert_int_equal(pthread_create(&id[i], NULL, measure_many, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(id[i], NULL), 0);
    assert_true(jobs[0].sum > 0);
    for (int i = 1; i < 4; i++)
        assert_true(jobs[i].sum == jobs[0].sum);
    mem_free(tree);
    simulate_machine_close(&s);
    topo_machine_close(&m);
}

TEST(refusals)
{
    struct simulate_workload none = {TOPO_DECODE, 1, {{.flop = 1}}},
                             w = step(TOPO_DECODE, 1);
    struct simulate_machine_params t = plain_params();
    struct topo_machine *m, *m2;
    struct topo_tree *tree, *tree2;
    struct topo_config c, c2;
    struct simulate_machine *s;
    double x;
    int pus[] = {0, 1, 1}, out = 8;

    open_plain("synthetic:node:2 core:4 pu:1", &t, &m, &s);
    assert_ok(topo_machine_open(&m2, "synthetic:node:2 core:6 pu:1"));
    tree = open_tree(m);
    tree2 = open_tree(m2);
    c = cut(tree, 2);
    c2 = cut(tree2, 2);
    assert_err(simulate_seconds(s, &c2, NULL, &w, &x), ERR_ARG, "core:6");
    assert_err(simulate_seconds(s, &c, &c2, &w, &x), ERR_ARG, "core:6");
    assert_err(simulate_seconds(s, &c, NULL, &none, &x), ERR_ARG, "found 0");
    none.n = 9;
    assert_err(simulate_seconds(s, &c, NULL, &none, &x), ERR_ARG, "9 steps");
    none.n = 1;
    none.v[0].weight = NAN;
    assert_err(simulate_seconds(s, &c, NULL, &none, &x), ERR_ARG, "weight");
    c.n_threads = 5;
    assert_err(simulate_measure(s, &c, NULL, &w, 1, 1, &x), ERR_ARG, "2 ranks x 5");
    assert_err(simulate_stream_gbps(s, pus, 0, &x), ERR_ARG, "no CPU");
    assert_err(simulate_stream_gbps(s, pus, 3, &x), ERR_ARG,
               "CPU 1: expected once, found twice");
    assert_err(simulate_stream_gbps(s, &out, 1, &x), ERR_ARG, "CPU 8 of 8");
    mem_free(tree);
    mem_free(tree2);
    simulate_machine_close(&s);
    topo_machine_close(&m);
    topo_machine_close(&m2);
}
