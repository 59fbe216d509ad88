/* placement/page_map.h - chooses the memory node of each page of a mapping in which
 * owners on several nodes have bytes. Threads: one caller. */
#ifndef PLACEMENT_PAGE_MAP_H
#define PLACEMENT_PAGE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Pages are bound in units of 2 MiB. Smaller pages would cost more in address translation
 * than a page shared by two domains costs in remote reads. */
#define MODEL_LARGE_PAGE ((size_t)2 << 20)

/* How many bytes of each page of a mapping belong to each of n_nodes. */
struct model_page_map {
    char *base; /* of the mapping, aligned to MODEL_LARGE_PAGE */
    size_t n_pages;
    int n_nodes;
    uint32_t *bytes; /* [n_pages, n_nodes] */
};
MUST int model_page_map_init(struct model_page_map *m, void *base, size_t bytes,
                             int n_nodes);
void model_page_map_fini(struct model_page_map *m);
/* Count bytes [offset, offset + bytes) of the mapping as belonging to `node`. */
void model_page_map_add(struct model_page_map *m, size_t offset, size_t bytes, int node);
/* A model_run_fn that adds a run to the map if a single domain reads it. `map`: the
 * struct model_page_map. */
void model_page_map_run(void *map, const void *p, size_t bytes, int domain);
/* Do several nodes have bytes in this page? */
static inline bool model_page_mixed(const struct model_page_map *m, size_t page)
{
    const uint32_t *of = m->bytes + page * (size_t)m->n_nodes;
    int n = 0;

    for (int i = 0; i < m->n_nodes; i++)
        n += of[i] > 0;
    return n > 1;
}
/* A run of consecutive pages that go to the same node. A page goes to the node with most
 * bytes in it; among nodes with equal bytes, to the one with fewest pages so far. A page
 * without an owner is not in any run. */
struct model_page_run {
    size_t offset, bytes;
    int node;
};
/* The runs of the map, in ascending order of their offset. *out: [*n], freed by the
 * caller with mem_free(). */
MUST int model_page_runs(const struct model_page_map *m, struct model_page_run **out,
                         size_t *n);

/* Bind each run to memory node node[run.node] with mem_prefer_node(), or leave it unbound
 * where that is -1. *bound_bytes: the number of bytes that were bound. */
MUST int model_page_map_bind(const struct model_page_map *m, const int *node,
                             size_t *bound_bytes);

#endif
