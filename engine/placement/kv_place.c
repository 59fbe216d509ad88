/* Binds keys and values to the memory nodes of the threads that read them in decode. Those
 * of a head are one run of bytes in each layer of a slot or block of the pool. */
#include "base/log.h"
#include "placement/placement.h"

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
    struct walk w = {.m = m, .fn = model_numa_row_add, .ctx = &look};
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
