/* plan/costs.h - what a step takes by its rows, under one phase's configuration.
 *
 * A step of rows that are neither a whole prompt nor one token of each sequence (a batch
 * that holds pieces of prompts and tokens to decode, or a short prompt) may run under
 * either phase's configuration. Two such tables, measured side by side, say which is the
 * faster.   Paper: Sandwich 5.3.   Threads: any. */
#ifndef PLAN_COSTS_H
#define PLAN_COSTS_H

#include <stdint.h>

#include "base/err.h"

#define PLAN_COSTS_MAX 32    /* entries; powers of two up to the largest step are 17 */
#define PLAN_ROWS_MAX  65536 /* of an entry: the largest step there is */

struct plan_costs {
    int n;                        /* 0: nothing is known */
    int64_t rows[PLAN_COSTS_MAX]; /* ascending, from 1 */
    double seconds[PLAN_COSTS_MAX];
};

/* The seconds of a step of n_rows: interpolated between the two nearest entries; as the first
 * entry below that (a few rows are bound by the weights, which all of them share); in
 * proportion to the last above that (many are bound by arithmetic). NAN: no table. */
double plan_costs_at(const struct plan_costs *c, int64_t n_rows);

/* The most rows, up to n_max, that cost with `a` at most (1 + margin_frac) times what they
 * cost with `b`; 0: not even one. Both tables are there. */
int64_t plan_costs_most_rows(const struct plan_costs *a, const struct plan_costs *b,
                             double margin_frac, int64_t n_max);

/* ERR_FORMAT: rows that do not ascend from 1, a time that is none. */
MUST int plan_costs_check(const struct plan_costs *c, const char *where);

#endif
