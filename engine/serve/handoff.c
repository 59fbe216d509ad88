/* Requests that begin or go on in another engine: those that are not in the loop. They are in the
 * list s->outside, which only the stepping thread changes, under the lock. */
#include "serve/handoff.h"

#include <assert.h>

#include "base/mem.h"
#include "serve/impl.h"

/* ---- the functions for other threads ---- */

static struct serve_seq *find(struct serve *s, int64_t request)
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

int serve_arrived(struct serve *s, int64_t request, int32_t first_id)
{
    int rc;

    if (first_id < 0 || first_id >= serve_vocab(s))
        return err_set(ERR_ARG, "request %lld: first token: id %d outside [0, %d)",
                       (long long)request, first_id, serve_vocab(s));
    pthread_mutex_lock(&s->lock);
    rc = arrive(find(s, request), request, first_id);
    pthread_mutex_unlock(&s->lock);
    serve_wake(s);
    return rc;
}

int serve_release(struct serve *s, int64_t request)
{
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
    serve_wake(s);
    return rc;
}

const struct kv_pool *serve_pool(const struct serve *s)
{
    return s->pool;
}

void serve_kv_shape(const struct serve *s, struct kv_shape *out)
{
    model_kv_shape(s->model, out);
}

/* ---- the stepping thread ---- */

static void on_stored(void *ctx, int layer)
{
    struct serve *s = ctx;

    for (int i = 0; i < s->loop.n_batch; i++) {
        const struct serve_seq *q = (struct serve_seq *)s->loop.batch[i];
        const struct model_chunk *c = &s->chunks[i];

        if (q->handoff.on_layer)
            q->handoff.on_layer(q->handoff.ctx, q->r.id, c->kv, layer, c->pos0,
                                c->pos0 + c->n_tok);
    }
}

void serve_announce_layers(struct serve *s, struct model_phase *phase)
{
    bool any = false;

    for (int i = 0; i < s->loop.n_batch; i++)
        any = any || ((struct serve_seq *)s->loop.batch[i])->handoff.on_layer;
    model_phase_stored_set(phase, any ? on_stored : NULL, s);
}

void serve_outside_add(struct serve *s, struct serve_seq *q)
{
    struct serve_seq **tail = &s->outside;

    while (*tail)
        tail = &(*tail)->next;
    q->next = NULL;
    *tail = q;
}

/* Its memory, if it has any, is not counted as held any more: it is the loop's, or released. */
static void leave(struct serve *s, struct serve_seq **at)
{
    struct serve_seq *q = *at;

    pthread_mutex_lock(&s->lock);
    *at = q->next;
    q->next = NULL;
    if (q->has_memory)
        sched_loop_hold(&s->loop, -1);
    pthread_mutex_unlock(&s->lock);
}

static void leave_and_free(struct serve *s, struct serve_seq **at)
{
    struct serve_seq *q = *at;

    leave(s, at);
    serve_seq_give_back(s, q);
    serve_seq_free(q);
}

/* Memory for the prompt and what follows, in turn: after those that came before and wait in the
 * loop. *short_of_memory: nobody that comes later gets any in this step. */
static void reserve(struct serve *s, struct serve_seq *q, bool *short_of_memory)
{
    const struct kv_need need = serve_need(s, q);
    int64_t n_used = s->loop.n_seqs + s->loop.n_held;
    int rc;

    for (int i = 0; i < s->loop.n_live && !*short_of_memory; i++) {
        const struct sched_request *r = s->loop.live[i];

        *short_of_memory =
            r->n_waited > 0 || (r->state == SCHED_WAITING && r->id < q->r.id);
    }
    *short_of_memory = *short_of_memory || n_used >= s->o.max_seqs;
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
static void join_loop(struct serve *s, struct serve_seq **at)
{
    struct serve_seq *q = *at;
    int rc;

    leave(s, at);
    q->r.n_new = 1;
    q->r.n_ctx = q->r.n_prompt;
    sampler_skip(q->sampler);
    pthread_mutex_lock(&s->lock);
    rc = sched_loop_add(&s->loop, &q->r);
    pthread_mutex_unlock(&s->lock);
    assert(rc == OK); /* it was opened for as many */
    (void)rc;
}

/* One request of the list; true: it has left it. */
static bool advance(struct serve *s, struct serve_seq **at, bool *short_of_memory)
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

bool serve_outside_step(struct serve *s)
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

void serve_outside_close(struct serve *s)
{
    while (s->outside) {
        struct serve_seq *q = s->outside;

        if (!q->r.ended)
            serve_seq_end(q, -1, NULL, SERVE_CANCELED);
        leave_and_free(s, &s->outside);
    }
}
