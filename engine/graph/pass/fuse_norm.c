/* The small operators of a normalisation are one operator.
 *   layer_norm  (x - mean) / sqrt(mean of squares + eps) * w + b
 *   rms_norm    x / sqrt(mean of squares + eps) * w, in three spellings: a division, a product
 *               with the reciprocal of the root, a product with a power of -0.5
 * Paper: MNN-LLM III-D. */
#include "base/mem.h"
#include "graph/match.h"

/* The mean of d's squares along the last axis. */
static bool is_mean_square(const struct graph *g, int i, int d)
{
    int square, other;
    double power;

    if (!graph_is(g, i, "reduce_mean") || !graph_match_last_axis(g, i))
        return false;
    square = g->nodes[i].in[0];
    if (graph_match_scalar(g, square, "pow", &other, &power))
        return other == d && power == 2;
    return graph_is(g, square, "mul") && g->nodes[square].in[0] == d &&
           g->nodes[square].in[1] == d;
}

static bool is_variance(const struct graph *g, int i, int d, double *eps)
{
    int mean;

    return graph_match_scalar(g, i, "add", &mean, eps) && *eps > 0 &&
           is_mean_square(g, mean, d);
}

static bool is_root(const struct graph *g, int i, int d, double *eps)
{
    return graph_is(g, i, "sqrt") && is_variance(g, g->nodes[i].in[0], d, eps);
}

static bool is_inverse_root(const struct graph *g, int i, int d, double *eps)
{
    int variance;
    double power;

    if (graph_is(g, i, "reciprocal"))
        return is_root(g, g->nodes[i].in[0], d, eps);
    return graph_match_scalar(g, i, "pow", &variance, &power) && power == -0.5 &&
           is_variance(g, variance, d, eps);
}

/* d over its root mean square, in any spelling. */
static bool is_normal(const struct graph *g, int i, int *d, double *eps)
{
    const int *in = g->nodes[i].in;

    if (graph_is(g, i, "div")) {
        *d = in[0];
        return is_root(g, in[1], *d, eps);
    }
    if (!graph_is(g, i, "mul"))
        return false;
    for (int a = 0; a < 2; a++) {
        *d = in[a];
        if (is_inverse_root(g, in[1 - a], *d, eps))
            return true;
    }
    return false;
}

/* x minus its mean along the last axis. */
static bool is_centred(const struct graph *g, int i, int *x)
{
    const int *in = g->nodes[i].in;

    *x = in[0];
    return graph_is(g, i, "sub") && graph_is(g, in[1], "reduce_mean") &&
           graph_match_last_axis(g, in[1]) && g->nodes[in[1]].in[0] == *x;
}

/* A normal times a scale. */
static bool is_scaled(const struct graph *g, int i, int *d, int *w, double *eps)
{
    if (!graph_is(g, i, "mul"))
        return false;
    for (int a = 0; a < 2; a++) {
        *w = g->nodes[i].in[a];
        if (is_normal(g, g->nodes[i].in[1 - a], d, eps) && graph_match_scale(g, *w, *d))
            return true;
    }
    return false;
}

/* Marks the product that it is made of: to what else reads that, it is an RMSNorm afterwards. */
static bool fuse_layer_norm(struct graph *g, int i, bool *is_middle)
{
    int d, w, x;
    double eps;

    if (!graph_is(g, i, "add"))
        return false;
    for (int a = 0; a < 2; a++) {
        int b = g->nodes[i].in[a];

        if (is_scaled(g, g->nodes[i].in[1 - a], &d, &w, &eps) && is_centred(g, d, &x) &&
            graph_match_scale(g, b, x)) {
            is_middle[g->nodes[i].in[1 - a]] = true;
            graph_become(g, i, "layer_norm", (int[]){x, w, b}, 3);
            g->nodes[i].x = eps;
            return true;
        }
    }
    return false;
}

static bool fuse_rms_norm(struct graph *g, int i)
{
    int d, w;
    double eps;

    if (!is_scaled(g, i, &d, &w, &eps))
        return false;
    graph_become(g, i, "rms_norm", (int[]){d, w}, 2);
    g->nodes[i].x = eps;
    return true;
}

static int run(struct graph *g, int *n_changes)
{
    bool *is_middle = mem_new(MEM_OTHER, (size_t)g->n, sizeof(*is_middle));

    if (!is_middle)
        return ERR_NOMEM;
    for (int i = 0; i < g->n; i++)
        *n_changes += fuse_layer_norm(g, i, is_middle);
    for (int i = 0; i < g->n; i++)
        *n_changes += !is_middle[i] && fuse_rms_norm(g, i);
    mem_free(is_middle);
    return OK;
}

const struct graph_pass graph_pass_fuse_norm = {
    .name = "fuse_norm", .help = "LayerNorm and RMSNorm are one operator", .run = run};
