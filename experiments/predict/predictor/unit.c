/* Nothing but what headlines of this unit are in other experiments: the median. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "experiments/predict/predictor.h"

static double value(const struct predict_view *v)
{
    double *seen = mem_new(MEM_HARNESS, v->data->n + 1, sizeof(*seen)), median;
    size_t n = 0;

    for (size_t i = 0; i < v->data->n; i++) {
        const struct predict_number *x = &v->data->of[i];

        if (x->experiment != v->experiment && x->is_timed == v->is_timed &&
            strcmp(x->unit, v->unit) == 0 && predict_sees(v, x))
            seen[n++] = x->value;
    }
    median = stats_median(seen, n);
    mem_free(seen);
    return median;
}

const struct predictor predictor_unit = {
    .name = "unit",
    .text = "the median of headlines of the same unit in other experiments",
    .value = value,
};
