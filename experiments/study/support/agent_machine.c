#include "experiments/study/support/agent_machine.h"

#include <math.h>

#include "base/mem.h"
#include "base/stats.h"
#include "cluster/perf.h"
#include "kv/buckets.h"
#include "kv/evict.h"
#include "kv/predict.h"
#include "sched/loop.h"

/* Llama 3.1 8B: weights of 8.5 bits, keys and values of 16. */
#define N_LAYERS     32
#define N_PARAMS     8.03e9
#define WEIGHT_BYTES (N_PARAMS * 8.5 / 8)
#define HIDDEN       4096
#define KV_BYTES_TOK 131072.0

#define AGENTS_MAX STUDY_AGENTS_MAX
#define TABLES_MAX 4096 /* sequences that have memory */
#define SEQS_MAX   (TABLES_MAX + AGENTS_MAX * (1 + STUDY_FORKS_MAX))
#define TURNS_MAX  (1 << 17) /* that are counted in a run */
#define STEP_TOK   2048
#define BLOCK_TOK  64
#define ALIGN_TOK  16
#define EVICT_TOK  1024 /* are given up at once */
#define KEEP_FRAC  0.02 /* of memory stays free where a request gets some */
#define AHEAD_MAX  64   /* steps with the same sequences that are one event */
#define AGAIN_SEED 1000 /* added for lru_again */
#define WARM_FRAC  0.2  /* of the time is not counted */
#define HOUR_NS    3.6e12
#define NEVER      INT64_MAX

static const char *const allocs[STUDY_AGENTS_LRU] = {"static", "s3", "odma", "odma",
                                                     "paged"};
static const char *const evicts[] = {"lru", "lru", "lru_ended", "expected_return",
                                     "oracle"};

/* A session or a call: its keys and values, behind those that it shares, and its request, which is
 * the loop's while it waits or runs. */
struct seq {
    struct sched_request r; /* first */
    struct agent *a;
    struct kv_extent e;                 /* cap_tok 0: it has no memory */
    int64_t n_tok, shared_tok, used_ns; /* computed there; in others' memory */
    int64_t known_tok, end_tok;         /* of its prompt: not new; predicted length */
    double uncertainty;
    int64_t arrival_ns, first_ns;
    int n_users; /* requests that run, and calls that share it */
    int idle;    /* its place in run.idle; -1: it is not there */
    bool is_fork, ended, queued, overflowed;
};

struct agent {
    struct study_agent_session s;
    struct kv_pauses own;
    struct seq *q;     /* the session's */
    int64_t next_ns;   /* when it sends a turn or calls; NEVER: it waits for them */
    int64_t first_tok; /* prompt of the session when its length was predicted */
    int n_calls;       /* that run */
    bool forked;       /* the calls before the turn have been sent */
};

struct run {
    const struct study_agents_opts *o;
    struct cluster_perf perf;
    const struct kv_alloc *alloc;
    const struct kv_evict *evict; /* NULL: none */
    const struct kv_predictor *predictor;
    void *state, *predictions;
    struct kv_buckets *buckets;
    struct sched_loop loop;
    struct kv_pauses pauses;
    int64_t system_tok; /* in memory once, for all */
    int64_t now_ns, next_ns, warm_ns, n_calls, copied_tok, idle_tok;
    bool holds; /* sessions hold their memory */
    int rc, n_agents, n_idle, n_free;
    struct seq seqs[SEQS_MAX], *idle[SEQS_MAX], *free[SEQS_MAX];
    struct agent agents[AGENTS_MAX];
    /* What is counted. */
    double ttft[2][TURNS_MAX]; /* of first turns, of others and calls */
    size_t n_ttft[2];
    int64_t n_counted, n_good, n_turns, n_good_turns, prompt_tok, fresh_tok;
    double used_tok_ns, kept_tok_ns;
};

/* ---- memory ---- */

static void use(struct run *u, struct seq *q)
{
    q->n_users++;
    if (q->idle < 0)
        return;
    u->idle_tok -= q->e.cap_tok;
    u->idle[q->idle] = u->idle[--u->n_idle];
    u->idle[q->idle]->idle = q->idle;
    q->idle = -1;
}

static void unuse(struct run *u, struct seq *q)
{
    if (--q->n_users > 0 || q->e.cap_tok == 0 || !u->evict)
        return;
    q->idle = u->n_idle;
    u->idle[u->n_idle++] = q;
    u->idle_tok += q->e.cap_tok;
}

static struct seq *new_seq(struct run *u, struct agent *a, bool is_fork)
{
    struct seq *q = u->free[--u->n_free];

    *q =
        (struct seq){.a = a, .shared_tok = u->system_tok, .idle = -1, .is_fork = is_fork};
    return q;
}

/* Nothing of it is in memory any more. */
static void forget(struct run *u, struct seq *q)
{
    use(u, q);
    if (q->e.cap_tok > 0)
        u->alloc->release(u->state, q->e.id);
    q->e.cap_tok = q->n_tok = 0;
    unuse(u, q);
    if (q->ended)
        u->free[u->n_free++] = q;
}

/* What it has in memory may stay there, but will not be wanted. */
static void end_seq(struct run *u, struct seq *q)
{
    q->ended = true;
    if (!u->evict || q->e.cap_tok == 0)
        forget(u, q);
}

static double worth_of(const struct run *u, const struct seq *q)
{
    double ctx_tok = (double)(q->shared_tok + q->n_tok);
    struct kv_idle k = {
        .idle_s = 1e-9 * (double)(u->now_ns - q->used_ns),
        .token_s = 1e-3 * (u->perf.prompt_w[1] + 2 * u->perf.prompt_w[2] * ctx_tok),
        .ended = q->ended,
        .queued = q->queued,
        .next_s = 1e-9 * (double)(q->a->next_ns - u->now_ns)};

    if (q->ended || q->queued)
        k.next_s = q->ended ? INFINITY : 0;
    kv_pauses_expect(&u->pauses, &q->a->own, &k.pause_log_mean, &k.pause_log_std);
    return u->evict->worth(&k);
}

/* The last tokens of the idle sequence that is worth least. false: none is idle. */
static bool give_up(struct run *u)
{
    struct seq *least = NULL;
    double least_worth = 0, worth;

    for (int i = 0; u->evict && i < u->n_idle; i++) {
        worth = worth_of(u, u->idle[i]);
        if (!least || worth < least_worth)
            least = u->idle[i], least_worth = worth;
    }
    if (!least)
        return false;
    if (least->e.cap_tok <= EVICT_TOK) {
        forget(u, least);
        return true;
    }
    u->idle_tok -= EVICT_TOK;
    u->alloc->trim(u->state, &least->e, least->e.cap_tok - EVICT_TOK);
    if (least->n_tok > least->e.cap_tok)
        least->n_tok = least->e.cap_tok;
    return true;
}

static int64_t unused_tok(const struct run *u)
{
    struct kv_alloc_stat st;

    u->alloc->stat(u->state, &st);
    return st.arena_tok - st.reserved_tok + u->idle_tok;
}

/* Memory for want_tok tokens of its own; where it has none, as `need` says. */
static int take(struct run *u, struct seq *q, const struct kv_need *need,
                int64_t want_tok)
{
    int64_t cap_tok = q->e.cap_tok;
    struct kv_move m = {.old_id = -1};
    int rc;

    if (u->evict && want_tok - cap_tok > unused_tok(u))
        return err_set(ERR_NOMEM, "agents: too little memory is idle");
    do {
        err_clear();
        if (cap_tok == 0)
            rc = u->alloc->reserve(u->state, need, &q->e);
        else
            rc = u->alloc->grow(u->state, &q->e, q->n_tok, want_tok, &m);
    } while (rc == ERR_NOMEM && give_up(u));
    if (rc == OK && cap_tok > 0 && q->e.cap_tok != cap_tok && !u->alloc->paged)
        u->copied_tok += q->n_tok;
    kv_alloc_moved(u->alloc, u->state, &m);
    return rc;
}

static struct kv_need need_of(const struct run *u, const struct seq *q)
{
    static const struct kv_caution caution = {.alpha = 0.5, .tau = 0.8};
    int64_t known = sched_request_n_known(&q->r);
    const struct kv_prediction left = {(double)(q->end_tok - known), q->uncertainty};
    struct kv_need need;

    if (u->evict)
        return (struct kv_need){.prompt_tok = known - q->shared_tok, .gen_tok = 1};
    need = kv_need_predicted(known, &left, &caution, u->o->sessions.max_tok);
    need.large = need.large || q->overflowed;
    return need;
}

static int64_t free_tok(void *ctx)
{
    const struct run *u = ctx;

    return unused_tok(u) - (int64_t)(KEEP_FRAC * (double)u->o->memory_tok);
}

static int64_t need_tok(void *ctx, const struct sched_request *r)
{
    const struct run *u = ctx;
    const struct kv_need need = need_of(u, (const struct seq *)r);

    return kv_alloc_need_tok(u->alloc, &need);
}

static int bucket(void *ctx, const struct sched_request *r)
{
    const struct run *u = ctx;
    const struct kv_bounds *b = kv_alloc_bounds(u->alloc, u->state);
    const struct kv_need need = need_of(u, (const struct seq *)r);

    return b ? kv_bounds_bucket(b, &need) : 0;
}

/* A call shares what its session has; what it computed behind more than that is of no use. */
static void share(struct run *u, struct seq *q)
{
    int64_t shared_tok = u->system_tok + (q->is_fork ? q->a->q->n_tok : 0);

    if (q->is_fork)
        use(u, q->a->q);
    if (q->shared_tok > shared_tok)
        forget(u, q);
    if (q->e.cap_tok == 0)
        q->shared_tok = shared_tok;
}

static void unshare(struct run *u, struct seq *q)
{
    unuse(u, q);
    if (u->evict && q->is_fork)
        unuse(u, q->a->q);
}

static int reserve(void *ctx, struct sched_request *r)
{
    struct run *u = ctx;
    struct seq *q = (struct seq *)r;
    struct kv_need need;
    int rc = OK;

    if (u->evict)
        share(u, q);
    use(u, q);
    need = need_of(u, q);
    if (need.prompt_tok + 1 > q->e.cap_tok)
        rc = take(u, q, &need, need.prompt_tok + 1);
    if (rc != OK) {
        unshare(u, q);
        return rc;
    }
    q->queued = false;
    r->n_ctx = q->shared_tok + q->n_tok;
    if (u->holds && q->is_fork) { /* a copy of the session's */
        r->n_ctx = q->a->q->n_tok;
        u->copied_tok += r->n_ctx;
    }
    return OK;
}

static int grow(void *ctx, struct sched_request *r, int64_t n_tok)
{
    struct run *u = ctx;
    struct seq *q = (struct seq *)r;
    int rc;

    if (n_tok - q->shared_tok <= q->e.cap_tok)
        return OK;
    q->overflowed = true;
    q->n_tok = r->n_ctx - q->shared_tok;
    rc = take(u, q, NULL, n_tok - q->shared_tok);
    if (rc != OK && rc != ERR_NOMEM)
        u->rc = rc;
    return rc;
}

static void release(void *ctx, struct sched_request *r)
{
    struct run *u = ctx;
    struct seq *q = (struct seq *)r;

    q->n_tok = r->n_ctx - q->shared_tok;
    q->queued = !r->ended;
    q->used_ns = u->now_ns;
    if (u->evict && q->is_fork)
        q->a->q->used_ns = u->now_ns;
    unshare(u, q);
    if (u->holds && r->ended && !q->is_fork)
        sched_loop_hold(&u->loop, 1);
    else if (!u->evict)
        forget(u, q);
}

static void refuse(void *ctx, struct sched_request *r, int rc)
{
    ((struct run *)ctx)->rc = err_prefix(rc, "request %lld", (long long)r->id);
}

/* ---- turns ---- */

static int predict(struct run *u, struct seq *q, int64_t true_tok)
{
    const struct kv_query query = {.prompt_tok = q->r.n_prompt, .true_tok = true_tok};
    struct kv_prediction p;

    TRY(u->predictor->predict(u->predictions, &query, &p));
    q->end_tok = q->r.n_prompt + (int64_t)p.gen_tok;
    q->uncertainty = p.uncertainty;
    return OK;
}

static int submit(struct run *u, struct seq *q, int64_t add_tok, int64_t out_tok)
{
    struct agent *a = q->a;
    struct study_agent_session s = a->s;

    q->r = (struct sched_request){
        .id = ++u->n_calls, .n_prompt = s.ctx_tok + add_tok, .max_new = out_tok};
    q->known_tok = s.ctx_tok - (s.number > 0); /* the last answer is not computed whole */
    q->arrival_ns = a->next_ns;
    q->first_ns = 0;
    q->queued = true;
    if (!u->holds || q->is_fork) {
        q->overflowed = false;
        TRY(predict(u, q, out_tok));
    } else if (q->end_tok == 0) { /* all that the session will add */
        while (study_agent_next(&u->o->sessions, &s))
            ;
        a->first_tok = q->r.n_prompt;
        TRY(predict(u, q, s.ctx_tok - a->first_tok));
    }
    if (u->holds && q->e.cap_tok > 0) { /* it goes on in its memory */
        sched_loop_hold(&u->loop, -1);
        use(u, q);
        q->queued = false;
        q->r.n_ctx = q->n_tok;
    }
    return sched_loop_add(&u->loop, &q->r);
}

/* The calls before a turn, or the turn. */
static int submit_next(struct run *u, struct agent *a)
{
    const struct study_agent_session *s = &a->s;

    if (s->n_forks > 0 && !a->forked) {
        for (int i = 0; i < s->n_forks; i++) {
            struct seq *q = new_seq(u, a, true);

            q->shared_tok += u->evict ? a->q->n_tok : 0;
            TRY(submit(u, q, s->fork_add[i], s->fork_out[i]));
        }
        a->n_calls = s->n_forks;
        a->forked = a->q->queued = true;
        return OK;
    }
    if (s->number > 0 && !a->forked) {
        kv_pauses_add(&a->own, s->pause_s);
        kv_pauses_add(&u->pauses, s->pause_s);
    }
    a->forked = false;
    return submit(u, a->q, s->add_tok, s->out_tok);
}

/* Of all agents whose time has come. */
static int submit_due(struct run *u)
{
    u->next_ns = NEVER;
    for (int i = 0; i < u->n_agents; i++) {
        struct agent *a = &u->agents[i];

        if (a->next_ns <= u->now_ns) {
            TRY(submit_next(u, a));
            a->next_ns = NEVER;
        }
        u->next_ns = a->next_ns < u->next_ns ? a->next_ns : u->next_ns;
    }
    return OK;
}

static void learn(struct run *u, int64_t prompt_tok, int64_t output_tok)
{
    kv_buckets_add(u->buckets, prompt_tok, output_tok);
    if (u->alloc->learns && kv_buckets_due(u->buckets))
        kv_buckets_learn(u->buckets);
}

static void next_session(struct run *u, struct agent *a)
{
    if (u->holds) {
        learn(u, a->first_tok, a->s.ctx_tok - a->first_tok);
        sched_loop_hold(&u->loop, -1);
    }
    end_seq(u, a->q);
    a->q = new_seq(u, a, false);
    a->own = (struct kv_pauses){0};
    study_agent_begin(&u->o->sessions, &a->s);
}

static void count(struct run *u, const struct seq *q)
{
    double ttft = 1e-6 * (double)(q->first_ns - q->arrival_ns);
    double later = 1e-6 * (double)(u->now_ns - q->first_ns);
    bool good =
        ttft <= u->o->ttft_ms && later <= u->o->tpot_ms * (double)(q->r.max_new - 1);
    int which = q->a->s.number > 0;

    if (q->arrival_ns < u->warm_ns || u->n_counted == TURNS_MAX)
        return;
    u->n_counted++;
    u->n_good += good;
    u->n_turns += !q->is_fork;
    u->n_good_turns += good && !q->is_fork;
    u->ttft[which][u->n_ttft[which]++] = ttft;
}

static void drop(void *ctx, struct sched_request *r)
{
    struct run *u = ctx;
    struct seq *q = (struct seq *)r;
    struct agent *a = q->a;

    if (u->rc != OK)
        return;
    count(u, q);
    if (!u->holds)
        learn(u, r->n_prompt, r->n_new);
    if (q->is_fork) {
        end_seq(u, q);
        if (--a->n_calls == 0)
            a->next_ns = u->now_ns;
        return;
    }
    a->next_ns = u->now_ns;
    if (!study_agent_next(&u->o->sessions, &a->s))
        next_session(u, a);
    else if (a->s.n_forks == 0)
        a->next_ns += (int64_t)(1e9 * a->s.pause_s);
}

/* ---- steps ---- */

static struct cluster_work work_of(const struct run *u)
{
    struct cluster_work w = {0};

    for (int i = 0; i < u->loop.n_batch; i++) {
        const struct sched_request *r = u->loop.batch[i];
        double from = (double)r->n_ctx, to = from + (double)r->step_tok;

        if (r->n_new > 0 && sched_request_n_known(r) - r->n_ctx == 1) {
            w.n_decode++;
            w.ctx_tok += r->n_ctx;
        } else { /* attention to all tokens before, too */
            w.n_prompt_tok += r->step_tok;
            w.sum_prompt_sq += to * to - from * from;
        }
    }
    return w;
}

/* How many steps have the same sequences: until one ends, or might wait for memory. */
static int64_t steps_ahead(struct run *u, const struct cluster_work *w)
{
    int64_t n = w->n_prompt_tok > 0 || u->loop.n_batch < u->loop.n_live ? 1 : AHEAD_MAX;

    for (int i = 0; i < u->loop.n_batch && n > 1; i++) {
        const struct sched_request *r = u->loop.batch[i];

        n = r->max_new - r->n_new < n ? r->max_new - r->n_new : n;
    }
    for (int i = 0; i < u->loop.n_batch && n > 1; i++) {
        struct seq *q = (struct seq *)u->loop.batch[i];
        int64_t used_tok = q->r.n_ctx - q->shared_tok;
        struct kv_move m;

        if (u->alloc->paged &&
            u->alloc->grow(u->state, &q->e, used_tok, used_tok + n, &m) != OK)
            err_clear();
        n = q->e.cap_tok - used_tok < n ? q->e.cap_tok - used_tok : n;
    }
    return n;
}

static void pass(struct run *u, int64_t ns)
{
    int64_t from = u->now_ns > u->warm_ns ? u->now_ns : u->warm_ns;
    double used = (double)u->system_tok, kept = 0, counted_ns;

    u->now_ns += ns;
    counted_ns = fmax(0, (double)(u->now_ns - from));
    for (int i = 0; i < u->loop.n_live; i++) {
        const struct seq *q = (const struct seq *)u->loop.live[i];

        used += q->queued ? 0 : (double)(q->r.n_ctx - q->shared_tok);
    }
    for (int i = 0; i < u->n_agents; i++)
        kept += u->agents[i].q->n_users > 0 ? 0 : (double)u->agents[i].q->n_tok;
    u->used_tok_ns += counted_ns * used;
    u->kept_tok_ns += counted_ns * kept;
}

static void compute(struct run *u)
{
    struct cluster_work w = work_of(u);
    int64_t most = steps_ahead(u, &w), n = 0, ns = 0;
    bool counted;

    do {
        ns += cluster_perf_step_ns(&u->perf, &w);
        w.ctx_tok += w.n_decode;
    } while (++n < most && u->now_ns + ns < u->next_ns);
    if (n > 1)
        sched_loop_skip(&u->loop, n - 1);
    ns += (int64_t)(2 * KV_BYTES_TOK * (double)u->copied_tok / u->o->cpu_gbps);
    u->copied_tok = 0;
    pass(u, ns);
    counted = u->now_ns > u->warm_ns;
    u->prompt_tok += counted ? w.n_prompt_tok : 0;
    for (int i = 0; i < u->loop.n_batch; i++) {
        struct seq *q = (struct seq *)u->loop.batch[i];

        if (sched_loop_computed(&u->loop, &q->r) && q->first_ns == 0) {
            q->first_ns = u->now_ns;
            u->fresh_tok += counted ? q->r.n_prompt - q->known_tok : 0;
        }
        q->r.ended = q->r.n_new >= q->r.max_new;
    }
    sched_loop_age(&u->loop);
    sched_loop_drop(&u->loop);
}

/* Where all that could run wait for what sessions hold, the shortest of these loses it. */
static bool let_go(struct run *u)
{
    struct seq *least = NULL;

    for (int i = 0; i < u->n_agents && u->holds && u->loop.n_live > 0; i++) {
        struct seq *q = u->agents[i].q;

        if (q->n_users == 0 && q->e.cap_tok > 0 && (!least || q->n_tok < least->n_tok))
            least = q;
    }
    if (least) {
        forget(u, least);
        sched_loop_hold(&u->loop, -1);
    }
    return least;
}

static int step(struct run *u)
{
    int64_t n_preempted = u->loop.n_preempted;

    TRY(submit_due(u));
    if (sched_loop_batch(&u->loop) > 0)
        compute(u);
    else if (u->rc != OK || u->loop.n_preempted > n_preempted || let_go(u))
        return u->rc;
    else if (u->next_ns == NEVER)
        return err_set(ERR_STATE, "agents: %d requests wait, and none goes on",
                       u->loop.n_live);
    else
        pass(u, u->next_ns - u->now_ns);
    return u->rc;
}

/* ---- a run ---- */

static int open_loop(struct run *u)
{
    struct sched_loop_opts o = {
        .alloc = {free_tok, need_tok, bucket, reserve, grow, release},
        .refuse = refuse,
        .drop = drop,
        .ctx = u,
        .n_live = 64,
        .max_seqs = TABLES_MAX,
        .max_step_tok = STEP_TOK,
        .patience = 8,
        .max_age = 256};

    TRY(sched_policy_find("chunked", &o.policy));
    return sched_loop_open(&u->loop, &o);
}

static int open_memory(struct run *u, int64_t seed)
{
    const struct kv_bucket_opts b = {.max_tok = u->o->sessions.max_tok,
                                     .align_tok = ALIGN_TOK,
                                     .window = 256,
                                     .every = 16,
                                     .detect = true,
                                     .of_total = true,
                                     .steps = true,
                                     .n_first = KV_N_QUANTILES,
                                     .n = KV_N_QUANTILES,
                                     .p = KV_QUANTILES};
    const struct kv_predict_opts p = {
        .max_tok = u->o->sessions.max_tok, .sigma = u->o->sigma, .seed = seed};
    struct kv_arena arena = {.n_tok = u->o->memory_tok - u->system_tok,
                             .max_tok = u->o->sessions.max_tok,
                             .align_tok = ALIGN_TOK,
                             .block_tok = BLOCK_TOK,
                             .max_seqs = TABLES_MAX,
                             .n_fixed = KV_N_QUANTILES};

    TRY(kv_buckets_open(&u->buckets, &b));
    arena.bounds = kv_buckets_bounds(u->buckets);
    TRY(kv_predictor_find("noisy", &u->predictor));
    TRY(u->predictor->open(&u->predictions, &p));
    return kv_alloc_open(u->alloc, &u->state, &arena);
}

static void close_run(struct run *u)
{
    sched_loop_close(&u->loop);
    if (u->state)
        u->alloc->close(u->state);
    if (u->predictions)
        u->predictor->close(u->predictions);
    kv_buckets_close(&u->buckets);
}

/* The agents are somewhere in a session, of which nothing is in memory. */
static void begin_agents(struct run *u, uint64_t seed)
{
    for (int i = 0; i < u->n_agents; i++) {
        struct agent *a = &u->agents[i];
        int64_t n_before;

        rng_init(&a->s.rng, seed * AGENTS_MAX + (uint64_t)i, "agent");
        study_agent_begin(&u->o->sessions, &a->s);
        n_before = (int64_t)(rng_f64(&a->s.rng) * (double)a->s.n_turns);
        while (a->s.number < n_before)
            if (!study_agent_next(&u->o->sessions, &a->s))
                study_agent_begin(&u->o->sessions, &a->s), n_before = 0;
        a->next_ns = (int64_t)(rng_f64(&a->s.rng) * 1e9 * a->s.pause_s);
        a->q = new_seq(u, a, false);
    }
}

/* A step takes the time of its bytes and of its operations, one after the other. */
static int open_perf(struct cluster_perf *p, const struct study_agents_opts *o)
{
    double gb_ms = 1e6 * o->cpu_gbps, tflop_ms = 1e9 * o->cpu_tflops;

    p->prompt_w[0] = p->token_w[0] = WEIGHT_BYTES / gb_ms;
    p->prompt_w[1] = p->token_w[2] = 2 * N_PARAMS / tflop_ms;
    p->prompt_w[2] = 2.0 * N_LAYERS * HIDDEN / tflop_ms;
    p->token_w[1] = KV_BYTES_TOK / gb_ms + 4.0 * N_LAYERS * HIDDEN / tflop_ms;
    return cluster_perf_find("distserve", &p->kind);
}

static int open_run(struct run *u, const struct study_agents_opts *o)
{
    int64_t seed = o->seed + (o->policy == STUDY_AGENTS_LRU_AGAIN ? AGAIN_SEED : 0);
    bool shares = o->policy >= STUDY_AGENTS_LRU;

    u->o = o;
    u->n_agents = (int)o->n_agents;
    u->holds = o->policy == STUDY_AGENTS_ODMA_SESSION;
    u->system_tok = shares ? o->sessions.system_tok : 0;
    u->warm_ns = (int64_t)(HOUR_NS * WARM_FRAC * o->hours);
    for (int i = SEQS_MAX - 1; i >= 0; i--)
        u->free[u->n_free++] = &u->seqs[i];
    TRY(kv_alloc_find(shares ? "paged" : allocs[o->policy], &u->alloc));
    if (shares)
        TRY(kv_evict_find(evicts[o->policy - STUDY_AGENTS_LRU], &u->evict));
    TRY(open_perf(&u->perf, o));
    TRY(open_memory(u, seed));
    TRY(open_loop(u));
    begin_agents(u, (uint64_t)seed);
    return OK;
}

/* A request that still waits may have missed its objective. */
static void count_waiting(struct run *u)
{
    for (int i = 0; i < u->loop.n_live; i++) {
        const struct seq *q = (const struct seq *)u->loop.live[i];

        u->n_counted += q->first_ns == 0 && q->arrival_ns >= u->warm_ns &&
                        (double)(u->now_ns - q->arrival_ns) > 1e6 * u->o->ttft_ms;
    }
}

/* Of as many sessions as have these turns, on average. */
static double per_hour(const struct run *u, int64_t n_turns)
{
    const struct study_agent_opts *s = &u->o->sessions;
    double mean = s->turns * exp(s->turns_sigma * s->turns_sigma / 2);

    return (double)n_turns / mean / ((1 - WARM_FRAC) * u->o->hours);
}

static void sum_up(struct study_agents_result *r, struct run *u)
{
    double tok_ns = HOUR_NS * (1 - WARM_FRAC) * u->o->hours * (double)u->o->memory_tok;

    *r = (struct study_agents_result){
        .attained_frac = u->n_counted > 0 ? (double)u->n_good / (double)u->n_counted : 0,
        .sessions_per_h = per_hour(u, u->n_turns),
        .goodput_per_h = per_hour(u, u->n_good_turns),
        .ttft_first_p50_ms = stats_percentile(u->ttft[0], u->n_ttft[0], 0.5),
        .ttft_later_p50_ms = stats_percentile(u->ttft[1], u->n_ttft[1], 0.5),
        .ttft_later_p95_ms = stats_percentile(u->ttft[1], u->n_ttft[1], 0.95),
        .recomputed_frac = u->prompt_tok > 0
                               ? fmax(0, 1 - (double)u->fresh_tok / (double)u->prompt_tok)
                               : NAN,
        .used_frac = u->used_tok_ns / tok_ns,
        .kept_frac = u->kept_tok_ns / tok_ns};
}

int study_agents_run(struct study_agents_result *out, const struct study_agents_opts *o)
{
    struct run *u = mem_new(MEM_HARNESS, 1, sizeof(*u));
    int rc = open_run(u, o);

    while (rc == OK && (double)u->now_ns < HOUR_NS * o->hours)
        rc = step(u);
    if (rc == OK) {
        count_waiting(u);
        sum_up(out, u);
    }
    close_run(u);
    mem_free(u);
    return rc;
}
