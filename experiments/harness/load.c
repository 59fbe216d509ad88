#include "experiments/harness/load.h"

#include <stddef.h>
#include <string.h>

#include "base/name.h"

#define AT(member) offsetof(struct load_opts, member)

const struct opt_row load_opt_table[] = {
    {.name = "process",
     .type = OPT_STR,
     .offset = AT(process),
     .def = "closed",
     .help = "Arrival process. closed: a fixed number of requests is outstanding. "
             "constant, poisson: open loop, requests arrive at a rate."},
    {.name = "concurrency",
     .type = OPT_INT,
     .offset = AT(concurrency),
     .min = 1,
     .max = 65536,
     .def = "1",
     .help = "Closed loop: number of outstanding requests. 1: one sequence at a time."},
    {.name = "rate_rps",
     .type = OPT_F64,
     .offset = AT(rate_rps),
     .unit = "req/s",
     .min = 0,
     .max = 1e6,
     .def = "0",
     .help = "Open loop: mean arrival rate."},
    {.name = "n_requests",
     .type = OPT_INT,
     .offset = AT(n_requests),
     .min = 0,
     .max = 1e7,
     .def = "0",
     .help = "Number of measured requests. 0: all of the data set."},
    {.name = "warmup_requests",
     .type = OPT_INT,
     .offset = AT(warmup_requests),
     .min = 0,
     .max = 1e6,
     .def = "0",
     .help = "Number of requests that are sent first. They are recorded and excluded "
             "from the statistics."},
    {.name = "timeout_s",
     .type = OPT_F64,
     .offset = AT(timeout_s),
     .unit = "s",
     .min = 0,
     .max = 86400,
     .def = "600",
     .help = "Cancel a request this long after its intended start. 0: never."},
    {.name = "max_requests_outstanding",
     .type = OPT_INT,
     .offset = AT(max_requests_outstanding),
     .min = 0,
     .max = 1e7,
     .def = "0",
     .help = "Open loop: with this many outstanding, a further request is not sent and "
             "counts as rejected. 0: no limit."},
    {.name = "order",
     .type = OPT_ENUM,
     .offset = AT(order),
     .def = "dataset",
     .values = "dataset|shuffle",
     .help =
         "Order of the requests: that of the data set, or shuffled by the order seed."},
    {.name = "lateness_warn_ms",
     .type = OPT_F64,
     .offset = AT(lateness_warn_ms),
     .unit = "ms",
     .min = 0,
     .max = 1e6,
     .def = "2",
     .help = "Warn when the 90th percentile of the harness's own sending delay exceeds "
             "this."},
    {0},
};

int load_process_find(const char *name, const struct load_process **out)
{
    *out = name_find(load_processes, name, "load process");
    return *out ? OK : ERR_NOTFOUND;
}

int load_check(const struct load_opts *o, const char *where)
{
    const struct load_process *p;
    int rc = load_process_find(o->process, &p);

    if (rc != OK)
        return err_prefix(rc, "%s", where);
    if (p->arrivals && !(o->rate_rps > 0))
        return err_set(ERR_ARG,
                       "%s.rate_rps: process \"%s\" needs a rate above 0, found %g",
                       where, o->process, o->rate_rps);
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
