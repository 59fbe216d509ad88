#include "experiments/study/support/kv_replay.h"

#include <string.h>

#include "base/mem.h"

/* A request that has been sent and not yet answered. */
struct seq {
    struct sched_request r; /* first: it is what the loop knows; its id is the index */
    const struct kv_example *request;
    struct kv_prediction prediction;
    bool overflowed; /* it outgrew its memory, so what was predicted is too short */
    struct kv_outcome outcome;
    struct kv_extent e;
    int64_t n_tok; /* tokens that its memory counts as */
    struct seq *next_free;
};

struct replay {
    const struct study_kv_opts *o;
    struct study_kv_result *out;
    const struct kv_example *requests;
    struct kv_outcome *outcomes; /* [n] */
    int64_t n, n_sent, reserved_tok;
    int rc; /* an error of the allocator */
    void *alloc, *predictor;
    struct kv_buckets *buckets;
    struct seq *seqs, *free; /* [clients]; those that are not live */
    struct sched_loop loop;
};

static int64_t known_tok(const struct seq *q)
{
    return sched_request_n_known(&q->r);
}

/* --- memory, as the loop asks for it */

static struct kv_need need_of(const struct replay *r, const struct seq *q)
{
    struct kv_prediction left = q->prediction;
    struct kv_need need;

    left.gen_tok -= (double)q->r.n_new;
    need = kv_need_predicted(known_tok(q), &left, &r->o->caution, r->o->arena.max_tok);
    need.large = need.large || q->overflowed;
    return need;
}

static int64_t free_tok(void *ctx)
{
    const struct replay *r = ctx;

    return r->o->arena.n_tok - r->reserved_tok;
}

static int64_t need_tok(void *ctx, const struct sched_request *q)
{
    const struct replay *r = ctx;
    struct kv_need need = need_of(r, (const struct seq *)q);

    return kv_alloc_need_tok(r->o->alloc, &need);
}

static int bucket(void *ctx, const struct sched_request *q)
{
    const struct replay *r = ctx;
    const struct kv_bounds *b = kv_alloc_bounds(r->o->alloc, r->alloc);
    struct kv_need need = need_of(r, (const struct seq *)q);

    return b ? kv_bounds_bucket(b, &need) : 0;
}

/* What a request got when it first had memory, to compare with what it came to need. */
static void set_outcome(const struct replay *r, struct seq *q, const struct kv_need *need)
{
    const struct kv_bounds *b = kv_alloc_bounds(r->o->alloc, r->alloc);

    q->outcome = (struct kv_outcome){.predicted_tok = q->prediction.gen_tok,
                                     .prompt_tok = q->request->prompt_tok,
                                     .output_tok = q->request->output_tok,
                                     .first_tok = q->e.cap_tok};
    if (b && b->n > 0)
        kv_outcome_bucket(&q->outcome, b, need, r->o->arena.max_tok);
}

static int reserve(void *ctx, struct sched_request *request)
{
    struct replay *r = ctx;
    struct seq *q = (struct seq *)request;
    struct kv_need need = need_of(r, q);

    TRY(r->o->alloc->reserve(r->alloc, &need, &q->e));
    q->n_tok = kv_alloc_need_tok(r->o->alloc, &need);
    r->reserved_tok += q->n_tok;
    if (q->outcome.first_tok == 0)
        set_outcome(r, q, &need);
    return OK;
}

static void count_growth(struct replay *r, int64_t cap_tok, const struct seq *q,
                         const struct kv_move *m)
{
    if (m->old_id >= 0) {
        r->out->n_moved++;
        r->out->migrated_tok += m->n_tok;
    } else if (q->e.cap_tok > cap_tok && !r->o->alloc->paged) {
        r->out->n_extended++;
        r->out->extended_tok += known_tok(q);
    }
}

/* Its memory holds what is known of it, the tokens of this step among them. */
static int grow_extent(struct replay *r, struct seq *q, int64_t n_tok)
{
    int64_t cap_tok = q->e.cap_tok;
    struct kv_move m = {.old_id = -1};
    bool moves;

    if (!r->o->alloc->paged) {
        r->out->n_overflow += !q->overflowed;
        q->overflowed = true;
    }
    TRY(r->o->alloc->grow(r->alloc, &q->e, q->r.n_ctx, n_tok, &m));
    moves = m.old_id >= 0;
    if (!moves || r->o->migrate)
        count_growth(r, cap_tok, q, &m);
    kv_alloc_moved(r->o->alloc, r->alloc, &m);
    return moves && !r->o->migrate
               ? err_set(ERR_UNSUPPORTED, "replay: sequences are not copied")
               : OK;
}

static int grow(void *ctx, struct sched_request *request, int64_t n_tok)
{
    struct replay *r = ctx;
    struct seq *q = (struct seq *)request;
    int rc = OK;

    if (n_tok > q->e.cap_tok)
        rc = grow_extent(r, q, n_tok);
    if (rc != OK && rc != ERR_NOMEM && rc != ERR_UNSUPPORTED)
        r->rc = rc;
    if (rc == OK && n_tok > q->n_tok) {
        r->reserved_tok += n_tok - q->n_tok;
        q->n_tok = n_tok;
    }
    return rc;
}

static void release(void *ctx, struct sched_request *request)
{
    struct replay *r = ctx;
    struct seq *q = (struct seq *)request;

    r->o->alloc->release(r->alloc, q->e.id);
    r->reserved_tok -= q->n_tok;
    if (!request->ended)
        r->out->recomputed_tok += request->n_ctx;
}

static void refuse(void *ctx, struct sched_request *q, int rc)
{
    struct replay *r = ctx;

    r->rc = err_prefix(rc, "request %lld", (long long)q->id);
}

/* As in the engine, each request that ends may bring new bounds. */
static void learn(struct replay *r, const struct seq *q)
{
    kv_buckets_add(r->buckets, q->r.n_prompt, q->r.n_new);
    if (!r->o->alloc->learns || !kv_buckets_due(r->buckets) ||
        r->o->bounds == STUDY_KV_NEVER ||
        (r->o->bounds == STUDY_KV_ONCE && r->out->n_epochs > 0))
        return;
    kv_buckets_learn(r->buckets);
    r->out->n_epochs = kv_buckets_bounds(r->buckets)->epoch;
}

static void drop(void *ctx, struct sched_request *request)
{
    struct replay *r = ctx;
    struct seq *q = (struct seq *)request;

    if (request->ended)
        learn(r, q);
    q->next_free = r->free;
    r->free = q;
}

/* --- a step */

static int send_requests(struct replay *r)
{
    for (; r->n_sent < r->n && r->free; r->n_sent++) {
        const struct kv_example *e = &r->requests[r->n_sent];
        struct kv_query query = {.prompt_tok = e->prompt_tok,
                                 .true_tok = e->output_tok,
                                 .text = e->text,
                                 .text_bytes = e->text_bytes};
        struct seq *q = r->free;

        if (query.prompt_tok + query.true_tok > r->o->arena.max_tok)
            return err_set(ERR_LIMIT, "request %lld has %lld tokens, the longest is %lld",
                           (long long)r->n_sent,
                           (long long)(query.prompt_tok + query.true_tok),
                           (long long)r->o->arena.max_tok);
        r->free = q->next_free;
        *q = (struct seq){
            .r = {.id = r->n_sent, .n_prompt = e->prompt_tok, .max_new = e->output_tok},
            .request = e};
        TRY(r->o->predictor->predict(r->predictor, &query, &q->prediction));
        TRY(sched_loop_add(&r->loop, &q->r));
    }
    return OK;
}

/* The batch is computed: how many tokens are new. */
static int64_t compute(struct replay *r)
{
    int64_t n_new = 0;

    for (int i = 0; i < r->loop.n_batch; i++)
        n_new += sched_loop_computed(&r->loop, r->loop.batch[i]);
    for (int i = 0; i < r->loop.n_live; i++)
        r->out->waited_steps += r->loop.live[i]->n_waited > 0;
    sched_loop_age(&r->loop);
    return n_new;
}

static void report_step(struct replay *r, int64_t n_tok)
{
    double used = (double)(r->loop.used_tok + r->loop.n_seqs), inner, outer;
    struct kv_alloc_stat st;

    r->out->n_steps++;
    r->out->output_tok += n_tok;
    r->o->alloc->stat(r->alloc, &st);
    inner = used / (double)st.reserved_tok;
    outer = used / (double)r->o->arena.n_tok;
    if (r->n_sent == r->n)
        return;
    r->out->n_loaded_steps++;
    r->out->loaded_tok += n_tok;
    r->out->inner_sum += inner;
    r->out->outer_sum += outer;
    series_add(&r->out->inner, inner);
    series_add(&r->out->outer, outer);
    series_add(&r->out->batch, (double)n_tok);
}

static void end_finished(struct replay *r)
{
    for (int i = 0; i < r->loop.n_batch; i++) {
        struct seq *q = (struct seq *)r->loop.batch[i];

        if (q->r.n_new < q->r.max_new)
            continue;
        q->r.ended = true;
        q->outcome.last_tok = q->e.cap_tok;
        r->outcomes[q->r.id] = q->outcome;
    }
    sched_loop_drop(&r->loop);
}

static int step(struct replay *r)
{
    int64_t n_preempted = r->loop.n_preempted;
    int n;

    TRY(send_requests(r));
    n = sched_loop_batch(&r->loop);
    if (r->rc != OK)
        return r->rc;
    if (n == 0 && r->loop.n_preempted == n_preempted)
        return err_set(ERR_STATE,
                       "replay: step %lld: %lld sequences have memory, %d wait or run, "
                       "and none goes on",
                       (long long)r->loop.step, (long long)r->loop.n_seqs,
                       r->loop.n_live);
    if (n > 0)
        report_step(r, compute(r));
    end_finished(r);
    return OK;
}

/* --- from begin to end */

static int open_loop(struct replay *r)
{
    const struct sched_loop_opts o = {.policy = r->o->policy,
                                      .alloc = {.free_tok = free_tok,
                                                .need_tok = need_tok,
                                                .bucket = bucket,
                                                .reserve = reserve,
                                                .grow = grow,
                                                .release = release},
                                      .refuse = refuse,
                                      .drop = drop,
                                      .trace = r->o->trace,
                                      .ctx = r,
                                      .trace_ctx = r->o->trace_ctx,
                                      .n_live = (int)r->o->clients,
                                      .max_seqs = r->o->clients,
                                      .max_step_tok = r->o->max_step_tok,
                                      .patience = r->o->patience,
                                      .max_age = r->o->max_age,
                                      .mix_buckets = !r->o->co_batch};

    return sched_loop_open(&r->loop, &o);
}

static int open_replay(struct replay *r)
{
    struct kv_arena arena = r->o->arena;

    TRY(kv_buckets_open(&r->buckets, &r->o->buckets));
    for (int64_t i = 0; i < r->o->n_earlier; i++)
        kv_buckets_add(r->buckets, r->o->earlier[i].prompt_tok,
                       r->o->earlier[i].output_tok);
    if (r->o->n_earlier > 0 && r->o->bounds != STUDY_KV_NEVER)
        kv_buckets_learn(r->buckets);
    r->out->n_epochs = kv_buckets_bounds(r->buckets)->epoch;
    arena.bounds = kv_buckets_bounds(r->buckets);
    TRY(kv_alloc_open(r->o->alloc, &r->alloc, &arena));
    TRY(r->o->predictor->open(&r->predictor, &r->o->predict));
    r->seqs = mem_new(MEM_OTHER, (size_t)r->o->clients, sizeof(*r->seqs));
    if (!r->seqs)
        return ERR_NOMEM;
    for (int64_t i = r->o->clients - 1; i >= 0; i--)
        drop(r, &r->seqs[i].r);
    return open_loop(r);
}

static void close_replay(struct replay *r)
{
    sched_loop_close(&r->loop);
    if (r->alloc)
        r->o->alloc->close(r->alloc);
    if (r->predictor)
        r->o->predictor->close(r->predictor);
    kv_buckets_close(&r->buckets);
    mem_free(r->seqs);
}

int study_kv_replay(struct study_kv_result *out, const struct study_kv_opts *o,
                    const struct kv_example *requests, int64_t n,
                    struct kv_outcome *outcomes)
{
    struct replay r = {
        .o = o, .out = out, .requests = requests, .n = n, .outcomes = outcomes};
    int rc;

    memset(out, 0, sizeof(*out));
    rc = open_replay(&r);
    while (rc == OK && (r.n_sent < n || r.loop.n_live > 0))
        rc = step(&r);
    out->n_preempted = r.loop.n_preempted;
    close_replay(&r);
    return rc;
}
