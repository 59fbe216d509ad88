/* tests/support/invented_nodes.h - a kernel with as many memory nodes as anybody asks for,
 * whatever this machine has: it obeys, goes astray, or refuses. */
#ifndef TESTS_SUPPORT_INVENTED_NODES_H
#define TESTS_SUPPORT_INVENTED_NODES_H

#include <stdbool.h>
#include <stddef.h>

#include "placement/open.h"
#include "ranks/phase.h"

struct invented_nodes {
    char *base;           /* the first page that was bound */
    int node_of[1 << 16]; /* by large page from base; -1: not bound */
    size_t n_binds, max_binds;
    int refusal; /* errno of every bind beyond max_binds, and of pages if it is `mute` */
    bool mute;
    int stray; /* all pages are on this node, whatever was asked for; -1: none */
};
extern struct invented_nodes invented_nodes;

/* Put it in the place of the real one. With no bind at all every page is on node 0. */
void invented_nodes_begin(int refusal, size_t max_binds);
void invented_nodes_end(void);

/* Take the kept warnings; how many have this code. */
int invented_nodes_warnings(const char *code);
/* All rows in one. */
void invented_nodes_sum(const struct model_numa_report *places,
                        struct model_numa_row *all);

#endif
