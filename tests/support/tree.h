/* tests/support/tree.h - TopoTrees for tests, and what every one of them must satisfy. */
#ifndef TESTS_SUPPORT_TREE_H
#define TESTS_SUPPORT_TREE_H

#include "tests/support/test.h"

#include "topo/topotree.h"

/* The whole fundamental tree of a machine ("synthetic:...", ...). Both owned by the caller:
 * tree_close(). Fails the test on error, and where something is left out. */
struct topo_tree *tree_open(const char *spec);
void tree_close(struct topo_tree *t); /* and its machine */

/* Symmetric, of distinct CPUs, children in order, nodes what their kinds say. */
void tree_check(const struct topo_tree *t);

/* block[i] = the number (from 0, in tree order) of the node of `level` that is over
 * machine->pus[i], -1 for none. */
void tree_blocks(const struct topo_tree *t, int level, int *block);

/* The levels as "machine/2 package/4 core+PU". Lent until the next call. */
const char *tree_levels(const struct topo_tree *t);

/* A synthetic machine of at most `max_pus` CPUs, numbered at random or as vendors do.
 * Lent until the next call. */
const char *tree_random_spec(struct rng *rng, int max_pus);

/* A legal group() or remove() drawn at random; NULL where `t` has none. Owned by the
 * caller. */
struct topo_tree *tree_random_group(struct rng *rng, const struct topo_tree *t,
                                    int min_depth);
struct topo_tree *tree_random_remove(struct rng *rng, const struct topo_tree *t);

#endif
