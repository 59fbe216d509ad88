/* Memory for keys and values: what the serving loop (sched/loop.h) asks of the pool. Also what
 * is reported of it. */
#include "serve/draft.h"

/* Steps for which others of the bucket that was admitted last may pass a request. The study
 * odma_replay uses the same number. */
#define MAX_AGE 256

static int64_t free_tok(void *ctx)
{
    struct serve *s = ctx;
    struct kv_stat kv;

    kv_pool_stat(s->pool, &kv);
    return kv.limit_tok - kv.reserved_tok + s->reuse.kept_tok;
}

static int64_t need_tok(void *ctx, const struct sched_request *r)
{
    struct serve *s = ctx;
    const struct kv_need need = serve_need(s, (const struct serve_seq *)r);

    if (((const struct serve_seq *)r)->handoff.slot)
        return 0;
    return kv_need_tok(s->pool, &need);
}

static int bucket(void *ctx, const struct sched_request *r)
{
    struct serve *s = ctx;
    const struct kv_need need = serve_need(s, (const struct serve_seq *)r);

    return kv_bucket(s->pool, &need);
}

static int reserve(void *ctx, struct sched_request *r)
{
    struct serve *s = ctx;
    struct serve_seq *q = (struct serve_seq *)r;

    if (q->handoff.slot) {
        q->kv = q->kv_elsewhere;
        return OK;
    }
    return serve_reuse_reserve(s, q);
}

void serve_seq_give_back(struct serve *s, struct serve_seq *q)
{
    if (!q->handoff.slot)
        kv_release(s->pool, &q->kv);
}

static int grow(void *ctx, struct sched_request *r, int64_t n_tok)
{
    struct serve *s = ctx;
    struct serve_seq *q = (struct serve_seq *)r;

    if (q->handoff.slot)
        return n_tok <= q->kv.cap_tok ? OK : ERR_NOMEM;
    if (n_tok > q->kv.cap_tok && !q->kv.blocks && r->n_waited == 0) {
        q->overflowed = true;
        s->n_overflow++;
    }
    return serve_kv_grow(s, &q->kv, r->n_ctx, n_tok) == OK ? OK : ERR_NOMEM;
}

static void release(void *ctx, struct sched_request *r)
{
    struct serve *s = ctx;
    struct serve_seq *q = (struct serve_seq *)r;

    serve_draft_forget(s, q);
    if (q->handoff.side == SERVE_PROMPT_SIDE) /* serve_seq_drop() decides about those */
        return;
    if (r->ended)
        serve_reuse_keep(s, q);
    else
        kv_release(s->pool, &q->kv);
}

static void refuse(void *ctx, struct sched_request *r, int rc)
{
    (void)ctx, (void)rc;
    serve_seq_end((struct serve_seq *)r, -1, NULL, SERVE_ERROR);
}

int serve_loop_open(struct serve *s)
{
    const struct sched_loop_opts o = {.policy = s->policy,
                                      .alloc = {.free_tok = free_tok,
                                                .need_tok = need_tok,
                                                .bucket = bucket,
                                                .reserve = reserve,
                                                .grow = grow,
                                                .release = release},
                                      .refuse = refuse,
                                      .drop = serve_seq_drop,
                                      .ctx = s,
                                      .n_live = SERVE_VIEW_MAX,
                                      .max_seqs = s->o.max_seqs,
                                      .max_step_tok = s->o.max_step_tok,
                                      .patience = s->o.kv_patience,
                                      .max_age = MAX_AGE};

    return sched_loop_open(&s->loop, &o);
}

/* ---- what is reported ---- */

void serve_count_memory(struct serve *s, int64_t step_ns)
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

void serve_kv_stat(const struct serve *s, struct serve_kv_stat *out)
{
    struct kv_stat kv;

    if (s->front.kv_stat) {
        s->front.kv_stat(s->front.ctx, out);
        return;
    }
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
