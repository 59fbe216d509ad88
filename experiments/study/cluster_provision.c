/* How many machines of which kind a design needs: the highest rate within limits of power and cost,
 * or the cheapest machines, or those with the least power, for a rate.
 * Paper: Splitwise IV-D, VI-B to VI-D, Figs 12, 18 to 20. */
#include <math.h>
#include <time.h>

#include "base/mem.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/cluster.h"

enum { GOAL_RATE, GOAL_COST, GOAL_POWER, GOAL_FIXED };
enum { LIMIT_POWER, LIMIT_COST, LIMIT_NONE, LIMIT_PRINTED };

#define OPTIONS(X)                                                                       \
    OPTIONS_CLUSTER(X)                                                                   \
    X(ENUM, goal, "rate",                                                                \
      "rate: the highest rate that meets the SLOs, within the limit. cost, power: the "  \
      "least of it that meets them at target_rate. fixed: the highest rate of the "      \
      "given machines.",                                                                 \
      .values = "rate|cost|power|fixed")                                                 \
    X(ENUM, limit, "power",                                                              \
      "Limit of all machines: power or cost of limit_h100 DGX-H100, or none. printed: "  \
      "the machines of Fig. 16, or study.machines, whatever the goal.",                  \
      .values = "power|cost|none|printed")                                               \
    X(INT, limit_h100, "40", "Number of DGX-H100 that set the limit.", .min = 1,         \
      .max = 1000)                                                                       \
    X(F64, target_rate, "70", "cost, power: requests per second.", .min = 1e-3,          \
      .max = 1e6)                                                                        \
    X(INT, max_prompt, "0",                                                              \
      "Prompt machines, or machines of a baseline, at most. 0: as many as the limit "    \
      "allows, without one 100.",                                                        \
      .min = 0, .max = 1000)                                                             \
    X(INT, max_token, "0", "The same of token machines.", .min = 0, .max = 1000)         \
    X(INT, step_prompt, "1",                                                             \
      "Numbers of prompt machines to try are multiples of it. splitwise-sim: 5.",        \
      .min = 1, .max = 1000)                                                             \
    X(BOOL, grid, "false",                                                               \
      "cost, power: also try every size up to max_prompt and max_token.")

#define RESULTS(X)                                                                       \
    X(rate_rps, "/s", HIGHER,                                                            \
      "highest rate that meets the SLOs; of the goals cost and power target_rate")       \
    X(rate_over_own, "x", HIGHER | SOME,                                                 \
      "goal fixed: rate_rps / that of the machines of Fig. 16 for the trace that is "    \
      "served")                                                                          \
    X(n_prompt, "", 0, "prompt machines, or machines of a baseline")                     \
    X(n_token, "", 0, "token machines")                                                  \
    X(n_machines, "", LOWER, "machines")                                                 \
    X(cost_per_hour, "$/h", LOWER, "cost of all machines")                               \
    X(power, "", LOWER, "power of all machines, in DGX-A100")                            \
    X(n_evaluated, "", 0, "sizes tried")                                                 \
    X(grid_cost_per_hour, "$/h", LOWER | SOME,                                           \
      "cost of the cheapest size of the whole grid that meets the SLOs")                 \
    X(cost_over_grid, "", LOWER | SOME, "cost_per_hour / grid_cost_per_hour")            \
    X(grid_power, "", LOWER | SOME,                                                      \
      "power of the size of the whole grid with the least that meets the SLOs")          \
    X(sim_s, "s", LOWER | MEASURED, "CPU time on this host")

FRAME_TYPES;

#define SIZES_MAX 4096

struct cluster_provision {
    FRAME_CELL;
    struct study_cluster_opts opts;
    struct study_cluster cluster;
    double max_power, max_cost; /* 0: any */
    double best_rate;
    /* what was tried */
    size_t n;
    double sizes[3][SIZES_MAX]; /* prompt, token; rate, or whether target_rate is met */
};

static void keep(struct cluster_provision *c, int n_prompt, int n_token, double v)
{
    const double size[] = {n_prompt, n_token, v};

    for (int i = 0; i < 3 && c->n < SIZES_MAX; i++)
        c->sizes[i][c->n] = size[i];
    c->n += c->n < SIZES_MAX;
}

static int meets_target(struct cluster_provision *c, int n_prompt, int n_token, bool *met)
{
    TRY(study_cluster_meets(met, &c->cluster, n_prompt, n_token, c->o->target_rate));
    keep(c, n_prompt, n_token, *met);
    return OK;
}

/* Sizes are in steps of prompt machines. */
static int rate_of(void *ctx, int prompt_steps, int n_token, double *rate)
{
    struct cluster_provision *c = ctx;
    int n_prompt = prompt_steps * (int)c->o->step_prompt;
    bool met;

    if (c->o->goal == GOAL_RATE) {
        TRY(study_cluster_max_rate(rate, &c->cluster, n_prompt, n_token, c->best_rate));
        c->best_rate = fmax(c->best_rate, *rate);
        keep(c, n_prompt, n_token, *rate);
        return OK;
    }
    TRY(meets_target(c, n_prompt, n_token, &met));
    *rate = met ? c->o->target_rate : 0;
    return OK;
}

/* ---- searches ---- */

/* How many machines the limits allow. */
static int most(const struct cluster_provision *c, int64_t given, double power,
                double cost)
{
    double n = given > 0 ? (double)given : 100;

    if (given == 0 && (c->max_power > 0 || c->max_cost > 0))
        n = INFINITY;
    if (c->max_power > 0)
        n = fmin(n, c->max_power / power * (1 + 1e-9));
    if (c->max_cost > 0)
        n = fmin(n, c->max_cost / cost * (1 + 1e-9));
    return (int)fmin(n, 1000);
}

static int search_baseline(struct cluster_provision *c, struct cluster_size *s)
{
    const struct cluster_card *p = &c->cluster.prompt_card;
    int hi = most(c, c->o->max_prompt, p->power, p->cost_per_hour_usd), lo = 0;
    bool met;

    *s = (struct cluster_size){.n_prompt = hi};
    if (hi < 1)
        return err_set(ERR_ARG, "the limit allows no machine");
    if (c->o->goal == GOAL_RATE)
        return study_cluster_max_rate(&s->rate, &c->cluster, hi, 0, 0);
    TRY(meets_target(c, hi, 0, &met));
    if (!met)
        return err_set(ERR_NOTFOUND, "%d machines do not reach %g per second", hi,
                       c->o->target_rate);
    while (hi - lo > 1) {
        int middle = (hi + lo) / 2;

        TRY(meets_target(c, middle, 0, &met));
        *(met ? &hi : &lo) = middle;
    }
    s->n_prompt = hi;
    s->rate = c->o->target_rate;
    return OK;
}

static int search_design(struct cluster_provision *c, struct cluster_size *s)
{
    const struct cluster_card *p = &c->cluster.prompt_card, *t = &c->cluster.token_card;
    double step = (double)c->o->step_prompt;
    struct cluster_provision_opts o = {.goal = c->o->goal == GOAL_RATE ? CLUSTER_MAX_RATE
                                               : c->o->goal == GOAL_COST
                                                   ? CLUSTER_MIN_COST
                                                   : CLUSTER_MIN_POWER,
                                       .prompt_cost = step * p->cost_per_hour_usd,
                                       .token_cost = t->cost_per_hour_usd,
                                       .prompt_power = step * p->power,
                                       .token_power = t->power,
                                       .min_rate = c->o->target_rate,
                                       .max_cost = c->max_cost,
                                       .max_power = c->max_power,
                                       .rate = rate_of,
                                       .ctx = c};

    o.max_prompt = most(c, c->o->max_prompt, p->power, p->cost_per_hour_usd) / (int)step;
    o.max_token = most(c, c->o->max_token, t->power, t->cost_per_hour_usd);
    TRY(cluster_provision(s, NULL, &o));
    s->n_prompt *= (int)step;
    return OK;
}

/* Every size, to be drawn, and to see that the search found the best. */
static int try_grid(struct cluster_provision *c)
{
    struct results *r = c->r;
    double *const all[] = {&r->grid_cost_per_hour, &r->cost_over_grid, &r->grid_power};
    double cost = INFINITY, power = INFINITY;

    c->n = 0;
    for (int p = 1; p <= c->o->max_prompt; p++)
        for (int t = 1; t <= c->o->max_token; t++) {
            bool met;

            TRY(meets_target(c, p, t, &met));
            if (!met)
                continue;
            cost = fmin(cost, study_cluster_cost(&c->cluster, p, t));
            power = fmin(power, study_cluster_power(&c->cluster, p, t));
        }
    r->grid_cost_per_hour = isfinite(cost) ? cost : NAN;
    r->cost_over_grid = r->cost_per_hour / cost;
    r->grid_power = isfinite(power) ? power : NAN;
    for (int i = 0; i < 3; i++)
        frame_why(c->f, all[i], "no size meets the SLOs");
    return OK;
}

static int set_limit(struct cluster_provision *c)
{
    struct cluster_card h;

    TRY(cluster_card_read(&h, "dgx-h100"));
    c->max_power = c->o->limit == LIMIT_POWER ? h.power * (double)c->o->limit_h100 : 0;
    c->max_cost =
        c->o->limit == LIMIT_COST ? h.cost_per_hour_usd * (double)c->o->limit_h100 : 0;
    return OK;
}

static int search(struct cluster_provision *c, struct cluster_size *s)
{
    TRY(set_limit(c));
    if (c->o->goal == GOAL_FIXED || c->o->limit == LIMIT_PRINTED) {
        TRY(study_cluster_machines(&c->cluster, &s->n_prompt, &s->n_token));
        return study_cluster_max_rate(&s->rate, &c->cluster, s->n_prompt, s->n_token, 0);
    }
    return c->cluster.is_baseline ? search_baseline(c, s) : search_design(c, s);
}

/* The rate of machines that were chosen for another trace, over that of its own. */
static int compare_with_own(struct cluster_provision *c)
{
    struct study_cluster_opts opts = c->opts;
    struct study_cluster own = c->cluster;
    double own_rate = c->r->rate_rps;
    int n_prompt, n_token;

    if (opts.sized_for < 2 && opts.sized_for != opts.trace) {
        opts.sized_for = opts.trace;
        own.o = &opts;
        TRY(study_cluster_machines(&own, &n_prompt, &n_token));
        TRY(study_cluster_max_rate(&own_rate, &own, n_prompt, n_token, 0));
    }
    c->r->rate_over_own = own_rate > 0 ? c->r->rate_rps / own_rate : NAN;
    frame_why(c->f, &c->r->rate_over_own, "these machines meet the SLOs at no rate");
    return OK;
}

static int cluster_provision_run(struct cluster_provision *c)
{
    static const char *const names[] = {"tried_prompt", "tried_token", "tried_value"};
    struct cluster_size s = {0};
    struct results *r = c->r;
    clock_t start = clock();

    c->opts = STUDY_CLUSTER_OPTS;
    FRAME_CLOSE(c->f, study_cluster_close, &c->cluster);
    TRY(study_cluster_open(&c->cluster, &c->opts));
    TRY(search(c, &s));
    r->sim_s = (double)(clock() - start) / CLOCKS_PER_SEC;
    r->rate_rps = s.rate;
    r->n_prompt = s.n_prompt;
    r->n_token = s.n_token;
    r->n_machines = s.n_prompt + s.n_token;
    r->cost_per_hour = study_cluster_cost(&c->cluster, s.n_prompt, s.n_token);
    r->power = study_cluster_power(&c->cluster, s.n_prompt, s.n_token);
    r->n_evaluated = (double)c->n;
    study_cluster_notes(&c->cluster, c->out);
    if (c->o->goal == GOAL_FIXED)
        TRY(compare_with_own(c));
    if (c->o->grid)
        TRY(try_grid(c));
    for (int i = 0; i < 3; i++)
        study_series(c->out, names[i], i < 2 ? "" : "/s", c->sizes[i], c->n);
    return OK;
}

STUDY(cluster_provision, "how many machines a design of Splitwise needs");
