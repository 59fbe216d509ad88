#include "cluster/pools.h"

#include "base/mem.h"

const char *const cluster_pool_names[] = {"prompt", "token", "mixed", NULL};

int cluster_pools_open(struct cluster_pools *out, int n_machines,
                       const struct cluster_router *router, uint64_t seed)
{
    size_t n = (size_t)n_machines;

    *out = (struct cluster_pools){.n = n_machines, .router = router};
    rng_init(&out->rng, seed, "router");
    out->ids = mem_new(MEM_OTHER, n, sizeof(*out->ids));
    out->loads = mem_new(MEM_OTHER, n, sizeof(*out->loads));
    out->actual = mem_new(MEM_OTHER, n, sizeof(*out->actual));
    return out->ids && out->loads && out->actual ? OK : ERR_NOMEM;
}

void cluster_pools_close(struct cluster_pools *p)
{
    mem_free(p->ids);
    mem_free(p->loads);
    mem_free(p->actual);
    *p = (struct cluster_pools){0};
}

enum cluster_pool cluster_pools_opposite(enum cluster_pool kind)
{
    return kind == CLUSTER_PROMPT ? CLUSTER_TOKEN : CLUSTER_PROMPT;
}

struct pick {
    enum cluster_pool pool;
    int index; /* into the choice; -1: the pool is empty */
    int64_t load;
    bool queued;
};

static struct pick pick(struct cluster_pools *p, const struct cluster_candidate *m,
                        enum cluster_pool pool)
{
    struct pick out = {.pool = pool, .index = -1, .load = -1};
    int n = 0;

    for (int i = 0; i < p->n; i++) {
        if (m[i].pool != pool)
            continue;
        p->ids[n] = i;
        p->loads[n] = m[i].known;
        p->actual[n++] = m[i].actual;
    }
    p->of = (struct cluster_choice){.n = n,
                                    .machines = p->ids,
                                    .loads = p->loads,
                                    .actual = p->actual,
                                    .rng = &p->rng,
                                    .n_choices = &p->n_choices[pool]};
    if (n == 0)
        return out;
    out.index = p->router->choose(&p->of);
    out.load = p->loads[out.index];
    out.queued = m[p->ids[out.index]].queued;
    return out;
}

static bool has_room(const struct pick *p, const struct cluster_task *t)
{
    if (p->index < 0)
        return false;
    return p->load <= t->threshold || (t->needs_queue && !p->queued);
}

int cluster_pools_choose(struct cluster_pools *p, struct cluster_chosen *out,
                         const struct cluster_candidate *m,
                         const struct cluster_task *task)
{
    struct pick own = pick(p, m, task->kind), x = own, mixed = {.load = -1};

    if (!has_room(&own, task)) {
        mixed = x = pick(p, m, CLUSTER_MIXED);
        if (!has_room(&mixed, task))
            x = pick(p, m, cluster_pools_opposite(task->kind));
        /* Everything is above its threshold: the lesser of both. */
        if (x.index < 0)
            x = pick(p, m,
                     mixed.index < 0 || (own.index >= 0 && own.load < mixed.load)
                         ? task->kind
                         : CLUSTER_MIXED);
    }
    if (x.index < 0)
        return err_set(ERR_STATE, "no machine is in a pool");
    *out = (struct cluster_chosen){.machine = p->ids[x.index],
                                   .index = x.index,
                                   .pool = x.pool,
                                   .own_load = own.load,
                                   .mixed_load = mixed.load};
    return OK;
}

bool cluster_pools_returns(enum cluster_pool home, enum cluster_pool pool,
                           const int64_t *n_tasks, bool when_idle)
{
    if (pool != CLUSTER_MIXED || home == CLUSTER_MIXED)
        return false;
    return n_tasks[cluster_pools_opposite(home)] == 0 &&
           (!when_idle || n_tasks[home] == 0);
}
