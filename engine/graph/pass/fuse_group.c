/* Attention reads each head of keys and values for all query heads that share it: copies of heads
 * are not made first. A copy is unsqueeze behind the axis of heads, expand, reshape.
 * Paper: MNN-LLM III-D (grouped-query attention). */
#include "graph/match.h"

/* Heads [1, h, s, d], each `n` times in a row. */
static bool is_repeated(const struct graph *g, int i, int *x, int64_t *n)
{
    const struct graph_node *v = &g->nodes[i], *e, *u;
    const struct graph_shape *to;

    if (!graph_is(g, i, "reshape") || !graph_is(g, v->in[0], "expand"))
        return false;
    e = &g->nodes[v->in[0]];
    if (!graph_is(g, e->in[0], "unsqueeze"))
        return false;
    u = &g->nodes[e->in[0]];
    *x = u->in[0];
    to = &e->shape;
    if (v->shape.rank != 4 || to->rank != 5 || g->nodes[*x].shape.rank != 4 ||
        (u->ints[0] < 0 ? u->ints[0] + 5 : u->ints[0]) != 2)
        return false;
    for (int d = 0; d < 5; d++) /* it repeats along the new axis alone */
        if (d != 2 && to->dim[d] != u->shape.dim[d])
            return false;
    *n = to->dim[2];
    return *n > 0 && v->shape.dim[0] == to->dim[0] && to->dim[1] > 0 &&
           v->shape.dim[1] == to->dim[1] * *n && v->shape.dim[2] == to->dim[3] &&
           v->shape.dim[3] == to->dim[4];
}

static int run(struct graph *g, int *n_changes)
{
    for (int i = 0; i < g->n; i++) {
        struct graph_node *v = &g->nodes[i];
        int64_t n, m;
        int k, u;

        if (!graph_is(g, i, "attention") || !is_repeated(g, v->in[1], &k, &n) ||
            !is_repeated(g, v->in[2], &u, &m) || n != m)
            continue;
        v->in[1] = k;
        v->in[2] = u;
        ++*n_changes;
    }
    return OK;
}

const struct graph_pass graph_pass_fuse_group = {
    .name = "fuse_group",
    .help = "attention reads shared heads without copies",
    .run = run};
