/* The detector of saturation against simulated queues whose load is known: false alarms at and
 * below the capacity, arrivals until a rate above it is found, and what grows without a queue.
 * Every seed is fixed, so an outcome here does not change from run to run. */
#include "tests/support/test.h"

#include <math.h>

#include "experiments/metrics/saturation.h"

#define N_SEEDS 200

/* A queue, first come, first served. A service takes 1 of a server's time in the mean. */
struct queue {
    double rate; /* arrivals in that time, by servers: the load */
    size_t n;    /* requests */
    size_t servers;
    double (*gap)(struct rng *r);     /* mean 1; NULL: exponential */
    double (*service)(struct rng *r); /* mean 1; NULL: always 1 */
    bool grows;                       /* request i takes i/n of that */
    size_t hangs;     /* this one never ends and holds no server; 0: none */
    bool streams;     /* the first token comes at the beginning of the service */
    bool no_schedule; /* the detector is not told when requests arrive */
};

struct event {
    double t;
    int kind; /* 0 arrival, 1 first token, 2 end */
    size_t i;
};

static int event_order(const void *a, const void *b)
{
    const struct event *x = a, *y = b;

    if (x->t != y->t)
        return x->t < y->t ? -1 : 1;
    return x->kind != y->kind ? x->kind - y->kind : (x->i > y->i) - (x->i < y->i);
}

static size_t simulate(struct event *e, double *arrival_s, const struct queue *q,
                       uint64_t seed)
{
    double *idle_at = mem_new(MEM_TEST, q->servers, sizeof(*idle_at)), t = 0;
    struct rng gaps, services;
    size_t n = 0;

    rng_init(&gaps, seed, "gaps");
    rng_init(&services, seed, "services");
    for (size_t i = 0; i < q->n; i++) {
        double service = q->service ? q->service(&services) : 1, begin;
        size_t first = 0;

        if (q->grows)
            service *= (double)(i + 1) / (double)q->n;
        t += (q->gap ? q->gap(&gaps) : rng_exp(&gaps)) / q->rate / (double)q->servers;
        arrival_s[i] = t;
        e[n++] = (struct event){t, 0, i};
        if (i && i == q->hangs)
            continue;
        for (size_t k = 1; k < q->servers; k++)
            first = idle_at[k] < idle_at[first] ? k : first;
        begin = fmax(t, idle_at[first]);
        idle_at[first] = begin + service;
        e[n++] = (struct event){q->streams ? begin : begin + service, 1, i};
        e[n++] = (struct event){begin + service, 2, i};
    }
    mem_free(idle_at);
    qsort(e, n, sizeof(*e), event_order);
    return n;
}

static struct metrics_saturated detect(const struct queue *q, uint64_t seed)
{
    struct event *e = mem_new(MEM_TEST, 3 * q->n, sizeof(*e));
    double *arrival_s = mem_new(MEM_TEST, q->n, sizeof(*arrival_s));
    size_t n = simulate(e, arrival_s, q, seed);
    struct metrics_saturation *s;
    struct metrics_saturated out;

    assert_ok(metrics_saturation_open(&s, q->n, arrival_s, q->no_schedule ? 0 : q->n));
    for (size_t k = 0; k < n; k++) {
        int64_t t_ns = (int64_t)(e[k].t * 1e9);

        if (e[k].kind == 0)
            metrics_saturation_arrival(s, e[k].i, t_ns);
        else if (e[k].kind == 1)
            metrics_saturation_first_token(s, e[k].i, t_ns);
        else
            metrics_saturation_end(s, e[k].i, t_ns, false);
    }
    out = *metrics_saturation_result(s);
    metrics_saturation_close(&s);
    mem_free(e);
    mem_free(arrival_s);
    return out;
}

/* In how many of n_seeds it is found; *most: after how many arrivals at most. */
static size_t count(const struct queue *q, size_t n_seeds, size_t *most)
{
    size_t n = 0;

    *most = 0;
    for (uint64_t seed = 1; seed <= n_seeds; seed++) {
        struct metrics_saturated x = detect(q, seed);

        n += x.found;
        *most = x.n_arrivals > *most ? x.n_arrivals : *most;
        if (x.found)
            assert_true(x.growth > x.bound && x.slope > 0 && x.n_in_system > 0);
    }
    return n;
}

static void at_most(const struct queue *q, size_t n_seeds, double frac)
{
    size_t most, n = count(q, n_seeds, &most);

    if ((double)n > frac * (double)n_seeds)
        fail_msg("load %g: found in %zu of %zu, wanted at most %g", q->rate, n, n_seeds,
                 frac * (double)n_seeds);
}

/* Found in every one, within this many arrivals. */
static void within(const struct queue *q, size_t n_arrivals)
{
    size_t most, n = count(q, N_SEEDS, &most);

    if (n != N_SEEDS || most > n_arrivals)
        fail_msg("load %g: found in %zu of %d, after %zu arrivals at most, wanted %zu",
                 q->rate, n, N_SEEDS, most, n_arrivals);
}

/* --- M/D/1 */

TEST(below_the_capacity_it_is_not_found)
{
    static const double load[] = {0.5, 0.8, 0.9};

    for (size_t k = 0; k < 3; k++)
        at_most(
            &(struct queue){.rate = load[k], .n = 2000, .servers = 1, .streams = true},
            N_SEEDS, METRICS_SATURATION_ALPHA);
}

/* The hardest case that counts as a false alarm: the drift is 0, and every event is a look. */
TEST(at_the_capacity_it_is_found_as_rarely_as_stated)
{
    at_most(&(struct queue){.rate = 1, .n = 1000, .servers = 1, .streams = true}, 1000,
            METRICS_SATURATION_ALPHA);
    at_most(
        &(struct queue){
            .rate = 1, .n = 1000, .servers = 1, .streams = true, .service = rng_exp},
        1000, METRICS_SATURATION_ALPHA);
}

/* The numbers of saturation.h. */
TEST(above_the_capacity_it_is_found)
{
    struct queue q = {.rate = 1.2, .n = 3000, .servers = 1, .streams = true};

    within(&q, 2500);
    q.rate = 1.5;
    within(&q, 450);
    q.rate = 2;
    within(&q, 200);
    q.rate = 8;
    within(&q, 200);
}

/* --- a sweep of rates */

/* The first step at which it is found, of rates that grow from half of 1 by a fifth each. */
TEST(a_cliff_is_found_within_two_steps)
{
    for (int cliff = 1; cliff < 8; cliff++)
        for (uint64_t seed = 1; seed <= 20; seed++) {
            /* the capacity is in the middle between two rates: step `cliff` is above it */
            double capacity = 0.5 * pow(1.2, cliff - 0.5);
            int step = 0;

            for (; step < 12; step++) {
                struct queue q = {.rate = 0.5 * pow(1.2, step) / capacity,
                                  .n = 800,
                                  .servers = 1,
                                  .streams = true};

                if (detect(&q, 1000 * seed + (uint64_t)step).found)
                    break;
            }
            if (step < cliff || step > cliff + 1)
                fail_msg("cliff at step %d, seed %d: found at step %d", cliff, (int)seed,
                         step);
        }
}

/* --- other queues */

/* Regression for any test of the number of requests in the system: it grows with every arrival
 * until the first of 200 servers is free again. */
TEST(servers_that_fill_are_not_saturated)
{
    at_most(&(struct queue){.rate = 0.5, .n = 2000, .servers = 200}, 50, 0);
    at_most(&(struct queue){.rate = 0.5, .n = 2000, .servers = 200, .service = rng_exp},
            50, 0);
    at_most(&(struct queue){.rate = 0.9, .n = 2000, .servers = 200, .streams = true}, 50,
            0);
    within(
        &(struct queue){
            .rate = 2, .n = 2000, .servers = 200, .streams = true, .service = rng_exp},
        1000);
}

static double heavy(struct rng *r)
{
    return exp(1.5 * rng_normal(r) - 1.125);
}

/* Answers whose length differs much hide a queue in the stay of each request, not in its mean
 * over consecutive ones. */
TEST(lengths_that_differ_hide_nothing)
{
    at_most(&(struct queue){.rate = 0.9, .n = 2000, .servers = 8, .service = heavy}, 100,
            0.01);
    within(&(struct queue){.rate = 2, .n = 3000, .servers = 8, .service = heavy}, 2000);
}

static double bursty(struct rng *r)
{
    return rng_gamma(r, 0.25) / 0.25;
}

TEST(bursts_of_gamma_are_no_alarm)
{
    at_most(&(struct queue){.rate = 0.9, .n = 1000, .servers = 1, .gap = bursty}, N_SEEDS,
            0.01);
    within(&(struct queue){.rate = 2, .n = 2000, .servers = 1, .gap = bursty}, 600);
}

/* 50 arrivals at five times the rate, then as many at 0.56 of it, on average. */
static double two_rates(struct rng *r)
{
    static __thread bool fast;

    if (rng_f64(r) < 0.02)
        fast = !fast;
    return rng_exp(r) * (fast ? 0.2 : 1.8);
}

/* That the schedule is known beforehand is what keeps a trace's bursts from being alarms. */
TEST(bursts_of_a_trace_are_known_beforehand)
{
    struct queue q = {.rate = 0.8, .n = 1000, .servers = 1, .gap = two_rates};
    size_t most, known = count(&q, N_SEEDS, &most);

    q.no_schedule = true;
    assert_true(known <= 6);
    assert_true(count(&q, N_SEEDS, &most) > 5 * known);
}

/* TTFT that grows with the prompts, at a rate at which nothing ever waits. */
TEST(longer_prompts_at_a_low_load_are_not_saturation)
{
    at_most(&(struct queue){.rate = 0.1, .n = 2000, .servers = 1, .grows = true}, 50, 0);
}

TEST(a_request_that_hangs_hides_nothing)
{
    at_most(&(struct queue){.rate = 0.5, .n = 2000, .servers = 1, .hangs = 30}, 50, 0);
    within(&(struct queue){.rate = 2, .n = 1000, .servers = 1, .hangs = 30}, 300);
}

/* --- the interface */

TEST(unknown_events_are_ignored)
{
    struct metrics_saturation *s;

    assert_ok(metrics_saturation_open(&s, 4, NULL, 0));
    metrics_saturation_first_token(s, 2, 5);
    metrics_saturation_end(s, 2, 5, false);
    metrics_saturation_arrival(s, 1, 10);
    metrics_saturation_end(s, 1, 11, true);
    metrics_saturation_end(s, 1, 12, false);
    metrics_saturation_first_token(s, 1, 12);
    assert_false(metrics_saturation_result(s)->found);
    assert_int_equal(metrics_saturation_result(s)->n_in_system, 0);
    metrics_saturation_close(&s);
    assert_null(s);
    metrics_saturation_close(&s);
}

/* Failures that come at once are no evidence of a short queue: those that are served are. */
TEST(failures_hide_nothing)
{
    struct metrics_saturation *s;
    const size_t n = 400;

    assert_ok(metrics_saturation_open(&s, n, NULL, 0));
    for (size_t i = 0; i < n; i++) {
        metrics_saturation_arrival(s, i, (int64_t)i * 1000000);
        if (i % 2)
            metrics_saturation_end(s, i, (int64_t)i * 1000000, true);
        else if (i % 8 == 0) {
            metrics_saturation_first_token(s, i / 4, (int64_t)i * 1000000);
            metrics_saturation_end(s, i / 4, (int64_t)i * 1000000, false);
        }
    }
    assert_true(metrics_saturation_result(s)->found);
    metrics_saturation_close(&s);
}

TEST(short_of_memory)
{
    size_t before = mem_used_bytes(MEM_HARNESS);

    for (long n = 0; n < 3; n++) {
        struct metrics_saturation *s = NULL;

        mem_fail_after(n, 1);
        assert_int_equal(metrics_saturation_open(&s, 4, NULL, 0), ERR_NOMEM);
        mem_fail_after(-1, 1);
        assert_null(s);
        assert_int_equal(mem_used_bytes(MEM_HARNESS), before);
    }
}
