/* The options every policy shares, and finding one by its name. */
#include <string.h>

#include "base/name.h"

#include "tune/search.h"

static const char *policy_name(int i)
{
    return tune_policies[i] ? tune_policies[i]->name : NULL;
}

#define OPT_OF struct tune_opts
const struct opt_row tune_opt_table[] = {
    OPT_ROW(STR, policy, "sandwich", "Search policy (engine/tune/README.md).",
            .unit = "NAME", .names = policy_name),
    /* the paper's balance of cost and quality */
    OPT_ROW(INT, sigma, "16",
            "Width of the sliding window over M: the micro-kernels chosen for the last "
            "N values of M are tried first for the next one.",
            .unit = "shapes", .min = 1, .max = 1 << 20),
    OPT_ROW(INT, freeze, "0",
            "Number of values of M in a row whose schedules must agree within --theta "
            "before all larger ones use them without a search. 0: the width of the "
            "window, --sigma.",
            .unit = "shapes", .min = 0, .max = 1 << 20),
    /* one growth step of a slice of eight tiles */
    OPT_ROW(F64, theta, "0.125",
            "Reuse a slice without a new search when its best size changed by less than "
            "this fraction.",
            .min = 0, .max = 10),
    OPT_ROW(BOOL, split_k, "true",
            "Allow schedules that divide K among threads and add a reduction."),
    /* what Sandwich's evaluation gave Ansor */
    OPT_ROW(INT, trials, "800",
            "Largest number of measurements per shape, for the policies that sample "
            "schedules.",
            .min = 1, .max = 1 << 20),
    OPT_ROW(
        INT, retest, "5",
        "Number of the fastest schedules of a search that are measured again, in turn, "
        "before one is chosen. 0: none; the fastest one of the search is taken.",
        .min = 0, .max = TUNE_RETEST_MAX),
    OPT_ROW(
        BOOL, start_default, "true",
        "Let searches begin with the cost model's schedule, too, and measure it again "
        "with the fastest."),
    OPT_ROW(F64, budget_s, NULL, "Stop measuring after this time. 0: no limit.",
            .unit = "s", .min = 0, .max = 1e9),
    OPT_ROW(INT, seed, "1", "Seed of all random choices."),
    {0},
};

int tune_policy_find(const char *name, const struct tune_policy **out)
{
    *out = name_find(tune_policies, name, "tuning policy");
    return *out ? OK : ERR_NOTFOUND;
}
