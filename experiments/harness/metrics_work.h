/* experiments/harness/metrics_work.h - what metrics.c hands to the definitions of
 * metrics_def.c: the rows, and those of them that count. Private to the two. */
#ifndef HARNESS_METRICS_WORK_H
#define HARNESS_METRICS_WORK_H

#include "experiments/harness/metrics.h"

struct metrics_work {
    const struct metrics_input *in;
    const struct metrics_row **ok;       /* measured and answered in full */
    const struct metrics_row **measured; /* all but the warm-up */
    size_t n_ok, n_measured;
    double duration_s; /* first intended start -> last end of the measured; NaN if none */
    bool overlapped;   /* two requests were ever served at once */
};

#endif
