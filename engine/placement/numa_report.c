/* Compares the memory nodes of the pages of packed weights with those of their owners. */
#include <string.h>

#include "base/pages.h"
#include "placement/placement.h"

#define CHUNK 512 /* pages asked about at a time: the answers fit on the stack */

static void count(struct model_numa_row *row, size_t bytes, int wanted, int node,
                  bool mixed)
{
    if (node < 0)
        row->absent_bytes += (int64_t)bytes;
    else if (wanted < 0)
        row->shared_bytes += (int64_t)bytes;
    else if (node == wanted)
        row->local_bytes += (int64_t)bytes;
    else
        row->elsewhere_bytes += (int64_t)bytes;
    if (mixed && node >= 0 && node != wanted)
        row->mixed_elsewhere_bytes += (int64_t)bytes;
}

static bool is_mixed(const struct model_numa_query *x, const char *p, int domain)
{
    return x->map && domain >= 0 &&
           model_page_mixed(x->map, (size_t)(p - x->map->base) / MODEL_LARGE_PAGE);
}

static void count_mixed(const struct model_numa_query *x, const char *p, size_t bytes)
{
    size_t at = (size_t)(p - x->map->base), end = at + bytes;

    while (at < end) {
        size_t page = at / MODEL_LARGE_PAGE, next = (page + 1) * MODEL_LARGE_PAGE;

        next = next < end ? next : end;
        if (model_page_mixed(x->map, page))
            x->row->mixed_bytes += (int64_t)(next - at);
        at = next;
    }
}

void model_numa_row_add(void *query, const void *run, size_t bytes, int domain)
{
    struct model_numa_query *x = query;
    int wanted = domain < 0 ? -1 : x->node[domain], node[CHUNK];
    size_t page = mem_page_bytes();
    const char *p = run, *end = p + bytes;

    if (x->map && domain >= 0)
        count_mixed(x, run, bytes);
    while (p < end && x->rc == OK) {
        size_t in_chunk = CHUNK * page - (uintptr_t)p % page, left = (size_t)(end - p);
        const char *stop = p + (left < in_chunk ? left : in_chunk);

        x->rc = mem_nodes_of(p, (size_t)(stop - p), node);
        for (int i = 0; p < stop && x->rc == OK; i++) {
            size_t in_page = page - (uintptr_t)p % page;
            size_t n = (size_t)(stop - p) < in_page ? (size_t)(stop - p) : in_page;

            count(x->row, n, wanted, node[i], is_mixed(x, p, domain));
            p += n;
        }
    }
    if (x->rc != OK)
        x->row->shared_bytes += end - p;
}

static const char *name_of(const struct model *m, int place)
{
    struct model_shape shapes[MODEL_N_MATS];

    model_shapes(&m->c, shapes);
    return place == MODEL_WEIGHT_NORMS   ? "norms"
           : place == MODEL_WEIGHT_EMBED ? "embedding"
                                         : shapes[place].name;
}

int model_numa_report_get(const struct model *m, struct model_numa_report *out)
{
    const struct model_placement *p = m->placement;
    struct model_page_map map = {0};
    struct model_numa_query x = {.node = p->node};

    *out = (struct model_numa_report){
        .n_nodes = p->n_domains, .bound_bytes = (int64_t)p->bound_bytes, .how = p->note};
    if (p->n_domains > 1) {
        int rc = model_page_map_of(m, &map);

        if (rc != OK)
            return rc;
        x.map = &map;
    }
    for (int w = 0; w < MODEL_N_WEIGHT_KINDS; w++) {
        x.row = &out->rows[w];
        x.row->name = name_of(m, w);
        for (int i = 0; i < model_weight_kind_layers(m, (enum model_weight_kind)w); i++)
            model_each_run(m, (enum model_weight_kind)w, i, model_numa_row_add, &x);
    }
    model_page_map_fini(&map);
    return x.rc;
}
