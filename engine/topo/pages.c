#include <errno.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "topo/machine.h"

/* Pages asked about by one call: their addresses and answers fit on the stack. */
#define CHUNK 512
/* Nodes that a mask of this room can name; Linux allows 1024 at most. */
#define NODES_MAX 1024

int topo_bind(void *p, size_t bytes, int node_os_index)
{
    enum { WORD_BITS = 8 * sizeof(unsigned long) };
    unsigned long mask[NODES_MAX / WORD_BITS] = {0};
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    if ((uintptr_t)p % page != 0)
        return err_set(ERR_ARG, "bind: memory must begin on a page");
    if (node_os_index < 0 || node_os_index >= NODES_MAX)
        return err_set(ERR_ARG, "bind: node %d: expected 0 .. %d", node_os_index,
                       NODES_MAX - 1);
    mask[node_os_index / WORD_BITS] = 1ul << node_os_index % WORD_BITS;
    if (syscall(SYS_mbind, p, bytes, MPOL_BIND, mask, NODES_MAX + 1, MPOL_MF_MOVE) == 0)
        return OK;
    if (errno == ENOSYS || errno == EPERM)
        return err_set(ERR_UNSUPPORTED, "bind: this kernel binds no memory: %m");
    return err_set(ERR_ARG, "bind: node %d: %m", node_os_index);
}

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
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t)p / page * page, end = (uintptr_t)p + bytes;

    memset(counts, 0, ((size_t)m->n_nodes + 1) * sizeof(*counts));
    while (at < end) {
        void *pages[CHUNK];
        int status[CHUNK];
        unsigned long n = 0;

        for (; n < CHUNK && at < end; at += page)
            pages[n++] = (void *)at;
        if (syscall(SYS_move_pages, 0, n, pages, NULL, status, 0) < 0)
            return err_set(ERR_UNSUPPORTED, "pages: this kernel does not tell: %m");
        for (unsigned long i = 0; i < n; i++)
            count_page(m, status[i], counts);
    }
    return OK;
}
