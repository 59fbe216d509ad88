/* The choice of the node for a page that several nodes may want. */
#include <assert.h>

#include "base/mem.h"
#include "base/pages.h"
#include "placement/page_map.h"

int model_page_map_init(struct model_page_map *m, void *base, size_t bytes, int n_nodes)
{
    m->base = base;
    m->n_pages = (bytes + MODEL_LARGE_PAGE - 1) / MODEL_LARGE_PAGE;
    m->n_nodes = n_nodes;
    m->bytes = mem_new(MEM_OTHER, m->n_pages * (size_t)n_nodes, sizeof(*m->bytes));
    return m->bytes ? OK : ERR_NOMEM;
}

void model_page_map_fini(struct model_page_map *m)
{
    mem_free(m->bytes);
    m->bytes = NULL;
}

void model_page_map_add(struct model_page_map *m, size_t offset, size_t bytes, int node)
{
    assert(node >= 0 && node < m->n_nodes);
    assert(offset + bytes <= m->n_pages * MODEL_LARGE_PAGE);
    while (bytes > 0) {
        size_t page = offset / MODEL_LARGE_PAGE;
        size_t left = (page + 1) * MODEL_LARGE_PAGE - offset;
        size_t n = bytes < left ? bytes : left;

        m->bytes[page * (size_t)m->n_nodes + (size_t)node] += (uint32_t)n;
        offset += n;
        bytes -= n;
    }
}

void model_page_map_run(void *map, const void *p, size_t bytes, int domain)
{
    struct model_page_map *m = map;

    if (domain >= 0)
        model_page_map_add(m, (size_t)((const char *)p - m->base), bytes, domain);
}

/* -1: the page has no owner. */
static int choose(const struct model_page_map *m, size_t page, const size_t *got)
{
    const uint32_t *of = m->bytes + page * (size_t)m->n_nodes;
    int best = 0;

    for (int i = 1; i < m->n_nodes; i++)
        if (of[i] > of[best] || (of[i] == of[best] && got[i] < got[best]))
            best = i;
    return of[best] > 0 ? best : -1;
}

/* Each page at the end of the run before, or in a new one; returns how many runs. With out
 * == NULL it only counts. */
static size_t collect(const struct model_page_map *m, size_t *got,
                      struct model_page_run *out)
{
    int last = -1;
    size_t n = 0;

    for (int i = 0; i < m->n_nodes; i++)
        got[i] = 0;
    for (size_t page = 0; page < m->n_pages; page++) {
        int node = choose(m, page, got);

        if (node >= 0) {
            n += node != last;
            got[node] += MODEL_LARGE_PAGE;
        }
        if (out && node >= 0 && node != last)
            out[n - 1] =
                (struct model_page_run){.offset = page * MODEL_LARGE_PAGE, .node = node};
        if (out && node >= 0)
            out[n - 1].bytes += MODEL_LARGE_PAGE;
        last = node;
    }
    return n;
}

int model_page_runs(const struct model_page_map *m, struct model_page_run **out,
                    size_t *n)
{
    size_t *got = mem_new(MEM_OTHER, (size_t)m->n_nodes, sizeof(*got));
    int rc = OK;

    *out = NULL;
    *n = 0;
    if (!got)
        return ERR_NOMEM;
    *n = collect(m, got, NULL);
    *out = mem_new(MEM_OTHER, *n, sizeof(**out));
    if (*out)
        collect(m, got, *out);
    else
        rc = ERR_NOMEM;
    mem_free(got);
    return rc;
}

int model_page_map_bind(const struct model_page_map *m, const int *node,
                        size_t *bound_bytes)
{
    struct model_page_run *runs;
    size_t n;
    int rc = model_page_runs(m, &runs, &n);

    *bound_bytes = 0;
    for (size_t i = 0; i < n && rc == OK; i++) {
        if (node[runs[i].node] < 0)
            continue;
        rc = mem_prefer_node(m->base + runs[i].offset, runs[i].bytes, node[runs[i].node]);
        if (rc == OK)
            *bound_bytes += runs[i].bytes;
    }
    mem_free(runs);
    return rc;
}
