/* A step of a model whose weights exceed an accelerator's memory, sliced between a CPU and an
 * accelerator, by the paper's linear models: compared with policies that place whole layers or
 * experts, and with the method without one of its parts. Times follow from the paper's Table I.
 * Paper: ScheInfer V. */
#include <math.h>

#include "experiments/frame/frame.h"
#include "experiments/study/support/slicing.h"

#define OPTIONS(X)                                                                       \
    OPTIONS_SLICING(X)                                                                   \
    X(INT, n_tok, "1", "Tokens of the step. 1 decodes; more are a prompt's.", .min = 1,  \
      .max = 1 << 20)                                                                    \
    X(F64, budget_gb, "24", "Memory of the accelerator.", .unit = "GB", .min = 0,        \
      .max = 1e6)                                                                        \
    X(F64, cpu_factor, "1",                                                              \
      "The CPU's products take that many times as long as in Table I: fewer threads.",   \
      .min = 0.01, .max = 1000)                                                          \
    X(F64, accel_tmacs, NULL,                                                            \
      "Most multiply-adds of the accelerator in a second, in 10^12. Its rate of "        \
      "Table I is then that of one token, which is bound by reading weights. 0: the "    \
      "rate of Table I for any number of tokens, as the paper has it.",                  \
      .min = 0, .max = 1e6)                                                              \
    X(BOOL, bus_limit, NULL,                                                             \
      "The link is no faster than the bus that the paper names for the testbed.")        \
    X(BOOL, as_printed, NULL, "Equations 4 and 15 with their slips.")                    \
    X(BOOL, no_gg, NULL, "No share of an MLP or expert stays on the accelerator.")       \
    X(INT, n_units, "32", "Slices that a matrix can be cut into.", .min = 1, .max = 4096)

#define RESULTS(X)                                                                       \
    X(step_ms, "ms", LOWER, "time of the step with slices on both")                      \
    X(step_ms_whole_layers, "ms", LOWER, "time with whole layers, as llama.cpp")         \
    X(step_ms_fiddler, "ms", LOWER, "time with whole experts, as Fiddler")               \
    X(speedup_whole_layers, "x", HIGHER, "step_ms_whole_layers / step_ms")               \
    X(speedup_fiddler, "x", HIGHER, "step_ms_fiddler / step_ms")                         \
    X(cg_frac, "", 0, "share of the weights that is sent, CG")                           \
    X(gg_frac, "", 0, "share of the weights that stays on the accelerator, GG")          \
    X(accel_tok_frac, "", 0, "share of a prompt's tokens that CG' takes over from CC")   \
    X(speedup_fixed_0, "x", HIGHER, "time with nothing sent / step_ms")                  \
    X(speedup_fixed_25, "x", HIGHER, "time with a quarter sent / step_ms")               \
    X(speedup_fixed_50, "x", HIGHER, "time with half sent / step_ms")                    \
    X(speedup_fixed_75, "x", HIGHER, "time with three quarters sent / step_ms")          \
    X(speedup_fixed_mean, "x", HIGHER, "mean of these four")                             \
    X(speedup_memory, "x", HIGHER,                                                       \
      "time with layers that stay on the accelerator as a whole or not at all / "        \
      "step_ms")                                                                         \
    X(speedup_tokens, "x", HIGHER, "time with all tokens of CC on the CPU / step_ms")    \
    X(greedy_gap_frac, "", LOWER,                                                        \
      "step_ms above that of the exact assignment of memory")                            \
    X(rounding_loss_frac, "", LOWER,                                                     \
      "step_ms above that with slices of any size, here 4096 of a matrix")

FRAME_TYPES;

struct slicing {
    FRAME_CELL;
    struct study_slicing step;
};

static int slicing_others(struct slicing *c)
{
    const struct {
        const char *policy;
        double *ms, *speedup;
    } others[] = {
        {"whole_layers", &c->r->step_ms_whole_layers, &c->r->speedup_whole_layers},
        {"fiddler", &c->r->step_ms_fiddler, &c->r->speedup_fiddler}};
    double other_s;

    for (int i = 0; i < 2; i++) {
        TRY(study_slicing_other_s(&other_s, others[i].policy, &c->step.k));
        frame_set(c->f, others[i].ms, 1e3 * other_s, err_msg());
        frame_set(c->f, others[i].speedup, 1e3 * other_s / c->r->step_ms, err_msg());
        err_clear();
    }
    return OK;
}

/* The time of a case over that of the step. */
static int slicing_ratio(const struct slicing *c, double *out,
                         const struct hetero_case *k)
{
    struct hetero_result r;

    TRY(study_slicing_step(&r, "scheinfer", k));
    *out = 1e3 * r.step_s / c->r->step_ms;
    return OK;
}

static int slicing_fixed(struct slicing *c)
{
    struct results *r = c->r;
    double *const speedups[] = {&r->speedup_fixed_0, &r->speedup_fixed_25,
                                &r->speedup_fixed_50, &r->speedup_fixed_75};
    double sum = 0;

    for (int i = 0; i < 4; i++) {
        struct hetero_case fixed = c->step.k;

        fixed.fixed_cg = 0.25 * i;
        TRY(slicing_ratio(c, speedups[i], &fixed));
        sum += *speedups[i];
    }
    r->speedup_fixed_mean = sum / 4;
    return OK;
}

static int slicing_parts(struct slicing *c)
{
    const struct hetero_case *k = &c->step.k;
    struct hetero_case whole = *k, own = *k, exact = *k, fine = *k;
    struct results *r = c->r;
    double x;

    whole.whole_layers = true;
    TRY(slicing_ratio(c, &r->speedup_memory, &whole));
    own.no_takeover = true;
    TRY(slicing_ratio(c, &x, &own));
    frame_set(c->f, &r->speedup_tokens, k->n_tok > 1 ? x : NAN, "of a prompt only");
    fine.n_units = 4096;
    fine.exact = false;
    if (k->model->n_experts > 1) { /* memory and time of the search go with both */
        frame_set(c->f, &r->greedy_gap_frac, NAN, "of models without experts only");
        frame_set(c->f, &r->rounding_loss_frac, NAN, "of models without experts only");
        return OK;
    }
    exact.exact = true;
    TRY(slicing_ratio(c, &x, &exact));
    frame_set(c->f, &r->greedy_gap_frac, k->n_tok == 1 ? 1 / x - 1 : NAN,
              "memory is assigned for decode");
    TRY(slicing_ratio(c, &x, &fine));
    r->rounding_loss_frac = 1 / x - 1;
    return OK;
}

static int slicing_run(struct slicing *c)
{
    const struct opts *o = c->o;
    struct study_slicing_opts how = STUDY_SLICING_OPTS;
    struct hetero_result step;

    how.as_printed = o->as_printed;
    how.no_gg = o->no_gg;
    TRY(study_slicing_open(&c->step, &how));
    TRY(study_slicing_own_step(&step, "scheinfer", &c->step.k));
    c->r->step_ms = 1e3 * step.step_s;
    c->r->cg_frac = step.cg;
    c->r->gg_frac = step.gg;
    frame_set(c->f, &c->r->accel_tok_frac, o->n_tok > 1 ? step.accel_tok_frac : NAN,
              "of a prompt only");
    TRY(slicing_others(c));
    TRY(slicing_fixed(c));
    return slicing_parts(c);
}

STUDY(slicing,
      "ScheInfer's slices on a CPU and an accelerator, by the paper's linear models");
