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
 *
 * Where A and B served each request one right after the other (`paired`), the ratio is taken
 * request by request: both ran within moments of each other. Requests 0 and 1, 2 and 3 ...
 * ran as A B, B A, so that neither a drift nor the second turn favours one. The ratio is the median
 * over these pairs, which the edge of a wave does not move, and blocks of pairs, thus of time, are
 * drawn. This is for metrics that a request has on its own (metrics_is_of_request()).
 *
 * Where the restarts ended when the interval was narrow enough (`sequential`), the first of these
 * is a confidence sequence (base/stats_sequence.h) of the ratios of restart k of B and of A, since
 * Student's t is too narrow for a check after each restart.
 *
 * The A/A compares A with A again by the same rule, so that any difference it shows is noise.
 * The smallest difference that a comparison could have seen is the end of the A/A's interval
 * that is farther from 1: in the logarithm, the difference observed between A and A plus half
 * of the interval's width. A ratio of A and B that is nearer to 1 gets no verdict better or
 * worse. The interval alone is too narrow where its assumptions fail (a burst in one round, a few
 * restarts that agree by chance); the observed difference then shows it.
 * Threads: any; nothing is shared. */
#ifndef METRICS_COMPARE_H
#define METRICS_COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "experiments/metrics/metrics.h"

/* The fewest restarts on which anything is decided that ends the restarts: where a system has two
 * speeds, such as with and without huge pages, fewer are too often all of one. */
#define COMPARE_SEQUENTIAL_LEAST 6

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

enum compare_aa_source {
    COMPARE_AA_NONE, /* there is no A/A */
    COMPARE_AA_ARM,  /* A was run a second time in the same rounds */
    COMPARE_AA_HALVES, /* A's restarts 0, 2, 4 ... with 1, 3, 5 ...: at least 6 of them. Each
                        * half has half of the restarts, so it sees less than the comparison */
};

struct compare_opts {
    const char *metric;
    bool higher_is_better;
    bool in_turn; /* restart k of A and of B ran one after the other, as many of each */
    bool paired; /* so were their requests: row i of each run of A and of that run of B */
    bool sequential; /* how many restarts there are was decided by their results */
    double margin_frac;
    uint64_t seed;
    enum compare_aa_source aa_source;
    const struct compare_side *aa; /* of COMPARE_AA_ARM: A again */
    bool aa_in_turn;               /* it and A, as `in_turn` */
};

enum compare_verdict {
    COMPARE_SAME,    /* the interval is within the margin */
    COMPARE_BETTER,  /* all of it is on the better side, not all within the margin */
    COMPARE_WORSE,   /* all of it is worse by more than the margin */
    COMPARE_UNKNOWN, /* none of these, or there is no interval */
};
const char *compare_verdict_name(enum compare_verdict v);

struct compare_aa {
    double ratio, lo, hi; /* A again over A; NaN: none, and why */
    /* The smallest difference that could have been seen, as a share: 0.05 stands for ratios
     * from 1 / 1.05 to 1.05, which could not. NaN: not known, and why. */
    double detectable_frac;
    char why[128];
};

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
    size_t n_requests;  /* of a run: the fewest; of pairs not counted */
    size_t
        n_pairs; /* paired: ratios, each of two requests; 0: the metric is not of a request */
    size_t
        block; /* consecutive requests drawn together, more where they depend; 0: none were */
    enum compare_verdict verdict;
    bool maybe_worse; /* it may be worse by more than the margin */
    struct compare_aa aa;
    char why[128];
};

/* Which of n has this turn of a round, both from 0. The one that begins moves on after every two
 * rounds, and odd rounds run backwards, so that a drift of the machine favours none: A B, B A; or
 * A B C, C B A, B C A, A C B, C A B, B A C. */
int compare_turn(int64_t round, int turn, int n);

/* ERR_NOMEM, or ERR_NOTFOUND for runs with requests and a metric that they do not have. */
MUST int compare_metric(struct compare_result *out, const struct compare_side *a,
                        const struct compare_side *b, const struct compare_opts *o);

#endif
