/* How fast requests come and end, and whether the system keeps up. */
#include <math.h>
#include <stdio.h>

#include "experiments/metrics/impl.h"

#define NS_PER_S 1e9
/* A system that ends fewer than this share of what comes does not keep up. */
#define KEEPS_UP_FRAC 0.95

/* First and last of n times. */
struct span {
    int64_t first, last;
    size_t n;
};

static void add(struct span *s, int64_t t)
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
    return metrics_ratio((double)(s->n - 1), (double)(s->last - s->first) / NS_PER_S, why,
                         reason);
}

static struct span arrivals(const struct metrics_work *w)
{
    struct span s = {0, 0, 0};

    for (size_t i = 0; i < w->n_measured; i++)
        add(&s, w->measured[i]->intended_ns);
    return s;
}

double metrics_offered_rate(const struct metrics_work *w, const char **why)
{
    struct span s = arrivals(w);

    return rate(&s, why, "all requests were intended at one moment");
}

/* Not those that the harness rejected or canceled. */
static bool ended(const struct metrics_row *r)
{
    return r->status == METRICS_OK || r->status == METRICS_FAILED;
}

double metrics_achieved_rate(const struct metrics_work *w, const char **why)
{
    struct span s = {0, 0, 0};

    for (size_t i = 0; i < w->n_measured; i++)
        if (ended(w->measured[i]))
            add(&s, w->measured[i]->done_ns);
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

double metrics_backlog_growth(const struct metrics_work *w, const char **why)
{
    struct span s = arrivals(w);
    double from = (double)s.first, to = (double)s.last, quarter = (to - from) / 4;

    if (isnan(rate(&s, why, "all requests were intended at one moment")))
        return NAN;
    return mean_backlog(w, to - quarter, to) - mean_backlog(w, from, from + quarter);
}

static double number(const struct metrics *m, const char *name)
{
    const struct metrics_value *v = metrics_find(m, name);

    return v ? v->value : NAN;
}

bool metrics_overloaded(const struct metrics *m, struct metrics_overload *out)
{
    double offered = number(m, "offered_rate_rps");
    double achieved = number(m, "achieved_rate_rps");
    double growth = number(m, "backlog_growth"), n = number(m, "n_requests");

    if (!(growth > sqrt(n)))
        return false;
    out->observed = achieved;
    out->threshold = KEEPS_UP_FRAC * offered;
    snprintf(out->text, sizeof(out->text),
             "%.3g requests a second came and %.3g ended; the backlog grew by "
             "%.3g of %.0f",
             offered, achieved, growth, n);
    if (achieved < KEEPS_UP_FRAC * offered)
        return true;
    out->observed = growth;
    out->threshold = fmax(sqrt(n), (1 - KEEPS_UP_FRAC) * n);
    return growth > out->threshold;
}
