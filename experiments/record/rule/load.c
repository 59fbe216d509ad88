/* Requests in the system at once: no more than the load allows, and Little's law. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "experiments/record/rule.h"

struct edge {
    int64_t t;
    int step;
};

static int edge_order(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;

    return x->t != y->t ? (x->t > y->t) - (x->t < y->t) : x->step - y->step;
}

/* Most requests sent and not yet ended at any time. */
static int most_outstanding(const struct record_view *v)
{
    struct edge *e = mem_new(MEM_HARNESS, 2 * v->in.n_rows, sizeof(*e));
    int inside = 0, most = 0;
    size_t n = 0;

    for (size_t i = 0; i < v->in.n_rows; i++) {
        const struct metrics_row *r = &v->in.rows[i];

        if (r->dispatch_ns == METRICS_NEVER)
            continue;
        e[n++] = (struct edge){r->dispatch_ns, 1};
        e[n++] = (struct edge){r->done_ns, -1};
    }
    qsort(e, n, sizeof(*e), edge_order);
    for (size_t i = 0; i < n; i++) {
        inside += e[i].step;
        most = inside > most ? inside : most;
    }
    mem_free(e);
    return most;
}

static void check_outstanding(struct record_view *v)
{
    const bool closed =
        strcmp(json_str_at(v->attributes, "load.process", ""), "closed") == 0;
    const double limit = json_f64_at(
        v->attributes, closed ? "load.concurrency" : "load.max_requests_outstanding");
    const int most = most_outstanding(v);

    if (limit > 0 && most > limit)
        record_fault(v, "requests", "expected at most %g requests at once, found %d",
                     limit, most);
}

/* L = lambda W: concurrency over time, of the raw rows, is their rate times their mean stay. */
static void check_little(struct record_view *v)
{
    const double rate =
        record_value(v->summary, "n_requests") / record_value(v->summary, "duration_s");
    double stay_s = 0, n = 0, l;

    for (size_t i = 0; i < v->in.n_rows; i++) {
        const struct metrics_row *r = &v->in.rows[i];

        if (r->warmup)
            continue;
        stay_s += (double)(r->done_ns - r->intended_ns) / 1e9;
        n++;
    }
    if (metrics_one(&l, &v->in, "little_l") == OK && n > 0 && rate > 0 &&
        !record_same(l, rate * stay_s / n))
        record_fault(
            v, "summary/n_requests",
            "expected a rate and a mean time whose product is the mean concurrency, "
            "%.9g (Little's law), found %.9g x %.9g",
            l, rate, stay_s / n);
}

static void of_cell(struct record_view *v)
{
    if (v->in.n_rows == 0)
        return;
    check_outstanding(v);
    check_little(v);
}

const struct record_rule record_rule_load = {
    .name = "load",
    .text = "No more requests at once than allowed; concurrency is rate x latency.",
    .of_cell = of_cell,
};
