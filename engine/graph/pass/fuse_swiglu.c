/* gate * sigmoid(gate) * up is one operator.   Paper: MNN-LLM III-D. */
#include "graph/match.h"

/* silu(gate): gate times its sigmoid. */
static bool is_silu(const struct graph *g, int i, int *gate)
{
    for (int a = 0; a < 2 && graph_is(g, i, "mul"); a++) {
        int s = g->nodes[i].in[a];

        *gate = g->nodes[i].in[1 - a];
        if (graph_is(g, s, "sigmoid") && g->nodes[s].in[0] == *gate)
            return true;
    }
    return false;
}

static int run(struct graph *g, int *n_changes)
{
    for (int i = 0; i < g->n; i++) {
        int gate;

        for (int a = 0; a < 2 && graph_is(g, i, "mul"); a++) {
            int up = g->nodes[i].in[a];

            if (!is_silu(g, g->nodes[i].in[1 - a], &gate) ||
                !graph_match_same_size(g, gate, up))
                continue;
            graph_become(g, i, "swiglu", (int[]){gate, up}, 2);
            ++*n_changes;
        }
    }
    return OK;
}

const struct graph_pass graph_pass_fuse_swiglu = {
    .name = "fuse_swiglu", .help = "SwiGLU is one operator", .run = run};
