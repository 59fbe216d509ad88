/* The ladder of rates: systems whose attainment is known, on a machine with waves, drift and turns:
 * how often each goodput is right, whom the order favours, what a bound says. All of it is pure.
 * TIMES=9000 simulates as many runs of each kind. */
#include "tests/metrics/rows.h"

#include "base/rng.h"
#include "experiments/load/ladder.h"
#include "experiments/metrics/compare.h"

enum { MAX_ENTRIES = 6, MAX_TRIALS = MAX_ENTRIES * 200 };

static const struct load_search usual = {.first_rps = 4,
                                         .min_rps = 0.5,
                                         .max_rps = 64,
                                         .target_frac = 0.9,
                                         .precision_frac = 0.15,
                                         .n_seeds = 1,
                                         .n_least = 100,
                                         .max_trials = 200};

/* Of the requests at a rate, top / (1 + (rate / middle)^steep) meet the objectives. */
struct system {
    double top, middle, steep;
};

/* What moves `middle`, in logarithm: arrivals of a block, which are the same for all; the machine,
 * which remembers most of its last wave, and slows down; a second turn. */
struct host {
    double arrivals_dev, wave_dev, wave_memory, drift, later_turn;
};

static const struct host quiet = {0};
static const struct host noisy = {
    .arrivals_dev = 0.05, .wave_dev = 0.04, .wave_memory = 0.8};

struct ran {
    struct load_trial t[MAX_TRIALS];
    int round[MAX_TRIALS];
    size_t n;
    struct load_goodput g[MAX_ENTRIES];
};

static int times(void)
{
    const char *text = getenv("TIMES");

    return text ? atoi(text) : 1000;
}

static double share(const struct system *s, double rate)
{
    return s->top / (1 + pow(rate / s->middle, s->steep));
}

/* On this machine, over all that moves it. */
static double mean_share(const struct system *s, double rate, const struct host *h)
{
    const double dev = hypot(h->arrivals_dev, h->wave_dev);
    double sum = 0, weight = 0;

    for (double z = -4; z <= 4; z += 0.1) {
        sum += exp(-z * z / 2) * share(s, rate * exp(-dev * z));
        weight += exp(-z * z / 2);
    }
    return sum / weight;
}

/* The rate at which 90 % are met; 0: none. */
static double true_rps(const struct system *s, const struct host *h)
{
    double low = 0, high = 1000;

    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;

        *(mean_share(s, middle, h) >= 0.9 ? &low : &high) = middle;
    }
    return low;
}

static double measured(const struct system *s, double rate, double shift, double n,
                       struct rng *rng)
{
    const struct system now = {s->top, s->middle * exp(shift), s->steep};
    double met = 0;

    for (int i = 0; i < n; i++)
        met += rng_f64(rng) < share(&now, rate);
    return met / n;
}

/* The shift that the arrivals of a block make, whoever serves them. */
static double arrivals(const struct host *h, uint64_t seed, const struct load_trial *t)
{
    struct rng rng;
    char name[80];

    snprintf(name, sizeof(name), "%.6f %d", t->rate_rps, t->seed);
    rng_init(&rng, seed, name);
    return h->arrivals_dev * rng_normal(&rng);
}

static void run(struct ran *r, const struct load_search *s, const struct system *systems,
                int n, const bool *ended, const struct host *h, uint64_t seed)
{
    static const bool none[MAX_ENTRIES];
    const double keep = h->wave_memory, stir = sqrt(1 - keep * keep);
    double wave = 0;
    struct load_trial next;
    bool runs[MAX_ENTRIES];
    struct rng rng;

    rng_init(&rng, seed, "ladder");
    r->n = 0;
    ended = ended ? ended : none;
    for (int round = 0; load_ladder_next(s, r->t, r->n, ended, n, &next, runs); round++) {
        const double common = arrivals(h, seed, &next);
        int n_turns = 0;

        for (int turn = 0; turn < n; turn++) {
            const int k =
                compare_turn(2 * load_ladder_rung(s, next.rate_rps) + next.seed, turn, n);

            if (!runs[k])
                continue;
            assert_false(ended[k]);
            assert_true(r->n < MAX_TRIALS);
            wave = keep * wave + stir * h->wave_dev * rng_normal(&rng);
            next.entry = k;
            next.n_requests = fmax(25, ceil(5 * next.rate_rps));
            next.within_frac = measured(&systems[k], next.rate_rps,
                                        common + wave - h->drift * (double)r->n / 100 -
                                            (n_turns++ ? h->later_turn : 0),
                                        next.n_requests, &rng);
            r->round[r->n] = round;
            r->t[r->n++] = next;
        }
        assert_true(n_turns > 0);
    }
    for (int k = 0; k < n; k++)
        load_ladder_result(&r->g[k], s, r->t, r->n, k);
}

static double requests_at(const struct ran *r, int entry, double rate)
{
    double n = 0;

    for (size_t i = 0; i < r->n; i++)
        n += r->t[i].entry == entry && fabs(r->t[i].rate_rps / rate - 1) < 1e-9
                 ? r->t[i].n_requests
                 : 0;
    return n;
}

/* The highest rung that holds; -1: none. */
static int true_rung(const struct load_search *s, double rate)
{
    return (int)floor(log(rate / s->min_rps) / log1p(s->precision_frac));
}

/* --- known curves */

static const struct system known[] = {
    {1, 14, 8}, {1, 12.5, 8}, {0.99, 3, 6}, {0.97, 30, 12}, {0.6, 10, 8}};
enum { N_KNOWN = sizeof(known) / sizeof(known[0]), FAILS = N_KNOWN - 1 };

static void curves_are_found(const struct host *h)
{
    static struct ran r;
    int right[N_KNOWN] = {0}, within[N_KNOWN] = {0}, ratios = 0, bounds = 0;
    double n_requests = 0, truth[N_KNOWN], ratio;

    for (int k = 0; k < N_KNOWN; k++)
        truth[k] = true_rps(&known[k], h);
    ratio = truth[0] / truth[1];
    for (int i = 0; i < times(); i++) {
        run(&r, &usual, known, N_KNOWN, NULL, h, test_seed() + (uint64_t)i);
        for (int k = 0; k < FAILS; k++) {
            const struct load_goodput *g = &r.g[k];

            within[k] += !(g->low_rps > truth[k]) && !(g->high_rps <= truth[k]);
            if (isnan(g->rps))
                continue;
            assert_true(g->low_rps <= g->rps && g->rps < g->high_rps);
            assert_true(requests_at(&r, k, g->low_rps) >= 100);
            assert_true(requests_at(&r, k, g->high_rps) >= 100);
            right[k] +=
                abs(load_ladder_rung(&usual, g->rps) - true_rung(&usual, truth[k])) <= 1;
        }
        ratios += r.g[0].low_rps / r.g[1].high_rps <= ratio &&
                  r.g[0].high_rps / r.g[1].low_rps >= ratio;
        bounds += isnan(r.g[FAILS].rps) && r.g[FAILS].high_rps == usual.min_rps &&
                  isnan(r.g[FAILS].low_rps) && r.g[FAILS].n_at_min == 1;
        for (size_t k = 0; k < r.n; k++)
            n_requests += r.t[k].n_requests;
    }
    printf("# %.0f requests a run", n_requests / times());
    for (int k = 0; k < FAILS; k++) {
        printf("; %.1f %% right, %.1f %% in its interval", 100.0 * right[k] / times(),
               100.0 * within[k] / times());
        assert_true(right[k] >= 0.95 * times());
        assert_true(within[k] >= 0.94 * times());
    }
    printf("; %.1f %% of ratios\n", 100.0 * ratios / times());
    assert_true(ratios >= 0.95 * times());
    assert_int_equal(bounds, times());
}

TEST(known_goodputs_are_found)
{
    curves_are_found(&quiet);
}

TEST(known_goodputs_are_found_under_noise)
{
    curves_are_found(&noisy);
}

/* --- the order */

/* Equal systems, on a machine that gets slower by a tenth in 100 trials, and where what does not
 * come first is slower: each is ahead as often as the other. */
TEST(the_order_favours_nobody)
{
    static const struct system equal[] = {{1, 12, 8}, {1, 12, 8}};
    const struct host h = {.arrivals_dev = 0.05, .drift = 0.1, .later_turn = 0.05};
    static struct ran r;
    int ahead = 0, behind = 0;

    for (int i = 0; i < times(); i++) {
        run(&r, &usual, equal, 2, NULL, &h, test_seed() + (uint64_t)i);
        ahead += r.g[0].rps > r.g[1].rps;
        behind += r.g[0].rps < r.g[1].rps;
        assert_true(r.g[0].low_rps <= r.g[1].high_rps);
        assert_true(r.g[1].low_rps <= r.g[0].high_rps);
    }
    printf("# ahead %d, behind %d of %d\n", ahead, behind, times());
    assert_true(abs(ahead - behind) <= 3 * sqrt(ahead + behind + 1));
}

/* A block has one place in time for all that run it, unless one came to its rung later, and
 * blocks of an entry at a rung have no gap. */
TEST(a_block_is_run_in_turn)
{
    static struct ran r;
    int n_together = 0, n_apart = 0;

    run(&r, &usual, known, N_KNOWN, NULL, &noisy, test_seed());
    for (size_t i = 0; i < r.n; i++)
        for (size_t k = 0; k < i; k++) {
            if (r.t[i].seed != r.t[k].seed || r.t[i].rate_rps != r.t[k].rate_rps)
                continue;
            assert_true(r.t[i].entry != r.t[k].entry); /* none has a block twice */
            n_together += r.round[i] == r.round[k];
            n_apart += r.round[i] != r.round[k];
        }
    assert_true(n_together > n_apart);
    for (size_t i = 0; i < r.n; i++)
        for (int b = 0; b < r.t[i].seed; b++) {
            bool there = false;

            for (size_t k = 0; k < i; k++)
                there |= r.t[k].entry == r.t[i].entry && r.t[k].seed == b &&
                         r.t[k].rate_rps == r.t[i].rate_rps;
            assert_true(there);
        }
    for (size_t k = 0; k < N_KNOWN; k++) /* all begin at one rate */
        assert_true(r.t[k].rate_rps == r.t[0].rate_rps && r.round[k] == 0);
}

/* --- bounds */

/* How often a system of which this share meets the objectives at any rate is said to be below the
 * lowest. */
static double bounded(double top, const struct host *h)
{
    const struct system flat = {top, 1e9, 8};
    struct load_search s = usual;
    static struct ran r;
    int n = 0;

    s.max_rps = s.first_rps = s.min_rps; /* one rung: it is asked for nothing else */
    for (int i = 0; i < times(); i++) {
        run(&r, &s, &flat, 1, NULL, h, test_seed() + (uint64_t)i);
        assert_true(r.n <= LOAD_LADDER_BLOCKS_MAX);
        assert_true(isnan(r.g->rps)); /* one rate bounds to one side only */
        assert_true(isnan(r.g->high_rps) || isnan(r.g->low_rps));
        n += r.g->high_rps == s.min_rps;
    }
    return n / (double)times();
}

TEST(a_bound_is_true)
{
    assert_true(bounded(0.7, &quiet) >= 0.99);
    assert_true(bounded(0.94, &quiet) == 0);
    assert_true(bounded(0.99, &quiet) == 0);
    assert_true(bounded(0.9, &quiet) <= 0.03); /* at the target itself */
}

TEST(the_ends_bound_to_one_side)
{
    static const struct system all[] = {{1, 1e9, 8}, {0, 1, 1}, {1, 12, 8}};
    static const bool ended[] = {false, false, true};
    static struct ran r;

    run(&r, &usual, all, 3, ended, &quiet, 1);
    assert_true(isnan(r.g[0].rps) && isnan(r.g[0].high_rps));
    assert_near(r.g[0].low_rps, usual.min_rps * pow(1.15, load_ladder_rungs(&usual) - 1),
                1e-9);
    assert_true(r.g[0].low_rps <= usual.max_rps && r.g[0].low_rps * 1.15 > usual.max_rps);
    assert_non_null(strstr(r.g[0].why, "hold at the highest rate, "));
    assert_int_equal(r.g[0].n_at_max, 1);
    assert_true(isnan(r.g[1].rps) && isnan(r.g[1].low_rps) && r.g[1].high_rps == 0.5);
    assert_string_equal(r.g[1].why, "the objectives fail at the lowest rate, 0.5 req/s");
    assert_true(isnan(r.g[2].low_rps) && isnan(r.g[2].high_rps)); /* it never ran */
    assert_string_equal(r.g[2].why, "no trial was measured");
}

TEST(trials_run_out)
{
    struct load_search s = usual;
    static struct ran r;

    s.max_trials = 3; /* 4, 8, 16 */
    run(&r, &s, known, 1, NULL, &quiet, 1);
    assert_int_equal(r.n, 3);
    assert_true(isnan(r.g->rps) && r.g->n_open == 1);
    assert_non_null(strstr(r.g->why, "no rate that was tried surely"));
}

/* A trial that was ended as saturated counts as one that failed. */
TEST(a_saturated_trial_fails)
{
    const struct load_trial t[] = {
        {.rate_rps = 0.5, .within_frac = 0.95, .n_requests = 100, .ended_early = true}};
    struct load_goodput g;

    load_ladder_result(&g, &usual, t, 1, 0);
    assert_true(isnan(g.rps) && g.high_rps == 0.5);
}
