/* ir/problem.h - what a kernel is run on: to check it against kernels/ref/, and to time it.
 *
 * Any variant of the operator runs on the same data. Threads: one. */
#ifndef IR_PROBLEM_H
#define IR_PROBLEM_H

#include <stdio.h>

#include "kernels/kern.h"
#include "measure/compare.h"

struct ir_problem;

/* The benchmark's problem, with random data. m: rows of a product, 0: 64.
 * *out: ir_problem_close(). ERR_NOMEM. */
MUST int ir_problem_bench(struct ir_problem **out, enum kern_op op, int64_t m);
void ir_problem_close(struct ir_problem **p);
const char *ir_problem_text(const struct ir_problem *p); /* its sizes */
/* Compute it. `fresh`: what is changed in place is given its first values again. */
MUST int ir_problem_run(struct ir_problem *p, const struct kern_variant *v, bool fresh);

struct ir_check {
    int64_t n_problems, n_values, n_different; /* different: in any bit */
    double error; /* the largest difference over the RMS of the problem's results */
};
/* fn(ctx, out), which runs the variant v on some n_problems problems, in a process of its own with
 * limits of memory and time: an index out of bounds or an endless loop ends that one. *text: what
 * it printed, mem_free(). ERR_FORMAT: it crashed, or hit a limit. */
MUST int ir_run_apart(char **text, int (*fn)(void *ctx, FILE *out), void *ctx,
                      const struct kern_variant *v, int n_problems);
/* `v` against kernels/ref/ on n random problems, apart. */
MUST int ir_check(struct ir_check *out, const struct kern_variant *v, int n,
                  uint64_t seed);
/* ERR_STATE: the kernel does not keep what it promises, every bit or another order of sums. */
#define IR_ERROR_MAX 1e-4
MUST int ir_check_verdict(const struct ir_check *c, bool keeps_bits);

/* Variants that are timed on the benchmark's problem. A trial is as many runs as v[0] does in
 * trial_s, which ir_bench_open() finds; ir_bench_trial(&bench, i, t) is one of v[i]. */
struct ir_bench {
    struct ir_problem *p;
    const struct kern_variant *const *v;
    int64_t n_runs; /* of a trial */
};
MUST int ir_bench_open(struct ir_bench *b, double trial_s);
MUST int ir_bench_trial(void *bench, int i, struct measure_trial *t);
/* Time them in turn: out[n] seconds a run. */
MUST int ir_bench(struct measure_report *out, struct ir_problem *p,
                  const struct kern_variant *const *v, int n);

/* The variant of kernels/ref/. */
const struct kern_variant *ir_reference(enum kern_op op);

#endif
