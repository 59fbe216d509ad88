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
     .help = "closed (fixed number outstanding), constant or poisson (open loop)"},
    {.name = "concurrency",
     .type = OPT_INT,
     .offset = AT(concurrency),
     .min = 1,
     .max = 65536,
     .def = "1",
     .help = "closed loop: requests kept outstanding; 1 replays one sequence at a time"},
    {.name = "rate_rps",
     .type = OPT_F64,
     .offset = AT(rate_rps),
     .unit = "req/s",
     .min = 0,
     .max = 1e6,
     .def = "0",
     .help = "open loop: mean arrival rate"},
    {.name = "n_requests",
     .type = OPT_INT,
     .offset = AT(n_requests),
     .min = 0,
     .max = 1e7,
     .def = "0",
     .help = "measured requests; 0: as many as the dataset has items"},
    {.name = "warmup_requests",
     .type = OPT_INT,
     .offset = AT(warmup_requests),
     .min = 0,
     .max = 1e6,
     .def = "0",
     .help = "requests sent first, recorded, excluded from the statistics"},
    {.name = "timeout_s",
     .type = OPT_F64,
     .offset = AT(timeout_s),
     .unit = "s",
     .min = 0,
     .max = 86400,
     .def = "600",
     .help = "a request is given up this long after its intended start; 0: never"},
    {.name = "max_requests_outstanding",
     .type = OPT_INT,
     .offset = AT(max_requests_outstanding),
     .min = 0,
     .max = 1e7,
     .def = "0",
     .help = "open loop: beyond this a request counts as rejected, unsent; 0: no limit"},
    {.name = "order",
     .type = OPT_ENUM,
     .offset = AT(order),
     .def = "dataset",
     .values = "dataset|shuffle",
     .help = "order of the items: the dataset's, or shuffled by the order seed"},
    {.name = "lateness_warn_ms",
     .type = OPT_F64,
     .offset = AT(lateness_warn_ms),
     .unit = "ms",
     .min = 0,
     .max = 1e6,
     .def = "2",
     .help = "warn when the p90 of our own sending lateness exceeds this"},
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
