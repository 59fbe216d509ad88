#include "graph/match.h"

#include <string.h>

static bool commutes(const char *op)
{
    return strcmp(op, "add") == 0 || strcmp(op, "mul") == 0;
}

bool graph_match_scalar(const struct graph *g, int i, const char *op, int *other,
                        double *x)
{
    const int *in = g->nodes[i].in;

    if (!graph_is(g, i, op))
        return false;
    if (graph_scalar(g, in[1], x)) {
        *other = in[0];
        return true;
    }
    *other = in[1];
    return commutes(op) && graph_scalar(g, in[0], x);
}

bool graph_match_last_axis(const struct graph *g, int i)
{
    int rank = g->nodes[g->nodes[i].in[0]].shape.rank;
    int64_t axis = g->nodes[i].ints[0];

    return axis == -1 || axis == rank - 1;
}

bool graph_match_scale(const struct graph *g, int w, int x)
{
    const struct graph_shape *s = &g->nodes[w].shape, *of = &g->nodes[x].shape;

    return g->nodes[w].type == GRAPH_F32 && s->rank == 1 && of->rank > 0 &&
           s->dim[0] == of->dim[of->rank - 1] && s->dim[0] != GRAPH_DYNAMIC;
}

bool graph_match_same_size(const struct graph *g, int a, int b)
{
    const struct graph_shape *x = &g->nodes[a].shape, *y = &g->nodes[b].shape;

    if (x->rank != y->rank)
        return false;
    for (int d = 0; d < x->rank; d++)
        if (x->dim[d] != y->dim[d])
            return false;
    return true;
}
