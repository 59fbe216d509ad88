/* A node whose value follows from sizes alone, or whose inputs are all consts, becomes a const.
 * Sizes for a reshape may hold the dynamic one, which is written as -1: the size that is left. So
 * MNN's Shape, Gather, Unsqueeze, Concat become (1, -1, 16, 2, 64).   Paper: MNN-LLM III-B,
 * III-C. */
#include <math.h>

#include "base/mem.h"
#include "graph/match.h"

#define ELEMENTS_MAX 4096 /* of a const that a pass makes */

static bool is_made(const struct graph_node *v)
{
    return v->n_in > 0;
}

/* Of each node that is nothing but the sizes that others get one of these; else it itself, or 0. */
static void find_users(const struct graph *g, int *user)
{
    for (int k = 0; k < g->n; k++)
        for (int a = 0; a < g->nodes[k].n_in; a++) {
            int i = g->nodes[k].in[a];
            bool sizes =
                a == 1 && (graph_is(g, k, "reshape") || graph_is(g, k, "expand"));

            if (!sizes || (user[i] > 0 && !graph_match_same_size(g, k, user[i])))
                user[i] = i;
            else if (user[i] == 0)
                user[i] = k;
        }
    for (int a = 0; a < g->n_out; a++)
        user[g->out[a]] = g->out[a];
}

/* The dynamic size is -1 then, and what was left for a size has one. */
static int fold_value(struct graph *g, int i, int user, int *n_changes)
{
    struct graph_node *v = &g->nodes[i];
    double data[GRAPH_RANK_MAX];
    int n_dynamic = 0, n_left = 0;

    for (int k = 0; k < v->n_value; k++) {
        data[k] = (double)v->value[k];
        n_dynamic += v->value[k] == GRAPH_DYNAMIC;
    }
    if (n_dynamic > 0) {
        const struct graph_shape *to;

        if (user <= i)
            return OK;
        to = &g->nodes[user].shape;
        if (to->rank != v->n_value)
            return OK;
        for (int k = 0; k < v->n_value; k++) {
            data[k] = to->dim[k] == GRAPH_DYNAMIC ? -1 : (double)to->dim[k];
            n_left += to->dim[k] == GRAPH_DYNAMIC;
        }
        if (n_left > 1 && graph_is(g, user, "reshape"))
            return OK;
    }
    ++*n_changes;
    return graph_become_const(
        g, i, GRAPH_I64, &(struct graph_shape){v->shape.rank, {v->shape.dim[0]}}, data);
}

/* Can a text hold it? */
static bool is_text(const double *data, int64_t n, enum graph_type type)
{
    for (int64_t k = 0; k < n; k++)
        if (isnan(data[k]) || (type == GRAPH_I64 && !(fabs(data[k]) <= 0x1p53)))
            return false;
    return true;
}

/* A graph of the node and its inputs alone. */
static int fold_computed(struct graph *g, int i, int *n_changes)
{
    const struct graph_node v = g->nodes[i];
    struct graph_node nodes[GRAPH_IN_MAX + 1];
    struct graph alone = {.nodes = nodes, .n = v.n_in + 1, .n_out = 1, .out = {v.n_in}};
    struct graph_shape shape = v.shape;
    int64_t n;
    double *data;
    int rc;

    for (int a = 0; a < v.n_in; a++)
        nodes[a] = g->nodes[v.in[a]];
    nodes[v.n_in] = v;
    for (int a = 0; a < v.n_in; a++)
        nodes[v.n_in].in[a] = a;
    rc = graph_compute(&data, &n, &alone, 1, NULL, NULL);
    if (rc == OK && is_text(data, n, v.type)) {
        ++*n_changes;
        rc = graph_become_const(g, i, v.type, &shape, data);
    }
    mem_free(data);
    return rc;
}

static bool has_consts_only(const struct graph *g, int i)
{
    const struct graph_node *v = &g->nodes[i];
    int64_t n = graph_n_elements(&v->shape);

    for (int a = 0; a < v->n_in; a++)
        if (!g->nodes[v->in[a]].data)
            return false;
    return n != GRAPH_DYNAMIC && n <= ELEMENTS_MAX;
}

static int run(struct graph *g, int *n_changes)
{
    int *user = mem_new(MEM_OTHER, (size_t)g->n, sizeof(*user));
    int rc = user ? OK : ERR_NOMEM;

    if (rc == OK)
        find_users(g, user);
    for (int i = 0; i < g->n && rc == OK; i++) {
        struct graph_node *v = &g->nodes[i];

        if (!is_made(v))
            continue;
        if (v->type == GRAPH_I64 && v->n_value >= 0)
            rc = fold_value(g, i, user[i], n_changes);
        else if (has_consts_only(g, i))
            rc = fold_computed(g, i, n_changes);
    }
    mem_free(user);
    return rc;
}

const struct graph_pass graph_pass_fold = {
    .name = "fold", .help = "what follows from sizes and consts is a const", .run = run};
