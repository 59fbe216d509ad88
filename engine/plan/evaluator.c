#include "plan/evaluator.h"

#include <string.h>

#include "base/mem.h"
#include "base/name.h"
#include "base/stats.h"

int plan_evaluation_noise(double *frac, const struct plan_evaluation *e,
                          const struct topo_machine *m, int n)
{
    static const struct topo_limits any;
    double s[PLAN_NOISE_MAX];
    struct topo_tree *t = NULL;
    struct topo_config c;
    int rc = topo_tree_open(&t, m, NULL, NULL, 0);

    if (rc == OK)
        rc = topo_config_cut(&c, t, 0, &any);
    for (int i = 0; i < n && rc == OK; i++)
        rc = e->measure(e->ctx, &c, i, &s[i]);
    if (rc == OK)
        *frac = 1.4826 * stats_mad(s, (size_t)n) / stats_median(s, (size_t)n);
    mem_free(t);
    return rc;
}

int plan_evaluator_find(const char *name, const struct plan_evaluator **out)
{
    *out = name_find(plan_evaluators, name, "evaluator");
    return *out ? OK : ERR_NOTFOUND;
}
