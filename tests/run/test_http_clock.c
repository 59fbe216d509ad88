/* What is published of load over HTTP, held against the clock of the server. Each time of the
 * harness is between two of the server: a token was read after it was sent and before the
 * client closed the connection. So the published numbers lie between two that are computed from
 * the server's account, however busy the machine is, and a queue with a known answer has it. */
#include "tests/run/http_run.h"

#include <math.h>

#include "base/clock.h"
#include "base/stats.h"
#include "experiments/load/load.h"

#define NS_PER_MS 1e6

/* When the cell began, by the server's clock. */
struct start {
    int64_t low, high;
};

/* What the server has seen of request i, its connection's end included: that is sure to come,
 * but may come after the client's report of the cell. */
static struct web_seen closed_of(const struct fixture *x, size_t i)
{
    struct web_seen seen = seen_of(x, i);

    for (int k = 0; k < 60000 && !seen.closed_ns; k++) {
        clock_sleep_until_ns(clock_ns() + 1000000, 0);
        seen = seen_of(x, i);
    }
    assert_true(seen.closed_ns > 0);
    return seen;
}

/* A request was got after its dispatch; each token was read after it was sent and before the
 * connection was closed. A stamp that is too early or too late leaves no start. */
static struct start start_of(const struct fixture *x)
{
    struct start s = {INT64_MIN, INT64_MAX};

    for (size_t i = 0; i < x->result.n; i++) {
        const struct metrics_row *r = &x->result.rows[i];
        struct web_seen seen = closed_of(x, i);

        assert_int_equal(r->status, METRICS_OK);
        if ((int64_t)seen.received_ns - r->dispatch_ns < s.high)
            s.high = (int64_t)seen.received_ns - r->dispatch_ns;
        for (int k = 0; k < r->n_tok; k++) {
            if ((int64_t)seen.sent_ns[k] - r->token_ns[k] > s.low)
                s.low = (int64_t)seen.sent_ns[k] - r->token_ns[k];
            if ((int64_t)seen.closed_ns - r->token_ns[k] < s.high)
                s.high = (int64_t)seen.closed_ns - r->token_ns[k];
        }
    }
    assert_true(s.low <= s.high);
    return s;
}

/* Between which two the server's account puts a number of each request. */
struct bounds {
    double ttft_low_ms, ttft_high_ms, tpot_low_ms, tpot_high_ms;
};

static struct bounds bounds_of(const struct fixture *x, size_t i, const struct start *s)
{
    const struct metrics_row *r = &x->result.rows[i];
    struct web_seen seen = closed_of(x, i);
    int64_t n = r->n_tok;
    /* The first token may have been read as late as the last. */
    double low = (double)((int64_t)seen.sent_ns[n - 1] - (int64_t)seen.closed_ns);
    double high = (double)((int64_t)seen.closed_ns - (int64_t)seen.sent_ns[0]);

    return (struct bounds){
        .ttft_low_ms =
            (double)((int64_t)seen.sent_ns[0] - s->high - r->intended_ns) / NS_PER_MS,
        .ttft_high_ms =
            (double)((int64_t)seen.closed_ns - s->low - r->intended_ns) / NS_PER_MS,
        .tpot_low_ms = n > 1 ? fmax(low, 0) / (double)(n - 1) / NS_PER_MS : NAN,
        .tpot_high_ms = n > 1 ? high / (double)(n - 1) / NS_PER_MS : NAN};
}

static void assert_within(const struct metrics *m, const char *name, double low,
                          double high)
{
    double v = metric(m, name);

    if (!(v >= low - 1e-6 && v <= high + 1e-6))
        fail_msg("%s: %g is not within %g and %g, as the server saw it", name, v, low,
                 high);
}

/* Each third request is slower than the objective by the script. */
TEST(published_numbers_are_the_servers)
{
    struct web_script s = {.dialect = WEB_VLLM,
                           .ttft_ms = 8,
                           .itl_ms = 3,
                           .slow_every = 3,
                           .slow_ms = 300,
                           .closes = 1};
    double ttft_low = 0, ttft_high = 0, tpot_low = 0, tpot_high = 0;
    size_t n_sure = 0, n_maybe = 0;
    struct start start;
    struct fixture x;
    struct metrics m;

    run(&x, &s, "poisson", 60, 150, 5, 0);
    start = start_of(&x);
    compute(&m, &x, 200, 50);
    for (size_t i = 0; i < x.result.n; i++) {
        struct bounds b = bounds_of(&x, i, &start);

        ttft_low += b.ttft_low_ms / (double)x.result.n;
        ttft_high += b.ttft_high_ms / (double)x.result.n;
        tpot_low += b.tpot_low_ms / (double)x.result.n;
        tpot_high += b.tpot_high_ms / (double)x.result.n;
        n_sure += b.ttft_high_ms <= 200 && b.tpot_high_ms <= 50;
        n_maybe += b.ttft_low_ms <= 200 && b.tpot_low_ms <= 50;
    }
    assert_true(n_maybe <= 40); /* the script lets no more meet them */
    assert_within(&m, "mean_ttft_ms", ttft_low, ttft_high);
    assert_within(&m, "mean_tpot_ms", tpot_low, tpot_high);
    assert_within(&m, "slo_attainment_frac", (double)n_sure / 60, (double)n_maybe / 60);
    assert_within(&m, "request_goodput_rps", (double)n_sure / metric(&m, "duration_s"),
                  (double)n_maybe / metric(&m, "duration_s"));
    metrics_fini(&m);
    end(&x);
}

/* --- a queue with a known answer: one server, one time of service, Poisson arrivals */

/* Lindley's recursion: departures of a queue of one, in the order of arrival. */
static void departures(const double *arrival_s, size_t n, double service_s, double *out)
{
    double free_s = 0;

    for (size_t i = 0; i < n; i++) {
        free_s = fmax(free_s, arrival_s[i]) + service_s;
        out[i] = free_s;
    }
}

static double mean_wait(const double *arrival_s, size_t n, double service_s, double *out)
{
    departures(arrival_s, n, service_s, out);
    for (size_t i = 0; i < n; i++)
        out[i] -= arrival_s[i] + service_s;
    return stats_mean(out, n);
}

/* By arithmetic: the arrivals that the harness fixes before a run wait as those of an M/D/1
 * queue do. The tolerance is four standard errors of the mean, by batches that are longer than
 * the dependence of waits. */
TEST(arrivals_wait_as_in_theory)
{
    enum { N = 100000, BATCHES = 50 };
    static const double loads[] = {0.3, 0.6, 0.8};
    static char poisson[] = "poisson";
    const double service_s = 0.004;
    double *arrival_s = mem_new(MEM_TEST, N, sizeof(double)), batch[BATCHES];
    double *wait_s = mem_new(MEM_TEST, N, sizeof(double));
    const struct load_process *p;

    assert_ok(load_process_find("poisson", &p));
    for (size_t k = 0; k < sizeof(loads) / sizeof(loads[0]); k++) {
        const struct load_opts o = {.process = poisson, .rate_rps = loads[k] / service_s};
        double theory = loads[k] * service_s / (2 * (1 - loads[k])), found;

        assert_ok(load_arrivals(p, &o, test_seed(), NULL, arrival_s, N));
        found = mean_wait(arrival_s, N, service_s, wait_s);
        for (int b = 0; b < BATCHES; b++)
            batch[b] = stats_mean(wait_s + b * (N / BATCHES), N / BATCHES);
        assert_near(found, theory, 4 * stats_std(batch, BATCHES) / sqrt(BATCHES));
    }
    mem_free(arrival_s);
    mem_free(wait_s);
}

/* Behind HTTP the same arrivals wait no less than that arithmetic says, and what is published
 * is what the server saw. */
TEST(a_queue_behind_http_waits_as_it_must)
{
    struct web_script s = {.dialect = WEB_VLLM, .ttft_ms = 4, .slots = 1, .closes = 1};
    double ideal_s[200], reported_s[200], low = 0, high = 0, wait_s;
    struct start start;
    struct fixture x;
    struct metrics m;

    run(&x, &s, "poisson", 200, 175, 1, 0);
    start = start_of(&x);
    compute(&m, &x, 1000, 0);
    wait_s = mean_wait(x.requests.arrival_s, 200, 0.004, ideal_s);
    departures(x.requests.arrival_s, 200, 0.004, ideal_s);
    for (size_t i = 0; i < 200; i++) {
        struct bounds b = bounds_of(&x, i, &start);

        low += b.ttft_low_ms / 200;
        high += b.ttft_high_ms / 200;
        reported_s[i] = (double)x.result.rows[i].first_token_ns / 1e9;
    }
    /* The server takes whom it wakes first, so it is the k-th end that cannot be earlier. */
    for (int k = 1; k <= 200; k++)
        assert_true(stats_percentile(reported_s, 200, k / 200.0) >=
                    stats_percentile(ideal_s, 200, k / 200.0) - 1e-6);
    assert_true(metric(&m, "mean_ttft_ms") >= 1e3 * (wait_s + 0.004) - 1e-3);
    assert_within(&m, "mean_ttft_ms", low, high);
    metrics_fini(&m);
    end(&x);
}

/* One at a time, as the server's own account of its slot shows. */
TEST(the_server_serves_one_at_a_time)
{
    struct web_script s = {.dialect = WEB_VLLM, .ttft_ms = 2, .slots = 1};
    struct fixture x;

    run(&x, &s, "poisson", 40, 400, 2, 0);
    for (size_t i = 0; i < x.result.n; i++)
        for (size_t k = 0; k < x.result.n; k++) {
            struct web_seen a = seen_of(&x, i), b = seen_of(&x, k);

            assert_true(i == k || a.ended_ns <= b.began_ns || b.ended_ns <= a.began_ns);
        }
    end(&x);
}

/* --- connections */

/* One that is idle is used again: no more of them than requests were ever under way. A request is
 * sent when another has ended, and then libcurl has its connection back. */
TEST(connections_are_used_again)
{
    struct web_script s = {.dialect = WEB_VLLM, .ttft_ms = 1};
    struct fixture x;

    run(&x, &s, "closed", 60, 0, 2, 0); /* four at a time */
    assert_int_equal(web_n_seen(x.web), 61);
    assert_true(web_n_used(x.web) <= 4 + 1); /* one of the open, which closes it */
    end(&x);
}
