#include "base/pages.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Linux ABI values; base does not include libnuma's headers. */
#define MPOL_PREFERRED_ 1
#define NODES_MAX       1024
/* Pages asked about by one call: their addresses fit on the stack. */
#define CHUNK 512

static long real_mbind(void *p, size_t bytes, int node)
{
    enum { WORD_BITS = 8 * sizeof(unsigned long) };
    unsigned long mask[NODES_MAX / WORD_BITS] = {0};

    mask[node / WORD_BITS] = 1ul << node % WORD_BITS;
    return syscall(SYS_mbind, p, bytes, MPOL_PREFERRED_, mask, NODES_MAX + 1ul, 0);
}

static long real_move_pages(unsigned long n, void **pages, int *status)
{
    return syscall(SYS_move_pages, 0, n, pages, NULL, status, 0);
}

static const struct mem_kernel real = {real_mbind, real_move_pages, "/proc/self/smaps"};
static struct mem_kernel in_use = {real_mbind, real_move_pages, "/proc/self/smaps"};

void mem_kernel_set(const struct mem_kernel *k)
{
    in_use = k ? *k : real;
}

size_t mem_page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

int mem_prefer_node(void *p, size_t bytes, int node)
{
    if ((uintptr_t)p % mem_page_bytes() != 0)
        return err_set(ERR_ARG, "memory node: memory must begin on a page");
    if (node < 0 || node >= NODES_MAX)
        return err_set(ERR_ARG, "memory node %d: expected 0 .. %d", node, NODES_MAX - 1);
    if (in_use.mbind(p, bytes, node) == 0)
        return OK;
    if (errno == ENOSYS || errno == EPERM)
        return err_set(ERR_UNSUPPORTED, "memory node %d: this kernel binds no memory: %m",
                       node);
    return err_set(ERR_ARG, "memory node %d: %m", node);
}

size_t mem_n_pages(const void *p, size_t bytes)
{
    size_t page = mem_page_bytes();

    return bytes ? ((uintptr_t)p % page + bytes + page - 1) / page : 0;
}

int mem_nodes_of(const void *p, size_t bytes, int *node)
{
    size_t page = mem_page_bytes(), n_pages = mem_n_pages(p, bytes);
    uintptr_t first = (uintptr_t)p / page * page;

    for (size_t i = 0; i < n_pages;) {
        void *at[CHUNK];
        size_t n = n_pages - i < CHUNK ? n_pages - i : CHUNK;

        for (size_t k = 0; k < n; k++)
            at[k] = (void *)(first + (i + k) * page);
        if (in_use.move_pages(n, at, node + i) < 0)
            return err_set(ERR_UNSUPPORTED, "pages: this kernel does not tell: %m");
        i += n;
    }
    return OK;
}

/* "Name:   123 kB" */
static size_t kib_of(const char *line, const char *name)
{
    unsigned long long kib = 0;
    size_t n = strlen(name);

    if (strncmp(line, name, n) != 0 || line[n] != ':')
        return 0;
    return sscanf(line + n + 1, "%llu", &kib) == 1 ? (size_t)kib * 1024 : 0;
}

int mem_huge_of(const void *p, size_t bytes, size_t *resident, size_t *huge)
{
    unsigned long from, to;
    bool inside = false;
    char line[512];
    FILE *f = fopen(in_use.smaps, "re");

    *resident = *huge = 0;
    if (!f)
        return err_set(ERR_UNSUPPORTED, "%s: cannot open: %m", in_use.smaps);
    while (fgets(line, sizeof(line), f)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = from < (uintptr_t)p + bytes && to > (uintptr_t)p;
        if (!inside)
            continue;
        *resident += kib_of(line, "Rss");
        *huge += kib_of(line, "AnonHugePages") + kib_of(line, "ShmemPmdMapped");
    }
    fclose(f);
    if (*resident == 0)
        return err_set(ERR_UNSUPPORTED, "%s: has no entry for this memory", in_use.smaps);
    return OK;
}
