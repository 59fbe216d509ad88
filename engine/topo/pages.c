#include <string.h>

#include "base/pages.h"
#include "topo/machine.h"

/* Pages asked about at a time: the answers fit on the stack. */
#define CHUNK 1024

static void count_page(const struct topo_machine *m, int status, int64_t *counts)
{
    int i = 0;

    while (i < m->n_nodes && m->nodes[i].os_index != status)
        i++; /* a negative status is an errno and no node's number */
    counts[i]++;
}

int topo_pages_on(const struct topo_machine *m, const void *p, size_t bytes,
                  int64_t *counts)
{
    size_t page = mem_page_bytes();
    const char *at = p, *end = at + bytes;
    int nodes[CHUNK];

    memset(counts, 0, ((size_t)m->n_nodes + 1) * sizeof(*counts));
    while (at < end) {
        size_t left = (size_t)(end - at), in_chunk = CHUNK * page - (uintptr_t)at % page;
        size_t bytes_now = left < in_chunk ? left : in_chunk;
        int rc = mem_nodes_of(at, bytes_now, nodes);

        if (rc != OK)
            return rc;
        for (size_t i = 0; i < mem_n_pages(at, bytes_now); i++)
            count_page(m, nodes[i], counts);
        at += bytes_now;
    }
    return OK;
}
