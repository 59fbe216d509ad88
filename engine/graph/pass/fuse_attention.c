/* softmax(q k^T * scale + mask) v is one operator, which needs the scores in no tensor of their
 * own. The scale may be a product or a quotient; the mask may be missing. Paper: MNN-LLM IV-B. */
#include "graph/match.h"

/* The transpose of the last two axes. */
static bool is_transposed(const struct graph *g, int i, int *k)
{
    const struct graph_node *v = &g->nodes[i];
    int r = v->n_ints;

    if (!graph_is(g, i, "transpose") || r < 2 || v->ints[r - 1] != r - 2 ||
        v->ints[r - 2] != r - 1)
        return false;
    for (int d = 0; d < r - 2; d++)
        if (v->ints[d] != d)
            return false;
    *k = v->in[0];
    return true;
}

static bool is_scores(const struct graph *g, int i, int *q, int *k, double *scale)
{
    int product = i;
    double x;

    *scale = 1;
    if (graph_match_scalar(g, i, "mul", &product, &x))
        *scale = x;
    else if (graph_match_scalar(g, i, "div", &product, &x) && x != 0)
        *scale = 1 / x;
    else
        product = i;
    if (!graph_is(g, product, "matmul"))
        return false;
    *q = g->nodes[product].in[0];
    return is_transposed(g, g->nodes[product].in[1], k);
}

/* Leading sizes are equal, and the mask is no larger than the scores. */
static bool fits(const struct graph *g, int q, int k, int u, int mask)
{
    const struct graph_shape *a = &g->nodes[q].shape, *b = &g->nodes[k].shape,
                             *c = &g->nodes[u].shape;

    if (a->rank != b->rank || a->rank != c->rank)
        return false;
    for (int d = 0; d < a->rank - 2; d++)
        if (a->dim[d] != b->dim[d] || a->dim[d] != c->dim[d])
            return false;
    return mask < 0 || g->nodes[mask].shape.rank <= a->rank;
}

static bool fuse(struct graph *g, int i)
{
    int soft, u, sum, q, k, mask = -1;
    double scale;

    if (!graph_is(g, i, "matmul"))
        return false;
    soft = g->nodes[i].in[0];
    u = g->nodes[i].in[1];
    if (!graph_is(g, soft, "softmax") || !graph_match_last_axis(g, soft))
        return false;
    sum = g->nodes[soft].in[0];
    if (!is_scores(g, sum, &q, &k, &scale)) {
        bool found = false;

        for (int a = 0; a < 2 && graph_is(g, sum, "add") && !found; a++) {
            mask = g->nodes[sum].in[1 - a];
            found = is_scores(g, g->nodes[sum].in[a], &q, &k, &scale);
        }
        if (!found)
            return false;
    }
    if (!fits(g, q, k, u, mask))
        return false;
    graph_become(g, i, "attention", (int[]){q, k, u, mask}, mask < 0 ? 3 : 4);
    g->nodes[i].x = scale;
    return true;
}

static int run(struct graph *g, int *n_changes)
{
    for (int i = 0; i < g->n; i++)
        *n_changes += fuse(g, i);
    return OK;
}

const struct graph_pass graph_pass_fuse_attention = {
    .name = "fuse_attention", .help = "attention is one operator", .run = run};
