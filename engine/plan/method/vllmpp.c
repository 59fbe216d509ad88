/* The best number of equal ranks for both phases, by trying all that divide the model's heads:
 * vLLM with the best degree of tensor parallelism that its users could have found. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "plan/method.h"

static int run(struct plan_search_result *out, const struct plan_search_opts *o)
{
    struct plan_option *v = NULL;
    struct plan_cores c;
    int rc = plan_cores_of(&c, o), n = 0;

    memset(out, 0, sizeof(*out));
    if (rc != OK)
        return rc;
    v = mem_new(MEM_OTHER, (size_t)c.n, sizeof(*v));
    for (int ranks = 1; v && ranks <= c.n && ranks <= PAR_RANKS_MAX; ranks++) {
        if (c.n % ranks != 0)
            continue;
        v[n] = (struct plan_option){
            .n_ranks = ranks, .n_threads = c.n / ranks, .pus = c.pus};
        snprintf(
            v[n].why, sizeof(v[n].why),
            "%d rank%s of %d in both phases, out of all numbers of equal ranks of every "
            "core that divide the model's heads",
            ranks, ranks > 1 ? "s" : "", c.n / ranks);
        n++;
    }
    rc = v ? plan_fastest(out, o, "vllmpp", v, n, true) : ERR_NOMEM;
    mem_free(v);
    plan_cores_free(&c);
    return rc;
}

const struct plan_method plan_method_vllmpp = {
    .name = "vllmpp",
    .help = "times every number of equal ranks that divides the model's heads, for both "
            "phases",
    .run = run,
};
