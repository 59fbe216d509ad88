/* Memory for keys and values that is less than the requests need: which requests wait, which are
 * preempted, and that each gets the tokens that it gets alone. */
#include "serve/engine.h"
#include "tests/serve/twelve.h"

static struct serve_seq *live(struct serve *s, int i)
{
    return (struct serve_seq *)serve_engine_of(s)->loop.live[i];
}

/* What holds after each step: no more memory than the budget, and those that have some came
 * before all that have none. */
static void check_memory(struct serve *s)
{
    bool none = false;
    struct serve_kv_stat kv;
    int64_t n_tok = 0;

    serve_kv_stat(s, &kv);
    assert_true(kv.reserved_tok <= kv.budget_tok);
    for (int i = 0; i < serve_engine_of(s)->loop.n_live; i++) {
        const struct serve_seq *q = live(s, i);

        assert_false(none && q->kv.base);
        none |= !q->kv.base;
        assert_true((q->r.state == SCHED_WAITING) == !q->kv.base);
        assert_true(q->r.n_ctx <= q->kv.n_tok);
        n_tok += q->kv.n_tok;
    }
    assert_int_equal(kv.reserved_tok, n_tok);
}

/* Run to the end. The oldest request never goes long without a token, so that nothing the
 * others do keeps it from its end: at most for the steps of the prompts that `continuous` may
 * admit meanwhile, of 5 tokens each. */
static void run_checked(struct serve *s)
{
    int64_t id = -1, n_ctx = 0, stuck = 0;
    bool busy = true;

    for (int steps = 0; busy; steps++) {
        assert_ok(serve_step(s, &busy));
        check_memory(s);
        assert_true(steps < 5000);
        if (serve_engine_of(s)->loop.n_live == 0)
            continue;
        stuck = live(s, 0)->r.id == id && live(s, 0)->r.n_ctx == n_ctx ? stuck + 1 : 0;
        assert_true(stuck < 40);
        id = live(s, 0)->r.id;
        n_ctx = live(s, 0)->r.n_ctx;
    }
}

static void run_all(const char *policy, int64_t budget_tok, int64_t max_step_tok,
                    int64_t ranks, const struct tiny_got *alone)
{
    struct serve_opts o = twelve_opts(policy, budget_tok);
    struct tiny_got got[N_REQUESTS];
    bool several = strcmp(policy, "fcfs") != 0;
    struct serve_kv_stat kv;
    json_t *d, *work;
    struct serve *s;
    int64_t id;

    o.max_step_tok = max_step_tok;
    o.threads = ranks > 1 ? 2 : 0;
    o.ranks = ranks;
    s = tiny_open(&o);
    for (int i = 0; i < N_REQUESTS; i++)
        twelve_submit(s, i, &got[i], &id);
    run_checked(s);
    for (int i = 0; i < N_REQUESTS; i++) {
        assert_int_equal(got[i].finish, SERVE_LENGTH);
        tiny_assert_same(&got[i], &alone[i]);
    }
    serve_kv_stat(s, &kv);
    assert_int_equal(kv.budget_tok, budget_tok);
    assert_int_equal(kv.reserved_tok, 0);
    assert_true(several == (kv.n_preempted > 0)); /* one at a time lacks nothing */
    assert_true((kv.n_recomputed_tok > 0) == (kv.n_preempted > 0));
    assert_ok(serve_describe(s, &d));
    work = json_object_get(d, "work");
    assert_int_equal(json_integer_value(json_object_get(work, "n_preempted")),
                     kv.n_preempted);
    assert_int_equal(json_integer_value(json_object_get(work, "n_recomputed_tok")),
                     kv.n_recomputed_tok);
    json_decref(d);
    serve_close(&s);
}

TEST(test_same_tokens)
{
    struct tiny_got alone[N_REQUESTS];

    twelve_alone(alone);
    for (int i = 0; sched_policies[i]; i++) {
        run_all(sched_policies[i]->name, 40, 512, 1, alone);
        run_all(sched_policies[i]->name, 64, 5, 1, alone);
    }
    run_all("continuous", 50, 512, 2, alone);
}

/* The tokens computed in steps are those of the requests and those computed again. */
TEST(test_counts)
{
    struct serve_opts o = twelve_opts("continuous", 40);
    struct serve *s = tiny_open(&o);
    struct tiny_got got[N_REQUESTS];
    struct serve_kv_stat kv;
    int64_t id, want = 0;

    for (int i = 0; i < N_REQUESTS; i++) {
        twelve_submit(s, i, &got[i], &id);
        want +=
            n_prompt_of(i) + max_new_of(i) - 1; /* the last token is not computed with */
    }
    run_checked(s);
    serve_kv_stat(s, &kv);
    assert_int_equal(serve_totals_of(s, SERVE_PREFILL)->n_tok +
                         serve_totals_of(s, SERVE_DECODE)->n_tok,
                     want + kv.n_recomputed_tok);
    assert_true(serve_totals_of(s, SERVE_DECODE)->sched_ns > 0);
    serve_close(&s);
}

/* Admission for the longest output: whoever starts ends, so nobody is preempted. */
TEST(test_admit_max)
{
    struct serve_opts o = twelve_opts("continuous", 64);
    struct tiny_got alone[N_REQUESTS], got[N_REQUESTS];
    struct serve_kv_stat kv;
    struct serve *s;
    int64_t id;

    twelve_alone(alone);
    o.kv_admit = SERVE_ADMIT_MAX;
    s = tiny_open(&o);
    for (int i = 0; i < N_REQUESTS; i++)
        twelve_submit(s, i, &got[i], &id);
    run_checked(s);
    for (int i = 0; i < N_REQUESTS; i++)
        tiny_assert_same(&got[i], &alone[i]);
    serve_kv_stat(s, &kv);
    assert_int_equal(kv.n_preempted, 0);
    serve_close(&s);
}

/* Step until a request that has had tokens is preempted, and return it. */
static struct serve_seq *until_preempted(struct serve *s)
{
    for (int steps = 0; steps < 1000; steps++) {
        bool busy;

        assert_ok(serve_step(s, &busy));
        for (int i = 0; i < serve_engine_of(s)->loop.n_live; i++)
            if (live(s, i)->r.n_preempted > 0 && live(s, i)->r.n_new > 0 &&
                !live(s, i)->kv.base)
                return live(s, i);
    }
    fail_msg("nobody was preempted");
    return NULL;
}

TEST(test_cancel)
{
    struct serve_opts o = twelve_opts("continuous", 40);
    struct serve *s = tiny_open(&o);
    struct tiny_got got[N_REQUESTS];
    struct serve_kv_stat kv;
    struct tiny_got *g;
    int n_canceled = 0;
    int64_t id[N_REQUESTS];
    bool busy;
    int n;

    for (int i = 0; i < N_REQUESTS; i++)
        twelve_submit(s, i, &got[i], &id[i]);
    g = until_preempted(s)->ctx;
    n = g->n;
    serve_cancel(s, g->request);
    assert_ok(serve_step(s, &busy));
    assert_int_equal(g->finish, SERVE_CANCELED);
    assert_int_equal(g->n, n);
    run_checked(s);
    for (int i = 0; i < N_REQUESTS; i++)
        n_canceled += got[i].finish == SERVE_CANCELED;
    assert_int_equal(n_canceled, 1);
    serve_kv_stat(s, &kv);
    assert_int_equal(kv.reserved_tok, 0);
    serve_close(&s);
}

TEST(test_close)
{
    struct serve_opts o = twelve_opts("continuous", 40);
    struct serve *s = tiny_open(&o);
    struct tiny_got got[N_REQUESTS];
    int64_t id;

    for (int i = 0; i < N_REQUESTS; i++)
        twelve_submit(s, i, &got[i], &id);
    (void)until_preempted(s);
    serve_close(&s);
    for (int i = 0; i < N_REQUESTS; i++)
        assert_true(got[i].finish == SERVE_CANCELED || got[i].finish == SERVE_LENGTH);
    assert_int_equal(mem_used_bytes(MEM_KV), 0);
}

TEST(test_limits)
{
    struct serve_opts o = twelve_opts("continuous", 20);
    struct serve *s = tiny_open(&o);
    int32_t ids[SEQ] = {0};
    struct serve_request r;
    struct tiny_got g;
    int64_t id;

    assert_int_equal(s->max_tok, 20); /* a longer one could never have its memory */
    r = tiny_request(ids, 10, 11, &g);
    assert_err(serve_submit(s, &r, &id), ERR_LIMIT,
               "at most 20 together; --kv-budget-tok");
    r = tiny_request(ids, 10, 10, &g);
    assert_ok(serve_submit(s, &r, &id));
    tiny_run(s);
    assert_int_equal(g.n, 10);
    serve_close(&s);
}

TEST(test_steps_take_no_memory)
{
    struct serve_opts o = twelve_opts("chunked", 40);
    struct serve *s = tiny_open(&o);
    struct tiny_got got[N_REQUESTS];
    struct serve_kv_stat kv;
    int64_t id;
    long before;

    for (int i = 0; i < N_REQUESTS; i++)
        twelve_submit(s, i, &got[i], &id);
    before = mem_n_allocs();
    tiny_run(s);
    assert_int_equal(mem_n_allocs(), before);
    serve_kv_stat(s, &kv);
    assert_true(kv.n_preempted > 0);
    serve_close(&s);
}

/* ---- what a policy sees ---- */

static struct sched_seq seen[N_REQUESTS];
static int64_t seen_free_tok, n_seen;

/* The first sequence in even steps, the second in odd ones. */
static int look_step(const struct sched_view *v, struct sched_batch_entry *e, int max)
{
    static int turn;
    int i = turn++ % 2;

    (void)max;
    memcpy(seen, v->seqs, (size_t)v->n_seqs * sizeof(seen[0]));
    n_seen = v->n_seqs;
    seen_free_tok = v->n_free_tok;
    i = i < v->n_seqs ? i : 0;
    e[0] = (struct sched_batch_entry){
        .seq = i, .n_tok = 1, .admit = v->seqs[i].state == SCHED_WAITING};
    return v->n_seqs > 0;
}

TEST(test_view)
{
    static const struct sched_policy look = {.name = "look", .step = look_step};
    struct serve_opts o = twelve_opts("fcfs", 50);
    struct serve *s = tiny_open(&o);
    struct tiny_got got[3];
    int64_t id;
    bool busy;

    serve_engine_of(s)->loop.o.policy = &look;
    for (int i = 0; i < 3; i++)
        twelve_submit(s, i, &got[i], &id);
    for (int step = 0; step < 7; step++)
        assert_ok(serve_step(s, &busy));
    assert_int_equal(n_seen, 3);
    assert_int_equal(seen[0].age, 1); /* step 6 sees steps 4 and 5 */
    assert_int_equal(seen[1].age, 0);
    assert_int_equal(seen[2].age, 6);
    assert_int_equal(seen[2].n_reserve, n_prompt_of(2) + 1);
    assert_int_equal(seen[0].n_reserve, 0); /* it has its memory */
    /* One token a step: three of each prompt and that of new tokens, as far as they are. */
    assert_int_equal(seen_free_tok, 50 - live(s, 0)->kv.n_tok - live(s, 1)->kv.n_tok);
    serve_close(&s);
}

TEST_GROUP(tiny_make, NULL);
