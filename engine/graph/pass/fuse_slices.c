/* A slice of a slice along other axes is one slice.   Paper: MNN-LLM III-D. */
#include <string.h>

#include "graph/graph.h"

static int64_t axis_at(const struct graph *g, int i, int k)
{
    int64_t axis = g->nodes[i].ints[k];

    return axis < 0 ? axis + g->nodes[i].shape.rank : axis;
}

static bool have_common_axis(const struct graph *g, int a, int b)
{
    for (int i = 0; i < g->nodes[a].n_ints; i += 3)
        for (int k = 0; k < g->nodes[b].n_ints; k += 3)
            if (axis_at(g, a, i) == axis_at(g, b, k))
                return true;
    return false;
}

static int run(struct graph *g, int *n_changes)
{
    for (int i = 0; i < g->n; i++) {
        struct graph_node *v = &g->nodes[i], *inner;

        if (!graph_is(g, i, "slice") || !graph_is(g, v->in[0], "slice"))
            continue;
        inner = &g->nodes[v->in[0]];
        if (v->n_ints + inner->n_ints > GRAPH_INTS_MAX ||
            have_common_axis(g, i, v->in[0]))
            continue;
        memcpy(&v->ints[v->n_ints], inner->ints,
               (size_t)inner->n_ints * sizeof(v->ints[0]));
        v->n_ints += inner->n_ints;
        v->in[0] = inner->in[0];
        ++*n_changes;
    }
    return OK;
}

const struct graph_pass graph_pass_fuse_slices = {
    .name = "fuse_slices", .help = "a slice of a slice is one", .run = run};
