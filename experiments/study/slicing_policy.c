/* A step under one policy, a plug-in of engine/hetero/policy/, for weights that exceed an
 * accelerator's memory, by the paper's linear models: where weights are, what is sent, how long
 * the step takes. Times follow from the paper's Table I.   Paper: ScheInfer V. */
#include <math.h>

#include "experiments/frame/frame.h"
#include "experiments/study/support/slicing.h"

#define OPTIONS(X)                                                                       \
    X(STR, policy, "scheinfer", "Where weights are and what computes them.",             \
      .unit = "NAME", .names = study_slicing_policy_name)                                \
    OPTIONS_SLICING(X)                                                                   \
    X(INT, n_tok, "1", "Tokens of the step: sequences that decode, or a prompt's.",      \
      .min = 1, .max = 1 << 16)                                                          \
    X(F64, budget_gb, "24", "Memory of the accelerator.", .unit = "GB", .min = 0,        \
      .max = 1e6)                                                                        \
    X(F64, cpu_factor, "1",                                                              \
      "The CPU's products take that many times as long as in Table I.", .min = 0.01,     \
      .max = 1000)                                                                       \
    X(F64, accel_tmacs, NULL,                                                            \
      "Most multiply-adds of the accelerator in a second, in 10^12. 0: Table I's "       \
      "rate for any number of tokens.",                                                  \
      .min = 0, .max = 1e6)                                                              \
    X(BOOL, bus_limit, NULL,                                                             \
      "The link is no faster than the bus that the paper names for the testbed.")        \
    X(INT, n_units, "32", "Slices that a matrix can be cut into.", .min = 1, .max = 4096)

#define RESULTS(X)                                                                       \
    X(step_ms, "ms", LOWER, "time of the step")                                          \
    X(tokens_per_s, "tok/s", HIGHER, "tokens of the step / its time")                    \
    X(cg_frac, "", 0, "share of the weights that is sent")                               \
    X(gg_frac, "", 0, "share of the weights that stays on the accelerator")              \
    X(speedup_scheinfer, "x", 0, "the step's time / that of policy scheinfer")           \
    X(speedup_oracle, "x", 0, "the step's time / that of the best slices there are")

FRAME_TYPES;

struct slicing_policy {
    FRAME_CELL;
    struct study_slicing step;
};

static int slicing_policy_run(struct slicing_policy *c)
{
    const struct opts *o = c->o;
    struct results *r = c->r;
    const struct {
        const char *policy;
        double *speedup;
    } others[] = {{"scheinfer", &r->speedup_scheinfer}, {"oracle", &r->speedup_oracle}};
    struct hetero_result step;
    double other_s;

    TRY(study_slicing_open(&c->step, &STUDY_SLICING_OPTS));
    TRY(study_slicing_own_step(&step, o->policy, &c->step.k));
    r->step_ms = 1e3 * step.step_s;
    r->tokens_per_s = (double)o->n_tok / step.step_s;
    r->cg_frac = step.cg;
    r->gg_frac = step.gg;
    for (int i = 0; i < 2; i++) {
        TRY(study_slicing_other_s(&other_s, others[i].policy, &c->step.k));
        frame_set(c->f, others[i].speedup, step.step_s / other_s, err_msg());
        err_clear();
    }
    return OK;
}

STUDY(slicing_policy,
      "a step under one policy for weights that exceed an accelerator's memory");
