/* tests/graph/graphs.h - what tests of graphs share: texts, results for random inputs, and their
 * comparison. */
#ifndef TESTS_GRAPH_GRAPHS_H
#define TESTS_GRAPH_GRAPHS_H

#include <math.h>

#include "graph/graph.h"
#include "tests/support/test.h"

static inline void parse(struct graph *g, const char *text)
{
    assert_ok(graph_parse(g, text, strlen(text)));
}

static inline char *print(const struct graph *g)
{
    char *text;

    assert_ok(graph_print(&text, g));
    return text;
}

/* The same elements for a name, whatever the graph. */
static inline void fill(void *ctx, const char *name, const struct graph_shape *shape,
                        double *data)
{
    struct rng r;
    int64_t n = graph_n_elements(shape);

    rng_init(&r, *(const uint64_t *)ctx, name);
    for (int64_t k = 0; k < n; k++)
        data[k] = rng_normal(&r);
}

struct results {
    double *x[GRAPH_IN_MAX];
    int64_t n[GRAPH_IN_MAX];
    int n_out;
};

static inline void compute(struct results *out, const struct graph *g, int64_t n_dynamic,
                           uint64_t seed)
{
    out->n_out = g->n_out;
    assert_ok(graph_compute(out->x, out->n, g, n_dynamic, fill, &seed));
}

static inline void free_results(struct results *r)
{
    for (int a = 0; a < r->n_out; a++)
        mem_free(r->x[a]);
}

static inline bool close_to(double a, double b)
{
    return (isnan(a) && isnan(b)) || a == b ||
           fabs(a - b) <= 1e-9 * (1 + fabs(a) + fabs(b));
}

static inline void assert_same_results(const struct graph *a, const struct graph *b,
                                       uint64_t seed)
{
    for (int64_t n_dynamic = 1; n_dynamic <= 5; n_dynamic += 2) {
        struct results x, y;

        compute(&x, a, n_dynamic, seed);
        compute(&y, b, n_dynamic, seed);
        assert_int_equal(x.n_out, y.n_out);
        for (int k = 0; k < x.n_out; k++) {
            assert_int_equal(x.n[k], y.n[k]);
            for (int64_t i = 0; i < x.n[k]; i++)
                if (!close_to(x.x[k][i], y.x[k][i])) {
                    char *before = print(a), *after = print(b);

                    fail_msg("result %d, element %lld: %.17g, then %.17g, of\n%sand\n%s",
                             k, (long long)i, x.x[k][i], y.x[k][i], before, after);
                }
        }
        free_results(&x);
        free_results(&y);
    }
}

#endif
