/* The cluster's scheduler: which machines a request gets, in which pool a machine is, and what the
 * scheduler knows of loads.   Paper: Splitwise IV-A. */
#include <string.h>

#include "cluster/sim.h"

static int64_t load_of(const int64_t *loads, enum cluster_load_kind load)
{
    return load == CLUSTER_LOAD_PENDING_TOK
               ? loads[CLUSTER_LOAD_PROMPT_TOK] + loads[CLUSTER_LOAD_SEQUENCES]
               : loads[load];
}

static int64_t known_load(const struct cluster_machine *m, enum cluster_load_kind load)
{
    return load_of(m->cluster->o.report_ns > 0 ? m->known : m->actual, load);
}

static void count(struct cluster_machine *m, enum cluster_load_kind load, int64_t n)
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
    cluster_write_log(c, "pool", m->index, (int64_t)pool, m->n_tasks[0] + m->n_tasks[1]);
}

/* What the scheduler compares: the load; of machines of different speeds the time that load and
 * task together take, in that of a machine of speed 1. */
static int64_t as_time(const struct cluster_machine *m, enum cluster_pool kind,
                       int64_t load, int64_t task)
{
    return m->cluster->o.by_speed
               ? (int64_t)((double)(load + task) * m->slowness[kind]) - task
               : load;
}

static bool is_closed(const struct cluster_machine *m, enum cluster_pool kind)
{
    return m->n_out > 0 || (m->o->own_kind_only && m->home != kind);
}

static struct cluster_machine *choose(struct cluster *c, enum cluster_pool kind,
                                      int64_t n_tok)
{
    bool is_prompt = kind == CLUSTER_PROMPT;
    enum cluster_load_kind load = is_prompt ? c->o.prompt_load : c->o.token_load;
    const struct cluster_task task = {
        .kind = kind,
        .threshold = is_prompt ? c->o.prompt_threshold : c->o.token_threshold,
        .needs_queue = is_prompt && c->o.quirks.needs_queue};
    struct cluster_chosen x;
    int rc;

    for (int i = 0; i < c->o.n_machines; i++) {
        const struct cluster_machine *m = &c->machines[i];

        c->candidates[i] = (struct cluster_candidate){
            .pool = is_closed(m, kind) ? CLUSTER_N_POOLS : m->pool,
            .known = as_time(m, kind, known_load(m, load), n_tok),
            .actual = as_time(m, kind, load_of(m->actual, load), n_tok),
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

void cluster_assign_tokens(struct cluster *c, struct cluster_request *q)
{
    struct cluster_done *d = &q->d;
    struct cluster_machine *t =
        q->p->home == CLUSTER_MIXED ? q->p : choose(c, CLUSTER_TOKEN, 1);

    count(t, CLUSTER_LOAD_REQUESTS, t != q->p);
    count(t, CLUSTER_LOAD_SEQUENCES, 1);
    count(t, CLUSTER_LOAD_REMAINING_TOK, d->n_output - q->n_before - 1);
    count(t, CLUSTER_LOAD_KV_TOK, d->n_prompt + d->n_output);
    t->n_tasks[CLUSTER_TOKEN]++;
    q->t = t;
    d->token_machine = t->index;
}

void cluster_assign(struct cluster *c, struct cluster_request *q)
{
    struct cluster_done *d = &q->d;

    q->n_before = d->n_tokens;
    q->prompt_tok = d->n_prompt + q->n_before;
    q->prompting = true;
    q->has_tokens = d->n_output - q->n_before > 1;
    q->on_token_machine = false;
    q->p = q->t = choose(c, CLUSTER_PROMPT, q->prompt_tok);
    d->prompt_machine = d->token_machine = q->p->index;
    count(q->p, CLUSTER_LOAD_REQUESTS, 1);
    count(q->p, CLUSTER_LOAD_PROMPT_TOK, q->prompt_tok);
    q->p->n_tasks[CLUSTER_PROMPT]++;
    if (q->has_tokens)
        cluster_assign_tokens(c, q);
    c->stat.n_same_machine += q->p == q->t;
}

void cluster_unassign_tokens(struct cluster_request *q)
{
    const struct cluster_done *d = &q->d;
    struct cluster_machine *t = q->t;
    int64_t had = d->n_tokens > q->n_before ? d->n_tokens : q->n_before + 1;

    if (!q->has_tokens)
        return;
    t->n_tasks[CLUSTER_TOKEN]--;
    t->actual[CLUSTER_LOAD_REQUESTS] -= t != q->p || !q->prompting;
    t->actual[CLUSTER_LOAD_SEQUENCES]--;
    t->actual[CLUSTER_LOAD_REMAINING_TOK] -= d->n_output - had;
    t->actual[CLUSTER_LOAD_KV_TOK] -= d->n_prompt + d->n_output;
}

void cluster_unassign(struct cluster_request *q)
{
    struct cluster_machine *p = q->p;

    cluster_unassign_tokens(q);
    if (!q->prompting)
        return;
    p->n_tasks[CLUSTER_PROMPT]--;
    p->actual[CLUSTER_LOAD_PROMPT_TOK] -= q->prompt_tok;
    p->actual[CLUSTER_LOAD_REQUESTS]--;
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
    cluster_write_log(c, "home", m->index, (int64_t)m->home, 0);
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

        memcpy(m->known, m->actual, sizeof(m->known));
        cluster_maybe_return(m);
    }
}
