/* What the loop tells a policy, in random runs: each number of the view is that which the test
 * counts itself, and a policy is asked for no more than it may give. */
#include "tests/support/test.h"

#include "sched/loop.h"

#define N_REQUESTS 30

struct request {
    struct sched_request r; /* first */
    int64_t n_output, size_tok;
    int64_t age, n_paused; /* as counted here */
    bool viewed, chosen, in_batch;
};

struct world {
    struct sched_loop loop;
    const struct sched_policy *under; /* the policy that is asked in turn */
    struct request q[N_REQUESTS];
    int n_sent, n_asked, n_wanted, n_admitted; /* the last three: in this step */
    int64_t budget_tok, reserved_tok, n_preempted;
};

static struct world *seen_by_policy;

static int64_t free_tok(void *ctx)
{
    const struct world *w = ctx;

    return w->budget_tok - w->reserved_tok;
}

static int64_t need_tok(void *ctx, const struct sched_request *r)
{
    (void)ctx;
    return sched_request_n_known(r) + 1;
}

static int reserve(void *ctx, struct sched_request *r)
{
    struct world *w = ctx;
    int64_t n = need_tok(ctx, r);

    if (n > free_tok(w))
        return err_set(ERR_NOMEM, "none is free");
    ((struct request *)r)->size_tok = n;
    w->reserved_tok += n;
    return OK;
}

static int grow(void *ctx, struct sched_request *r, int64_t n_tok)
{
    struct world *w = ctx;
    struct request *q = (struct request *)r;

    if (n_tok - q->size_tok > free_tok(w))
        return err_set(ERR_NOMEM, "none is free");
    if (n_tok > q->size_tok) {
        w->reserved_tok += n_tok - q->size_tok;
        q->size_tok = n_tok;
    }
    return OK;
}

static void release(void *ctx, struct sched_request *r)
{
    struct world *w = ctx;
    struct request *q = (struct request *)r;

    w->reserved_tok -= q->size_tok;
    q->size_tok = 0;
}

static void refuse(void *ctx, struct sched_request *r, int rc)
{
    (void)ctx, (void)r;
    fail_msg("refused: %d", rc);
}

static void drop(void *ctx, struct sched_request *r)
{
    (void)ctx;
    assert_true(r->ended);
}

static void on_event(void *ctx, enum sched_event event, const struct sched_request *r)
{
    struct world *w = ctx;

    w->n_preempted += event == SCHED_PREEMPTED;
    w->n_admitted += event == SCHED_ADMITTED;
    assert_true(w->n_admitted <= w->n_wanted); /* some memory is always held */
    assert_true(event != SCHED_PREEMPTED || r->n_ctx == 0);
}

static void check_seq(const struct sched_seq *s, const struct request *q)
{
    bool decodes = q->r.state == SCHED_DECODE, waits = q->r.state == SCHED_WAITING;

    assert_int_equal(s->id, q->r.id);
    assert_int_equal(s->arrival, q->r.id);
    assert_int_equal(s->state, q->r.state);
    assert_int_equal(s->n_ctx, q->r.n_ctx);
    assert_int_equal(s->n_prompt_left,
                     decodes ? 0 : sched_request_n_known(&q->r) - q->r.n_ctx);
    assert_int_equal(s->n_max, q->r.n_prompt + q->r.max_new);
    assert_int_equal(s->n_reserve, waits ? sched_request_n_known(&q->r) + 1 : 0);
    assert_int_equal(s->age, q->age);
    assert_int_equal(s->n_paused, q->n_paused);
}

static int spy(const struct sched_view *v, struct sched_batch_entry *entries, int max)
{
    struct world *w = seen_by_policy;
    const struct sched_loop *l = &w->loop;
    int64_t n_seqs = 0, n_waited = 0;
    int n;

    assert_int_equal(v->n_seqs, l->n_live);
    for (int i = 0; i < l->n_live; i++) {
        struct request *q = (struct request *)l->live[i];

        check_seq(&v->seqs[i], q);
        n_seqs += q->r.state != SCHED_WAITING;
        n_waited += q->r.n_waited;
        q->viewed = true;
        q->chosen = false;
    }
    /* Asked once more, or while one waits to grow, it may admit nobody. */
    assert_int_equal(v->n_free_slots,
                     w->n_asked++ || n_waited > 0 ? 0 : l->o.max_seqs - n_seqs - 1);
    assert_int_equal(v->n_free_tok, free_tok(w));
    assert_int_equal(v->max_step_tok, l->o.max_step_tok);
    assert_int_equal(v->max_batch_prompt_tok, l->o.max_batch_prompt_tok);
    assert_int_equal(max, l->n_live < l->o.max_seqs ? l->n_live : l->o.max_seqs);
    n = w->under->step(v, entries, max);
    for (int i = 0; i < n; i++)
        ((struct request *)l->live[entries[i].seq])->chosen = true;
    for (int i = 0; i < n && w->n_asked == 1; i++)
        w->n_wanted += entries[i].admit;
    return n;
}

static void send(struct world *w, struct rng *r, bool has_keys)
{
    struct request *q = &w->q[w->n_sent];

    q->n_output = 1 + has_keys + (int64_t)rng_below(r, 20);
    q->r = (struct sched_request){.id = w->n_sent++,
                                  .n_prompt = 1 + (int64_t)rng_below(r, 20),
                                  .max_new = q->n_output + (int64_t)rng_below(r, 5)};
    if (has_keys) { /* and the first token, from another machine */
        q->r.n_new = 1;
        q->r.n_ctx = q->r.n_prompt;
        assert_ok(reserve(w, &q->r));
    }
    assert_ok(sched_loop_add(&w->loop, &q->r));
}

/* Keys arrive at any time, so also while a step runs: it does not pass over a request that its
 * policy had not seen. Regression: it was counted as paused, and moved up. */
static void keys_arrive(struct world *w, struct rng *r)
{
    if (w->n_sent < N_REQUESTS && rng_below(r, 3) == 0 && free_tok(w) > 22 &&
        w->loop.n_seqs + w->loop.n_held < w->loop.o.max_seqs)
        send(w, r, true);
}

static void step(struct world *w, struct rng *r)
{
    int64_t n_preempted = w->n_preempted;
    int n;

    w->n_asked = w->n_wanted = w->n_admitted = 0;
    n = sched_loop_batch(&w->loop);
    assert_in_range(w->n_asked, 1, 2);
    /* where none could go on, one had to give way */
    assert_true(n > 0 || w->loop.n_seqs == 0 || w->n_preempted > n_preempted);
    for (int i = 0; i < w->loop.n_live; i++)
        ((struct request *)w->loop.live[i])->in_batch = false;
    for (int i = 0; i < n; i++) {
        struct request *q = (struct request *)w->loop.batch[i];

        assert_true(q->chosen);
        q->in_batch = true;
        if (sched_loop_computed(&w->loop, &q->r))
            q->r.ended = q->r.n_new == q->n_output;
    }
    keys_arrive(w, r);
    for (int i = 0; i < w->loop.n_live; i++) {
        struct request *q = (struct request *)w->loop.live[i];
        int64_t left = sched_request_n_known(&q->r) - q->r.n_ctx;

        /* with a token to go it decodes, in whatever state it is */
        q->n_paused += q->viewed && !q->chosen && q->r.n_ctx > 0 && left == 1;
        q->age = q->in_batch ? 0 : q->age + 1;
    }
    sched_loop_age(&w->loop);
    sched_loop_drop(&w->loop);
}

TEST(a_policy_sees_what_there_is)
{
    static struct world w;
    const struct sched_policy policy = {.name = "spy", .step = spy};
    int64_t n_preempted = 0;
    struct rng r;

    rng_init(&r, test_seed(), "views");
    for (int k = 0; k < 400; k++) {
        struct sched_loop_opts o = {
            .policy = &policy,
            .alloc = {.free_tok = free_tok,
                      .need_tok = need_tok,
                      .reserve = reserve,
                      .grow = grow,
                      .release = release},
            .refuse = refuse,
            .drop = drop,
            .trace = on_event,
            .ctx = &w,
            .trace_ctx = &w,
            .max_seqs = 2 + (int64_t)rng_below(&r, 6),
            .max_step_tok = 1 + (int64_t)rng_below(&r, 30),
            .max_batch_prompt_tok = 1 + (int64_t)rng_below(&r, 30),
            .patience = (int64_t)rng_below(&r, 4),
            .max_age = 50,
            .mix_buckets = k % 2,
        };

        w = (struct world){.budget_tok = 50 + (int64_t)rng_below(&r, 100)};
        for (int i = 0; sched_policies[i]; i++)
            w.under = i <= k % 5 ? sched_policies[i] : w.under;
        seen_by_policy = &w;
        assert_ok(sched_loop_open(&w.loop, &o));
        sched_loop_hold(&w.loop, 3);
        sched_loop_hold(&w.loop, -2);
        while (w.n_sent < N_REQUESTS || w.loop.n_live > 0) {
            while (w.n_sent < N_REQUESTS && rng_below(&r, 3) == 0)
                send(&w, &r, false);
            step(&w, &r);
            assert_true(w.loop.step < 20000);
        }
        n_preempted += w.n_preempted;
        sched_loop_close(&w.loop);
    }
    assert_true(n_preempted > 100);
}
