/* The history of a cluster, event by event. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "cluster/impl.h"

void cluster_fail(struct cluster *c, int rc)
{
    if (c->rc == OK)
        c->rc = rc;
}

void cluster_push(struct cluster *c, enum cluster_event_kind kind, int64_t t_ns,
                  int machine, struct cluster_request *q)
{
    int rc = cluster_events_push(
        &c->events, (struct cluster_event){
                        .t_ns = t_ns, .kind = kind, .machine = machine, .request = q});
    if (rc != OK)
        cluster_fail(c, rc);
    c->n_retries += kind == CLUSTER_RETRY;
    c->n_work_events += kind != CLUSTER_REPORT && kind != CLUSTER_RETRY;
}

void cluster_log(struct cluster *c, const char *what, int64_t a, int64_t b, int64_t n)
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
        *q = (struct cluster_request){.next_of_all = q->next_of_all};
        return q;
    }
    q = mem_new(MEM_OTHER, 1, sizeof(*q));
    if (q) {
        q->next_of_all = c->all;
        c->all = q;
    }
    return q;
}

void cluster_finish(struct cluster *c, struct cluster_request *q, bool refused)
{
    struct cluster_machine *p = &c->machines[q->d.prompt_machine],
                           *t = &c->machines[q->d.token_machine];

    q->d.refused = refused;
    if (q->d.n_tokens == 0) {
        p->n_tasks[CLUSTER_PROMPT]--;
        p->actual[CLUSTER_LOAD_PROMPT_TOK] -= q->d.n_prompt;
        p->actual[CLUSTER_LOAD_REQUESTS] -= p != t || q->d.n_output == 1;
    }
    if (q->d.n_output > 1) {
        int64_t left = q->d.n_output - (q->d.n_tokens > 1 ? q->d.n_tokens : 1);

        t->n_tasks[CLUSTER_TOKEN]--;
        t->actual[CLUSTER_LOAD_REQUESTS]--;
        t->actual[CLUSTER_LOAD_SEQUENCES]--;
        t->actual[CLUSTER_LOAD_REMAINING_TOK] -= left;
        t->actual[CLUSTER_LOAD_KV_TOK] -= q->d.n_prompt + q->d.n_output;
    }
    c->stat.n_done += !refused;
    c->stat.n_refused += refused;
    c->stat.n_preempted += q->d.n_preempted;
    c->n_live--;
    cluster_log(c, refused ? "refuse" : "done", q->d.number, q->d.token_machine,
                q->d.n_tokens);
    if (c->o.observer.done)
        c->o.observer.done(c->o.observer.ctx, &q->d);
    q->next = c->unused;
    c->unused = q;
}

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
    if (!q) {
        cluster_fail(c, ERR_NOMEM);
        return;
    }
    q->d = (struct cluster_done){.number = c->stat.n_arrived++,
                                 .arrival_ns = a.t_ns,
                                 .n_prompt = a.n_prompt,
                                 .n_output = a.n_output};
    cluster_push(c, CLUSTER_ARRIVAL, a.t_ns, -1, q);
}

static void arrive(struct cluster *c, struct cluster_request *q)
{
    struct cluster_machine *p;
    bool stays;

    c->n_live++;
    if (c->n_live > c->stat.n_live_max)
        c->stat.n_live_max = c->n_live;
    cluster_assign(c, q);
    p = &c->machines[q->d.prompt_machine];
    stays = q->d.token_machine == q->d.prompt_machine;
    q->r = (struct sched_request){.id = p->next_id++,
                                  .n_prompt = q->d.n_prompt,
                                  .max_new = stays ? q->d.n_output : 1};
    cluster_log(c, "arrive", q->d.number, q->d.prompt_machine, q->d.token_machine);
    cluster_begin(q, c);
    expect_next(c);
    cluster_machine_start(p);
}

/* ---- events ---- */

static void handle(struct cluster *c, const struct cluster_event *e)
{
    struct cluster_machine *m = e->machine >= 0 ? &c->machines[e->machine] : NULL;

    c->stat.live_ns += (double)c->n_live * (double)(e->t_ns - c->last_ns);
    c->last_ns = e->t_ns;
    switch (e->kind) {
    case CLUSTER_ARRIVAL:
        arrive(c, e->request);
        break;
    case CLUSTER_STEP_END:
        if (m->busy && m->step_end_ns == e->t_ns) /* it has not been put off */
            cluster_machine_step_end(m);
        break;
    case CLUSTER_TRANSFER_END:
        cluster_arrived(e->request, c);
        break;
    case CLUSTER_RETRY:
        m->retry_due = false;
        cluster_serve_inbox(m);
        cluster_machine_start(m);
        break;
    case CLUSTER_REPORT:
        cluster_report_all(c);
        if (c->more || c->n_live > 0)
            cluster_push(c, CLUSTER_REPORT, e->t_ns + c->o.report_ns, -1, NULL);
        break;
    }
}

static int simulate(struct cluster *c)
{
    struct cluster_event e;
    int n_idle = 0;

    for (int i = 0; i < c->o.n_machines; i++)
        TRY(cluster_machine_open(&c->machines[i], c, i));
    expect_next(c);
    if (c->o.report_ns > 0)
        cluster_push(c, CLUSTER_REPORT, c->o.report_ns, -1, NULL);
    while (c->rc == OK && cluster_events_pop(&c->events, &e)) {
        c->stat.n_events++;
        c->n_retries -= e.kind == CLUSTER_RETRY;
        c->n_work_events -= e.kind != CLUSTER_REPORT && e.kind != CLUSTER_RETRY;
        handle(c, &e);
        if (c->o.observer.after)
            c->o.observer.after(c->o.observer.ctx, c);
        if (c->o.stop && *c->o.stop)
            return c->rc;
        /* Where nothing runs and nothing moves, reports and retries change nothing. A retry
         * that can do something does it at its first time. */
        if (c->n_work_events > 0)
            n_idle = 0;
        else
            n_idle += e.kind == CLUSTER_RETRY || c->n_retries == 0;
        if (n_idle > 2 * c->o.n_machines + 2)
            break;
    }
    TRY(c->rc);
    if (c->n_live > 0)
        return err_set(ERR_STATE, "%" PRId64 " requests wait for each other's memory",
                       c->n_live);
    return OK;
}

static int check_opts(const struct cluster_opts *o)
{
    int n[CLUSTER_N_POOLS] = {0};

    if (o->n_machines < 1 || o->n_layers < 1 || o->kv_bytes_per_tok < 0 || !o->next ||
        !o->router || !o->policy || o->max_seqs < 1)
        return err_set(ERR_ARG, "cluster: expected machines, layers, requests, a router, "
                                "a policy and at least 1 sequence per machine");
    for (int i = 0; i < o->n_machines; i++)
        if ((unsigned)o->machines[i].home < CLUSTER_N_POOLS)
            n[o->machines[i].home]++;
    if (n[CLUSTER_MIXED] == 0 && (n[CLUSTER_PROMPT] == 0 || n[CLUSTER_TOKEN] == 0))
        return err_set(ERR_ARG,
                       "cluster: %d prompt, %d token and 0 mixed machines; "
                       "expected one of each kind, or a mixed one",
                       n[CLUSTER_PROMPT], n[CLUSTER_TOKEN]);
    for (int k = 0; o->contention && k < 4; k++)
        if (!(o->contention->slowdown[k / 2][k % 2] >= 1))
            return err_set(ERR_ARG, "cluster: a slowdown of %g; expected at least 1",
                           o->contention->slowdown[k / 2][k % 2]);
    return OK;
}

static void close_cluster(struct cluster *c)
{
    for (int i = 0; c->machines && i < c->o.n_machines; i++)
        sched_loop_close(&c->machines[i].loop);
    while (c->all) {
        struct cluster_request *q = c->all;

        c->all = q->next_of_all;
        mem_free(q);
    }
    cluster_events_fini(&c->events);
    mem_free(c->machines);
    mem_free(c->candidates);
    cluster_pools_close(&c->pools);
}

int cluster_run(struct cluster_stat *out, const struct cluster_opts *o)
{
    struct cluster c = {.o = *o};
    size_t n = (size_t)(o->n_machines > 0 ? o->n_machines : 1);
    int rc = check_opts(o);

    *out = (struct cluster_stat){0};
    if (rc != OK)
        return rc;
    rc = cluster_pools_open(&c.pools, o->n_machines, o->router, o->seed);
    c.machines = mem_new(MEM_OTHER, n, sizeof(*c.machines));
    c.candidates = mem_new(MEM_OTHER, n, sizeof(*c.candidates));
    if (rc == OK)
        rc = c.machines && c.candidates ? simulate(&c) : ERR_NOMEM;
    for (int i = 0; rc == OK && i < o->n_machines; i++)
        c.stat.kv_used_tok += c.machines[i].kv_used_tok;
    c.stat.end_ns = c.events.now_ns;
    *out = c.stat;
    close_cluster(&c);
    return rc;
}

/* ---- for observers ---- */

int64_t cluster_now_ns(const struct cluster *c)
{
    return c->events.now_ns;
}

enum cluster_pool cluster_machine_pool(const struct cluster *c, int machine)
{
    return c->machines[machine].pool;
}

enum cluster_pool cluster_machine_home(const struct cluster *c, int machine)
{
    return c->machines[machine].home;
}

int64_t cluster_machine_kv_tok(const struct cluster *c, int machine)
{
    return c->machines[machine].kv_used_tok;
}

int64_t cluster_machine_tasks(const struct cluster *c, int machine,
                              enum cluster_pool kind)
{
    return c->machines[machine].n_tasks[kind];
}

int64_t cluster_n_live(const struct cluster *c)
{
    return c->n_live;
}
