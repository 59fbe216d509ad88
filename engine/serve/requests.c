/* Requests outside of the loop: those that were submitted and wait in the queue, and those that
 * begin or go on in another engine, in the list s->outside. Only the stepping thread changes that
 * list, under the lock. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ranks/procs.h"
#include "serve/engine.h"
#include "serve/handoff.h"

/* ---- the functions for other threads ---- */

void serve_seq_free(struct serve_seq *q)
{
    if (!q)
        return;
    sampler_close(&q->sampler);
    grammar_matcher_close(&q->matcher);
    mem_free(q->ids);
    mem_free(q);
}

static int open_matcher(struct serve_seq *q, const struct serve_engine *s,
                        const struct serve_grammar *g)
{
    if (!s->vocab)
        return err_set(ERR_UNSUPPORTED, "grammar: %s has no %s", s->api.o.model,
                       s->api.tok ? "token that ends a text" : "tokenizer");
    return grammar_matcher_open(&q->matcher, s->vocab,
                                g->is_schema ? GRAMMAR_SCHEMA : GRAMMAR_GBNF, g->text,
                                g->n, g->at_start && s->api.tok);
}

/* The sampler of a request, which knows the prompt and what was chosen before. */
static int open_sampler(struct serve_seq *q, const struct serve_engine *s,
                        const struct serve_request *r)
{
    const struct serve_sampling *x = &r->sampling;
    int32_t ends[MODEL_STOP_MAX + TOK_STOP_MAX + SERVE_STOP_IDS_MAX];
    struct sampler_opts o = {.temperature = x->temperature,
                             .top_k = x->top_k,
                             .top_p = x->top_p,
                             .min_p = x->min_p,
                             .seed = x->seed,
                             .typical_p = x->typical_p,
                             .repetition_penalty = x->repetition_penalty,
                             .presence_penalty = x->presence_penalty,
                             .frequency_penalty = x->frequency_penalty,
                             .bias = r->bias,
                             .n_bias = r->n_bias,
                             .late = ends,
                             .n_late = serve_ends(&s->api, r, ends),
                             .min_new = r->min_new};

    if (r->grammar.text) {
        TRY(open_matcher(q, s, &r->grammar));
        o.constraint =
            (struct sampler_constraint){grammar_allowed, grammar_take, q->matcher};
    }
    TRY(sampler_open(&q->sampler, &o, serve_vocab(&s->api), model_kern(s->model)));
    sampler_prompt(q->sampler, r->prompt, r->n_prompt - r->n_drawn);
    for (int64_t i = r->n_prompt - r->n_drawn; i < r->n_prompt; i++)
        sampler_skip(q->sampler, r->prompt[i]);
    return OK;
}

static int make_seq(struct serve_seq **out, struct serve_engine *s,
                    const struct serve_request *r)
{
    struct serve_seq *q = mem_new(MEM_OTHER, 1, sizeof(*q));
    int rc = ERR_NOMEM;

    if (!q)
        goto out;
    q->ids = mem_new(MEM_OTHER, (size_t)(r->n_prompt + r->max_new), sizeof(q->ids[0]));
    if (!q->ids)
        goto out;
    memcpy(q->ids, r->prompt, (size_t)r->n_prompt * sizeof(q->ids[0]));
    rc = open_sampler(q, s, r);
    if (rc != OK)
        goto out;
    q->r.n_prompt = r->n_prompt - r->n_scored;
    q->r.max_new = r->max_new + r->n_scored;
    q->n_scored = r->n_scored;
    q->ignore_eos = r->ignore_eos;
    q->n_stop_ids = r->n_stop_ids;
    for (int i = 0; i < r->n_stop_ids; i++)
        q->stop_ids[i] = r->stop_ids[i];
    q->on_token = r->on_token;
    q->n_reused = r->n_reused;
    q->started_ns = r->started_ns;
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

int serve_engine_submit(struct serve *api, const struct serve_request *r, int64_t *id)
{
    struct serve_engine *s = serve_engine_of(api);
    struct serve_seq *q;

    *id = -1;
    TRY(serve_check_request(api, r));
    if (r->handoff && r->handoff->slot && model_procs_n(s->model) > 0)
        return err_set(ERR_UNSUPPORTED,
                       "request: memory of another process: ranks that are processes do "
                       "not map it (rank_mode threads does)");
    TRY(make_seq(&q, s, r));
    pthread_mutex_lock(&s->lock);
    *id = q->r.id = s->n_submitted++;
    *s->queue_tail = q;
    s->queue_tail = &q->next;
    pthread_cond_signal(&s->submitted);
    pthread_mutex_unlock(&s->lock);
    return OK;
}

static struct serve_seq *find(struct serve_engine *s, int64_t request)
{
    for (struct serve_seq *q = s->outside; q; q = q->next)
        if (q->r.id == request)
            return q;
    for (struct serve_seq *q = s->queue_head; q; q = q->next)
        if (q->r.id == request)
            return q;
    for (int i = 0; i < s->loop.n_live; i++)
        if (s->loop.live[i]->id == request)
            return (struct serve_seq *)s->loop.live[i];
    return NULL;
}

void serve_engine_cancel(struct serve *api, int64_t id)
{
    struct serve_engine *s = serve_engine_of(api);
    struct serve_seq *q;

    pthread_mutex_lock(&s->lock);
    q = find(s, id);
    if (q)
        q->canceled = true;
    pthread_mutex_unlock(&s->lock);
}

void serve_engine_wait(struct serve *api, uint64_t timeout_ns)
{
    struct serve_engine *s = serve_engine_of(api);
    uint64_t now = clock_ns(), until = now + timeout_ns;
    struct timespec t;

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

void serve_engine_wake(struct serve *api)
{
    struct serve_engine *s = serve_engine_of(api);

    pthread_mutex_lock(&s->lock);
    s->woken = true;
    pthread_cond_signal(&s->submitted);
    pthread_mutex_unlock(&s->lock);
}

static int not_found(int64_t request)
{
    return err_set(ERR_NOTFOUND, "request %lld: there is no such request",
                   (long long)request);
}

static int arrive(struct serve_seq *q, int64_t request, int32_t first_id)
{
    if (!q || q->handoff.side != SERVE_TOKEN_SIDE)
        return not_found(request);
    if (q->arrived)
        return err_set(ERR_STATE, "request %lld: its keys and values have arrived before",
                       (long long)request);
    if (!q->has_memory)
        return err_set(ERR_STATE,
                       "request %lld: keys and values arrive before it has "
                       "memory for them",
                       (long long)request);
    q->ids[q->r.n_prompt] = first_id;
    q->arrived = true;
    return OK;
}

int serve_arrived(struct serve *api, int64_t request, int32_t first_id)
{
    struct serve_engine *s = serve_engine_of(api);
    int rc;

    if (first_id < 0 || first_id >= serve_vocab(&s->api))
        return err_set(ERR_ARG, "request %lld: first token: id %d outside [0, %d)",
                       (long long)request, first_id, serve_vocab(&s->api));
    pthread_mutex_lock(&s->lock);
    rc = arrive(find(s, request), request, first_id);
    pthread_mutex_unlock(&s->lock);
    serve_wake(api);
    return rc;
}

int serve_release(struct serve *api, int64_t request)
{
    struct serve_engine *s = serve_engine_of(api);
    struct serve_seq *q;
    int rc = OK;

    pthread_mutex_lock(&s->lock);
    q = find(s, request);
    if (!q || q->handoff.side == 0)
        rc = not_found(request);
    else if (q->handoff.side == SERVE_TOKEN_SIDE && q->arrived)
        rc = err_set(ERR_STATE, "request %lld goes on with the memory",
                     (long long)request);
    else
        q->released = true;
    pthread_mutex_unlock(&s->lock);
    serve_wake(api);
    return rc;
}

const struct kv_pool *serve_pool(const struct serve *s)
{
    return ((const struct serve_engine *)s)->pool;
}

void serve_kv_shape(const struct serve *s, struct kv_shape *out)
{
    model_kv_shape(((const struct serve_engine *)s)->model, out);
}

/* ---- the stepping thread: the queue ---- */

/* With the lock held. */
static void outside_add(struct serve_engine *s, struct serve_seq *q)
{
    struct serve_seq **tail = &s->outside;

    while (*tail)
        tail = &(*tail)->next;
    q->next = NULL;
    *tail = q;
}

void serve_take_queue(struct serve_engine *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->queue_head && s->loop.n_live < SERVE_VIEW_MAX) {
        struct serve_seq *q = s->queue_head;
        int rc = OK;

        s->queue_head = q->next;
        if (!s->queue_head)
            s->queue_tail = &s->queue_head;
        if (q->handoff.side == SERVE_TOKEN_SIDE)
            outside_add(s, q);
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
    struct serve_engine *s = ctx;

    if (q->handoff.side != SERVE_PROMPT_SIDE)
        serve_learn(s, q);
    if (q->kv.base && !q->released) {
        q->has_memory = true;
        sched_loop_hold(&s->loop, 1);
        outside_add(s, q);
        return;
    }
    serve_seq_give_back(s, q);
    serve_seq_free(q);
}

void serve_drop_ended(struct serve_engine *s)
{
    pthread_mutex_lock(&s->lock);
    sched_loop_drop(&s->loop);
    pthread_mutex_unlock(&s->lock);
    s->n_used_tok = s->loop.used_tok;
    s->n_preempted = s->loop.n_preempted;
    s->n_recomputed_tok = s->loop.n_recomputed_tok;
}

/* ---- the stepping thread: requests that another engine began or goes on with ---- */

/* Its memory, if it has any, is not counted as held any more: it is the loop's, or released. */
static void leave(struct serve_engine *s, struct serve_seq **at)
{
    struct serve_seq *q = *at;

    pthread_mutex_lock(&s->lock);
    *at = q->next;
    q->next = NULL;
    if (q->has_memory)
        sched_loop_hold(&s->loop, -1);
    pthread_mutex_unlock(&s->lock);
}

static void leave_and_free(struct serve_engine *s, struct serve_seq **at)
{
    struct serve_seq *q = *at;

    leave(s, at);
    serve_seq_give_back(s, q);
    serve_seq_free(q);
}

/* Memory for the prompt and what follows, in turn: after those that came before and wait in the
 * loop. *short_of_memory: nobody that comes later gets any in this step. */
static void reserve(struct serve_engine *s, struct serve_seq *q, bool *short_of_memory)
{
    const struct kv_need need = serve_need(s, q);
    int64_t n_used = s->loop.n_seqs + s->loop.n_held;
    int rc;

    for (int i = 0; i < s->loop.n_live && !*short_of_memory; i++) {
        const struct sched_request *r = s->loop.live[i];

        *short_of_memory =
            r->n_waited > 0 || (r->state == SCHED_WAITING && r->id < q->r.id);
    }
    *short_of_memory = *short_of_memory || n_used >= s->api.o.max_seqs;
    if (*short_of_memory)
        return;
    rc = serve_kv_reserve(s, &need, &q->kv);
    if (rc == ERR_NOMEM && n_used > 0) {
        err_clear();
        *short_of_memory = true;
    } else if (rc != OK) {
        serve_seq_end(q, -1, NULL, SERVE_ERROR);
    } else {
        pthread_mutex_lock(&s->lock);
        q->has_memory = true;
        sched_loop_hold(&s->loop, 1);
        pthread_mutex_unlock(&s->lock);
        if (q->handoff.on_memory)
            q->handoff.on_memory(q->handoff.ctx, q->r.id, &q->kv);
    }
}

/* It goes on as a request that was begun elsewhere. */
static void join_loop(struct serve_engine *s, struct serve_seq **at)
{
    struct serve_seq *q = *at;
    int rc;

    leave(s, at);
    q->r.n_new = 1;
    q->r.n_ctx = q->r.n_prompt;
    sampler_skip(q->sampler, q->ids[q->r.n_prompt]);
    pthread_mutex_lock(&s->lock);
    rc = sched_loop_add(&s->loop, &q->r);
    pthread_mutex_unlock(&s->lock);
    assert(rc == OK); /* it was opened for as many */
    (void)rc;
}

/* One request of the list; true: it has left it. */
static bool advance(struct serve_engine *s, struct serve_seq **at, bool *short_of_memory)
{
    struct serve_seq *q = *at;
    bool arrived, released;

    pthread_mutex_lock(&s->lock);
    arrived = q->arrived;
    released = q->released;
    pthread_mutex_unlock(&s->lock);
    if (!q->r.ended && (q->canceled || released))
        serve_seq_end(q, -1, NULL, SERVE_CANCELED);
    if (!q->r.ended && !q->has_memory)
        reserve(s, q, short_of_memory);
    if (q->r.ended && (arrived || released || !q->has_memory))
        leave_and_free(s, at);
    else if (arrived && s->loop.n_live < SERVE_VIEW_MAX)
        join_loop(s, at);
    else
        return false;
    return true;
}

bool serve_outside_step(struct serve_engine *s)
{
    bool short_of_memory = false, any = false;

    for (struct serve_seq **at = &s->outside; *at;) {
        if (advance(s, at, &short_of_memory))
            any = true;
        else
            at = &(*at)->next;
    }
    return any;
}

void serve_outside_close(struct serve_engine *s)
{
    while (s->outside) {
        struct serve_seq *q = s->outside;

        if (!q->r.ended)
            serve_seq_end(q, -1, NULL, SERVE_CANCELED);
        leave_and_free(s, &s->outside);
    }
}
