/* The tables by which a mixed batch chooses its phase: short trials, in turn. */
#include "base/clock.h"
#include "base/stats.h"
#include "plan/search.h"

#define SIZES_MAX  10 /* 1 ... PLAN_STEP_ROWS_MAX */
#define ROUNDS_MAX 9
/* A step that takes so long is the table's last: of twice the rows it takes twice as long,
 * which needs no measurement. */
#define STEP_S_MAX 1.0

struct table {
    int n;
    int64_t rows[SIZES_MAX];
    double seconds[2][SIZES_MAX][ROUNDS_MAX]; /* of enum topo_phase */
};

static void set_sizes(struct table *t, int64_t n_rows_max)
{
    for (int64_t rows = 1; rows <= n_rows_max && t->n < SIZES_MAX; rows *= 2)
        t->rows[t->n++] = rows;
}

static int time_size(struct table *t, const struct plan_search_opts *o,
                     struct plan_evaluation *e, int size, int round)
{
    struct simulate_workload works;
    int rc = OK;

    plan_piece_work(&works, o->model, o->type, t->rows[size], o->e.n_ctx_tok);
    for (int i = 0; i < 2 && rc == OK; i++) {
        int phase = (i + round) % 2; /* they take turns at being the first, too */
        const struct plan_step s = {
            .phase = (enum topo_phase)phase, .n_rows = t->rows[size], .works = &works};

        rc = o->evaluator->step(e, &s, round * SIZES_MAX + size,
                                &t->seconds[phase][size][round]);
    }
    return rc;
}

static int round_of(struct table *t, const struct plan_search_opts *o,
                    struct plan_evaluation *e, int round)
{
    int rc = OK;

    for (int i = 0; i < t->n && rc == OK; i++) {
        rc = time_size(t, o, e, i, round);
        if (round == 0 && (t->seconds[TOPO_PREFILL][i][0] > STEP_S_MAX ||
                           t->seconds[TOPO_DECODE][i][0] > STEP_S_MAX))
            t->n = i + 1;
    }
    return rc;
}

static void fill(struct plan_costs *c, struct table *t, enum topo_phase phase, int n)
{
    c->n = t->n;
    for (int i = 0; i < t->n; i++) {
        c->rows[i] = t->rows[i];
        c->seconds[i] = stats_median(t->seconds[phase][i], (size_t)n);
    }
}

int plan_search_costs(struct plan *p, const struct plan_search_opts *o,
                      struct plan_evaluation *e, const struct topo_config *prefill,
                      const struct topo_config *decode)
{
    struct table t = {.n = 0};
    int64_t n_rows_max = 0;
    uint64_t t0;
    int n = 0, rc;

    if (plan_is_one(p) || !o->evaluator->pair)
        return OK;
    rc = o->evaluator->pair(e, prefill, decode, &n_rows_max);
    if (rc != OK)
        return rc == ERR_UNSUPPORTED ? OK : rc;
    set_sizes(&t, n_rows_max);
    t0 = clock_ns();
    do
        rc = round_of(&t, o, e, n++);
    while (rc == OK && n < ROUNDS_MAX && (double)(clock_ns() - t0) * 1e-9 < PLAN_COSTS_S);
    if (rc != OK)
        return rc;
    fill(&p->prefill.costs, &t, TOPO_PREFILL, n);
    fill(&p->decode.costs, &t, TOPO_DECODE, n);
    rc = plan_costs_check(&p->prefill.costs, "prefill");
    return rc == OK ? plan_costs_check(&p->decode.costs, "decode") : rc;
}
