/* Provisioning finds what trying every size finds, on invented rates and on simulated ones. */
#include "cluster/provision.h"
#include "tests/cluster/world.h"

#define SIDE 9

static double table[SIDE + 1][SIDE + 1];

static int from_table(void *ctx, int p, int t, double *rate)
{
    (void)ctx;
    *rate = table[p][t];
    return OK;
}

static void draw_monotone(struct rng *r)
{
    for (int p = 1; p <= SIDE; p++)
        for (int t = 1; t <= SIDE; t++)
            table[p][t] =
                fmax(table[p - 1][t], table[p][t - 1]) + (double)rng_below(r, 3);
}

static bool brute_force(struct cluster_size *best, const struct cluster_provision_opts *o)
{
    bool any = false;
    double least = 0;

    for (int n = 2; n <= 2 * SIDE; n++)
        for (int p = 1; p < n; p++) {
            int t = n - p;
            double cost = p * o->prompt_cost + t * o->token_cost,
                   power = p * o->prompt_power + t * o->token_power, bad;

            if (p > SIDE || t > SIDE || (o->max_cost > 0 && cost > o->max_cost + 1e-9) ||
                (o->max_power > 0 && power > o->max_power + 1e-9) ||
                (o->goal != CLUSTER_MAX_RATE && table[p][t] < o->min_rate))
                continue;
            bad = o->goal == CLUSTER_MIN_COST    ? cost
                  : o->goal == CLUSTER_MIN_POWER ? power
                                                 : -table[p][t];
            if (any && bad > least - 1e-9)
                continue;
            any = true;
            least = bad;
            *best = (struct cluster_size){p, t, table[p][t], cost, power};
        }
    return any;
}

TEST(search_is_brute_force)
{
    struct rng r;
    int n_found = 0;

    rng_init(&r, 1, "provision");
    for (int i = 0; i < 3000; i++) {
        struct cluster_provision_opts o = {
            .goal = (enum cluster_goal)(i % 3),
            .max_prompt = SIDE,
            .max_token = SIDE,
            .prompt_cost = 1 + (double)rng_below(&r, 4) / 4,
            .token_cost = 1 + (double)rng_below(&r, 4) / 4,
            .prompt_power = 1.75,
            .token_power = 1 + 0.23 * (double)rng_below(&r, 2),
            .min_rate = (double)rng_below(&r, 20),
            .max_power = rng_below(&r, 2) ? 4 + (double)rng_below(&r, 20) : 0,
            .rate = from_table};
        struct cluster_size best = {0}, found = {0};
        bool any;

        draw_monotone(&r);
        any = brute_force(&best, &o);
        if (!any) {
            assert_err(cluster_provision(&found, NULL, &o), ERR_NOTFOUND, "no size");
            continue;
        }
        assert_ok(cluster_provision(&found, NULL, &o));
        n_found++;
        if (o.goal == CLUSTER_MIN_COST)
            assert_true(fabs(found.cost - best.cost) < 1e-9);
        else if (o.goal == CLUSTER_MIN_POWER)
            assert_true(fabs(found.power - best.power) < 1e-9);
        else
            assert_true(found.rate == best.rate);
        /* With a limit, sizes of equal rate below the largest are not tried. */
        if (o.goal != CLUSTER_MAX_RATE)
            assert_true(found.n_prompt == best.n_prompt && found.n_token == best.n_token);
    }
    assert_true(n_found > 1000);
}

static int below(void *ctx, double rate, bool *met)
{
    *met = rate <= *(const double *)ctx;
    return OK;
}

TEST(rate_by_bisection)
{
    double limit = 37, rate;

    assert_ok(cluster_max_rate(&rate, below, &limit, 1, 1000, 0.01));
    assert_true(rate <= 37 && rate > 37 / 1.011);
    limit = 0.5;
    assert_ok(cluster_max_rate(&rate, below, &limit, 1, 1000, 0.01));
    assert_true(rate == 0);
    limit = 5000;
    assert_ok(cluster_max_rate(&rate, below, &limit, 1, 1000, 0.01));
    assert_true(rate == 1000);
}

TEST(slos_are_table_six)
{
    double s[CLUSTER_N_LATENCIES][CLUSTER_N_PERCENTILES] = {
        {2, 3, 6}, {1.25, 1.5, 5}, {1.25, 1.5, 5}};

    assert_true(cluster_slo_met(s));
    for (int i = 0; i < CLUSTER_N_LATENCIES; i++)
        for (int k = 0; k < CLUSTER_N_PERCENTILES; k++) {
            double was = s[i][k];

            s[i][k] = was * 1.001;
            assert_false(cluster_slo_met(s));
            s[i][k] = NAN;
            assert_false(cluster_slo_met(s));
            s[i][k] = was;
        }
}

/* The mean wait of simulated clusters: more machines of a kind never make it much longer. */
TEST(more_machines_never_hurt)
{
    double wait[4][4];

    for (int p = 1; p <= 3; p++)
        for (int t = 1; t <= 3; t++) {
            wait[p][t] = 0;
            for (uint64_t seed = 1; seed <= 5; seed++) {
                struct world w;

                world_init(&w, p, t, 0, seed);
                w.o.token_threshold = INT64_MAX;
                w.o.prompt_threshold = INT64_MAX;
                w.mean_gap_ns = 6 * MS;
                world_run(&w);
                assert_string_equal(w.wrong, "");
                wait[p][t] += (double)w.sum_latency_ns;
            }
            if (p > 1)
                assert_true(wait[p][t] <= 1.02 * wait[p - 1][t]);
            if (t > 1)
                assert_true(wait[p][t] <= 1.02 * wait[p][t - 1]);
        }
}
