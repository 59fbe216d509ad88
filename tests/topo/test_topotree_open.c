/* The fundamental tree: of real machines, of odd ones, and of parts of machines. */
#include "tests/support/tree.h"
#include "tests/support/faults.h"

#include <limits.h>

#include "base/json.h"

struct opened {
    struct topo_machine *m;
    struct topo_tree *t;
    char note[256];
};

static void close_both(struct opened *o)
{
    mem_free(o->t);
    topo_machine_close(&o->m);
}

static struct opened open_with(const char *spec, const struct topo_tree_opts *opts)
{
    struct opened o;

    assert_ok(topo_machine_open(&o.m, spec));
    assert_ok(topo_tree_open(&o.t, o.m, opts, o.note, sizeof(o.note)));
    tree_check(o.t);
    assert_true((o.t->n_pus == o.m->n_pus) == (o.note[0] == '\0') || opts);
    assert_string_equal(o.t->steps, "");
    return o;
}

static void expect(const char *spec, const struct topo_tree_opts *opts,
                   const char *levels, const char *note)
{
    struct opened o = open_with(spec, opts);

    assert_string_equal(tree_levels(o.t), levels);
    assert_string_equal(o.note, note);
    close_both(&o);
}

/* ---- real machines ---- */

static const struct {
    const char *file, *levels, *note;
} real[] = {
    {"aws-g4dn-2xXeon8259CL.xml", "machine/2 package+node+L3/24 L2+core/2 PU", ""},
    {"corona-2xEPYC7401-naples.xml", "machine/2 package/4 node/2 L3/3 L2+core/2 PU", ""},
    {"deep-2xXeonMax9462-snc4-cache.xml", "machine/2 package+L3/4 node/8 L2+core/2 PU",
     ""},
    {"deeper-knl-snc4-flat.xml", "machine+package/4 node/8 L2/2 core/4 PU", ""},
    {"hwloc-2xKunpeng920.xml", "machine/2 package/2 node+L3/8 cluster/4 L2+core+PU", ""},
    {"hwloc-2xPOWER8-partial.xml", "machine/2 package+node/4 L3+core/2 PU", ""},
    {"hwloc-4xOpteron6272.xml", "machine/4 package/2 node+L3/4 L2/2 core+PU", ""},
    {"hwloc-96core-16pkg-4numa.xml", "machine/4 node/4 package+L3/3 L2/2 core+PU", ""},
    {"hwloc-DGX-GB10-biglittle.xml", "machine+package+node/2 L3/5 L2+core+PU",
     "10 of 20 CPUs left out: less powerful cores than the other 10"},
    {"hwloc-RaptorLake-i7-1370P-hybrid.xml", "machine+package+node+L3/6 L2+core/2 PU",
     "8 of 20 CPUs left out: less powerful cores than the other 12"},
    {"lassen-2xPOWER9.xml", "machine/2 package+node/10 L3+L2/2 core/4 PU", ""},
    {"meluxina-2xEPYC7H12-nps4.xml", "machine/2 package/4 node/4 L3/4 L2+core/2 PU", ""},
};

TEST(real_machines_have_trees)
{
    const char *path = test_need_data("hwloc/topologies.json");
    json_t *rows, *row;
    size_t i, n_known = 0, n_here = 0;

    assert_ok(json_read_file(&rows, path, 1 << 20));
    json_array_foreach(rows, i, row)
    {
        char relative[256];
        const char *file;
        struct opened o;

        assert_ok(json_get_str(row, "file", &file, "topologies.json"));
        snprintf(relative, sizeof(relative), "hwloc/%s", file);
        o = open_with(test_data(relative), NULL);
        printf("# %s: %s%s%s\n", file, tree_levels(o.t), *o.note ? ": " : "", o.note);
        for (size_t k = 0; k < sizeof(real) / sizeof(real[0]); k++)
            if (strcmp(real[k].file, file) == 0) {
                assert_string_equal(tree_levels(o.t), real[k].levels);
                assert_string_equal(o.note, real[k].note);
                n_known++;
            }
        close_both(&o);
    }
    json_decref(rows);
    for (size_t k = 0; k < sizeof(real) / sizeof(real[0]); k++) {
        char relative[256];

        snprintf(relative, sizeof(relative), "hwloc/%s", real[k].file);
        n_here += test_data(relative) != NULL;
    }
    assert_int_equal(n_known, n_here);
}

/* Unpacks a dump of /sys and returns its specification; skips the test where it cannot. */
static const char *fsroot(const char *stem)
{
    static char spec[600];
    char relative[128], cmd[2400];
    const char *tar;

    snprintf(relative, sizeof(relative), "hwloc/fsroot/%s.tar.bz2", stem);
    tar = test_need_data(relative);
    snprintf(cmd, sizeof(cmd), "tar xjf '%s' -C '%s' 2>/dev/null", tar, test_dir());
    if (system(cmd) != 0)
        test_skip("cannot unpack %s (tar or bzip2 missing)", relative);
    snprintf(spec, sizeof(spec), "fsroot:%s/%s", test_dir(), stem);
    return spec;
}

/* The kernel reports this machine's clusters of four; hidden, grouping finds them again. */
TEST(clusters_can_be_hidden)
{
    const char *spec = fsroot("128arm-2pa2n8cluster4co");
    struct opened o = open_with(spec, NULL), hidden;
    struct topo_tree *g;

    assert_string_equal(tree_levels(o.t),
                        "machine/2 package/2 node+L3/8 cluster/4 L2+core+PU");
    hidden = open_with(spec, &(struct topo_tree_opts){.hide = TOPO_CLUSTER});
    assert_string_equal(tree_levels(hidden.t),
                        "machine/2 package/2 node+L3/32 L2+core+PU");
    assert_ok(topo_tree_group(&g, hidden.t, 4, 1, 3));
    assert_memory_equal(g->pus, o.t->pus, sizeof(int) * (size_t)g->n_pus);
    assert_int_not_equal(topo_tree_hash(g), topo_tree_hash(o.t)); /* another kind */
    g->levels[3].kinds = TOPO_CLUSTER;
    assert_int_equal(topo_tree_hash(g), topo_tree_hash(o.t));
    mem_free(g);
    close_both(&hidden);
    close_both(&o);
}

TEST(clusters_that_are_caches)
{
    expect(fsroot("nvidia-dgx-gb10"), NULL,
           "machine+package+node/2 L3+cluster/5 L2+core+PU",
           "10 of 20 CPUs left out: less powerful cores than the other 10");
}

/* ---- odd machines ---- */

TEST(synthetic_machines)
{
    expect("synthetic:package:4 node:2 core:24 pu:1", NULL,
           "machine/4 package/2 node/24 core+PU", "");
    expect("synthetic:pu:1", NULL, "machine+node/1 PU", "");
    expect("synthetic:pu:5", NULL, "machine+node/5 PU", "");
    expect("synthetic:package:1 node:1 l3:1 core:1 pu:4", NULL,
           "machine+package+node+L3+core/4 PU", "");
    expect("synthetic:package:2 l3:16 core:4 pu:2",
           &(struct topo_tree_opts){.hide = TOPO_L3 | TOPO_CORE},
           "machine+node/2 package/128 PU", "");
    expect("synthetic:package:2 l3:4 l2:2 core:2 pu:1", NULL,
           "machine+node/2 package/4 L3/2 L2/2 core+PU", "");
}

/* Siblings numbered far apart are children of one core all the same, and the second of
 * them is the right-most. */
TEST(siblings_far_apart)
{
    struct opened o =
        open_with("synthetic:package:2 core:20 pu:2(indexes=2*40:40*1)", NULL);

    assert_string_equal(tree_levels(o.t), "machine+node/2 package/20 core/2 PU");
    for (int i = 0; i < 80; i++)
        assert_int_equal(o.t->pus[i], i / 2 + 40 * (i % 2));
    close_both(&o);
}

/* Packages numbered in turn: CPU 0 on the first, CPU 1 on the second. */
TEST(numbers_in_turn)
{
    struct opened o =
        open_with("synthetic:package:2 core:3 pu:2(indexes=3*2:2*6:2*1)", NULL);

    assert_string_equal(tree_levels(o.t), "machine+node/2 package/3 core/2 PU");
    for (int p = 0; p < 2; p++) {
        int least = 12;

        for (int i = 0; i < 6; i++)
            least = o.t->pus[6 * p + i] < least ? o.t->pus[6 * p + i] : least;
        assert_int_equal(o.t->pus[6 * p], least);
    }
    close_both(&o);
}

TEST(levels_that_do_not_nest)
{
    struct topo_machine *m;
    struct topo_tree *t;
    char note[128];

    /* Packages of four, memory nodes of three of the twelve: nodes take precedence. */
    assert_ok(topo_machine_open(&m, "synthetic:package:3 core:4 pu:1"));
    for (int i = 0; i < 12; i++)
        m->pus[i].node = i / 3;
    m->n_nodes = 4; /* nothing reads nodes[] here */
    assert_ok(topo_tree_open(&t, m, NULL, note, sizeof(note)));
    assert_string_equal(tree_levels(t), "machine/4 node/3 core+PU");
    assert_string_equal(note, "package left out as a level: it does not nest");
    mem_free(t);
    /* Nodes of six: the second package is across. */
    for (int i = 0; i < 12; i++)
        m->pus[i].node = i / 6;
    assert_ok(topo_tree_open(&t, m, NULL, note, sizeof(note)));
    assert_string_equal(tree_levels(t), "machine/2 node/6 core+PU");
    assert_non_null(strstr(note, "package left out"));
    mem_free(t);
    /* As many packages as nodes, but others. */
    for (int i = 0; i < 12; i++)
        m->pus[i].node = i % 3;
    assert_ok(topo_tree_open(&t, m, NULL, note, 10)); /* cut, not overrun */
    assert_string_equal(tree_levels(t), "machine/3 node/4 core+PU");
    assert_string_equal(note, "package l");
    mem_free(t);
    /* A level that some CPUs lack is none; without cores each CPU is one. */
    m->pus[7].node = -1;
    for (int i = 0; i < 12; i++)
        m->pus[i].core = -1;
    assert_ok(topo_tree_open(&t, m, NULL, NULL, 0));
    assert_string_equal(tree_levels(t), "machine/3 package/4 PU");
    mem_free(t);
    m->n_nodes = 1;
    topo_machine_close(&m);
}

TEST(kinds_of_cores)
{
    struct topo_machine *m;
    struct topo_tree *t;
    char note[128];

    assert_ok(topo_machine_open(&m, "synthetic:l3:3 core:4 pu:1"));
    for (int i = 0; i < 12; i++)
        m->pus[i].kind = i < 4 ? 2 : i < 8 ? 0 : 1;
    assert_ok(topo_tree_open(&t, m, NULL, note, sizeof(note)));
    assert_int_equal(t->n_pus, 4);
    assert_int_equal(t->pus[0], 0); /* of equally many the most powerful */
    assert_string_equal(note, "8 of 12 CPUs left out: less powerful cores than the other "
                              "4");
    mem_free(t);
    m->pus[1].kind = 0;
    assert_ok(topo_tree_open(&t, m, NULL, note, sizeof(note)));
    assert_non_null(strstr(note, "7 of 12 CPUs left out: more powerful cores"));
    /* Five are left: one in the first cache, four in the second. */
    assert_string_equal(tree_levels(t), "machine+node+L3/4 core+PU");
    assert_non_null(strstr(note, "; 1 of 5 CPUs left out for equal subtrees: 1 to 4 "
                                 "core+PU in a L3"));
    assert_int_equal(t->pus[0], 4);
    mem_free(t);
    for (int i = 0; i < 12; i++)
        m->pus[i].kind = i < 3 ? 2 : i < 6 ? 0 : 1;
    assert_ok(topo_tree_open(&t, m, NULL, note, sizeof(note)));
    assert_non_null(strstr(note, "6 of 12 CPUs left out: cores more or less powerful"));
    mem_free(t);
    topo_machine_close(&m);
}

/* ---- parts of machines ---- */

TEST(withheld_cpus)
{
    static const int first_14[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
    static const int one_node[] = {24, 8, 9, 10, 11, 12, 13, 14, 15, 99999, -1, 8};
    static const int nobody[] = {64, -5};
    static const int but_one[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    const char *spec = "synthetic:node:2 l3:2 core:4 pu:2(indexes=2*16:16*1)";
    struct topo_tree_opts o = {.cpus = first_14, .n_cpus = 14};
    struct topo_machine *m;
    struct topo_tree *t;

    /* Cores 0 to 13 without siblings: the last cache has two of four. Eight could be one
     * node with full caches too: the spread over both wins. */
    expect(spec, &o, "machine/2 node/2 L3/2 core+PU",
           "6 of 14 CPUs left out for equal subtrees: 2 to 4 core+PU in a L3");
    /* A sibling's CPU alone is a core too; unknown and repeated numbers mean nothing. */
    o = (struct topo_tree_opts){.cpus = one_node, .n_cpus = 12};
    expect(spec, &o, "machine+node/2 L3/4 core+PU",
           "1 of 9 CPUs left out for equal subtrees: 1 to 2 PU in a core");
    /* Regression: of 8 cores of which one has a thread less, two were left out whole. */
    o = (struct topo_tree_opts){.cpus = but_one, .n_cpus = 15};
    expect("synthetic:node:2 core:4 pu:2", &o, "machine/2 node/4 core+PU",
           "7 of 15 CPUs left out for equal subtrees: 1 to 2 PU in a core");
    o = (struct topo_tree_opts){.cpus = nobody, .n_cpus = 2};
    assert_ok(topo_machine_open(&m, spec));
    assert_err(topo_tree_open(&t, m, &o, NULL, 0), ERR_ARG, "none of the 2 CPUs");
    assert_null(t);
    topo_machine_close(&m);
}

/* ---- the largest symmetric subset, against trying every list of arities ---- */

struct brute {
    const struct topo_tree *full;
    const char *in; /* [full->n_pus] by place: in the part */
    int arity[TOPO_LEVELS_MAX];
};

/* Node j of a level has room for the arities below it. */
static bool fits(const struct brute *b, int level, int j)
{
    int n = 0;

    if (level == b->full->n_levels - 1)
        return b->in[j];
    for (int c = 0; c < b->full->levels[level].arity; c++)
        n += fits(b, level + 1, j * b->full->levels[level].arity + c);
    return n >= b->arity[level];
}

/* Cores count first, then PUs. */
static int worth(int n_cores, int n_pus)
{
    return 1000 * n_cores + n_pus;
}

static int largest(struct brute *b, int level)
{
    int best = 0;

    if (level < 0) {
        int n = 1, n_cores = 0;

        for (int l = 0; l < b->full->n_levels; l++) {
            if (b->full->levels[l].kinds & TOPO_CORE)
                n_cores = n;
            n *= l < b->full->n_levels - 1 ? b->arity[l] : 1;
        }
        return fits(b, 0, 0) ? worth(n_cores, n) : 0;
    }
    for (int a = 1; a <= b->full->levels[level].arity; a++) {
        int n;

        b->arity[level] = a;
        n = largest(b, level - 1);
        best = n > best ? n : best;
    }
    return best;
}

static int count_cores(const struct topo_tree *t)
{
    for (int l = 0; l < t->n_levels; l++)
        if (t->levels[l].kinds & TOPO_CORE)
            return topo_tree_n_nodes(t, l);
    return 0;
}

TEST(largest_symmetric_part)
{
    struct rng rng;
    int n_uneven = 0;

    rng_init(&rng, test_seed(), "parts");
    for (int i = 0; i < 150; i++) {
        struct topo_tree *full = tree_open(tree_random_spec(&rng, 48)), *t;
        char in[48] = {0}, note[256];
        int cpus[48], n = 0, most;
        struct brute b = {.full = full, .in = in};
        double keep = 0.5 + 0.5 * rng_f64(&rng);

        for (int k = 0; k < full->n_pus; k++)
            if (rng_f64(&rng) < keep || (k == full->n_pus - 1 && n == 0)) {
                in[k] = 1;
                cpus[n++] = full->machine->pus[full->pus[k]].os_index;
            }
        most = largest(&b, full->n_levels - 2);
        assert_ok(topo_tree_open(&t, full->machine,
                                 &(struct topo_tree_opts){.cpus = cpus, .n_cpus = n},
                                 note, sizeof(note)));
        tree_check(t);
        assert_int_equal(worth(count_cores(t), t->n_pus), most);
        assert_int_equal(t->n_pus < n, note[0] != '\0');
        for (int k = 0; k < t->n_pus; k++) {
            int place = 0;

            while (full->pus[place] != t->pus[k])
                place++;
            assert_true(in[place]);
        }
        n_uneven += t->n_pus < n;
        mem_free(t);
        tree_close(full);
    }
    assert_true(n_uneven > 50);
}

/* Of the nodes that have enough children the left-most stay, with their left-most. */
TEST(left_most_part)
{
    static const int cpus[] = {1, 2, 3, 4, 8, 9, 10, 11, 12, 13, 14, 15};
    struct topo_tree_opts o = {.cpus = cpus, .n_cpus = 12};
    static const int kept[] = {1, 2, 3, 8, 9, 10, 12, 13, 14};
    struct opened p = open_with("synthetic:l3:4 core:4 pu:1", &o);

    assert_string_equal(tree_levels(p.t), "machine+node/3 L3/3 core+PU");
    assert_memory_equal(p.t->pus, kept, sizeof(kept));
    assert_string_equal(p.note,
                        "3 of 12 CPUs left out for equal subtrees: 1 to 4 core+PU "
                        "in a L3");
    close_both(&p);
}

TEST(memory_runs_out)
{
    static const int cpus[] = {0, 1, 2, 5};
    struct topo_tree_opts o = {.cpus = cpus, .n_cpus = 4};
    struct topo_machine *m;
    struct topo_tree *t;

    assert_ok(topo_machine_open(&m, "synthetic:node:2 core:2 pu:2"));
    /* CPUs, labels, scratch, the tree */
    assert_int_equal(test_allocations(topo_tree_open(&t, m, &o, NULL, 0), !t), 4);
    mem_free(t);
    topo_machine_close(&m);
}
