/* The tables by which a mixed batch chooses its phase: short trials, in turn. */
#include "base/clock.h"
#include "base/stats.h"
#include "plan/search.h"

#define SIZES_MAX 10 /* 1 ... PLAN_STEP_ROWS_MAX */
/* Rounds over all sizes of both phases; a slow model gets as many as begin in time. */
#define ROUNDS_MAX 9
#define ROUNDS_S   10.0

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

/* Phases take turns at being the first, too. */
static int round_of(struct table *t, const struct plan_search_opts *o,
                    struct topo_evaluator *e, int round)
{
    struct topo_works works;
    int rc = OK;

    for (int i = 0; i < 2 * t->n && rc == OK; i++) {
        int size = i / 2, phase = (i + round) % 2;
        const struct plan_step s = {
            .phase = (enum topo_phase)phase, .n_rows = t->rows[size], .works = &works};

        plan_piece_work(&works, o->model, o->type, s.n_rows, o->e.n_ctx_tok);
        rc = o->evaluator->step(e, &s, round * t->n + size,
                                &t->seconds[phase][size][round]);
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
                      struct topo_evaluator *e, const struct topo_config *prefill,
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
    while (rc == OK && n < ROUNDS_MAX && (double)(clock_ns() - t0) * 1e-9 < ROUNDS_S);
    if (rc != OK)
        return rc;
    fill(&p->prefill.costs, &t, TOPO_PREFILL, n);
    fill(&p->decode.costs, &t, TOPO_DECODE, n);
    rc = plan_costs_check(&p->prefill.costs, "prefill");
    return rc == OK ? plan_costs_check(&p->decode.costs, "decode") : rc;
}
