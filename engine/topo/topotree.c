#include "topo/topotree.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "topo/mix.h"

int topo_tree_span(const struct topo_tree *t, int level)
{
    int span = 1;

    for (int l = level; l < t->n_levels - 1; l++)
        span *= t->levels[l].arity;
    return span;
}

int topo_tree_n_nodes(const struct topo_tree *t, int level)
{
    int n = 1;

    for (int l = 0; l < level; l++)
        n *= t->levels[l].arity;
    return n;
}

int topo_tree_copy(struct topo_tree **out, const struct topo_tree *t)
{
    size_t bytes = sizeof(*t) + (size_t)t->n_pus * sizeof(t->pus[0]);

    *out = mem_new(MEM_OTHER, 1, bytes);
    if (!*out)
        return ERR_NOMEM;
    memcpy(*out, t, bytes);
    return OK;
}

int topo_tree_of_ranks(struct topo_tree **out, const struct topo_machine *m,
                       const int *pus, int n_ranks, int n_threads)
{
    int n = n_ranks * n_threads;
    struct topo_tree *t =
        mem_new(MEM_OTHER, 1, sizeof(*t) + (size_t)n * sizeof(t->pus[0]));

    *out = t;
    if (!t)
        return ERR_NOMEM;
    t->machine = m;
    t->n_levels = 3;
    t->levels[0] = (struct topo_level){TOPO_MACHINE, n_ranks, n_ranks};
    t->levels[1] = (struct topo_level){TOPO_GROUP, n_threads, n_threads};
    t->levels[2] = (struct topo_level){.kinds = TOPO_PU};
    t->n_pus = n;
    memcpy(t->pus, pus, (size_t)n * sizeof(*pus));
    return OK;
}

/* ---- transformations ---- */

/* A copy of `t` for n_pus PUs, which are not filled in, and one more step. */
static struct topo_tree *derive(const struct topo_tree *t, int n_pus, const char *step)
{
    struct topo_tree *d =
        mem_new(MEM_OTHER, 1, sizeof(*d) + (size_t)n_pus * sizeof(d->pus[0]));
    size_t at = strlen(t->steps), capacity = sizeof(t->steps);

    if (!d)
        return NULL;
    memcpy(d, t, sizeof(*t));
    d->n_pus = n_pus;
    if (at >= 3 && strcmp(t->steps + at - 3, "...") == 0)
        return d;                             /* cut already */
    if (at + 1 + strlen(step) + 4 < capacity) /* a later "..." still fits */
        snprintf(d->steps + at, capacity - at, "%s%s", at ? " " : "", step);
    else
        snprintf(d->steps + at, capacity - at, "...");
    return d;
}

int topo_tree_group(struct topo_tree **out, const struct topo_tree *t, int n, int stride,
                    int depth)
{
    int arity, n_parents, span, n_blocks, *to;
    struct topo_level *parent;
    struct topo_tree *g;
    char step[48];

    *out = NULL;
    if (depth < 1 || depth >= t->n_levels)
        return err_set(ERR_ARG, "group at depth %d: expected 1 to %d", depth,
                       t->n_levels - 1);
    arity = t->levels[depth - 1].arity;
    if (n < 2 || n > arity || stride < 1 || stride > arity / n ||
        arity % (n * stride) != 0)
        return err_set(
            ERR_ARG,
            "group of %d at a stride of %d: does not tile the %d children of a "
            "node at depth %d",
            n, stride, arity, depth - 1);
    if (t->n_levels == TOPO_LEVELS_MAX)
        return err_set(ERR_LIMIT, "group at depth %d: more than %d levels", depth,
                       TOPO_LEVELS_MAX);
    n_parents = topo_tree_n_nodes(t, depth - 1);
    span = topo_tree_span(t, depth);
    n_blocks = arity / (n * stride);
    snprintf(step, sizeof(step), "group(%d,%d,%d)", n, stride, depth);
    g = derive(t, t->n_pus, step);
    if (!g)
        return ERR_NOMEM;
    to = g->pus;
    for (int p = 0; p < n_parents; p++)
        for (int b = 0; b < n_blocks; b++)
            for (int o = 0; o < stride; o++)
                for (int j = 0; j < n; j++) {
                    int child = p * arity + b * n * stride + o + j * stride;

                    memcpy(to, t->pus + (size_t)child * (size_t)span,
                           (size_t)span * sizeof(*to));
                    to += span;
                }
    memmove(g->levels + depth + 1, g->levels + depth,
            (size_t)(t->n_levels - depth) * sizeof(g->levels[0]));
    g->n_levels++;
    parent = &g->levels[depth - 1];
    parent->arity = arity / n;
    /* The original number of children is counted in groups; where that is not a whole number, the
     * groups that are left count as all. */
    parent->original = parent->original % n == 0 ? parent->original / n : parent->arity;
    g->levels[depth] =
        (struct topo_level){.kinds = TOPO_GROUP, .arity = n, .original = n};
    *out = g;
    return OK;
}

int topo_tree_remove(struct topo_tree **out, const struct topo_tree *t, int n, int depth)
{
    int arity, span, kept, n_parents;
    struct topo_tree *r;
    char step[48];

    *out = NULL;
    if (depth < 1 || depth >= t->n_levels)
        return err_set(ERR_ARG, "remove at depth %d: expected 1 to %d", depth,
                       t->n_levels - 1);
    arity = t->levels[depth - 1].arity;
    if (n < 1 || n >= arity)
        return err_set(ERR_ARG,
                       "remove %d children of each node at depth %d: expected 1 to %d of "
                       "its %d",
                       n, depth - 1, arity - 1, arity);
    n_parents = topo_tree_n_nodes(t, depth - 1);
    span = topo_tree_span(t, depth);
    kept = (arity - n) * span;
    snprintf(step, sizeof(step), "remove(%d,%d)", n, depth);
    r = derive(t, n_parents * kept, step);
    if (!r)
        return ERR_NOMEM;
    for (int p = 0; p < n_parents; p++)
        memcpy(r->pus + (size_t)p * (size_t)kept,
               t->pus + (size_t)p * (size_t)arity * (size_t)span,
               (size_t)kept * sizeof(r->pus[0]));
    r->levels[depth - 1].arity -= n;
    *out = r;
    return OK;
}

/* ---- header hash ---- */

static uint64_t hash_node(const struct topo_tree *t, int level, const int *pus, int span)
{
    const struct topo_level *l = &t->levels[level];
    uint64_t h = topo_mix_in((uint64_t)l->kinds, (uint64_t)l->arity);
    int below;

    if (level == t->n_levels - 1)
        return topo_mix_in(h, (uint64_t)t->machine->pus[*pus].os_index);
    below = span / l->arity;
    for (int j = 0; j < l->arity; j++)
        h = topo_mix_in(h, hash_node(t, level + 1, pus + j * below, below));
    return h;
}

uint64_t topo_tree_hash(const struct topo_tree *t)
{
    return hash_node(t, 0, t->pus, t->n_pus);
}

int64_t topo_tree_remove_count(const struct topo_tree *t)
{
    int64_t n = 1;

    for (int l = 0; l < t->n_levels - 1; l++)
        n *= t->levels[l].arity; /* the PUs: never too many for 64 bits */
    return n;
}
