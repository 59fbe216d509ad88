/* experiments/metrics/compare.h - is B worse than A? One metric, its ratio and an interval.
 *
 * A side is what was run of one setting: restarts of the program, in each of them repeats, in
 * each of them requests. The interval is the wider of two:
 *   - between runs: from the spread of the logarithm of the metric over restarts, or over
 *     repeats where there is one restart on each side (Student's t). Where A and B ran in
 *     turn, each pair gives one ratio, which a drift of the machine does not touch.
 *   - between requests: by a block bootstrap. Blocks of consecutive requests are drawn and put
 *     one behind another on the axis of time, so that every metric is computed by its one
 *     definition (metrics.h) and the dependence of neighbours stays. Where both sides had
 *     the same requests, they are drawn together: that some are longer does not count.
 * One run on each side has the second only, which says nothing of what a restart changes.
 * Threads: any; nothing is shared. */
#ifndef METRICS_COMPARE_H
#define METRICS_COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "experiments/metrics/metrics.h"

struct compare_run {
    int restart;  /* from 0, without gaps; runs of a restart stand together */
    double value; /* of the metric, as recorded */
    const struct metrics_row *rows; /* [n_rows]; NULL: the run served no requests */
    size_t n_rows;
    struct metrics_slo slo;
};
struct compare_side {
    const struct compare_run *runs;
    size_t n;
};

struct compare_opts {
    const char *metric;
    bool higher_is_better;
    bool in_turn; /* restart k of A and of B ran one after the other, as many of each */
    double margin_frac;
    uint64_t seed;
};

enum compare_verdict {
    COMPARE_SAME,    /* the interval is within the margin */
    COMPARE_BETTER,  /* all of it is on the better side, not all within the margin */
    COMPARE_WORSE,   /* all of it is worse by more than the margin */
    COMPARE_UNKNOWN, /* none of these, or there is no interval */
};
const char *compare_verdict_name(enum compare_verdict v);

struct compare_result {
    double a, b;   /* geometric means over restarts of those over repeats */
    double ratio;  /* b / a; NaN: none, and why */
    double lo, hi; /* its 95 % interval; NaN: none, and why */
    /* Half of the interval's width in the logarithm, from each source; NaN: not known. */
    double between_runs, between_requests;
    size_t n_units[2]; /* restarts of a side, or its repeats, that `between_runs` is of */
    bool units_repeats; /* they are repeats */
    bool in_turn;       /* they were taken in pairs */
    bool same_requests; /* both sides had the same */
    size_t n_requests;  /* of a run: the fewest */
    size_t block;       /* consecutive requests drawn together; 0: none were */
    enum compare_verdict verdict;
    bool maybe_worse; /* it may be worse by more than the margin */
    char why[128];
};

/* ERR_NOMEM, or ERR_NOTFOUND for runs with requests and a metric that they do not have. */
MUST int compare_metric(struct compare_result *out, const struct compare_side *a,
                        const struct compare_side *b, const struct compare_opts *o);

#endif
