/* ir/problem.h - what a kernel is run on: to check it against kernels/ref/, and to time it.
 *
 * Any variant of the operator runs on the same data. Threads: one. */
#ifndef IR_PROBLEM_H
#define IR_PROBLEM_H

#include "kernels/kern.h"
#include "measure/compare.h"

struct ir_problem;

/* Random data; the sizes are drawn from the seed, or are those of the benchmark, which
 * *text then says. m: rows of a product, 0: 64. *out: ir_problem_close(). ERR_NOMEM. */
MUST int ir_problem_random(struct ir_problem **out, enum kern_op op, uint64_t seed);
MUST int ir_problem_bench(struct ir_problem **out, enum kern_op op, int64_t m);
void ir_problem_close(struct ir_problem **p);
const char *ir_problem_text(const struct ir_problem *p);
/* Compute it. `fresh`: what is changed in place is given its first values again. */
MUST int ir_problem_run(struct ir_problem *p, const struct kern_variant *v, bool fresh);
/* The results, as floats (an index as one, 16-bit results by their bits). */
const float *ir_problem_result(const struct ir_problem *p, int64_t *n);

struct ir_check {
    int64_t n_problems, n_values, n_different; /* different: in any bit */
    double error; /* the largest difference over the RMS of the problem's results */
};
/* `v` against kernels/ref/ on n random problems. */
MUST int ir_check(struct ir_check *out, const struct kern_variant *v, int n,
                  uint64_t seed);
/* Holds the kernel what it promises: every bit, or sums in another order? ERR_STATE: no. */
#define IR_ERROR_MAX 1e-4
MUST int ir_check_verdict(const struct ir_check *c, bool keeps_bits);

/* Time variants on the benchmark's problem, in turn: out[n] seconds a run. */
MUST int ir_bench(struct measure_report *out, struct ir_problem *p,
                  const struct kern_variant *const *v, int n);

/* The variant of kernels/ref/, and the one that the engine would choose. */
const struct kern_variant *ir_reference(enum kern_op op);

#endif
