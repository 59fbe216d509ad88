/* Trees as text: the paper's Fig. 5 is a golden file, and any tree gives a drawing that
 * is complete and legible. */
#include "tests/support/tree.h"
#include "tests/support/faults.h"

#define KUNPENG "synthetic:package:4 node:2 core:24 pu:1"

/* UPDATE=1 rewrites the file. */
static void check_golden(const char *path, const char *text)
{
    char *expected;
    size_t n;

    if (getenv("UPDATE"))
        test_write(path, text, strlen(text));
    expected = test_read(path, &n);
    if (n != strlen(text) || memcmp(expected, text, n) != 0)
        fail_msg("%s differs from what is drawn now; if that is better, UPDATE=1 make "
                 "test:\n%s",
                 path, text);
    mem_free(expected);
}

/* (1) what the tools report, (2) fours of cores grouped, (3) one of each removed. */
TEST(the_papers_figure_5)
{
    struct topo_tree *t[3];
    char path[96], *text;

    t[0] = tree_open(KUNPENG);
    assert_ok(topo_tree_group(&t[1], t[0], 4, 1, 3));
    assert_ok(topo_tree_remove(&t[2], t[1], 1, 4));
    for (int i = 0; i < 3; i++) {
        assert_ok(topo_tree_text(t[i], &text));
        snprintf(path, sizeof(path), "tests/golden/topotree/kunpeng_%d.txt", i + 1);
        check_golden(path, text);
        mem_free(text);
    }
    mem_free(t[2]);
    mem_free(t[1]);
    tree_close(t[0]);
}

TEST(kinds_have_names)
{
    char text[64];

    topo_kinds_print(TOPO_PACKAGE | TOPO_NODE, text, sizeof(text));
    assert_string_equal(text, "package+node");
    topo_kinds_print(2 * TOPO_PU - 1, text, sizeof(text));
    assert_string_equal(text, "machine+package+node+L3+cluster+L2+group+core+PU");
    topo_kinds_print(0, text, sizeof(text));
    assert_string_equal(text, "");
}

/* ---- any tree ---- */

TEST(any_tree_is_drawn)
{
    struct rng rng;

    rng_init(&rng, test_seed(), "drawings");
    for (int i = 0; i < 60; i++) {
        struct topo_tree *t = tree_open(tree_random_spec(&rng, 256));
        struct topo_tree *g = tree_random_group(&rng, t, 1);
        struct topo_tree *r = tree_random_remove(&rng, g);
        int lines = 0;
        char *text;

        assert_ok(topo_tree_text(r ? r : g, &text));
        for (const char *at = text; *at; at++, lines++) {
            size_t length = strcspn(at, "\n");

            assert_true(lines == 0 ||
                        length <= 100); /* the first has the machine's name */
            at += length;
        }
        assert_int_equal(lines, g->n_levels + 2);
        mem_free(text);
        mem_free(r);
        mem_free(g);
        tree_close(t);
    }
}

/* 64 times 64 CPUs: what repeats is left out. */
TEST(large_trees_stay_small)
{
    struct topo_tree *t = tree_open("synthetic:package:8 node:8 core:32 pu:2");
    char *text;

    assert_ok(topo_tree_text(t, &text));
    assert_true(strlen(text) < 700);
    mem_free(text);
    tree_close(t);
}

TEST(memory_runs_out)
{
    struct topo_tree *t = tree_open("synthetic:node:2 core:8 pu:2");
    char *text;

    assert_true(test_allocations(topo_tree_text(t, &text), !text) >= 3);
    mem_free(text);
    tree_close(t);
}
