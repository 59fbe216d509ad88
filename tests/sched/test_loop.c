/* The serving loop over an allocator of the test's own: thousands of random histories with
 * arrivals, cancels, growth, overflow and preemption, and what must hold after each event. Also
 * its rules one by one: buckets, ages, patience. */
#include "tests/support/test.h"

#include "sched/loop.h"

#define N_REQUESTS 40
#define N_BUCKETS  3

struct request {
    struct sched_request r; /* first */
    int64_t size_tok;       /* of its memory; 0: none */
    int64_t n_output;       /* what it will generate, at most r.max_new */
    int64_t predicted;      /* what is reserved for it beyond what is known */
    int64_t n_tokens;       /* that it was told of */
    bool sent, dropped, restarted;
};

struct world {
    struct sched_loop loop;
    struct rng rng;
    struct request q[N_REQUESTS];
    int n, n_sent, n_dropped;
    int64_t budget_tok, reserved_tok, align_tok, max_tok;
    bool buckets, restarts; /* memory is of several kinds; who outgrows it begins again */
    int64_t n_refused, n_preempted;
};

static const char *history_policy; /* of the one that runs, to print where it fails */
static uint64_t history_seed;

/* ---- an allocator: blocks of a multiple of align_tok out of one budget ---- */

static int64_t align_up(const struct world *w, int64_t n)
{
    n = (n + w->align_tok - 1) / w->align_tok * w->align_tok;
    return n < w->max_tok ? n : w->max_tok;
}

static int64_t wanted_tok(const struct request *q)
{
    int64_t n = sched_request_n_known(&q->r) + q->predicted,
            most = q->r.n_prompt + q->r.max_new;

    return n < most ? n : most;
}

static int64_t free_tok(void *ctx)
{
    const struct world *w = ctx;

    return w->budget_tok - w->reserved_tok;
}

static int64_t need_tok(void *ctx, const struct sched_request *r)
{
    return align_up(ctx, wanted_tok((const struct request *)r));
}

static int bucket(void *ctx, const struct sched_request *r)
{
    const struct world *w = ctx;

    return w->buckets ? (int)(r->id % N_BUCKETS) : 0;
}

static int reserve(void *ctx, struct sched_request *r)
{
    struct world *w = ctx;
    struct request *q = (struct request *)r;
    int64_t n = align_up(w, wanted_tok(q));

    assert_true(r->n_ctx == 0 && q->size_tok == 0 && !q->dropped);
    if (align_up(w, r->n_prompt + r->max_new) > w->budget_tok)
        return err_set(ERR_LIMIT, "larger than all memory");
    if (n > free_tok(w))
        return err_set(ERR_NOMEM, "none is free");
    q->size_tok = n;
    w->reserved_tok += n;
    if (w->align_tok % 2) /* some of its tokens are there already */
        r->n_ctx = (int64_t)rng_below(&w->rng, (uint64_t)sched_request_n_known(r));
    return OK;
}

static int grow(void *ctx, struct sched_request *r, int64_t n_tok)
{
    struct world *w = ctx;
    struct request *q = (struct request *)r;
    int64_t more = align_up(w, n_tok) - q->size_tok;

    assert_true(q->size_tok > 0 && !q->dropped && n_tok > r->n_ctx);
    if (more <= 0)
        return OK;
    if (w->restarts && !q->restarted) {
        q->restarted = true;
        q->predicted = r->max_new;
        return err_set(ERR_UNSUPPORTED, "it begins again");
    }
    if (more > free_tok(w))
        return err_set(ERR_NOMEM, "none is free");
    q->size_tok += more;
    w->reserved_tok += more;
    return OK;
}

static void release(void *ctx, struct sched_request *r)
{
    struct world *w = ctx;
    struct request *q = (struct request *)r;

    assert_true(q->size_tok > 0);
    w->reserved_tok -= q->size_tok;
    q->size_tok = 0;
}

static void refuse(void *ctx, struct sched_request *r, int rc)
{
    struct world *w = ctx;

    assert_true(r->ended);
    assert_int_equal(rc, ERR_LIMIT); /* alone it always finds memory, or never can */
    err_clear();
    w->n_refused++;
}

static void drop(void *ctx, struct sched_request *r)
{
    struct world *w = ctx;
    struct request *q = (struct request *)r;

    assert_true(r->ended && q->sent && !q->dropped);
    assert_int_equal(q->size_tok, 0);
    q->dropped = true;
    w->n_dropped++;
}

/* ---- what holds ---- */

static void check(const struct world *w)
{
    const struct sched_loop *l = &w->loop;
    int64_t used = 0, reserved = 0, n_seqs = 0;
    bool waits = false;

    for (int i = 0; i < l->n_live; i++) {
        const struct request *q = (const struct request *)l->live[i];
        bool has_memory = q->r.state != SCHED_WAITING;

        assert_true(q->sent && !q->dropped); /* neither lost nor twice: by arrival */
        assert_true(i == 0 || l->live[i - 1]->id < q->r.id);
        assert_true(has_memory == (q->size_tok > 0));
        assert_true(q->r.n_ctx <= q->size_tok);
        assert_true(q->r.n_ctx <= sched_request_n_known(&q->r));
        assert_true(q->r.n_ctx <= q->r.n_done && q->r.n_new <= q->n_output);
        assert_true(has_memory || (q->r.n_ctx == 0 && q->r.n_waited == 0));
        /* One kind of memory, and nobody began again: in order of arrival. */
        if (!w->buckets && !w->restarts) {
            assert_false(waits && has_memory);
            waits = waits || (!has_memory && !q->r.ended);
        }
        used += q->r.n_ctx;
        reserved += q->size_tok;
        n_seqs += has_memory;
    }
    assert_int_equal(l->n_live, w->n_sent - w->n_dropped);
    assert_int_equal(used, l->used_tok);
    assert_int_equal(reserved, w->reserved_tok);
    assert_int_equal(n_seqs, l->n_seqs);
    assert_true(reserved <= w->budget_tok && n_seqs <= l->o.max_seqs);
}

static void check_batch(const struct world *w)
{
    const struct sched_loop *l = &w->loop;
    int64_t n_tok = 0, last = -1;

    assert_true(l->n_batch <= l->o.max_seqs);
    for (int i = 0; i < l->n_batch; i++) {
        const struct request *q = (const struct request *)l->batch[i];

        assert_true(q->r.id > last); /* each once, oldest first */
        last = q->r.id;
        assert_true(q->r.step_tok > 0 && q->r.n_ctx + q->r.step_tok <= q->size_tok);
        assert_true(q->r.n_ctx + q->r.step_tok <= sched_request_n_known(&q->r));
        assert_true(q->r.state != SCHED_DECODE || q->r.step_tok == 1);
        n_tok += q->r.step_tok;
    }
    assert_true(n_tok <= l->o.max_step_tok);
}

static void on_event(void *ctx, enum sched_event event, const struct sched_request *r)
{
    struct world *w = ctx;
    const struct request *q = (const struct request *)r;

    assert_true((q->size_tok > 0) == (event == SCHED_ADMITTED));
    assert_true(event == SCHED_DROPPED || !r->ended);
    if (event == SCHED_ADMITTED) {
        for (int i = 0; i < w->loop.n_live; i++) /* nobody is admitted meanwhile */
            assert_int_equal(w->loop.live[i]->n_waited, 0);
    }
    w->n_preempted += event == SCHED_PREEMPTED;
    if (event == SCHED_PREEMPTED && !q->restarted)
        for (int i = 0; i < w->loop.n_live; i++) /* the youngest that may be */
            assert_true(w->loop.live[i]->id <= r->id || w->loop.live[i]->pinned ||
                        w->loop.live[i]->state == SCHED_WAITING);
}

/* ---- histories ---- */

static void send(struct world *w)
{
    struct request *q = &w->q[w->n_sent];
    int64_t n = 1 + (int64_t)rng_below(&w->rng, (uint64_t)w->max_tok - 1);

    *q = (struct request){.r = {.id = w->n_sent, .n_prompt = n}, .sent = true};
    q->r.max_new = 1 + (int64_t)rng_below(&w->rng, (uint64_t)(w->max_tok - n));
    q->n_output = 1 + (int64_t)rng_below(&w->rng, (uint64_t)q->r.max_new);
    q->predicted = 1 + (int64_t)rng_below(&w->rng, (uint64_t)q->r.max_new);
    assert_ok(sched_loop_add(&w->loop, &q->r));
    w->n_sent++;
}

static void compute(struct world *w)
{
    for (int i = 0; i < w->loop.n_batch; i++) {
        struct request *q = (struct request *)w->loop.batch[i];

        if (!sched_loop_computed(&w->loop, &q->r))
            continue;
        q->n_tokens++;
        assert_int_equal(q->n_tokens, q->r.n_new); /* none is generated twice */
        if (q->r.n_new == q->n_output)
            q->r.ended = true;
    }
    sched_loop_age(&w->loop);
}

static void cancel_some(struct world *w)
{
    for (int i = 0; i < w->loop.n_live; i++)
        if (rng_below(&w->rng, 200) == 0)
            w->loop.live[i]->ended = true;
    sched_loop_drop(&w->loop);
}

static void open_world(struct world *w, const struct sched_policy *policy, uint64_t seed)
{
    struct sched_loop_opts o = {.policy = policy,
                                .alloc = {.free_tok = free_tok,
                                          .need_tok = need_tok,
                                          .bucket = bucket,
                                          .reserve = reserve,
                                          .grow = grow,
                                          .release = release},
                                .refuse = refuse,
                                .drop = drop,
                                .trace = on_event,
                                .ctx = w,
                                .trace_ctx = w};

    memset(w, 0, sizeof(*w));
    rng_init(&w->rng, seed, policy->name);
    w->max_tok = 2 + (int64_t)rng_below(&w->rng, 60);
    w->align_tok = 1 + (int64_t)rng_below(&w->rng, 8);
    w->budget_tok = w->max_tok * (1 + (int64_t)rng_below(&w->rng, 4));
    w->buckets = rng_below(&w->rng, 2);
    w->restarts = rng_below(&w->rng, 4) == 0;
    o.max_seqs = 1 + (int64_t)rng_below(&w->rng, 8);
    o.max_step_tok =
        rng_below(&w->rng, 2) ? INT64_MAX : 1 + (int64_t)rng_below(&w->rng, 40);
    o.patience = (int64_t)rng_below(&w->rng, 10);
    o.max_age = (int64_t)rng_below(&w->rng, 100);
    o.mix_buckets = rng_below(&w->rng, 4) == 0;
    w->n = 1 + (int)rng_below(&w->rng, N_REQUESTS);
    if (rng_below(&w->rng, 8) == 0) /* some can never have memory */
        w->budget_tok = 1 + (int64_t)rng_below(&w->rng, (uint64_t)w->max_tok);
    assert_ok(sched_loop_open(&w->loop, &o));
}

/* One history to its end, which comes after finitely many steps. */
static void run_history(struct world *w, const struct sched_policy *policy, uint64_t seed)
{
    int64_t most_steps;
    bool cancels;

    open_world(w, policy, seed);
    cancels = rng_below(&w->rng, 2);
    most_steps = 400 * N_REQUESTS * w->max_tok;
    while (w->n_sent < w->n || w->loop.n_live > 0) {
        while (w->n_sent < w->n && rng_below(&w->rng, 3) == 0)
            send(w);
        if (cancels)
            cancel_some(w);
        check(w);
        (void)sched_loop_batch(&w->loop);
        check_batch(w);
        if (w->loop.n_batch > 0)
            compute(w);
        check(w);
        sched_loop_drop(&w->loop);
        check(w);
        assert_true(w->loop.step < most_steps);
    }
    assert_int_equal(w->n_dropped, w->n);
    assert_true(w->reserved_tok == 0 && w->loop.n_seqs == 0 && w->loop.used_tok == 0);
    sched_loop_close(&w->loop);
}

static int print_history(void **state)
{
    (void)state;
    if (history_policy)
        print_message("# failed: policy %s, seed %llu\n", history_policy,
                      (unsigned long long)history_seed);
    return 0;
}

TEST_WITH(random_histories, NULL, print_history)
{
    static struct world w;
    int64_t n_preempted = 0, n_refused = 0;

    for (int i = 0; sched_policies[i]; i++)
        for (uint64_t k = 0; k < 1500; k++) {
            history_policy = sched_policies[i]->name;
            history_seed = test_seed() + k;
            run_history(&w, sched_policies[i], history_seed);
            n_refused += w.n_refused;
            n_preempted += w.n_preempted;
        }
    history_policy = NULL;
    assert_true(n_preempted > 1000 && n_refused > 100); /* they were not all easy */
    assert_int_equal(mem_used_bytes(MEM_OTHER), 0);
}

/* ---- one by one ---- */

/* A world of blocks of one token, all of one kind of policy; requests of these outputs. */
static void open_small(struct world *w, int64_t budget_tok, int64_t max_seqs)
{
    const struct sched_policy *p;

    assert_ok(sched_policy_find("chunked", &p));
    open_world(w, p, 1);
    w->max_tok = w->budget_tok = budget_tok;
    w->align_tok = 1;
    w->buckets = w->restarts = false;
    w->loop.o.max_seqs = max_seqs;
    w->loop.o.max_step_tok = INT64_MAX;
    w->loop.o.patience = 3;
    w->loop.o.max_age = 50;
    w->loop.o.mix_buckets = false;
    w->loop.bucket = 0;
}

static void add(struct world *w, int64_t id, int64_t n_prompt, int64_t n_output,
                int64_t predicted)
{
    struct request *q = &w->q[w->n_sent++];

    *q = (struct request){.r = {.id = id, .n_prompt = n_prompt, .max_new = n_output},
                          .n_output = n_output,
                          .predicted = predicted,
                          .sent = true};
    assert_ok(sched_loop_add(&w->loop, &q->r));
}

static int one_step(struct world *w)
{
    int n = sched_loop_batch(&w->loop);

    compute(w);
    sched_loop_drop(&w->loop);
    return n;
}

/* The bucket that was admitted last goes first, then the oldest, and none of a bucket that was
 * refused; here bucket 0 is that of ids that three divides. */
TEST(batches_are_of_one_bucket)
{
    static struct world w;

    open_small(&w, 100, 1);
    w.buckets = true;
    add(&w, 1, 1, 1, 1);
    add(&w, 3, 1, 1, 1);
    add(&w, 4, 1, 1, 1);
    add(&w, 5, 1, 1, 1);
    add(&w, 6, 1, 1, 1);
    for (int i = 0; i < 5; i++) {
        static const int64_t want[] = {3, 6, 1, 4, 5};

        assert_int_equal(one_step(&w), 1);
        assert_true(w.q[0].dropped == (i >= 2) && w.n_dropped == i + 1);
        for (int k = 0; k < 5; k++)
            assert_true(w.q[k].r.id != want[i] || w.q[k].dropped);
    }
    sched_loop_close(&w.loop);
}

/* However many requests of the preferred bucket come, the oldest is admitted once it has
 * waited for more than max_age steps, and nobody passes it then. */
TEST(nobody_starves)
{
    static struct world w;
    int64_t id = 1;
    int step = 0;

    open_small(&w, 100, 1);
    w.buckets = true;
    add(&w, id, 1, 1, 1);
    for (; !w.q[0].dropped; step++) {
        assert_true(step < 1000);
        w.n_sent = 1 + step % (N_REQUESTS - 1); /* the others' places are free again */
        id += id % N_BUCKETS ? N_BUCKETS - id % N_BUCKETS : N_BUCKETS;
        add(&w, id, 1, 1, 1);
        assert_int_equal(one_step(&w), 1);
    }
    assert_int_equal(step, 52); /* ages 0 to 50 are passed */
    sched_loop_close(&w.loop);
}

/* The first outgrows its memory where none is free: it waits for three steps, in which nobody is
 * admitted, then the youngest begins again, and the oldest goes on. */
TEST(the_youngest_is_preempted)
{
    static struct world w;

    open_small(&w, 30, 8);
    add(&w, 0, 4, 20, 1);
    add(&w, 1, 4, 10, 8);
    add(&w, 2, 4, 9, 9);
    assert_int_equal(one_step(&w), 3); /* 5, 12 and 13 tokens: all there is */
    assert_int_equal(one_step(&w), 3);
    add(&w, 3, 1, 1, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(one_step(&w), 2);
        assert_int_equal(w.q[0].r.n_waited, i + 1);
        assert_true(w.q[3].r.state == SCHED_WAITING && w.n_preempted == 0);
    }
    assert_int_equal(one_step(&w), 2);
    assert_true(w.n_preempted == 1 && w.q[2].r.n_preempted == 1);
    assert_true(w.q[2].r.state == SCHED_WAITING && w.q[2].r.n_new == 5);
    assert_int_equal(w.q[0].r.n_waited, 0);
    while (w.loop.n_live > 0)
        (void)one_step(&w);
    assert_true(w.q[2].n_tokens == 9 && w.loop.n_recomputed_tok > 0);
    sched_loop_close(&w.loop);
}

/* While one other goes on, patience counts as it does for more. */
TEST(one_that_goes_on_is_enough)
{
    static struct world w;

    open_small(&w, 17, 8);
    add(&w, 0, 4, 20, 1); /* 5 tokens, and 12 */
    add(&w, 1, 4, 10, 8);
    assert_true(one_step(&w) == 2 && one_step(&w) == 2);
    for (int i = 0; i < 4; i++)
        assert_true(one_step(&w) == 1 && w.q[0].r.n_waited == (i + 1) % 4 &&
                    w.n_preempted == (i == 3));
    sched_loop_close(&w.loop);
}

/* A request whose keys and values came from elsewhere counts as computed so far, and goes on with
 * its next token. */
TEST(what_came_counts)
{
    static struct world w;

    open_small(&w, 30, 8);
    w.q[0] = (struct request){
        .r = {.id = 1, .n_prompt = 7, .max_new = 3, .n_new = 1, .n_ctx = 7},
        .n_output = 3,
        .n_tokens = 1,
        .size_tok = 8,
        .sent = true};
    w.n_sent = 1;
    w.reserved_tok = 8;
    assert_ok(sched_loop_add(&w.loop, &w.q[0].r));
    check(&w);
    assert_true(w.loop.used_tok == 7 && w.loop.n_seqs == 1 &&
                w.loop.n_recomputed_tok == 0);
    assert_int_equal(one_step(&w), 1);
    assert_true(w.q[0].r.n_ctx == 8 && w.q[0].n_tokens == 2);
    assert_int_equal(one_step(&w), 1);
    assert_true(w.q[0].dropped && w.loop.used_tok == 0 && w.reserved_tok == 0);
    assert_int_equal(w.loop.n_recomputed_tok, 0);
    sched_loop_close(&w.loop);
}

/* Who can never have memory does not wait until others have given theirs back. */
TEST(too_large_is_refused_at_once)
{
    static struct world w;

    open_small(&w, 30, 8);
    w.max_tok = 1000;
    add(&w, 0, 4, 20, 1);
    assert_int_equal(one_step(&w), 1);
    add(&w, 1, 4, 100, 1);
    assert_int_equal(one_step(&w), 1);
    assert_true(w.n_refused == 1 && w.q[1].r.ended && !w.q[0].r.ended);
    while (w.loop.n_live > 0)
        (void)one_step(&w);
    assert_int_equal(w.q[0].n_tokens, 20);
    sched_loop_close(&w.loop);
}

/* Memory of requests that are not the loop's: others wait for it, and do not end without. */
TEST(held_memory_is_waited_for)
{
    static struct world w;

    open_small(&w, 30, 3);
    w.reserved_tok = 28; /* of one that has ended, or is still to come */
    sched_loop_hold(&w.loop, 1);
    add(&w, 0, 4, 20, 1);
    assert_int_equal(one_step(&w), 0);
    assert_true(w.q[0].r.state == SCHED_WAITING && !w.q[0].r.ended && w.n_refused == 0);
    w.reserved_tok = 0; /* it still counts as one of the most that have memory */
    add(&w, 1, 1, 5, 1);
    add(&w, 2, 1, 5, 1);
    assert_int_equal(one_step(&w), 2);
    assert_int_equal(w.loop.n_seqs, 2);
    sched_loop_hold(&w.loop, -1);
    while (w.loop.n_live > 0)
        (void)one_step(&w);
    assert_true(w.q[0].n_tokens == 20 && w.q[2].n_tokens == 5);
    sched_loop_close(&w.loop);
}

/* The youngest that may be preempted is, not the youngest. */
TEST(pinned_requests_stay)
{
    static struct world w;

    open_small(&w, 30, 8);
    add(&w, 0, 4, 20, 1);
    add(&w, 1, 4, 10, 8);
    add(&w, 2, 4, 9, 9);
    w.q[2].r.pinned = true;
    while (w.n_preempted == 0)
        (void)one_step(&w);
    assert_true(w.q[1].r.n_preempted == 1 && w.q[2].r.n_preempted == 0);
    while (w.loop.n_live > 0)
        (void)one_step(&w);
    assert_true(w.q[1].n_tokens == 10 && w.q[2].n_tokens == 9);
    sched_loop_close(&w.loop);
}

/* An array that cannot grow is kept, and so are the requests in it. */
static void fail_to_grow(struct world *w, int64_t id)
{
    int n_live = w->loop.n_live, rc;

    for (long n = 0; n < 4; n++) {
        struct request q = {.r = {.id = id, .n_prompt = 1, .max_new = 1}};

        mem_fail_after(n, 1);
        rc = sched_loop_add(&w->loop, &q.r);
        mem_fail_after(-1, 0);
        assert_true(rc == ERR_NOMEM && w->loop.n_live == n_live);
        assert_true(one_step(w) > 0);
        check(w);
    }
}

/* Memory follows the live requests, and a step takes none. */
TEST(steps_take_no_memory)
{
    static struct world w;
    int64_t id = 0;
    long before;
    int rc;

    open_small(&w, 100, 8);
    before = mem_n_allocs();
    for (long n = 0; n < 4; n++) { /* each array in turn */
        mem_fail_after(n, 1);
        w.q[0] = (struct request){.r = {.n_prompt = 1, .max_new = 1}};
        rc = sched_loop_add(&w.loop, &w.q[0].r);
        mem_fail_after(-1, 0);
        assert_true(rc == ERR_NOMEM && w.loop.n_live == 0 && w.loop.n_live_max == 0);
    }
    while (w.n_sent < 9 || w.loop.n_live < w.loop.n_live_max)
        add(&w, id++, 3, 5, 1);
    fail_to_grow(&w, id);
    while (w.n_sent < N_REQUESTS)
        add(&w, id++, 3, 5, 1);
    assert_true(mem_n_allocs() > before && w.loop.n_live_max < 3 * N_REQUESTS);
    before = mem_n_allocs();
    while (w.loop.n_live > 0)
        (void)one_step(&w);
    assert_int_equal(mem_n_allocs(), before);
    sched_loop_close(&w.loop);
}
