#include "experiments/harness/load.h"

#include <stddef.h>
#include <string.h>

#include "base/name.h"

#define OPT_OF struct load_opts
const struct opt_row load_opt_table[] = {
    OPT_ROW(STR, process, "closed",
            "Arrival process. closed: a fixed number of requests is outstanding. "
            "constant, poisson: open loop, requests arrive at a rate."),
    OPT_ROW(INT, concurrency, "1",
            "Closed loop: number of outstanding requests. 1: one sequence at a time.",
            .min = 1, .max = 65536),
    OPT_ROW(F64, rate_rps, "0",
            "Open loop: mean arrival rate, at least 1e-6. 0: closed loop.",
            .unit = "req/s", .min = 0, .max = 1e6),
    OPT_ROW(INT, n_requests, "0", "Number of measured requests. 0: all of the data set.",
            .min = 0, .max = 1e7),
    OPT_ROW(INT, warmup_requests, "0",
            "Number of requests that are sent first. They are recorded and excluded "
            "from the statistics.",
            .min = 0, .max = 1e6),
    OPT_ROW(F64, timeout_s, "600",
            "Cancel a request this long after its intended start. 0: never.", .unit = "s",
            .min = 0, .max = 86400),
    OPT_ROW(INT, max_requests_outstanding, "0",
            "Open loop: with this many outstanding, a further request is not sent and "
            "counts as rejected. 0: no limit.",
            .min = 0, .max = 1e7),
    OPT_ROW(ENUM, order, "dataset",
            "Order of the requests: that of the data set, or shuffled by the order seed.",
            .values = "dataset|shuffle"),
    OPT_ROW(F64, lateness_warn_ms, "2",
            "Warn when the 90th percentile of the harness's own sending delay exceeds "
            "this.",
            .unit = "ms", .min = 0, .max = 1e6),
    {0},
};

int load_process_find(const char *name, const struct load_process **out)
{
    *out = name_find(load_processes, name, "load process");
    return *out ? OK : ERR_NOTFOUND;
}

int load_arrivals(const struct load_process *p, const struct load_opts *o, uint64_t seed,
                  double *arrival_s, size_t n)
{
    p->arrivals(o, seed, arrival_s, n);
    if (n == 0 || arrival_s[n - 1] <= LOAD_ARRIVAL_MAX_S)
        return OK;
    return err_set(
        ERR_LIMIT,
        "load.rate_rps: at %g requests a second the last of %zu would come "
        "after %.3g s, expected at most %g: raise the rate or lower n_requests",
        o->rate_rps, n, arrival_s[n - 1], LOAD_ARRIVAL_MAX_S);
}

int load_check(const struct load_opts *o, const char *where)
{
    const struct load_process *p;
    int rc = load_process_find(o->process, &p);

    if (rc != OK)
        return err_prefix(rc, "%s", where);
    if (p->arrivals && !(o->rate_rps >= LOAD_RATE_MIN_RPS))
        return err_set(
            ERR_ARG, "%s.rate_rps: process \"%s\" needs a rate of at least %g, found %g",
            where, o->process, LOAD_RATE_MIN_RPS, o->rate_rps);
    if (!p->arrivals && o->rate_rps > 0)
        return err_set(ERR_ARG,
                       "%s.rate_rps: the closed loop has no rate, found %g (use process "
                       "\"constant\" or \"poisson\")",
                       where, o->rate_rps);
    if (p->arrivals && o->concurrency != 1)
        return err_set(ERR_ARG,
                       "%s.concurrency: only for the closed loop, found %lld with "
                       "process \"%s\"",
                       where, (long long)o->concurrency, o->process);
    return OK;
}
