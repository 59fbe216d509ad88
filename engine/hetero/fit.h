/* hetero/fit.h - models of how long products and copies take, from measured points.
 *
 * The paper fits one line t = start + rate * n to all of them (Eq. 3). It is bound by large n, and
 * may be far off for a single token, which is what decoding takes. In the model of two regimes a
 * product takes as long as reading its weights or as computing, whichever is longer:
 *     t = start + max(bytes / bandwidth, weights * n_tok / rate)
 * Both are fitted to the same points and judged by relative errors, on points that were not
 * fitted.   Paper: ScheInfer IV-A1, V-B.   Threads: pure functions. */
#ifndef HETERO_FIT_H
#define HETERO_FIT_H

#include <stdbool.h>

#include "base/err.h"

/* A product of n_tok tokens, or (n_tok 0) a copy. */
struct hetero_point {
    double weights, n_tok, bytes, seconds;
};

/* t = start_s + s_per_unit * n; n: weights times tokens of a product, bytes of a copy. */
struct hetero_line {
    double start_s, s_per_unit, r2;
};
struct hetero_regimes {
    double start_s, bytes_per_s, macs_per_s;
};

/* Least squares, as in the paper: a start below 0, which noise of large n makes, is kept at 0.
 * ERR_ARG: fewer than two different n. */
MUST int hetero_line_fit(struct hetero_line *out, const struct hetero_point *p, int n);
double hetero_line_s(const struct hetero_line *l, const struct hetero_point *p);
/* Least squares of relative errors. ERR_ARG: fewer than three points. */
MUST int hetero_regimes_fit(struct hetero_regimes *out, const struct hetero_point *p,
                            int n);
double hetero_regimes_s(const struct hetero_regimes *r, const struct hetero_point *p);

/* Relative errors of a model: the median of |predicted / measured - 1|, of all points and of those
 * of a single token (NaN: none), and the 95th percentile of |log(predicted / measured)|. */
struct hetero_errors {
    double median, one_tok, p95_log;
};
/* Both models, fitted on all points; the errors are of models that were fitted on four points of
 * five, which a draw with this seed chooses, on the fifth. r2 is of all. */
struct hetero_fit {
    struct hetero_line line;
    struct hetero_regimes regimes;
    struct hetero_errors line_errors, regimes_errors; /* of points that were not fitted */
    double line_one_tok, regimes_one_tok; /* all points' median errors at one token */
    int n_points;
};
/* ERR_ARG: fewer than ten points. ERR_NOMEM. */
MUST int hetero_fit(struct hetero_fit *out, const struct hetero_point *p, int n,
                    unsigned seed);

#endif
