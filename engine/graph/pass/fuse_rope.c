/* x cos + rotated x sin is one operator: rotary position embeddings over the halves of a head, as
 * exports of Llama and Qwen spell them. The rotated x is its second half, negative, before its
 * first.   Paper: MNN-LLM III-D. */
#include "graph/match.h"

/* Elements begin to end of the last axis of x and nothing else. */
static bool is_part(const struct graph *g, int i, int x, int64_t begin, int64_t end)
{
    const struct graph_node *v = &g->nodes[i];

    return graph_is(g, i, "slice") && v->in[0] == x && v->n_ints == 3 &&
           graph_match_last_axis(g, i) && v->ints[1] == begin && v->ints[2] == end;
}

static bool is_rotated(const struct graph *g, int i, int x)
{
    const struct graph_node *v = &g->nodes[i];
    int64_t size = g->nodes[x].shape.dim[g->nodes[x].shape.rank - 1];

    return graph_is(g, i, "concat") && v->n_in == 2 && graph_match_last_axis(g, i) &&
           size % 2 == 0 && graph_is(g, v->in[0], "neg") &&
           is_part(g, g->nodes[v->in[0]].in[0], x, size / 2, size) &&
           is_part(g, v->in[1], x, 0, size / 2);
}

/* A product of the rotated x; gives the sines. */
static bool is_sine(const struct graph *g, int i, int x, int *sine)
{
    for (int a = 0; a < 2 && graph_is(g, i, "mul"); a++) {
        *sine = g->nodes[i].in[1 - a];
        if (is_rotated(g, g->nodes[i].in[a], x))
            return true;
    }
    return false;
}

static bool fuse(struct graph *g, int i)
{
    for (int a = 0; a < 4 && graph_is(g, i, "add"); a++) {
        int product = g->nodes[i].in[a & 1], x, cosine, sine;

        if (!graph_is(g, product, "mul"))
            continue;
        x = g->nodes[product].in[a >> 1];
        cosine = g->nodes[product].in[1 - (a >> 1)];
        if (g->nodes[x].shape.rank < 1 || !graph_match_same_size(g, i, x) ||
            !is_sine(g, g->nodes[i].in[1 - (a & 1)], x, &sine))
            continue;
        graph_become(g, i, "rope", (int[]){x, cosine, sine}, 3);
        return true;
    }
    return false;
}

static int run(struct graph *g, int *n_changes)
{
    for (int i = 0; i < g->n; i++)
        *n_changes += fuse(g, i);
    return OK;
}

const struct graph_pass graph_pass_fuse_rope = {
    .name = "fuse_rope", .help = "rotary embeddings are one operator", .run = run};
