/* Trees as text and as SVG: the paper's Fig. 5 is a golden file, and any tree gives a
 * drawing that is well formed, complete and legible. */
#include "tests/support/tree.h"

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
static void the_papers_figure_5(void **state)
{
    struct topo_tree *t[3];
    char path[96], *text;

    (void)state;
    t[0] = tree_open(KUNPENG);
    assert_ok(topo_tree_group(&t[1], t[0], 4, 1, 3));
    assert_ok(topo_tree_remove(&t[2], t[1], 1, 4));
    for (int i = 0; i < 3; i++) {
        assert_ok(topo_tree_text(t[i], &text));
        snprintf(path, sizeof(path), "tests/golden/topotree/kunpeng_%d.txt", i + 1);
        check_golden(path, text);
        mem_free(text);
        assert_ok(topo_tree_svg(t[i], i == 2 ? t[1] : NULL, "Kunpeng 920, four packages",
                                &text));
        snprintf(path, sizeof(path), "tests/golden/topotree/kunpeng_%d.svg", i + 1);
        check_golden(path, text);
        mem_free(text);
    }
    mem_free(t[2]);
    mem_free(t[1]);
    tree_close(t[0]);
}

static void kinds_have_names(void **state)
{
    char text[64];

    (void)state;
    topo_kinds_print(TOPO_PACKAGE | TOPO_NODE, text, sizeof(text));
    assert_string_equal(text, "package+node");
    topo_kinds_print(2 * TOPO_PU - 1, text, sizeof(text));
    assert_string_equal(text, "machine+package+node+L3+cluster+L2+group+core+PU");
    topo_kinds_print(0, text, sizeof(text));
    assert_string_equal(text, "");
}

/* ---- any tree ---- */

static int count(const char *text, const char *part)
{
    int n = 0;

    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        n++;
    return n;
}

/* Elements open and close in order; attributes are quoted; no stray "<" or "&". */
static void check_well_formed(const char *s)
{
    const char *open[16];
    int depth = 0;

    for (; *s; s++) {
        if (*s == '&')
            assert_true(strncmp(s, "&lt;", 4) == 0 || strncmp(s, "&gt;", 4) == 0 ||
                        strncmp(s, "&amp;", 5) == 0);
        if (*s != '<')
            continue;
        const char *name = s + 1 + (s[1] == '/');
        const char *end = strchr(s, '>');
        size_t n = strcspn(name, " />");

        assert_non_null(end);
        for (const char *q = s; q < end; q++)
            assert_true(*q != '=' || q[1] == '"');
        if (s[1] == '/') {
            assert_true(depth > 0);
            depth--;
            assert_int_equal(strncmp(open[depth], name, n), 0);
        } else if (end[-1] != '/') {
            assert_true(depth < 16);
            open[depth++] = name;
        }
        s = end;
    }
    assert_int_equal(depth, 0);
}

/* The drawing's size, from its viewBox. */
static void size_of(const char *svg, int *w, int *h)
{
    const char *box = strstr(svg, "viewBox=\"0 0 ");

    assert_non_null(box);
    assert_int_equal(sscanf(box, "viewBox=\"0 0 %d %d\"", w, h), 2);
}

/* Everything is within the drawing. */
static void check_inside(const char *svg, int w, int h)
{
    for (const char *at = strstr(svg, " x=\""); at; at = strstr(at + 1, " x=\"")) {
        int x, y;

        assert_int_equal(sscanf(at, " x=\"%d\" y=\"%d\"", &x, &y), 2);
        assert_in_range(x, 1, w - 1);
        assert_in_range(y, 1, h - 1);
    }
}

static void any_tree_is_drawn(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, test_seed(), "drawings");
    for (int i = 0; i < 60; i++) {
        struct topo_tree *t = tree_open(tree_random_spec(&rng, 256));
        struct topo_tree *g = tree_random_group(&rng, t, 1);
        struct topo_tree *r = tree_random_remove(&rng, g);
        int w, h, kept, hollow, lines = 0;
        char *svg, *text;

        assert_ok(topo_tree_svg(r ? r : g, g, "a <title> & more", &svg));
        check_well_formed(svg);
        size_of(svg, &w, &h);
        assert_in_range(w, 100, 2600);
        check_inside(svg, w, h);
        kept = count(svg, "class=\"k\"");
        hollow = count(svg, "class=\"r\"");
        assert_non_null(strstr(svg, ">a &lt;title&gt; &amp; more<"));
        if (g->n_pus <= 32) {
            assert_int_equal(kept, (r ? r : g)->n_pus);
            assert_int_equal(kept + hollow, g->n_pus);
            assert_null(strstr(svg, "..."));
        }
        assert_true(kept >= 1 && (!r || hollow >= 1));
        mem_free(svg);
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
static void large_trees_stay_small(void **state)
{
    struct topo_tree *t = tree_open("synthetic:package:8 node:8 core:32 pu:2"), *r;
    char *svg, *text;
    int w, h;

    (void)state;
    assert_ok(topo_tree_remove(&r, t, 30, 3));
    assert_ok(topo_tree_svg(r, t, NULL, &svg));
    size_of(svg, &w, &h);
    assert_true(w < 2000);
    assert_non_null(strstr(svg, ">package:8 node:8 core:32 pu:2<"));
    assert_non_null(strstr(svg, ">128 of 2048 core<"));
    mem_free(svg);
    assert_ok(topo_tree_text(t, &text));
    assert_true(strlen(text) < 700);
    mem_free(text);
    mem_free(r);
    tree_close(t);
}

static void other_trees_are_refused(void **state)
{
    struct topo_tree *t = tree_open("synthetic:node:2 core:8 pu:2"), *a, *b, *r;
    char *svg;

    (void)state;
    assert_ok(topo_tree_group(&a, t, 2, 1, 2));
    assert_ok(topo_tree_group(&b, t, 2, 2, 2));
    assert_ok(topo_tree_remove(&r, a, 1, 2));
    assert_err(topo_tree_svg(r, t, "", &svg), ERR_ARG, "not what remove() leaves");
    assert_err(topo_tree_svg(r, b, "", &svg), ERR_ARG, "not what remove() leaves");
    assert_err(topo_tree_svg(a, r, "", &svg), ERR_ARG, "not what remove() leaves");
    assert_null(svg);
    assert_ok(topo_tree_svg(r, a, "", &svg));
    mem_free(svg);
    mem_free(r);
    mem_free(b);
    mem_free(a);
    tree_close(t);
}

static void memory_runs_out(void **state)
{
    struct topo_tree *t = tree_open("synthetic:node:2 core:8 pu:2");
    char *text;
    int rc;

    (void)state;
    for (int k = 0; k < 2; k++) {
        long n = 0;

        do {
            mem_fail_after(n, 1);
            rc = k ? topo_tree_svg(t, NULL, NULL, &text) : topo_tree_text(t, &text);
            mem_fail_after(-1, 0);
            if (rc != OK) {
                assert_int_equal(rc, ERR_NOMEM);
                assert_null(text);
            }
        } while (rc != OK && n++ < 100);
        assert_true(n >= 2);
        mem_free(text);
    }
    tree_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_papers_figure_5),
        cmocka_unit_test(kinds_have_names),
        cmocka_unit_test(any_tree_is_drawn),
        cmocka_unit_test(large_trees_stay_small),
        cmocka_unit_test(other_trees_are_refused),
        cmocka_unit_test(memory_runs_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
