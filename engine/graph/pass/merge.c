/* Nodes that compute the same are one: common subexpressions.   Paper: MNN-LLM III-E. */
#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
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

/* Equal of nodes that are the same; +0 and -0 are. */
static uint64_t hash_of(const struct graph_node *v)
{
    uint64_t h[] = {hash_bytes(v->name, strlen(v->name)),
                    hash_bytes(v->ints, (size_t)v->n_ints * sizeof(v->ints[0])),
                    0,
                    (uint64_t)(uintptr_t)v->op,
                    hash_bytes(v->shape.dim, (size_t)v->shape.rank * sizeof(int64_t)),
                    0};
    double x = v->x + 0.0;

    for (int a = 0; a < v->n_in; a++) /* in any order, as some commute */
        h[2] += hash_u64((uint64_t)v->in[a]);
    if (v->data)
        h[3] += hash_bytes(v->data, (size_t)graph_n_elements(&v->shape) * sizeof(double));
    memcpy(&h[5], &x, sizeof(x));
    return hash_bytes(h, sizeof(h));
}

/* The nodes before i are looked up by their hashes: one for each, since those of unequal nodes are
 * different but for a probability of 2^-60, in which case a node stays. */
static int merge(struct graph *g, struct map *seen, int *to, int *n_changes)
{
    for (int i = 0; i < g->n; i++) {
        struct graph_node *v = &g->nodes[i];
        uint64_t h;
        int64_t k;

        for (int a = 0; a < v->n_in; a++)
            v->in[a] = to[v->in[a]];
        to[i] = i;
        h = hash_of(v);
        if (!map_find(seen, h, &k))
            TRY(map_put(seen, h, i));
        else if (same(v, &g->nodes[k]) && !graph_is(g, i, "input")) {
            to[i] = (int)k;
            ++*n_changes;
        }
    }
    graph_replace(g, to);
    return OK;
}

static int run(struct graph *g, int *n_changes)
{
    int *to = mem_new(MEM_OTHER, (size_t)g->n, sizeof(*to));
    struct map seen = {0};
    int rc = to ? merge(g, &seen, to, n_changes) : ERR_NOMEM;

    map_fini(&seen);
    mem_free(to);
    return rc;
}

const struct graph_pass graph_pass_merge = {
    .name = "merge", .help = "nodes that compute the same are one", .run = run};
