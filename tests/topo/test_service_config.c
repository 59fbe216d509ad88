/* Cross-sections: which are allowed, how even they are, when two do the same. */
#include "tests/support/tree.h"

#include <math.h>

#include "topo/service_config.h"

/* A tree with a level of `ranks` nodes of one CPU each below the machine. */
static struct topo_tree *with_ranks(int ranks)
{
    char spec[48];

    snprintf(spec, sizeof(spec), "synthetic:pu:%d", ranks);
    return tree_open(spec);
}

/* ---- operators ---- */

static void cut(struct topo_config *c, int ranks, const struct topo_limits *l)
{
    struct topo_tree *t = with_ranks(ranks);

    assert_ok(topo_config_cut(c, t, 1, l));
    assert_int_equal(c->n_ranks, ranks);
    assert_int_equal(c->n_threads, 1);
    c->tree = NULL;
    tree_close(t);
}

/* 0: the sequence is split. */
static void check_imbalance(int heads, int kv_heads, int units, int ranks,
                            double attention, double ffn)
{
    struct topo_limits l = {
        .n_heads = heads, .n_kv_heads = kv_heads, .n_ffn_units = units};
    struct topo_config c;

    cut(&c, ranks, &l);
    if (attention > 0 &&
        (c.n_sequence_splits != 1 || fabs(c.attention_imbalance - attention) > 0.006))
        fail_msg("%d heads, %d ranks: %g, wanted %g", heads, ranks, c.attention_imbalance,
                 attention);
    if (attention <= 0)
        assert_true(c.n_sequence_splits > 1);
    if (fabs(c.ffn_imbalance - ffn) > 0.006)
        fail_msg("%d units, %d ranks: %g, wanted %g", units, ranks, c.ffn_imbalance, ffn);
}

/* Heads, KV heads, units of 32 and of 128 columns; then per number of ranks the largest
 * share of attention and of both kinds of units, to two decimals; 0: sequence split. */
TEST(shares_of_the_models)
{
    static const int ranks[] = {2, 4, 6, 8, 12, 16, 24};
    static const struct {
        int heads, kv_heads, columns;
        double attention[7], of_32[7], of_128[7];
    } rows[] = {
        /* Llama-160M: 3072 columns */
        {12,
         12,
         3072,
         {1, 1, 1, 1.33, 1, 0, 0},
         {1, 1, 1, 1, 1, 1, 1},
         {1, 1, 1, 1, 1, 1.33, 1}},
        /* Sheared-LLaMA-1.3B, Qwen-1.8B: 5504 */
        {16,
         16,
         5504,
         {1, 1, 1.125, 1, 1.5, 1, 0},
         {1, 1, 1.01, 1.02, 1.05, 1.02, 1.12},
         {1.02, 1.02, 1.12, 1.12, 1.12, 1.12, 1.12}},
        /* Llama-3.2-1B: 8192; beyond 8 KV heads its query heads are dealt out */
        {32,
         8,
         8192,
         {1, 1, 1.5, 1, 1.125, 1, 1.5},
         {1, 1, 1.01, 1, 1.03, 1, 1.03},
         {1, 1, 1.03, 1, 1.125, 1, 1.125}},
        /* Llama-3-8B: 14336 */
        {32,
         8,
         14336,
         {1, 1, 1.5, 1, 1.125, 1, 1.5},
         {1, 1, 1, 1, 1.02, 1, 1.02},
         {1, 1, 1.02, 1, 1.07, 1, 1.07}},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (int k = 0; k < 7; k++) {
            check_imbalance(rows[i].heads, rows[i].kv_heads, rows[i].columns / 32,
                            ranks[k], rows[i].attention[k], rows[i].of_32[k]);
            check_imbalance(rows[i].heads, rows[i].kv_heads, rows[i].columns / 128,
                            ranks[k], rows[i].attention[k], rows[i].of_128[k]);
        }
}

/* The formula against handing out the parts one by one. */
TEST(shares_are_floor_parts)
{
    struct topo_limits l = {0};
    struct topo_config c;

    for (int units = 1; units <= 40; units++)
        for (int ranks = 1; ranks <= units; ranks++) {
            int largest = 0;

            for (int r = 0; r < ranks; r++) {
                int n = (r + 1) * units / ranks - r * units / ranks;

                largest = n > largest ? n : largest;
            }
            l.n_ffn_units = l.n_heads = l.n_kv_heads = units;
            cut(&c, ranks, &l);
            assert_true(fabs(c.ffn_imbalance - (double)largest * ranks / units) < 1e-12);
            assert_true(c.attention_imbalance == c.ffn_imbalance);
        }
}

/* Rank r of R > H helps head floor(r H / R). */
TEST(sequences_are_split)
{
    struct topo_limits l = {0};
    struct topo_config c;

    for (int heads = 1; heads <= 12; heads++)
        for (int ranks = heads + 1; ranks <= 40; ranks++) {
            int helpers[12] = {0}, fewest = ranks, most = 0;

            for (int r = 0; r < ranks; r++)
                helpers[r * heads / ranks]++;
            for (int h = 0; h < heads; h++) {
                fewest = helpers[h] < fewest ? helpers[h] : fewest;
                most = helpers[h] > most ? helpers[h] : most;
            }
            l.n_heads = heads;
            l.n_kv_heads = heads % 2 ? heads : heads / 2;
            cut(&c, ranks, &l);
            assert_int_equal(c.n_sequence_splits, most);
            assert_true(fabs(c.attention_imbalance - (double)ranks / heads / fewest) <
                        1e-12);
        }
}

TEST(limits_are_named)
{
    struct topo_tree *t = with_ranks(12), *t48 = with_ranks(48);
    struct topo_limits l = {.max_ranks = 8};
    struct topo_config c;

    assert_err(topo_config_cut(&c, t, 1, &l), ERR_UNSUPPORTED, "at most 8");
    assert_null(c.tree);
    l = (struct topo_limits){.n_heads = 16, .n_kv_heads = 16, .strict = true};
    assert_err(topo_config_cut(&c, t, 1, &l), ERR_UNSUPPORTED, "16 heads");
    /* The paper's 48 processes cannot serve a model of 16 heads by its own rule. */
    assert_err(topo_config_cut(&c, t48, 1, &l), ERR_UNSUPPORTED, "48 ranks");
    l.n_heads = l.n_kv_heads = 12;
    assert_ok(topo_config_cut(&c, t, 1, &l));
    l.n_kv_heads = 4;
    assert_err(topo_config_cut(&c, t, 1, &l), ERR_UNSUPPORTED, "4 KV heads");
    l = (struct topo_limits){.n_ffn_units = 11};
    assert_err(topo_config_cut(&c, t, 1, &l), ERR_UNSUPPORTED, "only 11 units");
    assert_ok(topo_config_cut(&c, t, 0, &l));
    assert_err(topo_config_cut(&c, t, 2, NULL), ERR_ARG, "level 2");
    assert_err(topo_config_cut(&c, t, -1, NULL), ERR_ARG, "level -1");
    l = (struct topo_limits){0};
    assert_ok(topo_config_cut(&c, t48, 1, &l));
    assert_true(c.attention_imbalance == 1 && c.ffn_imbalance == 1);
    assert_int_equal(c.n_sequence_splits, 1);
    tree_close(t);
    tree_close(t48);
}

/* ---- keys ---- */

struct flat {
    int n, cpu[64]; /* CPUs rank by rank, ascending in each, ranks by smallest */
};

static int by_value(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static struct flat flatten(const struct topo_config *c)
{
    struct flat f = {.n = c->n_ranks};

    assert_true(c->tree->n_pus <= 64);
    for (int i = 0; i < c->tree->n_pus; i++)
        f.cpu[i] = c->tree->machine->pus[c->tree->pus[i]].os_index;
    for (int r = 0; r < c->n_ranks; r++)
        qsort(f.cpu + r * c->n_threads, (size_t)c->n_threads, sizeof(int), by_value);
    qsort(f.cpu, (size_t)c->n_ranks, sizeof(int) * (size_t)c->n_threads,
          by_value); /* a row begins with its smallest */
    return f;
}

/* Over random trees of one machine: equal keys exactly for equal sets. */
TEST(keys_tell_sets)
{
    struct topo_tree *t =
        tree_open("synthetic:node:2 l3:2 core:4 pu:2(indexes=2*16:16*1)");
    struct topo_config c[200];
    struct topo_tree *made[200];
    struct rng rng;
    int n_equal = 0, n = 0;

    rng_init(&rng, test_seed(), "keys");
    while (n < 200) {
        struct topo_tree *g = tree_random_group(&rng, t, 1);
        struct topo_tree *r = tree_random_remove(&rng, g);

        made[n] = rng_below(&rng, 2) && r ? r : g;
        mem_free(made[n] == g ? r : g);
        assert_ok(topo_config_cut(
            &c[n], made[n], (int)rng_below(&rng, (uint64_t)made[n]->n_levels), NULL));
        n++;
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) {
            struct flat a = flatten(&c[i]), b = flatten(&c[k]);
            bool same = memcmp(&a, &b, sizeof(a)) == 0;

            n_equal += same;
            assert_int_equal(topo_config_key(&c[i]) == topo_config_key(&c[k]), same);
        }
    assert_in_range(n_equal, 20, n * (n - 1) / 2 - 1000);
    for (int i = 0; i < n; i++)
        mem_free(made[i]);
    tree_close(t);
}

/* ---- memory nodes ---- */

TEST(nodes_and_words)
{
    struct topo_tree *t = tree_open("synthetic:package:4 node:2 core:24 pu:1"), *ccl,
                     *kept;
    static const char *const words[] = {"1 rank x 144 threads, 8 memory nodes",
                                        "4 ranks x 36 threads, 2 memory nodes each",
                                        "8 ranks x 18 threads, one memory node each",
                                        "48 ranks x 3 threads, 6 on each memory node",
                                        "144 ranks x 1 thread, 18 on each memory node"};
    struct topo_config c;
    int nodes[8];
    char text[96];

    assert_ok(topo_tree_group(&ccl, t, 4, 1, 3));
    assert_ok(topo_tree_remove(&kept, ccl, 1, 4));
    for (int l = 0; l < 5; l++) {
        assert_ok(topo_config_cut(&c, kept, l, NULL));
        topo_config_print(&c, text, sizeof(text));
        assert_string_equal(text, words[l]);
    }
    assert_ok(topo_config_cut(&c, kept, 1, NULL));
    for (int r = 0; r < 4; r++) {
        assert_int_equal(topo_config_nodes(&c, r, nodes, 8), 2);
        assert_int_equal(nodes[0], 2 * r);
        assert_int_equal(nodes[1], 2 * r + 1);
    }
    nodes[1] = -7; /* beyond what there is room for nothing is written */
    assert_int_equal(topo_config_nodes(&c, 3, nodes, 1), 2);
    assert_int_equal(nodes[0], 6);
    assert_int_equal(nodes[1], -7);
    mem_free(kept);
    mem_free(ccl);
    tree_close(t);
}

TEST(uneven_nodes_are_said)
{
    /* Three nodes of four CPUs cut in two: one node each and a shared one. */
    struct topo_tree *t = tree_open("synthetic:pu:12"), *g;
    struct topo_machine *m = (struct topo_machine *)t->machine;
    struct topo_node three[3] = {{0}}, *own = m->nodes;
    struct topo_config c;
    char text[96];

    m->nodes = three;
    m->n_nodes = 3;
    for (int i = 0; i < 12; i++)
        m->pus[i].node = i / 4;
    assert_ok(topo_tree_group(&g, t, 3, 1, 1));
    assert_ok(topo_config_cut(&c, g, 1, NULL));
    topo_config_print(&c, text, sizeof(text));
    assert_string_equal(text, "4 ranks x 3 threads, 1 to 2 memory nodes each");
    mem_free(g);
    m->nodes = own;
    m->n_nodes = 1;
    tree_close(t);
}
