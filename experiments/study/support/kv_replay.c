#include "experiments/study/support/kv_replay.h"

#include <string.h>

#include "base/mem.h"

/* A request that has been sent and not yet answered. */
struct seq {
    int64_t arrival; /* its index in the list of requests */
    const struct kv_example *request;
    struct kv_prediction prediction;
    int64_t sent_step;
    int64_t n_generated; /* tokens, kept over a preemption */
    int64_t n_waited;    /* steps without memory for the next token */
    bool overflowed;     /* it outgrew its memory, so what was predicted is too short */
    bool admitted;       /* it has had memory before */
    struct kv_outcome outcome;
    struct kv_extent e;
};

struct replay {
    const struct study_kv_opts *o;
    struct study_kv_result *out;
    const struct kv_example *requests;
    struct kv_outcome *outcomes; /* [n] */
    int64_t n, n_sent, step;
    void *alloc, *predictor;
    struct kv_buckets *buckets;
    struct kv_bounds equal;
    const struct kv_bounds *bounds; /* of the buckets; NULL: the allocator has none */
    struct seq *waiting, *running;  /* [clients], ascending arrival */
    struct kv_waiting *queue;       /* [clients] */
    struct kv_running *memory;      /* [clients] */
    int n_waiting, n_running, tag;
};

/* --- requests on their way */

static int64_t ctx_tok(const struct seq *q)
{
    return q->request->prompt_tok + q->n_generated;
}

static void insert(struct seq *list, int *n, const struct seq *q)
{
    int i = (*n)++;

    for (; i > 0 && list[i - 1].arrival > q->arrival; i--)
        list[i] = list[i - 1];
    list[i] = *q;
}

static void take_out(struct seq *list, int *n, int i)
{
    memmove(&list[i], &list[i + 1], (size_t)(--*n - i) * sizeof(*list));
}

static int send_requests(struct replay *r)
{
    while (r->n_sent < r->n && r->n_waiting + r->n_running < r->o->clients) {
        struct seq q = {.arrival = r->n_sent,
                        .request = &r->requests[r->n_sent],
                        .sent_step = r->step};
        struct kv_query query = {.prompt_tok = q.request->prompt_tok,
                                 .true_tok = q.request->output_tok,
                                 .text = q.request->text,
                                 .text_bytes = q.request->text_bytes};

        if (query.prompt_tok + query.true_tok > r->o->arena.max_tok)
            return err_set(ERR_LIMIT, "request %lld has %lld tokens, the longest is %lld",
                           (long long)r->n_sent,
                           (long long)(query.prompt_tok + query.true_tok),
                           (long long)r->o->arena.max_tok);
        TRY(r->o->predictor->predict(r->predictor, &query, &q.prediction));
        insert(r->waiting, &r->n_waiting, &q);
        r->n_sent++;
    }
    return OK;
}

/* --- memory of those that run */

static void count_growth(struct replay *r, const struct kv_extent *before, struct seq *q,
                         const struct kv_move *m)
{
    if (m->old_id >= 0) {
        r->out->n_moved++;
        r->out->migrated_tok += m->n_tok;
    } else if (q->e.cap_tok > before->cap_tok && !r->o->alloc->paged) {
        r->out->n_extended++;
        r->out->extended_tok += ctx_tok(q);
    }
}

/* A running sequence loses its memory and waits again; what it has generated is kept. */
static void begin_again(struct replay *r, int i)
{
    struct seq q = r->running[i];

    q.n_waited = 0;
    r->out->n_preempted++;
    r->out->recomputed_tok += ctx_tok(&q);
    r->o->alloc->release(r->alloc, q.e.id);
    take_out(r->running, &r->n_running, i);
    insert(r->waiting, &r->n_waiting, &q);
}

/* Memory for every sequence's next token; those that get none wait. `again`: those that
 * wait only, after memory was released. */
static int grow_all(struct replay *r, bool again)
{
    for (int i = 0; i < r->n_running; i++) {
        struct seq *q = &r->running[i];
        struct kv_extent before = q->e;
        struct kv_move m = {.old_id = -1};
        int rc;

        if (ctx_tok(q) + 1 <= q->e.cap_tok || (again && q->n_waited == 0))
            continue;
        if (!q->overflowed && !r->o->alloc->paged)
            r->out->n_overflow++;
        q->overflowed = true;
        rc = r->o->alloc->grow(r->alloc, &q->e, ctx_tok(q), ctx_tok(q) + 1, &m);
        if (rc != OK && rc != ERR_NOMEM)
            return rc;
        err_clear();
        q->n_waited = rc == OK ? 0 : q->n_waited + !again;
        if (rc == OK && m.old_id >= 0 && !r->o->migrate) {
            kv_alloc_moved(r->o->alloc, r->alloc, &m);
            begin_again(r, i--);
        } else if (rc == OK) {
            count_growth(r, &before, q, &m);
            kv_alloc_moved(r->o->alloc, r->alloc, &m);
        }
    }
    return OK;
}

static int preempt(struct replay *r)
{
    for (;;) {
        int i;

        for (i = 0; i < r->n_running; i++)
            r->memory[i].n_waited = r->running[i].n_waited;
        i = kv_preempt_next(r->memory, r->n_running, r->o->patience);
        if (i < 0)
            return OK;
        begin_again(r, i);
        TRY(grow_all(r, true));
    }
}

/* --- admission */

static struct kv_need need_of(const struct replay *r, const struct seq *q)
{
    struct kv_prediction left = q->prediction;
    struct kv_need need;

    left.gen_tok -= (double)q->n_generated;
    need = kv_need_predicted(ctx_tok(q), &left, &r->o->caution, r->o->arena.max_tok);
    need.large = need.large || (q->overflowed && !r->o->alloc->paged);
    return need;
}

/* What a request got when it first had memory, to compare with what it came to need. */
static void note_bucket(struct replay *r, struct seq *q, const struct kv_need *need)
{
    if (q->admitted)
        return;
    q->admitted = true;
    q->outcome = (struct kv_outcome){.predicted_tok = q->prediction.gen_tok,
                                     .prompt_tok = q->request->prompt_tok,
                                     .output_tok = q->request->output_tok,
                                     .first_tok = q->e.cap_tok};
    if (r->bounds && r->bounds->n > 0)
        kv_outcome_bucket(&q->outcome, r->bounds, need, r->o->arena.max_tok);
}

static int admit(struct replay *r)
{
    uint64_t refused = 0;
    int i;

    for (i = 0; i < r->n_waiting; i++) {
        struct kv_need need = need_of(r, &r->waiting[i]);

        r->queue[i].tag = r->bounds ? kv_bounds_bucket(r->bounds, &need) : 0;
        r->queue[i].age = r->step - r->waiting[i].sent_step;
    }
    while ((i = kv_admit_next(r->queue, r->n_waiting, r->tag, refused, r->o->max_age)) >=
           0) {
        struct seq *q = &r->waiting[i];
        struct kv_need need = need_of(r, q);
        int rc = r->o->alloc->reserve(r->alloc, &need, &q->e);

        if (rc == ERR_NOMEM) {
            err_clear();
            refused |= UINT64_C(1) << r->queue[i].tag;
            continue;
        }
        if (rc != OK)
            return rc;
        r->tag = r->o->co_batch ? r->queue[i].tag : -1;
        note_bucket(r, q, &need);
        insert(r->running, &r->n_running, q);
        memmove(&r->queue[i], &r->queue[i + 1],
                (size_t)(r->n_waiting - 1 - i) * sizeof(*r->queue));
        take_out(r->waiting, &r->n_waiting, i);
    }
    return OK;
}

/* --- a step */

static void finish(struct replay *r, int i)
{
    struct seq *q = &r->running[i];

    q->outcome.last_tok = q->e.cap_tok;
    r->outcomes[q->arrival] = q->outcome;
    kv_buckets_add(r->buckets, q->request->prompt_tok, q->request->output_tok);
    r->o->alloc->release(r->alloc, q->e.id);
    take_out(r->running, &r->n_running, i);
}

/* One token for everyone that has memory for it; how many. */
static int64_t decode(struct replay *r)
{
    int64_t n_tok = 0;

    for (int i = 0; i < r->n_running; i++) {
        struct seq *q = &r->running[i];

        r->out->waited_steps += q->n_waited > 0;
        if (q->n_waited > 0)
            continue;
        q->n_generated++;
        n_tok++;
    }
    return n_tok;
}

static void release_finished(struct replay *r)
{
    for (int i = r->n_running - 1; i >= 0; i--)
        if (r->running[i].n_generated == r->running[i].request->output_tok)
            finish(r, i);
    if (r->bounds == kv_buckets_bounds(r->buckets) && kv_buckets_due(r->buckets) &&
        (r->o->bounds == STUDY_KV_AGAIN ||
         (r->o->bounds == STUDY_KV_ONCE && r->out->n_epochs == 0))) {
        kv_buckets_learn(r->buckets);
        r->out->n_epochs = r->bounds->epoch;
    }
}

/* --- what is reported */

static void report_step(struct replay *r, int64_t n_tok)
{
    struct kv_alloc_stat st;
    double used = 0, inner, outer;

    r->out->n_steps++;
    r->out->output_tok += n_tok;
    for (int i = 0; i < r->n_running; i++)
        used += (double)ctx_tok(&r->running[i]);
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

static int step(struct replay *r)
{
    int64_t n_tok, n_preempted = r->out->n_preempted;

    TRY(send_requests(r));
    TRY(grow_all(r, false));
    TRY(preempt(r));
    TRY(admit(r));
    n_tok = decode(r);
    if (n_tok == 0 && r->out->n_preempted == n_preempted)
        return err_set(
            ERR_STATE,
            "replay: step %lld: %d sequences run and %d wait, and none goes on",
            (long long)r->step, r->n_running, r->n_waiting);
    if (n_tok > 0)
        report_step(r, n_tok);
    release_finished(r);
    r->step++;
    return OK;
}

/* --- from begin to end */

static int open_replay(struct replay *r)
{
    struct kv_arena arena = r->o->arena;
    size_t clients = (size_t)r->o->clients;

    TRY(kv_buckets_open(&r->buckets, &r->o->buckets));
    if (strcmp(r->o->alloc->name, "odma") == 0)
        r->bounds = kv_buckets_bounds(r->buckets);
    for (int64_t i = 0; i < r->o->n_earlier; i++)
        kv_buckets_add(r->buckets, r->o->earlier[i].prompt_tok,
                       r->o->earlier[i].output_tok);
    if (r->o->n_earlier > 0 && r->o->bounds != STUDY_KV_NEVER)
        kv_buckets_learn(r->buckets);
    r->out->n_epochs = kv_buckets_bounds(r->buckets)->epoch;
    r->tag = r->o->co_batch ? 0 : -1;
    arena.bounds = r->bounds;
    TRY(kv_alloc_open(r->o->alloc, &r->alloc, &arena));
    if (strcmp(r->o->alloc->name, "s3") == 0) {
        kv_bounds_equal(&r->equal, (int)arena.n_fixed, arena.max_tok, arena.align_tok);
        r->bounds = &r->equal;
    }
    TRY(r->o->predictor->open(&r->predictor, &r->o->predict));
    r->waiting = mem_new(MEM_OTHER, clients, sizeof(*r->waiting));
    r->running = mem_new(MEM_OTHER, clients, sizeof(*r->running));
    r->queue = mem_new(MEM_OTHER, clients, sizeof(*r->queue));
    r->memory = mem_new(MEM_OTHER, clients, sizeof(*r->memory));
    return r->waiting && r->running && r->queue && r->memory ? OK : ERR_NOMEM;
}

static void close_replay(struct replay *r)
{
    if (r->alloc)
        r->o->alloc->close(r->alloc);
    if (r->predictor)
        r->o->predictor->close(r->predictor);
    kv_buckets_close(&r->buckets);
    mem_free(r->waiting);
    mem_free(r->running);
    mem_free(r->queue);
    mem_free(r->memory);
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
    while (rc == OK && (r.n_sent < n || r.n_waiting + r.n_running > 0))
        rc = step(&r);
    close_replay(&r);
    return rc;
}
