/* Machines that fail or are drained, and what becomes of the requests that were there. */
#include "cluster/sim.h"

int cluster_outages_check(const struct cluster_opts *o)
{
    if (o->n_outages > 0 && (o->reserve_first || o->quirks.retry))
        return err_set(ERR_ARG, "cluster: outages, but a prompt waits for memory on the "
                                "token machine; expected one of the two");
    for (int i = 0; i < o->n_outages; i++) {
        const struct cluster_outage *x = &o->outages[i];

        if (x->machine < 0 || x->machine >= o->n_machines || x->t_ns < 0 ||
            x->until_ns < x->t_ns)
            return err_set(
                ERR_ARG,
                "outage %d: machine %d from %lld to %lld ns; expected one of %d "
                "machines, and an end after its beginning",
                i, x->machine, (long long)x->t_ns, (long long)x->until_ns, o->n_machines);
    }
    return OK;
}

static void expect(struct cluster *c, const struct cluster_outage *o,
                   enum cluster_event_kind kind, int64_t t_ns)
{
    struct cluster_event e = {
        .t_ns = t_ns, .kind = kind, .machine = o->machine, .request = (void *)o};

    cluster_fail(c, cluster_events_push(&c->events, e));
}

void cluster_outages_expect(struct cluster *c)
{
    for (int i = 0; i < c->o.n_outages; i++)
        expect(c, &c->o.outages[i], CLUSTER_OUTAGE, c->o.outages[i].t_ns);
}

/* What the failure of x means for a request. */
static void judge(struct cluster_request *q, const struct cluster_machine *x)
{
    bool is_on_p = !q->on_token_machine;

    q->after_failure = CLUSTER_STAYS;
    if (!q->live || (q->p != x && q->t != x))
        return;
    if ((is_on_p && q->p == x) || (!is_on_p && q->t == x))
        q->after_failure = CLUSTER_RESTARTS;
    else if (is_on_p)
        q->after_failure = CLUSTER_RESENDS;
}

/* It waits no more in the inbox of its token machine, if it did. */
static void leave_inbox(struct cluster_request *q)
{
    struct cluster_machine *t = q->t;
    struct cluster_request **at = &t->inbox;

    while (*at && *at != q)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = q->next;
    if (t->inbox_end == &q->next)
        t->inbox_end = at;
}

/* Its transfer, and what it has on other machines than x, is given up, but for a prompt on a
 * machine that goes on. */
static void give_up(struct cluster_request *q, const struct cluster_machine *x)
{
    leave_inbox(q);
    q->transfer++;
    if (q->reserved_tok > 0 && q->t != x) {
        q->t->n_reserved--;
        q->t->kv_used_tok -= q->reserved_tok;
    }
    q->reserved_tok = 0;
    q->sending = q->arrived_early = false;
}

/* New machines. One that is to resend, and now would to itself, computes its prompt again. */
static void reassign(struct cluster *c, struct cluster_request *q)
{
    if (q->after_failure == CLUSTER_RESENDS) {
        cluster_unassign_tokens(q);
        cluster_assign_tokens(c, q);
        q->r.max_new = q->t == q->p ? q->d.n_output : q->n_before + 1;
        if (q->t != q->p || q->prompting)
            return;
        cluster_unassign_tokens(q);
        q->p->kv_used_tok -= q->held_tok;
        q->after_failure = CLUSTER_RESTARTS;
    } else {
        cluster_unassign(q);
    }
    q->kv_tok = q->held_tok = 0;
    q->d.n_restarts++;
    c->stat.n_restarts++;
    cluster_assign(c, q);
}

/* Restart, at its new machines, who has to. All others find the memory that was given back. */
static void go_on(struct cluster *c)
{
    for (struct cluster_request *q = c->all; q; q = q->next_of_all) {
        if (q->after_failure == CLUSTER_RESTARTS)
            cluster_enter(q);
        else if (q->after_failure == CLUSTER_RESENDS && !q->prompting)
            cluster_send(q);
        q->after_failure = CLUSTER_STAYS;
    }
    for (int i = 0; i < c->o.n_machines; i++) {
        cluster_serve_inbox(&c->machines[i]);
        cluster_start_step(&c->machines[i]);
    }
}

static void fail_machine(struct cluster *c, struct cluster_machine *x)
{
    cluster_interrupt(x);
    cluster_fail(c, cluster_step_abort(&c->steps, x->index));
    for (struct cluster_request *q = c->all; q; q = q->next_of_all) {
        judge(q, x);
        if (q->after_failure != CLUSTER_STAYS)
            give_up(q, x);
    }
    sched_loop_abort(&x->loop);
    x->kv_used_tok = x->n_reserved = 0;
    x->in = x->out = (struct cluster_link){0};
    for (struct cluster_request *q = c->all; q; q = q->next_of_all)
        if (q->after_failure != CLUSTER_STAYS)
            reassign(c, q);
    c->stat.n_failures++;
    cluster_write_log(c, "fail", x->index, 0, 0);
    go_on(c);
}

void cluster_outage_begins(struct cluster *c, const struct cluster_outage *o)
{
    struct cluster_machine *x = &c->machines[o->machine];

    x->n_out++;
    expect(c, o, CLUSTER_OUTAGE_END, o->until_ns);
    if (!o->drained)
        fail_machine(c, x);
}

void cluster_outage_ends(struct cluster *c, const struct cluster_outage *o)
{
    c->machines[o->machine].n_out--;
}
