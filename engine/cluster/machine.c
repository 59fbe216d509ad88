/* A machine of the simulated cluster: its memory, the steps of its serving loop, and runs of steps
 * that hold the same sequences. */
#include <inttypes.h>
#include <math.h>

#include "cluster/sim.h"

/* ---- memory ---- */

int64_t cluster_admissible_tok(const struct cluster_machine *m)
{
    int64_t most = m->o->kv_tok;

    if (m->kv_used_tok > 0)
        most -= (int64_t)(m->cluster->o.keep_frac * (double)most);
    return most - m->kv_used_tok;
}

/* false: there is none. */
bool cluster_kv_take(struct cluster_machine *m, int64_t n_tok, bool to_grow)
{
    int64_t free_tok =
        to_grow ? m->o->kv_tok - m->kv_used_tok : cluster_admissible_tok(m);

    if (n_tok > free_tok)
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

/* ---- memory, as the loop asks for it ---- */

static int64_t wanted_tok(const struct cluster *c, const struct sched_request *r)
{
    return c->o.quirks.full_length_kv ? r->n_prompt + r->max_new
                                      : sched_request_n_known(r);
}

static int64_t alloc_free_tok(void *ctx)
{
    int64_t n = cluster_admissible_tok(ctx);

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
    if (!cluster_kv_take(m, n, false))
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
    if (!cluster_kv_take(ctx, more, true))
        return err_set(ERR_NOMEM, "none is free");
    q->kv_tok = n_tok;
    return OK;
}

/* A prompt's keys and values stay until they have been sent. */
static void alloc_release(void *ctx, struct sched_request *r)
{
    struct cluster_machine *m = ctx;
    struct cluster_request *q = (struct cluster_request *)r;
    bool to_be_sent = r->ended && !q->on_token_machine && cluster_goes_elsewhere(q);
    int64_t n_tok = q->kv_tok;

    q->kv_tok = 0;
    if (to_be_sent)
        q->held_tok = n_tok;
    else
        cluster_kv_give(m, n_tok);
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
        cluster_finish(q, q->d.refused);
    else
        cluster_send(q);
}

int cluster_open_machine(struct cluster_machine *m, struct cluster *c, int index)
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
                                  .n_ahead = 1,
                                  .inbox_end = &m->inbox};
    c->steps.of[index].controller = o->controller;
    for (int k = 0; k < 2; k++)
        m->slowness[k] = o->speed[k] > 0 ? 1 / o->speed[k] : 1;
    return sched_loop_open(&m->loop, &loop);
}

/* ---- steps ---- */

void cluster_add_request(struct cluster_machine *m, struct cluster_request *q)
{
    cluster_interrupt(m);
    cluster_fail(m->cluster, sched_loop_add(&m->loop, &q->r));
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

/* The loop refuses a request that does not fit although none is running. Here keys and values in
 * transfer may have the memory, and will give it back. */
static bool must_wait(const struct cluster_machine *m)
{
    const struct sched_loop *l = &m->loop;

    return l->n_live == 0 ||
           (l->n_seqs == 0 && m->kv_used_tok > 0 &&
            l->live[0]->n_prompt + l->live[0]->max_new <= m->o->kv_tok &&
            l->live[0]->need_tok > cluster_admissible_tok(m));
}

/* ---- steps that are not events ---- */

/* No more steps than this are run ahead, as a task that comes meanwhile makes them void. */
#define AHEAD_MAX 64

/* How many steps, from the one that begins, have the same sequences and nothing else: until one of
 * them ends, memory ends, or AHEAD_MAX. Those that come meanwhile interrupt. */
static int64_t steps_ahead(const struct cluster_machine *m, int64_t n_prompts)
{
    const struct sched_loop *l = &m->loop;
    int64_t n = AHEAD_MAX, n_in_memory;

    if (!m->cluster->runs_ahead || n_prompts > 0 || l->n_batch != l->n_live)
        return 1;
    n_in_memory = 1 + (m->o->kv_tok - m->kv_used_tok) / l->n_batch;
    n = n_in_memory < n ? n_in_memory : n;
    for (int i = 0; i < l->n_batch; i++) {
        const struct cluster_done *d = &((struct cluster_request *)l->batch[i])->d;

        n = d->n_output - d->n_tokens < n ? d->n_output - d->n_tokens : n;
    }
    return n;
}

/* The time of n such steps, the first of which is w. */
static int64_t ahead_ns(const struct cluster_machine *m, struct cluster_work w, int64_t n)
{
    int64_t sum = 0;

    for (; n > 0; n--) {
        sum += duration_ns(m, &w);
        w.ctx_tok += w.n_decode;
    }
    return sum;
}

/* All of its sequences have n tokens more: the first after first_ns, the others after at most
 * longest_ns each, the last one at end_ns. */
static void skip_steps(struct cluster_machine *m, int64_t n, int64_t first_ns,
                       int64_t longest_ns, int64_t end_ns)
{
    for (int i = 0; i < m->loop.n_batch; i++) {
        struct cluster_request *q = (struct cluster_request *)m->loop.batch[i];
        struct cluster_done *d = &q->d;
        int64_t gap = first_ns - d->last_ns;

        gap = longest_ns > gap ? longest_ns : gap;
        d->max_gap_ns = gap > d->max_gap_ns ? gap : d->max_gap_ns;
        d->last_ns = end_ns;
        d->n_tokens += n;
        q->kv_tok += n;
    }
    m->kv_used_tok += n * m->loop.n_batch;
    m->actual[CLUSTER_LOAD_REMAINING_TOK] -= n * m->loop.n_batch;
    m->cluster->stat.n_steps += n;
    sched_loop_skip(&m->loop, n);
}

/* Of the steps that it runs ahead, do those that end before t_ns, but for the last. Returns when
 * the present one ends. */
static int64_t catch_up(struct cluster_machine *m, int64_t t_ns)
{
    int64_t n_prompts = 0, n = 0, first_ns = 0, longest_ns = 0, end_ns = m->ahead_ns;
    struct cluster_work w = work_of(m, &n_prompts);
    int64_t step_ns = duration_ns(m, &w);

    while (n + 1 < m->n_ahead && end_ns + step_ns < t_ns) {
        end_ns += step_ns;
        if (n++ == 0)
            first_ns = end_ns;
        else
            longest_ns = step_ns > longest_ns ? step_ns : longest_ns;
        w.ctx_tok += w.n_decode;
        step_ns = duration_ns(m, &w);
    }
    if (n > 0)
        skip_steps(m, n, first_ns, longest_ns, end_ns);
    m->n_ahead = 1;
    return end_ns + step_ns;
}

void cluster_interrupt(struct cluster_machine *m)
{
    struct cluster *c = m->cluster;

    if (m->n_ahead > 1)
        cluster_fail(
            c, cluster_step_shorten(&c->steps, m->index, catch_up(m, c->events.now_ns)));
}

void cluster_start_step(struct cluster_machine *m)
{
    struct cluster *c = m->cluster;
    struct cluster_step s = {
        .machine = m->index, .pool = m->pool, .start_ns = c->events.now_ns};
    struct cluster_work w;
    int64_t step_ns;

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
    m->n_ahead = steps_ahead(m, s.n_prompts);
    m->ahead_ns = c->events.now_ns;
    step_ns = m->n_ahead > 1 ? ahead_ns(m, w, m->n_ahead) : duration_ns(m, &w);
    cluster_fail(c, cluster_step_begin(&c->steps, m->index,
                                       s.n_prompts > 0 ? CLUSTER_PROMPT : CLUSTER_TOKEN,
                                       step_ns));
    s.end_ns = c->steps.of[m->index].end_ns;
    c->stat.n_steps++;
    for (int i = 0; i < m->loop.n_batch; i++)
        cluster_send_early((struct cluster_request *)m->loop.batch[i],
                           s.end_ns - s.start_ns);
    cluster_write_log(c, "step", m->index, s.n_prompt_tok, s.n_decode);
    if (c->o.observer.step)
        c->o.observer.step(c->o.observer.ctx, &s);
}

static void new_token(struct cluster_machine *m, struct cluster_request *q)
{
    struct cluster_done *d = &q->d;
    int64_t now = m->cluster->events.now_ns;
    bool was_prompt = q->prompting;

    if (was_prompt) {
        q->prompting = false;
        d->n_prompts++;
        m->actual[CLUSTER_LOAD_PROMPT_TOK] -= q->prompt_tok;
        m->actual[CLUSTER_LOAD_REQUESTS] -= !q->has_tokens || q->t != m;
        m->n_tasks[CLUSTER_PROMPT]--;
    } else {
        m->actual[CLUSTER_LOAD_REMAINING_TOK]--;
    }
    if (d->n_tokens == 0)
        d->first_ns = now;
    else if (now - d->last_ns > d->max_gap_ns)
        d->max_gap_ns = now - d->last_ns;
    d->last_ns = now;
    d->n_tokens++;
    q->r.ended = d->n_tokens >= d->n_output || (was_prompt && q->t != m);
}

void cluster_end_step(struct cluster_machine *m)
{
    if (m->n_ahead > 1)
        catch_up(m, m->cluster->events.now_ns);
    cluster_fail(m->cluster, cluster_step_end(&m->cluster->steps, m->index));
    for (int i = 0; i < m->loop.n_batch; i++)
        if (sched_loop_computed(&m->loop, m->loop.batch[i]))
            new_token(m, (struct cluster_request *)m->loop.batch[i]);
    sched_loop_age(&m->loop);
    sched_loop_drop(&m->loop);
    if (!m->cluster->o.quirks.retry)
        cluster_serve_inbox(m); /* there are fewer sequences */
    if (m->cluster->o.report_ns == 0)
        cluster_maybe_return(m);
    cluster_start_step(m);
}
