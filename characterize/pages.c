#include "characterize/pages.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

int probe_pages_open(struct probe_pages *m, size_t bytes, int huge)
{
    m->bytes = bytes;
    m->p = mem_map(MEM_HARNESS, bytes, MEM_NODE_ANY);
    if (!m->p)
        return ERR_NOMEM;
    /* refused only by kernels that have no huge pages to forbid */
    madvise(m->p, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return OK;
}

void probe_pages_close(struct probe_pages *m)
{
    if (m->p)
        mem_unmap(MEM_HARNESS, m->p, m->bytes);
    m->p = NULL;
}

void probe_pages_touch(const struct probe_pages *m)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (size_t at = 0; at < m->bytes; at += page)
        ((volatile char *)m->p)[at] = 1;
}

/* Bytes in huge pages among the mappings that overlap m; they may reach beyond it. */
static size_t huge_bytes(const struct probe_pages *m, FILE *f)
{
    uintptr_t first = (uintptr_t)m->p, end = first + m->bytes;
    size_t sum = 0, kib;
    char line[512];
    int inside = 0;

    while (fgets(line, sizeof(line), f)) {
        unsigned long from, to;

        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = from < end && to > first;
        else if (inside && sscanf(line, "AnonHugePages: %zu kB", &kib) == 1)
            sum += kib << 10;
    }
    return sum;
}

int probe_pages_check_huge_at(const struct probe_pages *m, const char *smaps)
{
    FILE *f = fopen(smaps, "re");
    size_t huge;

    if (!f)
        return err_set(ERR_UNSUPPORTED, "%s: cannot read, so pages are unknown: %m",
                       smaps);
    huge = huge_bytes(m, f);
    fclose(f);
    /* a page or two that the kernel could not find do not change a measurement */
    if (huge >= m->bytes / 10 * 9)
        return OK;
    return err_set(ERR_UNSUPPORTED, "huge pages asked for, %zu of %zu MiB given",
                   huge >> 20, m->bytes >> 20);
}

int probe_pages_check_huge(const struct probe_pages *m)
{
    return probe_pages_check_huge_at(m, "/proc/self/smaps");
}
