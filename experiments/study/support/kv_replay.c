#include "experiments/study/support/kv_replay.h"

#include <string.h>

#include "base/mem.h"
#include "kv/calibrate.h"
#include "kv/cluster.h"

struct replay;

/* One arena and the requests that were sent to it. */
struct device {
    struct replay *r;
    int64_t arena_tok, reserved_tok;
    int64_t queued_tok; /* what its requests without memory are predicted to need */
    void *alloc;
    struct kv_buckets *buckets; /* its own or, lent, those of all */
    struct kv_bounds bounds;    /* its allocator's, of these buckets */
    struct sched_loop loop;
};

/* A request that has been sent and not yet answered. */
struct seq {
    struct sched_request r; /* first: it is what the loop knows; its id is the index */
    const struct kv_example *request;
    struct kv_prediction prediction;
    double raw_tok;  /* what was predicted, before the correction */
    bool overflowed; /* it outgrew its memory, so what was predicted is too short */
    struct kv_outcome outcome;
    struct kv_extent e;
    int64_t n_tok;      /* tokens that its memory counts as */
    int64_t queued_tok; /* its part of its device's */
    struct seq *next_free;
};

struct replay {
    const struct study_kv_opts *o;
    struct study_kv_result *out;
    const struct kv_example *requests;
    struct kv_outcome *outcomes; /* [n] */
    int64_t n, n_sent;
    int rc; /* an error of the allocator */
    void *predictor;
    struct kv_buckets *buckets; /* of all requests */
    struct device devices[STUDY_KV_DEVICES];
    int n_devices;
    struct seq *pending;                /* it waits for a device that has the memory */
    struct kv_calibration *calibration; /* NULL: predictions are used as they are */
    struct seq *seqs, *free;            /* [clients]; those that are not live */
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
    const struct device *d = ctx;

    return d->arena_tok - d->reserved_tok;
}

static int64_t need_tok(void *ctx, const struct sched_request *q)
{
    const struct device *d = ctx;
    struct kv_need need = need_of(d->r, (const struct seq *)q);

    return kv_alloc_need_tok(d->r->o->alloc, &need);
}

static int bucket(void *ctx, const struct sched_request *q)
{
    const struct device *d = ctx;
    const struct kv_bounds *b = kv_alloc_bounds(d->r->o->alloc, d->alloc);
    struct kv_need need = need_of(d->r, (const struct seq *)q);

    return b ? kv_bounds_bucket(b, &need) : 0;
}

/* The memory that a request first got, to compare with what it came to need. */
static void set_outcome(const struct device *d, struct seq *q, const struct kv_need *need)
{
    const struct kv_bounds *b = kv_alloc_bounds(d->r->o->alloc, d->alloc);

    q->outcome = (struct kv_outcome){.predicted_tok = q->prediction.gen_tok,
                                     .prompt_tok = q->request->prompt_tok,
                                     .output_tok = q->request->output_tok,
                                     .first_tok = q->e.cap_tok};
    if (b && b->n > 0)
        kv_outcome_bucket(&q->outcome, b, need, d->r->o->arena.max_tok);
}

static int reserve(void *ctx, struct sched_request *request)
{
    struct device *d = ctx;
    struct seq *q = (struct seq *)request;
    struct kv_need need = need_of(d->r, q);

    TRY(d->r->o->alloc->reserve(d->alloc, &need, &q->e));
    q->n_tok = kv_alloc_need_tok(d->r->o->alloc, &need);
    d->reserved_tok += q->n_tok;
    d->queued_tok -= q->queued_tok;
    q->queued_tok = 0;
    if (q->outcome.first_tok == 0)
        set_outcome(d, q, &need);
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
static int grow_extent(struct device *d, struct seq *q, int64_t n_tok)
{
    struct replay *r = d->r;
    int64_t cap_tok = q->e.cap_tok;
    struct kv_move m = {.old_id = -1};
    bool moves;

    if (!r->o->alloc->paged) {
        r->out->n_overflow += !q->overflowed;
        q->overflowed = true;
    }
    TRY(r->o->alloc->grow(d->alloc, &q->e, q->r.n_ctx, n_tok, &m));
    moves = m.old_id >= 0;
    if (!moves || r->o->migrate)
        count_growth(r, cap_tok, q, &m);
    kv_alloc_moved(r->o->alloc, d->alloc, &m);
    return moves && !r->o->migrate
               ? err_set(ERR_UNSUPPORTED, "replay: sequences are not copied")
               : OK;
}

static int grow(void *ctx, struct sched_request *request, int64_t n_tok)
{
    struct device *d = ctx;
    struct seq *q = (struct seq *)request;
    int rc = OK;

    if (n_tok > q->e.cap_tok)
        rc = grow_extent(d, q, n_tok);
    if (rc != OK && rc != ERR_NOMEM && rc != ERR_UNSUPPORTED)
        d->r->rc = rc;
    if (rc == OK && n_tok > q->n_tok) {
        d->reserved_tok += n_tok - q->n_tok;
        q->n_tok = n_tok;
    }
    return rc;
}

static void release(void *ctx, struct sched_request *request)
{
    struct device *d = ctx;
    struct seq *q = (struct seq *)request;

    d->r->o->alloc->release(d->alloc, q->e.id);
    d->reserved_tok -= q->n_tok;
    if (!request->ended)
        d->r->out->recomputed_tok += request->n_ctx;
}

static void refuse(void *ctx, struct sched_request *q, int rc)
{
    struct device *d = ctx;

    d->r->rc = err_prefix(rc, "request %lld", (long long)q->id);
}

/* The bounds of the device's buckets, which all devices hold. */
static void set_bounds(struct device *d)
{
    struct kv_device all[STUDY_KV_DEVICES];

    for (int i = 0; i < d->r->n_devices; i++)
        all[i] = (struct kv_device){.arena_tok = d->r->devices[i].arena_tok};
    kv_cluster_bounds(&d->bounds, kv_buckets_bounds(d->buckets), all, d->r->n_devices);
}

/* As in the engine, each request that ends may bring new bounds. */
static void learn(struct device *d, const struct seq *q)
{
    struct replay *r = d->r;

    kv_buckets_add(d->buckets, q->r.n_prompt, q->r.n_new);
    if (r->calibration)
        kv_calibration_add(r->calibration, q->raw_tok, q->r.n_new);
    if (!r->o->alloc->learns || !kv_buckets_due(d->buckets) ||
        r->o->bounds == STUDY_KV_NEVER ||
        (r->o->bounds == STUDY_KV_ONCE && kv_buckets_bounds(d->buckets)->epoch > 0))
        return;
    kv_buckets_learn(d->buckets);
    r->out->n_epochs = kv_buckets_bounds(d->buckets)->epoch;
    for (int i = 0; i < r->n_devices; i++)
        if (r->devices[i].buckets == d->buckets)
            set_bounds(&r->devices[i]);
}

static void give_back(struct replay *r, struct seq *q)
{
    q->next_free = r->free;
    r->free = q;
}

static void drop(void *ctx, struct sched_request *request)
{
    struct device *d = ctx;
    struct seq *q = (struct seq *)request;

    if (request->ended)
        learn(d, q);
    give_back(d->r, q);
}

/* --- a step */

static int predict(struct replay *r, struct seq *q, const struct kv_query *query)
{
    TRY(r->o->predictor->predict(r->predictor, query, &q->prediction));
    q->raw_tok = q->prediction.gen_tok;
    if (r->calibration)
        q->prediction.gen_tok *= kv_calibration_factor(r->calibration);
    return OK;
}

/* The device that takes the request; -1: none has the memory now. */
static int choose_device(const struct replay *r, const struct seq *q, int64_t size_tok)
{
    struct kv_device d[STUDY_KV_DEVICES];
    int fewest = 0;

    if (r->n_devices == 1)
        return 0;
    if (r->o->route == STUDY_KV_IN_TURN)
        return (int)(q->r.id % r->n_devices);
    for (int i = 0; i < r->n_devices; i++) {
        const struct device *from = &r->devices[i];

        d[i] = (struct kv_device){.arena_tok = from->arena_tok,
                                  .reserved_tok = from->reserved_tok + from->queued_tok,
                                  .load = from->loop.n_live,
                                  .capacity = (double)r->o->clients};
        if (d[i].load < d[fewest].load)
            fewest = i;
    }
    return r->o->route == STUDY_KV_FEWEST
               ? fewest
               : kv_cluster_choose(d, r->n_devices, size_tok, 1);
}

/* *sent: a device has it; else it is pending. The memory that it will take is that of its bucket
 * on the first device, which has the same bounds as the others. */
static int send(struct replay *r, struct seq *q, bool *sent)
{
    struct kv_need need = need_of(r, q);
    const struct kv_bounds *b = kv_alloc_bounds(r->o->alloc, r->devices[0].alloc);
    int64_t size_tok = b ? kv_bounds_size(b, &need, r->o->arena.max_tok)
                       : r->o->alloc->paged ? kv_alloc_need_tok(r->o->alloc, &need)
                                            : r->o->arena.max_tok;
    int i = choose_device(r, q, size_tok);

    *sent = i >= 0;
    r->pending = *sent ? NULL : q;
    if (!*sent)
        return OK;
    q->queued_tok = size_tok;
    r->devices[i].queued_tok += size_tok;
    return sched_loop_add(&r->devices[i].loop, &q->r);
}

static int make_seq(struct replay *r, struct seq *q)
{
    const struct kv_example *e = &r->requests[r->n_sent];
    struct kv_query query = {.prompt_tok = e->prompt_tok,
                             .true_tok = e->output_tok,
                             .text = e->text,
                             .text_bytes = e->text_bytes};

    if (query.prompt_tok + query.true_tok > r->o->arena.max_tok)
        return err_set(ERR_LIMIT, "request %lld has %lld tokens, the longest is %lld",
                       (long long)r->n_sent,
                       (long long)(query.prompt_tok + query.true_tok),
                       (long long)r->o->arena.max_tok);
    *q = (struct seq){
        .r = {.id = r->n_sent, .n_prompt = e->prompt_tok, .max_new = e->output_tok},
        .request = e};
    return predict(r, q, &query);
}

static int send_requests(struct replay *r)
{
    bool sent = true;

    if (r->pending)
        TRY(send(r, r->pending, &sent));
    while (sent && r->n_sent < r->n && r->free) {
        struct seq *q = r->free;

        r->free = q->next_free;
        TRY(make_seq(r, q));
        r->n_sent++;
        TRY(send(r, q, &sent));
    }
    return OK;
}

/* The batch is computed: how many tokens are new. */
static int64_t compute(struct device *d)
{
    int64_t n_new = 0;

    for (int i = 0; i < d->loop.n_batch; i++)
        n_new += sched_loop_computed(&d->loop, d->loop.batch[i]);
    for (int i = 0; i < d->loop.n_live; i++)
        d->r->out->waited_steps += d->loop.live[i]->n_waited > 0;
    sched_loop_age(&d->loop);
    return n_new;
}

/* Utilization of all devices, after a step of each. */
static void report_step(struct replay *r, int64_t n_tok)
{
    double used = 0, reserved = 0, arena = 0, inner, outer, least = 1, most = 0;

    for (int i = 0; i < r->n_devices; i++) {
        const struct device *d = &r->devices[i];
        struct kv_alloc_stat st;
        double share;

        r->o->alloc->stat(d->alloc, &st);
        used += (double)(d->loop.used_tok + d->loop.n_seqs);
        reserved += (double)st.reserved_tok;
        arena += (double)d->arena_tok;
        share = (double)st.reserved_tok / (double)d->arena_tok;
        least = share < least ? share : least;
        most = share > most ? share : most;
    }
    r->out->n_steps++;
    r->out->output_tok += n_tok;
    inner = used / reserved;
    outer = used / arena;
    if (r->n_sent == r->n)
        return;
    r->out->n_loaded_steps++;
    r->out->loaded_tok += n_tok;
    r->out->inner_sum += inner;
    r->out->outer_sum += outer;
    r->out->least_sum += least;
    r->out->most_sum += most;
    series_add(&r->out->inner, inner);
    series_add(&r->out->outer, outer);
    series_add(&r->out->batch, (double)n_tok);
}

static void end_finished(struct device *d)
{
    for (int i = 0; i < d->loop.n_batch; i++) {
        struct seq *q = (struct seq *)d->loop.batch[i];

        if (q->r.n_new < q->r.max_new)
            continue;
        q->r.ended = true;
        q->outcome.last_tok = q->e.cap_tok;
        d->r->outcomes[q->r.id] = q->outcome;
    }
    sched_loop_drop(&d->loop);
}

/* A device's batch: how many sequences are in it; *moves: something happened. */
static int make_batch(struct device *d, bool *moves)
{
    int64_t n_preempted = d->loop.n_preempted;
    int n = sched_loop_batch(&d->loop);

    *moves = *moves || n > 0 || d->loop.n_preempted > n_preempted;
    return n;
}

static int64_t n_live(const struct replay *r)
{
    int64_t n = 0;

    for (int i = 0; i < r->n_devices; i++)
        n += r->devices[i].loop.n_live;
    return n;
}

static int step(struct replay *r)
{
    bool moves = false;
    int64_t n_tok = 0;
    int n = 0;

    TRY(send_requests(r));
    for (int i = 0; i < r->n_devices; i++)
        n += make_batch(&r->devices[i], &moves);
    if (r->rc != OK)
        return r->rc;
    if (!moves)
        return err_set(ERR_STATE,
                       "replay: step %lld: %lld requests wait or run, and none goes on",
                       (long long)r->devices[0].loop.step, (long long)n_live(r));
    for (int i = 0; i < r->n_devices; i++)
        if (r->devices[i].loop.n_batch > 0)
            n_tok += compute(&r->devices[i]);
    if (n > 0)
        report_step(r, n_tok);
    for (int i = 0; i < r->n_devices; i++)
        end_finished(&r->devices[i]);
    return OK;
}

/* --- from begin to end */

static int open_loop(struct device *d)
{
    const struct study_kv_opts *from = d->r->o;
    const struct sched_loop_opts o = {.policy = from->policy,
                                      .alloc = {.free_tok = free_tok,
                                                .need_tok = need_tok,
                                                .bucket = bucket,
                                                .reserve = reserve,
                                                .grow = grow,
                                                .release = release},
                                      .refuse = refuse,
                                      .drop = drop,
                                      .trace = from->trace,
                                      .ctx = d,
                                      .trace_ctx = from->trace_ctx,
                                      .n_live = (int)from->clients,
                                      .max_seqs = from->clients,
                                      .max_step_tok = from->max_step_tok,
                                      .patience = from->patience,
                                      .max_age = from->max_age,
                                      .mix_buckets = !from->co_batch};

    return sched_loop_open(&d->loop, &o);
}

static int open_buckets(struct kv_buckets **out, const struct replay *r)
{
    TRY(kv_buckets_open(out, &r->o->buckets));
    for (int64_t i = 0; i < r->o->n_earlier; i++)
        kv_buckets_add(*out, r->o->earlier[i].prompt_tok, r->o->earlier[i].output_tok);
    if (r->o->n_earlier > 0 && r->o->bounds != STUDY_KV_NEVER)
        kv_buckets_learn(*out);
    return OK;
}

static int open_device(struct replay *r, int i)
{
    struct device *d = &r->devices[i];
    struct kv_arena arena = r->o->arena;

    d->r = r;
    if (r->o->n_devices > 0)
        arena.n_tok = r->o->device_tok[i];
    d->arena_tok = arena.n_tok;
    d->buckets = r->buckets;
    if (r->o->own_bounds)
        TRY(open_buckets(&d->buckets, r));
    d->bounds = *kv_buckets_bounds(d->buckets);
    arena.bounds = &d->bounds;
    TRY(kv_alloc_open(r->o->alloc, &d->alloc, &arena));
    return open_loop(d);
}

static int open_replay(struct replay *r)
{
    r->n_devices = r->o->n_devices > 0 ? r->o->n_devices : 1;
    TRY(open_buckets(&r->buckets, r));
    if (r->o->calibrate > 0)
        TRY(kv_calibration_open(&r->calibration, r->o->calibrate));
    r->out->n_epochs = kv_buckets_bounds(r->buckets)->epoch;
    TRY(r->o->predictor->open(&r->predictor, &r->o->predict));
    r->seqs = mem_new(MEM_OTHER, (size_t)r->o->clients, sizeof(*r->seqs));
    if (!r->seqs)
        return ERR_NOMEM;
    for (int64_t i = r->o->clients - 1; i >= 0; i--)
        give_back(r, &r->seqs[i]);
    for (int i = 0; i < r->n_devices; i++)
        TRY(open_device(r, i));
    return OK;
}

static void close_replay(struct replay *r)
{
    for (int i = 0; i < r->n_devices; i++) {
        struct device *d = &r->devices[i];

        sched_loop_close(&d->loop);
        if (d->alloc)
            r->o->alloc->close(d->alloc);
        if (d->buckets != r->buckets)
            kv_buckets_close(&d->buckets);
    }
    if (r->predictor)
        r->o->predictor->close(r->predictor);
    kv_buckets_close(&r->buckets);
    kv_calibration_close(&r->calibration);
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
    while (rc == OK && (r.n_sent < n || r.pending || n_live(&r) > 0))
        rc = step(&r);
    for (int i = 0; i < r.n_devices; i++)
        out->n_preempted += r.devices[i].loop.n_preempted;
    close_replay(&r);
    return rc;
}
