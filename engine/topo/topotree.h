/* topo/topotree.h - the TopoTree: the CPUs of a machine as a tree, with two transformations.
 *
 * Leaves are processing units (PUs: logical CPUs), the nodes above them share something:
 * a core, a cache, a memory node, a package, or, in a level that group() inserted, something
 * that the machine does not report. Programs that share work evenly want equal subtrees,
 * so a tree here is always symmetric: all nodes of a level have the same number of
 * children. That makes it two short lists: the arity of each level, and the PUs in tree
 * order. Node j of level l is over the `span` PUs from j * span on; children stand in the
 * order of their smallest CPU number.
 * Paper: Sandwich 5.1, 5.2.   Threads: any; a tree is never changed once made. */
#ifndef TOPO_TOPOTREE_H
#define TOPO_TOPOTREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topo/machine.h"

#define TOPO_LEVELS_MAX 24

/* The kinds of a level's nodes, as bits. A level can be several things at once (a package
 * that is one memory node and has one L3). */
enum topo_kind {
    TOPO_MACHINE = 1,
    TOPO_PACKAGE = 2,
    TOPO_NODE = 4, /* memory node */
    TOPO_L3 = 8,
    TOPO_CLUSTER = 16, /* as the kernel or hwloc reports it */
    TOPO_L2 = 32,
    TOPO_GROUP = 64, /* made by topo_tree_group() */
    TOPO_CORE = 128,
    TOPO_PU = 256,
};

struct topo_level {
    int kinds;    /* enum topo_kind, or-ed */
    int arity;    /* children that each node has; 0 for the PUs */
    int original; /* ... and had before any topo_tree_remove() */
};

struct topo_tree {
    const struct topo_machine *machine;        /* lent; outlives the tree */
    int n_levels;                              /* >= 2: the machine and the PUs */
    struct topo_level levels[TOPO_LEVELS_MAX]; /* [0] the machine ... the PUs */
    int n_pus;                                 /* the product of the arities */
    char steps[160]; /* the transformations since the fundamental tree, as
                        "group(4,1,3) remove(1,4)"; "" for that tree itself */
    int pus[];       /* [n_pus] indices into machine->pus, in tree order */
};

struct topo_tree_opts {
    const int *cpus; /* keep only these (operating system numbers); NULL: all */
    int n_cpus;
    int hide; /* kinds to ignore, or-ed: TOPO_CLUSTER to see whether grouping
                 finds clusters again that the machine reports */
};

/* The fundamental tree. A level that the machine lacks, that does not nest in the levels
 * above it, or whose nodes are those of the level above it, is merged or left out.
 * Where the machine is not symmetric (hybrid cores, offline or withheld CPUs) the tree is
 * over the largest symmetric subset, by cores and then by PUs: of the kind of core that has
 * most PUs (the more powerful one of two), left-most children first; `note`, which may be
 * NULL, then says in one line what is left out and why ("" otherwise).
 *   out  owned by the caller, mem_free(); NULL on error
 *   o    NULL: all CPUs, nothing hidden
 * ERR_ARG: none of o->cpus is a CPU of the machine. ERR_NOMEM. */
MUST int topo_tree_open(struct topo_tree **out, const struct topo_machine *m,
                        const struct topo_tree_opts *o, char *note, size_t note_bytes);

/* The CPUs that the fundamental tree is cut from, before it is made symmetric: those that `o`
 * keeps and, of a hybrid machine, of the kind of core that has most of them, or of none that is
 * known. cpus[m->n_pus]: their operating system numbers. ERR_ARG, ERR_NOMEM as above. */
MUST int topo_tree_cpus(int *cpus, int *n, const struct topo_machine *m,
                        const struct topo_tree_opts *o);

/* A tree of n_ranks nodes over these PUs (indices into m->pus), an equal run of n_threads for
 * each: what somebody else than the topology decided. Its cross-section at level 1 has these
 * ranks. *out is owned by the caller, mem_free(). ERR_NOMEM. */
MUST int topo_tree_of_ranks(struct topo_tree **out, const struct topo_machine *m,
                            const int *pus, int n_ranks, int n_threads);

/* *out is owned by the caller, mem_free(). */
MUST int topo_tree_copy(struct topo_tree **out, const struct topo_tree *t);

/* The number of PUs below each node of a level, and the number of nodes of a level. */
int topo_tree_span(const struct topo_tree *t, int level);
int topo_tree_n_nodes(const struct topo_tree *t, int level);

/* group(n, t, d): insert a level below every parent at depth d - 1. Each of its nodes takes
 * n of the children at depth d, at a stride of t. Legal, else ERR_ARG: 1 <= d <
 * n_levels, n >= 2, t >= 1, and n * t divides the parents' arity (progressions of n at
 * stride t tile c children if and only if n * t | c). *out owned by the caller,
 * mem_free(). ERR_LIMIT: more than TOPO_LEVELS_MAX levels. */
MUST int topo_tree_group(struct topo_tree **out, const struct topo_tree *t, int n,
                         int stride, int depth);

/* remove(n, d): every node at depth d - 1 loses its n right-most children. Legal, else
 * ERR_ARG: 1 <= d < n_levels and 1 <= n < arity of the level d - 1. */
MUST int topo_tree_remove(struct topo_tree **out, const struct topo_tree *t, int n,
                          int depth);

/* The header hash of the root. Equal for trees with the same levels over the same PUs,
 * whatever transformations made them; different (but for the chance of 64 bits) where a PU, a
 * level's kind or a level's partition differs. Merkle style: of a node over its kind, its
 * number of children and their hashes. */
uint64_t topo_tree_hash(const struct topo_tree *t);

/* Call fn with every tree that group() makes of `t`, `t` itself first, each once: chains of
 * groups, level by level from the PUs up. A group of all children of a parent is left out: it
 * shares what the parent shares. A chain of a level of arity c gives S(c) trees: S(4) = 3,
 * S(8) = 12, S(24) = 286, S(64) = 2520; a tree gives the product over its levels.
 * `fn` gets a tree for the call only; a value other than OK ends it with that value. */
MUST int topo_tree_closure(const struct topo_tree *t,
                           int (*fn)(void *arg, const struct topo_tree *t), void *arg);
/* The number of those trees, without making them. */
int64_t topo_tree_closure_count(const struct topo_tree *t);
/* The number of different trees that remove() makes of `t`, itself included: the product of
 * the arities. */
int64_t topo_tree_remove_count(const struct topo_tree *t);

/* "L3", "package+node", "group", ...  n >= 64. */
void topo_kinds_print(int kinds, char *out, size_t n);
/* The tree as text: one line per level with the CPUs of its first nodes. *text is owned by
 * the caller, mem_free(). */
MUST int topo_tree_text(const struct topo_tree *t, char **text);

#endif
