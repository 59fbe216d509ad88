/* A step of a model whose weights exceed an accelerator's memory, under one policy: where weights
 * are, what is sent, and how long the step takes, by the paper's linear models. Policies are the
 * plug-ins of engine/hetero/policy/. Paper: ScheInfer V. */
#include <math.h>

#include "experiments/load/study.h"
#include "experiments/study/support/rows.h"
#include "hetero/policy.h"

enum { AS_PAPER, FP16, INT4 };

struct opts {
    char *policy, *model;
    int testbed, type;
    int64_t n_tok, n_units;
    double budget_gb, cpu_factor, accel_tmacs;
    bool bus_limit;
};

static const char *model_name(int i)
{
    return hetero_models[i] ? hetero_models[i]->name : NULL;
}

static const char *policy_name(int i)
{
    return hetero_policies[i] ? hetero_policies[i]->name : NULL;
}

static const struct opt_row table[] = {
    OPT_ROW(STR, policy, "scheinfer", "Where weights are and what computes them.",
            .unit = "NAME", .names = policy_name),
    OPT_ROW(STR, model, "llama-2-70b", "Model.", .unit = "NAME", .names = model_name),
    OPT_ROW(ENUM, testbed, "A", "Machine of the paper's Table I.", .values = "A|B|C"),
    OPT_ROW(ENUM, type, "as_paper",
            "Type of the weights; as_paper: that in which the paper measured this model.",
            .values = "as_paper|fp16|int4"),
    OPT_ROW(INT, n_tok, "1", "Tokens of the step: sequences that decode, or a prompt's.",
            .min = 1, .max = 1 << 16),
    OPT_ROW(F64, budget_gb, "24", "Memory of the accelerator.", .unit = "GB", .min = 0,
            .max = 1e6),
    OPT_ROW(F64, cpu_factor, "1",
            "The CPU's products take that many times as long as in Table I.", .min = 0.01,
            .max = 1000),
    OPT_ROW(F64, accel_tmacs, NULL,
            "Most multiply-adds of the accelerator in a second, in 10^12. 0: Table I's "
            "rate for any number of tokens.",
            .min = 0, .max = 1e6),
    OPT_ROW(BOOL, bus_limit, NULL,
            "The link is no faster than the bus that the paper names for the testbed."),
    OPT_ROW(INT, n_units, "32", "Slices that a matrix can be cut into.", .min = 1,
            .max = 4096),
    {0},
};

static const struct study_metric metrics[] = {
    {"step_ms", "ms", "lower", "time of the step"},
    {"tokens_per_s", "tok/s", "higher", "tokens of the step / its time"},
    {"cg_frac", "", "", "share of the weights that is sent"},
    {"gg_frac", "", "", "share of the weights that stays on the accelerator"},
    {"speedup_scheinfer", "x", "", "the step's time / that of policy scheinfer"},
    {"speedup_oracle", "x", "", "the step's time / that of the best slices there are"},
    {0},
};

static int step_s(double *out, struct hetero_result *r, const char *policy,
                  const struct hetero_case *k)
{
    const struct hetero_policy *p;

    TRY(hetero_policy_find(policy, &p));
    TRY(p->step(r, k));
    *out = r->step_s;
    return OK;
}

/* NaN with its reason where that policy is not possible. */
static int report_ratio(struct study_cell *c, const char *name, const char *policy,
                        const struct hetero_case *k, double s)
{
    struct hetero_result r;
    double other_s = NAN;
    int rc = step_s(&other_s, &r, policy, k);

    if (rc != OK && rc != ERR_NOMEM && rc != ERR_UNSUPPORTED)
        return rc;
    study_value(c, name, s / other_s, err_msg());
    err_clear();
    return OK;
}

static int run(void *context, const void *opts, struct study_cell *c)
{
    const struct opts *o = opts;
    struct hetero_machine machine;
    struct hetero_case k = {.machine = &machine,
                            .budget_bytes = (int64_t)(o->budget_gb * 1e9),
                            .n_tok = o->n_tok,
                            .n_units = (int)o->n_units,
                            .fixed_cg = -1};
    struct hetero_result r;
    enum hetero_type type;
    double s;

    (void)context;
    TRY(hetero_model_find(o->model, &k.model));
    type = o->type == AS_PAPER ? k.model->type
           : o->type == FP16   ? HETERO_FP16
                               : HETERO_INT4;
    TRY(hetero_machine_printed(&machine, (char)('A' + o->testbed), type, o->bus_limit));
    machine.cpu_s_per_mac *= o->cpu_factor;
    machine.accel_macs_per_s = 1e12 * o->accel_tmacs;
    k.bytes_per_weight = type == HETERO_FP16 ? 2 : 0.5;
    if (step_s(&s, &r, o->policy, &k) != OK)
        return err_set(ERR_NOTFOUND, "%s",
                       err_msg()); /* not possible: a reason, no failure */
    study_value(c, "step_ms", 1e3 * s, NULL);
    study_value(c, "tokens_per_s", (double)o->n_tok / s, NULL);
    study_value(c, "cg_frac", r.cg, NULL);
    study_value(c, "gg_frac", r.gg, NULL);
    TRY(report_ratio(c, "speedup_scheinfer", "scheinfer", &k, s));
    return report_ratio(c, "speedup_oracle", "oracle", &k, s);
}

const struct study study_slicing_policy = {
    .name = "slicing_policy",
    .help = "a step under one policy for weights that exceed an accelerator's memory",
    .opts = table,
    .opts_bytes = sizeof(struct opts),
    .metrics = metrics,
    .run = run,
};
