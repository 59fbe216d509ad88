/* Graphs as text, and passes: what they keep, what they leave alone, and the rewrites that
 * MNN-LLM prints, with their numbers of nodes. */
#include "tests/graph/graphs.h"
#include "tests/support/mutate.h"

/* ---- what the paper prints ---- */

static void rewrite_golden(const char *name, int n_before, int n_after)
{
    char path[128], *text, *printed, *want = NULL;
    struct graph g, before;
    size_t n;

    snprintf(path, sizeof(path), "tests/graph/golden/%s.graph", name);
    text = test_read(path, &n);
    assert_ok(graph_parse(&g, text, n));
    mem_free(text);
    assert_int_equal(g.n, n_before);
    assert_ok(graph_copy(&before, &g));
    assert_ok(graph_rewrite(&g, NULL));
    assert_int_equal(g.n, n_after);
    assert_same_results(&before, &g, 1);
    snprintf(path, sizeof(path), "tests/graph/golden/%s.rewritten", name);
    printed = print(&g);
    if (getenv("UPDATE"))
        test_write(path, printed, strlen(printed));
    want = test_read(path, &n);
    assert_int_equal(strlen(printed), n);
    assert_memory_equal(printed, want, n);
    mem_free(want);
    mem_free(printed);
    graph_fini(&before);
    graph_fini(&g);
}

TEST(shapes_become_a_const)
{
    rewrite_golden("reshape", 12, 3);
}

TEST(slices_are_one)
{
    rewrite_golden("slices", 3, 2);
}

TEST(equal_means_are_one)
{
    rewrite_golden("mean", 19, 10);
}

TEST(layer_norm_is_one)
{
    rewrite_golden("layer_norm", 14, 4);
}

/* A decoder block with RMSNorm in its three spellings. */
TEST(a_decoder_block)
{
    rewrite_golden("block", 86, 36);
}

/* ---- what is only alike ---- */

static void stays(const char *what, const char *text, const char * not )
{
    struct graph g, before;

    parse(&g, text);
    assert_ok(graph_copy(&before, &g));
    assert_ok(graph_rewrite(&g, NULL));
    assert_same_results(&before, &g, 2);
    for (int i = 0; i < g.n; i++)
        if (graph_is(&g, i, not ))
            fail_msg("%s became %s", what, not );
    graph_fini(&before);
    graph_fini(&g);
}

#define X                                                                                \
    "%0 = input x: f32[1, 3, 8, 8]\n%1 = weight w: f32[8]\n%2 = const f32[]: 2\n%3 = "   \
    "const f32[]: 1e-05\n"
#define RMS_REST                                                                         \
    "%6 = add(%5, %3)\n%7 = sqrt(%6)\n%8 = div(%0, %7)\n%9 = mul(%8, %1)\nreturn %9\n"

/* Keys that are copied for the heads that share them, and in another order. */
#define GROUPED(heads, axis, expanded, sizes)                                            \
    "%0 = input q: f32[1, " heads ", 3, 8]\n%1 = input k: f32[1, 2, 3, 8]\n"             \
    "%2 = unsqueeze(%1; " axis ")\n%3 = const i64[5]: " expanded "\n"                    \
    "%4 = expand(%2, %3)\n%5 = const i64[4]: " sizes "\n%6 = reshape(%4, %5)\n"          \
    "%7 = transpose(%6; 0, 1, 3, 2)\n%8 = matmul(%0, %7)\n%9 = softmax(%8; 3)\n"         \
    "%10 = matmul(%9, %6)\nreturn %10\n"

TEST(heads_share_keys)
{
    struct graph g, before;

    parse(&g, GROUPED("4", "2", "1, 2, 2, 3, 8", "1, 4, 3, 8"));
    assert_ok(graph_copy(&before, &g));
    assert_ok(graph_rewrite(&g, NULL));
    assert_int_equal(g.n, 3);
    assert_same_results(&before, &g, 5);
    graph_fini(&before);
    graph_fini(&g);
}

/* Elements that are repeated along another axis are not copies of heads. */
TEST(other_heads_stay)
{
    struct graph g, before;

    parse(&g, GROUPED("6", "3", "1, 2, 3, 1, 8", "1, 6, 1, 8"));
    assert_ok(graph_copy(&before, &g));
    assert_ok(graph_rewrite(&g, NULL));
    assert_same_results(&before, &g, 6);
    for (int i = 0; i < g.n; i++)
        if (graph_is(&g, i, "expand"))
            goto out;
    fail_msg("the copies are gone");
out:
    graph_fini(&before);
    graph_fini(&g);
}

TEST(look_alikes_stay)
{
    stays("a mean along another axis",
          X "%4 = pow(%0, %2)\n%5 = reduce_mean(%4; 2)\n" RMS_REST, "rms_norm");
    stays("another power", X "%4 = pow(%0, %3)\n%5 = reduce_mean(%4; 3)\n" RMS_REST,
          "rms_norm");
    stays("squares of another tensor",
          X "%4 = mul(%0, %1)\n%5 = reduce_mean(%4; 3)\n" RMS_REST, "rms_norm");
    stays("no epsilon",
          X "%4 = pow(%0, %2)\n%5 = reduce_mean(%4; 3)\n%6 = add(%5, %5)\n%7 = sqrt(%6)\n"
            "%8 = div(%0, %7)\n%9 = mul(%8, %1)\nreturn %9\n",
          "rms_norm");
    stays("the root over the tensor",
          X "%4 = pow(%0, %2)\n%5 = reduce_mean(%4; 3)\n%6 = add(%5, %3)\n%7 = sqrt(%6)\n"
            "%8 = div(%7, %0)\n%9 = mul(%8, %1)\nreturn %9\n",
          "rms_norm");
    stays("a scale that is computed",
          X "%4 = pow(%0, %2)\n%5 = reduce_mean(%4; 3)\n%6 = add(%5, %3)\n%7 = sqrt(%6)\n"
            "%8 = div(%0, %7)\n%9 = mul(%8, %0)\nreturn %9\n",
          "rms_norm");
    stays("a difference to the mean of another axis",
          X "%4 = reduce_mean(%0; 2)\n%5 = sub(%0, %4)\n%6 = pow(%5, %2)\n%7 = "
            "reduce_mean(%6; 3)\n"
            "%8 = add(%7, %3)\n%9 = sqrt(%8)\n%10 = div(%5, %9)\n%11 = mul(%10, %1)\n"
            "%12 = add(%11, %1)\nreturn %12\n",
          "layer_norm");
    stays("the sigmoid of another tensor",
          "%0 = input a: f32[2, 4]\n%1 = input b: f32[2, 4]\n%2 = input c: f32[2, 4]\n%3 "
          "= sigmoid(%1)\n"
          "%4 = mul(%0, %3)\n%5 = mul(%4, %2)\nreturn %5\n",
          "swiglu");
    stays("a gate that is broadcast",
          "%0 = input a: f32[1, 4]\n%1 = input b: f32[2, 4]\n%2 = sigmoid(%0)\n%3 = "
          "mul(%0, %2)\n"
          "%4 = mul(%3, %1)\nreturn %4\n",
          "swiglu");
    stays("scores along another axis",
          X "%4 = transpose(%0; 0, 1, 3, 2)\n%5 = matmul(%0, %4)\n%6 = softmax(%5; "
            "2)\n%7 = matmul(%6, %0)\n"
            "return %7\n",
          "attention");
    stays("keys that are not transposed",
          X "%4 = matmul(%0, %0)\n%5 = softmax(%4; 3)\n%6 = matmul(%5, %0)\nreturn %6\n",
          "attention");
    stays("a transpose that moves nothing",
          X "%4 = transpose(%0; 0, 1, 2, 3)\n%5 = matmul(%0, %4)\n%6 = softmax(%5; 3)\n"
            "%7 = matmul(%6, %0)\nreturn %7\n",
          "attention");
    stays("a transpose of other axes",
          X "%4 = transpose(%0; 0, 2, 1, 3)\n%5 = transpose(%4; 0, 2, 3, 1)\n%6 = "
            "matmul(%0, %5)\n"
            "%7 = softmax(%6; 3)\n%8 = matmul(%7, %0)\nreturn %8\n",
          "attention");
}

#define ROPE_HEAD                                                                        \
    "%0 = input x: f32[1, 4, T, 8]\n%1 = weight cos: f32[8]\n%2 = weight sin: f32[8]\n"
#define ROPE_REST "%7 = mul(%6, %2)\n%8 = mul(%0, %1)\n%9 = add(%8, %7)\nreturn %9\n"

TEST(rope_is_one)
{
    struct graph g, before;

    parse(&g,
          ROPE_HEAD "%3 = slice(%0; -1, 4, 8)\n%4 = neg(%3)\n%5 = slice(%0; 3, 0, 4)\n"
                    "%6 = concat(%4, %5; -1)\n" ROPE_REST);
    assert_ok(graph_copy(&before, &g));
    assert_ok(graph_rewrite(&g, NULL));
    assert_int_equal(before.n, 10);
    assert_int_equal(g.n, 4);
    assert_true(graph_is(&g, 3, "rope"));
    assert_same_results(&before, &g, 5);
    graph_fini(&before);
    graph_fini(&g);
}

TEST(look_alikes_of_rope_stay)
{
    stays("the halves in their order",
          ROPE_HEAD "%3 = slice(%0; -1, 0, 4)\n%4 = neg(%3)\n%5 = slice(%0; 3, 4, 8)\n"
                    "%6 = concat(%4, %5; -1)\n" ROPE_REST,
          "rope");
    stays("the first half negative",
          ROPE_HEAD "%3 = slice(%0; -1, 4, 8)\n%4 = slice(%0; 3, 0, 4)\n%5 = neg(%4)\n"
                    "%6 = concat(%3, %5; -1)\n" ROPE_REST,
          "rope");
    stays("unequal parts",
          ROPE_HEAD "%3 = slice(%0; -1, 2, 8)\n%4 = neg(%3)\n%5 = slice(%0; 3, 0, 2)\n"
                    "%6 = concat(%4, %5; -1)\n" ROPE_REST,
          "rope");
    stays("halves of another axis",
          ROPE_HEAD "%3 = slice(%0; 1, 2, 4)\n%4 = neg(%3)\n%5 = slice(%0; 1, 0, 2)\n"
                    "%6 = concat(%4, %5; 1)\n" ROPE_REST,
          "rope");
    stays("cosines of more axes than x",
          "%0 = input x: f32[8]\n%1 = input cos: f32[T, 8]\n%2 = weight sin: f32[8]\n"
          "%3 = slice(%0; -1, 4, 8)\n%4 = neg(%3)\n%5 = slice(%0; 0, 0, 4)\n"
          "%6 = concat(%4, %5; -1)\n" ROPE_REST,
          "rope");
}

/* Two slices of one axis stay two; one that others read as well stays, too. */
TEST(slices_that_stay)
{
    struct graph g, before;

    parse(&g,
          "%0 = input x: f32[4, 8]\n%1 = slice(%0; 1, 1, 7)\n%2 = slice(%1; -1, 2, 4)\n"
          "return %2\n");
    assert_ok(graph_rewrite(&g, NULL));
    assert_int_equal(g.n, 3);
    graph_fini(&g);
    parse(&g,
          "%0 = input x: f32[4, 8]\n%1 = slice(%0; 1, 1, 7)\n%2 = slice(%1; 0, 2, 4)\n"
          "return %1, %2\n");
    assert_ok(graph_copy(&before, &g));
    assert_ok(graph_rewrite(&g, NULL));
    assert_int_equal(g.n, 3);
    assert_same_results(&before, &g, 4);
    graph_fini(&before);
    graph_fini(&g);
}

/* Sizes that are results of the graph stay computed: -1 is no size. */
TEST(a_dynamic_size_is_no_const)
{
    struct graph g, before;

    parse(
        &g,
        "%0 = input x: f32[2, T]\n%1 = shape(%0)\n%2 = reshape(%0, %1)\nreturn %1, %2\n");
    assert_ok(graph_copy(&before, &g));
    assert_ok(graph_rewrite(&g, NULL));
    assert_int_equal(g.n, 3);
    assert_same_results(&before, &g, 3);
    graph_fini(&before);
    graph_fini(&g);
}

/* ---- random graphs ---- */

struct writer {
    char text[16384];
    size_t n;
    int n_nodes;
    struct rng r;
};

static void put(struct writer *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void put(struct writer *w, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    w->n += (size_t)vsnprintf(w->text + w->n, sizeof(w->text) - w->n, fmt, ap);
    va_end(ap);
    assert_true(w->n < sizeof(w->text));
}

static int below(struct writer *w, int n)
{
    return (int)rng_below(&w->r, (uint64_t)n);
}

/* A node on earlier ones, all f32[1, T, 8] or consts; keys and slices come in pieces. */
static void put_random_node(struct writer *w)
{
    int a = below(w, w->n_nodes), b = below(w, w->n_nodes), i = w->n_nodes++;

    switch (below(w, 12)) {
    case 0:
        put(w, "%%%d = const f32[]: %.17g\n", i,
            below(w, 3) ? below(w, 4) * 0.5 : rng_normal(&w->r));
        break;
    case 1:
        put(w, "%%%d = weight w%d: f32[8]\n", i, below(w, 3));
        break;
    case 2:
        put(w, "%%%d = sigmoid(%%%d)\n", i, a);
        break;
    case 3:
        put(w, "%%%d = reduce_mean(%%%d; -1)\n", i, a);
        break;
    case 4:
        put(w, "%%%d = softmax(%%%d; -1)\n", i, a);
        break;
    case 5:
        put(w, "%%%d = shape(%%%d)\n%%%d = reshape(%%%d, %%%d)\n", i, a, i + 1, a, i);
        w->n_nodes++;
        break;
    case 6:
        put(w, "%%%d = pow(%%%d, %%%d)\n", i, a, b);
        break;
    case 7:
        put(w, "%%%d = %s(%%%d, %%%d)\n", i, below(w, 2) ? "sub" : "div", a, b);
        break;
    case 8:
        put(w, "%%%d = sqrt(%%%d)\n", i, a);
        break;
    case 9:
        put(w, "%%%d = add(%%%d, %%%d)\n", i, a, b);
        break;
    default:
        put(w, "%%%d = mul(%%%d, %%%d)\n", i, a, b);
    }
}

/* A normalisation of node x in a random spelling, right or with something else in one place. */
static void put_norm(struct writer *w, int x)
{
    int i = w->n_nodes, d = x, square, root;
    bool centred = below(w, 2);

    put(w,
        "%%%d = weight w%d: f32[8]\n%%%d = const f32[]: 2\n%%%d = const f32[]: 0.001\n",
        i, below(w, 3), i + 1, i + 2);
    w->n_nodes += 3;
    if (centred) {
        put(w, "%%%d = reduce_mean(%%%d; -1)\n%%%d = sub(%%%d, %%%d)\n", i + 3, x, i + 4,
            x, i + 3);
        d = i + 4;
        w->n_nodes += 2;
    }
    square = w->n_nodes++;
    if (below(w, 2))
        put(w, "%%%d = pow(%%%d, %%%d)\n", square, d, below(w, 4) ? i + 1 : i + 2);
    else
        put(w, "%%%d = mul(%%%d, %%%d)\n", square, d, below(w, 8) ? d : x);
    put(w, "%%%d = reduce_mean(%%%d; %d)\n%%%d = add(%%%d, %%%d)\n%%%d = sqrt(%%%d)\n",
        square + 1, square, below(w, 8) ? -1 : 1, square + 2, square + 1, i + 2,
        square + 3, square + 2);
    root = square + 3;
    put(w, "%%%d = div(%%%d, %%%d)\n%%%d = mul(%%%d, %%%d)\n", root + 1, d, root,
        root + 2, below(w, 2) ? root + 1 : i, below(w, 2) ? i : root + 1);
    w->n_nodes += 5;
    if (below(w, 2)) {
        put(w, "%%%d = add(%%%d, %%%d)\n", root + 3, root + 2, i);
        w->n_nodes++;
    }
}

static bool random_graph(struct graph *g, struct writer *w)
{
    int n = 2 + below(w, 30);

    w->n = 0;
    w->n_nodes = 1;
    put(w, "%%0 = input x: f32[1, T, 8]\n");
    while (w->n_nodes < n)
        if (below(w, 6) == 0)
            put_norm(w, below(w, 2) ? 0 : w->n_nodes - 1);
        else
            put_random_node(w);
    put(w, "return %%%d, %%%d\n", w->n_nodes - 1, below(w, w->n_nodes));
    if (graph_parse(g, w->text, w->n) == OK)
        return true;
    err_clear(); /* sizes that do not fit */
    return false;
}

/* Each graph is its text, and the passes keep what it computes, add nothing and are at rest
 * then. */
TEST(random_graphs)
{
    static struct writer w;
    int n_graphs = 0, n_changes[16], n_changed[16] = {0};

    rng_init(&w.r, test_seed(), "graphs");
    while (n_graphs < 20000) {
        struct graph g, before, again;
        char *text, *after;

        if (!random_graph(&g, &w))
            continue;
        n_graphs++;
        text = print(&g);
        parse(&again, text);
        after = print(&again);
        assert_string_equal(text, after);
        graph_fini(&again);
        mem_free(after);
        mem_free(text);

        assert_ok(graph_copy(&before, &g));
        assert_ok(graph_rewrite(&g, n_changes));
        assert_true(g.n <= before.n);
        assert_same_results(&before, &g, test_seed() + (uint64_t)n_graphs);
        for (int p = 0; graph_passes[p]; p++)
            n_changed[p] += n_changes[p] > 0;
        text = print(&g);
        parse(&again, text);
        assert_ok(graph_rewrite(&again, n_changes));
        after = print(&again);
        assert_string_equal(text, after);
        for (int p = 0; graph_passes[p]; p++)
            assert_int_equal(n_changes[p], 0);
        mem_free(after);
        mem_free(text);
        graph_fini(&again);
        graph_fini(&before);
        graph_fini(&g);
    }
    for (int p = 0; graph_passes[p]; p++)
        if (strcmp(graph_passes[p]->name, "fold") == 0 ||
            strcmp(graph_passes[p]->name, "merge") == 0 ||
            strcmp(graph_passes[p]->name, "fuse_norm") == 0 ||
            strcmp(graph_passes[p]->name, "fuse_swiglu") == 0)
            assert_true(n_changed[p] > 20);
    assert_int_equal(mem_used_bytes(MEM_OTHER), 0);
}

/* Each pass alone: the same results, no node more, and nothing to do the second time. */
TEST(each_pass_alone)
{
    static struct writer w;

    rng_init(&w.r, test_seed(), "passes");
    for (int n_graphs = 0; n_graphs < 1000;) {
        struct graph g;

        if (!random_graph(&g, &w))
            continue;
        n_graphs++;
        for (int p = 0; graph_passes[p]; p++) {
            const struct graph_pass *const one[] = {graph_passes[p], NULL};
            struct graph rewritten;
            int n = 0;

            assert_ok(graph_copy(&rewritten, &g));
            assert_ok(graph_rewrite_by(&rewritten, one, NULL));
            assert_true(rewritten.n <= g.n);
            assert_same_results(&g, &rewritten, test_seed() + (uint64_t)n_graphs);
            assert_ok(graph_passes[p]->run(&rewritten, &n));
            assert_int_equal(n, 0);
            graph_fini(&rewritten);
        }
        graph_fini(&g);
    }
}

/* ---- texts that are wrong ---- */

static void refuses(const char *text, const char *part)
{
    struct graph g;

    assert_err(graph_parse(&g, text, strlen(text)), ERR_FORMAT, part);
    assert_null(g.nodes);
}

TEST(wrong_texts)
{
    refuses("", "expected return");
    refuses("%1 = input x: f32[2]\nreturn %0\n", "expected %0, found %1");
    refuses("%0 = input x: f32[2]\n%1 = sqrt(%1)\nreturn %0\n",
            "line 2: %1 does not come before");
    refuses("%0 = conv x: f32[2]\n", "line 1: no operator \"conv\"");
    refuses("%0 = input x: f32[T, T]\nreturn %0\n", "at most one T");
    refuses("%0 = input x: f32[2]\n%1 = add(%0)\nreturn %1\n", "expected 2 to 2");
    refuses("%0 = input x: f32[2]\n%1 = input y: f32[3]\n%2 = add(%0, %1)\nreturn %2\n",
            "line 3: add: sizes 2 and 3");
    refuses("%0 = input x: f32[2, 3]\n%1 = const i64[1]: 4\n%2 = reshape(%0, %1)\nreturn "
            "%2\n",
            "do not fit");
    refuses("%0 = input x: f32[8]\n%1 = slice(%0; 0, 2, 9)\nreturn %1\n",
            "elements 2 to 9 of an axis of 8");
    /* Regression: the unknown size was printed as the number that stands for it. */
    refuses("%0 = input x: f32[T, 2]\n%1 = slice(%0; 0, 2, 1)\nreturn %1\n",
            "elements 2 to 1 of an axis of T");
    refuses("%0 = input x: f32[T, 2]\n%1 = slice(%0; 0, 2, T)\nreturn %1\n",
            "elements 2 to T of an axis of T");
    refuses("%0 = input x: f32[T]\n%1 = input y: f32[3]\n%2 = add(%0, %1)\nreturn %2\n",
            "line 3: add: sizes T and 3");
    refuses("%0 = input x: f32[8]\nreturn %0 %0\n", "the end of the line");
    refuses("%0 = const f32[2]: 1\nreturn %0\n", "expected ,");
    refuses("%0 = const f32[1]: nan\nreturn %0\n", "a finite number");
}

/* Damaged copies of a text are read or refused, and what is read can be computed or not, without
 * harm. */
TEST(damaged_texts)
{
    static const char *const names[] = {"reshape", "mean", "layer_norm", "block"};
    uint8_t *out = NULL;
    struct rng r;
    int n_read = 0;

    rng_init(&r, test_seed(), "damage");
    for (int i = 0; i < 4; i++) {
        char path[128];
        size_t n;
        char *text;

        snprintf(path, sizeof(path), "tests/graph/golden/%s.graph", names[i]);
        text = test_read(path, &n);
        out = mem_resize(MEM_TEST, out, n + MUTATE_EXTRA, 1);
        assert_non_null(out);
        for (int k = 0; k < 3000; k++) {
            size_t m = mutate(&r, (const uint8_t *)text, n, out);
            struct graph g;

            if (graph_parse(&g, (const char *)out, m) == OK) {
                n_read++;
                if (graph_rewrite(&g, NULL) == OK)
                    mem_free(print(&g));
                graph_fini(&g);
            }
            err_clear();
        }
        mem_free(text);
    }
    mem_free(out);
    assert_true(n_read > 10);
    assert_int_equal(mem_used_bytes(MEM_OTHER), 0);
}

TEST(short_of_memory)
{
    size_t n;
    char *text = test_read("tests/graph/golden/block.graph", &n), *printed;
    int rc = ERR_NOMEM;

    for (long k = 0; rc != OK; k++) {
        struct graph g;

        mem_fail_after(k, 1);
        rc = graph_parse(&g, text, n);
        if (rc == OK)
            rc = graph_rewrite(&g, NULL);
        if (rc == OK)
            rc = graph_print(&printed, &g);
        mem_fail_after(-1, 0);
        assert_true(rc == OK || rc == ERR_NOMEM);
        graph_fini(&g);
        assert_true(k < 10000);
    }
    mem_free(printed);
    mem_free(text);
    assert_int_equal(mem_used_bytes(MEM_OTHER), 0);
}
