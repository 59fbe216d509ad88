#include "topo/topotree_build.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Kinds in the order of precedence where two do not nest: cores are never
 * doubtful, and ranks are about memory nodes. */
static const int trusted[] = {TOPO_CORE,    TOPO_NODE, TOPO_L3,
                              TOPO_PACKAGE, TOPO_L2,   TOPO_CLUSTER};
#define N_TRUSTED ((int)(sizeof(trusted) / sizeof(trusted[0])))

void topo_build_note(struct topo_build *b, const char *fmt, ...)
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

/* ---- which CPUs ---- */

static int by_os_index(const void *a, const void *b)
{
    const struct topo_pu *x = a, *y = b;

    return (x->os_index > y->os_index) - (x->os_index < y->os_index);
}

MUST static int choose_cpus(struct topo_build *b, const struct topo_tree_opts *o)
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

/* SPMD wants equal cores: of the kinds of a hybrid machine keep the one with most CPUs. */
static void choose_kind(struct topo_build *b)
{
    int lowest = INT_MAX, highest = INT_MIN, best = 0, best_n = 0, n = 0;

    for (int i = 0; i < b->n; i++) {
        int kind = b->m->pus[b->pu[i]].kind;

        lowest = kind < lowest ? kind : lowest;
        highest = kind > highest ? kind : highest;
    }
    if (lowest == highest)
        return;
    for (int kind = lowest; kind <= highest; kind++) {
        n = 0;
        for (int i = 0; i < b->n; i++)
            n += b->m->pus[b->pu[i]].kind == kind;
        if (n >= best_n) { /* the more powerful of two */
            best = kind;
            best_n = n;
        }
    }
    topo_build_note(b, "%d of %d CPUs left out: %s than the other %d", b->n - best_n,
                    b->n,
                    best == highest  ? "less powerful cores"
                    : best == lowest ? "more powerful cores"
                                     : "cores more or less powerful",
                    best_n);
    n = 0;
    for (int i = 0; i < b->n; i++)
        if (b->m->pus[b->pu[i]].kind == best)
            b->pu[n++] = b->pu[i];
    b->n = n;
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
static bool partition_by(struct topo_build *b, int kind, struct topo_partition *p)
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
static bool refines(const struct topo_partition *fine,
                    const struct topo_partition *coarse, int n)
{
    for (int i = 0; i < n; i++)
        if (coarse->label[fine->label[i]] != coarse->label[i])
            return false;
    return true;
}

/* Put a partition in its place among the levels; one that is there already adds its kind
 * to it. */
static void insert(struct topo_build *b, const struct topo_partition *p)
{
    struct topo_partition *at = b->level;
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
        topo_build_note(b, "%s left out as a level: it does not nest", what);
        b->hide |= p->kinds;
        return;
    }
    n_after = (size_t)(b->level + b->n_levels - at);
    memmove(at + 1, at, n_after * sizeof(*at));
    *at = *p;
    b->n_levels++;
}

static void make_levels(struct topo_build *b)
{
    size_t stride = (size_t)b->m->n_pus;
    struct topo_partition p = {0};

    b->level[0] = (struct topo_partition){TOPO_MACHINE, 1, b->labels};
    b->level[1] = (struct topo_partition){TOPO_PU, b->n, b->labels + stride};
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
static bool is_symmetric(const struct topo_build *b)
{
    int *size = b->scratch;

    for (int l = 0; l < b->n_levels; l++) {
        const struct topo_partition *p = &b->level[l];

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
    const struct topo_build *build = arg;

    for (int l = 0; l < build->n_levels; l++) {
        const int *label = build->level[l].label;

        if (label[x] != label[y])
            return label[x] < label[y] ? -1 : 1;
    }
    return 0;
}

MUST static int make_tree(struct topo_tree **out, struct topo_build *b)
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

MUST static int take_memory(struct topo_build *b, const struct topo_machine *m)
{
    size_t n = (size_t)m->n_pus;

    b->m = m;
    b->n_scratch = m->n_pus > m->n_nodes ? m->n_pus : m->n_nodes;
    b->pu = mem_new(MEM_OTHER, n, sizeof(*b->pu));
    b->labels = mem_new(MEM_OTHER, TOPO_BUILD_LEVELS_MAX * n, sizeof(*b->labels));
    b->scratch =
        mem_new(MEM_OTHER, 2 * TOPO_BUILD_LEVELS_MAX * (size_t)b->n_scratch, sizeof(int));
    return b->pu && b->labels && b->scratch ? OK : ERR_NOMEM;
}

int topo_tree_open(struct topo_tree **out, const struct topo_machine *m,
                   const struct topo_tree_opts *o, char *text, size_t note_bytes)
{
    struct topo_build b = {
        .note = text, .note_bytes = note_bytes, .hide = o ? o->hide : 0};
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
        topo_build_reduce(&b);
        make_levels(&b); /* the kinds left out before stay out: it is symmetric now */
    }
    rc = make_tree(out, &b);
out:
    mem_free(b.pu);
    mem_free(b.labels);
    mem_free(b.scratch);
    return rc;
}
