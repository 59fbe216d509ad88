/* A step of a model whose weights are sliced between a CPU and an accelerator, compared with
 * policies that place whole layers or experts, and with the method without one of its parts.
 * Times follow from the paper's Table I. Paper: ScheInfer V. */
#include <math.h>

#include "experiments/load/study.h"
#include "experiments/study/support/rows.h"
#include "hetero/policy.h"

enum { AS_PAPER, FP16, INT4 };

struct opts {
    char *model;
    int testbed, type;
    int64_t n_tok, n_units;
    double budget_gb, cpu_factor, accel_tmacs;
    bool bus_limit, as_printed, no_gg;
};

static const char *model_name(int i)
{
    return hetero_models[i] ? hetero_models[i]->name : NULL;
}

static const struct opt_row table[] = {
    OPT_ROW(STR, model, "llama-2-70b", "Model.", .unit = "NAME", .names = model_name),
    OPT_ROW(ENUM, testbed, "A", "Machine of the paper's Table I.", .values = "A|B|C"),
    OPT_ROW(ENUM, type, "as_paper",
            "Type of the weights; as_paper: that in which the paper measured this model.",
            .values = "as_paper|fp16|int4"),
    OPT_ROW(INT, n_tok, "1", "Tokens of the step. 1 decodes; more are a prompt's.",
            .min = 1, .max = 1 << 20),
    OPT_ROW(F64, budget_gb, "24", "Memory of the accelerator.", .unit = "GB", .min = 0,
            .max = 1e6),
    OPT_ROW(
        F64, cpu_factor, "1",
        "The CPU's products take that many times as long as in Table I: fewer threads.",
        .min = 0.01, .max = 1000),
    OPT_ROW(
        F64, accel_tmacs, NULL,
        "Most multiply-adds of the accelerator in a second, in 10^12. Its rate of "
        "Table I is then that of one token, which is bound by reading weights. 0: the "
        "rate of Table I for any number of tokens, as the paper has it.",
        .min = 0, .max = 1e6),
    OPT_ROW(BOOL, bus_limit, NULL,
            "The link is no faster than the bus that the paper names for the testbed."),
    OPT_ROW(BOOL, as_printed, NULL, "Equations 4 and 15 with their slips."),
    OPT_ROW(BOOL, no_gg, NULL, "No share of an MLP or expert stays on the accelerator."),
    OPT_ROW(INT, n_units, "32", "Slices that a matrix can be cut into.", .min = 1,
            .max = 4096),
    {0},
};

static const struct study_metric metrics[] = {
    {"step_ms", "ms", "lower", "time of the step with slices on both"},
    {"step_ms_whole_layers", "ms", "lower", "time with whole layers, as llama.cpp"},
    {"step_ms_fiddler", "ms", "lower", "time with whole experts, as Fiddler"},
    {"speedup_whole_layers", "x", "higher", "step_ms_whole_layers / step_ms"},
    {"speedup_fiddler", "x", "higher", "step_ms_fiddler / step_ms"},
    {"cg_frac", "", "", "share of the weights that is sent, CG"},
    {"gg_frac", "", "", "share of the weights that stays on the accelerator, GG"},
    {"accel_tok_frac", "", "", "share of a prompt's tokens that CG' takes over from CC"},
    {"speedup_fixed_0", "x", "higher", "time with nothing sent / step_ms"},
    {"speedup_fixed_25", "x", "higher", "time with a quarter sent / step_ms"},
    {"speedup_fixed_50", "x", "higher", "time with half sent / step_ms"},
    {"speedup_fixed_75", "x", "higher", "time with three quarters sent / step_ms"},
    {"speedup_fixed_mean", "x", "higher", "mean of these four"},
    {"speedup_memory", "x", "higher",
     "time with layers that stay on the accelerator as a whole or not at all / step_ms"},
    {"speedup_tokens", "x", "higher", "time with all tokens of CC on the CPU / step_ms"},
    {"greedy_gap_frac", "", "lower",
     "step_ms above that of the exact assignment of memory"},
    {"rounding_loss_frac", "", "lower",
     "step_ms above that with slices of any size, here 4096 of a matrix"},
    {0},
};

static int step_ms(double *out, struct hetero_result *r, const char *policy,
                   const struct hetero_case *k)
{
    const struct hetero_policy *p;

    TRY(hetero_policy_find(policy, &p));
    TRY(p->step(r, k));
    *out = 1e3 * r->step_s;
    return OK;
}

/* The policy's time over ours; NaN with a reason where it cannot be had. */
static int report_other(struct study_cell *c, const struct hetero_case *k, double ms,
                        const char *policy, const char *name, const char *ratio)
{
    struct hetero_result r;
    double other_ms = NAN;
    int rc = step_ms(&other_ms, &r, policy, k);

    if (rc != OK && rc != ERR_NOMEM && rc != ERR_UNSUPPORTED)
        return rc;
    study_value(c, name, other_ms, err_msg());
    study_value(c, ratio, other_ms / ms, err_msg());
    err_clear();
    return OK;
}

static int ratio_to(double *out, struct hetero_case k, double ms)
{
    struct hetero_result r;

    TRY(step_ms(out, &r, "scheinfer", &k));
    *out /= ms;
    return OK;
}

static int report_slices(struct study_cell *c, const struct hetero_case *k, double ms)
{
    static const char *const names[] = {"speedup_fixed_0", "speedup_fixed_25",
                                        "speedup_fixed_50", "speedup_fixed_75"};
    double sum = 0, x;

    for (int i = 0; i < 4; i++) {
        struct hetero_case fixed = *k;

        fixed.fixed_cg = 0.25 * i;
        TRY(ratio_to(&x, fixed, ms));
        study_value(c, names[i], x, NULL);
        sum += x;
    }
    study_value(c, "speedup_fixed_mean", sum / 4, NULL);
    return OK;
}

static int report_parts(struct study_cell *c, const struct hetero_case *k, double ms)
{
    struct hetero_case whole = *k, own = *k, exact = *k, fine = *k;
    double x;

    whole.whole_layers = true;
    TRY(ratio_to(&x, whole, ms));
    study_value(c, "speedup_memory", x, NULL);
    own.no_takeover = true;
    TRY(ratio_to(&x, own, ms));
    study_value(c, "speedup_tokens", k->n_tok > 1 ? x : NAN, "of a prompt only");
    fine.n_units = 4096;
    fine.exact = false;
    if (k->model->n_experts > 1) { /* memory and time of the search go with both */
        study_value(c, "greedy_gap_frac", NAN, "of models without experts only");
        study_value(c, "rounding_loss_frac", NAN, "of models without experts only");
        return OK;
    }
    exact.exact = true;
    TRY(ratio_to(&x, exact, ms));
    study_value(c, "greedy_gap_frac", k->n_tok == 1 ? 1 / x - 1 : NAN,
                "memory is assigned for decode");
    TRY(ratio_to(&x, fine, ms));
    study_value(c, "rounding_loss_frac", 1 / x - 1, NULL);
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
                            .as_printed = o->as_printed,
                            .fixed_cg = -1,
                            .no_gg = o->no_gg};
    struct hetero_result r;
    enum hetero_type type;
    double ms;

    (void)context;
    TRY(hetero_model_find(o->model, &k.model));
    type = o->type == AS_PAPER ? k.model->type
           : o->type == FP16   ? HETERO_FP16
                               : HETERO_INT4;
    TRY(hetero_machine_printed(&machine, (char)('A' + o->testbed), type, o->bus_limit));
    machine.cpu_s_per_mac *= o->cpu_factor;
    machine.accel_macs_per_s = 1e12 * o->accel_tmacs;
    k.bytes_per_weight = type == HETERO_FP16 ? 2 : 0.5;
    if (step_ms(&ms, &r, "scheinfer", &k) != OK)
        return err_set(ERR_NOTFOUND, "%s",
                       err_msg()); /* not possible: a reason, no failure */
    study_value(c, "step_ms", ms, NULL);
    study_value(c, "cg_frac", r.cg, NULL);
    study_value(c, "gg_frac", r.gg, NULL);
    study_value(c, "accel_tok_frac", o->n_tok > 1 ? r.accel_tok_frac : NAN,
                "of a prompt only");
    TRY(report_other(c, &k, ms, "whole_layers", "step_ms_whole_layers",
                     "speedup_whole_layers"));
    TRY(report_other(c, &k, ms, "fiddler", "step_ms_fiddler", "speedup_fiddler"));
    TRY(report_slices(c, &k, ms));
    return report_parts(c, &k, ms);
}

const struct study study_slicing = {
    .name = "slicing",
    .help =
        "ScheInfer's slices on a CPU and an accelerator, by the paper's linear models",
    .opts = table,
    .opts_bytes = sizeof(struct opts),
    .metrics = metrics,
    .run = run,
};
