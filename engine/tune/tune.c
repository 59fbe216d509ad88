/* The options every policy shares, and finding one by its name. */
#include <string.h>

#include "base/name.h"

#include "tune/policy.h"

#define AT(member) offsetof(struct tune_opts, member)

const struct opt_row tune_opt_table[] = {
    {.name = "policy",
     .type = OPT_STR,
     .offset = AT(policy),
     .def = "sandwich",
     .help = "how schedules are searched for"},
    {.name = "sigma",
     .type = OPT_INT,
     .offset = AT(sigma),
     .unit = "shapes",
     .min = 1,
     .max = 1 << 20,
     .def = "16", /* the paper's balance of cost and quality */
     .help = "sliding window over M: the micro-kernels chosen in it are tried next"},
    {.name = "theta",
     .type = OPT_F64,
     .offset = AT(theta),
     .min = 0,
     .max = 10,
     .def = "0.125", /* one growth step of a slice of eight tiles */
     .help = "relative change of the slice below which it is reused without search"},
    {.name = "split_k",
     .type = OPT_BOOL,
     .offset = AT(split_k),
     .def = "true",
     .help = "allow threads along K, with a reduction"},
    {.name = "literal_limit",
     .type = OPT_BOOL,
     .offset = AT(literal_limit),
     .help =
         "a slice leaves one tile a thread along every dimension, not in the product"},
    {.name = "trials",
     .type = OPT_INT,
     .offset = AT(trials),
     .min = 1,
     .max = 1 << 20,
     .def = "800", /* what Sandwich's evaluation gave Ansor */
     .help = "most measurements a shape of the policies that sample"},
    {.name = "budget_s",
     .type = OPT_F64,
     .offset = AT(budget_s),
     .unit = "s",
     .min = 0,
     .max = 1e9,
     .help = "measure no longer than this; 0: no limit"},
    {.name = "seed",
     .type = OPT_INT,
     .offset = AT(seed),
     .def = "1",
     .help = "of chance"},
    {0},
};

int tune_policy_find(const char *name, const struct tune_policy **out)
{
    *out = name_find(tune_policies, name, "tuning policy");
    return *out ? OK : ERR_NOTFOUND;
}
