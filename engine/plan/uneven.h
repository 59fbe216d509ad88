/* plan/uneven.h - plans that trees cannot express; the head of uneven.c has the method.
 *   Threads: one. */
#ifndef PLAN_UNEVEN_H
#define PLAN_UNEVEN_H

#include "plan/trials.h"

/* Measure such plans until all are tried or the budget of these stages is used. */
MUST int plan_uneven_search(struct plan_trials *s);

#endif
