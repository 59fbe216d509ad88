/* The simulated cluster: machines with their serving loops, transfers between them, and the history
 * of all requests, event by event. */
#include "cluster/cluster.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "cluster/contention.h"
#include "cluster/event.h"
#include "cluster/transfer.h"
#include "sched/loop.h"

struct cluster_request {
    struct sched_request r;        /* first; on the machine where it is */
    struct cluster_done d;         /* its report */
    struct cluster_machine *p, *t; /* that computes its prompt, and its tokens */
    int64_t kv_tok;                /* its memory on that machine */
    int64_t held_tok;              /* on the prompt machine, until it has been sent */
    int64_t reserved_tok;          /* on the token machine, until it has arrived */
    int64_t reserved_ns;           /* since then */
    int64_t bytes_sent;
    bool on_token_machine, sending;
    bool arrived_early; /* its transfer was to end with a step that takes longer now */
    struct cluster_request *next; /* in an inbox, or unused */
    struct cluster_request *next_of_all;
};

struct cluster_machine {
    struct cluster *cluster;
    const struct cluster_machine_opts *o;
    int index;
    enum cluster_pool home, pool;
    struct sched_loop loop;
    int64_t next_id;
    int64_t kv_used_tok;
    int64_t actual[CLUSTER_N_LOADS], known[CLUSTER_N_LOADS];
    int64_t n_tasks[2]; /* by kind */
    int64_t n_reserved; /* requests that have memory, on their way */
    struct cluster_request *inbox, **inbox_end; /* wait for memory here */
    bool retry_due;
    struct cluster_link in, out;
    int64_t mixed_since_ns;
};

struct cluster {
    struct cluster_opts o;
    struct cluster_machine *machines; /* [o.n_machines] */
    struct cluster_steps steps;       /* of them */
    struct cluster_events events;
    struct cluster_pools pools;
    struct cluster_candidate *candidates; /* [n_machines] scratch of a choice */
    struct cluster_request *unused, *all; /* all: that were ever allocated */
    int64_t n_live, last_ns;
    bool more; /* requests will come */
    int rc;    /* the first error of a callback */
    struct cluster_stat stat;
};

static void fail(struct cluster *c, int rc)
{
    if (c->rc == OK)
        c->rc = rc;
}

static void push(struct cluster *c, enum cluster_event_kind kind, int64_t t_ns,
                 int machine, struct cluster_request *q)
{
    fail(c, cluster_events_push(&c->events, (struct cluster_event){.t_ns = t_ns,
                                                                   .kind = kind,
                                                                   .machine = machine,
                                                                   .request = q}));
}

static void write_log(struct cluster *c, const char *what, int64_t a, int64_t b,
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
        *q = (struct cluster_request){.next_of_all = q->next_of_all};
        return q;
    }
    q = mem_new(MEM_OTHER, 1, sizeof(*q));
    q->next_of_all = c->all;
    c->all = q;
    return q;
}

static void finish(struct cluster_request *q, bool refused)
{
    struct cluster *c = q->p->cluster;
    struct cluster_done *d = &q->d;
    struct cluster_machine *p = q->p, *t = q->t;

    d->refused = refused;
    if (d->n_tokens == 0) {
        p->n_tasks[CLUSTER_PROMPT]--;
        p->actual[CLUSTER_LOAD_PROMPT_TOK] -= d->n_prompt;
        p->actual[CLUSTER_LOAD_REQUESTS] -= p != t || d->n_output == 1;
    }
    if (d->n_output > 1) {
        int64_t left = d->n_output - (d->n_tokens > 1 ? d->n_tokens : 1);

        t->n_tasks[CLUSTER_TOKEN]--;
        t->actual[CLUSTER_LOAD_REQUESTS]--;
        t->actual[CLUSTER_LOAD_SEQUENCES]--;
        t->actual[CLUSTER_LOAD_REMAINING_TOK] -= left;
        t->actual[CLUSTER_LOAD_KV_TOK] -= d->n_prompt + d->n_output;
    }
    c->stat.n_done += !refused;
    c->stat.n_refused += refused;
    c->stat.n_preempted += d->n_preempted;
    c->n_live--;
    write_log(c, refused ? "refuse" : "done", d->number, d->token_machine, d->n_tokens);
    if (c->o.observer.done)
        c->o.observer.done(c->o.observer.ctx, d);
    q->next = c->unused;
    c->unused = q;
}

/* ---- the scheduler: machines of a request, pools of a machine ---- */

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
    write_log(c, "pool", m->index, (int64_t)pool, m->n_tasks[0] + m->n_tasks[1]);
}

static struct cluster_machine *choose(struct cluster *c, enum cluster_pool kind)
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

        c->candidates[i] =
            (struct cluster_candidate){.pool = m->pool,
                                       .known = known_load(m, load),
                                       .actual = load_of(m->actual, load),
                                       .queued = m->loop.n_live > m->loop.n_seqs};
    }
    rc = cluster_pools_choose(&c->pools, &x, c->candidates, &task);
    if (rc != OK) {
        fail(c, rc);
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

/* Choose both machines of a request and count it as theirs. */
static void assign(struct cluster *c, struct cluster_request *q)
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
    q->p = p;
    q->t = t;
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
    write_log(c, "home", m->index, (int64_t)m->home, 0);
}

static void maybe_return(struct cluster_machine *m)
{
    repurpose(m);
    if (cluster_pools_returns(m->home, m->pool, m->n_tasks,
                              m->cluster->o.quirks.return_when_idle))
        move(m, m->home);
}

static void report_all(struct cluster *c)
{
    for (int i = 0; i < c->o.n_machines; i++) {
        struct cluster_machine *m = &c->machines[i];

        memcpy(m->known, m->actual, sizeof(m->known));
        maybe_return(m);
    }
}

/* ---- memory ---- */

static void serve_inbox(struct cluster_machine *m);

/* Memory is taken and given back by the next three functions only. */
static int64_t admissible_tok(const struct cluster_machine *m)
{
    int64_t most = m->o->kv_tok;

    if (m->kv_used_tok > 0)
        most -= (int64_t)(m->cluster->o.keep_frac * (double)most);
    return most - m->kv_used_tok;
}

/* false: there is none. */
static bool kv_take(struct cluster_machine *m, int64_t n_tok, bool to_grow)
{
    int64_t room = to_grow ? m->o->kv_tok - m->kv_used_tok : admissible_tok(m);

    if (n_tok > room)
        return false;
    m->kv_used_tok += n_tok;
    return true;
}

static void kv_give(struct cluster_machine *m, int64_t n_tok)
{
    m->kv_used_tok -= n_tok;
    if (n_tok > 0 && !m->cluster->o.quirks.retry)
        serve_inbox(m);
}

/* ---- transfers ---- */

#define RETRY_NS 1000000000 /* of splitwise-sim */

static void add_request(struct cluster_machine *m, struct cluster_request *q);
static void start_step(struct cluster_machine *m);

static int64_t arriving_tok(const struct cluster_request *q)
{
    return q->d.n_prompt + (q->t->cluster->o.quirks.full_length_kv ? q->d.n_output : 0);
}

/* Memory on the token machine. false: there is none now. */
static bool reserve_arrival(struct cluster_request *q)
{
    struct cluster *c = q->p->cluster;
    struct cluster_machine *t = q->t;
    int64_t n_tok = arriving_tok(q);

    if (t->loop.n_seqs + t->n_reserved >= c->o.max_seqs || !kv_take(t, n_tok, false))
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

    q->bytes_sent += q->d.n_prompt * c->o.kv_bytes_per_tok;
    if (gbps > 0)
        x.send_ns = (double)(q->d.n_prompt * c->o.kv_bytes_per_tok) / gbps / x.n_layers;
    if (layer_wise && c->o.quirks.tenfold_layer_wise)
        x.send_ns /= 10;
    end = cluster_transfer_send(&x, (double)start_ns, free_links ? NULL : &p->out,
                                free_links ? NULL : &t->in);
    q->sending = true;
    q->d.n_transfers++;
    push(c, CLUSTER_TRANSFER_END, (int64_t)ceil(end), -1, q);
    write_log(c, "send", q->d.number, t->index, (int64_t)ceil(end));
}

static bool goes_elsewhere(const struct cluster_request *q)
{
    return q->d.n_output > 1 && q->t != q->p;
}

/* The prompt's step begins and takes step_ns: send layer by layer where that is due. */
static void send_early(struct cluster_request *q, int64_t step_ns)
{
    struct cluster *c = q->p->cluster;
    struct cluster_machine *t = q->t;
    struct sched_request *r = &q->r;

    if (!goes_elsewhere(q) || q->on_token_machine || r->n_new > 0 ||
        r->n_ctx + r->step_tok < sched_request_n_known(r) ||
        q->d.n_prompt < c->o.layer_wise_tok ||
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
    push(c, CLUSTER_RETRY, c->events.now_ns + RETRY_NS, m->index, NULL);
}

static void wait_for_memory(struct cluster_request *q)
{
    struct cluster_machine *t = q->t;

    q->next = NULL;
    *t->inbox_end = q;
    t->inbox_end = &q->next;
    write_log(t->cluster, "wait", q->d.number, t->index, arriving_tok(q));
    retry_later(t);
}

/* The prompt is computed. */
static void send(struct cluster_request *q)
{
    struct cluster *c = q->p->cluster;
    struct cluster_machine *p = q->p, *t = q->t;

    if (q->sending && q->arrived_early)
        push(c, CLUSTER_TRANSFER_END, c->events.now_ns, -1, q);
    if (q->sending)
        return;
    if (is_too_long(q)) {
        int64_t held_tok = q->held_tok;

        q->held_tok = 0;
        finish(q, true);
        kv_give(p, held_tok);
    } else if (q->reserved_tok > 0 || (!t->inbox && reserve_arrival(q))) {
        begin_transfer(q, c->events.now_ns, 0, false);
    } else {
        wait_for_memory(q);
    }
}

/* A request that has arrived goes to its prompt machine, now or when there is memory. */
static void begin(struct cluster_request *q)
{
    struct cluster *c = q->p->cluster;
    struct cluster_machine *t = q->t;

    if (!c->o.reserve_first || !goes_elsewhere(q))
        add_request(q->p, q);
    else if (is_too_long(q))
        finish(q, true);
    else if (!t->inbox && !c->steps.of[t->index].busy && reserve_arrival(q))
        add_request(q->p, q);
    else
        wait_for_memory(q);
}

static void serve_inbox(struct cluster_machine *m)
{
    struct cluster *c = m->cluster;

    while (m->inbox) {
        struct cluster_request *q = m->inbox;

        if (!reserve_arrival(q))
            break;
        m->inbox = q->next;
        m->inbox_end = m->inbox ? m->inbox_end : &m->inbox;
        if (q->d.n_tokens > 0) {
            begin_transfer(q, c->events.now_ns, 0, false);
        } else { /* its prompt is still to be computed */
            add_request(q->p, q);
            push(c, CLUSTER_RETRY, c->events.now_ns, q->p->index, NULL);
        }
    }
    retry_later(m);
}

static void arrived(struct cluster_request *q)
{
    struct cluster *c = q->p->cluster;
    struct cluster_machine *p = q->p, *t = q->t;
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
    add_request(t, q);
    kv_give(p, q->held_tok);
    q->held_tok = 0;
    start_step(p);
    start_step(t);
}
/* ---- memory, as the loop asks for it ---- */

static int64_t wanted_tok(const struct cluster *c, const struct sched_request *r)
{
    return c->o.quirks.full_length_kv ? r->n_prompt + r->max_new
                                      : sched_request_n_known(r);
}

static int64_t alloc_free_tok(void *ctx)
{
    int64_t n = admissible_tok(ctx);

    return n > 0 ? n : 0;
}

static int64_t alloc_need_tok(void *ctx, const struct sched_request *r)
{
    return wanted_tok(((struct cluster_machine *)ctx)->cluster, r);
}

static int alloc_reserve(void *ctx, struct sched_request *r)
{
    struct cluster_machine *m = ctx;
    struct cluster_request *q = (struct cluster_request *)r;
    int64_t n = wanted_tok(m->cluster, r);

    if (r->n_prompt + r->max_new > m->o->kv_tok)
        return err_set(ERR_LIMIT, "%" PRId64 " tokens, but memory for %" PRId64,
                       r->n_prompt + r->max_new, m->o->kv_tok);
    if (!kv_take(m, n, false))
        return err_set(ERR_NOMEM, "none is free");
    q->kv_tok = n;
    return OK;
}

static int alloc_grow(void *ctx, struct sched_request *r, int64_t n_tok)
{
    struct cluster_request *q = (struct cluster_request *)r;
    int64_t more = n_tok - q->kv_tok;

    if (more <= 0)
        return OK;
    if (!kv_take(ctx, more, true))
        return err_set(ERR_NOMEM, "none is free");
    q->kv_tok = n_tok;
    return OK;
}

/* A prompt's keys and values stay until they have been sent. */
static void alloc_release(void *ctx, struct sched_request *r)
{
    struct cluster_machine *m = ctx;
    struct cluster_request *q = (struct cluster_request *)r;
    bool to_be_sent = r->ended && !q->on_token_machine && goes_elsewhere(q);
    int64_t n_tok = q->kv_tok;

    q->kv_tok = 0;
    if (to_be_sent)
        q->held_tok = n_tok;
    else
        kv_give(m, n_tok);
}

static void on_refuse(void *ctx, struct sched_request *r, int rc)
{
    (void)ctx;
    (void)rc;
    ((struct cluster_request *)r)->d.refused = true;
    err_clear();
}

static void on_drop(void *ctx, struct sched_request *r)
{
    struct cluster_request *q = (struct cluster_request *)r;

    (void)ctx;
    q->d.n_paused += r->n_paused;
    q->d.n_preempted += r->n_preempted;
    if (q->d.refused || q->d.n_tokens >= q->d.n_output)
        finish(q, q->d.refused);
    else
        send(q);
}

static int open_machine(struct cluster_machine *m, struct cluster *c, int index)
{
    const struct cluster_machine_opts *o = &c->o.machines[index];
    struct sched_loop_opts loop = {
        .policy = c->o.policy,
        .alloc = {.free_tok = alloc_free_tok,
                  .need_tok = alloc_need_tok,
                  .reserve = alloc_reserve,
                  .grow = alloc_grow,
                  .release = alloc_release},
        .refuse = on_refuse,
        .drop = on_drop,
        .ctx = m,
        .n_live = 16,
        .max_seqs = c->o.max_seqs,
        .max_step_tok = c->o.max_step_tok > 0 ? c->o.max_step_tok : INT64_C(1) << 40,
        .max_batch_prompt_tok = c->o.max_batch_prompt_tok,
        .patience = 8,
        .max_age = INT64_MAX,
        .mix_buckets = true};

    *m = (struct cluster_machine){.cluster = c,
                                  .o = o,
                                  .index = index,
                                  .home = o->home,
                                  .pool = o->home,
                                  .inbox_end = &m->inbox};
    c->steps.of[index].controller = o->controller;
    return sched_loop_open(&m->loop, &loop);
}

/* ---- steps ---- */

static void add_request(struct cluster_machine *m, struct cluster_request *q)
{
    fail(m->cluster, sched_loop_add(&m->loop, &q->r));
}

static struct cluster_work work_of(const struct cluster_machine *m, int64_t *n_prompts)
{
    struct cluster_work w = {0};

    for (int i = 0; i < m->loop.n_batch; i++) {
        const struct sched_request *r = m->loop.batch[i];

        if (r->n_new > 0 && sched_request_n_known(r) - r->n_ctx == 1) {
            w.n_decode++;
            w.ctx_tok += r->n_ctx;
        } else {
            ++*n_prompts;
            w.n_prompt_tok += r->step_tok;
            w.sum_prompt_sq += (double)r->step_tok * (double)r->step_tok;
        }
    }
    return w;
}

static int64_t duration_ns(const struct cluster_machine *m, const struct cluster_work *w)
{
    const struct cluster_quirks *k = &m->cluster->o.quirks;
    struct cluster_work x = *w;

    if (k->flat_token_time && x.n_decode < 128 && x.n_prompt_tok == 0)
        x.n_decode = x.n_decode > 0;
    if (k->slow_mixed && w->n_prompt_tok > 0 && w->n_decode > 0) {
        x.n_decode = 0;
        return (int64_t)round(1.1 * (double)cluster_perf_step_ns(m->o->perf, &x));
    }
    return cluster_perf_step_ns(m->o->perf, &x);
}

/* The loop would refuse a request for which there is no memory although no request has any. Here
 * keys and values on their way have it, and will give it back. */
static bool must_wait(const struct cluster_machine *m)
{
    const struct sched_loop *l = &m->loop;

    return l->n_live == 0 ||
           (l->n_seqs == 0 && m->kv_used_tok > 0 &&
            l->live[0]->n_prompt + l->live[0]->max_new <= m->o->kv_tok &&
            l->live[0]->need_tok > admissible_tok(m));
}

static void start_step(struct cluster_machine *m)
{
    struct cluster *c = m->cluster;
    struct cluster_step s = {
        .machine = m->index, .pool = m->pool, .start_ns = c->events.now_ns};
    struct cluster_work w;

    if (c->steps.of[m->index].busy || c->rc != OK)
        return;
    while (!must_wait(m) && sched_loop_batch(&m->loop) == 0) {
        int n_live = m->loop.n_live;

        sched_loop_drop(&m->loop); /* those that were refused */
        if (m->loop.n_live == n_live)
            break;
    }
    if (m->loop.n_batch == 0 || must_wait(m))
        return;
    w = work_of(m, &s.n_prompts);
    s.n_prompt_tok = w.n_prompt_tok;
    s.n_decode = w.n_decode;
    fail(c, cluster_step_begin(&c->steps, m->index,
                               s.n_prompts > 0 ? CLUSTER_PROMPT : CLUSTER_TOKEN,
                               duration_ns(m, &w)));
    s.end_ns = c->steps.of[m->index].end_ns;
    c->stat.n_steps++;
    for (int i = 0; i < m->loop.n_batch; i++)
        send_early((struct cluster_request *)m->loop.batch[i], s.end_ns - s.start_ns);
    write_log(c, "step", m->index, s.n_prompt_tok, s.n_decode);
    if (c->o.observer.step)
        c->o.observer.step(c->o.observer.ctx, &s);
}

static void new_token(struct cluster_machine *m, struct cluster_request *q)
{
    struct cluster_done *d = &q->d;
    int64_t now = m->cluster->events.now_ns;

    if (d->n_tokens == 0) {
        bool stays = d->n_output > 1 && q->t == m;

        d->first_ns = now;
        d->n_prompts++;
        m->actual[CLUSTER_LOAD_PROMPT_TOK] -= d->n_prompt;
        m->actual[CLUSTER_LOAD_REQUESTS] -= !stays;
        m->n_tasks[CLUSTER_PROMPT]--;
    } else {
        m->actual[CLUSTER_LOAD_REMAINING_TOK]--;
        if (now - d->last_ns > d->max_gap_ns)
            d->max_gap_ns = now - d->last_ns;
    }
    d->last_ns = now;
    d->n_tokens++;
    q->r.ended = d->n_tokens >= d->n_output || (d->n_tokens == 1 && q->t != m);
}

static void end_step(struct cluster_machine *m)
{
    fail(m->cluster, cluster_step_end(&m->cluster->steps, m->index));
    for (int i = 0; i < m->loop.n_batch; i++)
        if (sched_loop_computed(&m->loop, m->loop.batch[i]))
            new_token(m, (struct cluster_request *)m->loop.batch[i]);
    sched_loop_age(&m->loop);
    sched_loop_drop(&m->loop);
    if (!m->cluster->o.quirks.retry)
        serve_inbox(m); /* there are fewer sequences */
    if (m->cluster->o.report_ns == 0)
        maybe_return(m);
    start_step(m);
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
        fail(c, err_set(ERR_ARG,
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
    push(c, CLUSTER_ARRIVAL, a.t_ns, -1, q);
}

static void arrive(struct cluster *c, struct cluster_request *q)
{
    struct cluster_machine *p;

    c->n_live++;
    if (c->n_live > c->stat.n_live_max)
        c->stat.n_live_max = c->n_live;
    assign(c, q);
    p = q->p;
    q->r = (struct sched_request){.id = p->next_id++,
                                  .n_prompt = q->d.n_prompt,
                                  .max_new = q->t == p ? q->d.n_output : 1};
    write_log(c, "arrive", q->d.number, p->index, q->t->index);
    begin(q);
    expect_next(c); /* the request may be another one now */
    start_step(p);
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
        if (c->steps.of[m->index].busy && c->steps.of[m->index].end_ns == e->t_ns)
            end_step(m); /* it has not been put off */
        break;
    case CLUSTER_TRANSFER_END:
        arrived(e->request);
        break;
    case CLUSTER_RETRY:
        m->retry_due = false;
        serve_inbox(m);
        start_step(m);
        break;
    case CLUSTER_REPORT:
        report_all(c);
        if (c->more || c->n_live > 0)
            push(c, CLUSTER_REPORT, e->t_ns + c->o.report_ns, -1, NULL);
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

static int simulate(struct cluster *c)
{
    struct cluster_event e;
    int n_idle = 0;

    for (int i = 0; i < c->o.n_machines; i++)
        TRY(open_machine(&c->machines[i], c, i));
    expect_next(c);
    if (c->o.report_ns > 0)
        push(c, CLUSTER_REPORT, c->o.report_ns, -1, NULL);
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
    c.stat.end_ns = c.events.now_ns;
    memcpy(c.stat.busy_ns, c.steps.busy_ns, sizeof(c.stat.busy_ns));
    *out = c.stat;
    close_cluster(&c);
    return rc;
}
