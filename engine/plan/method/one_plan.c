/* One rank of all CPUs for both phases: what an engine does that knows no plans. */
#include <stdio.h>
#include <string.h>

#include "plan/method.h"

static int run(struct plan_search_result *out, const struct plan_search_opts *o)
{
    struct plan_option x = {.n_ranks = 1};
    struct plan_cores c;
    int rc = plan_cores_of(&c, o);

    memset(out, 0, sizeof(*out));
    if (rc != OK)
        return rc;
    x.n_threads = c.n;
    x.pus = c.pus;
    snprintf(x.why, sizeof(x.why), "one rank of every core (%d), in both phases", c.n);
    rc = plan_fastest(out, o, "one_plan", &x, 1, o->strict_tp);
    plan_cores_free(&c);
    return rc;
}

const struct plan_method plan_method_one_plan = {
    .name = "one_plan",
    .help = "uses one rank of all cores in both phases",
    .run = run,
};
