/* What must hold in each history of a cluster, and that routers and policies that break it are
 * found. test_rules.sh breaks the rest. */
#include "sched/batch.h"
#include "tests/cluster/world.h"

/* Lower thresholds and less memory than usual, so that every rule is used. */
static void make_busy(struct world *w, uint64_t seed)
{
    world_init(w, 3, 2, 0, seed);
    w->o.prompt_threshold = 2000;
    w->o.token_threshold = 8;
    w->n_left = 400;
    w->mean_gap_ns = 3 * MS;
}

TEST(random_histories)
{
    int64_t n_moves = 0, n_pool_moves = 0, n_preempted = 0, max_paused = 0;

    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct world w;

        make_busy(&w, seed);
        w.mean_gap_ns = (1 + (int64_t)(seed % 5)) * MS;
        w.o.report_ns = seed % 3 == 2 ? 20 * MS : 0;
        w.o.repurpose_ns = seed % 4 == 1 ? 200 * MS : 0;
        w.max_prompt = seed % 6 == 0 ? 5000 : seed % 6 == 1 ? 50 : 1500;
        w.max_output = seed % 6 == 1 ? 400 : 40;
        for (int i = 0; i < w.o.n_machines && seed % 2 && seed % 10 != 7; i++)
            w.m[i].kv_tok = seed % 6 == 1 ? 1200 : 7000;
        if (seed % 10 == 7)
            cluster_opts_splitwise_sim(&w.o);
        world_run(&w);
        if (w.n_wrong)
            fail_msg("seed %d: %s", (int)seed, w.wrong);
        n_moves += w.n_moves;
        n_pool_moves += w.stat.n_pool_moves;
        n_preempted += w.stat.n_preempted;
        max_paused = w.max_paused > max_paused ? w.max_paused : max_paused;
        assert_true(w.stat.live_ns == (double)w.sum_latency_ns ||
                    fabs(w.stat.live_ns / (double)w.sum_latency_ns - 1) < 1e-9);
    }
    assert_true(n_moves > 1000 && n_pool_moves > 100 && n_preempted > 0);
    assert_true(max_paused > 0);
}

static int longest_queue(const struct cluster_choice *c)
{
    int worst = 0;

    for (int i = 1; i < c->n; i++)
        worst = c->loads[i] > c->loads[worst] ? i : worst;
    return worst;
}

static const struct cluster_router broken_router = {.name = "longest",
                                                    .choose = longest_queue};

/* Prompts only, as long as there are any, and more than share a step. */
static int starve_step(const struct sched_view *v, struct sched_batch_entry *e, int max)
{
    int64_t tok = v->max_step_tok;
    int n = sched_add_prompts(v, &tok, e, 0, max);

    return n ? n : sched_add_decodes(v, &tok, e, 0, max);
}

static const struct sched_policy broken_policy = {.name = "starve", .step = starve_step};

static void expect_wrong(struct world *w, const char *what)
{
    int rc = cluster_run(&w->stat, &w->o);

    if (rc == OK && w->stat.kv_used_tok != 0)
        WRONG(w, "memory: %d tokens are left at the end", (int)w->stat.kv_used_tok);
    if (w->n_wrong == 0)
        fail_msg("%s: nothing was found", what);
    if (strncmp(w->wrong, what, strlen(what)) != 0)
        fail_msg("expected %s, found %s", what, w->wrong);
}

TEST(a_broken_router_is_found)
{
    struct world w;

    make_busy(&w, 1);
    w.o.router = &broken_router;
    expect_wrong(&w, "jsq");
}

TEST(a_batch_that_is_too_large_is_found)
{
    struct world w;

    make_busy(&w, 3);
    w.mean_gap_ns = MS;
    w.o.max_batch_prompt_tok = 1 << 20;
    expect_wrong(&w, "batch");
}

TEST(a_policy_that_starves_is_found)
{
    struct world w;

    world_init(&w, 0, 0, 1, 4);
    w.o.policy = &broken_policy;
    w.o.max_batch_prompt_tok = 0;
    w.max_prompt = 1000;
    w.mean_gap_ns = 9 * MS;
    w.o.observer.step = NULL;
    expect_wrong(&w, "paused");
}

/* Twice the same history, and another with another seed. */
TEST(one_seed_is_one_history)
{
    char *text[3];
    size_t n[3];

    for (int i = 0; i < 3; i++) {
        struct world w;
        FILE *f = open_memstream(&text[i], &n[i]);

        make_busy(&w, 5);
        assert_ok(cluster_router_find("random", &w.o.router));
        w.o.observer.routed = NULL;
        w.o.seed = i < 2 ? 7 : 8;
        w.o.log = f;
        world_run(&w);
        fclose(f);
    }
    assert_true(n[0] > 10000);
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(text[0], text[1], n[0]);
    assert_true(n[0] != n[2] || memcmp(text[0], text[2], n[0]) != 0);
    for (int i = 0; i < 3; i++)
        free(text[i]);
}

TEST(every_router_ends)
{
    for (int i = 0; cluster_routers[i]; i++) {
        struct world w;

        make_busy(&w, 6);
        w.o.router = cluster_routers[i];
        w.o.observer.routed = NULL;
        w.o.report_ns = 50 * MS;
        world_run(&w);
        if (w.n_wrong)
            fail_msg("%s: %s", cluster_routers[i]->name, w.wrong);
        assert_int_equal(w.n_done, 400);
    }
}

/* Between reports the scheduler counts what it has assigned: equal machines get equal shares. */
TEST(stale_reports_count_own_assignments)
{
    struct world w;

    world_init(&w, 2, 1, 0, 7);
    w.o.report_ns = 1000000 * MS;
    w.o.prompt_threshold = w.o.token_threshold = INT64_MAX;
    world_run(&w);
    assert_string_equal(w.wrong, "");
    world_init(&w, 4, 1, 0, 7);
    w.o.report_ns = 1000000 * MS;
    w.o.prompt_threshold = w.o.token_threshold = INT64_MAX;
    w.max_output = 1;
    world_run(&w);
    /* 300 prompts of 750 tokens on four machines, one every 4 ms: none waits for long. */
    assert_true(w.max_wait_ns < 100e6);
}

/* With no limit to the load, all machines end in the mixed pool and serve as mixed ones do. */
TEST(overload_is_like_mixed_machines)
{
    struct world w;
    double split, mixed;

    world_init(&w, 2, 2, 0, 8);
    w.mean_gap_ns = MS / 10;
    w.o.prompt_threshold = 1000;
    w.o.token_threshold = 4;
    w.n_left = 2000;
    world_run(&w);
    assert_string_equal(w.wrong, "");
    split = (double)w.stat.end_ns;
    world_init(&w, 0, 0, 4, 8);
    w.mean_gap_ns = MS / 10;
    w.n_left = 2000;
    world_run(&w);
    mixed = (double)w.stat.end_ns;
    assert_true(split < 1.15 * mixed && mixed < 1.15 * split);
}

/* Regression: pending tokens were those of prompts, so that prompts that come one by one all went
 * to the first machine, which then had all the sequences. */
static int64_t n_by_machine[WORLD_MACHINES];
static void count_done(void *ctx, const struct cluster_done *d)
{
    (void)ctx;
    n_by_machine[d->prompt_machine]++;
}

TEST(sequences_are_pending_tokens_too)
{
    struct world w;

    world_init(&w, 0, 0, 4, 1);
    w.max_prompt = 10;
    w.max_output = 200;
    w.o.observer = (struct cluster_observer){.done = count_done};
    memset(n_by_machine, 0, sizeof(n_by_machine));
    world_run(&w);
    for (int i = 0; i < 4; i++)
        assert_true(n_by_machine[i] > 50 && n_by_machine[i] < 100);
}

static bool stop;
static void stop_at_ten(void *ctx, const struct cluster_done *d)
{
    (void)d;
    stop = ++*(int64_t *)ctx == 10;
}

TEST(a_run_can_be_stopped)
{
    struct world w;
    int64_t n = 0;

    world_init(&w, 2, 2, 0, 1);
    w.o.observer = (struct cluster_observer){.ctx = &n, .done = stop_at_ten};
    w.o.stop = &stop;
    stop = false;
    assert_ok(cluster_run(&w.stat, &w.o));
    assert_true(n >= 10 && w.stat.n_done == n && w.stat.n_arrived < 300);
}

TEST(a_machine_that_stays_mixed_changes_its_kind)
{
    struct world w;

    world_init(&w, 4, 1, 0, 9);
    w.max_prompt = 20;
    w.max_output = 200;
    w.o.token_threshold = 2;
    w.o.repurpose_ns = 50 * MS;
    world_run(&w);
    assert_string_equal(w.wrong, "");
    assert_true(w.stat.n_repurposed > 0);
}

TEST(too_long_a_request_is_refused)
{
    struct world w;

    world_init(&w, 1, 1, 0, 10);
    w.m[0].kv_tok = 1000;
    w.m[1].kv_tok = 800;
    w.o.prompt_threshold = w.o.token_threshold = INT64_MAX;
    assert_ok(cluster_run(&w.stat, &w.o));
    assert_true(w.stat.n_refused > 50 && w.stat.n_done > 50);
    assert_int_equal(w.stat.n_refused + w.stat.n_done, 300);
    assert_int_equal(w.stat.kv_used_tok, 0);
}

/* With little memory and few sequences on the token machines, prompts wait for them: memory is
 * reserved for longer, and no computed prompt waits. */
TEST(memory_before_the_prompt)
{
    double reserved[2];

    for (int first = 0; first < 2; first++)
        for (int few = 0; few < 2; few++) {
            struct world w;

            world_init(&w, 2, 2, 0, 21);
            w.o.prompt_threshold = w.o.token_threshold = INT64_MAX;
            w.o.reserve_first = first;
            w.o.max_seqs = few ? 3 : 1 << 16;
            for (int i = 0; i < 4; i++)
                w.m[i].kv_tok = few ? 20000 : 5000;
            world_run(&w);
            assert_string_equal(w.wrong, "");
            assert_int_equal(w.n_done, 300);
            reserved[first] = w.stat.reserved_idle_tok_ns;
        }
    assert_true(reserved[1] > 1.2 * reserved[0]);
}

struct pair {
    struct cluster_arrival arrivals[2];
    int at;
    int64_t first_ns[2];
};

static bool next_of_pair(void *ctx, struct cluster_arrival *a)
{
    struct pair *p = ctx;

    if (p->at == 2)
        return false;
    *a = p->arrivals[p->at++];
    return true;
}

static void pair_done(void *ctx, const struct cluster_done *d)
{
    ((struct pair *)ctx)->first_ns[d->number] = d->first_ns;
}

/* A token machine gives memory between its steps only. The second request comes in the middle of
 * a step, which ends at k (2.05 ms) after the first prompt's 2 ms, and its prompt begins then. A
 * simulated prompt had begun at once, half a step of decode before a real one. */
TEST(memory_is_given_between_steps)
{
    const int64_t step_ns = 2 * MS + MS / 20;
    struct pair p = {.arrivals = {{0, 100, 20}, {10 * MS, 300, 2}}};
    struct world w;

    world_init(&w, 1, 1, 0, 5);
    w.o.prompt_threshold = w.o.token_threshold = INT64_MAX;
    w.o.reserve_first = true;
    w.o.next = next_of_pair;
    w.o.next_ctx = &p;
    w.o.observer = (struct cluster_observer){.ctx = &p, .done = pair_done};
    for (int i = 0; i < 2; i++)
        w.m[i].link_gbps = w.m[i].link_alpha_ns = 0;
    assert_ok(cluster_run(&w.stat, &w.o));
    assert_int_equal(p.first_ns[0], 2 * MS);
    assert_int_equal(p.first_ns[1], 2 * MS + 4 * step_ns + 4 * MS);
}

/* Prompts whose keys and values wait for memory on machines that wait for each other's. */
TEST(machines_that_are_full_end_the_run)
{
    struct world w;

    make_busy(&w, 17);
    w.max_prompt = 1500;
    w.mean_gap_ns = MS / 10;
    cluster_opts_splitwise_sim(&w.o);
    for (int i = 0; i < w.o.n_machines; i++)
        w.m[i].kv_tok = 4000;
    assert_err(cluster_run(&w.stat, &w.o), ERR_STATE, "wait for each other's memory");
}

TEST(bad_options)
{
    struct world w;

    world_init(&w, 1, 0, 0, 1);
    assert_err(cluster_run(&w.stat, &w.o), ERR_ARG, "1 prompt, 0 token");
    world_init(&w, 1, 1, 0, 1);
    w.m[1].kv_tok = 0;
    assert_err(cluster_run(&w.stat, &w.o), ERR_ARG, "machine 1");
    world_init(&w, 1, 1, 0, 1);
    w.max_output = 1;
    w.mean_gap_ns = -1000;
    assert_err(cluster_run(&w.stat, &w.o), ERR_STATE, "the clock is at");
}
