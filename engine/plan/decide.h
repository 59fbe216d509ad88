/* plan/decide.h - which of the measured configurations is the plan, and why.
 *
 * The smallest of many noisy times is too small by chance, so the best trials are measured
 * again, in turn, and only these new measurements decide.   Paper: Sandwich 5.3.
 *   Threads: one. */
#ifndef PLAN_DECIDE_H
#define PLAN_DECIDE_H

#include "plan/trials.h"

/* Set the candidates, the choice, the explanation and what the search cost in *out, whose
 * counts are those of `s`. ERR_UNSUPPORTED: no trial could run. The caller frees *out with
 * plan_tree_result_free(), also after an error. */
MUST int plan_decide(struct plan_tree_result *out, struct plan_trials *s);

#endif
