/* Asks the simulator: machines that we do not own. */
#include "plan/evaluator.h"

#include "base/mem.h"
#include "base/stats.h"
#include "simulate/contention.h"

/* How often one configuration is measured to know the noise. */
#define NOISE_MEASUREMENTS 256

struct contention {
    struct simulate_machine *sim;
    struct simulate_workload workload;
    const struct topo_config *placement; /* lent */
    const struct topo_config *pair[2];   /* of enum topo_phase; lent */
    uint64_t seed;
};

static int contention_measure(void *ctx, const struct topo_config *c, int repeat,
                              double *seconds)
{
    const struct contention *x = ctx;

    return simulate_measure(x->sim, c, x->placement, &x->workload, x->seed, repeat,
                            seconds);
}

static int contention_pair(struct plan_evaluation *e, const struct topo_config *prefill,
                           const struct topo_config *decode, int64_t *n_rows_max)
{
    struct contention *x = e->ctx;

    x->pair[TOPO_PREFILL] = prefill;
    x->pair[TOPO_DECODE] = decode;
    *n_rows_max = PLAN_STEP_ROWS_MAX;
    return OK;
}

static int contention_step(struct plan_evaluation *e, const struct plan_step *s,
                           int repeat, double *seconds)
{
    const struct contention *x = e->ctx;

    return simulate_measure(x->sim, x->pair[s->phase], x->placement, s->workload, x->seed,
                            repeat, seconds);
}

/* Of the whole machine as one rank, as on a real one: what the simulator draws from is
 * not asked. The scaled median deviation, which the rare spike does not move. */
static int measure_noise(struct contention *x, const struct topo_machine *m, double *frac)
{
    const struct topo_limits any = {0};
    double s[NOISE_MEASUREMENTS];
    struct topo_tree *t = NULL;
    struct topo_config c;
    int rc = topo_tree_open(&t, m, NULL, NULL, 0);

    if (rc == OK)
        rc = topo_config_cut(&c, t, 0, &any);
    for (int i = 0; i < NOISE_MEASUREMENTS && rc == OK; i++)
        rc = simulate_measure(x->sim, &c, NULL, &x->workload, x->seed, i, &s[i]);
    if (rc == OK)
        *frac = 1.4826 * stats_mad(s, NOISE_MEASUREMENTS) /
                stats_median(s, NOISE_MEASUREMENTS);
    mem_free(t);
    return rc;
}

static void contention_close(struct plan_evaluation *e)
{
    struct contention *x = e->ctx;

    if (x)
        simulate_machine_close(&x->sim);
    mem_free(x);
    *e = (struct plan_evaluation){0};
}

static int contention_open(struct plan_evaluation *out,
                           const struct plan_evaluator_opts *o)
{
    struct contention *x = mem_new(MEM_OTHER, 1, sizeof(*x));
    int rc;

    *out = (struct plan_evaluation){
        .measure = contention_measure, .ctx = x, .simulated = true};
    if (!x)
        return ERR_NOMEM;
    x->workload = *o->workload;
    x->placement = o->placement;
    x->seed = o->seed;
    rc = simulate_machine_open(&x->sim, o->machine, o->machine_params_path);
    if (rc == OK)
        rc = measure_noise(x, o->machine, &out->noise_frac);
    if (rc != OK)
        contention_close(out);
    return rc;
}

const struct plan_evaluator plan_evaluator_contention = {
    .name = "contention",
    .help = "the simulator of a machine's caches, memory and links",
    .evidence = "simulated",
    .open = contention_open,
    .close = contention_close,
    .pair = contention_pair,
    .step = contention_step,
};
