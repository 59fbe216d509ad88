/* graph/match.h - tests that passes use to find patterns. Threads: stateless. */
#ifndef GRAPH_MATCH_H
#define GRAPH_MATCH_H

#include "graph/graph.h"

/* Is node i `op` of two inputs, one of which is a const of one element? Gives the other and the
 * element. Of sub, div and pow the const has to be the second. */
bool graph_match_scalar(const struct graph *g, int i, const char *op, int *other,
                        double *x);
/* The node's axis, counted from the front, is the last of its input. */
bool graph_match_last_axis(const struct graph *g, int i);
/* Node w is a vector with an element for each of x's last axis. */
bool graph_match_scale(const struct graph *g, int w, int x);
bool graph_match_same_size(const struct graph *g, int a, int b);

#endif
