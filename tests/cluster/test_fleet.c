/* Steps that are run ahead change no request; machines that fail lose no token; a drained one gets
 * no task; a fleet is the same with any number of threads; a day's arrivals follow its hours;
 * M/D/c. */
#include "cluster/fleet.h"
#include "tests/cluster/world.h"

/* Times that no two machines share, and steps that grow with the context. */
static double odd_prompt_ms(const struct cluster_perf *p, double n_tok, double sum_sq)
{
    (void)p, (void)sum_sq;
    return 1.0123457 + 0.0100371 * n_tok;
}

static double odd_token_ms(const struct cluster_perf *p, double batch, double ctx_tok)
{
    (void)p;
    return 2.0173911 + 0.0513377 * batch + 1.0133e-4 * ctx_tok;
}

static const struct cluster_perf_kind odd_kind = {
    .name = "odd", .prompt_ms = odd_prompt_ms, .token_ms = odd_token_ms};
static const struct cluster_perf odd_perf = {.kind = &odd_kind};

#define N_MAX 400

struct history {
    struct world w;
    struct cluster_done done[N_MAX];
    struct cluster_outage outages[64];
    int n_done;
};

static void keep_done(void *ctx, const struct cluster_done *d)
{
    struct history *h = ctx;

    assert_in_range(d->number, 0, N_MAX - 1);
    h->done[d->number] = *d;
    h->n_done++;
}

static void history_init(struct history *h, uint64_t seed, bool every_step)
{
    *h = (struct history){0};
    world_init(&h->w, seed % 3 == 2 ? 0 : 2, seed % 3 == 2 ? 0 : 2, seed % 3, seed);
    h->w.n_left = N_MAX;
    h->w.max_output = seed % 4 == 1 ? 300 : 60;
    h->w.max_prompt = seed % 5 == 1 ? 100 : 1500;
    h->w.mean_gap_ns = (2 + (int64_t)(seed % 7)) * 5 * MS;
    h->w.o.report_ns = seed % 4 == 3 ? 20 * MS : 0;
    h->w.o.token_threshold = seed % 2 ? 8 : 64;
    for (int i = 0; i < h->w.o.n_machines; i++) {
        h->w.m[i].perf = &odd_perf;
        h->w.m[i].kv_tok = seed % 3 == 0 ? 7000 : 20000;
    }
    h->w.o.observer = (struct cluster_observer){.ctx = h, .done = keep_done};
    h->w.o.every_step = every_step;
}

static void assert_same(const struct history *a, const struct history *b, int seed)
{
    for (int i = 0; i < N_MAX; i++)
        if (memcmp(&a->done[i], &b->done[i], sizeof(a->done[i])) != 0)
            fail_msg("seed %d, request %d: first %lld, last %lld, gap %lld, tokens %lld; "
                     "step by "
                     "step %lld, %lld, %lld, %lld",
                     seed, i, (long long)b->done[i].first_ns,
                     (long long)b->done[i].last_ns, (long long)b->done[i].max_gap_ns,
                     (long long)b->done[i].n_tokens, (long long)a->done[i].first_ns,
                     (long long)a->done[i].last_ns, (long long)a->done[i].max_gap_ns,
                     (long long)a->done[i].n_tokens);
    assert_int_equal(a->w.stat.n_steps, b->w.stat.n_steps);
    assert_int_equal(a->w.stat.n_preempted, b->w.stat.n_preempted);
    assert_true(fabs(a->w.stat.busy_ns[1] - b->w.stat.busy_ns[1]) < 1);
    assert_int_equal(b->w.stat.kv_used_tok, 0);
}

static struct history one, two;

TEST(steps_run_ahead_change_nothing)
{
    int64_t n_preempted = 0;

    for (uint64_t seed = 1; seed <= 60; seed++) {
        history_init(&one, seed, true);
        history_init(&two, seed, false);
        assert_ok(cluster_run(&one.w.stat, &one.w.o));
        assert_ok(cluster_run(&two.w.stat, &two.w.o));
        assert_same(&one, &two, (int)seed);
        assert_int_equal(one.n_done, N_MAX);
        assert_true(two.w.stat.n_events < one.w.stat.n_events);
        n_preempted += one.w.stat.n_preempted;
    }
    assert_true(n_preempted > 0);
}

/* ---- failures ---- */

static void add_outages(struct history *h, uint64_t seed, bool drained)
{
    struct rng r;
    int n = h->w.o.n_machines;

    rng_init(&r, seed, "outages");
    for (int i = 0; i < 40; i++) {
        int64_t t = (int64_t)rng_below(&r, 3000) * MS + 37;

        /* Machine 0 and the last one never fail: some of each kind are always there. */
        h->outages[i] = (struct cluster_outage){
            .t_ns = t,
            .until_ns = t + (int64_t)rng_below(&r, 200) * MS,
            .machine = n > 2 ? 1 + (int)rng_below(&r, (uint64_t)n - 2) : 1,
            .drained = drained};
    }
    h->w.o.outages = h->outages;
    h->w.o.n_outages = 40;
}

TEST(failures_lose_no_token)
{
    int64_t n_restarts = 0, n_failures = 0;

    for (uint64_t seed = 1; seed <= 60; seed++) {
        int64_t all = 0;

        history_init(&one, seed, true);
        history_init(&two, seed, false);
        add_outages(&one, seed, false);
        add_outages(&two, seed, false);
        assert_ok(cluster_run(&one.w.stat, &one.w.o));
        assert_ok(cluster_run(&two.w.stat, &two.w.o));
        assert_same(&one, &two, (int)seed);
        assert_int_equal(one.n_done, N_MAX);
        for (int i = 0; i < N_MAX; i++) {
            const struct cluster_done *d = &one.done[i];

            if (d->n_tokens != d->n_output || d->n_prompts < 1 ||
                d->n_prompts > 1 + d->n_restarts)
                fail_msg("seed %d, request %d: %d of %d tokens, %d prompts, %d restarts",
                         (int)seed, i, (int)d->n_tokens, (int)d->n_output,
                         (int)d->n_prompts, d->n_restarts);
            all += d->n_restarts;
        }
        assert_int_equal(all, one.w.stat.n_restarts);
        n_restarts += all;
        n_failures += one.w.stat.n_failures;
    }
    assert_true(n_failures > 1000 && n_restarts > 100);
}

/* The memory of each machine and its tasks stay in range, also while it is away. */
TEST(failures_keep_the_invariants)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        history_init(&one, seed, true);
        add_outages(&one, seed, seed % 2);
        one.w.o.observer = (struct cluster_observer){.ctx = &one.w, .after = world_after};
        assert_ok(cluster_run(&one.w.stat, &one.w.o));
        if (one.w.n_wrong)
            fail_msg("seed %d: %s", (int)seed, one.w.wrong);
        assert_int_equal(one.w.stat.kv_used_tok, 0);
    }
}

static int n_routed;
static void not_to_a_drained_one(void *ctx, const struct cluster_decision *d)
{
    const struct history *h = ctx;
    int machine = d->choice->machines[d->chosen];

    n_routed++;
    for (int i = 0; i < h->w.o.n_outages; i++) {
        const struct cluster_outage *o = &h->outages[i];

        if (o->machine == machine && d->t_ns > o->t_ns && d->t_ns < o->until_ns)
            fail_msg("machine %d gets a task at %lld ns, in outage %d", machine,
                     (long long)d->t_ns, i);
    }
}

TEST(a_drained_machine_gets_no_task)
{
    n_routed = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        history_init(&one, seed, false);
        add_outages(&one, seed, true);
        one.w.o.observer.routed = not_to_a_drained_one;
        assert_ok(cluster_run(&one.w.stat, &one.w.o));
        assert_int_equal(one.n_done, N_MAX);
        assert_int_equal(one.w.stat.n_restarts, 0);
    }
    assert_true(n_routed > 1000);
}

/* One machine of speed 1 and one of a tenth: seldom busy, the fast one gets all. */
TEST(the_faster_machine_comes_first)
{
    int n[2] = {0};

    history_init(&one, 2, false);
    assert_int_equal(one.w.o.n_machines, 2);
    one.w.m[0].speed[0] = one.w.m[0].speed[1] = 0.1;
    one.w.m[1].speed[0] = one.w.m[1].speed[1] = 1;
    one.w.o.by_speed = true;
    one.w.mean_gap_ns = 2000 * MS;
    assert_ok(cluster_run(&one.w.stat, &one.w.o));
    for (int i = 0; i < N_MAX; i++)
        n[one.done[i].prompt_machine]++;
    assert_int_equal(n[1], N_MAX);
}

/* Prompts of machine 0 have their tokens elsewhere, however full that is. */
TEST(a_machine_keeps_to_its_own_kind)
{
    int n_own = 0;

    for (int own = 0; own < 2; own++) {
        history_init(&one, 1, false);
        assert_int_equal(one.w.m[0].home, CLUSTER_PROMPT);
        one.w.o.token_threshold = 0;
        one.w.m[0].own_kind_only = own;
        assert_ok(cluster_run(&one.w.stat, &one.w.o));
        assert_int_equal(one.n_done, N_MAX);
        n_own = 0;
        for (int i = 0; i < N_MAX; i++)
            n_own += one.done[i].n_output > 1 && one.done[i].token_machine == 0;
        assert_true(own ? n_own == 0 : n_own > 0);
    }
}

TEST(bad_outages)
{
    history_init(&one, 1, false);
    add_outages(&one, 1, false);
    one.outages[3].machine = one.w.o.n_machines;
    assert_err(cluster_run(&one.w.stat, &one.w.o), ERR_ARG, "outage 3: machine");
    add_outages(&one, 1, false);
    one.outages[5].until_ns = one.outages[5].t_ns - 1;
    assert_err(cluster_run(&one.w.stat, &one.w.o), ERR_ARG, "outage 5");
    add_outages(&one, 1, false);
    one.w.o.reserve_first = true;
    assert_err(cluster_run(&one.w.stat, &one.w.o), ERR_ARG, "expected one of the two");
}

/* ---- a day ---- */

static const struct cluster_lengths lengths[] = {{100, 20}, {700, 5}, {40, 90}};

static struct cluster_day_opts day_opts(int number)
{
    return (struct cluster_day_opts){.per_day = 200000,
                                     .swing = 0.5,
                                     .peak_h = 14,
                                     .n_hours = 24,
                                     .lengths = lengths,
                                     .n_lengths = 3,
                                     .seed = 5,
                                     .number = number};
}

/* In each hour the requests are Poisson with the mean of the hour's rate. */
TEST(a_day_follows_its_hours)
{
    struct cluster_day_opts o = day_opts(0);
    int64_t n[24] = {0}, last = 0;
    struct cluster_arrival a;
    struct cluster_day d;

    assert_ok(cluster_day_open(&d, &o));
    while (cluster_day_next(&d, &a)) {
        assert_true(a.t_ns >= last && a.t_ns < INT64_C(24) * 3600000000000);
        last = a.t_ns;
        n[a.t_ns / 3600000000000]++;
    }
    for (int h = 0; h < 24; h++) {
        /* the integral of the rate over the hour */
        double turn = 2 * M_PI / 24;
        double mean =
            200000 / 24.0 *
            (1 + 0.5 * (sin(turn * (h + 1 - 14)) - sin(turn * (h - 14))) / turn);

        if (fabs((double)n[h] - mean) > 4 * sqrt(mean))
            fail_msg("hour %d: %d requests; expected %g", h, (int)n[h], mean);
    }
    o.night_per_day = 100000; /* 8 hours around 2:00 */
    assert_true(cluster_day_rate(&o, 1) > 1.5 * cluster_day_rate(&o, 9));
    assert_true(cluster_day_rate(&o, 6.1) < cluster_day_rate(&o, 5.9));
    assert_ok(cluster_day_open(&d, &o));
    for (last = 0; cluster_day_next(&d, &a);)
        last++;
    assert_in_range(last, 300000 - 2200, 300000 + 2200);
    o.swing = 1.5;
    assert_err(cluster_day_open(&d, &o), ERR_ARG, "a swing in [0, 1]");
    o = day_opts(0);
    o.n_lengths = 0;
    assert_err(cluster_day_open(&d, &o), ERR_ARG, "0 lengths");
}

/* ---- fleets ---- */

struct pools {
    struct cluster_machine_opts m[4];
    struct cluster_outage outages[2];
    uint64_t seed;
    int broken; /* pool without machines; -1: none */
};

static int pool_open(void *ctx, int pool, struct cluster_fleet_pool *out)
{
    static const int kinds[] = {0, 1, 1, 2};
    struct pools *p = ctx;

    TRY(cluster_opts_init(&out->cluster));
    out->cluster.machines = p->m;
    out->cluster.n_machines = pool == p->broken ? 0 : 4;
    out->cluster.n_layers = 4;
    out->cluster.kv_bytes_per_tok = 4000;
    out->cluster.outages = p->outages;
    out->cluster.n_outages = 2;
    out->day = day_opts(pool);
    out->day.seed = p->seed;
    out->day.n_hours = 0.5;
    out->kinds = kinds;
    return OK;
}

static void pool_close(void *ctx, struct cluster_fleet_pool *p)
{
    (void)ctx, (void)p;
}

static int run_fleet(struct cluster_fleet_part *out, int n_threads, uint64_t seed,
                     int broken)
{
    struct pools p = {.seed = seed,
                      .broken = broken,
                      .outages = {{600000000000, 700000000000, 1, false},
                                  {100000000000, 200000000000, 2, true}}};
    struct cluster_fleet_opts o = {.n_pools = 7,
                                   .n_threads = n_threads,
                                   .ttft_ms = 3,
                                   .tpot_ms = 3,
                                   .open = pool_open,
                                   .close = pool_close,
                                   .ctx = &p};

    for (int i = 0; i < 4; i++)
        p.m[i] = (struct cluster_machine_opts){.home = i ? CLUSTER_TOKEN : CLUSTER_PROMPT,
                                               .perf = &odd_perf,
                                               .kv_tok = 20000,
                                               .link_gbps = 1};
    return cluster_fleet_run(out, &o);
}

/* Equal to the bit; with another seed not; and the sums are those of its requests. */
TEST(threads_change_nothing)
{
    static struct cluster_fleet_part of[4];
    int64_t in_hours = 0, in_bins = 0;

    for (int i = 0; i < 3; i++)
        assert_ok(run_fleet(&of[i], 1 + i, 1, -1));
    assert_ok(run_fleet(&of[3], 2, 2, -1));
    assert_memory_equal(&of[0], &of[1], sizeof(of[0]));
    assert_memory_equal(&of[0], &of[2], sizeof(of[0]));
    assert_memory_not_equal(&of[0], &of[3], sizeof(of[0]));
    for (int h = 0; h < CLUSTER_HOURS; h++)
        in_hours += of[0].hour[h].n_requests;
    for (int i = 0; i < CLUSTER_BINS; i++)
        in_bins += of[0].ttft.n[i];
    assert_true(of[0].stat.n_done > 10000);
    assert_int_equal(of[0].stat.n_done, of[0].n_ended);
    assert_int_equal(of[0].stat.n_done, in_hours);
    assert_int_equal(of[0].stat.n_done, in_bins);
    assert_int_equal(of[0].stat.n_failures, 7);
    assert_true(fabs(of[0].drained_s[1] - 700) < 1e-6);
    assert_true(of[0].n_restarted > 0);
    for (int k = 0; k < 3; k++)
        assert_true(of[0].busy_s[k] > 0 && of[0].busy_s[k] <= of[0].machine_s[k]);
    assert_int_equal(of[0].n_on[0][0] + of[0].n_on[1][0] + of[0].n_on[2][0],
                     of[0].stat.n_done);
    assert_true(of[0].n_good > 0 && of[0].n_good < of[0].n_ended);
}

TEST(a_pool_that_cannot_run_is_named)
{
    static struct cluster_fleet_part out;

    assert_err(run_fleet(&out, 2, 1, 3), ERR_ARG, "pool 3: cluster: expected machines");
    assert_err(run_fleet(&out, 0, 1, -1), ERR_ARG, "7 pools on 0 threads");
}

TEST(quantiles_of_a_histogram)
{
    static struct cluster_histogram h;

    assert_true(isnan(cluster_histogram_quantile(&h, 0.5)));
    for (int i = 1; i <= 1000; i++)
        cluster_histogram_add(&h, i * MS);
    for (int p = 1; p <= 99; p++)
        assert_true(fabs(cluster_histogram_quantile(&h, p / 100.0) / (10 * p) - 1) <
                    0.03);
}

/* ---- M/D/c ---- */

#define TAIL   1e-14 /* of a distribution, which is cut off */
#define CHANGE 1e-12 /* of the mean queue, from one time of service to the next */

/* p[k]: k arrivals, mean `mean`. Returns how many of them count. */
static int poisson(double *p, int max, double mean)
{
    double sum = 0;
    int n = 0;

    while (n < max && sum < 1 - TAIL) {
        p[n] = exp(-mean + n * log(mean) - lgamma(n + 1));
        sum += p[n++];
    }
    return n;
}

/* One time of service later. Returns the mean queue before it. */
static double advance(double *to, const double *from, int n, const double *p, int n_p,
                      int c)
{
    double queue = 0;

    memset(to, 0, (size_t)n * sizeof(*to));
    for (int i = 0; i < n; i++) {
        int left = i > c ? i - c : 0;

        queue += left * from[i];
        for (int k = 0; k < n_p; k++)
            to[left + k < n ? left + k : n - 1] += from[i] * p[k];
    }
    return queue;
}

/* The mean wait before service, in units of the service's time, of an M/D/c queue: Poisson arrivals
 * at `load` times what c servers can do, each served for the same time, first come, first served.
 * By the stationary distribution of the number in the system: those in service now have left after
 * one time of service, and those that have come meanwhile are Poisson. */
static double mdc_wait(int c, double load)
{
    const int n =
        2 * c + (int)(40 / (1 - load)); /* its tail falls as exp(-2 (1 - load) n) */
    double *p = mem_new(MEM_OTHER, (size_t)(3 * n), sizeof(*p)),
           *of[2] = {p + n, p + 2 * n};
    double queue = 0, before = 0;
    int n_p = poisson(p, n, load * c), at = 0;

    of[0][0] = 1;
    for (int i = 0; i < 4 || fabs(queue - before) > CHANGE * queue; i++) {
        before = queue;
        queue = advance(of[1 - at], of[at], n, p, n_p, c);
        at = 1 - at;
    }
    mem_free(p);
    return queue / (load * c);
}

static void sum_wait(void *ctx, const struct cluster_done *d)
{
    *(double *)ctx += (double)(d->first_ns - d->arrival_ns) - 1e6;
}

static double one_ms(const struct cluster_perf *p, double a, double b)
{
    (void)p, (void)a, (void)b;
    return 1;
}

#define MDC_N     40000
#define MDC_SEEDS 250

/* The mean wait of c machines that take 1 ms, in ms. */
static double simulated_wait(int c, double load, const char *router, uint64_t seed)
{
    static const struct cluster_perf_kind kind = {
        .name = "one", .prompt_ms = one_ms, .token_ms = one_ms};
    static const struct cluster_perf perf = {.kind = &kind};
    double sum = 0;

    world_init(&two.w, 0, 0, c, seed);
    for (int i = 0; i < c; i++)
        two.w.m[i].perf = &perf;
    assert_ok(cluster_router_find(router, &two.w.o.router));
    two.w.o.max_batch_prompt_tok = 1;
    two.w.o.prompt_threshold = INT64_MAX;
    two.w.n_left = MDC_N;
    two.w.max_prompt = two.w.max_output = 1;
    two.w.mean_gap_ns = (int64_t)(1e6 / (load * c));
    two.w.o.observer = (struct cluster_observer){.ctx = &sum, .done = sum_wait};
    assert_ok(cluster_run(&two.w.stat, &two.w.o));
    return 1e-6 * sum / MDC_N;
}

TEST(mdc_is_the_closed_form)
{
    static const double loads[] = {0.1, 0.5, 0.8, 0.95};
    double before = mdc_wait(1, 0.8);

    for (int i = 0; i < 4; i++) { /* Pollaczek and Khinchin */
        double wait = mdc_wait(1, loads[i]);

        if (fabs(wait / (loads[i] / (2 * (1 - loads[i]))) - 1) > 1e-6)
            fail_msg("load %g: %.10g", loads[i], wait);
    }
    for (int c = 2; c <= 64; c *= 2) { /* more servers, less waiting */
        double wait = mdc_wait(c, 0.8);

        assert_true(wait > 0 && wait < before);
        before = wait;
    }
    assert_true(mdc_wait(64, 0.01) < 1e-9);
}

/* In turn, the machines are that queue, within 0.5 %. Drawn at random they are not. */
TEST(machines_in_turn_are_an_mdc_queue)
{
    static const int servers[] = {1, 2, 4};

    for (int i = 0; i < 3; i++) {
        double wait = mdc_wait(servers[i], 0.6), sum = 0, sum_sq = 0, half;

        for (uint64_t seed = 1; seed <= MDC_SEEDS; seed++) {
            double x = simulated_wait(servers[i], 0.6, "round_robin", seed) / wait;

            sum += x / MDC_SEEDS;
            sum_sq += x * x / MDC_SEEDS;
        }
        half = 2 * sqrt((sum_sq - sum * sum) / (MDC_SEEDS - 1));
        if (fabs(sum - 1) > 0.005 || half > 0.005)
            fail_msg("%d machines: mean wait %g of the closed form's, +- %g", servers[i],
                     sum, half);
        if (servers[i] > 1)
            assert_true(simulated_wait(servers[i], 0.6, "random", 1) > 1.5 * wait);
    }
}
