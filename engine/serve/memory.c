/* Memory for keys and values: the pool as the serving loop (sched/loop.h) asks for it, and what is
 * reported of it.
 *
 * With kv_reuse a sequence that has ended keeps its memory until it is needed. A request that
 * begins with the same tokens, as prompts with the same system prompt and the turns of a
 * conversation do, copies their keys and values, whatever the allocator's layout; it goes on in
 * that memory where it needs all that is there, or where there is no other. Tokens are compared,
 * not hashes of them. Copying a token's keys and values takes some microseconds, computing them
 * hundreds. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/slot_runs.h"
#include "ranks/procs.h"
#include "serve/draft.h"

/* Steps for which others of the bucket that was admitted last may pass a request. The study
 * odma_replay uses the same number. */
#define MAX_AGE 256

#define SHORTEST_TOK 16 /* fewer are computed as fast as they are found */

/* ---- what is kept ---- */

/* Drop a kept sequence from the list; its memory is not released. */
static void forget(struct serve_reuse *u, struct serve_kept *k)
{
    u->kept_tok -= k->kv.n_tok;
    mem_free(k->ids);
    *k = u->kept[--u->n_kept];
}

static void give_up(struct serve_engine *s, struct serve_kept *k)
{
    struct kv_slot kv = k->kv;

    forget(&s->reuse, k);
    kv_release(s->pool, &kv);
}

/* Give up the least recently used kept sequence where there are more than n_left. false: there are
 * not. */
static bool give_up_oldest(struct serve_engine *s, int n_left)
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
static struct serve_kept *find_continued(struct serve_engine *s, const int32_t *ids,
                                         int64_t n)
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

static void keep(struct serve_engine *s, struct serve_seq *q)
{
    struct serve_reuse *u = &s->reuse;
    struct serve_kept *k;

    if (!s->api.o.kv_reuse || q->handoff.side || q->finish == SERVE_ERROR ||
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

void serve_reuse_close(struct serve_engine *s)
{
    while (s->reuse.n_kept > 0)
        give_up(s, s->reuse.kept);
}

/* ---- memory ---- */

static int reserve_slot(struct serve_engine *s, const struct kv_need *need,
                        struct kv_slot *out, int n_left)
{
    int rc = kv_reserve(s->pool, need, out);

    while (rc == ERR_NOMEM && give_up_oldest(s, n_left)) {
        err_clear();
        rc = kv_reserve(s->pool, need, out);
    }
    return rc;
}

int serve_kv_reserve(struct serve_engine *s, const struct kv_need *need,
                     struct kv_slot *out)
{
    return reserve_slot(s, need, out, 0);
}

static int grow_slot(struct serve_engine *s, struct kv_slot *kv, int64_t used_tok,
                     int64_t n_tok)
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
static bool find_alike(struct serve_engine *s, const struct serve_seq *q, int64_t *n_tok)
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

static void copy(struct serve_engine *s, const struct kv_slot *to,
                 const struct kv_slot *from, int64_t n_tok)
{
    struct copying c = {.to = to, .from = from, .n_tok = n_tok};
    struct par_team *team = model_team(s->model);

    model_kv_shape(s->model, &c.shape);
    par_team_run(team, par_team_size(team), copy_layers, &c);
}

/* The request goes on in the memory of the one that is kept. */
static int take_over(struct serve_engine *s, struct serve_kept *k,
                     const struct kv_need *need, struct kv_slot *out, int64_t *n_tok)
{
    int rc;

    *out = k->kv;
    forget(&s->reuse, k);
    rc = grow_slot(s, out, *n_tok, kv_need_tok(s->pool, need));
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
static int reserve_alike(struct serve_engine *s, const struct kv_need *need,
                         struct kv_slot *out, int64_t *n_tok)
{
    struct serve_reuse *u = &s->reuse;
    int rc;

    if (*n_tok == latest(u)->n_tok) /* nobody loses by it */
        return take_over(s, latest(u), need, out, n_tok);
    rc = reserve_slot(s, need, out, 1);
    if (rc == OK)
        copy(s, out, &latest(u)->kv, *n_tok);
    if (rc != ERR_NOMEM)
        return rc;
    err_clear();
    return take_over(s, latest(u), need, out, n_tok);
}

static int reserve_request(struct serve_engine *s, struct serve_seq *q)
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

/* ---- what the loop asks for ---- */

static int64_t free_tok(void *ctx)
{
    struct serve_engine *s = ctx;
    struct kv_stat kv;

    kv_pool_stat(s->pool, &kv);
    return kv.limit_tok - kv.reserved_tok + s->reuse.kept_tok;
}

static int64_t need_tok(void *ctx, const struct sched_request *r)
{
    struct serve_engine *s = ctx;
    const struct kv_need need = serve_need(s, (const struct serve_seq *)r);

    if (((const struct serve_seq *)r)->handoff.slot)
        return 0;
    return kv_need_tok(s->pool, &need);
}

static int bucket(void *ctx, const struct sched_request *r)
{
    struct serve_engine *s = ctx;
    const struct kv_need need = serve_need(s, (const struct serve_seq *)r);

    return kv_bucket(s->pool, &need);
}

static int reserve(void *ctx, struct sched_request *r)
{
    struct serve_engine *s = ctx;
    struct serve_seq *q = (struct serve_seq *)r;
    int rc = OK;

    if (q->handoff.slot)
        q->kv = q->kv_elsewhere;
    else
        rc = reserve_request(s, q);
    if (rc == OK && q->started_ns && *q->started_ns == 0)
        *q->started_ns = clock_ns();
    return rc;
}

void serve_seq_give_back(struct serve_engine *s, struct serve_seq *q)
{
    if (!q->handoff.slot)
        kv_release(s->pool, &q->kv);
}

static int grow(void *ctx, struct sched_request *r, int64_t n_tok)
{
    struct serve_engine *s = ctx;
    struct serve_seq *q = (struct serve_seq *)r;

    if (q->handoff.slot)
        return n_tok <= q->kv.cap_tok ? OK : ERR_NOMEM;
    if (n_tok > q->kv.cap_tok && !q->kv.blocks && r->n_waited == 0) {
        q->overflowed = true;
        s->n_overflow++;
    }
    return grow_slot(s, &q->kv, r->n_ctx, n_tok) == OK ? OK : ERR_NOMEM;
}

static void release(void *ctx, struct sched_request *r)
{
    struct serve_engine *s = ctx;
    struct serve_seq *q = (struct serve_seq *)r;

    serve_draft_forget(s, q);
    if (q->handoff.side == SERVE_PROMPT_SIDE) /* serve_seq_drop() decides about those */
        return;
    if (r->ended)
        keep(s, q);
    else
        kv_release(s->pool, &q->kv);
}

static void refuse(void *ctx, struct sched_request *r, int rc)
{
    (void)ctx, (void)rc;
    serve_seq_end((struct serve_seq *)r, -1, NULL, SERVE_ERROR);
}

int serve_loop_open(struct serve_engine *s,
                    void (*drop)(void *ctx, struct sched_request *r))
{
    const struct sched_loop_opts o = {.policy = s->policy,
                                      .alloc = {.free_tok = free_tok,
                                                .need_tok = need_tok,
                                                .bucket = bucket,
                                                .reserve = reserve,
                                                .grow = grow,
                                                .release = release},
                                      .refuse = refuse,
                                      .drop = drop,
                                      .ctx = s,
                                      .n_live = SERVE_VIEW_MAX,
                                      .max_seqs = s->api.o.max_seqs,
                                      .max_step_tok = s->api.o.max_step_tok,
                                      .patience = s->api.o.kv_patience,
                                      .max_age = MAX_AGE};

    return sched_loop_open(&s->loop, &o);
}

/* ---- what is reported ---- */

void serve_count_memory(struct serve_engine *s, int64_t step_ns)
{
    struct serve_kv_use *u = &s->kv_use;
    struct kv_stat kv;
    double used, inner, outer;

    kv_pool_stat(s->pool, &kv);
    if (kv.reserved_bytes == 0)
        return;
    used = (double)(s->loop.used_tok * s->kv_token_bytes);
    inner = used / (double)kv.reserved_bytes;
    outer = used / (double)kv.pool_bytes;
    u->time_ns += step_ns;
    u->inner_ns += inner * (double)step_ns;
    u->outer_ns += outer * (double)step_ns;
    series_add(&u->inner, inner);
    series_add(&u->outer, outer);
}

void serve_engine_kv_stat(const struct serve *api, struct serve_kv_stat *out)
{
    const struct serve_engine *s = (const struct serve_engine *)api;
    struct kv_stat kv;

    kv_pool_stat(s->pool, &kv);
    *out = (struct serve_kv_stat){
        .budget_tok = kv.limit_tok,
        .reserved_tok = kv.reserved_tok,
        .pool_bytes = (int64_t)kv.pool_bytes,
        .reserved_bytes = (int64_t)kv.reserved_bytes,
        .used_bytes = s->n_used_tok * s->kv_token_bytes,
        .n_preempted = s->n_preempted,
        .n_recomputed_tok = s->n_recomputed_tok,
        .n_overflow = s->n_overflow,
        .migrated_bytes = kv.migrated_bytes_total,
        .migrate_s = (double)kv.migrate_ns_total * 1e-9,
        .n_alloc = kv.n_alloc_total,
        .alloc_s = (double)kv.alloc_ns_total * 1e-9,
        .n_reused = s->reuse.n_requests,
        .n_reused_tok = s->reuse.n_tok,
        .n_predicted = s->lengths.n_predicted,
        .predict_s = (double)s->lengths.predict_ns * 1e-9,
    };
}
