/* Asks the simulator: machines that we do not own. */
#include "plan/evaluator.h"

#include "base/mem.h"
#include "simulate/contention.h"

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
    if (rc == OK) /* what the simulator draws from is not asked */
        rc = plan_evaluation_noise(&out->noise_frac, out, o->machine, PLAN_NOISE_MAX);
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
