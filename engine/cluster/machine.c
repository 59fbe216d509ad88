/* A machine: its memory for keys and values, its serving loop, and its steps. */
#include <inttypes.h>
#include <math.h>

#include "cluster/impl.h"

/* ---- memory ---- */

static int64_t admissible_tok(const struct cluster_machine *m)
{
    int64_t most = m->o->kv_tok;

    if (m->kv_used_tok > 0)
        most -= (int64_t)(m->cluster->o.keep_frac * (double)most);
    return most - m->kv_used_tok;
}

bool cluster_kv_take(struct cluster_machine *m, int64_t n_tok, bool to_grow)
{
    int64_t room = to_grow ? m->o->kv_tok - m->kv_used_tok : admissible_tok(m);

    if (n_tok > room)
        return false;
    m->kv_used_tok += n_tok;
    return true;
}

void cluster_kv_give(struct cluster_machine *m, int64_t n_tok)
{
    m->kv_used_tok -= n_tok;
    if (n_tok > 0 && !m->cluster->o.quirks.retry)
        cluster_serve_inbox(m);
}

static int64_t wanted_tok(const struct cluster *c, const struct sched_request *r)
{
    return c->o.quirks.full_length_kv ? r->n_prompt + r->max_new
                                      : sched_request_n_known(r);
}

static int64_t free_tok(void *ctx)
{
    int64_t n = admissible_tok(ctx);

    return n > 0 ? n : 0;
}

static int64_t need_tok(void *ctx, const struct sched_request *r)
{
    return wanted_tok(((struct cluster_machine *)ctx)->cluster, r);
}

static int reserve(void *ctx, struct sched_request *r)
{
    struct cluster_machine *m = ctx;
    struct cluster_request *q = (struct cluster_request *)r;
    int64_t n = wanted_tok(m->cluster, r);

    if (r->n_prompt + r->max_new > m->o->kv_tok)
        return err_set(ERR_LIMIT, "%" PRId64 " tokens, but memory for %" PRId64,
                       r->n_prompt + r->max_new, m->o->kv_tok);
    if (!cluster_kv_take(m, n, false))
        return err_set(ERR_NOMEM, "none is free");
    q->kv_tok = n;
    return OK;
}

static int grow(void *ctx, struct sched_request *r, int64_t n_tok)
{
    struct cluster_request *q = (struct cluster_request *)r;
    int64_t more = n_tok - q->kv_tok;

    if (more <= 0)
        return OK;
    if (!cluster_kv_take(ctx, more, true))
        return err_set(ERR_NOMEM, "none is free");
    q->kv_tok = n_tok;
    return OK;
}

/* A prompt's keys and values stay until they have been sent. */
static void release(void *ctx, struct sched_request *r)
{
    struct cluster_machine *m = ctx;
    struct cluster_request *q = (struct cluster_request *)r;
    bool to_be_sent = r->ended && !q->on_token_machine && q->d.n_output > 1 &&
                      q->d.token_machine != m->index;
    int64_t n_tok = q->kv_tok;

    q->kv_tok = 0;
    if (to_be_sent)
        q->held_tok = n_tok;
    else
        cluster_kv_give(m, n_tok);
}

static void refuse(void *ctx, struct sched_request *r, int rc)
{
    (void)ctx;
    (void)rc;
    ((struct cluster_request *)r)->d.refused = true;
    err_clear();
}

/* ---- requests that end ---- */

static void drop(void *ctx, struct sched_request *r)
{
    struct cluster_machine *m = ctx;
    struct cluster_request *q = (struct cluster_request *)r;

    q->d.n_paused += r->n_paused;
    q->d.n_preempted += r->n_preempted;
    if (q->d.refused || q->d.n_tokens >= q->d.n_output)
        cluster_finish(m->cluster, q, q->d.refused);
    else
        cluster_send(q, m->cluster);
}

int cluster_machine_open(struct cluster_machine *m, struct cluster *c, int index)
{
    const struct cluster_machine_opts *o = &c->o.machines[index];
    struct sched_loop_opts loop = {
        .policy = c->o.policy,
        .alloc = {.free_tok = free_tok,
                  .need_tok = need_tok,
                  .reserve = reserve,
                  .grow = grow,
                  .release = release},
        .refuse = refuse,
        .drop = drop,
        .ctx = m,
        .n_live = 16,
        .max_seqs = c->o.max_seqs,
        .max_step_tok = c->o.max_step_tok > 0 ? c->o.max_step_tok : INT64_C(1) << 40,
        .max_batch_prompt_tok = c->o.max_batch_prompt_tok,
        .patience = 8,
        .max_age = INT64_MAX,
        .mix_buckets = true};

    if (o->kv_tok < 1 || !o->perf || (unsigned)o->home >= CLUSTER_N_POOLS)
        return err_set(ERR_ARG,
                       "machine %d: expected a pool, a performance model and "
                       "memory of at least 1 token",
                       index);
    *m = (struct cluster_machine){.cluster = c,
                                  .o = o,
                                  .index = index,
                                  .home = o->home,
                                  .pool = o->home,
                                  .inbox_end = &m->inbox};
    return sched_loop_open(&m->loop, &loop);
}

/* ---- steps ---- */

void cluster_machine_add(struct cluster_machine *m, struct cluster_request *q)
{
    int rc = sched_loop_add(&m->loop, &q->r);

    if (rc != OK)
        cluster_fail(m->cluster, rc);
}

static bool is_decode(const struct sched_request *r)
{
    return r->n_new > 0 && sched_request_n_known(r) - r->n_ctx == 1;
}

static struct cluster_work work_of(const struct cluster_machine *m, int64_t *n_prompts)
{
    struct cluster_work w = {0};

    for (int i = 0; i < m->loop.n_batch; i++) {
        const struct sched_request *r = m->loop.batch[i];

        if (is_decode(r)) {
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

void cluster_machine_start(struct cluster_machine *m)
{
    struct cluster *c = m->cluster;
    struct cluster_step s = {
        .machine = m->index, .pool = m->pool, .start_ns = c->events.now_ns};
    struct cluster_work w;
    int64_t step_ns;

    if (m->busy || c->rc != OK)
        return;
    while (!must_wait(m) && sched_loop_batch(&m->loop) == 0) {
        int n_live = m->loop.n_live;

        sched_loop_drop(&m->loop); /* those that were refused */
        if (m->loop.n_live == n_live)
            break;
    }
    if (m->loop.n_live == 0 || m->loop.n_batch == 0 || must_wait(m))
        return;
    w = work_of(m, &s.n_prompts);
    s.n_prompt_tok = w.n_prompt_tok;
    s.n_decode = w.n_decode;
    step_ns = duration_ns(m, &w);
    cluster_step_begins(m, s.n_prompts > 0 ? CLUSTER_PROMPT : CLUSTER_TOKEN, step_ns);
    s.end_ns = m->step_end_ns;
    c->stat.n_steps++;
    for (int i = 0; i < m->loop.n_batch; i++)
        cluster_send_early((struct cluster_request *)m->loop.batch[i], c,
                           s.end_ns - s.start_ns);
    cluster_log(c, "step", m->index, s.n_prompt_tok, s.n_decode);
    if (c->o.observer.step)
        c->o.observer.step(c->o.observer.ctx, &s);
}

static void new_token(struct cluster_machine *m, struct cluster_request *q)
{
    struct cluster_done *d = &q->d;
    int64_t now = m->cluster->events.now_ns;

    if (d->n_tokens == 0) {
        bool stays = d->n_output > 1 && d->token_machine == m->index;

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
    q->r.ended =
        d->n_tokens >= d->n_output || (d->n_tokens == 1 && d->token_machine != m->index);
}

void cluster_machine_step_end(struct cluster_machine *m)
{
    cluster_step_ended(m);
    for (int i = 0; i < m->loop.n_batch; i++)
        if (sched_loop_computed(&m->loop, m->loop.batch[i]))
            new_token(m, (struct cluster_request *)m->loop.batch[i]);
    sched_loop_age(&m->loop);
    sched_loop_drop(&m->loop);
    if (!m->cluster->o.quirks.retry)
        cluster_serve_inbox(m); /* there are fewer sequences */
    if (m->cluster->o.report_ns == 0)
        cluster_maybe_return(m);
    cluster_machine_start(m);
}
