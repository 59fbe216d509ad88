/* The cluster's scheduler: routing, and which machine is in which pool. */
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

struct pick {
    struct cluster_choice choice;
    enum cluster_pool pool;
    int index; /* into choice.machines; -1: there is none */
    int64_t load;
    bool queued; /* requests wait on it */
};

static struct pick pick(struct cluster *c, enum cluster_pool pool, enum cluster_load load)
{
    struct pick p = {.pool = pool, .index = -1, .load = -1};
    int n = 0;

    for (int i = 0; i < c->o.n_machines; i++) {
        const struct cluster_machine *m = &c->machines[i];

        if (m->pool != pool)
            continue;
        c->ids[n] = i;
        c->loads[n] = known_load(m, load);
        c->actual[n++] = load_of(m->actual, load);
    }
    p.choice = (struct cluster_choice){.n = n,
                                       .machines = c->ids,
                                       .loads = c->loads,
                                       .actual = c->actual,
                                       .rng = &c->rng,
                                       .n_choices = &c->n_choices[pool]};
    if (n == 0)
        return p;
    p.index = c->o.router->choose(&p.choice);
    p.load = c->loads[p.index];
    p.queued = c->machines[c->ids[p.index]].loop.n_live >
               c->machines[c->ids[p.index]].loop.n_seqs;
    return p;
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

static bool has_room(const struct pick *p, int64_t threshold, bool needs_queue)
{
    if (p->index < 0)
        return false;
    return p->load <= threshold || (needs_queue && !p->queued);
}

static struct cluster_machine *choose(struct cluster *c, enum cluster_pool kind)
{
    bool is_prompt = kind == CLUSTER_PROMPT;
    enum cluster_pool opposite = is_prompt ? CLUSTER_TOKEN : CLUSTER_PROMPT;
    enum cluster_load load = is_prompt ? c->o.prompt_load : c->o.token_load;
    int64_t threshold = is_prompt ? c->o.prompt_threshold : c->o.token_threshold;
    bool needs_queue = is_prompt && c->o.quirks.needs_queue;
    struct pick own = pick(c, kind, load), p = own, mixed = {.load = -1};

    if (!has_room(&own, threshold, needs_queue)) {
        mixed = p = pick(c, CLUSTER_MIXED, load);
        if (!has_room(&mixed, threshold, needs_queue))
            p = pick(c, opposite, load);
        /* Everything is above its threshold: the lesser of both. */
        if (p.index < 0)
            p = pick(c,
                     mixed.index < 0 || (own.index >= 0 && own.load < mixed.load)
                         ? kind
                         : CLUSTER_MIXED,
                     load);
    }
    if (p.index < 0) {
        cluster_fail(c, err_set(ERR_STATE, "no machine is in a pool"));
        return &c->machines[0];
    }
    if (c->o.observer.routed)
        c->o.observer.routed(c->o.observer.ctx,
                             &(const struct cluster_decision){.t_ns = c->events.now_ns,
                                                              .kind = kind,
                                                              .pool = p.pool,
                                                              .choice = &p.choice,
                                                              .chosen = p.index,
                                                              .own_load = own.load,
                                                              .mixed_load = mixed.load,
                                                              .threshold = threshold});
    struct cluster_machine *m = &c->machines[p.choice.machines[p.index]];

    if (p.pool == opposite)
        move(m, CLUSTER_MIXED);
    return m;
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
    m->home = m->home == CLUSTER_PROMPT ? CLUSTER_TOKEN : CLUSTER_PROMPT;
    m->mixed_since_ns = c->events.now_ns;
    c->stat.n_repurposed++;
    cluster_log(c, "home", m->index, (int64_t)m->home, 0);
}

void cluster_maybe_return(struct cluster_machine *m)
{
    const struct cluster_opts *o = &m->cluster->o;
    enum cluster_pool opposite;

    repurpose(m);
    opposite = m->home == CLUSTER_PROMPT ? CLUSTER_TOKEN : CLUSTER_PROMPT;
    if (m->pool != CLUSTER_MIXED || m->home == CLUSTER_MIXED ||
        m->n_tasks[opposite] > 0 ||
        (o->quirks.return_when_idle && m->n_tasks[m->home] > 0))
        return;
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
