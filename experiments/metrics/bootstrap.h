/* experiments/metrics/bootstrap.h - runs made of blocks of a run's requests, and ratios of pairs of
 * requests, for the interval of compare.h. Private to compare*.c.   Threads: one owner. */
#ifndef METRICS_BOOTSTRAP_H
#define METRICS_BOOTSTRAP_H

#include "experiments/metrics/compare.h"

struct compare_resampler {
    const struct metrics_row *rows; /* [n] without the warm-up; lent */
    size_t n;
    struct metrics_slo slo;
    int64_t *gap_ns;           /* [n] from each to the next */
    struct metrics_row *drawn; /* [n] */
    int64_t *token_ns;         /* of the drawn rows */
};

/* ERR_NOMEM. */
void compare_resampler_open(struct compare_resampler *s, const struct compare_run *run);
void compare_resampler_close(struct compare_resampler *s);

/* The metric of a run that is made of blocks of `block` requests, which begin at the requests
 * starts[0 .. ceil(n / block)); behind the last request comes the first. */
MUST int compare_resample(struct compare_resampler *s, const char *metric, size_t block,
                          const size_t *starts, double *value);

/* Paired ratio and interval, of sides whose runs have rows. Nothing is changed if the metric is not
 * of a request. */
MUST int compare_pairs(struct compare_result *out, const struct compare_side *a,
                       const struct compare_side *b, const struct compare_opts *o);

#endif
