/* Compares the memory nodes of the pages of packed weights with those of their owners; binds keys
 * and values to the nodes of the threads that read them in decode, and compares theirs. Those of
 * a head are one run of bytes in each layer of a slot or block of the pool. */
#include <string.h>

#include "base/log.h"
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

/* A model_run_fn that adds a run to the row. `query`: the struct model_numa_query. */
static void add_run(void *query, const void *run, size_t bytes, int domain)
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
            model_each_run(m, (enum model_weight_kind)w, i, add_run, &x);
    }
    model_page_map_fini(&map);
    return x.rc;
}

/* The domain that reads a KV head; -1: several domains. */
static int domain_of_head(const struct model *m, int head)
{
    const struct model_placement *pl = m->placement;
    int found = -2;

    for (int r = 0; r < pl->n_ranks; r++) {
        const struct model_tp_shard *p = &pl->shards[r];
        int first = p->q_lo / m->group, n = (p->q_hi - 1) / m->group - first + 1;
        bool whole = model_groups_whole(m, p, pl->n_threads);

        if (head < first || head >= first + n)
            continue;
        for (int t = 0; t < pl->n_threads; t++) {
            int domain = pl->domain[r * pl->n_threads + t];

            if (whole && t != (head - first) / (n / pl->n_threads))
                continue;
            if (found != -2 && found != domain)
                return -1;
            found = domain;
        }
    }
    return found;
}

struct walk {
    const struct model *m;
    model_run_fn fn;
    void *ctx;
};

static void runs_of_region(void *ctx, const struct kv_slot *r)
{
    const struct walk *w = ctx;

    for (int layer = 0; layer < w->m->c.n_layers; layer++)
        for (int h = 0; h < w->m->c.n_kv_heads; h++)
            w->fn(w->ctx, kv_head_at(r, layer, h), 2 * r->run_bytes,
                  domain_of_head(w->m, h));
}

static int map_of(const struct model *m, struct kv_pool *pool, struct model_page_map *map)
{
    struct walk w = {.m = m, .fn = model_page_map_run, .ctx = map};
    size_t bytes;
    void *base;
    int rc;

    kv_pool_memory(pool, &base, &bytes);
    rc = model_page_map_init(map, base, bytes, m->placement->n_domains);
    if (rc == OK)
        kv_pool_each(pool, runs_of_region, &w);
    return rc;
}

int model_kv_bind(const struct model *m, struct kv_pool *pool)
{
    struct model_page_map map = {0};
    struct kv_stat st;
    size_t bound = 0;
    int rc;

    kv_pool_stat(pool, &st);
    if (st.n_live > 0)
        return err_set(ERR_STATE,
                       "kv: %lld sequences have memory: expected none before "
                       "it is bound",
                       (long long)st.n_live);
    if (!m->placement->multi_node)
        return OK;
    rc = map_of(m, pool, &map);
    if (rc != OK)
        goto out;
    rc = model_page_map_bind(&map, m->placement->node, &bound);
    if (rc != OK && rc != ERR_NOMEM) {
        log_warning("kv_not_bound", (double)bound,
                    (double)(map.n_pages * MODEL_LARGE_PAGE),
                    "keys and values were not bound to memory nodes, so the first touch "
                    "decides: %s",
                    err_msg());
        err_clear();
        rc = OK;
    }
out:
    model_page_map_fini(&map);
    return rc;
}

int model_kv_numa_row(const struct model *m, struct kv_pool *pool,
                      struct model_numa_row *out)
{
    struct model_page_map map = {0};
    struct model_numa_query look = {.node = m->placement->node, .row = out};
    struct walk w = {.m = m, .fn = add_run, .ctx = &look};
    int rc = OK;

    *out = (struct model_numa_row){.name = "kv"};
    if (m->placement->n_domains > 1) {
        rc = map_of(m, pool, &map);
        look.map = &map;
    }
    if (rc == OK)
        kv_pool_each(pool, runs_of_region, &w);
    model_page_map_fini(&map);
    return rc == OK ? look.rc : rc;
}
