/* tests/metrics/rows.h - synthetic requests for the tests of the metrics. */
#ifndef TESTS_METRICS_ROWS_H
#define TESTS_METRICS_ROWS_H

#include <math.h>

#include "experiments/metrics/metrics.h"
#include "tests/support/test.h"

#define MS 1000000ll

/* A completed request whose tokens come at the given times; the times are lent. */
static inline struct metrics_row row_at(int64_t intended_ns, int64_t dispatch_ns,
                                        const int64_t *token_ns, int64_t n)
{
    return (struct metrics_row){.intended_ns = intended_ns,
                                .dispatch_ns = dispatch_ns,
                                .first_token_ns = n ? token_ns[0] : METRICS_NEVER,
                                .done_ns = n ? token_ns[n - 1] : dispatch_ns,
                                .n_prompt_tok = 10,
                                .n_output_tok = n,
                                .n_tok = n,
                                .token_ns = token_ns,
                                .decode_bytes = NAN,
                                .prefill_flop = NAN};
}

static inline double metric(const struct metrics *m, const char *name)
{
    const struct metrics_value *v = metrics_find(m, name);

    if (!v)
        fail_msg("no metric %s", name);
    return v->value;
}

static inline const char *why(const struct metrics *m, const char *name)
{
    assert_true(isnan(metric(m, name)));
    return metrics_find(m, name)->why;
}

static inline void assert_near(double found, double wanted, double tolerance)
{
    if (!(fabs(found - wanted) <= tolerance))
        fail_msg("found %.12g, wanted %.12g within %g", found, wanted, tolerance);
}

#endif
