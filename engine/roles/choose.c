/* Which machines get a request, and what they have to do. With the lock held. */
#include "base/log.h"
#include "roles/impl.h"

static int64_t load_of(const struct roles_machine_state *m, enum cluster_pool kind)
{
    return kind == CLUSTER_PROMPT ? m->prompt_tok + m->n_seqs : m->n_seqs;
}

/* Keys and values went between both until just now, and none of them is known to have ended. */
static bool is_in_doubt(const struct roles_front *f, int a, int b)
{
    return (f->connections[a][b].broken_ns || f->connections[b][a].broken_ns) &&
           f->machines[a].state == ROLES_RUNNING && f->machines[b].state == ROLES_RUNNING;
}

static bool may_have_ended(const struct roles_front *f, int machine)
{
    for (int i = 0; i < f->n; i++)
        if (is_in_doubt(f, machine, i))
            return true;
    return false;
}

/* Of the machines that run and to which `from` has a connection, -1: of all that run and have
 * not perhaps ended. */
static int choose(struct roles_front *f, enum cluster_pool kind, int from, int *machine)
{
    int64_t threshold = kind == CLUSTER_PROMPT ? f->u.o.prompt_threshold_tok
                                               : f->u.o.token_threshold_seqs;
    const struct cluster_task task = {.kind = kind,
                                      .threshold = threshold > 0 ? threshold : INT64_MAX};
    struct cluster_candidate candidates[ROLES_MACHINES_ALL];
    struct cluster_chosen x;

    for (int i = 0; i < f->n; i++) {
        int64_t load = load_of(&f->machines[i], kind);
        bool runs = f->machines[i].state == ROLES_RUNNING &&
                    (from < 0 ? !may_have_ended(f, i)
                              : from == i || roles_front_is_open(f, from, i));

        candidates[i] = (struct cluster_candidate){
            .pool = runs ? f->machines[i].pool : CLUSTER_N_POOLS, /* of none */
            .known = load,
            .actual = load};
    }
    TRY(cluster_pools_choose(&f->pools, &x, candidates, &task));
    *machine = x.machine;
    return OK;
}

/* Would a request that moves from a to b close a circle? Each machine may have given its memory to
 * requests that wait for that of the next one. */
static bool closes_circle(const struct roles_front *f, int a, int b)
{
    bool seen[ROLES_MACHINES_ALL] = {false};
    int reached[ROLES_MACHINES_ALL] = {b}, n = 1;

    seen[b] = true;
    for (int i = 0; i < n; i++)
        for (int to = 0; to < f->n; to++)
            if (f->n_moving[reached[i]][to] > 0 && !seen[to]) {
                seen[to] = true;
                reached[n++] = to;
            }
    return seen[a];
}

/* The machines of a request; prompt -1: none runs. Nothing is counted yet. */
void roles_front_choose(struct roles_front *f, struct roles_pending *q)
{
    int token;

    q->prompt = q->token = -1;
    if (choose(f, CLUSTER_PROMPT, -1, &q->prompt) == OK && q->decodes &&
        f->u.home[q->prompt] != CLUSTER_MIXED &&
        choose(f, CLUSTER_TOKEN, q->prompt, &token) == OK && token != q->prompt &&
        !closes_circle(f, q->prompt, token))
        q->token = token;
    err_clear();
}

static int decoder(const struct roles_pending *q)
{
    return q->token >= 0 ? q->token : q->prompt;
}

/* A machine that has a task of a kind that is not its own is in the mixed pool. */
static void update_pool(struct roles_front *f, int machine)
{
    struct roles_machine_state *m = &f->machines[machine];
    enum cluster_pool home = f->u.home[machine], pool = m->pool;

    if (home != CLUSTER_MIXED && m->n_tasks[cluster_pools_opposite(home)] > 0)
        pool = CLUSTER_MIXED;
    else if (cluster_pools_returns(home, m->pool, m->n_tasks, false))
        pool = home;
    if (pool != m->pool)
        log_debug("%s: now in the %s pool", f->u.names[machine],
                  cluster_pool_names[pool]);
    m->pool = pool;
}

void roles_front_count_prompt(struct roles_front *f, const struct roles_pending *q,
                              int sign)
{
    f->machines[q->prompt].prompt_tok += sign * q->prompt_tok;
    f->machines[q->prompt].n_tasks[CLUSTER_PROMPT] += sign;
    update_pool(f, q->prompt);
}

void roles_front_count_tokens(struct roles_front *f, const struct roles_pending *q,
                              int sign)
{
    if (!q->decodes)
        return;
    f->machines[decoder(q)].n_seqs += sign;
    f->machines[decoder(q)].n_tasks[CLUSTER_TOKEN] += sign;
    update_pool(f, decoder(q));
    if (q->token >= 0)
        f->n_moving[q->prompt][q->token] += sign;
}

void roles_front_computed_prompt(struct roles_front *f, struct roles_pending *q)
{
    if (!q->has_first)
        roles_front_count_prompt(f, q, -1);
    q->has_first = true;
}
