/* base/pages.h - binding pages to memory nodes, and querying where they are. A system
 * without NUMA calls, or a container that forbids them, gives ERR_UNSUPPORTED with the
 * reason.
 * Threads: all calls are safe from any thread, except mem_kernel_set(). */
#ifndef BASE_PAGES_H
#define BASE_PAGES_H

#include <stddef.h>

#include "base/err.h"

size_t mem_page_bytes(void); /* the smallest page */

/* Take pages of [p, p + bytes) from this node when they are first touched, or from another
 * when it is full. `p` begins on a page. Pages that are there already stay where they
 * are. ERR_ARG: `p` is not on a page, or the node does not exist. ERR_UNSUPPORTED: the
 * kernel cannot bind memory. */
MUST int mem_prefer_node(void *p, size_t bytes, int node);

/* node[i]: where the i-th page from the one that holds `p` is, negative where it is not
 * in memory; up to the last page that [p, p + bytes) touches.
 * ERR_UNSUPPORTED: the kernel does not report it. */
MUST int mem_nodes_of(const void *p, size_t bytes, int *node);
/* The number of those pages. */
size_t mem_n_pages(const void *p, size_t bytes);

/* Bytes in memory of the mappings that [p, p + bytes) is in, and of them in huge pages
 * (each of which the processor finds by one entry). A mapping that the kernel joined with
 * a neighbour counts as a whole. ERR_UNSUPPORTED: the kernel does not report it. */
MUST int mem_huge_of(const void *p, size_t bytes, size_t *resident, size_t *huge);

/* Test hook: functions that replace the system calls and return as syscall() does. NULL
 * restores the real ones. */
struct mem_kernel {
    long (*mbind)(void *p, size_t bytes, int node);
    long (*move_pages)(unsigned long n, void **pages, int *status);
    const char *smaps; /* a path */
};
void mem_kernel_set(const struct mem_kernel *k);

#endif
