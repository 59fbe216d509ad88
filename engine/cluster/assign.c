/* The cluster's scheduler: the machines of a request, and which machine is in which pool. */
#include "cluster/impl.h"

#include <limits.h>

static int64_t load_of(const int64_t *loads, enum cluster_load load)
{
    return load == CLUSTER_LOAD_PENDING_TOK
               ? loads[CLUSTER_LOAD_PROMPT_TOK] + loads[CLUSTER_LOAD_SEQUENCES]
               : loads[load];
}

static int64_t known_load(const struct cluster_machine *m, enum cluster_load load)
{
    return load_of(m->cluster->o.report_ns > 0 ? m->known : m->actual, load);
}

static void count(struct cluster_machine *m, enum cluster_load load, int64_t n)
{
    m->actual[load] += n;
    m->known[load] += n;
}

static void move(struct cluster_machine *m, enum cluster_pool pool)
{
    struct cluster *c = m->cluster;

    if (pool == CLUSTER_MIXED)
        m->mixed_since_ns = c->events.now_ns;
    m->pool = pool;
    c->stat.n_pool_moves++;
    cluster_log(c, "pool", m->index, (int64_t)pool, m->n_tasks[0] + m->n_tasks[1]);
}

static struct cluster_machine *choose(struct cluster *c, enum cluster_pool kind)
{
    bool is_prompt = kind == CLUSTER_PROMPT;
    enum cluster_load load = is_prompt ? c->o.prompt_load : c->o.token_load;
    const struct cluster_task task = {
        .kind = kind,
        .threshold = is_prompt ? c->o.prompt_threshold : c->o.token_threshold,
        .needs_queue = is_prompt && c->o.quirks.needs_queue};
    struct cluster_chosen x;
    int rc;

    for (int i = 0; i < c->o.n_machines; i++) {
        const struct cluster_machine *m = &c->machines[i];

        c->candidates[i] =
            (struct cluster_candidate){.pool = m->pool,
                                       .known = known_load(m, load),
                                       .actual = load_of(m->actual, load),
                                       .queued = m->loop.n_live > m->loop.n_seqs};
    }
    rc = cluster_pools_choose(&c->pools, &x, c->candidates, &task);
    if (rc != OK) {
        cluster_fail(c, rc);
        return &c->machines[0];
    }
    if (c->o.observer.routed)
        c->o.observer.routed(c->o.observer.ctx, &(const struct cluster_decision){
                                                    .t_ns = c->events.now_ns,
                                                    .kind = kind,
                                                    .pool = x.pool,
                                                    .choice = &c->pools.of,
                                                    .chosen = x.index,
                                                    .own_load = x.own_load,
                                                    .mixed_load = x.mixed_load,
                                                    .threshold = task.threshold});
    if (x.pool == cluster_pools_opposite(kind))
        move(&c->machines[x.machine], CLUSTER_MIXED);
    return &c->machines[x.machine];
}

void cluster_assign(struct cluster *c, struct cluster_request *q)
{
    struct cluster_machine *p = choose(c, CLUSTER_PROMPT);
    struct cluster_done *d = &q->d;
    struct cluster_machine *t = p;

    count(p, CLUSTER_LOAD_REQUESTS, 1);
    count(p, CLUSTER_LOAD_PROMPT_TOK, d->n_prompt);
    p->n_tasks[CLUSTER_PROMPT]++;
    if (d->n_output > 1) {
        t = p->home == CLUSTER_MIXED ? p : choose(c, CLUSTER_TOKEN);
        count(t, CLUSTER_LOAD_REQUESTS, t != p);
        count(t, CLUSTER_LOAD_SEQUENCES, 1);
        count(t, CLUSTER_LOAD_REMAINING_TOK, d->n_output - 1);
        count(t, CLUSTER_LOAD_KV_TOK, d->n_prompt + d->n_output);
        t->n_tasks[CLUSTER_TOKEN]++;
    }
    d->prompt_machine = p->index;
    d->token_machine = t->index;
    c->stat.n_same_machine += p == t;
}

static void repurpose(struct cluster_machine *m)
{
    struct cluster *c = m->cluster;
    int n_of_home = 0;

    if (c->o.repurpose_ns == 0 || m->pool != CLUSTER_MIXED || m->home == CLUSTER_MIXED ||
        c->events.now_ns - m->mixed_since_ns <= c->o.repurpose_ns)
        return;
    for (int i = 0; i < c->o.n_machines; i++)
        n_of_home += c->machines[i].home == m->home;
    if (n_of_home < 2)
        return;
    m->home = cluster_pools_opposite(m->home);
    m->mixed_since_ns = c->events.now_ns;
    c->stat.n_repurposed++;
    cluster_log(c, "home", m->index, (int64_t)m->home, 0);
}

void cluster_maybe_return(struct cluster_machine *m)
{
    repurpose(m);
    if (cluster_pools_returns(m->home, m->pool, m->n_tasks,
                              m->cluster->o.quirks.return_when_idle))
        move(m, m->home);
}

void cluster_report_all(struct cluster *c)
{
    for (int i = 0; i < c->o.n_machines; i++) {
        struct cluster_machine *m = &c->machines[i];

        for (int k = 0; k < CLUSTER_N_LOADS; k++)
            m->known[k] = m->actual[k];
        cluster_maybe_return(m);
    }
}
