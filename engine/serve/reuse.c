/* Prompts that begin like a sequence before them: system prompts, the turns of a conversation. A
 * sequence that has ended keeps its memory until it is needed. A request that begins with the same
 * tokens copies their keys and values, whatever the allocator's layout; it goes on in that memory
 * where it needs all that is there, or where there is no other. Tokens are compared, not hashes of
 * them. Copying a token's keys and values takes some microseconds, computing them hundreds. */
#include <string.h>

#include "base/mem.h"
#include "kv/slot_runs.h"
#include "ranks/procs.h"
#include "serve/impl.h"

#define SHORTEST_TOK 16 /* fewer are computed as fast as they are looked for */

/* ---- what is kept ---- */

/* Without its memory. */
static void forget(struct serve_reuse *u, struct serve_kept *k)
{
    u->kept_tok -= k->kv.n_tok;
    mem_free(k->ids);
    *k = u->kept[--u->n_kept];
}

static void give_up(struct serve *s, struct serve_kept *k)
{
    struct kv_slot kv = k->kv;

    forget(&s->reuse, k);
    kv_release(s->pool, &kv);
}

/* Of more than n_left, the one that was used least recently. false: there are no more. */
static bool give_up_oldest(struct serve *s, int n_left)
{
    struct serve_reuse *u = &s->reuse;
    struct serve_kept *oldest = u->kept;

    if (u->n_kept <= n_left)
        return false;
    for (struct serve_kept *k = u->kept; k < u->kept + u->n_kept; k++)
        if (k->used_at < oldest->used_at)
            oldest = k;
    give_up(s, oldest);
    return true;
}

static int64_t n_alike(const int32_t *a, int64_t n_a, const int32_t *b, int64_t n_b)
{
    int64_t n = n_a < n_b ? n_a : n_b, i = 0;

    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* One that begins with the ids; those that it goes on from are not needed any more. */
static struct serve_kept *find_continued(struct serve *s, const int32_t *ids, int64_t n)
{
    struct serve_reuse *u = &s->reuse;

    for (int i = 0; i < u->n_kept;) {
        struct serve_kept *k = &u->kept[i];
        int64_t alike = n_alike(k->ids, k->n_tok, ids, n);

        if (alike == n)
            return k;
        if (alike == k->n_tok)
            give_up(s, k); /* another takes its place */
        else
            i++;
    }
    return NULL;
}

void serve_reuse_keep(struct serve *s, struct serve_seq *q)
{
    struct serve_reuse *u = &s->reuse;
    struct serve_kept *k;

    if (!s->o.kv_reuse || q->handoff.side || q->finish == SERVE_ERROR ||
        q->r.n_ctx < SHORTEST_TOK) {
        kv_release(s->pool, &q->kv);
        return;
    }
    k = find_continued(s, q->ids, q->r.n_ctx);
    if (k) {
        k->used_at = ++u->clock;
        kv_release(s->pool, &q->kv);
        return;
    }
    if (u->n_kept == SERVE_KEPT_MAX)
        (void)give_up_oldest(s, SERVE_KEPT_MAX - 1);
    u->kept[u->n_kept++] = (struct serve_kept){
        .kv = q->kv, .ids = q->ids, .n_tok = q->r.n_ctx, .used_at = ++u->clock};
    u->kept_tok += q->kv.n_tok;
    q->kv = (struct kv_slot){0};
    q->ids = NULL;
}

void serve_reuse_close(struct serve *s)
{
    while (s->reuse.n_kept > 0)
        give_up(s, s->reuse.kept);
}

/* ---- memory ---- */

static int reserve(struct serve *s, const struct kv_need *need, struct kv_slot *out,
                   int n_left)
{
    int rc = kv_reserve(s->pool, need, out);

    while (rc == ERR_NOMEM && give_up_oldest(s, n_left)) {
        err_clear();
        rc = kv_reserve(s->pool, need, out);
    }
    return rc;
}

int serve_kv_reserve(struct serve *s, const struct kv_need *need, struct kv_slot *out)
{
    return reserve(s, need, out, 0);
}

int serve_kv_grow(struct serve *s, struct kv_slot *kv, int64_t used_tok, int64_t n_tok)
{
    int rc = kv_grow(s->pool, kv, used_tok, n_tok);

    while (rc == ERR_NOMEM && give_up_oldest(s, 0)) {
        err_clear();
        rc = kv_grow(s->pool, kv, used_tok, n_tok);
    }
    return rc;
}

/* ---- a request that begins alike ---- */

/* Whether one has enough of the request's tokens; *n_tok: how many. It is the latest used then. */
static bool find_alike(struct serve *s, const struct serve_seq *q, int64_t *n_tok)
{
    struct serve_reuse *u = &s->reuse;
    struct serve_kept *best = NULL;
    int64_t n_known = sched_request_n_known(&q->r);

    *n_tok = SHORTEST_TOK - 1;
    for (struct serve_kept *k = u->kept; k < u->kept + u->n_kept; k++) {
        int64_t n = n_alike(k->ids, k->n_tok, q->ids, n_known - 1);

        if (n > *n_tok)
            *n_tok = n, best = k;
    }
    if (best)
        best->used_at = ++u->clock;
    return best;
}

static struct serve_kept *latest(struct serve_reuse *u)
{
    struct serve_kept *k = u->kept;

    while (k->used_at != u->clock)
        k++;
    return k;
}

struct copying {
    const struct kv_slot *to, *from;
    struct kv_shape shape;
    int64_t n_tok;
};

static void copy_layers(void *arg, struct par_self *self)
{
    const struct copying *c = arg;

    for (int i = self->id; i < c->shape.n_layers; i += self->n)
        kv_slot_copy(c->to, c->from, &c->shape, i, 0, c->n_tok, NULL);
}

static void copy(struct serve *s, const struct kv_slot *to, const struct kv_slot *from,
                 int64_t n_tok)
{
    struct copying c = {.to = to, .from = from, .n_tok = n_tok};
    struct par_team *team = model_team(s->model);

    model_kv_shape(s->model, &c.shape);
    par_team_run(team, par_team_size(team), copy_layers, &c);
}

/* The request goes on in the memory of the one that is kept. */
static int take_over(struct serve *s, struct serve_kept *k, const struct kv_need *need,
                     struct kv_slot *out, int64_t *n_tok)
{
    int rc;

    *out = k->kv;
    forget(&s->reuse, k);
    rc = serve_kv_grow(s, out, *n_tok, kv_need_tok(s->pool, need));
    if (rc == OK)
        return OK;
    kv_release(s->pool, out);
    *n_tok = 0;
    if (rc != ERR_NOMEM)
        return rc;
    err_clear(); /* together with what is free it may do */
    return serve_kv_reserve(s, need, out);
}

/* Memory with the n_tok tokens of the latest that was used; *n_tok 0: without them. */
static int reserve_alike(struct serve *s, const struct kv_need *need, struct kv_slot *out,
                         int64_t *n_tok)
{
    struct serve_reuse *u = &s->reuse;
    int rc;

    if (*n_tok == latest(u)->n_tok) /* nobody loses by it */
        return take_over(s, latest(u), need, out, n_tok);
    rc = reserve(s, need, out, 1);
    if (rc == OK)
        copy(s, out, &latest(u)->kv, *n_tok);
    if (rc != ERR_NOMEM)
        return rc;
    err_clear();
    return take_over(s, latest(u), need, out, n_tok);
}

int serve_reuse_reserve(struct serve *s, struct serve_seq *q)
{
    const struct kv_need need = serve_need(s, q);
    int64_t n_tok;
    int rc;

    if (q->handoff.side || !find_alike(s, q, &n_tok))
        return serve_kv_reserve(s, &need, &q->kv);
    rc = reserve_alike(s, &need, &q->kv, &n_tok);
    if (rc == OK && n_tok > 0) {
        q->r.n_ctx = n_tok;
        s->reuse.n_requests++;
        s->reuse.n_tok += n_tok;
        if (q->n_reused && q->r.n_preempted == 0)
            *q->n_reused = n_tok;
    }
    return rc;
}
