/* Reference kernels that are raised, given parameters and lowered: are their bits kept, and how
 * fast are they next to the reference and the kernel written by hand?   Paper: Sandwich 7.1. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/study/support/compare.h"
#include "experiments/study/support/raised.h"
#include "experiments/study/support/rows.h"
#include "ir/problem.h"

struct opts {
    char *kernel;
    int vectors;
    int64_t m, rounds, problems;
    double cell_s;
};

static const struct opt_row table[] = {
    OPT_ROW(STR, kernel, NULL,
            "A kernel of engine/kernels/ref/ and its parameters. Example: \"rope "
            "vI=8,uI=2\""),
    OPT_ROW(ENUM, vectors, "widest",
            "The widest vectors of this processor, or those of AVX2.",
            .values = STUDY_VECTORS),
    OPT_ROW(INT, m, "64", "Rows of a matrix product.", .min = 1, .max = 4096),
    OPT_ROW(INT, problems, "200", "Random problems whose results are compared.", .min = 1,
            .max = 1000000),
    OPT_ROW(INT, rounds, "25", "Largest number of rounds; at least three are run.",
            .min = 3, .max = 99),
    OPT_ROW(F64, cell_s, "0.5", "No further round is begun after this time.", .unit = "s",
            .min = 0, .max = 3600),
    {0},
};

static const struct study_metric metrics[] = {
    {"ratio_vs_ref", "x", "higher",
     "time of the reference / time of the raised kernel, median over the rounds"},
    {"ratio_vs_handwritten", "x", "higher",
     "time of the kernel written by hand / time of the raised one"},
    {"keeps_bits", "", "",
     "1: its parameters promise every bit; 0: sums in another order"},
    {"n_different", "", "lower", "results that differ from the reference in any bit"},
    {"n_results", "", "", "results that were compared"},
    {"error", "", "lower", "largest difference over the RMS of a problem's results"},
    {"time_us", "us", "lower", "of the raised kernel"},
    {"n_rounds", "", "", "measured rounds"},
    {0},
};

enum { RAISED, REFERENCE, HANDWRITTEN, N };
#define TRIAL_S 2e-4 /* a trial is as many runs as the raised kernel does in this time */

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct ir high;
    struct ir_kernel kernel;
    const struct kern_variant *v[N];
    struct ir_bench bench;
    struct ir_check check;
    struct study_compare rounds;
};

static int build(struct cell *c)
{
    const char *space = c->o->kernel ? strchr(c->o->kernel, ' ') : NULL;
    const struct ir_target *target;
    char name[32];

    if (!c->o->kernel)
        return err_set(ERR_ARG, "study.kernel: expected one, found none");
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(c->o->kernel, " "), c->o->kernel);
    TRY(study_raise(&c->high, name));
    TRY(study_set(&c->high, space ? space + 1 : ""));
    TRY(study_target(c->o->vectors, &target));
    TRY(study_build(&c->kernel, &c->high, target));
    c->v[RAISED] = &c->kernel.v;
    c->v[REFERENCE] = ir_reference(c->kernel.v.op);
    c->v[HANDWRITTEN] = study_handwritten(c->kernel.v.op, target);
    return OK;
}

static int measure(struct cell *c)
{
    static const char *const series[N] = {"s_raised", "s_ref", "s_handwritten"};

    TRY(ir_problem_bench(&c->bench.p, c->kernel.v.op, c->o->m));
    c->bench.v = c->v;
    TRY(ir_bench_open(&c->bench, TRIAL_S));
    c->rounds = (struct study_compare){.how = {.min_rounds = 3,
                                               .max_rounds = (int)c->o->rounds,
                                               .budget_s = fmax(c->o->cell_s, 1e-9),
                                               .keep_all = true},
                                       .series = series,
                                       .doing = "in turn",
                                       .from = 0.5};
    return study_compare(&c->rounds, c->out, N, 0, ir_bench_trial, &c->bench);
}

static int run(struct cell *c)
{
    bool bits;

    TRY(build(c));
    bits = ir_keeps_bits(&c->high);
    TRY(ir_check(&c->check, &c->kernel.v, (int)c->o->problems, 1));
    TRY(ir_check_verdict(&c->check, bits));
    TRY(measure(c));
    study_compare_ratio(&c->rounds, "ratio_vs_ref", REFERENCE, RAISED, 0);
    study_compare_ratio(&c->rounds, "ratio_vs_handwritten", HANDWRITTEN, RAISED, 0);
    const struct study_number all[] = {
        {"keeps_bits", bits},
        {"n_different", (double)c->check.n_different},
        {"n_results", (double)c->check.n_values},
        {"error", c->check.error},
        {"time_us", 1e6 * c->rounds.time[RAISED].estimate},
        {"n_rounds", c->rounds.n_rounds},
    };

    STUDY_VALUES(c->out, all, "a time was not a number");
    study_note_text(c->out, "problem", ir_problem_text(c->bench.p));
    study_note_text(c->out, "raised", c->kernel.name);
    study_note_text(c->out, "handwritten", c->v[HANDWRITTEN]->name);
    return OK;
}

static void end(struct cell *c)
{
    study_compare_close(&c->rounds);
    ir_problem_close(&c->bench.p);
    ir_unload(&c->kernel);
    ir_fini(&c->high);
}

STUDY(kernel_raise, "reference kernels raised, given parameters and lowered");
