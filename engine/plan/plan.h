/* plan/plan.h - the phase plan: which cores prefill uses, which decode uses, and why.
 *
 * A JSON file, written by `sandwich plan` and read by the engine. Until a plan is
 * searched the default uses every CPU of the budget for both phases.   Paper: Sandwich
 * 5. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "cpu/cpu.h"

struct plan_phase {
    int n_threads; /* the first n of plan.cpus: decode's cores come first */
    char why[160];
};

struct plan {
    int n_cpus;
    int cpus[CPU_MAX];
    struct plan_phase prefill, decode;
    char source[64]; /* "default", "--threads", a file's path */
};

/* All CPUs of the budget for both phases; threads > 0 asks for exactly that many.
 * ERR_ARG: more threads than CPUs allowed. */
MUST int plan_default(struct plan *p, const struct cpu_budget *b, int threads);
MUST int plan_read(struct plan *p, const char *path);
MUST int plan_write(const struct plan *p, const char *path);

#endif
