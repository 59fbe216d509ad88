/* What other hosts have: the mean, on the scale of predict_scaled(). */
#include <math.h>

#include "experiments/predict/predictor.h"

static double value(const struct predict_view *v)
{
    const struct predict_number *x;
    double sum = 0, n_seen = 0;
    size_t n;

    predict_others(v, &x, &n);
    for (size_t i = 0; i < n; i++)
        if (predict_sees(v, &x[i])) {
            n_seen++;
            sum += predict_scaled(x[i].value, v->unit);
        }
    return n_seen > 0 ? predict_unscaled(sum / n_seen, v->unit) : (double)NAN;
}

const struct predictor predictor_records = {
    .name = "records",
    .text = "the mean of the records of other hosts",
    .value = value,
};
