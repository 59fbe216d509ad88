/* Machines on one memory controller: each step takes as long as its neighbours let it, to the
 * nanosecond of the closed form; what holds in every history holds with contention too. */
#include "tests/cluster/world.h"

/* One prompt on each of n mixed machines, at 0, with the i-th of these lengths. */
struct prompts {
    const int64_t *tok;
    int at, n;
    int64_t end_ns[WORLD_MACHINES], first_ns[WORLD_MACHINES];
    int64_t n_output;
};

static bool next_prompt(void *ctx, struct cluster_arrival *a)
{
    struct prompts *p = ctx;

    if (p->at == p->n)
        return false;
    *a = (struct cluster_arrival){0, p->tok[p->at++], p->n_output};
    return true;
}

static void on_done(void *ctx, const struct cluster_done *d)
{
    struct prompts *p = ctx;

    p->end_ns[d->number] = d->last_ns;
    p->first_ns[d->number] = d->first_ns;
}

static void run_prompts(struct prompts *p, const struct cluster_contention *x,
                        const int *controllers)
{
    struct world w;

    world_init(&w, 0, 0, p->n, 1);
    assert_ok(cluster_router_find("round_robin", &w.o.router));
    for (int i = 0; i < p->n; i++)
        w.m[i].controller = controllers[i];
    w.o.contention = x;
    w.o.next = next_prompt;
    w.o.next_ctx = p;
    w.o.observer = (struct cluster_observer){.ctx = p, .done = on_done};
    assert_ok(cluster_run(&w.stat, &w.o));
    assert_int_equal(w.stat.n_done, p->n);
    /* Busy is the time of the steps as they were. */
    if (p->n_output == 1) {
        double sum = 0;

        for (int i = 0; i < p->n; i++)
            sum += (double)p->end_ns[i];
        assert_true(w.stat.busy_ns[CLUSTER_PROMPT] + w.stat.busy_ns[CLUSTER_TOKEN] ==
                    sum);
    }
}

/* A prompt of n tokens takes 1 ms and 10 us a token: 11 ms and 21 ms here. */
TEST(two_prompts_by_closed_form)
{
    const struct cluster_contention x = {{{2, 1}, {1, 1}}};
    const int64_t tok[] = {1000, 2000};
    struct prompts p = {.tok = tok, .n = 2, .n_output = 1};
    struct prompts q = p, alone = p;

    run_prompts(&p, &x, (const int[]){1, 1});
    assert_int_equal(p.end_ns[0], 22 * MS); /* at half of the speed */
    assert_int_equal(p.end_ns[1], 32 * MS); /* 11 ms done, 10 ms alone */
    run_prompts(&q, &x, (const int[]){1, 2});
    run_prompts(&alone, NULL, (const int[]){1, 1});
    for (int i = 0; i < 2; i++) {
        assert_int_equal(q.end_ns[i], alone.end_ns[i]);
        assert_int_equal(q.end_ns[i], (11 + 10 * i) * MS);
    }
    q = (struct prompts){.tok = tok, .n = 2, .n_output = 1};
    run_prompts(&q, &x, (const int[]){0, 0}); /* 0: nobody's neighbour */
    assert_int_equal(q.end_ns[1], 21 * MS);
}

TEST(three_neighbours_multiply)
{
    const struct cluster_contention x = {{{2, 1}, {1, 1}}};
    const int64_t tok[] = {900, 1900, 2900}; /* 10, 20, 30 ms alone */
    struct prompts p = {.tok = tok, .n = 3, .n_output = 1};

    run_prompts(&p, &x, (const int[]){7, 7, 7});
    assert_int_equal(p.end_ns[0], 40 * MS);
    assert_int_equal(p.end_ns[1], 60 * MS); /* 10 left at a half */
    assert_int_equal(p.end_ns[2], 70 * MS); /* 10 + 10 done, 10 alone */
}

/* A token step takes 2.05 ms alone. The prompt of 11 ms next to it slows it by 3 and is itself
 * slowed by 1.25 while it runs. */
TEST(kinds_have_their_own_factors)
{
    const struct cluster_contention x = {{{1, 1.25}, {3, 1}}};
    const int64_t tok[] = {100, 1000}; /* 2 and 11 ms alone */
    struct prompts p = {.tok = tok, .n = 2, .n_output = 3};

    run_prompts(&p, &x, (const int[]){1, 1});
    assert_int_equal(p.first_ns[0], 2 * MS);
    /* From 2 ms on the long prompt has 9 ms left: 11.25 ms with two tokens of 6.15 ms. */
    assert_true(p.first_ns[1] == 2 * MS + 11250000);
    /* The second token runs from 8.15 ms to 13.25 ms at a third, 0.35 ms of it are left, and
     * then nobody runs a prompt. */
    assert_in_range(p.end_ns[0], 13250000 + 350000, 13250000 + 350001);
}

static struct cluster_stat run_busy(uint64_t seed, const struct cluster_contention *x,
                                    char **log, size_t *n)
{
    FILE *f = log ? open_memstream(log, n) : NULL;
    struct world w;

    world_init(&w, 3, 2, 0, seed);
    w.o.prompt_threshold = 2000;
    w.o.token_threshold = 8;
    w.n_left = 400;
    w.mean_gap_ns = (2 + (int64_t)(seed % 4)) * MS;
    w.o.report_ns = seed % 3 == 2 ? 20 * MS : 0;
    for (int i = 0; i < w.o.n_machines; i++) {
        w.m[i].controller = 1 + i % 2;
        w.m[i].link_gbps = seed % 2 ? 1 : 1000; /* transfers that end with the prompt */
        w.m[i].link_alpha_ns = 0;
        w.m[i].kv_tok = seed % 5 == 1 ? 7000 : 20000;
    }
    w.o.layer_wise_tok = 0;
    w.o.contention = x;
    w.o.log = f;
    world_run(&w);
    if (f)
        fclose(f);
    if (w.n_wrong)
        fail_msg("seed %d: %s", (int)seed, w.wrong);
    return w.stat;
}

TEST(factors_of_one_change_nothing)
{
    const struct cluster_contention one = {{{1, 1}, {1, 1}}};

    for (uint64_t seed = 1; seed <= 6; seed++) {
        char *text[2];
        size_t n[2];

        (void)run_busy(seed, NULL, &text[0], &n[0]);
        (void)run_busy(seed, &one, &text[1], &n[1]);
        assert_int_equal(n[0], n[1]);
        assert_memory_equal(text[0], text[1], n[0]);
        free(text[0]);
        free(text[1]);
    }
}

/* Every request has its tokens once, memory is given back, machines return to their pools. */
TEST(histories_with_contention)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        const struct cluster_contention x = {
            {{1 + 0.1 * (double)(seed % 7), 1.2}, {1.9, 1 + 0.3 * (double)(seed % 3)}}};
        struct cluster_stat alone = run_busy(seed, NULL, NULL, NULL);
        struct cluster_stat both = run_busy(seed, &x, NULL, NULL);

        assert_int_equal(both.n_done, 400);
        assert_true(both.n_transferred > 0);
        assert_true((both.busy_ns[0] + both.busy_ns[1]) / (double)both.n_done >
                    0.9 * (alone.busy_ns[0] + alone.busy_ns[1]) / 400);
    }
}

TEST(bad_factors)
{
    const struct cluster_contention x = {{{1, 1}, {0.9, 1}}};
    struct world w;

    world_init(&w, 1, 1, 0, 1);
    w.o.contention = &x;
    assert_err(cluster_run(&w.stat, &w.o), ERR_ARG,
               "a slowdown of 0.9; expected at least 1");
}
