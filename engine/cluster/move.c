/* Keys and values on their way from the prompt machine to the token machine. */
#include <math.h>

#include "cluster/impl.h"

#define RETRY_NS 1000000000 /* of splitwise-sim */

static int64_t arriving_tok(const struct cluster *c, const struct cluster_request *q)
{
    return q->d.n_prompt + (c->o.quirks.full_length_kv ? q->d.n_output : 0);
}

/* Memory on the token machine. false: there is none now. */
static bool reserve(struct cluster_request *q, struct cluster *c)
{
    struct cluster_machine *t = &c->machines[q->d.token_machine];
    int64_t n_tok = arriving_tok(c, q);

    if (t->loop.n_seqs + t->n_reserved >= c->o.max_seqs ||
        !cluster_kv_take(t, n_tok, false))
        return false;
    t->n_reserved++;
    q->reserved_tok = n_tok;
    q->reserved_ns = c->events.now_ns;
    return true;
}

static void send(struct cluster_request *q, struct cluster *c, int64_t start_ns,
                 int64_t step_ns, bool layer_wise)
{
    struct cluster_machine *p = &c->machines[q->d.prompt_machine],
                           *t = &c->machines[q->d.token_machine];
    bool free_links = c->o.quirks.free_links;
    double gbps = fmin(p->o->link_gbps, t->o->link_gbps);
    struct cluster_transfer x = {
        .n_layers = c->o.n_layers,
        .compute_ns = (double)step_ns / c->o.n_layers,
        .alpha_ns = fmax(p->o->link_alpha_ns, t->o->link_alpha_ns),
        .layer_wise = layer_wise && !c->o.quirks.tenfold_layer_wise};
    double end;

    q->bytes_sent += q->d.n_prompt * c->o.kv_bytes_per_tok;
    if (gbps > 0)
        x.send_ns = (double)(q->d.n_prompt * c->o.kv_bytes_per_tok) / gbps / x.n_layers;
    if (layer_wise && c->o.quirks.tenfold_layer_wise)
        x.send_ns /= 10;
    end = cluster_transfer_send(&x, (double)start_ns, free_links ? NULL : &p->out,
                                free_links ? NULL : &t->in);
    q->sending = true;
    q->d.n_transfers++;
    cluster_push(c, CLUSTER_TRANSFER_END, (int64_t)ceil(end), -1, q);
    cluster_log(c, "send", q->d.number, t->index, (int64_t)ceil(end));
}

static bool goes_elsewhere(const struct cluster_request *q)
{
    return q->d.n_output > 1 && q->d.token_machine != q->d.prompt_machine;
}

void cluster_send_early(struct cluster_request *q, struct cluster *c, int64_t step_ns)
{
    struct cluster_machine *t = &c->machines[q->d.token_machine];
    struct sched_request *r = &q->r;

    if (!goes_elsewhere(q) || q->on_token_machine || r->n_new > 0 ||
        r->n_ctx + r->step_tok < sched_request_n_known(r) ||
        q->d.n_prompt < c->o.layer_wise_tok ||
        (q->reserved_tok == 0 && (t->inbox || !reserve(q, c))))
        return;
    send(q, c, c->events.now_ns, step_ns, true);
}

static bool is_too_long(const struct cluster_request *q, const struct cluster_machine *t)
{
    return q->d.n_prompt + q->d.n_output > t->o->kv_tok;
}

static void wait_for_memory(struct cluster_request *q, struct cluster_machine *t)
{
    struct cluster *c = t->cluster;

    q->next = NULL;
    *t->inbox_end = q;
    t->inbox_end = &q->next;
    cluster_log(c, "wait", q->d.number, t->index, arriving_tok(c, q));
    if (c->o.quirks.retry && !t->retry_due) {
        t->retry_due = true;
        cluster_push(c, CLUSTER_RETRY, c->events.now_ns + RETRY_NS, t->index, NULL);
    }
}

void cluster_send(struct cluster_request *q, struct cluster *c)
{
    struct cluster_machine *p = &c->machines[q->d.prompt_machine],
                           *t = &c->machines[q->d.token_machine];

    if (q->sending && q->arrived_early)
        cluster_push(c, CLUSTER_TRANSFER_END, c->events.now_ns, -1, q);
    if (q->sending)
        return;
    if (is_too_long(q, t)) {
        int64_t held_tok = q->held_tok;

        q->held_tok = 0;
        cluster_finish(c, q, true);
        cluster_kv_give(p, held_tok);
    } else if (q->reserved_tok > 0 || (!t->inbox && reserve(q, c))) {
        send(q, c, c->events.now_ns, 0, false);
    } else {
        wait_for_memory(q, t);
    }
}

void cluster_begin(struct cluster_request *q, struct cluster *c)
{
    struct cluster_machine *t = &c->machines[q->d.token_machine];

    if (!c->o.reserve_first || !goes_elsewhere(q))
        cluster_machine_add(&c->machines[q->d.prompt_machine], q);
    else if (is_too_long(q, t))
        cluster_finish(c, q, true);
    else if (!t->inbox && reserve(q, c))
        cluster_machine_add(&c->machines[q->d.prompt_machine], q);
    else
        wait_for_memory(q, t);
}

void cluster_serve_inbox(struct cluster_machine *m)
{
    struct cluster *c = m->cluster;

    while (m->inbox) {
        struct cluster_request *q = m->inbox;

        if (!reserve(q, c))
            break;
        m->inbox = q->next;
        m->inbox_end = m->inbox ? m->inbox_end : &m->inbox;
        if (q->d.n_tokens > 0) {
            send(q, c, c->events.now_ns, 0, false);
        } else { /* its prompt is still to be computed */
            cluster_machine_add(&c->machines[q->d.prompt_machine], q);
            cluster_push(c, CLUSTER_RETRY, c->events.now_ns, q->d.prompt_machine, NULL);
        }
    }
    if (c->o.quirks.retry && m->inbox && !m->retry_due) {
        m->retry_due = true;
        cluster_push(c, CLUSTER_RETRY, c->events.now_ns + RETRY_NS, m->index, NULL);
    }
}

void cluster_arrived(struct cluster_request *q, struct cluster *c)
{
    struct cluster_machine *p = &c->machines[q->d.prompt_machine],
                           *t = &c->machines[q->d.token_machine];
    struct cluster_move move = {.t_ns = c->events.now_ns,
                                .request = q->d.number,
                                .n_tok = q->d.n_prompt,
                                .kv_bytes = q->bytes_sent,
                                .from = p->index,
                                .to = t->index};

    if (q->d.n_tokens == 0) {
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
                                  .n_new = 1,
                                  .n_ctx = q->d.n_prompt};
    q->kv_tok = q->reserved_tok;
    q->reserved_tok = 0;
    t->n_reserved--;
    cluster_machine_add(t, q);
    cluster_kv_give(p, q->held_tok);
    q->held_tok = 0;
    cluster_machine_start(p);
    cluster_machine_start(t);
}
