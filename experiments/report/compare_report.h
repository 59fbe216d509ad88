/* experiments/report/compare_report.h - two sides as a table: what differs between them, and
 * for each cell that both have, each metric with its interval and verdict.   Threads: one. */
#ifndef REPORT_COMPARE_REPORT_H
#define REPORT_COMPARE_REPORT_H

#include <stdio.h>

#include "experiments/report/compare_read.h"

struct compare_report_opts {
    /* Names with commas between them. NULL: of cells that served, the means and the ninth
     * decile that users feel; of studies, each metric of which more or less is better. */
    const char *metrics;
    double margin_frac;
    /* A again, run in the same rounds: what this comparison could have seen. NULL: A's own
     * restarts, where they are enough (metrics/compare.h). */
    const struct compare_records *aa;
    bool no_aa;           /* leave the A/A out */
    bool sequential;      /* the rounds ended by their results (metrics/compare.h) */
    bool across_machines; /* compare them although they come from different machines */
    uint64_t seed;
};

struct compare_totals {
    int n[COMPARE_UNKNOWN + 1]; /* of each verdict */
    int n_maybe_worse; /* of them, those that may be worse by more than the margin */
    /* How far the widest interval reaches to each side: 0.05 from 1 / 1.05 of the ratio to 1.05
     * of it. INFINITY: a ratio has none. Metrics without a ratio do not count. */
    double reach_frac;
};

/* ERR_ARG: the machines differ, or the records have no cell in common. ERR_NOTFOUND: no such
 * metric. */
MUST int compare_report(struct compare_totals *out, const struct compare_records *a,
                        const struct compare_records *b,
                        const struct compare_report_opts *o, FILE *f);

#endif
