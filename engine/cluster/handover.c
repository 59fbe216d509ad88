/* Keys and values between two machines: memory for them at the other end, waiting for it, sending
 * them.   Paper: Splitwise IV-C. */
#include <math.h>

#include "cluster/sim.h"

#define RETRY_NS 1000000000 /* of splitwise-sim */

static int64_t arriving_tok(const struct cluster_request *q)
{
    return q->t->cluster->o.quirks.full_length_kv ? q->d.n_prompt + q->d.n_output
                                                  : q->prompt_tok;
}

/* Memory on the token machine. false: there is none now. */
static bool reserve_arrival(struct cluster_request *q)
{
    struct cluster *c = q->p->cluster;
    struct cluster_machine *t = q->t;
    int64_t n_tok = arriving_tok(q);

    cluster_interrupt(t);
    if (t->loop.n_seqs + t->n_reserved >= c->o.max_seqs ||
        !cluster_kv_take(t, n_tok, false))
        return false;
    t->n_reserved++;
    q->reserved_tok = n_tok;
    q->reserved_ns = c->events.now_ns;
    return true;
}

static void begin_transfer(struct cluster_request *q, int64_t start_ns, int64_t step_ns,
                           bool layer_wise)
{
    struct cluster *c = q->p->cluster;
    struct cluster_machine *p = q->p, *t = q->t;
    bool free_links = c->o.quirks.free_links;
    double gbps = fmin(p->o->link_gbps, t->o->link_gbps);
    struct cluster_transfer x = {
        .n_layers = c->o.n_layers,
        .compute_ns = (double)step_ns / c->o.n_layers,
        .alpha_ns = fmax(p->o->link_alpha_ns, t->o->link_alpha_ns),
        .layer_wise = layer_wise && !c->o.quirks.tenfold_layer_wise};
    double end;

    q->bytes_sent += q->prompt_tok * c->o.kv_bytes_per_tok;
    if (gbps > 0)
        x.send_ns = (double)(q->prompt_tok * c->o.kv_bytes_per_tok) / gbps / x.n_layers;
    if (layer_wise && c->o.quirks.tenfold_layer_wise)
        x.send_ns /= 10;
    end = cluster_transfer_send(&x, (double)start_ns, free_links ? NULL : &p->out,
                                free_links ? NULL : &t->in);
    q->sending = true;
    q->d.n_transfers++;
    cluster_push(c, CLUSTER_TRANSFER_END, (int64_t)ceil(end), 0, q);
    cluster_write_log(c, "send", q->d.number, t->index, (int64_t)ceil(end));
}

/* The prompt's step begins and takes step_ns: send layer by layer where that is due. */
void cluster_send_early(struct cluster_request *q, int64_t step_ns)
{
    struct cluster *c = q->p->cluster;
    struct cluster_machine *t = q->t;
    struct sched_request *r = &q->r;

    if (!cluster_goes_elsewhere(q) || q->on_token_machine || !q->prompting ||
        r->n_ctx + r->step_tok < sched_request_n_known(r) ||
        q->prompt_tok < c->o.layer_wise_tok ||
        (q->reserved_tok == 0 && (t->inbox || !reserve_arrival(q))))
        return;
    begin_transfer(q, c->events.now_ns, step_ns, true);
}

static bool is_too_long(const struct cluster_request *q)
{
    return q->d.n_prompt + q->d.n_output > q->t->o->kv_tok;
}

/* Where retries are the rule, and requests wait for memory here. */
static void retry_later(struct cluster_machine *m)
{
    struct cluster *c = m->cluster;

    if (!c->o.quirks.retry || !m->inbox || m->retry_due)
        return;
    m->retry_due = true;
    cluster_push(c, CLUSTER_RETRY, c->events.now_ns + RETRY_NS, m->index, NULL);
}

static void wait_for_memory(struct cluster_request *q)
{
    struct cluster_machine *t = q->t;

    q->next = NULL;
    *t->inbox_end = q;
    t->inbox_end = &q->next;
    cluster_write_log(t->cluster, "wait", q->d.number, t->index, arriving_tok(q));
    retry_later(t);
}

/* The prompt is computed. */
void cluster_send(struct cluster_request *q)
{
    struct cluster *c = q->p->cluster;
    struct cluster_machine *p = q->p, *t = q->t;

    if (q->sending && q->arrived_early)
        cluster_push(c, CLUSTER_TRANSFER_END, c->events.now_ns, 0, q);
    if (q->sending)
        return;
    if (is_too_long(q)) {
        int64_t held_tok = q->held_tok;

        q->held_tok = 0;
        cluster_finish(q, true);
        cluster_kv_give(p, held_tok);
    } else if (q->reserved_tok > 0 || (!t->inbox && reserve_arrival(q))) {
        begin_transfer(q, c->events.now_ns, 0, false);
    } else {
        wait_for_memory(q);
    }
}

/* A request that has arrived goes to its prompt machine, now or when there is memory. */
void cluster_begin(struct cluster_request *q)
{
    struct cluster *c = q->p->cluster;
    struct cluster_machine *t = q->t;

    if (!c->o.reserve_first || !cluster_goes_elsewhere(q))
        cluster_add_request(q->p, q);
    else if (is_too_long(q))
        cluster_finish(q, true);
    else if (!t->inbox && !c->steps.of[t->index].busy && reserve_arrival(q))
        cluster_add_request(q->p, q);
    else
        wait_for_memory(q);
}

void cluster_serve_inbox(struct cluster_machine *m)
{
    struct cluster *c = m->cluster;

    while (m->inbox) {
        struct cluster_request *q = m->inbox;

        if (!reserve_arrival(q))
            break;
        m->inbox = q->next;
        m->inbox_end = m->inbox ? m->inbox_end : &m->inbox;
        if (!q->prompting) {
            begin_transfer(q, c->events.now_ns, 0, false);
        } else { /* its prompt is still to be computed */
            cluster_add_request(q->p, q);
            cluster_push(c, CLUSTER_RETRY, c->events.now_ns, q->p->index, NULL);
        }
    }
    retry_later(m);
}

void cluster_arrived(struct cluster_request *q)
{
    struct cluster *c = q->p->cluster;
    struct cluster_machine *p = q->p, *t = q->t;
    struct cluster_move move = {.t_ns = c->events.now_ns,
                                .request = q->d.number,
                                .n_tok = q->prompt_tok,
                                .kv_bytes = q->bytes_sent,
                                .from = p->index,
                                .to = t->index};

    if (q->prompting) {
        q->arrived_early = true;
        return;
    }
    c->stat.n_transferred++;
    c->stat.reserved_idle_tok_ns +=
        (double)q->reserved_tok * (double)(c->events.now_ns - q->reserved_ns);
    if (c->o.observer.moved)
        c->o.observer.moved(c->o.observer.ctx, &move);
    q->on_token_machine = true;
    q->r = (struct sched_request){.id = t->next_id++,
                                  .n_prompt = q->d.n_prompt,
                                  .max_new = q->d.n_output,
                                  .n_new = q->d.n_tokens,
                                  .n_ctx = q->prompt_tok};
    q->kv_tok = q->reserved_tok;
    q->reserved_tok = 0;
    t->n_reserved--;
    cluster_add_request(t, q);
    cluster_kv_give(p, q->held_tok);
    q->held_tok = 0;
    cluster_start_step(p);
    cluster_start_step(t);
}
