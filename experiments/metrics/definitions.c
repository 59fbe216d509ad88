/* The definitions. Each function is the one place where its number is defined; the text
 * of its row says the same in words. */
#include <math.h>
#include <stdlib.h>

#include "experiments/metrics/metrics.h"

#include "base/mem.h"

#define NS_PER_MS 1e6
#define NS_PER_S  1e9

double metrics_ttft_ms(const struct metrics_row *r)
{
    return r->n_tok < 1 ? NAN : (double)(r->first_token_ns - r->intended_ns) / NS_PER_MS;
}

double metrics_ttft_service_ms(const struct metrics_row *r)
{
    return r->n_tok < 1 ? NAN : (double)(r->first_token_ns - r->dispatch_ns) / NS_PER_MS;
}

double metrics_e2e_ms(const struct metrics_row *r)
{
    return r->n_tok < 1
               ? NAN
               : (double)(r->token_ns[r->n_tok - 1] - r->intended_ns) / NS_PER_MS;
}

double metrics_tpot_ms(const struct metrics_row *r)
{
    if (r->n_tok < 2)
        return NAN;
    return (double)(r->token_ns[r->n_tok - 1] - r->first_token_ns) / NS_PER_MS /
           (double)(r->n_tok - 1);
}

bool metrics_slo_met(const struct metrics_row *r, const struct metrics_slo *s,
                     double scale)
{
    double tpot = metrics_tpot_ms(r);

    if (r->status != METRICS_OK)
        return false;
    if (s->ttft_ms > 0 && !(metrics_ttft_ms(r) <= s->ttft_ms * scale))
        return false;
    /* One token has no TPOT and so cannot miss it. */
    return !(s->tpot_ms > 0 && tpot > s->tpot_ms * scale);
}

static size_t each_ok(const struct metrics_work *w, double *out,
                      double (*of)(const struct metrics_row *))
{
    size_t n = 0;

    for (size_t i = 0; i < w->n_ok; i++) {
        double x = of(w->ok[i]);

        if (isnan(x))
            continue;
        if (out)
            out[n] = x;
        n++;
    }
    return n;
}

static size_t ttft_samples(const struct metrics_work *w, double *out)
{
    return each_ok(w, out, metrics_ttft_ms);
}

static size_t ttft_service_samples(const struct metrics_work *w, double *out)
{
    return each_ok(w, out, metrics_ttft_service_ms);
}

static size_t tpot_samples(const struct metrics_work *w, double *out)
{
    return each_ok(w, out, metrics_tpot_ms);
}

static size_t e2e_samples(const struct metrics_work *w, double *out)
{
    return each_ok(w, out, metrics_e2e_ms);
}

static size_t itl_samples(const struct metrics_work *w, double *out)
{
    size_t n = 0;

    for (size_t i = 0; i < w->n_ok; i++)
        for (int64_t t = 1; t < w->ok[i]->n_tok; t++, n++)
            if (out)
                out[n] = (double)(w->ok[i]->token_ns[t] - w->ok[i]->token_ns[t - 1]) /
                         NS_PER_MS;
    return n;
}

/* All measured requests count: one that failed meets no objective, however loose. */
static size_t slo_scale_samples(const struct metrics_work *w, double *out)
{
    const struct metrics_slo *slo = &w->in->slo;

    if (!(slo->ttft_ms > 0) && !(slo->tpot_ms > 0))
        return 0;
    for (size_t i = 0; out && i < w->n_measured; i++) {
        const struct metrics_row *r = w->measured[i];

        out[i] = 0;
        if (slo->ttft_ms > 0)
            out[i] = metrics_ttft_ms(r) / slo->ttft_ms;
        if (slo->tpot_ms > 0) /* fmax passes over the TPOT that one token lacks */
            out[i] = fmax(out[i], metrics_tpot_ms(r) / slo->tpot_ms);
        if (r->status != METRICS_OK)
            out[i] = INFINITY;
    }
    return w->n_measured;
}

static size_t lateness_samples(const struct metrics_work *w, double *out)
{
    size_t n = 0;

    for (size_t i = 0; i < w->n_measured; i++) {
        if (w->measured[i]->dispatch_ns == METRICS_NEVER)
            continue;
        if (out)
            out[n] = (double)(w->measured[i]->dispatch_ns - w->measured[i]->intended_ns) /
                     NS_PER_MS;
        n++;
    }
    return n;
}

static size_t timer_samples(const struct metrics_work *w, double *out)
{
    for (size_t i = 0; out && i < w->in->n_timer_error; i++)
        out[i] = w->in->timer_error_us[i];
    return w->in->n_timer_error;
}

static double count_status(const struct metrics_work *w, enum metrics_status s)
{
    double n = 0;

    for (size_t i = 0; i < w->n_measured; i++)
        n += w->measured[i]->status == s;
    return n;
}

static double n_requests(const struct metrics_work *w, const char **why)
{
    (void)why;
    return (double)w->n_measured;
}

static double n_completed(const struct metrics_work *w, const char **why)
{
    (void)why;
    return (double)w->n_ok;
}

static double n_failed(const struct metrics_work *w, const char **why)
{
    (void)why;
    return count_status(w, METRICS_FAILED);
}

static double n_timeout(const struct metrics_work *w, const char **why)
{
    (void)why;
    return count_status(w, METRICS_TIMEOUT);
}

static double n_rejected(const struct metrics_work *w, const char **why)
{
    (void)why;
    return count_status(w, METRICS_REJECTED);
}

static double input_tok(const struct metrics_work *w, const char **why)
{
    double n = 0;

    (void)why;
    for (size_t i = 0; i < w->n_ok; i++)
        n += (double)w->ok[i]->n_prompt_tok;
    return n;
}

static double output_tok(const struct metrics_work *w, const char **why)
{
    double n = 0;

    (void)why;
    for (size_t i = 0; i < w->n_ok; i++)
        n += (double)w->ok[i]->n_tok;
    return n;
}

/* a / b; where b is not above 0: NaN, and *why is `reason`. */
static double ratio(double a, double b, const char **why, const char *reason)
{
    if (b > 0)
        return a / b;
    *why = reason;
    return NAN;
}

static double duration(const struct metrics_work *w, const char **why)
{
    return ratio(w->duration_s, 1, why, "");
}

static double request_throughput(const struct metrics_work *w, const char **why)
{
    return ratio((double)w->n_ok, w->duration_s, why, "the cell took no time");
}

static double output_throughput(const struct metrics_work *w, const char **why)
{
    return ratio(output_tok(w, why), w->duration_s, why, "the cell took no time");
}

static double total_throughput(const struct metrics_work *w, const char **why)
{
    return ratio(output_tok(w, why) + input_tok(w, why), w->duration_s, why,
                 "the cell took no time");
}

static double error_frac(const struct metrics_work *w, const char **why)
{
    return ratio((double)(w->n_measured - w->n_ok), (double)w->n_measured, why,
                 "no request was measured");
}

static double n_slo_met(const struct metrics_work *w, const struct metrics_slo *slo)
{
    double n = 0;

    for (size_t i = 0; i < w->n_measured; i++)
        n += metrics_slo_met(w->measured[i], slo, 1);
    return n;
}

/* Share of the requests that meet the objectives of `slo`. */
static double attainment(const struct metrics_work *w, const struct metrics_slo *slo,
                         const char **why, const char *missing)
{
    if (!(slo->ttft_ms > 0) && !(slo->tpot_ms > 0)) {
        *why = missing;
        return NAN;
    }
    return ratio(n_slo_met(w, slo), (double)w->n_measured, why,
                 "no request was measured");
}

static const char no_slo[] = "the job sets no objective (slo.ttft_ms, slo.tpot_ms)";

static double slo_attainment(const struct metrics_work *w, const char **why)
{
    return attainment(w, &w->in->slo, why, no_slo);
}

static double ttft_attainment(const struct metrics_work *w, const char **why)
{
    const struct metrics_slo ttft = {.ttft_ms = w->in->slo.ttft_ms};

    return attainment(w, &ttft, why, "the job sets no slo.ttft_ms");
}

static double tpot_attainment(const struct metrics_work *w, const char **why)
{
    const struct metrics_slo tpot = {.tpot_ms = w->in->slo.tpot_ms};

    return attainment(w, &tpot, why, "the job sets no slo.tpot_ms");
}

static double request_goodput(const struct metrics_work *w, const char **why)
{
    if (isnan(attainment(w, &w->in->slo, why, no_slo)))
        return NAN;
    return ratio(n_slo_met(w, &w->in->slo), w->duration_s, why, "the cell took no time");
}

/* Sums over the requests that decoded at all. */
struct decode_sum {
    double n_tok, seconds, bytes; /* bytes NaN: not stated */
};

static struct decode_sum decode_sum(const struct metrics_work *w)
{
    struct decode_sum d = {0, 0, 0};

    for (size_t i = 0; i < w->n_ok; i++) {
        const struct metrics_row *r = w->ok[i];

        if (r->n_tok < 2)
            continue;
        d.n_tok += (double)(r->n_tok - 1);
        d.seconds += (double)(r->token_ns[r->n_tok - 1] - r->first_token_ns) / NS_PER_S;
        d.bytes += r->decode_bytes;
    }
    return d;
}

static double decode_rate(const struct metrics_work *w, const char **why)
{
    struct decode_sum d = decode_sum(w);

    return ratio(d.n_tok, d.seconds, why, "no request had a second token");
}

static double decode_read(const struct metrics_work *w, const char **why)
{
    struct decode_sum d = decode_sum(w);

    if (w->overlapped) {
        *why = "requests overlapped: a batch shares each read of the weights";
        return NAN;
    }
    if (isnan(d.bytes)) {
        *why = "the system states no bytes per token";
        return NAN;
    }
    return ratio(d.bytes / 1e9, d.seconds, why, "no request had a second token");
}

static double decode_bandwidth(const struct metrics_work *w, const char **why)
{
    double gbps = decode_read(w, why);

    if (isnan(gbps))
        return NAN;
    return ratio(gbps, w->in->read_gbps, why, w->in->read_why);
}

static double tpot_below_bound(const struct metrics_work *w, const char **why)
{
    double n = 0, below = 0;

    if (isnan(decode_bandwidth(w, why)))
        return NAN;
    for (size_t i = 0; i < w->n_ok; i++) {
        const struct metrics_row *r = w->ok[i];
        double floor_ms = r->decode_bytes / w->in->read_gbps / 1e6;

        if (r->n_tok < 2)
            continue;
        n++;
        below += metrics_tpot_ms(r) * (double)(r->n_tok - 1) < floor_ms;
    }
    return ratio(below, n, why, "no request had a second token");
}

static double service_s(const struct metrics_work *w)
{
    double s = 0;

    for (size_t i = 0; i < w->n_ok; i++)
        s += metrics_ttft_service_ms(w->ok[i]) / 1e3;
    return s;
}

static double prefill_rate(const struct metrics_work *w, const char **why)
{
    if (w->overlapped) {
        *why = "requests overlapped: the time to a first token is not its own prefill";
        return NAN;
    }
    return ratio(input_tok(w, why), service_s(w), why, "no request was answered");
}

static double prefill_gflops(const struct metrics_work *w, const char **why)
{
    double flop = 0;

    if (isnan(prefill_rate(w, why)))
        return NAN;
    for (size_t i = 0; i < w->n_ok; i++)
        flop += w->ok[i]->prefill_flop;
    if (isnan(flop)) {
        *why = "the system states no arithmetic per prompt";
        return NAN;
    }
    return ratio(flop / 1e9, service_s(w), why, "no request was answered");
}

static double prefill_peak(const struct metrics_work *w, const char **why)
{
    double gflops = prefill_gflops(w, why);

    if (isnan(gflops))
        return NAN;
    return ratio(gflops, w->in->peak_gflops, why, w->in->peak_why);
}

/* Broken times (out of order, or a first token that is not the first) would show here. */
static double identity_e2e(const struct metrics_work *w, const char **why)
{
    double worst = 0;

    for (size_t i = 0; i < w->n_ok; i++) {
        const struct metrics_row *r = w->ok[i];
        int64_t sum = r->first_token_ns - r->intended_ns, off;

        for (int64_t t = 1; t < r->n_tok; t++) {
            int64_t gap = r->token_ns[t] - r->token_ns[t - 1];

            sum += gap < 0 ? -gap : gap;
        }
        off = llabs(r->token_ns[r->n_tok - 1] - r->intended_ns - sum);
        worst = (double)off > worst ? (double)off : worst;
    }
    if (w->n_ok == 0) {
        *why = "no request was answered";
        return NAN;
    }
    return worst / NS_PER_MS;
}

struct edge {
    int64_t t;
    int step;
};

static int edge_order(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;

    return x->t != y->t ? (x->t > y->t) - (x->t < y->t) : x->step - y->step;
}

/* Time average of the number in the system, by walking the arrivals and departures. */
static double little_l(const struct metrics_work *w, const char **why)
{
    size_t n = w->n_measured;
    struct edge *e = mem_new(MEM_HARNESS, 2 * n, sizeof(*e));
    double area = 0, span;
    int inside = 0;

    if (!e || n == 0) {
        mem_free(e);
        *why = n ? "out of memory" : "no request was measured";
        return NAN;
    }
    for (size_t i = 0; i < n; i++) {
        e[2 * i] = (struct edge){w->measured[i]->intended_ns, 1};
        e[2 * i + 1] = (struct edge){w->measured[i]->done_ns, -1};
    }
    qsort(e, 2 * n, sizeof(*e), edge_order);
    for (size_t i = 0; i + 1 < 2 * n; i++) {
        inside += e[i].step;
        area += inside * (double)(e[i + 1].t - e[i].t);
    }
    span = (double)(e[2 * n - 1].t - e[0].t);
    mem_free(e);
    return ratio(area, span, why, "the cell took no time");
}

/* ---- how fast requests come and end, and whether the system keeps up ---- */

/* First and last of n times. */
struct span {
    int64_t first, last;
    size_t n;
};

static void add_time(struct span *s, int64_t t)
{
    s->first = s->n == 0 || t < s->first ? t : s->first;
    s->last = s->n == 0 || t > s->last ? t : s->last;
    s->n++;
}

static double rate(const struct span *s, const char **why, const char *reason)
{
    if (s->n < 2) {
        *why = "fewer than two requests";
        return NAN;
    }
    return ratio((double)(s->n - 1), (double)(s->last - s->first) / NS_PER_S, why,
                 reason);
}

static struct span arrivals(const struct metrics_work *w)
{
    struct span s = {0, 0, 0};

    for (size_t i = 0; i < w->n_measured; i++)
        add_time(&s, w->measured[i]->intended_ns);
    return s;
}

static double offered_rate(const struct metrics_work *w, const char **why)
{
    struct span s = arrivals(w);

    return rate(&s, why, "all requests were intended at one moment");
}

/* Did the system end it? The harness rejected or canceled the others. */
static bool ended(const struct metrics_row *r)
{
    return r->status == METRICS_OK || r->status == METRICS_FAILED;
}

static double achieved_rate(const struct metrics_work *w, const char **why)
{
    struct span s = {0, 0, 0};

    for (size_t i = 0; i < w->n_measured; i++)
        if (ended(w->measured[i]))
            add_time(&s, w->measured[i]->done_ns);
    return rate(&s, why, "all requests ended at one moment");
}

/* Time average, from `from` to `to`, of the number of requests that are in the system. */
static double mean_backlog(const struct metrics_work *w, double from, double to)
{
    double sum = 0;

    for (size_t i = 0; i < w->n_measured; i++) {
        const struct metrics_row *r = w->measured[i];
        double end = ended(r) ? fmin(to, (double)r->done_ns) : to;

        sum += fmax(0, end - fmax(from, (double)r->intended_ns));
    }
    return sum / (to - from);
}

static double backlog_growth(const struct metrics_work *w, const char **why)
{
    struct span s = arrivals(w);
    double from = (double)s.first, to = (double)s.last, quarter = (to - from) / 4;

    if (isnan(rate(&s, why, "all requests were intended at one moment")))
        return NAN;
    return mean_backlog(w, to - quarter, to) - mean_backlog(w, from, from + quarter);
}

/* ---- energy by token: differences of a counter that was read now and then, on a line between
 * two readings ---- */

/* Joules until time t_ns of the cell; NaN outside of the readings. */
static double joules_at(const struct metrics_input *in, int64_t t_ns)
{
    double t = (double)t_ns / NS_PER_S;
    size_t lo = 0, hi = in->n_energy - 1; /* t is between these two readings */

    if (!(t >= in->energy_s[lo] && t <= in->energy_s[hi]))
        return NAN;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;

        *(in->energy_s[mid] <= t ? &lo : &hi) = mid;
    }
    if (in->energy_s[hi] <= t)
        return in->energy_joules[hi];
    return in->energy_joules[lo] + (in->energy_joules[hi] - in->energy_joules[lo]) *
                                       (t - in->energy_s[lo]) /
                                       (in->energy_s[hi] - in->energy_s[lo]);
}

static bool was_read(const struct metrics_work *w, const char **why)
{
    if (w->in->n_energy > 0)
        return true;
    *why = w->in->energy_why && w->in->energy_why[0] ? w->in->energy_why
                                                     : "energy was not read";
    return false;
}

static double by_token(double joules, double n_tok, const char **why)
{
    if (isnan(joules)) {
        *why = "energy was read for a part of the time only";
        return NAN;
    }
    return ratio(joules, n_tok, why, "no request made such tokens");
}

static double joules_per_tok(const struct metrics_work *w, const char **why)
{
    int64_t first = INT64_MAX, last = INT64_MIN;
    double n_tok = 0;

    if (!was_read(w, why))
        return NAN;
    for (size_t i = 0; i < w->n_measured; i++) {
        const struct metrics_row *r = w->measured[i];

        first = r->intended_ns < first ? r->intended_ns : first;
        last = r->done_ns > last ? r->done_ns : last;
    }
    for (size_t i = 0; i < w->n_ok; i++)
        n_tok += (double)(w->ok[i]->n_prompt_tok + w->ok[i]->n_tok);
    return by_token(w->n_measured ? joules_at(w->in, last) - joules_at(w->in, first) : 0,
                    n_tok, why);
}

static bool alone(const struct metrics_work *w, const char **why)
{
    if (!w->overlapped)
        return true;
    *why = "requests overlapped: a phase has no energy of its own";
    return false;
}

static double prefill_joules_per_tok(const struct metrics_work *w, const char **why)
{
    double joules = 0, n_tok = 0;

    if (!was_read(w, why) || !alone(w, why))
        return NAN;
    for (size_t i = 0; i < w->n_ok; i++) {
        joules += joules_at(w->in, w->ok[i]->first_token_ns) -
                  joules_at(w->in, w->ok[i]->dispatch_ns);
        n_tok += (double)w->ok[i]->n_prompt_tok;
    }
    return by_token(joules, n_tok, why);
}

static double decode_joules_per_tok(const struct metrics_work *w, const char **why)
{
    double joules = 0, n_tok = 0;

    if (!was_read(w, why) || !alone(w, why))
        return NAN;
    for (size_t i = 0; i < w->n_ok; i++) {
        const struct metrics_row *r = w->ok[i];

        if (r->n_tok < 2)
            continue;
        joules += joules_at(w->in, r->token_ns[r->n_tok - 1]) -
                  joules_at(w->in, r->first_token_ns);
        n_tok += (double)(r->n_tok - 1);
    }
    return by_token(joules, n_tok, why);
}

/* clang-format off */
const struct metrics_def metrics_defs[] = {
    {"ttft_ms", "ms", "lower",
     "time to first token: intended start to first token", NULL, ttft_samples},
    {"ttft_service_ms", "ms", "lower",
     "dispatch to first token; excludes the harness's own lateness", NULL, ttft_service_samples},
    {"tpot_ms", "ms", "lower",
     "time per output token: (e2e - ttft) / (n - 1); undefined for n <= 1", NULL, tpot_samples},
    {"itl_ms", "ms", "lower",
     "inter-token latency: each gap between two tokens of a request", NULL, itl_samples},
    {"e2e_ms", "ms", "lower",
     "end to end: intended start to last token", NULL, e2e_samples},
    {"lateness_ms", "ms", "lower",
     "the harness's own error: dispatch minus intended start", NULL, lateness_samples},
    {"slo_scale", "", "lower",
     "per request, the multiple of both objectives that it just meets; p90_ is the scale at "
     "which 90 % of all measured requests, failed ones too, are within", NULL, slo_scale_samples},
    {"timer_error_us", "us", "lower",
     "overshoot of timed waits on this machine, measured before the cell", NULL, timer_samples},
    {"n_requests", "", "", "measured requests: all but the warm-up", n_requests, NULL},
    {"n_completed", "", "higher", "requests that got exactly the tokens asked for",
     n_completed, NULL},
    {"n_failed", "", "lower", "requests that failed or ended with another length",
     n_failed, NULL},
    {"n_timeout", "", "lower", "requests canceled after load.timeout_s", n_timeout, NULL},
    {"n_rejected", "", "lower", "requests not sent: too many outstanding", n_rejected, NULL},
    {"error_frac", "", "lower", "share of requests that did not complete", error_frac, NULL},
    {"input_tok", "tok", "", "prompt tokens of the completed requests", input_tok, NULL},
    {"output_tok", "tok", "", "output tokens of the completed requests", output_tok, NULL},
    {"duration_s", "s", "", "first intended start to last end of the measured requests",
     duration, NULL},
    {"offered_rate_rps", "req/s", "", "(n - 1) / (last - first intended start)",
     offered_rate, NULL},
    {"achieved_rate_rps", "req/s", "higher",
     "(n - 1) / (last - first end) of the requests that the system ended: the rate at which "
     "it answers, without the tail that `duration_s` includes", achieved_rate, NULL},
    {"backlog_growth", "", "lower",
     "measured requests that have not ended, each from its intended start on: mean over the "
     "last quarter of the time of intended starts minus that over the first; rejected and "
     "canceled ones never end, whether they were sent or not",
     backlog_growth, NULL},
    {"request_throughput_rps", "req/s", "higher", "completed requests / duration",
     request_throughput, NULL},
    {"output_throughput_tok_s", "tok/s", "higher", "output tokens / duration",
     output_throughput, NULL},
    {"total_throughput_tok_s", "tok/s", "higher", "prompt and output tokens / duration",
     total_throughput, NULL},
    {"slo_attainment_frac", "", "higher",
     "share of requests that meet both the TTFT and the TPOT objective; failed ones do not",
     slo_attainment, NULL},
    {"ttft_attainment_frac", "", "higher",
     "share of requests that complete and meet the TTFT objective", ttft_attainment, NULL},
    {"tpot_attainment_frac", "", "higher",
     "share of requests that complete and meet the TPOT objective", tpot_attainment, NULL},
    {"request_goodput_rps", "req/s", "higher", "requests that meet the objectives / duration",
     request_goodput, NULL},
    {"decode_tok_s", "tok/s", "higher",
     "tokens after the first / time they took, over all requests", decode_rate, NULL},
    {"decode_read_gbps", "GB/s", "higher",
     "bytes that those tokens had to read / time they took; single sequence only",
     decode_read, NULL},
    {"decode_bandwidth_frac", "", "higher",
     "decode_read_gbps / read bandwidth of the machine, measured before and after the cell",
     decode_bandwidth, NULL},
    {"tpot_below_bound_frac", "", "",
     "share of requests faster than the bound: above 0, caches served part of the weights",
     tpot_below_bound, NULL},
    {"prefill_tok_s", "tok/s", "higher",
     "prompt tokens / time from dispatch to first token; single sequence only",
     prefill_rate, NULL},
    {"prefill_gflops", "GFLOP/s", "higher",
     "arithmetic of the prompts / time from dispatch to first token", prefill_gflops, NULL},
    {"prefill_peak_frac", "", "higher",
     "prefill_gflops / peak of the machine for the weights' type, measured before and after "
     "the cell", prefill_peak, NULL},
    {"joules_per_tok", "J/tok", "lower",
     "energy of packages and memory over the duration / prompt and output tokens; whatever "
     "else the machine ran is in it", joules_per_tok, NULL},
    {"prefill_joules_per_tok", "J/tok", "lower",
     "energy from dispatch to first token / prompt tokens; single sequence only",
     prefill_joules_per_tok, NULL},
    {"decode_joules_per_tok", "J/tok", "lower",
     "energy from first to last token / tokens after the first; single sequence only",
     decode_joules_per_tok, NULL},
    {"identity_e2e_error_ms", "ms", "lower",
     "check: largest |e2e - (ttft + sum of |itl|)| of a completed request", identity_e2e, NULL},
    {"little_l", "", "", "time average of the number of requests in the system", little_l, NULL},
    {0},
};

const struct metrics_def metrics_goodput_defs[METRICS_N_GOODPUT + 1] = {
    {"goodput_rps", "req/s", "higher",
     "highest rate at which slo.target_frac of the requests meet the objectives: of each seed by "
     "bracket, bisection and verification, then the median over the seeds; on a ladder of rates "
     "between one that surely holds and one that surely fails, or only a bound", NULL, NULL},
    {"goodput_low_rps", "req/s", "higher", "the lowest such rate of any seed", NULL, NULL},
    {"goodput_high_rps", "req/s", "higher",
     "the highest upper end of a seed's bracket: a rate at which the objectives fail", NULL, NULL},
    {"goodput_n_trials", "", "", "trials of the search, all seeds", NULL, NULL},
    {0},
};
/* clang-format on */
