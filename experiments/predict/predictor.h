/* experiments/predict/predictor.h - a predictor of headlines: one file in predictor/ that ends in
 * `const struct predictor predictor_<stem>`. make lists the folder.   Threads: any. */
#ifndef PREDICT_PREDICTOR_H
#define PREDICT_PREDICTOR_H

#include "experiments/predict/predict.h"

struct predictor {
    const char *name, *text; /* for --help */
    /* The number, by the records that are seen; NaN: it does not know this headline. */
    double (*value)(const struct predict_view *v);
};
extern const struct predictor *const predictors[]; /* written by make */

/* Is x seen: of another record, and not of a hidden machine? */
bool predict_sees(const struct predict_view *v, const struct predict_number *x);
/* The same headline of other machines: from *begin, *n numbers, some of which may not be seen. */
void predict_others(const struct predict_view *v, const struct predict_number **begin,
                    size_t *n);

/* Kinds of units: per second, seconds, "x", "", "%", and others, such as bytes. */
enum predict_unit {
    PREDICT_RATE,
    PREDICT_TIME,
    PREDICT_FACTOR,
    PREDICT_SHARE,
    PREDICT_PERCENT,
    PREDICT_AMOUNT
};
enum predict_unit predict_unit_of(const char *unit);

/* The scale on which numbers are compared: the logarithm, which near 0 becomes linear: of shares
 * below 1 %, of all else where nothing is measured. And back. */
double predict_scaled(double value, const char *unit);
double predict_unscaled(double y, const char *unit);

#endif
