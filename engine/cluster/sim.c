/* The history of the simulated cluster: its requests, and what happens event by event. */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "cluster/sim.h"

void cluster_fail(struct cluster *c, int rc)
{
    if (c->rc == OK)
        c->rc = rc;
}

void cluster_push(struct cluster *c, enum cluster_event_kind kind, int64_t t_ns,
                  int machine, struct cluster_request *q)
{
    struct cluster_event e = {
        .t_ns = t_ns, .kind = kind, .machine = machine, .request = q};

    if (kind == CLUSTER_TRANSFER_END)
        e.transfer = q->transfer;
    cluster_fail(c, cluster_events_push(&c->events, e));
}

void cluster_write_log(struct cluster *c, const char *what, int64_t a, int64_t b,
                       int64_t n)
{
    if (c->o.log)
        fprintf(c->o.log, "%" PRId64 " %s %" PRId64 " %" PRId64 " %" PRId64 "\n",
                c->events.now_ns, what, a, b, n);
}

/* ---- requests ---- */

static struct cluster_request *new_request(struct cluster *c)
{
    struct cluster_request *q = c->unused;

    if (q) {
        c->unused = q->next;
        *q = (struct cluster_request){.next_of_all = q->next_of_all,
                                      .transfer = q->transfer};
        return q;
    }
    q = mem_new(MEM_OTHER, 1, sizeof(*q));
    q->next_of_all = c->all;
    c->all = q;
    return q;
}

void cluster_finish(struct cluster_request *q, bool refused)
{
    struct cluster *c = q->p->cluster;
    struct cluster_done *d = &q->d;

    d->refused = refused;
    cluster_unassign(q);
    c->stat.n_done += !refused;
    c->stat.n_refused += refused;
    c->stat.n_preempted += d->n_preempted;
    c->n_live--;
    q->live = false;
    cluster_write_log(c, refused ? "refuse" : "done", d->number, d->token_machine,
                      d->n_tokens);
    if (c->o.observer.done)
        c->o.observer.done(c->o.observer.ctx, d);
    q->next = c->unused;
    c->unused = q;
}

/* ---- arrivals ---- */

/* Ask for the next request and put its arrival into the queue. */
static void expect_next(struct cluster *c)
{
    struct cluster_arrival a;
    struct cluster_request *q;

    c->more = c->o.next(c->o.next_ctx, &a);
    if (!c->more)
        return;
    if (a.n_prompt < 1 || a.n_output < 1) {
        cluster_fail(c, err_set(ERR_ARG,
                                "request %" PRId64 ": %" PRId64 " prompt and %" PRId64
                                " output tokens; expected at least 1 each",
                                c->stat.n_arrived, a.n_prompt, a.n_output));
        return;
    }
    q = new_request(c);
    q->d = (struct cluster_done){.number = c->stat.n_arrived++,
                                 .arrival_ns = a.t_ns,
                                 .n_prompt = a.n_prompt,
                                 .n_output = a.n_output};
    cluster_push(c, CLUSTER_ARRIVAL, a.t_ns, 0, q);
}

void cluster_enter(struct cluster_request *q)
{
    struct cluster_machine *p = q->p;

    q->r = (struct sched_request){.id = p->next_id++,
                                  .n_prompt = q->d.n_prompt,
                                  .max_new = q->t == p ? q->d.n_output : q->n_before + 1,
                                  .n_new = q->n_before};
    cluster_write_log(p->cluster, "arrive", q->d.number, p->index, q->t->index);
    cluster_begin(q);
}

static void arrive(struct cluster *c, struct cluster_request *q)
{
    struct cluster_machine *p;

    c->n_live++;
    if (c->n_live > c->stat.n_live_max)
        c->stat.n_live_max = c->n_live;
    q->live = true;
    cluster_assign(c, q);
    p = q->p;
    cluster_enter(q);
    expect_next(c); /* the request may be another one now */
    cluster_start_step(p);
}

/* ---- events ---- */

static void handle(struct cluster *c, const struct cluster_event *e)
{
    struct cluster_machine *m =
        e->kind == CLUSTER_TRANSFER_END ? NULL : &c->machines[e->machine];

    c->stat.live_ns += (double)c->n_live * (double)(e->t_ns - c->last_ns);
    c->last_ns = e->t_ns;
    switch (e->kind) {
    case CLUSTER_ARRIVAL:
        arrive(c, e->request);
        break;
    case CLUSTER_STEP_END:
        if (c->steps.of[m->index].busy && c->steps.of[m->index].end_ns == e->t_ns)
            cluster_end_step(m); /* it has not been put off */
        break;
    case CLUSTER_TRANSFER_END:
        if (((struct cluster_request *)e->request)->transfer == e->transfer)
            cluster_arrived(e->request); /* no machine has failed meanwhile */
        break;
    case CLUSTER_RETRY:
        m->retry_due = false;
        cluster_serve_inbox(m);
        cluster_start_step(m);
        break;
    case CLUSTER_REPORT:
        cluster_report_all(c);
        if (c->more || c->n_live > 0)
            cluster_push(c, CLUSTER_REPORT, e->t_ns + c->o.report_ns, 0, NULL);
        break;
    case CLUSTER_OUTAGE:
        cluster_outage_begins(c, e->request);
        break;
    case CLUSTER_OUTAGE_END:
        cluster_outage_ends(c, e->request);
        break;
    }
}

static void observe(const struct cluster *c)
{
    for (int i = 0; c->o.observer.after && i < c->o.n_machines; i++) {
        const struct cluster_machine *m = &c->machines[i];

        c->o.observer.after(c->o.observer.ctx, i,
                            &(const struct cluster_machine_state){
                                .home = m->home,
                                .pool = m->pool,
                                .kv_used_tok = m->kv_used_tok,
                                .n_tasks = {m->n_tasks[0], m->n_tasks[1]}});
    }
}

/* Events that are due and can finish something. */
static bool work_is_due(const struct cluster_events *e)
{
    return e->n > e->n_of[CLUSTER_REPORT] + e->n_of[CLUSTER_RETRY];
}

/* Runs of equal batches are computed at once where each of their steps is seen by nobody, and only
 * arrivals change what the scheduler compares. */
static bool may_run_ahead(const struct cluster_opts *o)
{
    return !o->every_step && !o->log && !o->observer.step && !o->observer.after &&
           !o->contention && !o->reserve_first && !o->quirks.retry &&
           !o->quirks.full_length_kv && o->repurpose_ns == 0 &&
           o->prompt_load != CLUSTER_LOAD_REMAINING_TOK &&
           o->token_load != CLUSTER_LOAD_REMAINING_TOK;
}

static int simulate(struct cluster *c)
{
    struct cluster_event e;
    int n_idle = 0;

    c->runs_ahead = may_run_ahead(&c->o);
    for (int i = 0; i < c->o.n_machines; i++)
        TRY(cluster_open_machine(&c->machines[i], c, i));
    expect_next(c);
    if (c->o.report_ns > 0)
        cluster_push(c, CLUSTER_REPORT, c->o.report_ns, 0, NULL);
    cluster_outages_expect(c);
    while (c->rc == OK && cluster_events_pop(&c->events, &e)) {
        c->stat.n_events++;
        handle(c, &e);
        observe(c);
        if (c->o.stop && *c->o.stop)
            return c->rc;
        /* Where nothing runs and nothing moves, reports and retries change nothing. A retry
         * that can do something does it at its first time. */
        if (work_is_due(&c->events))
            n_idle = 0;
        else
            n_idle += e.kind == CLUSTER_RETRY || c->events.n_of[CLUSTER_RETRY] == 0;
        if (n_idle > 2 * c->o.n_machines + 2)
            break;
    }
    TRY(c->rc);
    if (c->n_live > 0)
        return err_set(ERR_STATE, "%" PRId64 " requests wait for each other's memory",
                       c->n_live);
    return OK;
}

static void close_cluster(struct cluster *c)
{
    for (int i = 0; i < c->o.n_machines; i++)
        sched_loop_close(&c->machines[i].loop);
    while (c->all) {
        struct cluster_request *q = c->all;

        c->all = q->next_of_all;
        mem_free(q);
    }
    cluster_events_fini(&c->events);
    mem_free(c->machines);
    mem_free(c->candidates);
    mem_free(c->steps.of);
    cluster_pools_close(&c->pools);
}

int cluster_run(struct cluster_stat *out, const struct cluster_opts *o)
{
    struct cluster c = {.o = *o};
    size_t n = (size_t)o->n_machines;
    int rc;

    *out = (struct cluster_stat){0};
    TRY(cluster_opts_check(o));
    TRY(cluster_outages_check(o));
    c.machines = mem_new(MEM_OTHER, n, sizeof(*c.machines));
    c.candidates = mem_new(MEM_OTHER, n, sizeof(*c.candidates));
    c.steps = (struct cluster_steps){.of = mem_new(MEM_OTHER, n, sizeof(*c.steps.of)),
                                     .n = o->n_machines,
                                     .contention = o->contention,
                                     .events = &c.events};
    rc = cluster_pools_open(&c.pools, o->n_machines, o->router, o->seed);
    if (rc == OK)
        rc = simulate(&c);
    for (int i = 0; rc == OK && i < o->n_machines; i++)
        c.stat.kv_used_tok += c.machines[i].kv_used_tok;
    for (int i = 0; o->busy_ns && i < o->n_machines; i++)
        o->busy_ns[i] = c.steps.of[i].busy_ns;
    c.stat.end_ns = c.events.now_ns;
    memcpy(c.stat.busy_ns, c.steps.busy_ns, sizeof(c.stat.busy_ns));
    *out = c.stat;
    close_cluster(&c);
    return rc;
}
