/* experiments/metrics/impl.h - what metrics.c hands to the definitions of
 * definitions.c: the rows, and those of them that count. Private to the two. */
#ifndef METRICS_IMPL_H
#define METRICS_IMPL_H

#include "experiments/metrics/metrics.h"

struct metrics_work {
    const struct metrics_input *in;
    const struct metrics_row **ok;       /* measured and answered in full */
    const struct metrics_row **measured; /* all but the warm-up */
    size_t n_ok, n_measured;
    double duration_s; /* first intended start -> last end of the measured; NaN if none */
    bool overlapped;   /* two requests were ever served at once */
};

/* a / b; where b is not above 0: NaN, and *why is `reason`. */
double metrics_ratio(double a, double b, const char **why, const char *reason);

/* rate.c: rates of requests. */
double metrics_offered_rate(const struct metrics_work *w, const char **why);
double metrics_achieved_rate(const struct metrics_work *w, const char **why);
double metrics_backlog_growth(const struct metrics_work *w, const char **why);

/* energy.c: energy by token and phase. */
double metrics_joules_per_tok(const struct metrics_work *w, const char **why);
double metrics_prefill_joules_per_tok(const struct metrics_work *w, const char **why);
double metrics_decode_joules_per_tok(const struct metrics_work *w, const char **why);

#endif
