/* Reference kernels that are raised, given parameters and lowered: are their bits kept, and how
 * fast are they next to the reference and the kernel written by hand?   Paper: Sandwich 7.1. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/frame/frame.h"
#include "experiments/study/support/raised.h"
#include "experiments/study/support/options.h"
#include "ir/problem.h"

#define OPTIONS(X)                                                                       \
    X(STR, kernel, NULL,                                                                 \
      "A kernel of engine/kernels/ref/ and its parameters. Example: \"rope vI=8,uI=2\"") \
    X(ENUM, vectors, "widest",                                                           \
      "The widest vectors of this processor, or those of AVX2.",                         \
      .values = STUDY_VECTORS)                                                           \
    X(INT, m, "64", "Rows of a matrix product.", .min = 1, .max = 4096)                  \
    X(INT, problems, "200", "Random problems whose results are compared.", .min = 1,     \
      .max = 1000000)                                                                    \
    X(INT, rounds, "25", "Largest number of rounds; at least three are run.", .min = 3,  \
      .max = 99)                                                                         \
    X(F64, cell_s, "0.5", "No further round is begun after this time.", .unit = "s",     \
      .min = 0, .max = 3600)

#define RESULTS(X)                                                                       \
    X(ratio_vs_ref, "x", HIGHER,                                                         \
      "time of the reference / time of the raised kernel, median over the rounds")       \
    X(ratio_vs_handwritten, "x", HIGHER,                                                 \
      "time of the kernel written by hand / time of the raised one")                     \
    X(keeps_bits, "", 0,                                                                 \
      "1: its parameters promise every bit; 0: sums in another order")                   \
    X(n_different, "", LOWER, "results that differ from the reference in any bit")       \
    X(n_results, "", 0, "results that were compared")                                    \
    X(error, "", LOWER, "largest difference over the RMS of a problem's results")        \
    X(time_us, "us", LOWER, "of the raised kernel")                                      \
    X(n_rounds, "", 0, "measured rounds")

FRAME_TYPES;

enum { RAISED, REFERENCE, HANDWRITTEN, N };
#define TRIAL_S 2e-4 /* a trial is as many runs as the raised kernel does in this time */

struct kernel_raise {
    FRAME_CELL;
    struct ir high;
    struct ir_kernel kernel;
    const struct kern_variant *v[N];
    struct ir_bench bench;
    struct ir_check check;
};

static int build(struct kernel_raise *c)
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

static int kernel_raise_measure(struct kernel_raise *c)
{
    const struct measure_opts how = {.min_rounds = 3,
                                     .max_rounds = (int)c->o->rounds,
                                     .budget_s = fmax(c->o->cell_s, 1e-9),
                                     .keep_all = true};

    TRY(ir_problem_bench(&c->bench.p, c->kernel.v.op, c->o->m));
    c->bench.v = c->v;
    TRY(ir_bench_open(&c->bench, TRIAL_S));
    c->f->progress = 0.5;
    TRY(frame_rounds_by(c->f, "in turn", N, &how, ir_bench_trial, &c->bench));
    frame_times_series(c->f, "s_raised", RAISED);
    frame_times_series(c->f, "s_ref", REFERENCE);
    frame_times_series(c->f, "s_handwritten", HANDWRITTEN);
    return OK;
}

static int kernel_raise_run(struct kernel_raise *c)
{
    bool bits;

    FRAME_CLOSE(c->f, ir_fini, &c->high);
    FRAME_CLOSE(c->f, ir_unload, &c->kernel);
    FRAME_CLOSE(c->f, ir_problem_close, &c->bench.p);
    TRY(build(c));
    bits = ir_keeps_bits(&c->high);
    TRY(ir_check(&c->check, &c->kernel.v, (int)c->o->problems, 1));
    TRY(ir_check_verdict(&c->check, bits));
    TRY(kernel_raise_measure(c));
    frame_ratio(c->f, &c->r->ratio_vs_ref, REFERENCE, RAISED, 0);
    frame_ratio(c->f, &c->r->ratio_vs_handwritten, HANDWRITTEN, RAISED, 0);
    c->r->keeps_bits = bits;
    c->r->n_different = (double)c->check.n_different;
    c->r->n_results = (double)c->check.n_values;
    c->r->error = c->check.error;
    c->r->time_us = 1e6 * frame_seconds(c->f, RAISED);
    c->r->n_rounds = c->f->n_rounds;
    frame_why(c->f, NULL, "a time was not a number");
    study_note_text(c->out, "problem", ir_problem_text(c->bench.p));
    study_note_text(c->out, "raised", c->kernel.name);
    study_note_text(c->out, "handwritten", c->v[HANDWRITTEN]->name);
    return OK;
}

STUDY(kernel_raise, "reference kernels raised, given parameters and lowered");
