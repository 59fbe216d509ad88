/* Builds a fundamental tree by partition refinement: each kind of thing that CPUs share divides
 * them into blocks; the partitions that nest, in order of size, are the levels. Positions
 * 0 ... n - 1 stand for the CPUs in use by ascending number, and a block goes by its smallest
 * position, which also gives the order of children. */
#include "topo/topotree.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define LEVELS_MAX 8 /* the machine, six kinds, the PUs */

struct partition {
    int kinds;
    int n_blocks;
    int *label; /* [n] the smallest position of the block */
};

struct build {
    const struct topo_machine *m;
    int n, *pu;    /* [n] indices into m->pus, ascending */
    int hide;      /* kinds to leave out */
    int *labels;   /* [LEVELS_MAX][m->n_pus], the partitions' */
    int *scratch;  /* [2][LEVELS_MAX][n_scratch], for one function at a time */
    int n_scratch; /* >= n, and above any index that a PU's core, cache or node can be */
    int n_levels;
    struct partition level[LEVELS_MAX]; /* coarse to fine */
    char *note;
    size_t note_bytes;
};

/* Append to the caller's note, if there is one. */
__attribute__((format(printf, 2, 3))) static void add_note(struct build *b,
                                                           const char *fmt, ...)
{
    size_t at;
    va_list ap;

    if (!b->note || !b->note_bytes)
        return;
    at = strlen(b->note);
    if (at && at + 2 < b->note_bytes) {
        strcpy(b->note + at, "; ");
        at += 2;
    }
    va_start(ap, fmt);
    vsnprintf(b->note + at, b->note_bytes - at, fmt, ap);
    va_end(ap);
}

/* ---- the largest symmetric subset ---- */

/* The search for the arities that give the most cores, and of those the most PUs, if a node with
 * fewer children than its level's arity is left out and one with more loses the rest: where one
 * thread of a core is missing, the others go without their second before a core goes. Exact: every
 * number of children that occurs is tried, from the PUs up, unless even all nodes left could not
 * beat the best. */
struct reduction {
    const struct build *b;
    int *kids[LEVELS_MAX]; /* [level][block] children that can stay */
    int *stays[LEVELS_MAX];
    int arity[LEVELS_MAX], best[LEVELS_MAX];
    int64_t best_worth; /* a core is worth more than all PUs */
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

/* Try all arities of this level and those above; each of its children is worth `below`. Small
 * arities first: of two equal subsets the one spread wider wins. */
static void try_arities(struct reduction *r, int level, int64_t below)
{
    const int64_t as_core = r->b->level[level].kinds & TOPO_CORE ? r->b->n + 1 : 0;

    count_kids(r, level);
    for (int a = next_arity(r, level, 0); a; a = next_arity(r, level, a)) {
        int64_t each = a * below + as_core, most = mark_staying(r, level, a) * each;

        if (most <= r->best_worth)
            continue;
        r->arity[level] = a;
        if (level > 0) {
            try_arities(r, level - 1, each);
            continue;
        }
        r->best_worth = most;
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
    struct build *b = (struct build *)r->b;
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
        add_note(b, "%d of %d CPUs left out for equal subtrees: %d to %d %s in a %s",
                 b->n - n_kept, b->n, fewest, most, child, parent);
        return;
    }
}

/* Reduce pu[] of asymmetric levels to the largest symmetric subset and state it in the note. The
 * levels must then be rebuilt. */
static void reduce(struct build *b)
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

/* Kinds in the order of precedence where two do not nest: cores are never
 * doubtful, and ranks are about memory nodes. */
static const int trusted[] = {TOPO_CORE,    TOPO_NODE, TOPO_L3,
                              TOPO_PACKAGE, TOPO_L2,   TOPO_CLUSTER};
#define N_TRUSTED ((int)(sizeof(trusted) / sizeof(trusted[0])))

/* ---- which CPUs ---- */

static int by_os_index(const void *a, const void *b)
{
    const struct topo_pu *x = a, *y = b;

    return (x->os_index > y->os_index) - (x->os_index < y->os_index);
}

MUST static int choose_cpus(struct build *b, const struct topo_tree_opts *o)
{
    const struct topo_machine *m = b->m;
    int *wanted = b->scratch, n = 0;

    for (int i = 0; i < m->n_pus; i++)
        wanted[i] = !o || !o->cpus;
    for (int i = 0; o && o->cpus && i < o->n_cpus; i++) {
        struct topo_pu key = {.os_index = o->cpus[i]};
        const struct topo_pu *pu =
            bsearch(&key, m->pus, (size_t)m->n_pus, sizeof(key), by_os_index);

        if (pu)
            wanted[pu - m->pus] = 1;
    }
    for (int i = 0; i < m->n_pus; i++)
        if (wanted[i])
            b->pu[n++] = i;
    b->n = n;
    if (!n)
        return err_set(ERR_ARG, "%s: none of the %d CPUs asked for is one of its %d",
                       m->name, o ? o->n_cpus : 0, m->n_pus);
    return OK;
}

/* CPUs of a kind, and those of which no kind is known: unknown is not less powerful. */
static bool is_like(const struct build *b, int position, int kind)
{
    int own = b->m->pus[b->pu[position]].kind;

    return own < 0 || own == kind;
}

/* SPMD wants equal cores: of the kinds of a hybrid machine keep the one with most CPUs. */
static void choose_kind(struct build *b)
{
    int lowest = INT_MAX, highest = -1, best = 0, best_n = 0, n = 0;

    for (int i = 0; i < b->n; i++) {
        int kind = b->m->pus[b->pu[i]].kind;

        lowest = kind >= 0 && kind < lowest ? kind : lowest;
        highest = kind > highest ? kind : highest;
    }
    if (lowest >= highest)
        return;
    for (int kind = lowest; kind <= highest; kind++) {
        n = 0;
        for (int i = 0; i < b->n; i++)
            n += is_like(b, i, kind);
        if (n >= best_n) { /* the more powerful of two */
            best = kind;
            best_n = n;
        }
    }
    add_note(b, "%d of %d CPUs left out: %s than the other %d", b->n - best_n, b->n,
             best == highest  ? "less powerful cores"
             : best == lowest ? "more powerful cores"
                              : "cores more or less powerful",
             best_n);
    n = 0;
    for (int i = 0; i < b->n; i++)
        if (is_like(b, i, best))
            b->pu[n++] = b->pu[i];
    b->n = n;
}

int topo_tree_cpus(int *cpus, int *n, const struct topo_machine *m,
                   const struct topo_tree_opts *o)
{
    struct build b = {.m = m, .pu = cpus};
    int rc;

    *n = 0;
    b.scratch = mem_new(MEM_OTHER, (size_t)m->n_pus, sizeof(int));
    rc = b.scratch ? choose_cpus(&b, o) : ERR_NOMEM;
    mem_free(b.scratch);
    if (rc != OK)
        return rc;
    choose_kind(&b);
    for (int i = 0; i < b.n; i++)
        cpus[i] = m->pus[cpus[i]].os_index;
    *n = b.n;
    return OK;
}

/* ---- partitions ---- */

static int shared_by(const struct topo_pu *pu, int kind)
{
    switch (kind) {
    case TOPO_CORE:
        return pu->core;
    case TOPO_NODE:
        return pu->node;
    case TOPO_L3:
        return pu->l3;
    case TOPO_PACKAGE:
        return pu->package;
    case TOPO_L2:
        return pu->l2;
    case TOPO_CLUSTER:
        return pu->cluster;
    default:
        return -1;
    }
}

/* False where the machine does not report the kind for every CPU. */
static bool partition_by(struct build *b, int kind, struct partition *p)
{
    int *first = b->scratch;

    p->kinds = kind;
    p->n_blocks = 0;
    for (int i = 0; i < b->n_scratch; i++)
        first[i] = -1;
    for (int i = 0; i < b->n; i++) {
        int of = shared_by(&b->m->pus[b->pu[i]], kind);

        if (of < 0)
            return false;
        if (first[of] < 0) {
            first[of] = i;
            p->n_blocks++;
        }
        p->label[i] = first[of];
    }
    return true;
}

/* Each block of `fine` is in one block of `coarse`. */
static bool refines(const struct partition *fine, const struct partition *coarse, int n)
{
    for (int i = 0; i < n; i++)
        if (coarse->label[fine->label[i]] != coarse->label[i])
            return false;
    return true;
}

/* Put a partition in its place among the levels; one that is there already adds its kind
 * to it. */
static void insert(struct build *b, const struct partition *p)
{
    struct partition *at = b->level;
    size_t n_after;
    char what[64];

    while (at->n_blocks < p->n_blocks)
        at++; /* the PUs, at the end, are the most blocks there can be */
    if (refines(p, at, b->n) && at->n_blocks == p->n_blocks) {
        at->kinds |= p->kinds;
        return;
    }
    /* The machine is one block, so there is a level before. */
    if (!refines(at, p, b->n) || !refines(p, at - 1, b->n)) {
        topo_kinds_print(p->kinds, what, sizeof(what));
        add_note(b, "%s left out as a level: it does not nest", what);
        b->hide |= p->kinds;
        return;
    }
    n_after = (size_t)(b->level + b->n_levels - at);
    memmove(at + 1, at, n_after * sizeof(*at));
    *at = *p;
    b->n_levels++;
}

static void make_levels(struct build *b)
{
    size_t stride = (size_t)b->m->n_pus;
    struct partition p = {0};

    b->level[0] = (struct partition){TOPO_MACHINE, 1, b->labels};
    b->level[1] = (struct partition){TOPO_PU, b->n, b->labels + stride};
    b->n_levels = 2;
    for (int i = 0; i < b->n; i++) {
        b->level[0].label[i] = 0;
        b->level[1].label[i] = i;
    }
    for (int k = 0; k < N_TRUSTED; k++) {
        p.label = b->labels + (size_t)(2 + k) * stride;
        if (!(b->hide & trusted[k]) && partition_by(b, trusted[k], &p))
            insert(b, &p);
    }
}

/* All nodes of each level are over the same number of CPUs; then, as levels nest, they
 * have the same number of children too. */
static bool is_symmetric(const struct build *b)
{
    int *size = b->scratch;

    for (int l = 0; l < b->n_levels; l++) {
        const struct partition *p = &b->level[l];

        memset(size, 0, (size_t)b->n * sizeof(*size));
        for (int i = 0; i < b->n; i++)
            size[p->label[i]]++;
        for (int i = 0; i < b->n; i++)
            if (size[i] && size[i] != b->n / p->n_blocks)
                return false;
    }
    return true;
}

/* ---- the tree ---- */

static int by_labels(const void *a, const void *b, void *arg)
{
    const int x = *(const int *)a, y = *(const int *)b;
    const struct build *build = arg;

    for (int l = 0; l < build->n_levels; l++) {
        const int *label = build->level[l].label;

        if (label[x] != label[y])
            return label[x] < label[y] ? -1 : 1;
    }
    return 0;
}

MUST static int make_tree(struct topo_tree **out, struct build *b)
{
    struct topo_tree *t =
        mem_new(MEM_OTHER, 1, sizeof(*t) + (size_t)b->n * sizeof(t->pus[0]));

    if (!t)
        return ERR_NOMEM;
    t->machine = b->m;
    t->n_levels = b->n_levels;
    t->n_pus = b->n;
    for (int l = 0; l < b->n_levels; l++) {
        bool last = l == b->n_levels - 1;
        int arity = last ? 0 : b->level[l + 1].n_blocks / b->level[l].n_blocks;

        t->levels[l] = (struct topo_level){b->level[l].kinds, arity, arity};
    }
    for (int i = 0; i < b->n; i++)
        t->pus[i] = i;
    qsort_r(t->pus, (size_t)b->n, sizeof(t->pus[0]), by_labels, b);
    for (int i = 0; i < b->n; i++)
        t->pus[i] = b->pu[t->pus[i]];
    *out = t;
    return OK;
}

MUST static int take_memory(struct build *b, const struct topo_machine *m)
{
    size_t n = (size_t)m->n_pus;

    b->m = m;
    b->n_scratch = m->n_pus > m->n_nodes ? m->n_pus : m->n_nodes;
    b->pu = mem_new(MEM_OTHER, n, sizeof(*b->pu));
    b->labels = mem_new(MEM_OTHER, LEVELS_MAX * n, sizeof(*b->labels));
    b->scratch = mem_new(MEM_OTHER, 2 * LEVELS_MAX * (size_t)b->n_scratch, sizeof(int));
    return b->pu && b->labels && b->scratch ? OK : ERR_NOMEM;
}

int topo_tree_open(struct topo_tree **out, const struct topo_machine *m,
                   const struct topo_tree_opts *o, char *text, size_t note_bytes)
{
    struct build b = {.note = text, .note_bytes = note_bytes, .hide = o ? o->hide : 0};
    int rc;

    *out = NULL;
    if (text && note_bytes)
        text[0] = '\0';
    rc = take_memory(&b, m);
    if (rc == OK)
        rc = choose_cpus(&b, o);
    if (rc != OK)
        goto out;
    choose_kind(&b);
    make_levels(&b);
    if (!is_symmetric(&b)) {
        reduce(&b);
        make_levels(&b); /* the kinds left out before stay out: it is symmetric now */
    }
    rc = make_tree(out, &b);
out:
    mem_free(b.pu);
    mem_free(b.labels);
    mem_free(b.scratch);
    return rc;
}
