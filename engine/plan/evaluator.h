/* plan/evaluator.h - plug-ins that find how long a configuration takes.
 *
 * One file in plan/evaluator/ ends in one `const struct plan_evaluator
 * plan_evaluator_<stem>`: `contention` asks the simulator, `measured` runs the engine on
 * this host. The search sees only the struct plan_evaluation that open() fills.
 * Paper: Sandwich 5.3 (latency simulation over traces).   Threads: one. */
#ifndef PLAN_EVALUATOR_H
#define PLAN_EVALUATOR_H

#include <stdint.h>

#include "model/cost.h"
#include "plan/trace.h"
#include "plan/tree_search.h"

#define PLAN_STEP_ROWS_MAX 512 /* the engine's own --max-step-tok */

/* A step to be timed: a piece of a prompt. */
struct plan_step {
    enum topo_phase phase; /* the phase whose configuration it uses */
    int64_t n_rows;
    const struct simulate_workload *workload; /* the same, for the simulator */
};

struct plan_evaluator_opts {
    const struct topo_machine *machine;
    const char *machine_params_path;          /* contention: of the simulated machine */
    const char *model_path;                   /* measured: a model file */
    const char *precision;                    /* measured: kern_precision_name() */
    enum kern_kv_type kv_type;                /* measured: of keys and values */
    const struct plan_trace *trace;           /* measured: what it runs */
    int64_t batch;                            /* measured: sequences of a decode step */
    const struct simulate_workload *workload; /* contention: the work to price */
    /* The other phase's configuration, where it is chosen; NULL: it will be the measured
     * one. contention: it placed the weights. measured: their layout is that of several
     * ranks where it has several (model_opts.one_rank). */
    const struct topo_config *placement;
    enum topo_phase phase;
    uint64_t seed;
};

struct plan_evaluator {
    const char *name, *help;
    const char *evidence; /* of a plan's figures: "simulated", "measured" */
    /* Fill *out; it lives until close(out). */
    int (*open)(struct plan_evaluation *out, const struct plan_evaluator_opts *o);
    void (*close)(struct plan_evaluation *e);
    /* Prepare an evaluator that prefill was searched with for pairs of configurations: from now on
     * step() is called, not measure(). Both configurations are lent until close(). *n_rows_max: the
     * most rows of a step. ERR_UNSUPPORTED: no team of this host runs both. */
    int (*pair)(struct plan_evaluation *e, const struct topo_config *prefill,
                const struct topo_config *decode, int64_t *n_rows_max);
    /* Seconds of one step after the mean context of the trace, phases in any order. */
    int (*step)(struct plan_evaluation *e, const struct plan_step *s, int repeat,
                double *seconds);
};
extern const struct plan_evaluator *const plan_evaluators[];
/* Estimate the noise of one measurement (struct plan_evaluation's noise_frac) from n
 * measurements of the whole machine as one rank, 2 <= n <= PLAN_NOISE_MAX: the scaled median
 * absolute deviation, which rare spikes do not move. */
#define PLAN_NOISE_MAX 256
MUST int plan_evaluation_noise(double *frac, const struct plan_evaluation *e,
                               const struct topo_machine *m, int n);
/* ERR_NOTFOUND names the nearest. */
MUST int plan_evaluator_find(const char *name, const struct plan_evaluator **out);

#endif
