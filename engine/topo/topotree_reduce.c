#include "topo/topotree_build.h"

#include <limits.h>

/* Which arities give the most PUs, if a node with fewer children than its level's arity
 * is left out and one with more loses the rest. Exact: every number of children that
 * occurs is tried, from the PUs up, unless even all nodes left could not beat the best. */
struct reduction {
    const struct topo_build *b;
    int *kids[TOPO_BUILD_LEVELS_MAX]; /* [level][block] children that can stay */
    int *stays[TOPO_BUILD_LEVELS_MAX];
    int arity[TOPO_BUILD_LEVELS_MAX], best[TOPO_BUILD_LEVELS_MAX];
    int64_t best_pus;
};

static bool is_block(const struct reduction *r, int level, int position)
{
    return r->b->level[level].label[position] == position;
}

static void count_kids(struct reduction *r, int level)
{
    const int *parent = r->b->level[level].label;

    for (int i = 0; i < r->b->n; i++)
        r->kids[level][i] = 0;
    for (int i = 0; i < r->b->n; i++)
        if (is_block(r, level + 1, i) && r->stays[level + 1][i])
            r->kids[level][parent[i]]++;
}

/* The smallest number of children above `above` that a block of the level has, or 0. */
static int next_arity(const struct reduction *r, int level, int above)
{
    int next = INT_MAX;

    for (int i = 0; i < r->b->n; i++)
        if (is_block(r, level, i) && r->kids[level][i] > above &&
            r->kids[level][i] < next)
            next = r->kids[level][i];
    return next == INT_MAX ? 0 : next;
}

/* How many blocks of the level can stay with that arity; marks them. */
static int mark_staying(struct reduction *r, int level, int arity)
{
    int n = 0;

    for (int i = 0; i < r->b->n; i++) {
        r->stays[level][i] = is_block(r, level, i) && r->kids[level][i] >= arity;
        n += r->stays[level][i];
    }
    return n;
}

/* Try all arities of this level and those above; `below` PUs are under each of its
 * children. Small arities first: of two equal subsets the one spread wider wins. */
static void try_arities(struct reduction *r, int level, int64_t below)
{
    count_kids(r, level);
    for (int a = next_arity(r, level, 0); a; a = next_arity(r, level, a)) {
        int64_t most = mark_staying(r, level, a) * (a * below);

        if (most <= r->best_pus)
            continue;
        r->arity[level] = a;
        if (level > 0) {
            try_arities(r, level - 1, a * below);
            continue;
        }
        r->best_pus = most;
        for (int l = 0; l < r->b->n_levels; l++)
            r->best[l] = r->arity[l];
    }
}

/* From the machine down, give every block that stays its left-most children that can. */
static void select_left_most(struct reduction *r)
{
    int last = r->b->n_levels - 1;

    for (int l = last - 1; l >= 0; l--) {
        count_kids(r, l);
        mark_staying(r, l, r->best[l]);
    }
    for (int l = 0; l < last; l++) {
        for (int i = 0; i < r->b->n; i++)
            r->kids[l][i] = 0; /* now: those given */
        for (int i = 0; i < r->b->n; i++) {
            int parent = r->b->level[l].label[i];

            if (!is_block(r, l + 1, i) || !r->stays[l + 1][i])
                continue;
            if (r->stays[l][parent] && r->kids[l][parent] < r->best[l])
                r->kids[l][parent]++;
            else
                r->stays[l + 1][i] = 0;
        }
    }
}

/* Why: of the levels with unequal numbers of children the one nearest to the PUs. */
static void report_why(struct reduction *r, int n_kept)
{
    struct topo_build *b = (struct topo_build *)r->b;
    int last = b->n_levels - 1, fewest = 0, most = 0;
    char child[64], parent[64];

    for (int l = last; l >= 0; l--)
        for (int i = 0; i < b->n; i++)
            r->stays[l][i] = 1;
    for (int l = last - 1; l >= 0; l--) {
        count_kids(r, l);
        fewest = next_arity(r, l, 0);
        most = fewest;
        for (int a = fewest; a; a = next_arity(r, l, a))
            most = a;
        if (fewest == most)
            continue;
        topo_kinds_print(b->level[l].kinds, parent, sizeof(parent));
        topo_kinds_print(b->level[l + 1].kinds, child, sizeof(child));
        topo_build_note(b,
                        "%d of %d CPUs left out for equal subtrees: %d to %d %s in a %s",
                        b->n - n_kept, b->n, fewest, most, child, parent);
        return;
    }
}

void topo_build_reduce(struct topo_build *b)
{
    struct reduction r = {.b = b};
    int last = b->n_levels - 1, n = 0;

    for (int l = 0; l < b->n_levels; l++) {
        r.kids[l] = b->scratch + 2 * l * b->n_scratch;
        r.stays[l] = r.kids[l] + b->n_scratch;
    }
    for (int i = 0; i < b->n; i++)
        r.stays[last][i] = 1;
    try_arities(&r, last - 1, 1);
    for (int i = 0; i < b->n; i++)
        r.stays[last][i] = 1;
    select_left_most(&r);
    for (int i = 0; i < b->n; i++)
        n += r.stays[last][i];
    for (int i = 0, to = 0; i < b->n; i++)
        if (r.stays[last][i])
            b->pu[to++] = b->pu[i];
    report_why(&r, n);
    b->n = n;
}
