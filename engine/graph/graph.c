#include "graph/graph.h"

#include <string.h>

#include "base/mem.h"

#define NODES_MAX (1 << 20)

void graph_fini(struct graph *g)
{
    for (int i = 0; i < g->n; i++)
        mem_free(g->nodes[i].data);
    mem_free(g->nodes);
    *g = (struct graph){0};
}

static double *copy_data(const double *data, int64_t n)
{
    double *p = mem_new(MEM_OTHER, (size_t)n, sizeof(*p));

    if (p && n > 0)
        memcpy(p, data, (size_t)n * sizeof(*p));
    return p;
}

int graph_copy(struct graph *out, const struct graph *g)
{
    *out = *g;
    out->nodes = mem_new(MEM_OTHER, (size_t)g->max + 1, sizeof(*out->nodes));
    out->n = 0;
    if (!out->nodes)
        return ERR_NOMEM;
    for (int i = 0; i < g->n; i++) {
        out->nodes[out->n++] = g->nodes[i];
        if (!g->nodes[i].data)
            continue;
        out->nodes[i].data =
            copy_data(g->nodes[i].data, graph_n_elements(&g->nodes[i].shape));
        if (!out->nodes[i].data) {
            graph_fini(out);
            return ERR_NOMEM;
        }
    }
    return OK;
}

int graph_add(struct graph *g, const char *op, int *out)
{
    *out = g->n;
    if (g->n == NODES_MAX)
        return err_set(ERR_LIMIT, "more than %d nodes", NODES_MAX);
    if (g->n == g->max) {
        int max = 2 * g->max + 16;
        struct graph_node *nodes =
            mem_resize(MEM_OTHER, g->nodes, (size_t)max, sizeof(*nodes));

        if (!nodes)
            return ERR_NOMEM;
        g->nodes = nodes;
        g->max = max;
    }
    g->nodes[g->n++] = (struct graph_node){.op = graph_op_find(op), .n_value = -1};
    return OK;
}

int graph_add_op(struct graph *g, const char *op, const int *in, int n_in,
                 const int64_t *ints, int n_ints, int *out)
{
    struct graph_node *v;

    TRY(graph_add(g, op, out));
    v = &g->nodes[*out];
    v->n_in = n_in;
    v->n_ints = n_ints;
    for (int a = 0; a < n_in; a++)
        v->in[a] = in[a];
    for (int k = 0; k < n_ints; k++)
        v->ints[k] = ints[k];
    return v->op->infer(g, *out);
}

int graph_add_const(struct graph *g, enum graph_type type,
                    const struct graph_shape *shape, const double *data, int *out)
{
    TRY(graph_add(g, "const", out));
    return graph_become_const(g, *out, type, shape, data);
}

/* Type, size and value of every node again. */
MUST static int infer(struct graph *g)
{
    for (int i = 0; i < g->n; i++) {
        int rc = g->nodes[i].op->infer(g, i);

        if (rc != OK)
            return err_prefix(rc, "%%%d = %s", i, g->nodes[i].op->name);
    }
    return OK;
}

bool graph_is(const struct graph *g, int i, const char *op)
{
    return strcmp(g->nodes[i].op->name, op) == 0;
}

bool graph_scalar(const struct graph *g, int i, double *x)
{
    const struct graph_node *v = &g->nodes[i];

    if (!v->data || graph_n_elements(&v->shape) != 1)
        return false;
    *x = v->data[0];
    return true;
}

void graph_replace(struct graph *g, const int *to)
{
    for (int k = 0; k < g->n; k++)
        for (int a = 0; a < g->nodes[k].n_in; a++)
            g->nodes[k].in[a] = to[g->nodes[k].in[a]];
    for (int a = 0; a < g->n_out; a++)
        g->out[a] = to[g->out[a]];
}

void graph_become(struct graph *g, int i, const char *op, const int *in, int n_in)
{
    struct graph_node *v = &g->nodes[i];

    mem_free(v->data);
    v->data = NULL;
    v->op = graph_op_find(op);
    v->n_ints = 0;
    v->x = 0;
    v->n_in = n_in;
    for (int a = 0; a < n_in; a++)
        v->in[a] = in[a];
}

int graph_become_const(struct graph *g, int i, enum graph_type type,
                       const struct graph_shape *shape, const double *data)
{
    double *own = copy_data(data, graph_n_elements(shape));

    if (!own)
        return ERR_NOMEM;
    graph_become(g, i, "const", NULL, 0);
    g->nodes[i].type = type;
    g->nodes[i].shape = *shape;
    g->nodes[i].data = own;
    return g->nodes[i].op->infer(g, i);
}

/* Inputs of the graph stay: they are how it is called. */
MUST static int drop_unused(struct graph *g)
{
    int *to = mem_new(MEM_OTHER, (size_t)g->n, sizeof(*to)), n = 0;

    if (!to)
        return ERR_NOMEM;
    for (int a = 0; a < g->n_out; a++)
        to[g->out[a]] = 1;
    for (int i = g->n - 1; i >= 0; i--) { /* first: is it used? */
        const struct graph_node *v = &g->nodes[i];

        to[i] = to[i] || graph_is(g, i, "input");
        for (int a = 0; to[i] && a < v->n_in; a++)
            to[v->in[a]] = 1;
    }
    for (int i = 0; i < g->n;
         i++) { /* then its new number; none reads a node that goes */
        if (!to[i]) {
            mem_free(g->nodes[i].data);
            continue;
        }
        to[i] = n;
        if (n < i)
            g->nodes[n] = g->nodes[i];
        n++;
    }
    g->n = n;
    graph_replace(g, to);
    mem_free(to);
    return OK;
}

int graph_rewrite(struct graph *g, int *n_changes)
{
    return graph_rewrite_by(g, graph_passes, n_changes);
}

int graph_rewrite_by(struct graph *g, const struct graph_pass *const *passes,
                     int *n_changes)
{
    bool changed = true;

    for (int p = 0; n_changes && passes[p]; p++)
        n_changes[p] = 0;
    TRY(drop_unused(g));
    for (int round = 0; changed && round < GRAPH_ROUNDS_MAX; round++) {
        changed = false;
        for (int p = 0; passes[p]; p++) {
            int n = 0;

            g->n_steps += g->n;
            TRY(passes[p]->run(g, &n));
            if (n == 0)
                continue;
            TRY(drop_unused(g));
            TRY(infer(g));
            changed = true;
            if (n_changes)
                n_changes[p] += n;
        }
    }
    return OK;
}

static double bytes_of(const struct graph_node *v, int64_t n_dynamic)
{
    double n = 4;

    for (int d = 0; d < v->shape.rank; d++)
        n *= (double)(v->shape.dim[d] == GRAPH_DYNAMIC ? n_dynamic : v->shape.dim[d]);
    return n;
}

static bool is_one_of(const struct graph_node *v, const char *const *names)
{
    for (int k = 0; names[k]; k++)
        if (strcmp(v->op->name, names[k]) == 0)
            return true;
    return false;
}

struct graph_cost graph_cost_of(const struct graph *g, int64_t n_dynamic)
{
    static const char *const views[] = {"reshape", "squeeze", "unsqueeze", NULL};
    static const char *const copies[] = {"transpose", "slice",  "concat", "gather",
                                         "take",      "expand", NULL};
    struct graph_cost c = {.n_nodes = g->n};

    for (int i = 0; i < g->n; i++) {
        const struct graph_node *v = &g->nodes[i];
        double bytes = bytes_of(v, n_dynamic);

        if (v->n_in == 0 || v->type != GRAPH_F32 || is_one_of(v, views))
            continue;
        for (int a = 0; a < v->n_in; a++)
            if (g->nodes[v->in[a]].n_in > 0 || graph_is(g, v->in[a], "input"))
                bytes += bytes_of(&g->nodes[v->in[a]], n_dynamic);
        c.n_operators++;
        c.activation_bytes += bytes;
        if (is_one_of(v, copies)) {
            c.n_copies++;
            c.copied_bytes += bytes;
        }
    }
    return c;
}
