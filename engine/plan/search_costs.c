/* The tables by which a mixed batch chooses its phase: both phases, step by step in turn. */
#include "base/mem.h"
#include "measure/compare.h"
#include "plan/search.h"

#define SIZES_MAX  10 /* 1 ... PLAN_STEP_ROWS_MAX */
#define ROUNDS_MIN 3
#define ROUNDS_MAX 9
/* A step that takes so long is the table's last: of twice the rows it takes twice as long,
 * which needs no measurement. */
#define STEP_S_MAX 1.0

struct pair {
    const struct plan_search_opts *o;
    struct plan_evaluation *e;
    struct plan_step step;
    int n_asked;
};

static int one_step(void *arg, int phase, struct measure_trial *t)
{
    struct pair *x = arg;

    x->step.phase = (enum topo_phase)phase;
    return x->o->evaluator->step(x->e, &x->step, x->n_asked++, &t->seconds);
}

/* One row of both tables. */
static int add_row(struct plan_costs *costs[2], struct measure *m, struct pair *x,
                   int64_t n_rows)
{
    const struct measure_opts o = {.min_rounds = ROUNDS_MIN,
                                   .n_warm_up = -1, /* the evaluator's own */
                                   .budget_s = plan_costs_s(x->o) / SIZES_MAX,
                                   .keep_all = true,
                                   .clock = x->e->simulated ? &measure_no_clock : NULL};
    struct simulate_workload work;
    int rc;

    plan_piece_workload(&work, x->o->model, x->o->types, n_rows,
                        (int64_t)plan_points_mean(&x->o->trace.contexts));
    x->step.n_rows = n_rows;
    x->step.workload = &work;
    rc = measure_compare(m, 2, &o, one_step, x);
    for (int phase = 0; rc == OK && phase < 2; phase++) {
        struct plan_costs *c = costs[phase];
        struct measure_report r;

        measure_report(m, phase, &r);
        c->rows[c->n] = n_rows;
        c->seconds[c->n++] = r.estimate;
    }
    return rc;
}

int plan_search_costs(struct plan *p, const struct plan_search_opts *o,
                      struct plan_evaluation *e, const struct topo_config *prefill,
                      const struct topo_config *decode)
{
    struct plan_costs *costs[2] = {&p->prefill.costs, &p->decode.costs};
    struct pair x = {.o = o, .e = e};
    struct measure *m = NULL;
    int64_t n_rows_max = 0;
    double slowest = 0;
    int rc;

    if (plan_is_one(p) || !o->evaluator->pair)
        return OK;
    rc = o->evaluator->pair(e, prefill, decode, &n_rows_max);
    if (rc != OK)
        return rc == ERR_UNSUPPORTED ? OK : rc;
    rc = measure_open(&m, 2, ROUNDS_MAX);
    for (int64_t rows = 1; rc == OK && rows <= n_rows_max && costs[0]->n < SIZES_MAX &&
                           slowest <= STEP_S_MAX;
         rows *= 2) {
        rc = add_row(costs, m, &x, rows);
        for (int i = 0; rc == OK && i < 2; i++)
            if (costs[i]->seconds[costs[i]->n - 1] > slowest)
                slowest = costs[i]->seconds[costs[i]->n - 1];
    }
    measure_close(&m);
    if (rc == OK)
        rc = plan_costs_check(&p->prefill.costs, "prefill");
    return rc == OK ? plan_costs_check(&p->decode.costs, "decode") : rc;
}

/* ---- for a plan without its trees ---- */

/* The phase as the configuration of a tree that has just its ranks. */
static int config_of(struct topo_tree **tree, struct topo_config *c,
                     const struct plan_phase *f, const struct topo_machine *m)
{
    int n = f->n_ranks * f->n_threads, pus[CPU_MAX], rc;

    *tree = NULL;
    for (int i = 0; i < n; i++) {
        for (pus[i] = 0; pus[i] < m->n_pus && m->pus[pus[i]].os_index != f->cpus[i];)
            pus[i]++;
        if (pus[i] == m->n_pus)
            return err_set(ERR_ARG, "the plan's CPU %d is not one of %s", f->cpus[i],
                           m->name);
    }
    rc = topo_tree_of_ranks(tree, m, pus, f->n_ranks, f->n_threads);
    return rc == OK ? topo_config_cut(c, *tree, 1, NULL) : rc;
}

static int open_and_measure(struct plan *p, const struct plan_search_opts *o,
                            const struct topo_config *prefill,
                            const struct topo_config *decode)
{
    struct simulate_workload workload;
    struct plan_evaluation e = {0};
    struct plan_watch w;
    int rc = plan_evaluation_open(&e, &workload, o, TOPO_PREFILL, decode);

    if (rc != OK)
        return rc;
    plan_watch_begin(&w, o, NULL, "steps of both phases", plan_costs_s(o));
    rc = plan_search_costs(p, o, &e, prefill, decode);
    o->evaluator->close(&e);
    return rc;
}

int plan_measure_costs(struct plan *p, const struct plan_search_opts *o)
{
    struct topo_tree *trees[2] = {0};
    struct topo_config prefill, decode;
    int rc = OK;

    p->prefill.costs.n = p->decode.costs.n = 0;
    if (plan_is_one(p))
        return OK;
    rc = config_of(&trees[0], &prefill, &p->prefill, o->e.machine);
    if (rc == OK)
        rc = config_of(&trees[1], &decode, &p->decode, o->e.machine);
    if (rc == OK)
        rc = open_and_measure(p, o, &prefill, &decode);
    mem_free(trees[0]);
    mem_free(trees[1]);
    return rc;
}
