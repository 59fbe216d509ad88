/* Nodes that compute the same are one: common subexpressions.   Paper: MNN-LLM III-E. */
#include <string.h>

#include "graph/graph.h"

static bool commutes(const struct graph_node *v)
{
    return strcmp(v->op->name, "add") == 0 || strcmp(v->op->name, "mul") == 0;
}

static bool same_inputs(const struct graph_node *a, const struct graph_node *b)
{
    if (memcmp(a->in, b->in, (size_t)a->n_in * sizeof(a->in[0])) == 0)
        return true;
    return commutes(a) && a->in[0] == b->in[1] && a->in[1] == b->in[0];
}

static bool same(const struct graph_node *a, const struct graph_node *b)
{
    int64_t n = graph_n_elements(&a->shape);

    if (a->op != b->op || a->n_in != b->n_in || a->n_ints != b->n_ints ||
        memcmp(a->ints, b->ints, (size_t)a->n_ints * sizeof(a->ints[0])) != 0 ||
        a->x != b->x || strcmp(a->name, b->name) != 0 || a->type != b->type ||
        a->shape.rank != b->shape.rank ||
        memcmp(a->shape.dim, b->shape.dim, (size_t)a->shape.rank * sizeof(int64_t)) != 0)
        return false;
    if (a->data && memcmp(a->data, b->data, (size_t)n * sizeof(*a->data)) != 0)
        return false;
    return same_inputs(a, b);
}

static int run(struct graph *g, int *n_changes)
{
    for (int i = 1; i < g->n; i++)
        for (int k = 0; k < i; k++) {
            if (!same(&g->nodes[i], &g->nodes[k]) || graph_n_uses(g, i) == 0 ||
                graph_is(g, i, "input"))
                continue;
            graph_replace(g, i, k);
            ++*n_changes;
            break;
        }
    return OK;
}

const struct graph_pass graph_pass_merge = {
    .name = "merge", .help = "nodes that compute the same are one", .run = run};
