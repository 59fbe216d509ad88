/* What operators compute, and what follows from sizes. */
#include "tests/graph/graphs.h"

static void computes(const char *text, int64_t n_dynamic, const double *want, int64_t n)
{
    struct graph g, again;
    struct results r;
    char *one, *two;

    parse(&g, text);
    one = print(&g);
    parse(&again, one);
    two = print(&again);
    assert_string_equal(one, two);
    compute(&r, &g, n_dynamic, 1);
    assert_int_equal(r.n[0], n);
    for (int64_t k = 0; k < n; k++)
        if (!close_to(r.x[0][k], want[k]))
            fail_msg("element %lld: %.17g, expected %.17g, of\n%s", (long long)k,
                     r.x[0][k], want[k], text);
    free_results(&r);
    mem_free(one);
    mem_free(two);
    graph_fini(&again);
    graph_fini(&g);
}

#define COMPUTES(n_dynamic, text, ...)                                                   \
    computes(text, n_dynamic, (const double[]){__VA_ARGS__},                             \
             sizeof((double[]){__VA_ARGS__}) / sizeof(double))
#define SIZE_OF_X                                                                        \
    "%0 = input x: f32[T]\n%1 = shape(%0)\n%2 = gather(%1; 0, 0)\n"                      \
    "%3 = const i64[]: 0\n%4 = const i64[]: 1\n%5 = range(%3, %2, %4)\n"

TEST(operators)
{
    COMPUTES(3, SIZE_OF_X "return %5\n", 0, 1, 2);
    COMPUTES(4, SIZE_OF_X "%6 = slice(%5; 0, -2, T)\nreturn %6\n", 2, 3);
    COMPUTES(2,
             SIZE_OF_X "%6 = const i64[3]: 7, 8, 9\n%7 = slice(%6; 0, 0, T)\nreturn %7\n",
             7, 8);
    COMPUTES(2,
             SIZE_OF_X
             "%6 = unsqueeze(%5; 1)\n%7 = less_equal(%5, %6)\n%8 = const f32[]: 0\n"
             "%9 = const f32[]: -inf\n%10 = where(%7, %8, %9)\nreturn %10\n",
             0, -INFINITY, 0, 0);
    COMPUTES(2,
             SIZE_OF_X "%6 = const i64[2]: -1, -1\n%7 = expand(%4, %6)\n"
                       "%8 = trilu(%7; 1, 1)\nreturn %8\n",
             0, 1, 0, 0);
    COMPUTES(1,
             "%0 = const f32[2, 2]: 1, 2, 3, 4\n%1 = const i64[3]: 1, -1, 0\n"
             "%2 = take(%0, %1; 0)\nreturn %2\n",
             3, 4, 3, 4, 1, 2);
    COMPUTES(1,
             "%0 = const f32[2, 2]: 1, 2, 3, 4\n%1 = const i64[]: 1\n"
             "%2 = take(%0, %1; 1)\nreturn %2\n",
             2, 4);
    COMPUTES(1, "%0 = const f32[3]: -1.5, 0, 2.5\n%1 = cast(%0; 1)\nreturn %1\n", -1, 0,
             2);
    COMPUTES(1,
             "%0 = const f32[2]: 0, 1\n%1 = neg(%0)\n%2 = exp(%1)\n%3 = cos(%2)\n"
             "%4 = sin(%3)\n%5 = tanh(%4)\n%6 = erf(%5)\nreturn %6\n",
             erf(tanh(sin(cos(1)))), erf(tanh(sin(cos(exp(-1))))));
    COMPUTES(1,
             "%0 = const f32[4]: 1, 2, 3, 4\n%1 = const f32[]: 0.5\n"
             "%2 = const f32[]: 2\n%3 = rope(%0, %1, %2)\nreturn %3\n",
             -5.5, -7, 3.5, 6);
    COMPUTES(1,
             "%0 = const f32[2]: 1, 2\n%1 = const f32[2]: 2, 2\n%2 = less(%0, %1)\n"
             "%3 = equal(%0, %1)\n%4 = concat(%2, %3; 0)\nreturn %4\n",
             1, 0, 0, 1);
}

/* How frameworks write sizes: -1 stands for a size of x, which is chosen before the graph runs. */
TEST(sizes_with_a_choice_are_a_const)
{
    struct graph g, before;

    parse(&g, "%0 = input x: f32[1, T, 1]\n%1 = shape(%0)\n%2 = const i64[3]: -1, -1, 8\n"
              "%3 = const i64[3]: -1, -1, -1\n%4 = equal(%2, %3)\n"
              "%5 = where(%4, %1, %2)\n%6 = expand(%0, %5)\nreturn %6\n");
    assert_ok(graph_copy(&before, &g));
    assert_ok(graph_rewrite(&g, NULL));
    assert_int_equal(g.n, 3);
    assert_same_results(&before, &g, 6);
    graph_fini(&before);
    graph_fini(&g);
}

static void fails_for(const char *text, int64_t n_dynamic, const char *part)
{
    struct graph g;
    double *out;
    int64_t n;
    uint64_t seed = 1;

    parse(&g, text);
    assert_err(graph_compute(&out, &n, &g, n_dynamic, fill, &seed), ERR_FORMAT, part);
    assert_null(out);
    graph_fini(&g);
}

/* Whether elements are there is known when the number of tokens is. */
TEST(elements_that_are_not_there)
{
    fails_for(SIZE_OF_X "%6 = slice(%5; 0, -2, T)\nreturn %6\n", 1,
              "%6 = slice: 2 elements from -1");
    fails_for(SIZE_OF_X "%6 = slice(%5; 0, 1, 3)\nreturn %6\n", 2,
              "2 elements from 1 of an axis of 2");
    fails_for(SIZE_OF_X "%6 = gather(%5; 0, 2)\nreturn %6\n", 2, "element 2 of 2");
    fails_for(SIZE_OF_X "%6 = const f32[2]: 1, 2\n%7 = take(%6, %5; 0)\nreturn %7\n", 3,
              "element 2 of 2");
}

/* What a program builds is what its text says; sizes that do not fit are refused. */
TEST(a_graph_is_built)
{
    const struct graph_shape two = {1, {2}}, three = {1, {3}};
    struct graph g = {0};
    int a, b, c, sum;
    char *text;

    assert_ok(graph_add_const(&g, GRAPH_F32, &two, (const double[]){1, 2}, &a));
    assert_ok(graph_add_const(&g, GRAPH_F32, &three, (const double[]){1, 2, 3}, &b));
    assert_ok(graph_add_op(&g, "slice", &b, 1, (const int64_t[]){0, 1, 3}, 3, &c));
    assert_ok(graph_add_op(&g, "add", (int[]){a, c}, 2, NULL, 0, &sum));
    g.out[g.n_out++] = sum;
    text = print(&g);
    assert_string_equal(text, "%0 = const f32[2]: 1, 2\n%1 = const f32[3]: 1, 2, 3\n"
                              "%2 = slice(%1; 0, 1, 3)\n%3 = add(%0, %2)\nreturn %3\n");
    mem_free(text);
    assert_err(graph_add_op(&g, "add", (int[]){a, b}, 2, NULL, 0, &sum), ERR_FORMAT,
               "sizes 2 and 3");
    graph_fini(&g);
    assert_int_equal(mem_used_bytes(MEM_OTHER), 0);
}
