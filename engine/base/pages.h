/* base/pages.h - on which memory node pages lie: asking for one, and asking what came of
 * it. A system without NUMA calls, or a container that forbids them, is an answer
 * (ERR_UNSUPPORTED with its reason), not an accident.
 * Threads: all calls are safe from any thread, but for mem_kernel_set(). */
#ifndef BASE_PAGES_H
#define BASE_PAGES_H

#include <stddef.h>

#include "base/err.h"

size_t mem_page_bytes(void); /* the smallest page */

/* Pages of [p, p + bytes) come from this node when they are first touched, or from another
 * where it is full. `p` begins on a page. Pages that are there already stay where they
 * are. ERR_ARG: not a page, no such node. ERR_UNSUPPORTED: the kernel binds no memory. */
MUST int mem_prefer_node(void *p, size_t bytes, int node);

/* node[i]: where the i-th page from the one that holds `p` is, negative where it is not
 * in memory; up to the last page that [p, p + bytes) touches.
 * ERR_UNSUPPORTED: the kernel does not tell. */
MUST int mem_nodes_of(const void *p, size_t bytes, int *node);
/* How many that are. */
size_t mem_n_pages(const void *p, size_t bytes);

/* Bytes in memory of the mappings that [p, p + bytes) is in, and of them in huge pages
 * (each of which the processor finds by one entry). A mapping that the kernel joined with
 * a neighbour counts as a whole. ERR_UNSUPPORTED: the kernel does not tell. */
MUST int mem_huge_of(const void *p, size_t bytes, size_t *resident, size_t *huge);

/* Test hook: what asks the kernel, as syscall() returns; NULL puts the real ones back. */
struct mem_kernel {
    long (*mbind)(void *p, size_t bytes, int node);
    long (*move_pages)(unsigned long n, void **pages, int *status);
    const char *smaps; /* a path */
};
void mem_kernel_set(const struct mem_kernel *k);

#endif
