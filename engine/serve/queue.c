/* The way in, for any thread: submit, cancel, wait. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ranks/procs.h"
#include "serve/impl.h"

void serve_seq_free(struct serve_seq *q)
{
    if (!q)
        return;
    sampler_close(&q->sampler);
    mem_free(q->ids);
    mem_free(q);
}

static int check_request(const struct serve *s, const struct serve_request *r)
{
    int vocab = serve_vocab(s);

    if (r->n_prompt < 1 || r->max_new < 0 || r->max_new + r->n_scored < 1 || !r->on_token)
        return err_set(ERR_ARG, "request: %lld prompt tokens, %lld new: expected >= 1",
                       (long long)r->n_prompt, (long long)r->max_new);
    if (r->n_scored < 0 || r->n_scored >= r->n_prompt)
        return err_set(ERR_ARG,
                       "request: %lld of %lld prompt tokens scored: expected fewer",
                       (long long)r->n_scored, (long long)r->n_prompt);
    if (r->n_drawn < 0 || r->n_drawn >= r->n_prompt)
        return err_set(ERR_ARG,
                       "request: %lld of %lld prompt tokens drawn before: expected fewer",
                       (long long)r->n_drawn, (long long)r->n_prompt);
    if (r->n_scored > 0 && (r->handoff || s->front.submit))
        return err_set(ERR_UNSUPPORTED,
                       "request: %lld prompt tokens scored: only by an "
                       "engine that computes all of it in this process",
                       (long long)r->n_scored);
    if (r->n_prompt > s->max_tok || r->max_new > s->max_tok - r->n_prompt)
        return err_set(ERR_LIMIT,
                       "request: %lld prompt and %lld new tokens: expected at most %lld "
                       "together; %s",
                       (long long)r->n_prompt, (long long)r->max_new,
                       (long long)s->max_tok,
                       s->max_tok == s->o.kv_budget_tok
                           ? "--kv-budget-tok (kv_budget_tok) raises this"
                           : "--max-tok (max_tok) raises this up to the model's limit");
    if (r->handoff && r->handoff->side == SERVE_PROMPT_SIDE && r->max_new != 1)
        return err_set(ERR_ARG,
                       "request: %lld new tokens: the prompt side computes 1, the first",
                       (long long)r->max_new);
    if (r->handoff && r->handoff->slot && model_procs_n(s->model) > 0)
        return err_set(ERR_UNSUPPORTED,
                       "request: memory of another process: ranks that are processes do "
                       "not map it (rank_mode threads does)");
    for (int64_t i = 0; i < r->n_prompt; i++) {
        if (r->prompt[i] < 0 || r->prompt[i] >= vocab)
            return err_set(ERR_ARG, "request: prompt token %lld: id %d outside [0, %d)",
                           (long long)i, r->prompt[i], vocab);
    }
    return OK;
}

static int make_seq(struct serve_seq **out, struct serve *s,
                    const struct serve_request *r)
{
    const struct sampler_opts so = {.temperature = r->sampling.temperature,
                                    .top_k = r->sampling.top_k,
                                    .top_p = r->sampling.top_p,
                                    .min_p = r->sampling.min_p,
                                    .seed = r->sampling.seed};
    struct serve_seq *q = mem_new(MEM_OTHER, 1, sizeof(*q));
    int rc = ERR_NOMEM;

    if (!q)
        goto out;
    q->ids = mem_new(MEM_OTHER, (size_t)(r->n_prompt + r->max_new), sizeof(q->ids[0]));
    if (!q->ids)
        goto out;
    memcpy(q->ids, r->prompt, (size_t)r->n_prompt * sizeof(q->ids[0]));
    rc = sampler_open(&q->sampler, &so, serve_vocab(s), model_kern(s->model));
    if (rc != OK)
        goto out;
    for (int64_t i = 0; i < r->n_drawn; i++)
        sampler_skip(q->sampler);
    q->r.n_prompt = r->n_prompt - r->n_scored;
    q->r.max_new = r->max_new + r->n_scored;
    q->n_scored = r->n_scored;
    q->ignore_eos = r->ignore_eos;
    q->on_token = r->on_token;
    q->n_reused = r->n_reused;
    q->ctx = r->ctx;
    if (r->handoff)
        q->handoff = *r->handoff;
    if (q->handoff.slot)
        q->kv_elsewhere = *q->handoff.slot;
    q->r.pinned = q->handoff.side == SERVE_PROMPT_SIDE;
    rc = serve_predict(s, q);
    if (rc != OK)
        goto out;
    *out = q, q = NULL;
out:
    serve_seq_free(q);
    return rc;
}

int serve_submit(struct serve *s, const struct serve_request *r, int64_t *id)
{
    struct serve_seq *q = NULL;
    int rc;

    *id = -1;
    rc = check_request(s, r);
    if (rc == OK && s->front.submit)
        return s->front.submit(s->front.ctx, r, id);
    if (rc == OK)
        rc = make_seq(&q, s, r);
    if (rc != OK)
        return rc;
    pthread_mutex_lock(&s->lock);
    *id = q->r.id = s->n_submitted++;
    *s->queue_tail = q;
    s->queue_tail = &q->next;
    pthread_cond_signal(&s->submitted);
    pthread_mutex_unlock(&s->lock);
    return OK;
}

void serve_cancel(struct serve *s, int64_t id)
{
    if (s->front.cancel) {
        s->front.cancel(s->front.ctx, id);
        return;
    }
    pthread_mutex_lock(&s->lock);
    for (struct serve_seq *q = s->queue_head; q; q = q->next)
        if (q->r.id == id)
            q->canceled = true;
    for (int i = 0; i < s->loop.n_live; i++)
        if (s->loop.live[i]->id == id)
            ((struct serve_seq *)s->loop.live[i])->canceled = true;
    for (struct serve_seq *q = s->outside; q; q = q->next)
        if (q->r.id == id)
            q->canceled = true;
    pthread_mutex_unlock(&s->lock);
}

void serve_take_queue(struct serve *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->queue_head && s->loop.n_live < SERVE_VIEW_MAX) {
        struct serve_seq *q = s->queue_head;
        int rc = OK;

        s->queue_head = q->next;
        if (!s->queue_head)
            s->queue_tail = &s->queue_head;
        if (q->handoff.side == SERVE_TOKEN_SIDE)
            serve_outside_add(s, q);
        else
            rc = sched_loop_add(&s->loop, &q->r);
        assert(rc == OK); /* it was opened for as many */
        (void)rc;
    }
    pthread_mutex_unlock(&s->lock);
}

void serve_seq_drop(void *ctx, struct sched_request *r)
{
    struct serve_seq *q = (struct serve_seq *)r;
    struct serve *s = ctx;

    if (q->handoff.side != SERVE_PROMPT_SIDE)
        serve_learn(s, q);
    if (q->kv.base && !q->released) {
        q->has_memory = true;
        sched_loop_hold(&s->loop, 1);
        serve_outside_add(s, q);
        return;
    }
    serve_seq_give_back(s, q);
    serve_seq_free(q);
}

void serve_drop_ended(struct serve *s)
{
    pthread_mutex_lock(&s->lock);
    sched_loop_drop(&s->loop);
    pthread_mutex_unlock(&s->lock);
    s->n_used_tok = s->loop.used_tok;
    s->n_preempted = s->loop.n_preempted;
    s->n_recomputed_tok = s->loop.n_recomputed_tok;
}

void serve_wait(struct serve *s, uint64_t timeout_ns)
{
    uint64_t now = clock_ns(), until = now + timeout_ns;
    struct timespec t;

    if (s->front.wait) {
        s->front.wait(s->front.ctx, timeout_ns);
        return;
    }
    if (until < now) /* "for ever" */
        until = UINT64_MAX;
    t.tv_sec = (time_t)(until / 1000000000);
    t.tv_nsec = (long)(until % 1000000000);
    pthread_mutex_lock(&s->lock);
    while (!s->queue_head && (s->loop.n_live == 0 || s->waits) && !s->woken)
        if (pthread_cond_timedwait(&s->submitted, &s->lock, &t) == ETIMEDOUT)
            break;
    s->woken = false;
    pthread_mutex_unlock(&s->lock);
}

void serve_wake(struct serve *s)
{
    if (s->front.wake) {
        s->front.wake(s->front.ctx);
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->woken = true;
    pthread_cond_signal(&s->submitted);
    pthread_mutex_unlock(&s->lock);
}
