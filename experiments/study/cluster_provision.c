/* How many machines of which kind a design needs: the highest rate within limits of power and cost,
 * or the cheapest machines, or those with the least power, for a rate.
 * Paper: Splitwise IV-D, VI-B to VI-D, Figs 12, 18 to 20. */
#include <math.h>
#include <time.h>

#include "base/mem.h"
#include "experiments/study/support/cluster.h"

enum { GOAL_RATE, GOAL_COST, GOAL_POWER, GOAL_FIXED };
enum { LIMIT_POWER, LIMIT_COST, LIMIT_NONE };

struct opts {
    STUDY_CLUSTER_OPTS
    int goal;
    int limit;
    double target_rate;
    int64_t limit_h100, max_prompt, max_token, step_prompt;
    bool grid;
};

static const struct opt_row table[] = {
    ROWS_CLUSTER,
    OPT_ROW(ENUM, goal, "rate",
            "rate: the highest rate that meets the SLOs, within the limit. cost, power: "
            "the least of it that meets them at target_rate. fixed: the "
            "highest rate of the given machines.",
            .values = "rate|cost|power|fixed"),
    OPT_ROW(ENUM, limit, "power",
            "Limit of all machines: power or cost of limit_h100 DGX-H100, or none.",
            .values = "power|cost|none"),
    OPT_ROW(INT, limit_h100, "40", "Number of DGX-H100 that set the limit.", .min = 1,
            .max = 1000),
    OPT_ROW(F64, target_rate, "70", "cost, power: requests per second.", .min = 1e-3,
            .max = 1e6),
    OPT_ROW(
        INT, max_prompt, "0",
        "Prompt machines, or machines of a baseline, at most. 0: as many as the limit "
        "allows, without one 100.",
        .min = 0, .max = 1000),
    OPT_ROW(INT, max_token, "0", "The same of token machines.", .min = 0, .max = 1000),
    OPT_ROW(INT, step_prompt, "1",
            "Numbers of prompt machines to try are multiples of it. splitwise-sim: 5.",
            .min = 1, .max = 1000),
    OPT_ROW(BOOL, grid, "false",
            "cost, power: also try every size up to max_prompt and max_token."),
    {0},
};

static const struct study_metric metrics[] = {
    {"rate_rps", "/s", "higher",
     "highest rate that meets the SLOs; of the goals cost and power target_rate"},
    {"rate_over_own", "x", "higher",
     "goal fixed: rate_rps / that of the machines of Fig. 16 for the trace that is "
     "served"},
    {"n_prompt", "", "", "prompt machines, or machines of a baseline"},
    {"n_token", "", "", "token machines"},
    {"n_machines", "", "lower", "machines"},
    {"cost_per_hour", "$/h", "lower", "cost of all machines"},
    {"power", "", "lower", "power of all machines, in DGX-A100"},
    {"n_evaluated", "", "", "sizes tried"},
    {"grid_cost_per_hour", "$/h", "lower",
     "cost of the cheapest size of the whole grid that meets the SLOs"},
    {"cost_over_grid", "", "lower", "cost_per_hour / grid_cost_per_hour"},
    {"grid_power", "", "lower",
     "power of the size of the whole grid with the least that meets the SLOs"},
    {"sim_s", "s", "lower", "CPU time on this host"},
    {0},
};

#define SIZES_MAX 4096

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct study_cluster cluster;
    double max_power, max_cost; /* 0: any */
    double best_rate;
    /* what was tried */
    size_t n;
    double sizes[3][SIZES_MAX]; /* prompt, token; rate, or whether target_rate is met */
};

static void keep(struct cell *w, int n_prompt, int n_token, double v)
{
    const double size[] = {n_prompt, n_token, v};

    for (int i = 0; i < 3 && w->n < SIZES_MAX; i++)
        w->sizes[i][w->n] = size[i];
    w->n += w->n < SIZES_MAX;
}

static int meets_target(struct cell *w, int n_prompt, int n_token, bool *met)
{
    TRY(study_cluster_meets(met, &w->cluster, n_prompt, n_token, w->o->target_rate));
    keep(w, n_prompt, n_token, *met);
    return OK;
}

/* Sizes are in steps of prompt machines. */
static int rate_of(void *ctx, int prompt_steps, int n_token, double *rate)
{
    struct cell *w = ctx;
    int n_prompt = prompt_steps * (int)w->o->step_prompt;
    bool met;

    if (w->o->goal == GOAL_RATE) {
        TRY(study_cluster_max_rate(rate, &w->cluster, n_prompt, n_token, w->best_rate));
        w->best_rate = fmax(w->best_rate, *rate);
        keep(w, n_prompt, n_token, *rate);
        return OK;
    }
    TRY(meets_target(w, n_prompt, n_token, &met));
    *rate = met ? w->o->target_rate : 0;
    return OK;
}

/* ---- searches ---- */

/* How many machines the limits allow. */
static int most(const struct cell *w, int64_t given, double power, double cost)
{
    double n = given > 0 ? (double)given : 100;

    if (given == 0 && (w->max_power > 0 || w->max_cost > 0))
        n = INFINITY;
    if (w->max_power > 0)
        n = fmin(n, w->max_power / power * (1 + 1e-9));
    if (w->max_cost > 0)
        n = fmin(n, w->max_cost / cost * (1 + 1e-9));
    return (int)fmin(n, 1000);
}

static int search_baseline(struct cell *w, struct cluster_size *s)
{
    const struct cluster_card *c = &w->cluster.prompt_card;
    int hi = most(w, w->o->max_prompt, c->power, c->cost_per_hour_usd), lo = 0;
    bool met;

    *s = (struct cluster_size){.n_prompt = hi};
    if (hi < 1)
        return err_set(ERR_ARG, "the limit allows no machine");
    if (w->o->goal == GOAL_RATE)
        return study_cluster_max_rate(&s->rate, &w->cluster, hi, 0, 0);
    TRY(meets_target(w, hi, 0, &met));
    if (!met)
        return err_set(ERR_NOTFOUND, "%d machines do not reach %g per second", hi,
                       w->o->target_rate);
    while (hi - lo > 1) {
        int middle = (hi + lo) / 2;

        TRY(meets_target(w, middle, 0, &met));
        *(met ? &hi : &lo) = middle;
    }
    s->n_prompt = hi;
    s->rate = w->o->target_rate;
    return OK;
}

static int search_design(struct cell *w, struct cluster_size *s)
{
    const struct cluster_card *p = &w->cluster.prompt_card, *t = &w->cluster.token_card;
    double step = (double)w->o->step_prompt;
    struct cluster_provision_opts o = {.goal = w->o->goal == GOAL_RATE ? CLUSTER_MAX_RATE
                                               : w->o->goal == GOAL_COST
                                                   ? CLUSTER_MIN_COST
                                                   : CLUSTER_MIN_POWER,
                                       .prompt_cost = step * p->cost_per_hour_usd,
                                       .token_cost = t->cost_per_hour_usd,
                                       .prompt_power = step * p->power,
                                       .token_power = t->power,
                                       .min_rate = w->o->target_rate,
                                       .max_cost = w->max_cost,
                                       .max_power = w->max_power,
                                       .rate = rate_of,
                                       .ctx = w};

    o.max_prompt = most(w, w->o->max_prompt, p->power, p->cost_per_hour_usd) / (int)step;
    o.max_token = most(w, w->o->max_token, t->power, t->cost_per_hour_usd);
    TRY(cluster_provision(s, NULL, &o));
    s->n_prompt *= (int)step;
    return OK;
}

/* Every size, to be drawn, and to see that the search found the best. */
static int try_grid(struct cell *w, const struct cluster_size *s)
{
    const struct study_cluster *c = &w->cluster;
    double cost = INFINITY, power = INFINITY;

    w->n = 0;
    for (int p = 1; p <= w->o->max_prompt; p++)
        for (int t = 1; t <= w->o->max_token; t++) {
            bool met;

            TRY(meets_target(w, p, t, &met));
            if (!met)
                continue;
            cost = fmin(cost, study_cluster_cost(c, p, t));
            power = fmin(power, study_cluster_power(c, p, t));
        }
    study_value(w->out, "grid_cost_per_hour", isfinite(cost) ? cost : NAN,
                "no size meets the SLOs");
    study_value(w->out, "cost_over_grid",
                study_cluster_cost(c, s->n_prompt, s->n_token) / cost,
                "no size meets the SLOs");
    study_value(w->out, "grid_power", isfinite(power) ? power : NAN,
                "no size meets the SLOs");
    return OK;
}

static int set_limit(struct cell *w)
{
    struct cluster_card h;

    TRY(cluster_card_read(&h, "dgx-h100"));
    w->max_power = w->o->limit == LIMIT_POWER ? h.power * (double)w->o->limit_h100 : 0;
    w->max_cost =
        w->o->limit == LIMIT_COST ? h.cost_per_hour_usd * (double)w->o->limit_h100 : 0;
    return OK;
}

static int search(struct cell *w, struct cluster_size *s)
{
    TRY(set_limit(w));
    if (w->o->goal == GOAL_FIXED) {
        TRY(study_cluster_machines(&w->cluster, &s->n_prompt, &s->n_token));
        return study_cluster_max_rate(&s->rate, &w->cluster, s->n_prompt, s->n_token, 0);
    }
    return w->cluster.is_baseline ? search_baseline(w, s) : search_design(w, s);
}

static void report(struct cell *w, const struct cluster_size *s, double sim_s)
{
    const struct study_number v[] = {
        {"rate_rps", s->rate},
        {"n_prompt", s->n_prompt},
        {"n_token", s->n_token},
        {"n_machines", s->n_prompt + s->n_token},
        {"cost_per_hour", study_cluster_cost(&w->cluster, s->n_prompt, s->n_token)},
        {"power", study_cluster_power(&w->cluster, s->n_prompt, s->n_token)},
        {"n_evaluated", (double)w->n},
        {"sim_s", sim_s},
    };

    STUDY_VALUES(w->out, v, "");
    study_evidence(w->out, "measured", "sim_s");
    study_cluster_notes(&w->cluster, w->out);
}

/* What is lost or gained with machines that were chosen for another trace. */
static int compare_with_own(struct cell *w, double rate)
{
    struct study_cluster_opts opts = w->o->cluster;
    struct study_cluster own = w->cluster;
    double own_rate = rate;
    int n_prompt, n_token;

    if (opts.sized_for < 2 && opts.sized_for != opts.trace) {
        opts.sized_for = opts.trace;
        own.o = &opts;
        TRY(study_cluster_machines(&own, &n_prompt, &n_token));
        TRY(study_cluster_max_rate(&own_rate, &own, n_prompt, n_token, 0));
    }
    study_value(w->out, "rate_over_own", own_rate > 0 ? rate / own_rate : NAN,
                "these machines meet the SLOs at no rate");
    return OK;
}

static int run(struct cell *w)
{
    static const char *const names[] = {"tried_prompt", "tried_token", "tried_value"};
    struct cluster_size s = {0};
    clock_t start = clock();

    TRY(study_cluster_open(&w->cluster, &w->o->cluster));
    TRY(search(w, &s));
    report(w, &s, (double)(clock() - start) / CLOCKS_PER_SEC);
    if (w->o->goal == GOAL_FIXED)
        TRY(compare_with_own(w, s.rate));
    if (w->o->grid)
        TRY(try_grid(w, &s));
    for (int i = 0; i < 3; i++)
        study_series(w->out, names[i], i < 2 ? "" : "/s", w->sizes[i], w->n);
    return OK;
}

static void end(struct cell *w)
{
    study_cluster_close(&w->cluster);
}

STUDY(cluster_provision, "how many machines a design of Splitwise needs");
