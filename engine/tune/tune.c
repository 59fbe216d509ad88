/* The options every policy shares, and finding one by its name. */
#include <string.h>

#include "base/name.h"

#include "tune/policy.h"

#define AT(member) offsetof(struct tune_opts, member)

const struct opt_row tune_opt_table[] = {
    {.name = "policy",
     .type = OPT_STR,
     .unit = "NAME",
     .offset = AT(policy),
     .def = "sandwich",
     .help = "Search policy: sandwich, roller, roller_topk, ansor, dietcode, mikpoly, "
             "oracle or default (engine/tune/README.md)."},
    {.name = "sigma",
     .type = OPT_INT,
     .offset = AT(sigma),
     .unit = "shapes",
     .min = 1,
     .max = 1 << 20,
     .def = "16", /* the paper's balance of cost and quality */
     .help = "Width of the sliding window over M: the micro-kernels chosen for the last "
             "N values of M are tried first for the next one."},
    {.name = "theta",
     .type = OPT_F64,
     .offset = AT(theta),
     .min = 0,
     .max = 10,
     .def = "0.125", /* one growth step of a slice of eight tiles */
     .help = "Reuse a slice without a new search when its best size changed by less than "
             "this fraction."},
    {.name = "split_k",
     .type = OPT_BOOL,
     .offset = AT(split_k),
     .def = "true",
     .help = "Allow schedules that divide K among threads and add a reduction."},
    {.name = "literal_limit",
     .type = OPT_BOOL,
     .offset = AT(literal_limit),
     .help = "Read the paper's limit of parallelizability literally: a slice leaves one "
             "tile per thread along every dimension, not in their product."},
    {.name = "trials",
     .type = OPT_INT,
     .offset = AT(trials),
     .min = 1,
     .max = 1 << 20,
     .def = "800", /* what Sandwich's evaluation gave Ansor */
     .help = "Largest number of measurements per shape, for the policies that sample "
             "schedules."},
    {.name = "budget_s",
     .type = OPT_F64,
     .offset = AT(budget_s),
     .unit = "s",
     .min = 0,
     .max = 1e9,
     .help = "Stop measuring after this time. 0: no limit."},
    {.name = "seed",
     .type = OPT_INT,
     .offset = AT(seed),
     .def = "1",
     .help = "Seed of all random choices."},
    {0},
};

int tune_policy_find(const char *name, const struct tune_policy **out)
{
    *out = name_find(tune_policies, name, "tuning policy");
    return *out ? OK : ERR_NOTFOUND;
}
