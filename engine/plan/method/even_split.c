/* A rank for each memory node, the same in both phases, with sums that all ranks wait for the
 * first one in: what vLLM's and xFasterTransformer's users are told to do. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "plan/method.h"

#define ALLREDUCE "master_copy"

/* The cores of rank r, a run of n_threads each: of node r, or of an equal part of all. */
static void ranks_of(struct plan_option *x, int *pus, const struct plan_cores *c,
                     const struct topo_machine *m, bool by_node)
{
    int n = 0, of_node = 0;

    for (int i = 0; i < c->n && n < x->n_ranks * x->n_threads; i++) {
        bool same = i > 0 && m->pus[c->pus[i]].node == m->pus[c->pus[i - 1]].node;

        of_node = same ? of_node + 1 : 0;
        if (!by_node || of_node < x->n_threads)
            pus[n++] = c->pus[i];
    }
    x->pus = pus;
}

static void explain(struct plan_option *x, const struct plan_cores *c, bool by_node)
{
    int used = x->n_ranks * x->n_threads;
    char left[64] = "";

    if (used < c->n)
        snprintf(left, sizeof(left), "; %d cores are left out so that ranks are equal",
                 c->n - used);
    if (!by_node)
        snprintf(
            x->why, sizeof(x->why),
            "%d ranks as asked for, though the machine has %d memory node%s, in both "
            "phases%s",
            x->n_ranks, c->n_nodes, c->n_nodes > 1 ? "s" : "", left);
    else if (c->n_nodes == 1)
        snprintf(
            x->why, sizeof(x->why),
            "the machine has one memory node, so a rank for each node is one rank of "
            "all cores, as of one_plan; --ranks N makes N ranks");
    else
        snprintf(x->why, sizeof(x->why),
                 "a rank for each of the %d memory nodes, in both phases%s", c->n_nodes,
                 left);
}

static int run(struct plan_search_result *out, const struct plan_search_opts *o)
{
    struct plan_option x = {.allreduce = ALLREDUCE};
    struct plan_cores c;
    bool by_node = o->n_ranks == 0;
    int rc = plan_cores_of(&c, o), *pus;

    memset(out, 0, sizeof(*out));
    if (rc != OK)
        return rc;
    x.n_ranks = by_node ? c.n_nodes : o->n_ranks;
    x.n_threads = by_node ? c.smallest : c.n / o->n_ranks;
    pus = mem_new(MEM_OTHER, (size_t)c.n, sizeof(*pus));
    if (!pus)
        rc = ERR_NOMEM;
    if (rc == OK && x.n_threads < 1)
        rc =
            err_set(ERR_ARG, "even_split: %d ranks asked for, and %s has %d cores to use",
                    x.n_ranks, o->e.machine->name, c.n);
    if (rc == OK) {
        ranks_of(&x, pus, &c, o->e.machine, by_node);
        explain(&x, &c, by_node);
        rc = plan_fastest(out, o, "even_split", &x, 1, o->strict_tp);
    }
    mem_free(pus);
    plan_cores_free(&c);
    return rc;
}

const struct plan_method plan_method_even_split = {
    .name = "even_split",
    .help = "uses a rank for each memory node (or --ranks) in both phases, which sum by "
            "master_copy",
    .run = run,
};
