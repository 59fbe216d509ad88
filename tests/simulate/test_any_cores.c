/* The reference of hidden machines against brute force: on machines of eight cores every set of
 * cores and every division into equal ranks is priced. */
#include "tests/simulate/contention.h"

#include "simulate/any_cores.h"
#include "simulate/random_machine.h"

/* Regression: the search was judged only on machines that its trees can express, and
 * was told how large the noise is. */

#define CORES 8

struct bed {
    struct topo_machine *m;
    struct simulate_machine *s;
    struct topo_tree *t;
    struct simulate_workload w;
    struct topo_config interleaved; /* places the weights where `links` differ */
    bool is_interleaved;
};

static int price(void *ctx, const struct topo_config *c, int repeat, double *seconds)
{
    struct bed *b = ctx;

    (void)repeat;
    return simulate_seconds(b->s, c, b->is_interleaved ? &b->interleaved : NULL, &b->w,
                            seconds);
}

/* A machine of that many PUs; false: this seed gives another. */
static bool bed_open(struct bed *b, int kind, uint64_t seed, int n_pus)
{
    struct simulate_random_opts o = {.kind = (enum simulate_hidden)kind,
                                     .strength = 0.4,
                                     .max_cores = CORES,
                                     .seed = seed};
    struct simulate_machine_params params;

    *b = (struct bed){.is_interleaved = kind == SIMULATE_LINKS};
    assert_ok(simulate_random_machine(&b->m, &params, &o));
    if (b->m->n_pus != n_pus || b->m->n_cores != n_pus) {
        topo_machine_close(&b->m);
        return false;
    }
    assert_ok(simulate_machine_new(&b->s, b->m, &params));
    assert_ok(topo_tree_open(&b->t, b->m, NULL, NULL, 0));
    assert_ok(topo_config_cut(&b->interleaved, b->t, 0, NULL));
    simulate_random_workload(&b->w, seed);
    return true;
}

static void bed_close(struct bed *b)
{
    mem_free(b->t);
    simulate_machine_close(&b->s);
    topo_machine_close(&b->m);
}

static double price_plan(struct bed *b, const int *pus, int n_ranks, int n_threads)
{
    struct topo_tree *t;
    struct topo_config c;
    double seconds;

    assert_ok(topo_tree_of_ranks(&t, b->m, pus, n_ranks, n_threads));
    assert_ok(topo_config_cut(&c, t, 1, NULL));
    assert_ok(price(b, &c, 0, &seconds));
    mem_free(t);
    return seconds;
}

/* All divisions of the cores in `left` into ranks of n, after the ranks in pus[0 ... at). */
static double divide(struct bed *b, int left, int n, int *pus, int at)
{
    int first = left & -left, rest = left ^ first;
    double best = INFINITY;

    if (!left)
        return price_plan(b, pus, at / n, n);
    for (int others = rest;; others = (others - 1) & rest) {
        if (__builtin_popcount((unsigned)others) == n - 1) {
            int k = at;

            for (int i = 0; i < CORES; i++)
                if ((first | others) >> i & 1)
                    pus[k++] = i;
            best = fmin(best, divide(b, left & ~(first | others), n, pus, k));
        }
        if (!others)
            return best;
    }
}

static double brute_force(struct bed *b)
{
    double best = INFINITY;
    int pus[CORES];

    for (int set = 1; set < 1 << CORES; set++) {
        int n = __builtin_popcount((unsigned)set);

        for (int k = 1; k <= n; k++)
            if (n % k == 0)
                best = fmin(best, divide(b, set, k, pus, 0));
    }
    return best;
}

static double reference(struct bed *b, double *of_trees)
{
    struct simulate_best trees, any, again;

    assert_ok(simulate_exhaustive(&trees, b->t, NULL, price, b, true));
    assert_ok(simulate_any_cores(&any, &trees.config, NULL, price, b));
    assert_true(any.seconds <= trees.seconds);
    assert_true(price_plan(b, any.tree->pus, any.config.n_ranks, any.config.n_threads) ==
                any.seconds);
    for (int i = 0; i < any.tree->n_pus; i++)
        for (int k = 0; k < i; k++)
            assert_int_not_equal(any.tree->pus[i], any.tree->pus[k]);
    assert_ok(simulate_any_cores(&again, &trees.config, NULL, price, b));
    assert_true(again.seconds == any.seconds && again.n_configs == any.n_configs);
    *of_trees = trees.seconds;
    mem_free(trees.tree);
    mem_free(any.tree);
    mem_free(again.tree);
    return any.seconds;
}

TEST(equals_brute_force_on_one_node)
{
    static const int kinds[] = {SIMULATE_TILED,  SIMULATE_UNTILED, SIMULATE_UNEQUAL,
                                SIMULATE_NESTED, SIMULATE_CROSSED, SIMULATE_NOISY};
    int n_better = 0;

    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        int n = 0;

        for (uint64_t seed = 1; n < 4 && seed < 200; seed++) {
            double best, got, of_trees;
            struct bed b;

            if (!bed_open(&b, kinds[k], seed, CORES))
                continue;
            n++;
            best = brute_force(&b);
            got = reference(&b, &of_trees);
            /* the order of ranks, which brute force does not vary, moves a hand-off */
            assert_true(best <= got * (1 + 1e-5));
            if (got > 1.005 * best)
                fail_msg("%s, seed %d: %.9g, brute force %.9g",
                         simulate_hidden_names[kinds[k]], (int)seed, got, best);
            n_better += got < 0.999 * of_trees;
            bed_close(&b);
        }
        assert_int_equal(n, 4);
    }
    assert_true(n_better > 0); /* else trees would do */
}

/* Cores of a node are alike there: every number of them on either node, in ranks of any size. */
TEST(equals_brute_force_on_two_nodes)
{
    static const int kinds[] = {SIMULATE_SLOW_NODE, SIMULATE_LINKS};

    for (int kind = 0; kind < 2; kind++) {
        int n = 0;

        for (uint64_t seed = 1; n < 4 && seed < 200; seed++) {
            double best = INFINITY, of_trees;
            struct bed b;
            int pus[2 * CORES];

            if (!bed_open(&b, kinds[kind], seed, 2 * CORES))
                continue;
            n++;
            for (int first = 0; first <= CORES; first++)
                for (int second = 0; second <= CORES; second++) {
                    for (int i = 0; i < first + second; i++)
                        pus[i] = i < first ? i : CORES + i - first;
                    if (first + second)
                        best = fmin(best, price_plan(&b, pus, 1, first + second));
                    for (int k = 1; k <= CORES; k++)
                        if (first % k == 0 && second % k == 0 && first + second)
                            best =
                                fmin(best, price_plan(&b, pus, (first + second) / k, k));
                }
            if (reference(&b, &of_trees) > 1.005 * best)
                fail_msg("%s, seed %d", simulate_hidden_names[kinds[kind]], (int)seed);
            bed_close(&b);
        }
        assert_int_equal(n, 4);
    }
}

static int refused(void *ctx, const struct topo_config *c, int repeat, double *seconds)
{
    (void)c, (void)repeat;
    *seconds = 1;
    return (*(int *)ctx)++ ? err_set(ERR_IO, "the machine is gone") : OK;
}

TEST(errors_end_it)
{
    struct simulate_best out;
    struct topo_config c;
    struct bed b;
    uint64_t seed = 1;
    int n_calls = 0;

    while (!bed_open(&b, SIMULATE_TILED, seed, CORES))
        seed++;
    assert_ok(topo_config_cut(&c, b.t, 0, NULL));
    assert_err(simulate_any_cores(&out, &c, NULL, refused, &n_calls), ERR_IO, "gone");
    assert_null(out.tree);
    bed_close(&b);
}
