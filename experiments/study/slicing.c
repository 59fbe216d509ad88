/* A step of a model whose weights exceed an accelerator's memory, by the paper's linear models.
 * `slicing`: sliced between a CPU and an accelerator, compared with policies that place whole
 * layers or experts, and with the method without one of its parts. `slicing_policy`: under one
 * policy, a plug-in of engine/hetero/policy/: where weights are, what is sent, how long the step
 * takes. Times follow from the paper's Table I. Paper: ScheInfer V. */
#include <math.h>

#include "experiments/load/study.h"
#include "experiments/study/support/rows.h"
#include "hetero/policy.h"

enum { AS_PAPER, FP16, INT4 };

/* The options of both. */
struct opts {
    char *policy, *model;
    int testbed, type;
    int64_t n_tok, n_units;
    double budget_gb, cpu_factor, accel_tmacs;
    bool bus_limit, as_printed, no_gg;
};

static const char *model_name(int i)
{
    return hetero_models[i] ? hetero_models[i]->name : NULL;
}

static const char *policy_name(int i)
{
    return hetero_policies[i] ? hetero_policies[i]->name : NULL;
}

#define ROWS_MODEL_TESTBED                                                               \
    OPT_ROW(STR, model, "llama-2-70b", "Model.", .unit = "NAME", .names = model_name),   \
        OPT_ROW(ENUM, testbed, "A", "Machine of the paper's Table I.",                   \
                .values = "A|B|C"),                                                      \
        OPT_ROW(ENUM, type, "as_paper",                                                  \
                "Type of the weights; as_paper: that in which the paper measured this "  \
                "model.",                                                                \
                .values = "as_paper|fp16|int4")

/* ---- a step ---- */

struct slicing_case {
    struct hetero_machine machine;
    struct hetero_case k;
};

static int slicing_open(struct slicing_case *c, const struct opts *o)
{
    enum hetero_type type;

    c->k = (struct hetero_case){.machine = &c->machine,
                                .budget_bytes = (int64_t)(o->budget_gb * 1e9),
                                .n_tok = o->n_tok,
                                .n_units = (int)o->n_units,
                                .as_printed = o->as_printed,
                                .fixed_cg = -1,
                                .no_gg = o->no_gg};
    TRY(hetero_model_find(o->model, &c->k.model));
    type = o->type == AS_PAPER ? c->k.model->type
           : o->type == FP16   ? HETERO_FP16
                               : HETERO_INT4;
    TRY(hetero_machine_printed(&c->machine, (char)('A' + o->testbed), type,
                               o->bus_limit));
    c->machine.cpu_s_per_mac *= o->cpu_factor;
    c->machine.accel_macs_per_s = 1e12 * o->accel_tmacs;
    c->k.bytes_per_weight = type == HETERO_FP16 ? 2 : 0.5;
    return OK;
}

static int slicing_step(struct hetero_result *r, const char *policy,
                        const struct hetero_case *k)
{
    const struct hetero_policy *p;

    TRY(hetero_policy_find(policy, &p));
    return p->step(r, k);
}

/* The study's own policy: what is not possible is skipped with its reason, and is no failure. */
static int slicing_own_step(struct hetero_result *r, const char *policy,
                            const struct hetero_case *k)
{
    return slicing_step(r, policy, k) == OK ? OK : err_set(ERR_NOTFOUND, "%s", err_msg());
}

/* Another policy: NaN, with its reason in err_msg(), where it is not possible. */
static int slicing_other_s(double *s, const char *policy, const struct hetero_case *k)
{
    struct hetero_result r;
    int rc = slicing_step(&r, policy, k);

    *s = rc == OK ? r.step_s : NAN;
    return rc == ERR_NOMEM || rc == ERR_UNSUPPORTED ? OK : rc;
}

/* ---- slicing ---- */

static const struct opt_row slicing_opts[] = {
    ROWS_MODEL_TESTBED,
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

static const struct study_metric slicing_metrics[] = {
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

static int slicing_report_others(struct study_cell *c, const struct hetero_case *k,
                                 double ms)
{
    static const char *const others[][3] = {
        {"whole_layers", "step_ms_whole_layers", "speedup_whole_layers"},
        {"fiddler", "step_ms_fiddler", "speedup_fiddler"}};
    double other_s;

    for (int i = 0; i < 2; i++) {
        TRY(slicing_other_s(&other_s, others[i][0], k));
        study_value(c, others[i][1], 1e3 * other_s, err_msg());
        study_value(c, others[i][2], 1e3 * other_s / ms, err_msg());
        err_clear();
    }
    return OK;
}

static int slicing_ratio(double *out, struct hetero_case k, double ms)
{
    struct hetero_result r;

    TRY(slicing_step(&r, "scheinfer", &k));
    *out = 1e3 * r.step_s / ms;
    return OK;
}

static int slicing_report_fixed(struct study_cell *c, const struct hetero_case *k,
                                double ms)
{
    static const char *const names[] = {"speedup_fixed_0", "speedup_fixed_25",
                                        "speedup_fixed_50", "speedup_fixed_75"};
    double sum = 0, x;

    for (int i = 0; i < 4; i++) {
        struct hetero_case fixed = *k;

        fixed.fixed_cg = 0.25 * i;
        TRY(slicing_ratio(&x, fixed, ms));
        study_value(c, names[i], x, NULL);
        sum += x;
    }
    study_value(c, "speedup_fixed_mean", sum / 4, NULL);
    return OK;
}

static int slicing_report_parts(struct study_cell *c, const struct hetero_case *k,
                                double ms)
{
    struct hetero_case whole = *k, own = *k, exact = *k, fine = *k;
    double x;

    whole.whole_layers = true;
    TRY(slicing_ratio(&x, whole, ms));
    study_value(c, "speedup_memory", x, NULL);
    own.no_takeover = true;
    TRY(slicing_ratio(&x, own, ms));
    study_value(c, "speedup_tokens", k->n_tok > 1 ? x : NAN, "of a prompt only");
    fine.n_units = 4096;
    fine.exact = false;
    if (k->model->n_experts > 1) { /* memory and time of the search go with both */
        study_value(c, "greedy_gap_frac", NAN, "of models without experts only");
        study_value(c, "rounding_loss_frac", NAN, "of models without experts only");
        return OK;
    }
    exact.exact = true;
    TRY(slicing_ratio(&x, exact, ms));
    study_value(c, "greedy_gap_frac", k->n_tok == 1 ? 1 / x - 1 : NAN,
                "memory is assigned for decode");
    TRY(slicing_ratio(&x, fine, ms));
    study_value(c, "rounding_loss_frac", 1 / x - 1, NULL);
    return OK;
}

static int slicing_run(void *context, const void *opts, struct study_cell *c)
{
    const struct opts *o = opts;
    struct slicing_case x;
    struct hetero_result r;
    double ms;

    (void)context;
    TRY(slicing_open(&x, o));
    TRY(slicing_own_step(&r, "scheinfer", &x.k));
    ms = 1e3 * r.step_s;
    study_value(c, "step_ms", ms, NULL);
    study_value(c, "cg_frac", r.cg, NULL);
    study_value(c, "gg_frac", r.gg, NULL);
    study_value(c, "accel_tok_frac", o->n_tok > 1 ? r.accel_tok_frac : NAN,
                "of a prompt only");
    TRY(slicing_report_others(c, &x.k, ms));
    TRY(slicing_report_fixed(c, &x.k, ms));
    return slicing_report_parts(c, &x.k, ms);
}

const struct study study_slicing = {
    .name = "slicing",
    .help =
        "ScheInfer's slices on a CPU and an accelerator, by the paper's linear models",
    .opts = slicing_opts,
    .opts_bytes = sizeof(struct opts),
    .metrics = slicing_metrics,
    .run = slicing_run,
};

/* ---- slicing_policy ---- */

static const struct opt_row slicing_policy_opts[] = {
    OPT_ROW(STR, policy, "scheinfer", "Where weights are and what computes them.",
            .unit = "NAME", .names = policy_name),
    ROWS_MODEL_TESTBED,
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

static const struct study_metric slicing_policy_metrics[] = {
    {"step_ms", "ms", "lower", "time of the step"},
    {"tokens_per_s", "tok/s", "higher", "tokens of the step / its time"},
    {"cg_frac", "", "", "share of the weights that is sent"},
    {"gg_frac", "", "", "share of the weights that stays on the accelerator"},
    {"speedup_scheinfer", "x", "", "the step's time / that of policy scheinfer"},
    {"speedup_oracle", "x", "", "the step's time / that of the best slices there are"},
    {0},
};

static int slicing_policy_run(void *context, const void *opts, struct study_cell *c)
{
    const struct opts *o = opts;
    static const char *const others[][2] = {{"scheinfer", "speedup_scheinfer"},
                                            {"oracle", "speedup_oracle"}};
    struct slicing_case x;
    struct hetero_result r;
    double other_s;

    (void)context;
    TRY(slicing_open(&x, o));
    TRY(slicing_own_step(&r, o->policy, &x.k));
    study_value(c, "step_ms", 1e3 * r.step_s, NULL);
    study_value(c, "tokens_per_s", (double)o->n_tok / r.step_s, NULL);
    study_value(c, "cg_frac", r.cg, NULL);
    study_value(c, "gg_frac", r.gg, NULL);
    for (int i = 0; i < 2; i++) {
        TRY(slicing_other_s(&other_s, others[i][0], &x.k));
        study_value(c, others[i][1], r.step_s / other_s, err_msg());
        err_clear();
    }
    return OK;
}

const struct study study_slicing_policy = {
    .name = "slicing_policy",
    .help = "a step under one policy for weights that exceed an accelerator's memory",
    .opts = slicing_policy_opts,
    .opts_bytes = sizeof(struct opts),
    .metrics = slicing_policy_metrics,
    .run = slicing_policy_run,
};
