/* topo/topotree_build.h - building a fundamental tree, for topotree_*.c only.
 *
 * By partition refinement: each kind of thing that CPUs share divides them into blocks;
 * the partitions that nest, in order of size, are the levels. Positions 0 ... n - 1 stand
 * for the CPUs in use by ascending number, and a block goes by its smallest position,
 * which also gives the order of children.   Threads: one per build. */
#ifndef TOPO_TOPOTREE_BUILD_H
#define TOPO_TOPOTREE_BUILD_H

#include "topo/topotree.h"

#define TOPO_BUILD_LEVELS_MAX 8 /* the machine, six kinds, the PUs */

struct topo_partition {
    int kinds;
    int n_blocks;
    int *label; /* [n] the smallest position of the block */
};

struct topo_build {
    const struct topo_machine *m;
    int n, *pu;    /* [n] indices into m->pus, ascending */
    int hide;      /* kinds to leave out */
    int *labels;   /* [TOPO_BUILD_LEVELS_MAX][m->n_pus], the partitions' */
    int *scratch;  /* [2][TOPO_BUILD_LEVELS_MAX][n_scratch], for one function at a time */
    int n_scratch; /* >= n, and above any index that a PU's core, cache or node can be */
    int n_levels;
    struct topo_partition level[TOPO_BUILD_LEVELS_MAX]; /* coarse to fine */
    char *note;
    size_t note_bytes;
};

/* Append to the caller's note, if there is one. */
void topo_build_note(struct topo_build *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Of levels that are not symmetric: reduce pu[] to the largest symmetric subset and state it
 * in the note. The levels must then be rebuilt. */
void topo_build_reduce(struct topo_build *b);

#endif
